"""`Lock`, `RLock`, `RWLock` and `Semaphore` for coroutines, used like those of `asyncio`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from locks import primitives as blocking
from locks.aio.leaving import AsyncBlock
from locks.aio.loops import for_its_caller
from locks.aio.tasks import at_once, call, running
from locks.errors import MisuseError
from locks.model import LockId, Mode
from locks.node.client.options import ClientOptions, LockOptions
from locks.node.client.scope import Nodes
from locks.program.default import is_at_hand
from locks.runtime.hints import Unpack
from locks.runtime.leaving import Hold
from locks.shapes.reentrant import RLock as BlockingRLock
from locks.shapes.semaphore import Semaphore as BlockingSemaphore

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Lock", "RLock", "RWLock", "Semaphore"]

L = TypeVar("L", bound="Lock")


class _Answer(Awaitable[bool]):
    """The answer to `locked`, once it is awaited. `asyncio.Condition`, which does not await it, would take it for a yes."""

    def __init__(self, ask: Callable[[], bool]) -> None:
        self._ask = ask

    def __await__(self) -> Generator[Any, Any, bool]:
        return call(self._ask).__await__()

    def __bool__(self) -> bool:
        raise MisuseError(
            "can't tell without waiting whether the lock is held: use `await lock.locked()`. asyncio.Condition does not wait for the answer; "
            "give it an asyncio.Lock, or watch the id by locks.aio.watch"
        )


class Lock(AsyncBlock):
    """A lock on one id, used like an `asyncio.Lock`.

    All `Lock`s of a task belong to one transaction. The arguments are those of `locks.Lock`.
    """

    _kind: ClassVar[type[blocking.Lock | BlockingRLock]] = blocking.Lock
    _blocking: blocking.Lock | BlockingRLock

    def __init__(
        self,
        lock_id: Sequence[Any],
        mode: Mode = "write",
        **options: Unpack[LockOptions],
    ) -> None:
        self._blocking = self._kind(lock_id, mode, **options)

    @classmethod
    def of(cls: type[L], lock: blocking.Lock | BlockingRLock) -> L:
        """Wrap a blocking lock for coroutines."""
        made = cls.__new__(cls)
        made._blocking = lock
        return made

    def __repr__(self) -> str:
        return f"<aio.Lock {self._blocking!r}>"

    @property
    def _block(self) -> blocking.Lock | BlockingRLock:
        return self._blocking

    def _of_generator(self, hold: Hold) -> Self:
        made = object.__new__(type(self))
        made._blocking = self._blocking._of_generator(hold)
        return made

    async def _enter(self, hold: Hold) -> Self:
        lock = self._blocking
        # What can't wait needs no bridge. In trio each call is a checkpoint.
        quick = is_at_hand() and running().before is None
        if quick and type(lock) is blocking.Lock and at_once(lock.enter_at_once, hold):
            return self
        await call(lock._enter, hold)
        return self

    @property
    def lock_id(self) -> LockId:
        """The id of the lock."""
        return self._blocking.lock_id

    @for_its_caller
    async def acquire(self, blocking: bool = True, timeout: float | None = -1) -> bool:
        """Acquire the lock; returns whether it was acquired; see `locks.Lock.acquire`.

        Raises:
            MisuseError: It runs as a separate task, as in `asyncio.wait_for` before Python 3.12. The lock would be
                released immediately, when that task ends.
        """
        return await call(self._blocking.acquire, blocking, timeout)

    def release(self) -> None:
        """Release the lock; see `locks.Lock.release`."""
        at_once(self._blocking.release)

    def locked(self) -> Awaitable[bool]:
        """Whether any client holds a lock on exactly this id, or on one that covers it; see `locks.Lock.locked`. To be awaited."""
        return _Answer(self._blocking.locked)

    def owned(self) -> bool:
        """Whether the caller holds it."""
        return at_once(self._blocking.owned)

    async def token(self, *, timeout: float | None = None) -> int:
        """The fencing token, while the caller holds it; see `locks.original.fencing_token`."""
        return await call(self._blocking.token, timeout=timeout)


class RLock(Lock):
    """A lock on one id that its holder may acquire again, and must release as often. The arguments are those of `locks.RLock`."""

    _kind = BlockingRLock


class RWLock:
    """A lock on one id for many readers or one writer. The arguments are those of `locks.RWLock`."""

    def __init__(self, lock_id: Sequence[Any], **options: Unpack[LockOptions]) -> None:
        both = blocking.RWLock(lock_id, **options)
        self._read, self._write = Lock.of(both.read_lock()), Lock.of(both.write_lock())

    def __repr__(self) -> str:
        return f"<aio.RWLock of {self._write!r}>"

    @property
    def lock_id(self) -> LockId:
        """The id of the lock."""
        return self._write.lock_id

    def read_lock(self) -> Lock:
        """The lock for a reader."""
        return self._read

    def write_lock(self) -> Lock:
        """The lock for a writer."""
        return self._write


class Semaphore(Lock):
    """A counted lock on one id, used like an `asyncio.Semaphore`. The arguments are those of `locks.Semaphore`."""

    _blocking: BlockingSemaphore

    def __init__(
        self,
        lock_id: Sequence[Any],
        value: int,
        *,
        nodes: Nodes | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._blocking = BlockingSemaphore(lock_id, value, nodes=nodes, **options)

    def unit(self) -> int:
        """The caller's unit, from 0 to the number of units - 1."""
        return at_once(self._blocking.unit)
