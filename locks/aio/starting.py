"""The program's node, started by a coroutine."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from locks.aio.tasks import call
from locks.program import default as program

__all__ = ["start"]

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Make a function that may wait one for coroutines."""

    @wraps(function)
    async def called(*args: P.args, **kwargs: P.kwargs) -> T:
        return await call(function, *args, **kwargs)

    return called


start = _awaited(program.start)
"""Start this program's node, unless it is running; see `locks.start`. The first use of `locks.aio` does the same."""
