"""The picture of a lock table: what is in the table is in the picture."""

from __future__ import annotations

from examples.lock_table_picture import example, picture
from locks.mvcc import Intent, LockTable, Request, Txn


def test_each_request_leads_to_what_it_waits_for() -> None:
    """The first writer and each reader to the holder, the other writers to the one ahead."""
    states = example().states()
    drawn = picture(states)
    assert "k1h([" in drawn, "ann holds y"
    assert "k0h{{" in drawn, "bob has x reserved"
    lines = {line.split("[")[0].strip(): line.rsplit(" ", 1)[1] for line in drawn.splitlines()}
    for number, state in enumerate(states):
        ahead = f"k{number}h"
        for place in state.queued_writers:
            assert lines[f"k{number}n{place.number}"] == ahead
            ahead = f"k{number}n{place.number}"
        for place in state.waiting_readers:
            assert lines[f"k{number}n{place.number}"] == f"k{number}h"
    assert drawn.count("waits to ") == 4


def test_a_place_that_is_kept_is_dashed() -> None:
    """The request waits for another key, and keeps its place at this one."""
    table, ann, bob = LockTable(), Txn("ann", 10), Txn("bob", 20)
    _, guard = table.scan_and_enqueue(Request(writes=["x", "y"]), bob)
    table.add_discovered_lock(guard, Intent("x", ann))
    table.add_discovered_lock(guard, Intent("y", ann))
    drawn = picture(table.states())
    assert drawn.count("-->") == drawn.count("-.->") == 1
