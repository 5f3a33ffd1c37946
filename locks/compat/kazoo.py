"""Recipes of kazoo: `from locks.compat.kazoo import Lock` instead of `from kazoo.recipe.lock import Lock`.

A program that makes them by its client changes the client: `client.Lock = functools.partial(Lock, client)`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import locks
from locks.compat.holding import Block, Holding, check_shared, theirs
from locks.lock_ids import shown
from locks.node.client.clients import parts_of

__all__ = [
    "CancelledError",
    "Election",
    "Lock",
    "LockTimeout",
    "ReadLock",
    "Semaphore",
    "WriteLock",
]


class _Errors:
    """The errors, where kazoo is not installed."""

    class CancelledError(Exception):
        """`cancel` has ended the wait."""

    class LockTimeout(Exception):
        """The lock could not be acquired in time."""


CancelledError = theirs("kazoo.exceptions", _Errors.CancelledError)
LockTimeout = theirs("kazoo.exceptions", _Errors.LockTimeout)


class _Recipe(Block):
    """What locks and semaphores have in common: the object is the holder, in whichever thread."""

    def __init__(self, client: Any, path: str, identifier: str | None) -> None:
        self.client = client
        self.path = path
        self.identifier = identifier
        parts = f"{getattr(client, 'chroot', '')}/{path}".split("/")
        self.lock_id = ("zookeeper", "/" + "/".join(part for part in parts if part))
        self.is_acquired = False
        self.cancelled = False
        self._changing = threading.Lock()
        self._holding: Holding | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path!r}>"

    def _make(self, owner: locks.Owner) -> locks.Lock:
        raise NotImplementedError

    def cancel(self) -> None:
        """End the wait of `acquire` in another thread, which raises `CancelledError`; a lock that is held is kept."""
        with self._changing:
            self.cancelled = True
            if self._holding is not None and not self.is_acquired:
                self._holding.owner.end()

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Acquire it.

        Args:
            blocking: Whether to wait for it.
            timeout: Seconds to wait at most; `None` waits for ever.

        Returns:
            Whether it was acquired.

        Raises:
            LockTimeout: Others hold it.
            CancelledError: `cancel` was called.
            MisuseError: The program has no lock servers.
        """
        with self._changing:
            holding = self._holding
            if holding is None or holding.owner.ended:
                holding = self._holding = Holding(self._make, self.identifier)
        gotten = False
        try:
            gotten = holding.acquire(timeout if blocking else 0)
        except locks.LocksError:
            if not holding.owner.ended:  # by `cancel`
                raise
        with self._changing:
            if self.cancelled or holding.owner.ended:
                self.cancelled = False
                if gotten and not holding.owner.ended:
                    holding.release()
                raise CancelledError
            self.is_acquired = self.is_acquired or gotten
        if not (gotten or self.is_acquired) and blocking:
            raise LockTimeout(f"timed out after {timeout} s waiting for {self.path}")
        return gotten

    def release(self) -> bool:
        """Release it; return whether it was acquired.

        Raises:
            LockLost: It was lost meanwhile.
        """
        with self._changing:
            if not self.is_acquired or self._holding is None:
                return False
            self.is_acquired = False
            self._holding.release()
            return True

    def __enter__(self) -> None:
        self.acquire()


