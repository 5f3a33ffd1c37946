"""The lock ids and process groups of elections (`locks_leader`), and their names for people; pure.

A candidate waits for the election's lock as long as another one leads. This is normal, and no
reason for a warning.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from locks.lock_ids import Atom, LockId
from locks.words import ELECTION, ELECTIONS, show_election
from locks.words import MERGE as MERGE

__all__ = [
    "LOCKS_LEADER",
    "MERGE",
    "PREFIX",
    "ElectionLock",
    "candidates_for",
    "election_of",
    "is_contest",
    "workers_for",
]

# The first element of the lock ids of elections, and of their groups, which are named after the
# lock.
LOCKS_LEADER, SYNC, WORKERS = Atom(ELECTIONS), Atom("sync"), Atom("workers")
PREFIX = ELECTION


class ElectionLock(NamedTuple):
    """A lock of an election.

    Attributes:
        resource: The resource of the election.
        merges: Whether it is the lock under which states are merged; otherwise it is the leader's
            lock.
    """

    resource: Any
    merges: bool = False

    def __str__(self) -> str:
        return show_election(self.resource, self.merges)

    @property
    def lock_id(self) -> LockId:
        """Its id."""
        kind = (SYNC,) if self.merges else ()
        return (LOCKS_LEADER, *kind, self.resource)


def election_of(lock_id: LockId) -> ElectionLock | None:
    """The election that a lock belongs to."""
    if type(lock_id[0]) is not Atom:
        return None
    match lock_id:
        case (head, resource) if head == LOCKS_LEADER:
            return ElectionLock(resource)
        case (head, kind, resource) if head == LOCKS_LEADER and kind == SYNC:
            return ElectionLock(resource, True)
    return None


def is_contest(lock_id: LockId) -> bool:
    """Whether that is the lock that a leader has, and candidates wait for."""
    return type(lock_id[0]) is Atom and lock_id[0] == LOCKS_LEADER and len(lock_id) == 2


def candidates_for(group: Any) -> LockId | None:
    """The lock of the election whose candidates are in this group."""
    match group:
        case (head, [first, resource]) if head == first == LOCKS_LEADER:
            return first, resource
    return None


def workers_for(group: Any) -> LockId | None:
    """The lock of the election whose workers are in this group."""
    match group:
        case (head, kind, [first, resource]) if head == first == LOCKS_LEADER and kind == WORKERS:
            return first, resource
    return None
