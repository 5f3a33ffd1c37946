"""The page of `locks play` in a real browser, without a window; skipped where none is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from tests.cluster.browser import NO_BROWSER, Browser, find_browser
from tests.helpers import LIMIT, ROOT

PATH = find_browser()
AXE = os.environ.get("LOCKS_AXE", "")  # the file axe.min.js of the npm package axe-core
needs_browser = pytest.mark.skipif(PATH is None, reason=NO_BROWSER)
CLIENTS = ("write a; write b", "write b; write c", "write c; write a")
RING = "#" + "&".join([*(f"client={quote(each)}" for each in CLIENTS), "at=0"])

PHONE = 390  # pixels
TO_THE_CIRCLE = 17  # moves
ARROWS_IN_LABELS = """
[...document.querySelectorAll('.edge')].filter((edge) => {
    const tip = edge.getPointAtLength(edge.getTotalLength());
    return [...document.querySelectorAll('.graph text')].some((each) => {
        const box = each.getBBox();
        return tip.x > box.x - 4 && tip.x < box.x + box.width + 4
            && tip.y > box.y && tip.y < box.y + box.height;
    });
}).length
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where the page is."""
    command = [sys.executable, "-m", "locks", "play", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()
        assert process.wait(LIMIT) == 0


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser."""
    assert PATH is not None
    with Browser(PATH) as opened:
        yield opened


def post(address: str, body: bytes, kind: str = "application/json") -> tuple[int, Any]:
    """Ask what the page asks; the status and the answer."""
    request = Request(f"{address}ask", body, {"Content-Type": kind})
    try:
        with urlopen(request, timeout=LIMIT) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


def at(browser: Browser, move: int) -> None:
    """Wait until so many moves are played on the first board."""
    browser.wait(f"new URLSearchParams(location.hash.slice(1)).get('at') === '{move}'")


def open_page(browser: Browser, address: str) -> None:
    """Open it, and wait until it shows a board."""
    browser.open(address)
    browser.wait("document.querySelectorAll('.board .said li').length > 0")


def test_what_is_served(address: str) -> None:
    """The page, its parts and its answers; what is wrong is answered with a sentence, and nothing else is served."""
    for path in ("", "colors.css", "dom.js", "play.css", "play.js"):
        with urlopen(address + path, timeout=LIMIT) as answer:
            assert answer.status == 200
            assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
    assert post(address, b'{"what": "list"}')[0] == 200
    status, answer = post(address, b'{"what": "look", "situation": {"clients": ["dance"]}}')
    assert (status, "step 'dance' can't be read" in answer["error"]) == (400, True)
    for body, kind in (
        (b"[]", "application/json"),
        (b"{", "application/json"),
        (b"{}", "text/plain"),
    ):
        assert post(address, body, kind)[0] == 400
    with pytest.raises(HTTPError) as error, urlopen(f"{address}secret", timeout=LIMIT):
        pass
    error.value.close()
    assert error.value.code == 404


@pytest.mark.slow
@needs_browser
def test_a_ring_of_three_by_the_keyboard_alone(address: str, browser: Browser) -> None:
    """To its end and back; another order from the middle; the link of a board shows the same board."""
    open_page(browser, address + RING)
    seen = []
    for move in range(1, 100):
        browser.press("ArrowRight")
        at(browser, move)
        seen.append(browser.text(".waits .edges"))
        if "Nothing needs to happen any more" in browser.text("#boards"):
            break
    assert "Client 3 yields, because the youngest" in browser.text(".said")
    assert any(text.count("waits for") == 3 for text in seen), "the whole ring was there"
    assert (
        next(at for at, text in enumerate(seen, 1) if text.count("waits for") == 3) == TO_THE_CIRCLE
    )
    for back in range(move - 1, -1, -1):
        browser.press("ArrowLeft")
        at(browser, back)
        assert browser.text(".waits .edges") == (seen[back - 1] if back else "")
    browser.press("End")
    at(browser, move)
    browser.press("Home")
    at(browser, 0)
    browser.press("2")  # another order: client 2 first
    at(browser, 1)
    assert "Client 2 asks for b." in browser.text(".said li.now")
    shown, link = browser.text("#boards"), browser.run("location.href")
    open_page(browser, link)
    assert browser.text("#boards") == shown
    assert not browser.errors


@pytest.mark.slow
@needs_browser
def test_on_a_phone(address: str, browser: Browser) -> None:
    """It fits; the buttons stay in sight; the circle is red and named, its edges name the locks, and no arrow ends in a label."""
    browser.look(PHONE, 844)
    open_page(browser, address + RING)
    for move in range(1, TO_THE_CIRCLE + 1):
        assert not browser.text(".circle")
        browser.run("document.querySelector('.next').click()")
        at(browser, move)
    said = "A circle: client 1 → client 2 → client 3 → client 1."
    assert browser.text(".circle").startswith(said)
    assert browser.run("document.querySelectorAll('circle.bad, .edge.bad').length") == 6
    locks = browser.run(
        "[...document.querySelectorAll('text.lock.bad')].map((each) => each.textContent)"
    )
    assert sorted(locks) == ["a", "b", "c"]
    assert browser.run("document.querySelector('.graph').getBoundingClientRect().top < innerHeight")
    browser.run("scrollTo(0, document.body.scrollHeight)")
    assert browser.run("document.querySelector('.next').getBoundingClientRect().top >= 0")
    for situation in range(
        1, browser.run("document.querySelector('#situations').options.length"), 3
    ):
        browser.run(
            f"(it => {{ it.selectedIndex = {situation}; it.dispatchEvent(new Event('change')); }})"
            "(document.querySelector('#situations'))"
        )
        browser.wait("new URLSearchParams(location.hash.slice(1)).get('at') === '0'")
        for _ in range(TO_THE_CIRCLE):
            browser.press("ArrowRight")
        at_the_end = "!!document.querySelector('.board > .over, .board > .wrong')"
        browser.wait(f"location.hash.includes('&at={TO_THE_CIRCLE}') || {at_the_end}")
        assert browser.run("document.documentElement.scrollWidth") == PHONE
        assert not browser.run(ARROWS_IN_LABELS)
    assert not browser.errors


@pytest.mark.slow
@needs_browser
@pytest.mark.skipif(not AXE, reason="LOCKS_AXE does not name axe.min.js")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_everybody_can_use_it(address: str, browser: Browser, dark: bool) -> None:
    """No finding of axe, with one board and with two, light and dark, on a phone, too."""
    browser.look(1280, 800, dark)
    open_page(browser, address + RING)
    browser.press("End")
    browser.press("w")
    browser.wait("document.querySelectorAll('.board').length === 2")
    browser.run(Path(AXE).read_text(encoding="utf-8") + "; 0")
    for width in (1280, PHONE):
        browser.look(width, 800, dark)
        found = browser.run(
            "axe.run().then((said) => said.violations.map((each) => `${each.id}: ${each.nodes[0].html}`))"
        )
        assert found == []
        assert browser.run("document.documentElement.scrollWidth") == width