class Lock(_Recipe):
    """An exclusive lock with the arguments of kazoo's.

    Args:
        client: Not used, except for its `chroot`: the lock is on the program's lock servers. Pass the client as before, or `None`.
        path: Its name; the lock id is `("zookeeper", path)`.
        identifier: What `contenders` shows of it; by default the name of the thread.
        extra_lock_patterns: Refused, unless it is empty: there are no nodes of ZooKeeper.
    """

    _mode: ClassVar[locks.values.Mode] = "write"

    def __init__(
        self,
        client: Any,
        path: str,
        identifier: str | None = None,
        extra_lock_patterns: Sequence[str] = (),
    ) -> None:
        super().__init__(client, path, identifier)
        if extra_lock_patterns:
            raise locks.errors.InvalidOption(
                f"extra_lock_patterns={shown(extra_lock_patterns)} can't be used: there are no nodes of ZooKeeper; leave it out",
                extra_lock_patterns=shown(extra_lock_patterns),
            )

    def _make(self, owner: locks.Owner) -> locks.Lock:
        return locks.Lock(self.lock_id, self._mode, owner=owner)

    def acquire(
        self, blocking: bool = True, timeout: float | None = None, ephemeral: bool = True
    ) -> bool:
        """Acquire it.

        Args:
            blocking: Whether to wait for it.
            timeout: Seconds to wait at most; `None` waits for ever.
            ephemeral: `False` is refused: no lock outlives its program.

        Returns:
            Whether it was acquired. `False`, too, if this object already holds it and the wait is limited.

        Raises:
            LockTimeout: Others hold it.
            CancelledError: `cancel` was called.
            InvalidOption: `ephemeral` is `False`.
            MisuseError: The program has no lock servers.
        """
        if not ephemeral:
            raise locks.errors.InvalidOption(
                "ephemeral=False can't be used: the lock is released when its program ends; leave it out",
                ephemeral=False,
            )
        return super().acquire(blocking, timeout)

    def contenders(self) -> list[str]:
        """The identifiers of those that hold it or wait for it, in the order of the queue."""
        check_shared()
        found = locks.queue(self.lock_id)
        return _identifiers((*found.holders, *found.waiting))


class WriteLock(Lock):
    """The lock of a writer; see `Lock`."""


class ReadLock(Lock):
    """The lock of a reader, which other readers share; see `Lock`."""

    _mode = "read"


class Semaphore(_Recipe):
    """A semaphore with the arguments of kazoo's.

    Args:
        client: As for `Lock`.
        path: As for `Lock`.
        identifier: What `lease_holders` shows of it; by default the name of the thread.
        max_leases: How many may hold it at the same time.
    """

    def __init__(
        self, client: Any, path: str, identifier: str | None = None, max_leases: int = 1
    ) -> None:
        super().__init__(client, path, identifier)
        self.max_leases = max_leases

    def _make(self, owner: locks.Owner) -> locks.Lock:
        return locks.Semaphore(self.lock_id, self.max_leases, owner=owner)

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Acquire it, unless this object has it already.

        Args:
            blocking: Whether to wait for it.
            timeout: Seconds to wait at most; `None` waits for ever.

        Returns:
            Whether it was acquired.

        Raises:
            LockTimeout: Others hold it.
            CancelledError: `cancel` was called.
            ValueError: Others use it with another number of leases.
            MisuseError: The program has no lock servers.
        """
        self.cancelled = False
        if self.is_acquired:
            return True
        try:
            return super().acquire(blocking, timeout)
        except locks.errors.ConflictingRequest as error:
            raise ValueError(f"max_leases={self.max_leases} is inconsistent: {error}") from error

    def lease_holders(self) -> list[str]:
        """The identifiers of those that hold it."""
        check_shared()
        return _identifiers(locks.holders(self.lock_id))


class Election:
    """An election with the arguments of kazoo's, which is a lock there, too: whoever holds it leads.

    Args:
        client: As for `Lock`.
        path: As for `Lock`.
        identifier: What `contenders` shows of it; by default the name of the thread.

    Attributes:
        lock: The lock.
    """

    def __init__(self, client: Any, path: str, identifier: str | None = None) -> None:
        self.lock = Lock(client, path, identifier)

    def run(self, func: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        """Wait until this candidate leads, call a function, and give the leadership back.

        Args:
            func: The function.
            *args: Its arguments.
            **kwargs: Likewise.

        Raises:
            ValueError: `func` is not callable.
            LockLost: The leadership was lost meanwhile.
        """
        if not callable(func):
            raise ValueError(f"the leader's function {shown(func)} is not callable")
        try:
            with self.lock:
                func(*args, **kwargs)
        except CancelledError:
            pass

    def cancel(self) -> None:
        """End the wait of `run` in another thread; a function that runs is not interrupted."""
        self.lock.cancel()

    def contenders(self) -> list[str]:
        """The identifiers of the candidates, the leader first."""
        return self.lock.contenders()


def _identifiers(requests: Sequence[locks.values.Contender]) -> list[str]:
    return [parts_of(each.client)[0] for each in requests]
