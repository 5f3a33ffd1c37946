"""The lock ids and process groups of elections (`locks_leader`), and their names for people; pure.

A candidate waits for the election's lock as long as another one leads. This is normal, and no
reason for a warning.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from locks.words import (
    CANDIDATES,
    ELECTION,
    ELECTION_ID,
    ELECTIONS,
    MERGE_ID,
    WORKERS,
    LockId,
    show_election,
)
from locks.words import MERGE as MERGE

__all__ = [
    "ELECTION_ID",
    "MERGE",
    "PREFIX",
    "ElectionLock",
    "candidates_for",
    "election_of",
    "is_contest",
    "workers_for",
]

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
        return (MERGE_ID if self.merges else ELECTION_ID, self.resource)


def election_of(lock_id: LockId) -> ElectionLock | None:
    """The election that a lock belongs to."""
    if len(lock_id) != 2 or lock_id[0] not in ELECTIONS:
        return None
    return ElectionLock(lock_id[1], lock_id[0] == MERGE_ID)


def is_contest(lock_id: LockId) -> bool:
    """Whether that is the lock that a leader has, and candidates wait for."""
    return lock_id[0] == ELECTION_ID and len(lock_id) == 2


def candidates_for(group: Any) -> LockId | None:
    """The lock of the election whose candidates are in this group."""
    return _lock_of(group, CANDIDATES)


def workers_for(group: Any) -> LockId | None:
    """The lock of the election whose workers are in this group."""
    return _lock_of(group, WORKERS)


def _lock_of(group: Any, kind: str) -> LockId | None:
    match group:
        case (head, resource) if head == kind:
            return (ELECTION_ID, resource)
    return None
