"""The lock table of a multi-version store: uncommitted writes, and the requests that wait for them.

    from locks.mvcc import Committed, LockTable, Request, Txn

`docs/mvcc.md` explains it.
"""

from locks.mvcc.errors import (
    BadTimestamp,
    DeadlockAborted,
    InvalidKey,
    LockedByOther,
    LockNotAvailable,
    LockTimeout,
    TableFull,
    TableStopped,
    TransactionFinished,
    UnknownGuard,
)
from locks.mvcc.lock_table import LockTable
from locks.mvcc.model import (
    Aborted,
    Committed,
    Contention,
    Deadlock,
    Intent,
    LockState,
    LongWait,
    Moved,
    Place,
    Request,
    Span,
    Statistics,
    Txn,
    Wait,
)
from locks.mvcc.records import Guard

__all__ = [
    "Aborted",
    "BadTimestamp",
    "Committed",
    "Contention",
    "Deadlock",
    "DeadlockAborted",
    "Guard",
    "Intent",
    "InvalidKey",
    "LockNotAvailable",
    "LockState",
    "LockTable",
    "LockTimeout",
    "LockedByOther",
    "LongWait",
    "Moved",
    "Place",
    "Request",
    "Span",
    "Statistics",
    "TableFull",
    "TableStopped",
    "TransactionFinished",
    "Txn",
    "UnknownGuard",
    "Wait",
]
