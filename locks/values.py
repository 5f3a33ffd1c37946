"""What the calls of `locks` take and return: lock ids, modes, views of a lock's queue, results, reports of deadlocks, options."""

from locks.lock_ids import units
from locks.node.client.options import ClientOptions, LockOptions, TransactionOptions
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
    "ClientOptions",
    "Contender",
    "Deadlock",
    "Edge",
    "LockId",
    "LockInfo",
    "LockOptions",
    "LockResult",
    "Mode",
    "Notification",
    "RequestRecord",
    "Require",
    "TransactionOptions",
    "View",
    "units",
]
