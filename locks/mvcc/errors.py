"""What the lock table raises on purpose, beside the errors of all of `locks`.

Two of those are used as they are: `locks.DeadlockAborted` in the victim of a deadlock, and
`locks.LockTimeout` when a wait ran out.
"""

from __future__ import annotations

from typing import Any

from locks.errors import MisuseError, OperatingError

__all__ = [
    "BadTimestamp",
    "InvalidKey",
    "LockedByOther",
    "TableStopped",
    "TransactionFinished",
    "UnknownGuard",
]


class InvalidKey(MisuseError, ValueError):
    """A key that cannot be in this table: not hashable, not sortable, or not with its other keys.

    Attributes:
        key: The key.
    """

    key: Any = None


class BadTimestamp(MisuseError, ValueError):
    """A timestamp that is not an integer >= 0, or that goes back where timestamps only rise.

    Attributes:
        timestamp: The timestamp.
    """

    timestamp: Any = None


class UnknownGuard(MisuseError):
    """A guard that is not of this table, or of a request that was dequeued.

    Attributes:
        guard: The guard.
    """

    guard: Any = None


class LockedByOther(MisuseError):
    """A lock is to be acquired while another transaction holds it.

    A request that scans with the latch of the key held, and waits when told to, never sees this.

    Attributes:
        key: The key.
        holder: The `Txn` that holds it.
        txn: The `Txn` that was to hold it.
    """

    key: Any = None
    holder: Any = None
    txn: Any = None


class TransactionFinished(OperatingError):
    """The transaction was committed or aborted, perhaps by another one that pushed it.

    Attributes:
        txn: The `Txn`.
        outcome: `"committed"` or `"aborted"`.
    """

    txn: Any = None
    outcome: Any = None


class TableStopped(OperatingError):
    """The lock table was stopped."""
