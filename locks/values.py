"""What the calls of `locks` take and return: lock ids, modes, views of a lock's queue, results, reports of deadlocks."""

from locks.lock_ids import Atom, units
from locks.words import (
    AgentId,
    Contender,
    Deadlock,
    Edge,
    LockId,
    LockInfo,
    LockResult,
    Mode,
    Notification,
    RequestRecord,
    Require,
    View,
)

__all__ = [
    "AgentId",
    "Atom",
    "Contender",
    "Deadlock",
    "Edge",
    "LockId",
    "LockInfo",
    "LockResult",
    "Mode",
    "Notification",
    "RequestRecord",
    "Require",
    "View",
    "units",
]
