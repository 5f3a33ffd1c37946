"""Checks of functions that a program passes in, to be called with a lock, as a leader, or with a task.

A call of a coroutine function or of a generator function does no work. It makes an object whose
body runs later, when it is awaited or iterated, or never. By then the lock is released, or another
program leads. So such functions are refused wherever a function must have done its work when it
returns.

Where a coroutine function is expected, a plain function is refused, because its result can't be
awaited.
"""

from __future__ import annotations

from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType
from typing import Final, TypeVar

from locks.errors import InvalidOption, MisuseError

T = TypeVar("T")

__all__ = [
    "check_awaitable",
    "check_awaited",
    "check_begun",
    "check_callable",
    "check_callbacks",
    "check_can_be_called",
    "check_ran",
    "is_run_later",
]

COROUTINE = "pass a coroutine function (async def)"
PLAIN = "pass a plain function, or one that begins a task"
LAZY = (GeneratorType, AsyncGeneratorType)
LAZY_NAMES: Final[dict[type, str]] = {AsyncGeneratorType: "asynchronous generator"}
LATER: Final = 0x20 | 0x80 | 0x200  # inspect's flags of generators, coroutines, async generators


def is_run_later(function: object) -> bool:
    """Whether a call only makes a coroutine or a generator; also for methods, partial functions and objects with `__call__`."""
    if type(function) is FunctionType and not function.__dict__:  # nothing marks or wraps it
        return bool(function.__code__.co_flags & LATER)
    import inspect  # many programs hand over no function

    return any(
        is_later(each)
        for each in (function, inspect.getattr_static(type(function), "__call__", None))
        for is_later in (
            inspect.iscoroutinefunction,
            inspect.isgeneratorfunction,
            inspect.isasyncgenfunction,
        )
    )


def check_callable(value: object, name: str, instead: str = "pass a function") -> None:
    """Check a function that is passed in.

    Args:
        value: The argument.
        name: The argument's name.
        instead: What to pass or do instead, for the error.

    Raises:
        InvalidOption: It can't be called, or its body would be run later.
    """
    if type(value) is not FunctionType:
        check_can_be_called(value, name, instead)
    if is_run_later(value):
        raise InvalidOption(
            f"{name}={_shown(value)} is a coroutine function or a generator: calling it does not run its body. "
            f"{instead[0].upper()}{instead[1:]}",
            value=_shown(value),
        )


def check_can_be_called(value: object, name: str, instead: str = COROUTINE) -> None:
    """Check a callable that is passed in; see `check_callable`. Its result may be awaited."""
    if not callable(value):
        raise InvalidOption(
            f"{name}={_shown(value)} can't be called: {instead}", value=_shown(value)
        )


def check_awaitable(found: T, name: str) -> T:
    """Return the result of a coroutine function if it can be awaited, unlike that of a plain function.

    Raises:
        MisuseError: It can't be awaited.
    """
    from inspect import isawaitable

    if not isawaitable(found):
        raise MisuseError(
            f"{name} returned {_shown(found)}, which can't be awaited; {COROUTINE}",
            value=_shown(found),
        )
    return found


def check_callbacks(**given: object) -> None:
    """Check functions that may be left out, by the names of their arguments.

    Raises:
        InvalidOption: One can't be called, or its body would be run later.
    """
    for name, value in given.items():
        if value is not None:
            check_callable(value, name)


def check_ran(found: T, name: str, instead: str) -> T:
    """Return the result of a function, unless it is something whose body runs later: an awaitable or a generator.

    A function may return one although it is no coroutine function and no generator: a wrapper, or a lambda.

    Raises:
        MisuseError: It is one.
    """
    if found is None:
        return found
    kind = type(found)
    if issubclass(kind, LAZY) or hasattr(kind, "__await__"):
        shown = getattr(found, "__qualname__", None) or _shown(found)
        if isinstance(found, (CoroutineType, GeneratorType)):
            found.close()
        raise MisuseError(
            f"{name} returned the {LAZY_NAMES.get(kind, kind.__name__)} {shown}, whose body was not run. "
            f"{instead[0].upper()}{instead[1:]}",
            value=shown,
        )
    return found


def check_awaited(found: T) -> T:
    """Return the result of a coroutine function, unless it is one more coroutine or a generator. A task, which runs, is a result.

    Raises:
        MisuseError: It is one.
    """
    return check_begun(found, "the function", "await it within the function")


def check_begun(found: T, name: str, instead: str = PLAIN) -> T:
    """Return the result of a callback, unless it is a coroutine or a generator. A task or a future, which somebody works on, is a result.

    Raises:
        MisuseError: It is one.
    """
    if found is not None and isinstance(found, (CoroutineType, *LAZY)):
        return check_ran(found, name, instead)
    return found


def _shown(value: object) -> str:
    """A value as an error shows it; its own `__repr__` may fail."""
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__}>"
