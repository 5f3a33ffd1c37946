"""The watchers of lock ids, found by the ids that have changed.

A change of an id concerns the watchers of this id and of all ids above and below it. They are found
in time that depends on the id's depth and on their number, not on the number of watched ids.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator

from locks.core.messages import OUTSIDE
from locks.core.server.tree import Entry
from locks.model import LockId

__all__ = ["Watchers"]


class Watchers:
    """The watchers of lock ids.

    Attributes:
        any: Whether there are any.
        outside: Whether there are watchers on other nodes; each change concerns them.
        watched: The ids that are watched by this node's watchers, with these.
    """

    __slots__ = ("_below", "any", "outside", "watched")

    def __init__(self) -> None:
        self.any = False
        self.outside = False
        self.watched: dict[LockId, dict[Hashable, None]] = {}
        self._below: dict[LockId, dict[LockId, None]] = {}  # the ids that are watched below an id

    def add(self, lock_id: LockId, watcher: Hashable) -> None:
        """Add a watcher of a lock id."""
        self.any = True
        if watcher is OUTSIDE:
            self.outside = True
            return
        for depth in range(len(lock_id)):
            self._below.setdefault(lock_id[:depth], {})[lock_id] = None
        self.watched.setdefault(lock_id, {})[watcher] = None

    def remove(self, lock_id: LockId, watcher: Hashable) -> None:
        """Remove a watcher of a lock id, if there is such a watcher."""
        if watcher is OUTSIDE:
            self.outside = False
        watchers = self.watched.get(lock_id, {})
        watchers.pop(watcher, None)
        if not watchers and self.watched.pop(lock_id, None) is not None:
            for depth in range(len(lock_id)):
                below = self._below[lock_id[:depth]]
                del below[lock_id]
                if not below:
                    del self._below[lock_id[:depth]]
        self.any = self.outside or bool(self.watched)

    def of(self, lock_id: LockId) -> Collection[Hashable]:
        """The watchers of exactly this id."""
        return self.watched.get(lock_id, ())

    @property
    def count(self) -> int:
        """How many ids are watched by this node's watchers; an id counts once for each watcher."""
        return sum(map(len, self.watched.values()))

    def all(self) -> list[tuple[LockId, tuple[Hashable, ...]]]:
        """All ids that are watched, with their watchers."""
        watched: list[tuple[LockId, tuple[Hashable, ...]]] = (
            [((), (OUTSIDE,))] if self.outside else []
        )
        return watched + [(lock_id, tuple(watchers)) for lock_id, watchers in self.watched.items()]

    def around(self, changed: Iterable[Entry]) -> dict[LockId, list[Entry]]:
        """The watched ids that are related to changed entries, each with these entries."""
        entries: dict[LockId, list[Entry]] = {}
        if self.watched:
            for entry in changed:
                for lock_id in self.related(entry.slot.lock_id):
                    entries.setdefault(lock_id, []).append(entry)
        return entries

    def related(self, lock_id: LockId) -> Iterator[LockId]:
        """The watched ids that are related to an id."""
        for depth in range(1, len(lock_id) + 1):
            above = lock_id[:depth]
            if above in self.watched:
                yield above
        yield from self._below.get(lock_id, ())
