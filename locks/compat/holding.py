"""What all faces are made of: a lock that belongs to an object, whichever thread has acquired it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from math import inf
from types import TracebackType
from typing import TypeVar

import locks
from locks.node.client.clients import label_of
from locks.program import default
from locks.runtime.monitor import current_client

__all__ = ["Block", "Holding", "check_shared", "theirs"]

E = TypeVar("E", bound=Exception)


def theirs(module: str, ours: type[E]) -> type[E]:
    """The error of this name of a library that is installed, so that clauses with it catch it as before; or else ours."""
    try:
        found: type[E] = getattr(import_module(module), ours.__name__)
    except ImportError:
        return ours
    return found


def check_shared() -> None:
    """Refuse a lock that other programs would not see: the libraries' locks are for several programs.

    Raises:
        MisuseError: The program has no lock servers, and nothing says that this is intended.
    """
    default.check_shared(
        "this program's locks are its own, and other programs would not see this one"
    )


class Block:
    """What a face with blocks has in common: a lost lock is told at the end, unless the block raises something itself."""

    def release(self) -> object:
        """See the face."""
        raise NotImplementedError

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except locks.LockLost:
            if error is None:
                raise


class Holding:
    """A lock with an owner of its own.

    Two holdings exclude each other, in any threads.

    Args:
        make: Makes the lock of an owner.
        name: The owner's name, for others; by default that of the caller.
    """

    def __init__(self, make: Callable[[locks.Owner], locks.Lock], name: str | None = None) -> None:
        check_shared()
        self.owner = locks.Owner(name or label_of(current_client()))
        self.lock = make(self.owner)

    def acquire(self, timeout: float | None) -> bool:
        """Acquire it; if the owner holds it already, wait until another thread has released it."""
        return self.lock.acquire(timeout=inf if timeout is None else max(0, timeout))

    def owned(self) -> bool:
        """Whether it is held, and was neither lost nor ended."""
        return self.lock.owned()

    def release(self) -> None:
        """Release it.

        Raises:
            LockLost: It was not held any more.
        """
        try:
            self.lock.release()
        except locks.errors.NotHeld as error:
            raise locks.LockLost(
                f"lost the lock {self.lock!r} before its release; others may have held it since",
                lock_ids=(self.lock.lock_id,),
            ) from error
