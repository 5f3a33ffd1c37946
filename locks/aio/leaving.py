"""`async with` blocks of objects that several tasks may share.

The running task does not identify the block that ends: a dropped coroutine is closed by whichever task happens to
collect it. So each block has its own `Hold`, as `with` statements have (`locks.runtime.leaving`). `async with`,
too, looks up `__aexit__` before it calls `__aenter__`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any
from weakref import ref

from locks.aio.tasks import at_once, call
from locks.runtime.leaving import Block, Exit, Hold, generator_of, stacked_hold
from locks.runtime.native import get_ident

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["AsyncBlock"]

_looked_up: dict[int, Hold] = {}  # by native thread


def _leave(
    hold: Hold,
    kind: type[BaseException] | None = None,
    error: BaseException | None = None,
    traceback: TracebackType | None = None,
) -> Coroutine[Any, Any, None]:
    held = hold.held
    hold.drop()  # it is left by what is returned; the `Exit` may be dropped before that runs
    return _end(hold.subject, held, error)


async def _end(subject: Block, held: Any, error: BaseException | None) -> None:
    subject._leave(held, error)


async def _leave_without_hold(
    subject: AsyncBlock,
    kind: type[BaseException] | None = None,
    error: BaseException | None = None,
    traceback: TracebackType | None = None,
) -> None:
    hold = stacked_hold(subject._block, sys._getframe(1))
    if hold is None:
        at_once(subject._block._leave, None, error)
    else:
        await _leave(hold, kind, error, traceback)


class _Leaving:
    """A descriptor that gives each `async with` statement its own `__aexit__`."""

    __slots__ = ()

    def __get__(
        self, subject: AsyncBlock | None, owner: type[Any]
    ) -> Callable[..., Coroutine[Any, Any, None]]:
        if subject is None:  # an `AsyncExitStack`
            return _leave_without_hold
        hold = _looked_up[get_ident()] = Hold(subject._block)
        exit = Exit(_leave, hold)
        hold.exit = ref(exit)
        return exit


class AsyncBlock:
    """An asynchronous context manager that tasks may share."""

    @property
    def _block(self) -> Any:
        """The same kind of block for `with` statements, whose `_leave` does not wait."""
        raise NotImplementedError

    def __aenter__(self) -> Coroutine[Any, Any, Self]:
        hold = _looked_up.pop(get_ident(), None)
        block = self._block
        if hold is None or hold.subject is not block:
            hold = Hold(block)
        if generator_of(hold, sys._getframe(1)) is not None:
            return self._enter_generator(hold)
        hold.exit = (
            None  # a block of a coroutine ends with its task at the latest, and needs no finaliser
        )
        return self._enter(hold)

    async def _enter(self, hold: Hold) -> Self:
        await call(self._block._enter, hold)
        return self

    async def _enter_generator(self, hold: Hold) -> Self:
        """Enter a block of a generator; returns what its code has, whatever task runs that."""
        await self._enter(hold)
        return self._of_generator(hold)

    def _of_generator(self, hold: Hold) -> Self:
        """The block was entered; in the task."""
        raise NotImplementedError

    if TYPE_CHECKING:

        async def __aexit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            traceback: TracebackType | None,
        ) -> None: ...

    else:
        __aexit__ = _Leaving()
