"""Who watches which lock ids, found by what has changed.

A change of an id concerns those who watch it, an id above it, or one below it. They are found in time
that depends on the id's depth and on how many of them there are, not on how many ids are watched.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable

from locks.core.server.tree import Entry
from locks.model import LockId

__all__ = ["Watchers"]


class Watchers:
    """The watchers of lock ids.

    Attributes:
        watched: The ids that are watched, with their watchers.
    """

    __slots__ = ("_below", "watched")

    def __init__(self) -> None:
        self.watched: dict[LockId, dict[Hashable, None]] = {}
        self._below: dict[LockId, dict[LockId, None]] = {}  # the ids that are watched below an id

    def __bool__(self) -> bool:
        return bool(self.watched)

    def add(self, lock_id: LockId, watcher: Hashable) -> None:
        """Somebody watches a lock id."""
        for depth in range(len(lock_id)):
            self._below.setdefault(lock_id[:depth], {})[lock_id] = None
        self.watched.setdefault(lock_id, {})[watcher] = None

    def remove(self, lock_id: LockId, watcher: Hashable) -> None:
        """Somebody watches a lock id no more, or never did."""
        there = self.watched.get(lock_id)
        if there is None:
            return
        there.pop(watcher, None)
        if not there:
            del self.watched[lock_id]
            for depth in range(len(lock_id)):
                below = self._below[lock_id[:depth]]
                del below[lock_id]
                if not below:
                    del self._below[lock_id[:depth]]

    def of(self, lock_id: LockId) -> Collection[Hashable]:
        """The watchers of exactly this id."""
        return self.watched.get(lock_id, ())

    def all(self) -> list[tuple[LockId, tuple[Hashable, ...]]]:
        """All ids that are watched, with their watchers."""
        return [(lock_id, tuple(there)) for lock_id, there in self.watched.items()]

    def around(self, changed: Iterable[Entry]) -> dict[LockId, list[Entry]]:
        """For each watched id the entries among these that are related to it."""
        found: dict[LockId, list[Entry]] = {}
        for entry in changed:
            lock_id = entry.slot.lock_id
            for depth in range(1, len(lock_id) + 1):
                above = lock_id[:depth]
                if above in self.watched:
                    found.setdefault(above, []).append(entry)
            for below in self._below.get(lock_id, ()):
                found.setdefault(below, []).append(entry)
        return found
