"""`async with` blocks of objects that several tasks may share.

The running task does not identify the block that ends: a dropped coroutine is closed by whichever task happens to
collect it. So each block has its own `Hold`, as `with` statements have (`locks.runtime.leaving`). `async with`,
too, looks up `__aexit__` before it calls `__aenter__`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from locks.aio.tasks import at_once, call
from locks.runtime.leaving import Hold
from locks.runtime.native import get_ident

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["AsyncBlock", "BlockingBlock"]

_looked_up: dict[int, Hold] = {}  # by native thread


class BlockingBlock(Protocol):
    """The same kind of block for `with` statements."""

    def _enter(self, hold: Hold) -> None:
        """Acquire it for a block; it may wait."""

    def _leave(self, held: Any, error: BaseException | None) -> None:
        """End the block, without waiting."""


async def _leave(
    hold: Hold,
    kind: type[BaseException] | None = None,
    error: BaseException | None = None,
    traceback: TracebackType | None = None,
) -> None:
    subject: Any = hold.subject
    subject._leave(hold.held, error)


async def _leave_without_hold(
    subject: AsyncBlock,
    kind: type[BaseException] | None = None,
    error: BaseException | None = None,
    traceback: TracebackType | None = None,
) -> None:
    at_once(subject._blocking._leave, None, error)


class _Leaving:
    """A descriptor that gives each `async with` statement its own `__aexit__`."""

    __slots__ = ()

    def __get__(
        self, subject: AsyncBlock | None, owner: type[Any]
    ) -> Callable[..., Coroutine[Any, Any, None]]:
        if subject is None:  # an `AsyncExitStack`
            return _leave_without_hold
        blocking: Any = subject._blocking
        hold = _looked_up[get_ident()] = Hold(blocking)
        return partial(_leave, hold)


class AsyncBlock:
    """An asynchronous context manager that tasks may share; a subclass sets `_blocking`."""

    _blocking: BlockingBlock

    def __aenter__(self) -> Coroutine[Any, Any, Self]:
        hold = _looked_up.pop(get_ident(), None)
        blocking: Any = self._blocking
        return self._enter(
            hold if hold is not None and hold.subject is blocking else Hold(blocking)
        )

    async def _enter(self, hold: Hold) -> Self:
        await call(self._blocking._enter, hold)
        return self

    if TYPE_CHECKING:

        async def __aexit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            traceback: TracebackType | None,
        ) -> None: ...

    else:
        __aexit__ = _Leaving()
