"""The lock table: which locks are held, which requests wait for them, and which one is next.

Theory of operation
-------------------
A transaction's uncommitted write of a key, its *intent*, is a lock on the key until the transaction
is over. `LockStates` keeps a sorted map from keys to locks that are held or reserved.

A *request* of a transaction reads and writes keys, and is represented by a `Guard`. Guards are
numbered as they come. It scans all its keys, waits at the first lock that is in its way, and then scans
again with the same guard, so it keeps its place in the order.

    holder        reader   waits if the holder's timestamp is not later than its own
                  writer   waits
    reservation   reader   goes on
                  writer   waits if the reservation is an older request's; takes a younger one's

Requests of the same transaction never wait for each other.

When a lock is released, all its readers go, and the first writer in the queue has the
*reservation*: it may go and scan again, and no later request can be ahead of it at this key,
however long it waits for others of its keys. When it is dequeued without having written, the next
one has the reservation.

A writer that is not the next any more (an older one took its reservation, or a transaction has acquired
the lock) stands in the queue by its number, without waiting here.

**Invariants** (`tests/mvcc/invariants.py` checks them after each operation)

* A key has a holder or a reservation, never both; a key with neither is not in the map.
* Without a holder no request waits to read.
* The queue and the readers are in the order of their numbers; the reservation is older than all in
  the queue. No request is twice in it, and none of the holder's or the reserver's transaction.
* A reader that waits has a timestamp that is not before the holder's.

Every operation checks what it was given first; when it raises, it has changed nothing.
"""

from __future__ import annotations

from itertools import islice

from locks.errors import MisuseError, assert_never
from locks.mvcc.errors import BadTimestamp, UnknownGuard
from locks.mvcc.model import (
    Aborted,
    Committed,
    Deadlock,
    Intent,
    Key,
    LockState,
    Moved,
    Outcome,
    Request,
    Span,
    Statistics,
    Timestamp,
    Txn,
    TxnId,
    Update,
)
from locks.mvcc.records import Ending, Guard, KeyLock, LockMap
from locks.mvcc.waiting import Endings, Waits, check_timestamp, ended_error, locked_error

__all__ = ["REMEMBERED", "LockStates"]

REMEMBERED = 10_000
"""How many finished transactions are remembered."""


