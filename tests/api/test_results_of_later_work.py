"""A function whose result is a generator or an awaitable has not done its work: that is refused, not run without the lock."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import Any

import pytest
from pykka import Future, ThreadingFuture

import locks
import locks_leader.aio
from locks import aio
from locks.ownership import Backlog, Ownership
from tests.helpers import LIMIT, eventually

pytestmark = pytest.mark.usefixtures("here")


def of_generator() -> Iterator[int]:
    """Do work later."""
    yield 1


async def of_coroutine() -> None:
    """Do work later."""


async def of_asynchronous_generator() -> AsyncIterator[int]:
    """Do work later."""
    yield 1


class Later(Awaitable[None]):
    """Do work later."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield None


def wrapped(function: Callable[[], object]) -> Callable[..., object]:
    """As a decorator that is a plain function makes it: nothing shows what it returns."""

    @functools.wraps(function, assigned=())
    def call(*_: object) -> object:
        return function()

    del call.__wrapped__
    return call


def _do_tasks(function: Callable[..., Any], **options: Any) -> None:
    tasks: Backlog[int] = Backlog([1], resource=int, groups=1, **options)
    try:
        Ownership("later", groups=1).run(tasks, function)
    finally:
        assert len(tasks) == 1


LATER = [of_generator, of_coroutine, of_asynchronous_generator, Later]
USES: dict[str, Callable[[Callable[..., Any]], object]] = {
    "locked": lambda function: locks.locked(("a",))(function)(),
    "run_transaction": locks.run_transaction,
    "Ownership.run": lambda function: _do_tasks(function),
    "Ownership.run, again": lambda function: _do_tasks(function, retries=1),
    "Election.run": lambda function: locks_leader.Election("later").run(function, timeout=60),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("later", LATER, ids=lambda each: each.__name__)
def test_a_result_whose_body_runs_later_is_refused(use: str, later: Callable[[], object]) -> None:
    """The error names it, and the lock is released."""
    with pytest.raises(locks.MisuseError, match="whose body was not run"):
        USES[use](wrapped(later))
    assert not locks.Lock(("a",)).locked()


_numbers = itertools.count()
AWAITED: dict[str, Callable[[Callable[..., Any]], Awaitable[object]]] = {
    "locked": lambda function: locks.locked(("a",))(function)(),
    "once": lambda function: aio.once(("later", next(_numbers)))(function)(),
    "run_transaction": aio.run_transaction,
    "Election.run": lambda function: locks_leader.aio.Election("later").run(function, timeout=60),
}


@pytest.mark.parametrize("use", AWAITED)
@pytest.mark.parametrize("later", LATER[:3], ids=lambda each: each.__name__)
def test_a_coroutine_function_whose_result_is_not_awaited(
    use: str, later: Callable[[], object]
) -> None:
    """The same for what a coroutine function returns; a task of it goes on, and is a result."""

    locks.start(servers=locks.HERE)

    async def function(*_: object) -> object:
        return later()

    async def begins(*_: object) -> asyncio.Task[str]:
        return asyncio.create_task(asyncio.sleep(0, "over"))

    async def main() -> None:
        with pytest.raises(locks.MisuseError, match="whose body was not run"):
            await AWAITED[use](function)
        assert await (await AWAITED[use](begins)) == "over"  # type: ignore[misc]

    asyncio.run(main())


# --- Callbacks, whose results nobody uses -----------------------------------------------------------


def _watches(function: Callable[..., Any]) -> None:
    locks.watch(("watched", next(_numbers)), watcher=function)


def _monitors(function: Callable[..., Any]) -> None:
    owner = locks.Owner("its end is watched")
    locks.actors.monitor(owner, function)
    owner.end()


def _is_elected(function: Callable[..., Any]) -> None:
    election = locks_leader.Election(("elected", next(_numbers)), on_elected=function)
    election.start()
    eventually(lambda: election._part is not None and election._part.over.is_open)
    assert election.leadership is None


def _gains(function: Callable[..., Any]) -> None:
    for kind in (Ownership, locks_leader.Ownership):
        with (
            pytest.raises(locks.errors.OperatingError),
            kind(("gains", next(_numbers)), groups=1, on_gained=function) as mine,
        ):
            eventually(lambda mine=mine: not mine.joined)  # type: ignore[misc]


def _casts(function: Callable[..., Any]) -> None:
    class Casts(locks_leader.Behaviour):
        handle_cast = function

    instance = locks_leader.start(Casts, resource=("casts", next(_numbers)))
    locks_leader.cast(instance, "?")
    eventually(lambda: not instance.is_alive())


CALLBACKS = (_watches, _monitors, _is_elected, _gains, _casts)


@pytest.mark.parametrize("use", CALLBACKS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("later", LATER[:3], ids=lambda each: each.__name__)
def test_a_callback_whose_body_runs_later_is_logged(
    use: Callable[[Callable[..., Any]], None],
    later: Callable[[], object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It would do nothing, silently. Where an exception of the callback ends something, this does, too."""
    locks.start(servers=locks.HERE)
    use(wrapped(later))
    eventually(lambda: "whose body was not run" in caplog.text)


def test_a_callback_may_begin_work(caplog: pytest.LogCaptureFixture) -> None:
    """A future is no mistake: somebody works on it."""
    locks.start(servers=locks.HERE)
    futures: list[Future[object]] = []

    def begins(_: object) -> Future[object]:
        futures.append(ThreadingFuture())
        return futures[-1]

    _watches(begins)
    eventually(lambda: futures)
    locks.stop()  # waits for callbacks
    assert "whose body was not run" not in caplog.text


@pytest.mark.parametrize("later", LATER[:3], ids=lambda each: each.__name__)
def test_a_leader_that_answers_with_work_that_was_not_done(later: Callable[[], object]) -> None:
    """The caller gets the error; the leader goes on."""
    locks.start(servers=locks.HERE)

    class Answers(locks_leader.Behaviour):
        def handle_leader_call(self, request: Any, *_: Any) -> Any:
            return later() if request == "later" else request

    instance = locks_leader.start(Answers, resource=("answers", next(_numbers)))
    with pytest.raises(locks.MisuseError, match=r"Answers\.handle_leader_call returned the .* run"):
        locks_leader.leader_call(instance, "later", timeout=LIMIT)
    assert locks_leader.leader_call(instance, "now", timeout=LIMIT) == "now"
    instance.stop()


def test_a_trace_is_a_function() -> None:
    """A coroutine function is refused before anything is started."""
    locks.stop()
    with pytest.raises(locks.errors.InvalidOption, match="trace="):
        locks.start(servers=locks.HERE, trace=of_coroutine)  # type: ignore[arg-type]


def test_a_condition_of_asyncio_is_refused() -> None:
    """It does not await whether its lock is held, and would notify without it."""

    async def main() -> None:
        condition = asyncio.Condition(aio.Lock(("a",)))  # type: ignore[arg-type]
        async with condition:
            with pytest.raises(locks.MisuseError, match=r"await lock\.locked"):
                condition.notify()
        assert await aio.Lock(("a",)).locked() is False

    asyncio.run(main())
