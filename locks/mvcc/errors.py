"""What the lock table raises on purpose, beside the errors of all of `locks`.

Two of those say something else here: a report on its transactions, and which of these has a key.
"""

from __future__ import annotations

from locks import errors
from locks.errors import LocksError, MisuseError, OperatingError
from locks.mvcc.model import Key, Outcome, Timestamp, Txn, TxnDeadlock

__all__ = [
    "BadTimestamp",
    "InvalidKey",
    "LockNotAvailable",
    "LockedByOther",
    "TableFull",
    "TableStopped",
    "TransactionFinished",
    "TxnDeadlockAborted",
    "TxnLockTimeout",
    "UnknownGuard",
]


class InvalidKey(MisuseError, ValueError):
    """A key that cannot be in this table: not hashable, not sortable, or not with its other keys.

    Attributes:
        key: The key, as text.
    """

    key: str

    def __init__(self, message: str, *, key: str) -> None:
        super().__init__(message, key=key)


class BadTimestamp(MisuseError, ValueError):
    """A timestamp that is not an integer >= 0, or that goes back where timestamps only rise.

    Attributes:
        timestamp: The timestamp; as text if it is none.
    """

    timestamp: Timestamp | str

    def __init__(self, message: str, *, timestamp: Timestamp | str) -> None:
        super().__init__(message, timestamp=timestamp)


class UnknownGuard(MisuseError):
    """A guard that is not of this table, or of a request that was dequeued.

    Attributes:
        guard: The guard; as text if it is none.
    """

    guard: object

    def __init__(self, message: str, *, guard: object) -> None:
        super().__init__(message, guard=guard)


class LockedByOther(MisuseError):
    """A lock is to be acquired while another transaction holds it.

    A request that scans with the latch of the key held, and waits when told to, never sees this.

    Attributes:
        key: The key.
        holder: The `Txn` that holds it.
        txn: The `Txn` that was to hold it.
    """

    key: Key
    holder: Txn
    txn: Txn

    def __init__(self, message: str, *, key: Key, holder: Txn, txn: Txn) -> None:
        super().__init__(message, key=key, holder=holder, txn=txn)


class LockNotAvailable(OperatingError):
    """A request that does not wait (`wait="error"`) met a lock that is in its way.

    Attributes:
        key: The key.
        holder: The `Txn` that is in the way: it holds the lock, or is the next to write.
        txn: The `Txn` whose request it was.
    """

    key: Key
    holder: Txn
    txn: Txn

    def __init__(self, message: str, *, key: Key, holder: Txn, txn: Txn) -> None:
        super().__init__(message, key=key, holder=holder, txn=txn)


class TableFull(OperatingError):
    """The table has as many locks, or as many requests that wait, as it may have.

    Attributes:
        limit: How many.
    """

    limit: int

    def __init__(self, message: str, *, limit: int) -> None:
        super().__init__(message, limit=limit)


class TransactionFinished(OperatingError):
    """The transaction was committed or aborted, perhaps by another one that pushed it.

    Attributes:
        txn: The `Txn`.
        outcome: `"committed"` or `"aborted"`.
    """

    txn: Txn
    outcome: Outcome

    def __init__(self, message: str, *, txn: Txn, outcome: Outcome) -> None:
        super().__init__(message, txn=txn, outcome=outcome)


class TableStopped(OperatingError):
    """The lock table was stopped."""


class TxnDeadlockAborted(errors.DeadlockAborted):
    """The transaction was given up to resolve a deadlock; run it again, with a new id.

    Attributes:
        deadlock: The report; `None` if it was a `push` that found the deadlock.
    """

    deadlock: TxnDeadlock | None  # type: ignore[assignment]

    def __init__(self, message: str, *, deadlock: TxnDeadlock | None = None) -> None:
        LocksError.__init__(self, message, deadlock=deadlock)


class TxnLockTimeout(errors.LockTimeout):
    """A wait ran out; the request is still in the queue.

    Attributes:
        key: What it waits for.
        holder: The `Txn` that has it.
    """

    key: Key
    holder: Txn

    def __init__(self, message: str, *, key: Key, holder: Txn, timeout: float | None) -> None:
        LocksError.__init__(self, message, key=key, holder=holder, timeout=timeout)
        self.lock_ids, self.holders, self.lost = (), (), ()
