"""Functions that a program hands over: where they are called, those whose body would be run later are refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import locks
import locks.aio
import locks_leader
import locks_leader.aio
from locks.ownership import Backlog, Ownership
from tests.helpers import eventually

pytestmark = pytest.mark.usefixtures("here")


async def _later(*_: Any) -> None:
    """Is not run by a call."""


def _handled(**options: Any) -> Backlog[int]:
    return Backlog([1], resource=lambda task: task, **options)


def _elected(callback: Any) -> None:
    class Dictionary(locks_leader.Behaviour):
        """Has what is tested as one of its callbacks."""

        handle_call = callback

    locks_leader.start(Dictionary)


HANDED_OVER: dict[str, Callable[[Any], Any]] = {
    "run_transaction": locks.run_transaction,
    "aio.transaction, on_lost": lambda given: asyncio.run(_entered(on_lost=given)),
    "transaction, on_lost": lambda given: locks.transaction(on_lost=given),
    "begin_transaction, notify": lambda given: locks.original.begin_transaction(notify=given),
    "locked, lock_id": locks.locked,
    "monitor": lambda given: locks.actors.monitor(threading.current_thread(), given),
    "watch": lambda given: locks.watch(("a",), watcher=given),
    "Election.run": lambda given: locks_leader.Election("e").run(given, timeout=5),
    "Election": lambda given: locks_leader.Election("e")(given),
    "Election, on_elected": lambda given: locks_leader.Election("e", on_elected=given),
    "Election, on_lost": lambda given: locks_leader.Election("e", on_lost=given),
    "locks_leader.start": _elected,
    "Ownership.run": lambda given: Ownership("o").run(_handled(), given),
    "Ownership, on_gained": lambda given: Ownership("o", on_gained=given),
    "Ownership, on_lost": lambda given: Ownership("o", on_lost=given),
    "Ownership, group_for": lambda given: Ownership("o", group_for=given),
    "Backlog, resource": lambda given: Backlog([1], resource=given),
}


async def _entered(**options: Any) -> None:
    async with locks.aio.transaction(**options):
        pass


@pytest.mark.parametrize("hand_over", HANDED_OVER.values(), ids=HANDED_OVER)
def test_what_would_be_run_later_is_refused(hand_over: Callable[[Any], Any]) -> None:
    """A coroutine function where a function is called: nothing of it would be run while it has the lock, or ever."""
    with pytest.raises(locks.errors.InvalidOption, match="calling it does not run its body"):
        hand_over(_later)
    assert not locks.start().agents()


@pytest.mark.parametrize(
    "hand",
    [
        lambda given: locks.run_transaction(given),
        lambda given: locks.locked(("a",))(given)(None),
        lambda given: locks_leader.Election("e").run(given, timeout=60),
    ],
    ids=["run_transaction", "locked", "Election.run"],
)
def test_a_coroutine_that_is_returned_is_refused(hand: Callable[[Any], Any]) -> None:
    """It was made with the lock, and would be run without it."""
    with pytest.raises(locks.MisuseError, match="whose body was not run"):
        hand(lambda _: _later())
    eventually(lambda: not locks.start().agents())


AWAITED: dict[str, Callable[[Any], Any]] = {
    "aio.run_transaction": locks.aio.run_transaction,
    "aio.Election.run": lambda given: locks_leader.aio.Election("e").run(given, timeout=5),
    "aio.Election": lambda given: locks_leader.aio.Election("e")(given)(),
}


@pytest.mark.parametrize("hand_over", AWAITED.values(), ids=AWAITED)
def test_a_plain_function_where_a_coroutine_function_is_wanted(
    hand_over: Callable[[Any], Any],
) -> None:
    """What it returns can't be awaited, and an error of ours says so; so it does of what is no function. Nothing is kept."""

    async def handed_over(given: Any) -> Any:
        return await hand_over(given)

    async def answers(_: Any) -> str:
        return "awaited"

    with pytest.raises(
        locks.errors.InvalidOption, match=r"17 can't be called: pass a coroutine function"
    ):
        asyncio.run(handed_over(17))
    with pytest.raises(locks.MisuseError, match=r"returned 17, which can't be awaited; pass a"):
        asyncio.run(handed_over(lambda _: 17))
    assert asyncio.run(handed_over(lambda _: answers(_))) == "awaited"


def test_a_coroutine_function_is_not_for_call() -> None:
    """`aio.call` runs plain functions: nothing of the other one would be run."""
    with pytest.raises(locks.MisuseError, match="_later, whose body was not run"):
        asyncio.run(locks.aio.call(_later))
