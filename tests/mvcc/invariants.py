"""What must be true of a lock table after every operation."""

from __future__ import annotations

from typing import Any

from locks.mvcc.table import LockStates


def check_invariants(table: LockStates) -> None:
    """Check the invariants of the text, and those of `locks.mvcc.table`; fail at the first."""
    states = table.states()
    assert [s.key for s in states] == sorted(s.key for s in states)
    for s in states:
        line = [p for p in (s.reservation, *s.queued_writers) if p is not None]
        numbers = [place.number for place in line]
        # The text's: never both, and no readers without a holder.
        assert (s.holder is None) != (s.reservation is None), f"holder and reservation: {s}"
        assert s.holder is not None or not s.waiting_readers, f"readers without a holder: {s}"
        # Order, and nobody twice.
        assert numbers == sorted(set(numbers)), f"order: {s}"
        readers = [place.number for place in s.waiting_readers]
        assert readers == sorted(set(readers)), f"order: {s}"
        assert not set(readers) & set(numbers), f"a reader in the queue: {s}"
        # Nobody waits without a reason.
        front = s.holder or (s.reservation and s.reservation.txn)
        assert front is not None
        for place in (*s.queued_writers, *s.waiting_readers):
            assert place.txn.id != front.id, f"waits for itself: {s}"
        for place in s.waiting_readers:
            assert place.waits
            assert s.holder is not None
            assert s.holder.timestamp <= place.txn.timestamp, f"no reason: {s}"
            assert s.strength == "intent", f"no reason: {s}"
        assert (s.strength is None) == (s.holder is None)
        assert s.reservation is None or not s.reservation.waits, f"no reason: {s}"
    _check_books(table)


def _check_books(table: Any) -> None:
    """Check that what is written down in several places agrees, and nothing is left over."""
    guards = set(table._guards.values())
    active = table._waits.active
    places: dict[Any, set[Any]] = {guard: set() for guard in guards}
    waits: dict[Any, Any] = {}
    held: dict[Any, set[Any]] = {}
    contended: dict[Any, int] = {}
    for lock in table._locks.all():
        assert table._locks.get(lock.key) is lock
        if lock.reservation is not None:
            places[lock.reservation].add(lock)
        for guard in lock.queue:
            places[guard].add(lock)
        for guard in lock.readers:
            assert guard.waits_at is lock
        for guard in (*lock.queue, *lock.readers):
            if guard.waits_at is lock:
                assert guard not in waits, "waits twice"
                waits[guard] = lock
        assert lock.contended == bool(lock.queue or lock.readers)
        assert lock.roaming == [
            g for g in lock.queue if g.waits_at is not lock or len(active[g.txn.id].waits) > 1
        ], "roaming"
        if lock.holder is not None:
            held.setdefault(lock.holder.id, set()).add(lock.key)
            contended[lock.holder.id] = contended.get(lock.holder.id, 0) + lock.contended
    assert len(table._locks) == len(list(table._locks.all()))
    assert table._lines.waiting == len(waits)
    for guard in guards:
        assert guard.table is table
        assert set(guard.places) == places[guard]
        assert guard.waits_at is waits.get(guard)
        assert guard.request.wait == "block" or guard not in waits, "waits, and should not"
        if guard.waits_at is not None:
            assert guard.ending is None
            assert guard in active[guard.txn.id].waits
            assert table.waits_for(guard) is not None
        if places[guard] or guard in waits:
            assert guard in active[guard.txn.id].guards
    for txn_id, txn_state in active.items():
        assert txn_state.txn.id == txn_id
        assert set(txn_state.held) == held.get(txn_id, set())
        assert set(txn_state.waits) == {guard for guard in waits if guard.txn.id == txn_id}
        mine = sorted((g for g in guards if g.txn.id == txn_id), key=lambda g: g.number)
        stands = {lock: [g for g in mine if lock in g.places] for g in mine for lock in g.places}
        assert txn_state.places == stands, "a place that its transaction does not know"
        assert txn_state.contended == contended.get(txn_id, 0)
        assert txn_state.held or txn_state.guards, "a transaction that nobody needs"
        assert all(guard in guards for guard in txn_state.guards)
    assert set(held) <= set(active)
