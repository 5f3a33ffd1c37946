"""The lock table of a multi-version store: uncommitted writes, and the requests that wait for them.

    from locks.mvcc import Committed, LockTable, Request, Txn

`docs/mvcc.md` explains it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locks.form.first_use import at_first_use

if TYPE_CHECKING:
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

_get, __dir__ = at_first_use(
    "locks.mvcc",
    __all__,
    together=(
        "locks.mvcc.errors",
        "locks.mvcc.lock_table",
        "locks.mvcc.model",
        "locks.mvcc.records",
    ),
)

if not TYPE_CHECKING:
    __getattr__ = _get
