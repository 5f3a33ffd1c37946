"""`locked`: a decorator that runs a function with a lock."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from locks.errors import MisuseError
from locks.model import Mode
from locks.node.client.options import LockOptions, check_names
from locks.runtime.callables import check_awaited, check_callable, check_ran
from locks.runtime.hints import Unpack
from locks.shapes.reentrant import RLock

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["locked"]

WITHIN = "pass a function or a coroutine function, or take the lock inside it"


def locked(
    lock_id: Sequence[Any] | Callable[..., Sequence[Any]],
    mode: Mode = "write",
    **options: Unpack[LockOptions],
) -> Locked:
    """Run a function, or a coroutine function, with a lock.

        @locks.locked(("report",), timeout=10)
        def report(): ...

        @locks.locked(lambda account, *_: ("accounts", account))
        async def withdraw(account, amount): ...

    It is an `RLock`: a function may call another function with the same lock.

    Args:
        lock_id: The id; or, if the id depends on the arguments, a function that returns it from the same arguments.
        mode: As for `locks.RLock`.
        **options: As for `locks.RLock`; see `locks.values.LockOptions`. After `timeout`, the call raises `LockTimeout`
            without running the function.

    Returns:
        The decorator.

    Raises:
        InvalidOption: An option is wrong, or the decorated object is not such a function.
    """
    check_names("locked", options, LockOptions)
    fixed = None
    if callable(lock_id):
        check_callable(lock_id, "lock_id", "pass a function from the arguments to the id")
        RLock(("any",), mode, **options)  # reports a wrong option here, not at the first call
    else:
        fixed = RLock(lock_id, mode, **options)

    def lock_for(*args: Any, **kwargs: Any) -> RLock:
        if fixed is not None:
            return fixed
        assert callable(lock_id)
        return RLock(lock_id(*args, **kwargs), mode, **options)

    return Locked(lock_for)


class Locked:
    """A decorator that `locks.locked` creates; it is no answer to the question whether a lock is held."""

    def __init__(self, lock_for: Callable[..., RLock]) -> None:
        self._lock_for = lock_for

    def __bool__(self) -> bool:
        raise MisuseError(
            "can't tell whether a lock is held: locks.locked() is a decorator; use locks.Lock(lock_id).locked()"
        )

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function or a coroutine function."""
        lock_for = self._lock_for
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                from locks.aio.primitives import RLock as AioRLock

                async with AioRLock.of(lock_for(*args, **kwargs)):
                    return check_awaited(await function(*args, **kwargs))

            return awaited  # type: ignore[return-value]
        check_callable(function, "function", WITHIN)

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            with lock_for(*args, **kwargs):
                return check_ran(function(*args, **kwargs), "the function", WITHIN)

        return called
