"""`locks.testing`: nothing passes without being tested, and what hangs says where."""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Callable
from typing import Any

import gevent
import gevent.event
import pytest

import locks
import locks_leader
from locks.testing import Simulation, Summary, Violation, simulate
from locks.testing.scenarios import NothingHappened
from locks_leader import Behaviour, Election

A, B = ("a",), ("b",)


def transfers(simulation: Simulation) -> None:
    """Two transactions that lock in opposite order."""

    def transfer(*ids: tuple[str]) -> None:
        def move(tx: locks.Transaction) -> None:
            for lock_id in ids:
                tx.write_lock(lock_id)

        locks.run_transaction(move)

    simulation.client(transfer, A, B)
    simulation.client(transfer, B, A)
    simulation.run()


def alone(simulation: Simulation) -> None:
    """A client that has nobody to wait for."""
    simulation.client(lambda: locks.Lock(A).acquire())
    simulation.run(leaks=True)


# --- Nothing passes silently ------------------------------------------------------------------------


def test_summary_says_what_has_happened() -> None:
    """A summary counts schedules, deadlocks, aborts and waits, and says so where nobody waited."""
    summary = simulate(transfers, 50)
    assert summary.schedules == 50
    assert summary.deadlocks == summary.aborts > 5
    assert summary.waits >= summary.deadlocks
    assert str(summary).startswith("50 schedules, ")
    assert str(simulate(alone, 2)) == "2 schedules, nobody ever waited"
    assert str(Summary(1, 1)) == "1 schedule, 1 deadlock"


def test_expectations_are_checked() -> None:
    """A test that is to have deadlocks fails if there are none."""
    simulate(transfers, 50, expect=("deadlock", "abort"))
    with pytest.raises(NothingHappened, match="no deadlock and no abort has happened: 5 schedules"):
        simulate(alone, 5, expect=("deadlock", "abort"))


async def coroutine() -> None:
    """One that somebody has to await."""
    raise ZeroDivisionError


class Callable_:
    async def __call__(self) -> None:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "function",
    [coroutine, functools.partial(coroutine), Callable_()],
    ids=["plain", "partial", "object"],
)
def test_async_functions_are_awaited(function: Callable[[], Any]) -> None:
    """However an `async def` function is given, it is run as a task."""

    def scenario(simulation: Simulation) -> None:
        simulation.client(function)
        simulation.run()

    with pytest.raises(ZeroDivisionError):
        simulate(scenario, 1)


def test_coroutine_that_nobody_awaits_is_refused() -> None:
    """A function that makes a coroutine and does not await it has done nothing; it is named."""

    def scenario(simulation: Simulation) -> None:
        simulation.client(lambda: coroutine(), name="idle")
        simulation.run()

    with pytest.raises(locks.MisuseError, match="client idle has made a coroutine that nobody awa"):
        simulate(scenario, 1)


def test_error_in_a_thread_fails_the_run() -> None:
    """What a thread within a client raises, its refusal by the simulation above all, is seen."""

    def scenario(simulation: Simulation) -> None:
        def client() -> None:
            thread = threading.Thread(target=locks.Lock(A).acquire)
            thread.start()
            thread.join()

        simulation.client(client)
        simulation.run()

    hook = threading.excepthook
    with pytest.raises(locks.MisuseError, match="is no client of the simulation"):
        simulate(scenario, 1)
    assert threading.excepthook is hook


# --- What is not simulated is refused by its name ---------------------------------------------------


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: Election("x", nodes=["a@b", "c@d", "e@f"]).run(print), "[Ee]lection.run"),
        (lambda: locks_leader.start(Behaviour, name="x"), "start"),
        (lambda: locks.program.default.default_node().connect("a@localhost:1"), "connect"),
    ],
)
def test_what_is_not_simulated_is_refused_by_its_name(call: Callable[[], Any], name: str) -> None:
    """At once, and with words that say what it was; the simulation goes on."""

    def scenario(simulation: Simulation) -> None:
        def client() -> None:
            with pytest.raises(locks.MisuseError, match=rf"^locks.*{name} is not simulated"):
                call()

        simulation.client(client)
        simulation.run()

    simulate(scenario, 1)


# --- Virtual time, and what hangs -------------------------------------------------------------------


@pytest.mark.parametrize(
    "hang",
    [threading.Lock().acquire, queue.Queue[int]().get, gevent.event.Event().wait],
    ids=["lock", "queue", "gevent"],
)
def test_what_hangs_says_where(hang: Callable[[], object]) -> None:
    """After a while of real time without an event, the run ends; it names each client's line."""

    def scenario(simulation: Simulation) -> None:
        def wait() -> None:
            with locks.transaction() as tx:
                tx.write_lock(A)
                simulation.sleep(1)

        def stand() -> None:
            hang()
            hang()  # the one that nobody ends

        simulation.client(wait, name="waits")
        simulation.client(stand, name="stands")
        gevent.get_hub()  # one that is made by the client raises `LoopExit` there at once
        simulation.run(watchdog=0.1)

    with pytest.raises(Violation) as caught:
        simulate(scenario, [1])
    text = str(caught.value)
    assert text.startswith("stands has not come back for 0.1 s of real time")
    assert "test_testing_silence.py:" in text
    assert "in stand." in text
    assert "waits waits at test_testing_silence.py:" in text or "waits has not begun" in text


def test_slow_client_is_left_alone() -> None:
    """One that comes back now and then is not taken for one that hangs, whatever the patience."""

    def scenario(simulation: Simulation) -> None:
        def work() -> None:
            for _ in range(20):
                threading.Event().wait(0.01)
                locks.holders(A)

        simulation.client(work)
        simulation.run(watchdog=60)

    simulate(scenario, 1)
