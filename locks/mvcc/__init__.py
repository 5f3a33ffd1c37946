"""The lock table of a multi-version store: uncommitted writes, and the requests that wait for them.

    from locks.mvcc import Committed, LockTable, Request, Txn

`docs/mvcc.md` explains it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locks.runtime.first_use import at_first_use

if TYPE_CHECKING:
    from locks.mvcc.errors import (
        BadTimestamp,
        InvalidKey,
        LockedByOther,
        LockNotAvailable,
        TableFull,
        TableStopped,
        TransactionFinished,
        TxnDeadlockAborted,
        TxnLockTimeout,
        UnknownGuard,
    )
    from locks.mvcc.lock_table import LockTable
    from locks.mvcc.model import (
        Aborted,
        Committed,
        Contention,
        Intent,
        LockState,
        LongWait,
        Moved,
        Place,
        Request,
        Span,
        Statistics,
        Txn,
        TxnDeadlock,
        TxnWait,
    )
    from locks.mvcc.records import Guard

__all__ = [
    "Aborted",
    "BadTimestamp",
    "Committed",
    "Contention",
    "Guard",
    "Intent",
    "InvalidKey",
    "LockNotAvailable",
    "LockState",
    "LockTable",
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
    "TxnDeadlock",
    "TxnDeadlockAborted",
    "TxnLockTimeout",
    "TxnWait",
    "UnknownGuard",
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
