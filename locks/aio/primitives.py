"""`Lock`, `RLock`, `RWLock`, `Semaphore` and `Barrier` for coroutines, used like those of `asyncio`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from locks import primitives as blocking
from locks.aio.leaving import AsyncBlock
from locks.aio.options import LockOptions
from locks.aio.tasks import at_once, call, for_its_caller
from locks.model import Contender, LockId, Mode
from locks.node.client.owner import Owner
from locks.node.client.scope import Nodes
from locks.runtime.hints import Unpack
from locks.shapes.barrier import Barrier as BlockingBarrier
from locks.shapes.reentrant import RLock as BlockingRLock
from locks.shapes.semaphore import Semaphore as BlockingSemaphore

__all__ = ["Barrier", "Lock", "RLock", "RWLock", "Semaphore"]


class Lock(AsyncBlock):
    """A lock on one id, used like an `asyncio.Lock`.

    All `Lock`s of a task belong to one transaction; see `locks.Lock`.

    Args:
        lock_id: A non-empty tuple or list of key elements.
        mode: `"write"` is exclusive, `"read"` is shared.
        **options: As for `locks.Lock`.
    """

    _blocking: blocking.Lock | BlockingRLock

    def __init__(
        self, lock_id: Sequence[Any], mode: Mode = "write", **options: Unpack[LockOptions]
    ) -> None:
        self._blocking: blocking.Lock = blocking.Lock(lock_id, mode, **options)

    def __repr__(self) -> str:
        return f"<aio.Lock {self._blocking!r}>"

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

    async def locked(self) -> bool:
        """Whether any client holds a lock on exactly this id, or on one that covers it; see `locks.Lock.locked`."""
        return await call(self._blocking.locked)

    def owned(self) -> bool:
        """Whether the caller holds it."""
        return at_once(self._blocking.owned)

    async def token(self, *, timeout: float | None = None) -> int:
        """The fencing token, while the caller holds it; see `locks.fencing_token`."""
        return await call(self._blocking.token, timeout=timeout)


class RLock(Lock):
    """A lock on one id that its holder may acquire again, and must release as often; see `locks.RLock`.

    Args:
        lock_id: A non-empty tuple or list of key elements.
        mode: `"write"` is exclusive, `"read"` is shared.
        **options: As for `locks.RLock`.
    """

    def __init__(
        self, lock_id: Sequence[Any], mode: Mode = "write", **options: Unpack[LockOptions]
    ) -> None:
        self._blocking = BlockingRLock(lock_id, mode, **options)

    @classmethod
    def of(cls, lock: BlockingRLock) -> RLock:
        """Wrap a blocking lock for coroutines."""
        made = cls.__new__(cls)
        made._blocking = lock
        return made


class RWLock:
    """A lock on one id for many readers or one writer.

    Args:
        lock_id: A non-empty tuple or list of key elements.
        **options: As for `locks.RWLock`.
    """

    def __init__(self, lock_id: Sequence[Any], **options: Unpack[LockOptions]) -> None:
        self._read = Lock(lock_id, "read", **options)
        self._write = Lock(lock_id, "write", **options)

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
    """A counted lock on one id, used like an `asyncio.Semaphore`; see `locks.Semaphore`.

    Args:
        lock_id: A non-empty tuple or list of key elements.
        value: How many clients may hold it at the same time.
        nodes: As for `locks.Semaphore`.
        timeout: As for `locks.Semaphore`.
        owner: As for `locks.Semaphore`.
        label: As for `locks.Semaphore`.
    """

    _blocking: BlockingSemaphore

    def __init__(
        self,
        lock_id: Sequence[Any],
        value: int,
        *,
        nodes: Nodes | None = None,
        timeout: float | None = None,
        owner: Owner | None = None,
        label: str | None = None,
    ) -> None:
        self._blocking = BlockingSemaphore(
            lock_id, value, nodes=nodes, timeout=timeout, owner=owner, label=label
        )

    def unit(self) -> int:
        """The caller's unit, from 0 to the number of units - 1."""
        return at_once(self._blocking.unit)


class Barrier:
    """A barrier at which a number of parties wait for each other, like an `asyncio.Barrier`; see `locks.Barrier`.

    `async with barrier as number:` waits before its block.

    Args:
        lock_id: A non-empty tuple or list of key elements.
        parties: The number of parties.
        nodes: As for `locks.Barrier`.
        timeout: As for `locks.Barrier`.
        label: As for `locks.Barrier`.
        owner: As for `locks.Barrier`.
    """

    def __init__(
        self,
        lock_id: Sequence[Any],
        parties: int,
        *,
        nodes: Nodes | None = None,
        timeout: float | None = None,
        label: str | None = None,
        owner: Owner | None = None,
    ) -> None:
        self._blocking = BlockingBarrier(
            lock_id, parties, nodes=nodes, timeout=timeout, label=label, owner=owner
        )

    def __repr__(self) -> str:
        return f"<aio.Barrier {self._blocking!r}>"

    @property
    def lock_id(self) -> LockId:
        """The id under which `locks.queue` and `locks.watch` show the barrier's requests."""
        return self._blocking.lock_id

    @property
    def parties(self) -> int:
        """The number of parties."""
        return self._blocking.parties

    async def wait(self, timeout: float | None = None) -> int:
        """Wait until all parties have arrived; returns the caller's number in the order of arrival; see `locks.Barrier.wait`."""
        return await call(self._blocking.wait, timeout)

    async def __aenter__(self) -> int:
        return await self.wait()

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: all parties have passed."""

    async def waiting(self) -> tuple[Contender, ...]:
        """The parties that are waiting; see `locks.Barrier.waiting`."""
        return await call(self._blocking.waiting)
