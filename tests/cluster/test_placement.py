"""Servers of which some have each id (`copies`), with real processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.placed import ids_apart
from locks.node.peers.agreement import Agreement
from locks.node.ports import Servers as Known
from tests.cluster.harness import World
from tests.cluster.servers import LIMIT, Servers, locks, remember, running
from tests.cluster.test_run import run
from tests.helpers import eventually

NAMES = tuple(f"{letter}@127.0.0.1" for letter in "abcdefghi")
NINE = Known(NAMES, "majority", 3)
FIVE = Known(NAMES[:5], "majority", 3)


def at(name: str, servers: Known = NINE) -> list[str]:
    """The servers of an id."""
    return sorted(servers.at((name,)).nodes)


@pytest.fixture(scope="module")
def nine() -> Iterator[Servers]:
    """Nine servers, of which three have each id."""
    with World() as world:
        # Nobody is taken for dead because the machine is busy.
        yield Servers(world, NAMES, net_ticktime=15, copies=3)


def rows(servers: Servers, *prefix: str) -> list[dict[str, Any]]:
    """What `locks ps` lists."""
    done = locks(servers, "ps", *prefix, "--json")
    assert done.status in (0, 1), done
    found: list[dict[str, Any]] = json.loads(done.out)["locks"]
    return found


HOLD = """
import sys, locks
with locks.transaction(timeout=60) as tx:
    for each in {ids}:
        tx.write_lock((each, "below"))
    print("ready", flush=True)
    sys.stdin.readline()
"""
TRY = """
import locks
seen = []
locks.watch(({id!r},), watcher=seen.append)
try:
    with locks.transaction(timeout=0.2) as tx:
        tx.{call}(({id!r},))
        print("held")
except locks.LockTimeout as error:
    print(len(error.holders), end=" ")
print(len(locks.holders(({id!r},))), len(locks.queue(({id!r}, "below", 1)).requests), locks.Lock(({id!r},)).locked())
"""


def test_an_id_is_locked_on_its_servers_alone(nine: Servers) -> None:
    """One transaction has locks of three groups; each excludes others, who are shown its holder."""
    names = ids_apart(NINE, 3)
    with running(nine, HOLD.format(ids=names)):
        # It is on the others as soon as they have granted it, too.
        eventually(
            lambda: (
                {row["typed"]: sorted(row["servers"]) for row in rows(nine)}
                == {f"{name}/below": at(name) for name in names}
            ),
            limit=LIMIT,
        )
        assert nine.run(TRY.format(id=names[1], call="read_lock")) == "1 1 1 False\n"
        assert nine.run(TRY.format(id="else", call="write_lock")) == "held\n0 0 False\n"
    eventually(lambda: not rows(nine), limit=LIMIT)


ELECT = """
import locks_leader
def lead(leadership):
    print(leadership.term, flush=True)
    input()
locks_leader.Election("boss").run(lead)
"""


def test_elections_are_placed_by_their_names(nine: Servers) -> None:
    """The lock of one is on its servers alone; when the leader dies, another candidate leads, with a larger term."""
    one, two = nine.program(ELECT), nine.program(ELECT)
    try:
        eventually(lambda: "candidate" in locks(nine, "leaders").out, limit=LIMIT)
        (leader,) = json.loads(locks(nine, "leaders", "--json").out)["elections"]
        assert set(leader["leader"]["servers"]) <= set(at("boss"))
        first, second = (one, two) if leader["leader"]["pid"] == one.pid else (two, one)
        term = int(first.stdout.readline())
        first.kill()
        assert int(second.stdout.readline()) > term
    finally:
        for program in (one, two):
            program.kill()
            program.communicate(timeout=LIMIT)
    assert run(nine, "job", "--", "echo", "ran")[:2] == (0, "ran\n")


SHAPES = """
import sys, asyncio, locks, locks.aio
with locks.Semaphore(({id!r}, "s"), 2) as one:
    print("ready", flush=True)
    sys.stdin.readline()
async def main():
    async with locks.aio.Lock(({id!r}, "a")) as lock:
        return await lock.token()
print(asyncio.run(main()) > 0, flush=True)
with locks.RWLock(({id!r}, "rw")).read_lock(), locks.RLock(({id!r}, "r")): pass
try:
    with locks.once(({id!r}, "o")) as once: print("once", flush=True)
except locks.AlreadyDone: print("done", flush=True)
"""


def test_semaphores_and_work_that_is_done_once(nine: Servers) -> None:
    """They are where their ids are; two programs that are started alike meet there."""
    code = SHAPES.format(id="shapes")
    with running(nine, code, code) as programs:
        for program in programs:
            print(file=program.stdin, flush=True)
        said = [program.communicate(timeout=LIMIT)[0].split() for program in programs]
    assert sorted(each[1] for each in said) in (["done", "once"], ["once", "once"])
    assert run(nine, "--once", "shapes/o", "--", "echo", "never")[:2] == (122, "")
    status = json.loads(locks(nine, "status", "--json").out)
    assert (status["servers"], status["needed"], status["copies"]) == (9, 8, 3)


@pytest.mark.slow
def test_an_id_above_ids_on_different_servers(nine: Servers) -> None:
    """It can't be locked; all that is below can be seen."""
    code = """
import time, locks, locks.facts, locks_leader
everything = ("$election",)
for ask in (locks.Lock(everything).acquire, lambda: locks.holders(everything)):
    try:
        ask()
    except locks.MisuseError as error:
        print(error)
views = []
def lead(leadership):
    locks.watch(everything, watcher=views.append)
    while not any(view.holders for view in views):
        time.sleep(0.01)
    return len(locks.facts.waits(everything).requests)
print(locks_leader.Election("x").run(lead) > 0)
"""
    first, second, third, *_ = nine.run(code).splitlines()
    assert (
        first
        == second
        == (
            "can't lock $election, or ask for its queue: it covers ids that are on different servers "
            "(copies=3); name one of these ids, or nodes=[...]"
        )
    )
    assert third == "True"


