"""`locked`: a function that is run with a lock."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from locks.errors import InvalidOption
from locks.lock_ids import shown
from locks.model import Mode, Require
from locks.node.owner import Owner
from locks.node.scope import Nodes
from locks.shapes.reentrant import RLock

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["locked"]


def locked(
    lock_id: Sequence[Any] | Callable[..., Sequence[Any]],
    mode: Mode = "write",
    *,
    nodes: Nodes | None = None,
    require: Require | None = None,
    timeout: float | None = None,
    owner: Owner | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Run a function, or a coroutine function, with a lock.

        @locks.locked(("report",), timeout=10)
        def report(): ...

        @locks.locked(lambda account, *_: ("accounts", account))
        async def withdraw(account, amount): ...

    It is an `RLock`: a function may call another one with the same lock.

    Args:
        lock_id: The id; or a function of the same arguments that returns it, for an id that depends on them.
        mode: As for `locks.RLock`.
        nodes: The same.
        require: The same.
        timeout: The same; the function raises `LockTimeout` then, and is not run.
        owner: The same.

    Returns:
        The decorator.

    Raises:
        InvalidOption: An option is wrong, or what is decorated is no such function.
    """
    options: dict[str, Any] = {
        "nodes": nodes,
        "require": require,
        "timeout": timeout,
        "owner": owner,
    }
    fixed = None if callable(lock_id) else RLock(lock_id, mode, **options)

    def lock_for(args: tuple[Any, ...], kwargs: dict[str, Any]) -> RLock:
        if fixed is not None:
            return fixed
        assert callable(lock_id)
        return RLock(lock_id(*args, **kwargs), mode, **options)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if not callable(function) or inspect.isgeneratorfunction(function):
            raise _not_locked(function)
        if inspect.isasyncgenfunction(function):
            raise _not_locked(function)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                from locks.aio.primitives import RLock as AioRLock

                async with AioRLock.of(lock_for(args, kwargs)):
                    return await function(*args, **kwargs)

            return awaited  # type: ignore[return-value]

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            with lock_for(args, kwargs):
                return function(*args, **kwargs)

        return called

    return decorate


def _not_locked(function: object) -> InvalidOption:
    return InvalidOption(
        f"{shown(function)} can't be run with a lock: it is not a function, or it is a generator, whose body runs later, "
        "between its yields; take the lock within it",
        value=shown(function),
    )
