"""The example store: each conflict by its name, and snapshots."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from examples.kv_store import Restart, Store, Transaction, TxnDeadlockAborted
from locks.errors import InvalidOption
from tests.examples.kv_oracle import LIMIT, content, put, waits
from tests.helpers import eventually

# --- One transaction ------------------------------------------------------------------------------


def test_transaction_sees_its_own_writes_and_nobody_else_does(store: Store) -> None:
    """Before the commit only itself, after it everybody; deleted keys are gone from scans too."""
    put(store, a="1", b="1", c="1")
    earlier = store.begin(at=store.oracle.last)
    with store.begin() as tx:
        tx.put("a", "2")
        tx.delete("b")
        tx.put("d", "2")
        assert (tx.get("a"), tx.get("b"), tx.get("z")) == ("2", None, None)
        assert tx.scan() == [("a", "2"), ("c", "1"), ("d", "2")]
        assert tx.scan("b", "d") == [("c", "1")]
        assert earlier.scan() == [("a", "1"), ("b", "1"), ("c", "1")]
    assert content(store) == {"a": "2", "c": "1", "d": "2"}
    earlier.abort()


def test_abort_leaves_nothing(store: Store) -> None:
    """After `abort`, and after an exception in the block, all is as before."""
    put(store, a="1")
    tx = store.begin()
    tx.put("a", "2")
    tx.delete("b")
    tx.abort()
    tx.abort()

    def fail() -> None:
        with store.begin() as tx:
            tx.put("a", "3")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert content(store) == {"a": "1"}


# --- Conflicts ------------------------------------------------------------------------------------


def test_write_write_conflict(store: Store, pool: ThreadPoolExecutor) -> None:
    """A writer that meets an intent waits, and goes on above the version that came of it."""
    one, two = store.begin(), store.begin()
    two.put("a", "2")
    waiting = pool.submit(one.put, "a", "1")
    eventually(lambda: waits(store, one))
    two.commit()
    waiting.result(LIMIT)
    assert one.timestamp > two.timestamp, "it has moved up"
    one.commit()
    assert content(store) == {"a": "1"}


@pytest.mark.parametrize(("how", "seen"), [("commit", "1"), ("abort", None)])
def test_write_read_conflict(
    store: Store, pool: ThreadPoolExecutor, how: str, seen: str | None
) -> None:
    """A reader that meets an intent below it waits until it is known what comes of it."""
    writer, reader = store.begin(), store.begin()
    writer.put("a", "1")
    found, scanned = pool.submit(reader.get, "a"), store.begin()
    ranged = pool.submit(scanned.scan, "", "b")
    eventually(lambda: waits(store, reader) and waits(store, scanned))
    getattr(writer, how)()
    assert found.result(LIMIT) == seen
    assert ranged.result(LIMIT) == ([("a", seen)] if seen else [])
    reader.commit()
    scanned.commit()


def test_reader_below_an_intent_does_not_wait(store: Store) -> None:
    """A reader goes on where the intent is above it, and sees what was before."""
    put(store, a="0")
    reader, writer = store.begin(), store.begin()
    writer.put("a", "1")
    assert reader.get("a") == "0"
    writer.commit()
    assert reader.get("a") == "0"
    reader.commit()


def test_read_write_conflict(store: Store) -> None:
    """Who writes what a later one has read moves up above it: the later one has missed nothing."""
    writer, reader = store.begin(), store.begin()
    assert reader.get("a") is None
    writer.put("a", "1")
    assert writer.timestamp > reader.timestamp
    writer.commit()
    assert reader.get("a") is None
    reader.commit()


def test_no_phantoms(store: Store) -> None:
    """A range that was scanned counts as read where there was nothing, too."""
    writer, reader = store.begin(), store.begin()
    assert reader.scan("a", "c") == []
    writer.put("b", "1")
    assert writer.timestamp > reader.timestamp
    before = writer.timestamp
    writer.put("c", "1")
    assert writer.timestamp == before, "the end of a range is not in it"
    writer.commit()
    assert reader.scan("a", "c") == []
    reader.commit()


def test_lost_update_is_refused(store: Store) -> None:
    """Two that read and then write the same key: the second one has to run again."""
    one, two = store.begin(), store.begin()
    assert one.get("a") is two.get("a") is None
    two.put("a", "2")
    two.commit()
    with pytest.raises(Restart, match="what it has read at 'a' may have been changed"):
        one.put("a", "1")
    assert one.state == "aborted"
    assert content(store) == {"a": "2"}


def test_write_skew_is_refused(store: Store) -> None:
    """Two that each write what the other one has read: one of them has to run again."""
    one, two = store.begin(), store.begin()
    one.get("a")
    two.get("b")
    one.put("b", "1")
    with pytest.raises(Restart):
        two.put("a", "2")
    one.commit()
    assert content(store) == {"b": "1"}


def test_deadlock(store: Store, pool: ThreadPoolExecutor) -> None:
    """Two that wait for each other: the younger one is aborted, the older one goes on."""
    one, two = store.begin(), store.begin()
    one.put("a", "1")
    two.put("b", "2")
    waiting = pool.submit(one.put, "b", "1")
    eventually(lambda: waits(store, one))
    with pytest.raises(TxnDeadlockAborted, match=r"transaction 2 was aborted .* run it again"):
        two.put("a", "2")
    waiting.result(LIMIT)
    one.commit()
    assert content(store) == {"a": "1", "b": "1"}
    assert store.counted["deadlocks"] == 1


def test_run_runs_again(store: Store) -> None:
    """`run` begins another transaction after an abort, with a higher priority, and then gives up."""
    attempts: list[Transaction] = []

    def append(tx: Transaction) -> str:
        attempts.append(tx)
        before = tx.get("a") or ""
        if len(attempts) < 3:
            put(store, a=before + "x")  # somebody comes in between
        tx.put("a", before + "y")
        return before

    assert store.run(append) == "xx"
    assert content(store) == {"a": "xxy"}
    assert [tx.state for tx in attempts] == ["aborted", "aborted", "committed"]
    assert [tx.txn.priority for tx in attempts] == [0, 1, 2]
    attempts.clear()
    with pytest.raises(Restart):
        store.run(append, retries=1)
    assert len(attempts) == 2


# --- Snapshots and vacuum -------------------------------------------------------------------------


def test_snapshots_of_the_past(store: Store) -> None:
    """A snapshot sees what was committed up to its timestamp, for ever."""
    stamps = [put(store, a=str(n), **{f"k{n}": ""}) for n in range(3)]
    for n, stamp in enumerate(stamps):
        with store.begin(at=stamp) as snapshot:
            assert snapshot.get("a") == str(n)
            assert [key for key, _ in snapshot.scan("k")] == [f"k{m}" for m in range(n + 1)]
    with store.begin(at=stamps[0] - 1) as snapshot:
        assert snapshot.scan() == []


def test_vacuum(store: Store) -> None:
    """Old versions go, deleted keys altogether; what can still be read is read as before."""
    stamps = [put(store, a=str(n), b=str(n)) for n in range(4)]
    store.run(lambda tx: tx.delete("b"))
    gone = store.oracle.last
    last = put(store, a="last")
    snapshot = store.begin(at=stamps[2])
    assert store.vacuum(last) == 4, "two versions of each of the two keys; a snapshot is open"
    assert snapshot.scan() == [("a", "2"), ("b", "2")]
    snapshot.commit()
    assert store.vacuum(gone) == 3 + 1
    with store.begin(at=gone) as snapshot:
        assert snapshot.scan() == [("a", "3")]
    with pytest.raises(InvalidOption, match="can't read at"):
        store.begin(at=gone - 1)
    assert store.vacuum(1) == 0, "it does not go back"
    with pytest.raises(InvalidOption):
        store.begin(at=gone - 1)
    assert content(store) == {"a": "last"}
