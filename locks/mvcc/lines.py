"""The steps at one key: its holder, its reservation, and its queues.

`Lines` has the locks of all keys and the wait-for graph (`Waits`), and keeps them consistent. Each
of its methods is a step at one lock. `LockStates` combines these steps to operations, and describes
the rules.
"""

from __future__ import annotations

from locks.mvcc.model import Strength, Timestamp, Txn, TxnId
from locks.mvcc.records import Guard, KeyLock, LockMap
from locks.mvcc.waiting import Waits

__all__ = ["Lines"]


class Lines:
    """The locks, and the requests that queue at each of them.

    Args:
        max_locks: How many locks there may be.

    Attributes:
        locks: The locks by their keys.
        waits: The wait-for graph.
        waiting: How many requests wait.
        woken: Guards that stopped waiting, in order.
        changed: Guards that began or stopped waiting, in order.
    """

    def __init__(self, max_locks: int) -> None:
        self.locks = LockMap(max_locks)
        self.waits = Waits()
        self.waiting = 0
        self.woken: list[Guard] = []
        self.changed: list[Guard] = []

    # --- The order ------------------------------------------------------------------------------

    def in_the_way(self, lock: KeyLock, guard: Guard, writes: bool) -> Txn | None:
        """The transaction at a lock that blocks a request; `None` if it need not wait."""
        holder = lock.holder
        if holder is not None:
            if holder.id == guard.txn.id:
                return None
            if writes or (lock.strength == "intent" and holder.timestamp <= guard.txn.timestamp):
                return holder
            return None
        reserver = lock.reservation
        if not writes or reserver is None or reserver.txn.id == guard.txn.id:
            return None
        return reserver.txn if reserver.number < guard.number else None

    def claim(self, lock: KeyLock, guard: Guard) -> None:
        """Nothing is in a writer's way: it takes the reservation of a younger request."""
        reserver = lock.reservation
        if reserver is not None and reserver.txn.id != guard.txn.id:
            self._reserve(lock, guard)
            self._line_up(lock, reserver)

    # --- Waiting --------------------------------------------------------------------------------

    def wait_at(self, lock: KeyLock, guard: Guard, writes: bool) -> None:
        """Let a request wait."""
        waits = self.waits
        txn_state = waits.activate(guard.txn)
        if not writes:
            lock.insert(lock.readers, guard)
        elif lock in guard.places:
            lock.remove(lock.roaming, guard)
        else:
            waits.put_place(txn_state, guard, lock)
            lock.insert(lock.queue, guard)
        if not lock.contended:
            waits.count(lock)
        self.waiting += 1
        waits.begin_wait(txn_state, guard, lock)
        self.changed.append(guard)

    def take_place(self, lock: KeyLock, guard: Guard) -> None:
        """Put a writer into the queue without waiting there, unless it is in it."""
        if lock not in guard.places:
            self.waits.put_place(self.waits.activate(guard.txn), guard, lock)
            self._line_up(lock, guard)

    def _line_up(self, lock: KeyLock, guard: Guard) -> None:
        lock.insert(lock.queue, guard)
        lock.insert(lock.roaming, guard)
        self.waits.count(lock)

    def stop_waiting(self, guard: Guard) -> None:
        """Stop the wait of a guard; a writer keeps its place."""
        lock = guard.waits_at
        assert lock is not None
        last = self._over(guard)
        if lock not in guard.places:
            lock.remove(lock.readers, guard)
            self.waits.count(lock)
        elif last:
            lock.insert(lock.roaming, guard)

    def lose(self, guard: Guard) -> None:
        """End the wait of a guard whose transaction has ended."""
        lock = guard.waits_at
        assert lock is not None
        if lock in guard.places:
            self._give_place_up(lock, guard)
        else:
            lock.remove(lock.readers, guard)
            self.waits.count(lock)
        self._let_go(guard)

    def take_out(self, guard: Guard) -> None:
        """Take a request out of all lines."""
        if guard.waits_at is not None:
            self.stop_waiting(guard)
            self.woken.append(guard)
        for lock in list(guard.places):
            if lock.reservation is guard:
                self.waits.take_place(guard, lock)
                lock.reservation = None
                self._free(lock)
            else:
                self._give_place_up(lock, guard)

    def _give_place_up(self, lock: KeyLock, guard: Guard) -> None:
        self.waits.take_place(guard, lock)
        self.waits.step_out(guard, lock)
        self.waits.count(lock)

    def _over(self, guard: Guard) -> bool:
        self.waiting -= 1
        self.changed.append(guard)
        return self.waits.end_wait(guard)

    def _let_go(self, guard: Guard) -> None:
        """Release a guard from this lock, so that it scans again."""
        self._over(guard)
        self.woken.append(guard)

    def _reserve(self, lock: KeyLock, guard: Guard) -> None:
        """Give the reservation to a guard that is not in the queue."""
        lock.reservation = guard
        if lock not in guard.places:
            self.waits.put_place(self.waits.activate(guard.txn), guard, lock)
        self._clear_way(lock, guard.txn.id)

    def _clear_way(self, lock: KeyLock, txn_id: TxnId) -> None:
        """Take all requests of the lock's holder out of its queues."""
        for guard in tuple(self.waits.active[txn_id].places.get(lock, ())):
            if lock.reservation is not guard:
                self.waits.take_place(guard, lock)
                self.waits.step_out(guard, lock)
                if guard.waits_at is lock:
                    self._let_go(guard)

    # --- Holding --------------------------------------------------------------------------------

    def hold(self, lock: KeyLock, txn: Txn, strength: Strength) -> None:
        """Make a transaction the holder of a lock that no other one holds."""
        txn_state = self.waits.activate(txn)
        if lock.holder is not None:
            if strength == "intent":
                lock.strength = strength
            if lock.holder.timestamp < txn.timestamp:
                self.rise(lock, txn)
            return
        reserver, lock.reservation = lock.reservation, None
        lock.holder, lock.strength = txn, strength
        txn_state.held[lock.key] = lock
        if reserver is not None:
            lock.contended = False  # as for an empty queue: the new holder counts from here
            if reserver.txn.id == txn.id:
                self.waits.take_place(reserver, lock)
            else:
                self._line_up(lock, reserver)
            self._clear_way(lock, txn.id)
            self.waits.count(lock)

    def rise(self, lock: KeyLock, txn: Txn) -> None:
        """The holder's timestamp has risen: readers that are now before it go."""
        lock.holder = txn
        still = []
        for guard in lock.readers:
            if txn.timestamp <= guard.txn.timestamp:
                still.append(guard)
            else:
                self._let_go(guard)
        lock.readers = still
        self.waits.count(lock)

    def release(self, lock: KeyLock, committed: Timestamp | None) -> None:
        """The holder is finished."""
        assert lock.holder is not None
        txn_state = self.waits.active[lock.holder.id]
        del txn_state.held[lock.key]
        txn_state.contended -= lock.contended
        lock.holder = None
        if committed is not None and lock.strength == "intent":
            lock.last_committed = max(committed, lock.last_committed or 0)
        self._free(lock)

    def _free(self, lock: KeyLock) -> None:
        """The lock is neither held nor reserved: all readers go, and one writer is the next."""
        if lock.readers:
            for guard in lock.readers:
                self._let_go(guard)
            lock.readers.clear()
        if not lock.queue:
            self.locks.remove(lock.key)
            return
        guard = lock.queue[0]
        self.waits.step_out(guard, lock)
        if guard.waits_at is lock:
            self._let_go(guard)
        self._reserve(lock, guard)
        self.waits.count(lock)
