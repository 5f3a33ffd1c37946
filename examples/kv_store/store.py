"""Transactions: what they may see, when they wait, and when they must be run again."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TypeVar

from gevent import getcurrent

from locks.errors import InvalidOption, LocksError, MisuseError, OperatingError
from locks.model import check_timeout
from locks.mvcc import (
    Aborted,
    Committed,
    LockTable,
    Moved,
    Request,
    Span,
    TransactionFinished,
    Txn,
    TxnDeadlockAborted,
    TxnLockTimeout,
)
from locks.runtime.waiter import Waiter

from .keys import END, LONGEST, checked, show, text
from .latches import Latches
from .storage import Storage, StoreFailed
from .timestamps import Oracle, ReadCache

__all__ = ["END", "Restart", "Store", "Transaction", "TransactionOver", "TransactionTimeout"]

T = TypeVar("T")

INFINITY = float("inf")
PUSH_AFTER = (
    0.1  # seconds of waiting, until it is seen whether the time of who is in the way is over
)


class Restart(OperatingError):
    """The transaction was aborted: what it has read has changed since. Run it again."""


class TransactionOver(MisuseError):
    """The transaction was used after its end."""


class TransactionTimeout(OperatingError, TimeoutError):
    """The transaction was aborted: it took longer than it may."""


class Transaction:
    """One transaction; `Store.begin` makes it. For one thread or greenlet at a time.

    In a `with` block it is committed at the end, or aborted if an exception leaves the block.

    Attributes:
        id: Its number; a transaction begun later has a larger one.
        timestamp: Where it reads and writes. It may rise while the transaction is open; then
            all that it has read is the same at the new timestamp. At last, where it commits.
        floor: It will not commit below this timestamp. Above `timestamp` only while it moves up.
        read_only: Whether it is a snapshot: its timestamp doesn't rise.
        state: "open", "committed" or "aborted".
        lost: The error by which it was aborted, or `None`.
        lock_timeout: How many seconds a request may wait for locks; `None`: without limit. It may
            be changed.
    """

    def __init__(self, store: Store, number: int, at: int | None, priority: int | None) -> None:
        self.id = number
        self.timestamp = number if at is None else at
        self.floor = self.timestamp
        self.read_only = at is not None
        self.state = "open"
        self.lost: LocksError | None = None
        # Dictionaries as sets that keep the order: what it has read, and the keys of its intents.
        self.reads: dict[Span, None] = {}
        self.writes: dict[str, None] = {}
        self.lock_timeout = store.lock_timeout
        self._store = store
        self._priority = priority
        self._deadline = None if store.timeout is None else time.monotonic() + store.timeout
        self._settled = False
        # `Store.close` may abort it from another thread: not while it writes or commits.
        self._mutex = threading.Lock()

    @property
    def txn(self) -> Txn:
        """The transaction as the lock table knows it."""
        return Txn(self.id, self.floor, self._priority)

    # --- What users call

    def get(self, key: str) -> str | None:
        """Return a key's value; None if it has none.

        Raises:
            Restart, TxnDeadlockAborted: The transaction was aborted; run it again.
            TransactionTimeout: It was aborted, for it took too long.
            TxnLockTimeout: The request has waited too long. The transaction is open as before.
            TransactionOver: It has ended before, or another thread has aborted it meanwhile.
            InvalidOption: The key is not a string, or not a valid one.
        """
        span = Span(checked(key))
        storage = self._store.storage
        return self._read(span, lambda: storage.get(key, self.timestamp, self.id))

    def scan(self, start: str = "", end: str = END) -> list[tuple[str, str]]:
        """Return keys and values from `start` up to `end`, which is left out, in order.

        Raises:
            As `get`.
        """
        if not checked(start) < checked(end, or_end=True):
            raise InvalidOption(f"there is no key from {start!r} up to {end!r}: swap the two?")
        storage = self._store.storage
        return self._read(
            Span(start, end), lambda: storage.scan(start, end, self.timestamp, self.id)
        )

    def put(self, key: str, value: str) -> None:
        """Give a key a value. Others see it when the transaction is committed.

        Raises:
            As `get`; InvalidOption too if the value is not a string or too long, or the transaction
            is a snapshot.
        """
        self._write(checked(key), text("value", value, LONGEST))

    def delete(self, key: str) -> None:
        """Take a key's value away, if it has one.

        Raises:
            As `put`.
        """
        self._write(checked(key), None)

    def commit(self) -> None:
        """Make all writes visible to others, at once and for ever.

        Raises:
            TransactionOver: It has ended before.
            TransactionTimeout: It was aborted, for it took too long.
            StoreFailed: Whether it is committed shows when the store is opened again.
        """
        with self._request():
            self._move_up()  # there is nothing to do, unless `put` was interrupted
            with self._mutex:
                self._check_open()
                if self.writes:
                    # The commit point. If it is interrupted (Ctrl-C), `abort` undoes it.
                    self._store.storage.commit(self.id, self.timestamp)
                self.state = "committed"
                self._settle()

    def abort(self) -> None:
        """Undo all writes. After the transaction's end nothing happens."""
        self.give_up(None)

    def give_up(self, why: LocksError | None) -> None:
        """Abort, and raise an error if the transaction is used again."""
        with self._mutex:
            if self.state == "open":
                self.state, self.lost = "aborted", self.lost or why
            self._settle()

    def expire(self) -> None:
        """Abort it if its time is over."""
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self.give_up(
                TransactionTimeout(
                    f"transaction {self.id} was aborted: it has taken longer than {self._store.timeout} s"
                )
            )

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self.lost is not None:
                raise self.lost  # code that caught it must not take this for a commit
            if kind is None and self.state == "open":
                self.commit()
        finally:
            self.abort()

    # --- How it is done

    def _read(self, span: Span, evaluate: Callable[[], T]) -> T:
        def attempt() -> T:
            found = evaluate()
            self._check_open()  # or it might not have seen what it had written itself
            self._store.read_cache.record([span], self.timestamp, self.id)
            if not self.read_only:
                self.reads[span] = None
            return found

        with self._request():
            return self._when_free(Request(reads=[span]), attempt)

    def _write(self, key: str, value: str | None) -> None:
        if self.read_only:
            raise InvalidOption(f"can't write {key!r} in a snapshot; begin without `at`")
        store = self._store

        def attempt() -> None:
            with self._mutex:
                self._check_open()
                newest = max(store.read_cache.latest(key, self.id), store.storage.newest(key))
                if newest >= self.floor:
                    self.floor = store.oracle.next()
                # In this order: after an interrupt (Ctrl-C) no intent is left without its lock.
                self.writes[key] = None
                store.table.acquire_lock(key, self.txn)
                store.storage.put_intent(key, self.id, value)

        with self._request():
            self._when_free(Request(writes=[key]), attempt)
            self._move_up()

    def _check_open(self) -> None:
        if isinstance(self.lost, (StoreFailed, TransactionTimeout)):
            raise self.lost
        if self.state != "open":
            raise TransactionOver(
                f"transaction {self.id} has ended ({self.lost or self.state}); begin another one"
            )

    @contextmanager
    def _request(self) -> Iterator[None]:
        """Make requests, and end the transaction if they say that it has to be run again."""
        self.expire()
        self._check_open()
        try:
            yield
        except TransactionFinished:  # another thread has aborted it
            self._check_open()
            raise
        except Restart as error:
            self._store.count("restarts")
            self.lost = error
            raise
        except TxnDeadlockAborted as error:
            self._store.count("deadlocks")
            circle = (
                " and ".join(str(wait) for wait in error.deadlock.cycle)
                if error.deadlock
                else str(error)
            )
            self.lost = TxnDeadlockAborted(
                f"transaction {self.id} was aborted to resolve a deadlock: {circle}; run it again",
                deadlock=error.deadlock,
            )
            raise self.lost from error
        except TxnLockTimeout:
            self.expire()
            self._check_open()
            raise
        finally:
            if self.lost is not None:
                self.abort()

    def _when_free(self, request: Request, attempt: Callable[[], T]) -> T:
        """Do something on the keys of a request as soon as no lock is in the way."""
        table = self._store.table
        exclusive = not request.is_read_only
        guard, deadline = None, None
        try:
            while True:
                with self._store.latches.hold(request.reads + request.writes, exclusive=exclusive):
                    must_wait, guard = table.scan_and_enqueue(request, self.txn, guard)
                    if not must_wait:
                        return attempt()
                if deadline is None:
                    deadline = self._wait_until()
                # Without the latches: those that are waited for must get through.
                left = max(0.0, deadline - time.monotonic())
                table.wait_for(guard, None if left == INFINITY else left)
        except TxnLockTimeout as error:
            raise TxnLockTimeout(
                f"transaction {self.id} has waited {self.lock_timeout} s for {error.key!r}, which "
                f"transaction {error.holder.id} has. Try again, or abort it",
                key=error.key,
                holder=error.holder,
                timeout=self.lock_timeout,
            ) from None
        finally:
            if guard is not None:
                table.dequeue(guard)

    def _wait_until(self) -> float:
        """When a wait that begins now has to end."""
        limits = [INFINITY]
        if self.lock_timeout is not None:
            check_timeout(self.lock_timeout)
            limits.append(time.monotonic() + self.lock_timeout)
        if self._deadline is not None:
            limits.append(self._deadline)
        return min(limits)

    def _move_up(self) -> None:
        """Take what was read along to the new timestamp, if it is still the same there.

        Raises:
            Restart: It is not.
        """
        if self.floor == self.timestamp:
            return
        store = self._store
        store.count("moved up")
        spans = list(self.reads)
        with store.latches.hold(spans, exclusive=False):
            for span in spans:
                if store.changed(span, self.timestamp, self.floor, self.id):
                    raise Restart(
                        f"transaction {self.id} was aborted: what it has read at {show(span)} may "
                        "have been changed by another one; run it again"
                    )
            store.read_cache.record(spans, self.floor, self.id)
            self.timestamp = self.floor
        for key in self.writes:  # readers below the new timestamp need not wait any more
            store.table.update_locks(key, Moved(self.txn, self.timestamp))

    def _settle(self) -> None:
        """Carry out the end. Does what is left of it if it was interrupted before."""
        if self._settled:
            return
        store = self._store
        committed = self.state == "committed"
        update = Committed(self.txn, self.timestamp) if committed else Aborted(self.txn)
        failed = None
        try:
            if self.writes:
                store.storage.resolve(self.id, self.timestamp if committed else None)
        except StoreFailed as error:
            failed = error  # waiting transactions go on, and see it themselves
        for key in self.writes:
            store.table.update_locks(key, update)
        if store.active.pop(self.id, None) is not None:
            store.count(self.state)
        self._settled = True
        if failed is not None:
            raise failed


