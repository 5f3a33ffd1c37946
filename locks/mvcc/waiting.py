"""The wait-for graph of a lock table, and how transactions have ended.

`Waits` has a `ActiveTxn` for each transaction that holds a lock or has a request in a queue, and
answers queries on the wait-for graph between them. `Endings` has the finished transactions.

A request waits at one key at most. There

* a reader waits for the holder of the lock;
* a writer waits for the holder or, without a holder, for the request with the reservation. It also
  waits for the writers ahead of it in the queue, including those that wait elsewhere at present.
  Each of these will get the lock first, and keep it until its transaction is over. If the writer's
  transaction has an older request in this queue, only the writers ahead of that one count: once
  that request has the lock, no request of the transaction has to wait.

A transaction waits when one of its requests waits. So there is an edge between two transactions
when there is one between their requests, and a cycle of edges is a deadlock.

**When is a search needed?** Edges are not stored. An event adds edges of one transaction only. It
adds edges from it when one of its requests begins to wait, or when its oldest place in a queue is
given up. It adds edges to it when it becomes the holder, or takes a reservation or a place ahead of
others. A new cycle goes through that transaction. So the search starts there, and only if the
transaction waits *and* others wait for it. This keeps a queue of a thousand writers cheap: only the
writers behind a writer wait for it, and none is behind the last one. (`deadlocks` has the search.)

**What can be skipped?** A member of a queue that waits nowhere else waits for the holder, and for
the members ahead of it. The members behind it wait for all these, too. So no path needs to go
through it. A search looks only at the other members, which *roam*: a request that does not wait
here, but perhaps elsewhere (because its reservation was taken), and requests of a transaction that
waits with several requests at once. Each lock has its own list of these. So a hot key costs a
search the same with ten waiting requests as with ten thousand.

This is the graph of `locks.core.agent.wait_graph`, but not its code. There, each agent knows a part
of the graph, the edges follow from a symmetric rule, and the search stops at larger agents, because
these search further. Here, everything is known, a reader waits for a writer but never the other way
round, and the victim need not be the largest (decision 0039).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Container

from locks.errors import LocksError, MisuseError
from locks.mvcc.errors import (
    BadTimestamp,
    LockedByOther,
    LockNotAvailable,
    TransactionFinished,
    TxnDeadlockAborted,
)
from locks.mvcc.model import Key, Outcome, Timestamp, Txn, TxnDeadlock, TxnId, TxnWait
from locks.mvcc.records import Ending, Guard, KeyLock, by_number

__all__ = [
    "ActiveTxn",
    "Endings",
    "Waits",
    "check_timestamp",
    "ended_error",
    "locked_error",
    "not_available",
]


class ActiveTxn:
    """A transaction that holds locks, or has requests in line."""

    __slots__ = ("contended", "guards", "held", "places", "txn", "waits")

    def __init__(self, txn: Txn) -> None:
        self.txn = txn
        self.held: dict[Key, KeyLock] = {}
        self.guards: dict[Guard, None] = {}  # its requests that wait or have a place
        self.waits: dict[Guard, None] = {}  # the waiting ones
        self.places: dict[KeyLock, list[Guard]] = {}  # those with a place at a lock, in order
        self.contended = 0  # how many of its locks have requests in line


class Waits:
    """The active transactions, and the edges between them."""

    def __init__(self) -> None:
        self.active: dict[TxnId, ActiveTxn] = {}

    def check(self, txn: Txn) -> None:
        """Raise unless it is a transaction that can be in this table."""
        if not isinstance(txn, Txn):
            raise MisuseError(f"{txn!r} is no Txn", txn=repr(txn))
        txn_id, timestamp, priority = txn
        check_timestamp(timestamp)
        if priority is not None and not isinstance(priority, int):
            raise MisuseError(f"priority {priority!r} of {txn!r} is not an integer", txn=txn)
        try:
            if txn_id not in self.active:
                for other in self.active:
                    _ = txn_id < other  # type: ignore[operator]
                    break
        except TypeError as error:
            raise MisuseError(
                f"transaction id {txn_id!r} can't be compared with others ({error}); ids are all "
                "numbers, or all text",
                txn=repr(txn),
            ) from None

    def activate(self, txn: Txn) -> ActiveTxn:
        """A transaction's state, made if there is none."""
        txn_state = self.active.get(txn.id)
        if txn_state is None:
            txn_state = self.active[txn.id] = ActiveTxn(txn)
        else:
            txn_state.txn = txn
        return txn_state

    def drop(self, txn_id: TxnId) -> None:
        """Forget a transaction if it neither holds nor waits for anything."""
        txn_state = self.active.get(txn_id)
        if txn_state is not None and not txn_state.held and not txn_state.guards:
            del self.active[txn_id]

    def put_place(self, txn_state: ActiveTxn, guard: Guard, lock: KeyLock) -> None:
        """Note that a request of a transaction has a place at a lock from now on."""
        txn_state.guards[guard] = guard.places[lock] = None
        mine = txn_state.places.get(lock)
        if mine is None:
            txn_state.places[lock] = [guard]
        else:
            insort(mine, guard, key=by_number)

    def take_place(self, guard: Guard, lock: KeyLock) -> None:
        """Note that a request no longer has a place at a lock."""
        del guard.places[lock]
        places = self.active[guard.txn.id].places
        mine = places[lock]
        del mine[bisect_left(mine, guard.number, key=by_number)]
        if not mine:
            del places[lock]

    def begin_wait(self, txn_state: ActiveTxn, guard: Guard, lock: KeyLock) -> None:
        """Note that a request of a transaction begins to wait; a writer is in the queue already."""
        guard.waits_at = lock
        waits = txn_state.waits
        txn_state.guards[guard] = waits[guard] = None
        if len(waits) > 1:
            # All that wait at a queue roam from now on; with the third one the first two do
            # already.
            for other in waits if len(waits) == 2 else (guard,):
                place = other.waits_at
                assert place is not None
                if place in other.places:
                    place.insert(place.roaming, other)

    def end_wait(self, guard: Guard) -> bool:
        """Note that a request stopped waiting; return whether none of its transaction waits now."""
        guard.waits_at = None
        waits = self.active[guard.txn.id].waits
        del waits[guard]
        if len(waits) == 1:
            for other in waits:
                place = other.waits_at
                assert place is not None
                if place in other.places:
                    place.remove(place.roaming, other)
        return not waits

    def step_out(self, guard: Guard, lock: KeyLock) -> None:
        """Take a writer out of the queue."""
        lock.remove(lock.queue, guard)
        if guard.waits_at is not lock or len(self.active[guard.txn.id].waits) > 1:
            lock.remove(lock.roaming, guard)

    def count(self, lock: KeyLock) -> None:
        """Whether a lock has requests in line may have changed."""
        contended = bool(lock.queue or lock.readers)
        if contended is not lock.contended:
            lock.contended = contended
            if lock.holder is not None:
                self.active[lock.holder.id].contended += 1 if contended else -1

    def front(self, lock: KeyLock) -> Txn:
        """The first transaction that requests wait for at a lock."""
        if lock.holder is not None:
            return lock.holder
        assert lock.reservation is not None, "somebody waits for nobody"
        return lock.reservation.txn

    def edge(self, guard: Guard, txn_id: TxnId) -> TxnWait | None:
        """The edge from a request to a transaction, if there is one."""
        lock = guard.waits_at
        if lock is None:
            return None
        me, front = guard.txn, self.front(lock)
        if front.id == txn_id:
            return TxnWait(me, front, lock.key, lock.holder is not None)
        txn_state = self.active.get(txn_id)
        if lock in guard.places and txn_state is not None:
            theirs, mine = txn_state.places.get(lock), self.active[me.id].places[lock]
            if theirs is not None and theirs[0].number < mine[0].number:
                return TxnWait(me, theirs[0].txn, lock.key, False)
        return None

    def both_ways(self, txn_id: TxnId) -> bool:
        """Whether a transaction waits, and another one may wait for it."""
        txn_state = self.active.get(txn_id)
        if txn_state is None or not txn_state.waits:
            return False
        if txn_state.contended:
            return True
        for lock, mine in txn_state.places.items():
            if lock.queue and lock.queue[-1] is not mine[0]:
                return True
        return False


