"""A client that ends and has not released its locks: a violation in a simulation, a `ResourceWarning` outside."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any
from weakref import ref

import pytest

import locks
from locks import aio
from locks.testing import Simulation, Violation, simulate
from tests.helpers import LIMIT, ROOT

HERE = "test_leaks.py"


def lock() -> None:
    """Take a lock, and forget it."""
    locks.Lock(("a",)).acquire()


def in_an_error_path() -> None:
    """Release it in the good case only."""
    held = locks.Lock(("a",))
    held.acquire()
    try:
        raise KeyError
    except KeyError:
        return
    held.release()


def transaction() -> None:
    """Never end a transaction."""
    locks.original.begin_transaction([(("a",), "write")])


def semaphore() -> None:
    """Keep a unit."""
    locks.Semaphore(("a",), 2).acquire()


def again() -> None:
    """Release an `RLock` once too seldom."""
    held = locks.RLock(("a",))
    with held:
        held.acquire()


def owner() -> None:
    """Leave the block of an owner that has a lock."""
    with locks.Owner("request 17"):
        locks.Lock(("a",)).acquire()


async def task() -> None:
    """A task that takes a lock, and ends."""
    await aio.Lock(("a",)).acquire()


LEAKS = [lock, in_an_error_path, transaction, semaphore, again, owner, task]


def ends(simulation: Simulation, function: Callable[..., Any], **options: Any) -> None:
    """One client."""
    simulation.client(function, name="clerk")
    simulation.run(**options)


@pytest.mark.parametrize("leak", LEAKS)
def test_forgotten_release_is_found_by_the_first_seed(leak: Callable[..., Any]) -> None:
    """The violation names the client or owner, the lock, and the line that took it; `leaks=True` says that it is meant."""
    with pytest.raises(Violation) as caught:
        simulate(lambda simulation: ends(simulation, leak), [0])
    text = str(caught.value)
    first = leak.__code__.co_firstlineno
    lines = [
        f"write a{end}, taken at {HERE}:{n}" for n in range(first, first + 6) for end in ("", "*2")
    ]
    assert any(line in text for line in lines), text
    who = {owner: "request 17", task: "task clerk"}.get(leak, "clerk")
    assert text.startswith(f"{who} ended while it held"), text
    simulate(lambda simulation: ends(simulation, leak, leaks=True), 5)


def test_what_is_released_is_no_leak() -> None:
    """Not with blocks, an owner that the program ends, a transaction without locks, or a client that is killed."""
    begun: list[Any] = []

    def blocks() -> None:
        with locks.Lock(("a",)), locks.transaction() as tx:
            tx.write_lock(("b",))
        locks.original.begin_transaction()

    def session() -> None:
        session = locks.Owner("session")
        locks.Lock(("a",), owner=session).acquire()
        session.end()

    def killed(simulation: Simulation) -> None:
        def work() -> None:
            locks.original.begin_transaction([(("a",), "write")])
            begun.append(1)
            simulation.sleep(10)

        def kill() -> None:
            simulation.sleep(5)
            simulation.kill(worker)

        worker = simulation.client(work)
        simulation.client(kill)
        simulation.run()

    simulate(lambda simulation: ends(simulation, blocks), 20)
    simulate(lambda simulation: ends(simulation, session), 20)
    simulate(killed, 20)
    assert begun


def test_a_leak_is_made_short_to_the_same_leak() -> None:
    """Two lines forget; the shorter run has the line of the first failure."""

    def scenario(simulation: Simulation) -> None:
        simulation.client(lock)
        simulation.client(transaction)
        simulation.run()

    for seed in range(10):
        simulation = Simulation(seed)
        with pytest.raises(Violation) as first:
            scenario(simulation)
        with pytest.raises(Violation) as short:
            simulate(scenario, [seed])
        assert type(short.value) is type(first.value)
        assert (
            str(short.value).partition("taken at ")[2] == str(first.value).partition("taken at ")[2]
        )


PROGRAM = """
    import threading, locks

    def work(number):
        locks.Lock(("job", number)).acquire()

    for number in range(3):
        thread = threading.Thread(target=work, args=(number,), name=f"worker {number}")
        thread.start()
        thread.join()
    with locks.Lock(("fine",)):
        pass
    locks.Lock(("end",)).acquire()
"""


def warnings_of(*options: str) -> list[str]:
    """What a program says that forgets to release."""
    done = subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(PROGRAM)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in done.stderr.splitlines() if "ended while it held" in line]


def test_programs_are_warned_once_for_each_place() -> None:
    """As of open files: with the filter of `-X dev`; the end of a thread, and of the main thread."""
    worker, main = warnings_of("-W", "default::ResourceWarning")
    assert "ResourceWarning: worker 0 ended while it held write job/0" in worker
    assert "MainThread ended while it held write end" in main
    assert "-X tracemalloc=25" in worker
    assert warnings_of() == []


@pytest.mark.slow
def test_tracemalloc_knows_the_line() -> None:
    """The warning is at the line that took the lock."""
    worker, main = warnings_of("-W", "default::ResourceWarning", "-X", "tracemalloc=12")
    assert ", taken at " in worker
    assert ":5" in worker.partition("taken at ")[2]
    assert ":13" in main.partition("taken at ")[2]


def test_a_thread_that_ends_with_a_lock_leaves_nothing_in_memory() -> None:
    """Not even what gevent keeps for a thread: its end must not ask for the hub, which would make that anew."""

    def kept() -> int:
        gc.collect()
        return sum("_localdummy" in repr(each) for each in gc.get_objects() if type(each) is ref)

    def end() -> None:
        thread = threading.Thread(target=lock)
        thread.start()
        thread.join()
        with locks.Lock(("a",), timeout=LIMIT):
            pass

    end()
    before = kept()
    for _ in range(20):
        end()
    assert kept() < before + 10  # threads of other tests may come and go