class LockStates:
    """The lock table, as a pure state machine.

    Args:
        detect: Whether a deadlock is resolved when it comes about; otherwise only when
            `resolve_deadlocks` is called.
        remembered: How many transactions are remembered as finished, to tell their later use.

    Attributes:
        woken: Guards whose wait is over, in order: released, or lost (`Guard.ending` says why). The
            user of the table takes them out.
    """

    def __init__(self, *, detect: bool = True, remembered: int = REMEMBERED) -> None:
        self.woken: list[Guard] = []
        self._detect = detect
        self._locks = LockMap()
        self._waits = Waits()
        self._guards: dict[int, Guard] = {}
        self._endings = Endings(remembered)
        self._last_number = 0
        self._deadlocks = 0
        self._pushes = 0

    # --- Operations -----------------------------------------------------------------------------

    def scan_and_enqueue(
        self, request: Request, txn: Txn, guard: Guard | None = None
    ) -> tuple[bool, Guard]:
        """Look for locks in the way of a request; wait at the first one.

        Args:
            request: What is read and written.
            txn: Whose request it is.
            guard: What the first scan of this request has returned.

        Returns:
            Whether it has to wait, and its guard.
        """
        if not isinstance(request, Request):
            raise MisuseError(f"{request!r} is no Request", request=repr(request))
        self._waits.check(txn)
        if guard is not None:
            self._check_rescan(guard, request, txn)
        self._endings.check(txn)
        # Found before anything is changed: a span that can't be compared with the keys raises.
        parts = [(True, self._locks.within(span)) for span in request.writes]
        parts += [(False, self._locks.within(span)) for span in request.reads]
        if guard is None:
            self._last_number += 1
            guard = Guard(self, self._last_number, txn, request)
            self._guards[guard.number] = guard
        else:
            guard.txn = txn
            if guard.waits_at is not None:
                self._stop_waiting(guard)
        reserved = False
        for writes, locks in parts:
            for lock in locks:
                if self._is_in_the_way(lock, guard, writes):
                    self._wait_at(lock, guard, writes)
                    self._look_for_deadlocks(txn.id)
                    return True, guard
                reserved = reserved or lock.reservation is guard
        if reserved:
            self._look_for_deadlocks(txn.id)
        return False, guard

    def add_discovered_lock(self, guard: Guard, intent: Intent) -> bool:
        """Take in a lock that was not in the table: its intent was found in the store.

        Returns:
            Whether the guard has to wait. If not, scan again at once: the transaction of the
            intent is known to be finished, or the intent is not in the request's way.
        """
        self.check_guard(guard)
        if not isinstance(intent, Intent):
            raise MisuseError(f"{intent!r} is no Intent", intent=repr(intent))
        key, txn = intent
        self._waits.check(txn)
        self._endings.check(guard.txn)
        lock = self._locks.get(key)
        writes = self._writes(guard, key)
        if self._endings.outcome(txn.id) is not None:
            return guard.waits_at is not None
        if lock is None:
            lock = self._locks.add(key)
        elif lock.holder is not None and lock.holder.id != txn.id:
            raise locked_error(lock, lock.holder, txn)
        self._hold(lock, txn)
        if self._is_in_the_way(lock, guard, writes):
            if guard.waits_at is None:
                self._wait_at(lock, guard, writes)
            elif writes:
                self._take_place(lock, guard)
        must_wait = guard.waits_at is not None  # also if it is a victim now: `wait_for` says so
        self._look_for_deadlocks(txn.id)
        self._look_for_deadlocks(guard.txn.id)
        return must_wait

    def acquire_lock(self, key: Key, txn: Txn) -> None:
        """Take in that a transaction has written an intent."""
        self._waits.check(txn)
        self._endings.check(txn)
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks.add(key)
        elif lock.holder is not None and lock.holder.id != txn.id:
            raise locked_error(lock, lock.holder, txn)
        self._hold(lock, txn)
        if lock.contended:
            self._look_for_deadlocks(txn.id)

    def dequeue(self, guard: Guard) -> None:
        """Take a request out: it is done, or given up. The locks of its transaction stay."""
        self.check_guard(guard)
        if guard.waits_at is not None:
            self._stop_waiting(guard)
            self.woken.append(guard)
        for lock in list(guard.places):
            self._waits.take(guard, lock)
            if lock.reservation is guard:
                lock.reservation = None
                self._free(lock)
            else:
                lock.remove(lock.queue, guard)
                self._waits.count(lock)
        guard.owner = None
        del self._guards[guard.number]
        party = self._waits.parties.get(guard.txn.id)
        if party is not None:
            party.guards.pop(guard, None)
            self._waits.drop(guard.txn.id)
            self._look_for_deadlocks(guard.txn.id)

    def update_locks(self, where: Key | Span, update: Update) -> int:
        """Take in what has become of the intents of a transaction, at a key or in a span.

        Returns:
            How many locks have changed. Locks of other transactions never do.
        """
        if not isinstance(update, Update):
            raise MisuseError(
                f"{update!r} is no update; use Committed, Aborted or Moved", update=repr(update)
            )
        txn = update.txn
        self._waits.check(txn)
        if isinstance(update, Committed):
            check_timestamp(update.timestamp)
            return self._finish(self._held(where, txn), txn, "committed", update.timestamp)
        if isinstance(update, Aborted):
            return self._finish(self._held(where, txn), txn, "aborted", None)
        if isinstance(update, Moved):
            check_timestamp(update.timestamp)
            return self._move(self._held(where, txn), txn, update.timestamp)
        return assert_never(update)

    def resolve_deadlocks(self, txn_id: TxnId) -> Deadlock | None:
        """Break all cycles that go through a transaction now; return the last one's report."""
        report = None
        while (cycle := self._waits.cycle(txn_id)) is not None:
            report = self._waits.report(cycle)
            self._deadlocks += 1
            self._end(report.victim.id, report)
        return report

    def count_push(self) -> None:
        """Count a push, for the statistics."""
        self._pushes += 1

    # --- Questions ------------------------------------------------------------------------------

    def check_guard(self, guard: Guard) -> None:
        """Raise `UnknownGuard` unless it is the guard of a request that is in this table."""
        if not isinstance(guard, Guard):
            raise UnknownGuard(
                f"{guard!r} is no guard; scan_and_enqueue returns one", guard=repr(guard)
            )
        if guard.owner is not self:
            what = "was dequeued" if guard.owner is None else "is of another lock table"
            raise UnknownGuard(f"{guard!r} {what}; scan again without it", guard=guard)

    def waits_for(self, guard: Guard) -> tuple[Txn, Key] | None:
        """The first transaction that a request waits for, and the key; `None` if it does not wait.

        Raises:
            UnknownGuard: It is not in this table.
            DeadlockAborted: Its transaction is the victim of a deadlock.
            TransactionFinished: Its transaction was committed or aborted while it waited.
        """
        self.check_guard(guard)
        if guard.ending is not None:
            raise ended_error(guard.txn, guard.ending)
        for wait in islice(self._waits.edges(guard), 1):
            return wait.holder, wait.key
        return None

    def state(self, key: Key) -> LockState:
        """The state of a key; an empty one if there is none."""
        lock = self._locks.get(key)
        return LockState(key) if lock is None else lock.seen()

    def states(self, span: Span | None = None) -> tuple[LockState, ...]:
        """The states of a span, or of all keys that have one, in the order of the keys."""
        return tuple(lock.seen() for lock in self._locks.within(span))

    def locks(self, txn: Txn) -> tuple[Key, ...]:
        """The keys that a transaction has locked, in the order in which it locked them."""
        self._waits.check(txn)
        party = self._waits.parties.get(txn.id)
        return () if party is None else tuple(party.held)

    def statistics(self) -> Statistics:
        """Figures; they are counted when they are asked for."""
        locks = self._locks.all()
        held = sum(lock.holder is not None for lock in locks)
        return Statistics(
            keys=len(self._locks),
            held=held,
            reservations=len(self._locks) - held,
            queued_writers=sum(len(lock.queue) for lock in locks),
            waiting_readers=sum(len(lock.readers) for lock in locks),
            guards=len(self._guards),
            transactions=len(self._waits.parties),
            remembered=len(self._endings),
            deadlocks=self._deadlocks,
            pushes=self._pushes,
        )

    # --- Rules ----------------------------------------------------------------------------------

    def _is_in_the_way(self, lock: KeyLock, guard: Guard, writes: bool) -> bool:
        """Whether a request has to wait for a lock; it takes a younger request's reservation."""
        holder = lock.holder
        if holder is not None:
            if holder.id == guard.txn.id:
                return False
            return writes or holder.timestamp <= guard.txn.timestamp
        reserver = lock.reservation
        if not writes or reserver is None or reserver.txn.id == guard.txn.id:
            return False
        if reserver.number < guard.number:
            return True
        self._reserve(lock, guard)
        lock.insert(lock.queue, reserver)
        self._waits.count(lock)
        return False

    def _wait_at(self, lock: KeyLock, guard: Guard, writes: bool) -> None:
        if writes:
            self._take_place(lock, guard)
        else:
            lock.insert(lock.readers, guard)
            self._waits.count(lock)
        guard.waits_at = lock
        party = self._waits.party(guard.txn)
        party.guards[guard] = party.waits[guard] = None

    def _take_place(self, lock: KeyLock, guard: Guard) -> None:
        """Let a writer stand in the queue, if it does not yet."""
        if lock not in guard.places:
            self._waits.put(guard, lock)
            lock.insert(lock.queue, guard)
            self._waits.count(lock)

    def _stop_waiting(self, guard: Guard) -> None:
        """Let a guard wait no more; a writer keeps its place."""
        lock = guard.waits_at
        assert lock is not None
        guard.waits_at = None
        del self._waits.parties[guard.txn.id].waits[guard]
        if lock not in guard.places:
            lock.remove(lock.readers, guard)
            self._waits.count(lock)

    def _let_go(self, guard: Guard) -> None:
        """Let a guard scan again."""
        guard.waits_at = None
        del self._waits.parties[guard.txn.id].waits[guard]
        self.woken.append(guard)

    def _reserve(self, lock: KeyLock, guard: Guard) -> None:
        """Make a guard that does not stand in the queue the next to write."""
        lock.reservation = guard
        if lock not in guard.places:
            self._waits.put(guard, lock)
        self._clear_way(lock, guard.txn.id)

    def _clear_way(self, lock: KeyLock, txn_id: TxnId) -> None:
        """The lock is this transaction's: none of its requests stands in line for it any more."""
        for guard in list(self._waits.parties[txn_id].places.get(lock, ())):
            if lock.reservation is not guard:
                self._waits.take(guard, lock)
                lock.remove(lock.queue, guard)
                if guard.waits_at is lock:
                    self._let_go(guard)

    def _hold(self, lock: KeyLock, txn: Txn) -> None:
        """Make a transaction the holder of a lock that no other one holds."""
        party = self._waits.party(txn)
        if lock.holder is not None:
            if lock.holder.timestamp < txn.timestamp:
                self._rise(lock, txn)
            return
        reserver, lock.reservation = lock.reservation, None
        lock.holder = txn
        party.held[lock.key] = lock
        if reserver is not None:
            if reserver.txn.id == txn.id:
                self._waits.take(reserver, lock)
            else:
                lock.insert(lock.queue, reserver)
            self._clear_way(lock, txn.id)
            # As if the line had been empty before: the count is the new holder's.
            lock.contended = False
            self._waits.count(lock)

    def _rise(self, lock: KeyLock, txn: Txn) -> None:
        """The holder's timestamp has risen: readers that are now before it go."""
        lock.holder = txn
        still = []
        for guard in lock.readers:
            if txn.timestamp <= guard.txn.timestamp:
                still.append(guard)
            else:
                self._let_go(guard)
        lock.readers = still
        self._waits.count(lock)

    def _held(self, where: Key | Span, txn: Txn) -> list[KeyLock]:
        """The locks that a transaction holds at a key or in a span."""
        span = where if isinstance(where, Span) else Span(where)
        return [
            lock
            for lock in self._locks.within(span)
            if lock.holder is not None and lock.holder.id == txn.id
        ]

    def _finish(
        self, locks: list[KeyLock], txn: Txn, outcome: Outcome, committed: Timestamp | None
    ) -> int:
        """A transaction is committed or aborted, and these of its locks are released."""
        known = self._endings.outcome(txn.id)
        if known is not None and known != outcome:
            raise ended_error(txn, known)
        if committed is not None:
            for lock in locks:
                self._check_rises(lock, committed)
        self._end(txn.id, outcome)
        for lock in locks:
            self._release(lock, committed)
        self._waits.drop(txn.id)
        return len(locks)

    def _move(self, locks: list[KeyLock], txn: Txn, timestamp: Timestamp) -> int:
        outcome = self._endings.outcome(txn.id)
        if outcome is not None:
            raise ended_error(txn, outcome)
        changed = 0
        for lock in locks:
            assert lock.holder is not None
            if lock.holder.timestamp < timestamp:
                self._rise(lock, lock.holder._replace(timestamp=timestamp))
                changed += 1
        return changed

    def _release(self, lock: KeyLock, committed: Timestamp | None) -> None:
        """The holder is finished."""
        assert lock.holder is not None
        party = self._waits.parties[lock.holder.id]
        del party.held[lock.key]
        party.contended -= lock.contended
        lock.holder = None
        if committed is not None:
            lock.last_committed = max(committed, lock.last_committed or 0)
        self._free(lock)

    def _free(self, lock: KeyLock) -> None:
        """The lock is neither held nor reserved: all readers go, and one writer is the next."""
        for guard in lock.readers:
            self._let_go(guard)
        lock.readers.clear()
        if not lock.queue:
            self._locks.remove(lock.key)
            return
        guard = lock.queue.pop(0)
        if guard.waits_at is lock:
            self._let_go(guard)
        self._reserve(lock, guard)
        self._waits.count(lock)

    def _end(self, txn_id: TxnId, ending: Ending) -> None:
        """Remember how a transaction has ended; its requests that wait are lost."""
        self._endings.note(txn_id, ending, self._waits.parties)
        party = self._waits.parties.get(txn_id)
        if party is None:
            return
        for guard in list(party.waits):
            lock = guard.waits_at
            assert lock is not None
            self._stop_waiting(guard)
            if lock in guard.places:
                self._waits.take(guard, lock)
                lock.remove(lock.queue, guard)
                self._waits.count(lock)
            guard.ending = ending
            self.woken.append(guard)

    def _look_for_deadlocks(self, txn_id: TxnId) -> None:
        if self._detect:
            self.resolve_deadlocks(txn_id)

    # --- Checks ---------------------------------------------------------------------------------

    def _check_rescan(self, guard: Guard, request: Request, txn: Txn) -> None:
        self.check_guard(guard)
        if guard.txn.id != txn.id or guard.request != request:
            raise MisuseError(
                f"{guard!r} is not the guard of this request; a new request begins without one",
                guard=guard,
            )
        if txn.timestamp < guard.txn.timestamp:
            raise BadTimestamp(
                f"transaction {txn.id} scanned at {guard.txn.timestamp} and can't go back to "
                f"{txn.timestamp}",
                timestamp=txn.timestamp,
            )

    def _writes(self, guard: Guard, key: Key) -> bool:
        """Whether a request writes a key that it found an intent at; otherwise it reads it."""
        try:
            if any(span.covers(key) for span in guard.request.writes):
                return True
            if any(span.covers(key) for span in guard.request.reads):
                return False
        except TypeError:
            pass  # a key of another kind is in none of them
        raise MisuseError(
            f"key {key!r} is in no span of the request of {guard!r}; it can't have met an intent "
            "there",
            key=key,
        )

    def _check_rises(self, lock: KeyLock, timestamp: Timestamp) -> None:
        holder = lock.holder
        if holder is not None and timestamp < holder.timestamp:
            raise BadTimestamp(
                f"transaction {holder.id} can't be committed at {timestamp}: its lock on {lock.key!r} "
                f"is at {holder.timestamp}, and readers before that have gone on",
                timestamp=timestamp,
            )