@pytest.mark.parametrize(("copies", "shown"), [(None, "no copies"), (5, "copies=5")])
def test_a_program_with_other_copies_is_refused(
    nine: Servers, monkeypatch: pytest.MonkeyPatch, copies: int | None, shown: str
) -> None:
    """It names both, and nothing that is the same. Otherwise it would lock an id on other servers than the rest does."""
    monkeypatch.setattr(nine, "copies", copies)
    said = nine.run(
        "import locks\ntry: locks.Lock(('a',)).acquire()\nexcept locks.CannotServe as e: print(e)"
    )
    assert " has copies=3, but client-" in said
    assert f" was started with {shown}. Start all programs" in said


SERVER = """
import sys, locks
node = locks.start({name!r}, copies=3)
try: locks.start(copies=2)
except locks.MisuseError: pass
assert locks.start(copies=3) is node
assert node.await_nodes(node.servers.nodes, timeout=60)
print("ready", flush=True)
for line in sys.stdin:
    try:
        with locks.transaction(timeout=60) as tx:
            print(tx.write_lock((line.strip(),)), flush=True)
    except locks.LocksError as error:
        print(type(error).__name__, flush=True)
"""


@pytest.mark.slow
def test_servers_go_down_and_come_back() -> None:
    """Without most servers of a group its ids can't be locked, and all others can; marks outlast restarts. A server that is
    a program itself takes locks where they belong, too."""
    with World() as world:
        five = Servers(world, NAMES[:5], net_ticktime=15, copies=3)
        five.processes[0].process.terminate()
        assert five.processes[0].process.wait(LIMIT) == 0
        name = next(f"n{n}" for n in range(1000) if NAMES[0] not in at(f"n{n}", FIVE))
        with running(five, SERVER.format(name=NAMES[0])) as (program,):
            print(name, file=program.stdin, flush=True)
            assert program.stdout.readline().strip().isdigit()

            eventually(lambda: remember(five), limit=LIMIT)
            assert run(five, "--once", name, "--", "true")[0] == 0
            for index in (1, 2, 3, 4):
                five.restart(index)
                eventually(lambda: remember(five), limit=LIMIT)
            assert run(five, "--once", name, "--", "echo", "never")[:2] == (122, "")
            down = at(name, FIVE)[:2]
            for each in down:
                five.processes[NAMES.index(each)].kill()
            other = next(
                f"n{n}" for n in range(1000) if len(set(down) & set(at(f"n{n}", FIVE))) < 2
            )
            ask = "import locks\ntry:\n  with locks.transaction(timeout=20) as tx: print(tx.write_lock(({!r},)) > 0)\nexcept locks.CannotServe as e: print(sorted(e.nodes))"
            assert five.run(ask.format(name)).strip() == str(down)
            assert five.run(ask.format(other)).strip() == "True"
            done = locks(five, "status", "--timeout", "2")
            assert done.status == 1
            assert (
                "3 of 5 lock servers answer; 4 are needed, because each lock is on 3 of them: some locks can NOT"
                in done.out
            )
            for each in down:
                five.start_again(NAMES.index(each))
            eventually(lambda: five.run(ask.format(name)).strip() == "True", limit=LIMIT)


# --- What is said of copies --------------------------------------------------------------------------


@pytest.mark.slow
def test_copies_are_a_part_of_the_set() -> None:
    """For a server that was told, and for one that hears of it from the first program."""
    agreement = Agreement(FIVE)
    assert agreement.take_scope("x@h", FIVE._replace(copies=0)) == FIVE
    assert agreement.take_scope("x@h", FIVE._replace(copies=1)) == FIVE
    assert agreement.take_scope("x@h", FIVE) is None
    agreement = Agreement(None)
    assert agreement.take_scope("x@h", FIVE) is None
    assert agreement.take_scope("y@h", FIVE._replace(copies=0)) == FIVE


WAIT = """
import locks
with locks.transaction(timeout=60, label={label!r}) as tx:
    tx.write_lock(({own!r},))
    print("ready", flush=True)
    tx.write_lock(({next!r},))
    input()
"""


def test_a_wait_over_groups_is_explained(nine: Servers) -> None:
    """`locks why` follows it from group to group; `locks break` ends its root."""
    last, one, two = ids_apart(NINE, 3, "why")
    root = HOLD.format(ids=[two]).replace("timeout=60", "timeout=60, label='root'")
    middle = WAIT.format(label="middle", own=one, next=two)
    with running(nine, root, middle, WAIT.format(label="last", own=last, next=one)):

        def explained() -> bool:
            said = locks(nine, "why", one).out
            return "last" in said and "middle" in said and "root" in said

        def holders() -> list[dict[str, Any]]:
            return [row for row in rows(nine, two) if row["state"] == "granted"]

        eventually(explained, limit=LIMIT)
        (held,) = holders()
        assert locks(nine, "break", held["agent"], "--reason", "a test").status == 0
        eventually(
            lambda: [row["label"].split(" ")[0] for row in holders()] == ["middle"], limit=LIMIT
        )