class Endings:
    """How transactions have ended, as far as remembered.

    Args:
        remembered: How many transactions are kept that have no more locks or requests in the table.
    """

    def __init__(self, remembered: int) -> None:
        self._remembered = remembered
        self._endings: OrderedDict[TxnId, Ending] = OrderedDict()

    def __len__(self) -> int:
        return len(self._endings)

    def outcome(self, txn_id: TxnId) -> Outcome | None:
        """How a transaction was finished; `None` for one that is not, or only has to abort."""
        ending = self._endings.get(txn_id)
        return None if isinstance(ending, TxnDeadlock) else ending

    def check(self, txn: Txn) -> None:
        """Raise if a transaction has ended, or has to."""
        ending = self._endings.get(txn.id)
        if ending is not None:
            raise ended_error(txn, ending)

    def note(self, txn_id: TxnId, ending: Ending, here: Container[TxnId]) -> None:
        """Remember an ending, and forget the oldest, but none of a transaction that is here."""
        endings = self._endings
        if txn_id in endings:
            endings.move_to_end(txn_id)
        endings[txn_id] = ending
        if len(endings) > self._remembered:
            # Two at a time, so that it shrinks again after transactions had to be kept.
            for _ in range(min(2, len(endings) - self._remembered)):
                oldest, known = endings.popitem(last=False)
                if oldest in here:
                    endings[oldest] = known


def ended_error(txn: Txn, ending: Ending) -> LocksError:
    """The error for a transaction that has ended, or must abort."""
    if isinstance(ending, TxnDeadlock):
        return TxnDeadlockAborted(
            f"transaction {txn.id} was given up to resolve a deadlock: {ending.rule}. Abort it "
            "(update_locks with Aborted for each of its keys), and run it again with a new id",
            deadlock=ending,
        )
    return TransactionFinished(
        f"transaction {txn.id} was {ending} already; begin a new one, with an id of its own",
        txn=txn,
        outcome=ending,
    )


def locked_error(lock: KeyLock, holder: Txn, txn: Txn) -> LockedByOther:
    """The error when a transaction acquires a lock that another one holds."""
    return LockedByOther(
        f"transaction {txn.id} can't have the lock on {lock.key!r}: transaction {holder.id} holds "
        "it. Scan first, with the key's latch held, and wait when told to",
        key=lock.key,
        holder=holder,
        txn=txn,
    )


def not_available(lock: KeyLock, holder: Txn, txn: Txn) -> LockNotAvailable:
    """The error when a request would have to wait, but its wait policy forbids it."""
    has = "holds it" if lock.holder is not None else "is the next to write it"
    return LockNotAvailable(
        f"transaction {txn.id} can't have {lock.key!r} without a wait: transaction {holder.id} {has}. "
        'Try again later, or wait for it (wait="block")',
        key=lock.key,
        holder=holder,
        txn=txn,
    )


def check_timestamp(timestamp: Timestamp) -> None:
    """Raise `BadTimestamp` unless it is an integer >= 0."""
    if not isinstance(timestamp, int) or timestamp < 0:
        raise BadTimestamp(
            f"timestamp {timestamp!r} is not an integer >= 0", timestamp=repr(timestamp)
        )
