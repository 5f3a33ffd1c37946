"""Functions that are handed over: those whose body would be run later are known, and refused."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial, wraps
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

import locks
from locks.runtime.callables import check_callable, check_ran, is_run_later


def plain() -> int:
    """Has done its work when it returns."""
    return 1


async def coroutine() -> int:
    """Is awaited."""
    return 1


def generator() -> Iterator[int]:
    """Is taken from."""
    yield 1


async def coroutine_too() -> int:
    """Is awaited, too."""
    return 1


async def both() -> AsyncIterator[int]:
    """Both."""
    yield 1


@wraps(generator)
def wrapped() -> int:
    """Returns what the generator is not; only its name is that of one."""
    return 1


class Callables:
    """Objects and methods of each kind."""

    def plain(self) -> int:
        """Has done its work when it returns."""
        return 1

    async def coroutine(self) -> int:
        """Is awaited."""
        return 1

    async def __call__(self) -> int:
        """Is awaited."""
        return 1


class Shy:
    """Can't be called, and can't be shown."""

    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "function",
    [
        *(plain, wrapped, Callables, Callables.plain, partial(plain), lambda: coroutine()),
        *(print, Mock(), int),
    ],
)
def test_what_is_run_when_it_is_called(function: Callable[..., Any]) -> None:
    """Functions, classes, methods, builtins; of what a function returns nothing is known before."""
    assert not is_run_later(function)
    check_callable(function, "function")


@pytest.mark.parametrize(
    "function",
    [
        *(coroutine, generator, both, partial(coroutine), partial(partial(generator))),
        *(Callables(), Callables().coroutine, Callables.coroutine, wraps(plain)(coroutine_too)),
        pytest.param(
            AsyncMock(),
            marks=pytest.mark.skipif(
                sys.version_info < (3, 11), reason="`inspect` takes it for a function"
            ),
        ),
        lambda: (yield),
    ],
)
def test_what_is_run_later(function: Callable[..., Any]) -> None:
    """Coroutine functions and generators, as functions, methods, partial functions and objects."""
    assert is_run_later(function)
    with pytest.raises(
        locks.errors.InvalidOption, match=r"calling it does not run its body.*Pass a function"
    ):
        check_callable(function, "handler")


def test_what_can_not_be_called() -> None:
    """It is said what to pass, and shown what was passed, if it can be."""
    with pytest.raises(
        locks.errors.InvalidOption, match="handler=5 can't be called: pass a function"
    ):
        check_callable(5, "handler")
    with pytest.raises(locks.errors.InvalidOption, match="handler=<Shy> can't be called"):
        check_callable(Shy(), "handler")


def test_a_coroutine_that_is_returned_is_closed() -> None:
    """Python says nothing more of it; all else is returned."""
    made = coroutine()
    with pytest.raises(locks.MisuseError, match=r"returned the coroutine coroutine.*Do that"):
        check_ran(made, "the function", "do that")
    with pytest.raises(RuntimeError, match="cannot reuse already awaited"):
        made.send(None)
    assert check_ran(5, "the function", "do that") == 5
