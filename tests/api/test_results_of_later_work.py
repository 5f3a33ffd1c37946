"""A function whose result is a generator or an awaitable has not done its work: that is refused, not run without the lock."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import Any

import pytest

import locks
import locks_leader
from locks import aio

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


LATER = [of_generator, of_coroutine, of_asynchronous_generator, Later]
USES: dict[str, Callable[[Callable[..., Any]], object]] = {
    "locked": lambda function: locks.locked(("a",))(function)(),
    "run_transaction": locks.run_transaction,
    "Election.run": lambda function: locks_leader.Election("later").run(function, timeout=60),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("later", LATER, ids=lambda each: each.__name__)
def test_a_result_whose_body_runs_later_is_refused(use: str, later: Callable[[], object]) -> None:
    """The error names it, and the lock is released."""
    with pytest.raises(locks.MisuseError, match="whose body was not run"):
        USES[use](wrapped(later))
    assert not locks.Lock(("a",)).locked()


def test_a_condition_of_asyncio_is_refused() -> None:
    """It does not await whether its lock is held, and would notify without it."""

    async def main() -> None:
        condition = asyncio.Condition(aio.Lock(("a",)))  # type: ignore[arg-type]
        async with condition:
            with pytest.raises(locks.MisuseError, match=r"await lock\.locked"):
                condition.notify()
        assert await aio.Lock(("a",)).locked() is False

    asyncio.run(main())
