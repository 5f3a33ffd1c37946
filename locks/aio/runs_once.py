"""`once` for coroutines."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from locks.aio.tasks import Suspended, at_once, call
from locks.aio.transactions import Lost
from locks.errors import InvalidOption
from locks.lock_ids import shown
from locks.model import LockId
from locks.node.client.options import ClientOptions
from locks.runtime.callables import check_awaited
from locks.runtime.hints import Unpack
from locks.runtime.leaving import Hold
from locks.shapes import once as blocking

__all__ = ["Once", "once"]

P = ParamSpec("P")
R = TypeVar("R")


def once(
    lock_id: Sequence[Any],
    *,
    remember: float = blocking.DAY,
    **options: Unpack[ClientOptions],
) -> Once:
    """Do some work once for a lock id; see `locks.once`.

    async with aio.once(("nightly", "2026-11-23")) as run:
        await import_all(run.token)

    @aio.once(("report", 47), remember=3600)
    async def report(): ...
    """
    return Once(blocking.once(lock_id, remember=remember, **options))


class Once:
    """Work that is to be done once, in an `async with` statement; `locks.aio.once` creates it."""

    def __init__(self, once: blocking.Once) -> None:
        self._blocking = once
        self._hold = Hold(once)  # the transaction ends with its task at the latest

    def __repr__(self) -> str:
        return f"<aio.Once {self._blocking!r}>"

    def __call__(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        """Decorate a coroutine function: each call is a block of its own."""
        if not inspect.iscoroutinefunction(function):
            raise InvalidOption(
                f"can't decorate {shown(function)}: pass a coroutine function; for a function, use locks.once"
            )

        @functools.wraps(function)
        async def called(*args: P.args, **kwargs: P.kwargs) -> Any:
            async with Once(self._blocking.anew()):
                return check_awaited(await function(*args, **kwargs))

        return called

    @property
    def lock_id(self) -> LockId:
        """The lock id."""
        return self._blocking.lock_id

    @property
    def token(self) -> int:
        """The fencing token of this run: larger than those of all earlier ones, unless a server was restarted after its clock was set back."""
        return self._blocking.token

    @property
    def lost(self) -> Lost:
        """An event that opens when the lock is lost."""
        return Lost(self._blocking.lost)

    def ensure_held(self) -> None:
        """Check that the lock is still held; see `locks.original.ensure_held`."""
        at_once(self._blocking.ensure_held)

    async def __aenter__(self) -> Once:
        await call(self._blocking._enter, self._hold)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Have the servers remember that the work is done, and release the lock."""
        held = self._hold.held
        self._hold.drop()
        # Not `call`, which may raise `Cancelled` before it calls.
        async with Suspended[None]().during(functools.partial(self._blocking._leave, held, error)):
            pass
