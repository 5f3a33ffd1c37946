"""The live page in a real browser, without a window; skipped where none is installed.

Pictures of it for the documentation are made by `python -m tests.cluster.screenshots`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.cluster.browser import NO_BROWSER, Browser, find_browser
from tests.cluster.harness import World
from tests.cluster.pages import HOLDER, RING, web
from tests.cluster.servers import LIMIT, NAMES, Servers, running
from tests.cluster.test_looking import CANDIDATE, LEADS, PRINTERS, WORKER

PATH = find_browser() or pytest.skip(NO_BROWSER, allow_module_level=True)
WAITER = """
import locks
with locks.transaction(label="morning") as tx:
    print("ready", flush=True)
    tx.write_lock(("accounts",))
"""
BROKEN = "    tx.lost.wait(60); tx.ensure_held()"


@pytest.fixture(scope="module")
def all_processes() -> Iterator[Browser]:
    """The browser."""
    with Browser(PATH) as browser:
        yield browser


def rows(browser: Browser) -> list[str]:
    """What the tree shows."""
    found: list[str] = browser.run(
        "[...document.querySelectorAll('.row')].map((row) => row.innerText)"
    )
    return found


@pytest.mark.slow
def test_what_somebody_sees_and_does(processes: Servers, all_processes: Browser) -> None:
    """Locks appear and go, a deadlock leaves its card with its steps, and a transaction is ended by mouse and keyboard."""
    browser = all_processes
    with web(processes, "--allow-break") as page:
        browser.open(page.address)
        browser.wait_for("#quorum", "3 of 3 lock servers")
        assert browser.run("location.hash") == ""
        browser.wait_for("#tree", "No transaction holds or requests a lock.")
        night = HOLDER.format(label="night <b>", lock_id=("accounts", "ann"))
        night = night.replace("    sys.stdin.readline()", BROKEN)
        with running(processes, night, WAITER) as (holder, waiter):
            browser.wait("document.querySelectorAll('.row').length === 4")
            assert [row.split("\n")[:3] for row in rows(browser)] == [
                ["▾", "accounts", "1 waiting"],
                ["waits write", "morning", f"-c, pid {waiter.pid}"],
                ["▾", "ann"],
                ["holds write", "night <b>", f"-c, pid {holder.pid}"],
            ]
            assert (
                browser.run("document.querySelector('.box.root text').textContent") == "night <b>"
            )
            processes.run(RING)
            browser.wait_for("#deadlocks .deadlock", "a cycle of 2")
            told = browser.run("document.querySelector('.report pre').textContent")
            yielding = told.partition(" ")[0]  # an agent, whose label follows
            (label,) = set(re.findall(rf"(wants \w) \([^()]*\) \({re.escape(yielding)}\)", told))
            assert browser.text("#deadlocks .step").startswith(f"3. {label} is aborted: ")
            names = "[...document.querySelectorAll('.ring text:not(.soft)')]"
            at = browser.run(
                f"{names}.findIndex((each) => each.firstChild.textContent === '{label}')"
            )
            assert browser.run(f"{names}[{at} - 1].previousSibling.matches('circle.yields')")
            browser.run("document.querySelectorAll('#deadlocks button')[1].click()")
            browser.wait_for("#deadlocks .step", "2. wants ")
            browser.run("document.querySelector('#deadlocks button').click()")
            browser.wait_for("#deadlocks .step", "1. wants ")  # it plays, slowly
            assert browser.run("document.querySelectorAll('.ring .later').length > 0")
            browser.run("document.querySelector('#tree').focus()")
            for key in ("End", "ArrowLeft", "ArrowLeft"):  # to `ann`, and fold it
                browser.press(key)
            browser.wait("document.querySelectorAll('.row').length === 3")
            browser.press("ArrowRight")
            browser.press("End")
            browser.press("Enter")
            browser.wait_for("#details", "It is not waiting for any lock")
            browser.run("document.querySelector('#reason').value = 'sleeps, ticket 17'")
            browser.run("document.querySelector('#break button').click()")
            browser.wait_for("#break-said", "was ended")
            assert waiter.wait(LIMIT) == 0
            assert "sleeps, ticket 17" in holder.communicate(timeout=LIMIT)[1]
        browser.wait_for("#tree", "No transaction holds or requests a lock.")
        browser.wait_for("#details", "This transaction has ended.")
        assert browser.errors == []
        browser.open("about:blank")  # so that the page's server need not wait for it


@pytest.mark.parametrize("width", [360, 700, 1280])
@pytest.mark.explore
def test_no_width_is_too_narrow(processes: Servers, all_processes: Browser, width: int) -> None:
    """Nothing sticks out of the page; light or dark is as the user wishes."""
    browser = all_processes
    label = "a label that is as long as somebody may wish it to be, if not longer"
    with (
        web(processes) as page,
        running(processes, HOLDER.format(label=label, lock_id=("x" * 60,) * 4)),
    ):
        grounds = []
        for dark in (False, True):
            browser.look(width, 800, dark)
            browser.open(page.address)
            browser.wait("document.querySelectorAll('.row').length === 5")
            assert browser.run("document.documentElement.scrollWidth <= innerWidth")
            grounds.append(browser.run("getComputedStyle(document.body).backgroundColor"))
        assert grounds[0] != grounds[1]
    browser.look(1280, 800)


@pytest.mark.explore
def test_a_lost_server_is_seen() -> None:
    """One of three is killed, then another one, and then the first one is stopped: who is missing, and what that means."""
    with World() as world:
        servers = Servers(world, net_ticktime=2)
        with web(servers) as page, Browser(PATH) as browser:
            browser.open(page.address)
            browser.wait_for("#quorum", "3 of 3 lock servers")
            servers.processes[2].stop()
            browser.wait_for("#quorum", f"2 of 3 lock servers, without {NAMES[2]}")
            servers.processes[2].go_on()
            browser.wait_for("#quorum", "3 of 3 lock servers")
            servers.processes[0].kill()
            browser.wait_for("#quorum", f"2 of 3 lock servers, without {NAMES[0]}")
            assert browser.text("#servers tr.bad").startswith(NAMES[0])
            servers.processes[1].kill()
            browser.wait_for("#quorum", "locks can NOT be taken, 2 are needed")
            assert browser.errors == []


@pytest.mark.explore
def test_leaders_and_groups(processes: Servers, all_processes: Browser) -> None:
    """Who leads, in which term, and how many follow; when the leader is killed, the next one; and groups of programs."""
    browser = all_processes
    first = CANDIDATE.format(label="the first", until_it_leads=LEADS)
    second = CANDIDATE.format(label="the second", until_it_leads="")
    with web(processes) as page, running(processes, first, second, WORKER, PRINTERS) as programs:
        browser.open(page.address)
        browser.wait_for("#leaders", "chief the first")
        browser.wait_for("#leaders", "1 candidate, 1 worker")
        browser.wait_for("#tree", 'election "chief"')
        followers = browser.run("document.querySelector('#leaders .soft').title")
        assert re.findall(r"^(\w+): ([^,]+), (\w+\.py)", followers, re.MULTILINE) == [
            ("candidate", "the second", "chief.py"),
            ("worker", "Worker", "worker.py"),
        ]
        term = int(re.findall(r"term (\d+)", browser.text("#leaders"))[0])
        browser.wait_for("#groups", "printers")
        assert "2 members on 1 node" in browser.text("#groups")
        browser.run("document.querySelector('#leaders button').click()")
        browser.wait_for("#details", f"chief.py, pid {programs[0].pid}")
        programs[0].kill()
        browser.wait_for("#leaders", "chief the second")
        browser.wait(f"!document.querySelector('#leaders').innerText.includes('term {term},')")
        browser.wait("/term \\d+, 1 worker/.test(document.querySelector('#leaders').innerText)")
        assert browser.errors == []