class Store:
    """A transactional key-value store; keys and values are strings.

    Args:
        path: The file, made if it is not there; ":memory:" for none.
        sync: Whether each commit waits for the disk; see `Storage`.
        lock_timeout: How many seconds a request may wait for locks; `None`: without limit.
        timeout: How many seconds a transaction may take. One that has taken longer is aborted with its
            next request, or as soon as it is in the way of another one.

    Raises:
        InvalidOption: The file is not a store's, or a limit is no time.
        StoreFailed: It is open already, here or in another process; or it is damaged, or can't be
            opened.
    """

    def __init__(
        self,
        path: str = ":memory:",
        *,
        sync: bool = True,
        lock_timeout: float | None = None,
        timeout: float | None = None,
    ) -> None:
        for limit in (lock_timeout, timeout):
            check_timeout(limit)
        self.lock_timeout = lock_timeout
        self.timeout = timeout
        self.storage = Storage(path, sync=sync)
        self.table = LockTable(deadlocks="both", push_after=PUSH_AFTER, push=self._push)
        self.latches = Latches()
        self.oracle = Oracle(self.storage)
        self.read_cache = ReadCache()
        self.active: dict[int, Transaction] = {}
        self.counted: Counter[str] = Counter()
        self._begin = threading.Lock()
        self._counting = threading.Lock()
        self._running: set[object] = set()  # the threads and greenlets that are in `run`

    def _push(self, pusher: Txn, holder: Txn, key: str) -> None:
        """A request waits for a transaction: perhaps that one's time is over."""
        other = self.active.get(int(str(holder.id)))
        if other is not None:
            other.expire()

    def begin(self, *, at: int | None = None, priority: int | None = None) -> Transaction:
        """Begin a transaction.

        Args:
            at: A timestamp: the transaction is a snapshot of what is committed up to there, and
                only reads. It waits for no transaction that writes above it.
            priority: In a deadlock the transaction with the lowest is aborted, if all have one;
                otherwise the youngest.

        Raises:
            InvalidOption: The timestamp is not a number, is in the future, or too old.
        """
        with self._begin:  # no vacuum comes between the timestamp and its entry in `active`
            if at is not None:
                oldest = self.storage.number("oldest")
                if not isinstance(at, int) or not oldest <= at <= self.oracle.last:
                    raise InvalidOption(
                        f"can't read at {at!r}; name a timestamp from {oldest} to {self.oracle.last}"
                    )
            tx = Transaction(self, self.oracle.next(), at, priority)
            self.active[tx.id] = tx
        return tx

    def run(self, function: Callable[[Transaction], T], *, retries: int = 100) -> T:
        """Run a function in a transaction and commit; again each time the transaction is aborted.

        Each time it has a higher priority in deadlocks, and begins after a longer pause.

        Args:
            function: Called with the transaction; it must be safe to run more than once.
            retries: How many times it may be run again.

        Returns:
            What the function returned.

        Raises:
            Restart, TxnDeadlockAborted: It was aborted once more than `retries` times.
            TransactionTimeout, TxnLockTimeout: It took too long; it is not run again.
            MisuseError: This thread or greenlet is in `run` already.
        """
        if not isinstance(retries, int) or retries < 0:
            raise InvalidOption(f"retries={retries!r} is not a number >= 0")
        me = getcurrent()
        if me in self._running:
            raise MisuseError(
                "run was called in a function that run has called: its transaction might wait for the "
                "outer one for ever. Hand the outer transaction on, or use begin"
            )
        self._running.add(me)
        try:
            return self._run(function, retries)
        finally:
            self._running.discard(me)

    def _run(self, function: Callable[[Transaction], T], retries: int) -> T:
        for failed in range(retries + 1):
            try:
                with self.begin(priority=failed) as tx:
                    return function(tx)
            except (TxnDeadlockAborted, Restart):
                if failed == retries:
                    raise
                # Blocks only this thread or greenlet.
                Waiter().wait(random.uniform(0, min(0.001 * 2**failed, 0.1)))
        raise AssertionError("not reached")

    def vacuum(self, before: int) -> int:
        """Remove old versions that no read at `before` or later sees; return how many.

        Snapshots below `before` can't be begun any more; those that are open keep their versions.
        """
        with self._begin:
            if not isinstance(before, int) or not 0 <= before <= self.oracle.last:
                raise InvalidOption(
                    f"before={before!r} is not a timestamp from 0 to {self.oracle.last}"
                )
            needed = min([before, *(tx.timestamp for tx in list(self.active.values()))])
            return self.storage.vacuum(max(needed, self.storage.number("oldest")))

    def changed(self, span: Span, after: int, upto: int, txn: int) -> bool:
        """Whether others wrote in a span, or still may, above `after` and not above `upto`."""
        start, end = span.start, span.start + "\0" if span.end is None else span.end
        # An intent may become a version while we look: so intents first.
        for writer in self.storage.writers(start, end) - {txn}:
            other = self.active.get(writer)
            if other is not None and other.floor <= upto:
                return True
        return self.storage.committed_between(start, end, after, upto)

    def count(self, what: str) -> None:
        """Count something in `counted`."""
        with self._counting:
            self.counted[what] += 1

    def close(self) -> None:
        """Close the file and abort all open transactions, also those of other threads."""
        self.storage.close()  # first: what is not committed now never will be
        for tx in list(self.active.values()):
            with suppress(StoreFailed):  # only its locks are left, for those that wait
                tx.give_up(StoreFailed(f"transaction {tx.id} was aborted: the store was closed"))

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
