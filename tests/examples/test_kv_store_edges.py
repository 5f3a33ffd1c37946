"""The example store: restarts, failures, interrupts, wrong input, and its small parts."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gevent
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.kv_store import (
    END,
    ReadCache,
    Store,
    StoreFailed,
    Transaction,
)
from examples.kv_store.latches import Latches, overlap
from locks.errors import InvalidOption
from locks.mvcc import Span
from tests.examples.kv_oracle import LIMIT, content, put, waits
from tests.helpers import eventually

# --- The file -------------------------------------------------------------------------------------


def test_restart(tmp_path: Path) -> None:
    """What was committed is there after a restart, what was not is gone; timestamps go on rising."""
    path = str(tmp_path / "store.db")
    with Store(path) as store:
        first = put(store, a="1", b="1")
        store.run(lambda tx: tx.delete("b"))
        store.begin().put("a", "2")
        last = store.oracle.last
    with Store(path) as store:
        assert content(store) == {"a": "1"}
        assert put(store, a="3") > last
        with store.begin(at=first) as snapshot:
            assert snapshot.scan() == [("a", "1"), ("b", "1")]
        store.vacuum(store.oracle.last)
    with Store(path) as store, pytest.raises(InvalidOption):
        store.begin(at=first)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    """A database of another program, and a file that is none, are left as they are."""
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE precious (data TEXT)")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(InvalidOption, match="another program"):
        Store(str(path))
    assert path.read_bytes() == before
    text = tmp_path / "notes.txt"
    text.write_text("not a database\n" * 100)
    with pytest.raises(StoreFailed, match="not a database"):
        Store(str(text))
    with pytest.raises(StoreFailed, match="can't open"):
        Store(str(tmp_path / "no such folder" / "store.db"))


def test_failure_of_the_file_wakes_those_who_wait(
    tmp_path: Path, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When SQLite fails nothing can be done any more, and nobody waits for what can't happen."""
    path = str(tmp_path / "store.db")
    store = Store(path)
    put(store, a="1")
    one, two = store.begin(), store.begin()
    one.put("a", "2")
    waiting = pool.submit(two.get, "a")
    eventually(lambda: waits(store, two))
    failing = sqlite3.connect(":memory:")
    failing.close()
    monkeypatch.setattr(store.storage, "_db", failing)  # each statement fails now
    with pytest.raises(StoreFailed), one:
        one.commit()
    with pytest.raises(StoreFailed):
        waiting.result(LIMIT)
    monkeypatch.undo()
    store.storage._db.close()
    with Store(path) as store:
        assert content(store) == {"a": "1"}


# --- Interrupts -----------------------------------------------------------------------------------


def test_interrupted_wait_leaves_no_request_behind(store: Store) -> None:
    """A greenlet that is killed while it waits is gone from the queue; its transaction is not."""

    def body() -> None:
        writer, reader = store.begin(), store.begin()
        writer.put("a", "1")
        greenlet = gevent.spawn(reader.get, "a")
        eventually(lambda: waits(store, reader))
        greenlet.kill()
        outcome.append((waits(store, reader), reader.get("b")))
        writer.commit()
        outcome.append((False, reader.get("a")))
        reader.commit()
        gevent.get_hub().destroy(destroy_loop=True)

    outcome: list[tuple[bool, str | None]] = []
    thread = threading.Thread(target=body)  # a thread of its own, for the hub that it leaves
    thread.start()
    thread.join()
    assert outcome == [(False, None), (False, "1")]


@pytest.mark.parametrize(("where", "outcome"), [("commit", {"a": "0"}), ("resolve", {"a": "1"})])
def test_interrupted_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, outcome: dict[str, str]
) -> None:
    """Ctrl-C in the moment of the commit: all or nothing, also after a restart, and no lock stays.

    Right at the commit point it is undone; after that it is carried out.
    """
    path = str(tmp_path / "store.db")
    with Store(path) as store:
        put(store, a="0")
        original = getattr(store.storage, where)

        def interrupted(*args: int) -> None:
            monkeypatch.undo()
            original(*args)
            raise KeyboardInterrupt

        monkeypatch.setattr(store.storage, where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            put(store, a="1")
        assert content(store) == outcome
        assert not store.table.states()
        for suffix in ("", "-wal"):  # as if it were killed now
            shutil.copy(path + suffix, str(tmp_path / "copy.db") + suffix)
    for name in ("store.db", "copy.db"):
        with Store(str(tmp_path / name)) as store:
            assert content(store) == outcome


# --- Wrong input ----------------------------------------------------------------------------------


def state(store: Store) -> object:
    """All that bad input must not change."""
    tables = ("versions", "intents", "large", "commits", "numbers")
    data = [store.storage._run(f"SELECT * FROM {table}") for table in tables]
    txs = [
        (tx.timestamp, tx.state, dict(tx.reads), dict(tx.writes)) for tx in store.active.values()
    ]
    return data, txs, store.table.states()


@pytest.mark.parametrize(
    ("job", "complaint"),
    [
        (lambda tx: tx.get(7), "key 7 is not a string"),
        (lambda tx: tx.get("\ud800"), "is not a string of Unicode"),
        (lambda tx: tx.get(END), "the end of all keys"),
        (lambda tx: tx.put(END + "x", "1"), "the end of all keys"),
        (lambda tx: tx.put("a", None), "value None is not a string"),
        (lambda tx: tx.put("a", b"1"), "is not a string"),
        (lambda tx: tx.delete(None), "key None"),
        (lambda tx: tx.scan("b", "b"), "there is no key from 'b' up to 'b'"),
        (lambda tx: tx.scan("b", "a"), "swap the two"),
        (lambda tx: tx.scan("b", 3), "key 3"),
    ],
)
def test_bad_input(store: Store, job: Callable[[Transaction], object], complaint: str) -> None:
    """A wrong key, value or range is refused with its reason, and nothing is changed by it."""
    with store.begin() as tx:
        tx.put("a", "1")
        before = state(store)
        with pytest.raises(InvalidOption, match=complaint):
            job(tx)
        assert state(store) == before


# --- Parts ----------------------------------------------------------------------------------------


def test_latches(pool: ThreadPoolExecutor) -> None:
    """Shared ones share; an exclusive one waits for all before it and holds up all behind it."""
    latches = Latches()
    inside: list[str] = []
    leave = {name: threading.Event() for name in "abcde"}

    def hold(name: str, span: Span, exclusive: bool) -> None:
        with latches.hold([span], exclusive=exclusive):
            inside.append(name)
            leave[name].wait(LIMIT)
            inside.remove(name)

    jobs = []
    for number, (name, span, exclusive) in enumerate(
        [
            ("a", Span("k"), False),
            ("b", Span("a", "z"), False),
            ("c", Span("k"), True),
            ("d", Span("j", "l"), False),
            ("e", Span("l"), True),
        ],
        1,
    ):
        jobs.append(pool.submit(hold, name, span, exclusive))
        eventually(lambda: len(latches._line) == number)  # noqa: B023
    eventually(lambda: sorted(inside) == ["a", "b"])
    leave["a"].set()
    eventually(lambda: inside == ["b"])
    leave["b"].set()
    eventually(lambda: sorted(inside) == ["c", "e"])  # `d` came behind `c`; `e` is beside them
    leave["c"].set()
    eventually(lambda: sorted(inside) == ["d", "e"])
    for name in "de":
        leave[name].set()
    for job in jobs:
        job.result(LIMIT)
    assert not latches._line


reads = st.tuples(
    st.sampled_from([Span("a"), Span("b"), Span("c"), Span("a", "c"), Span("b", "d")]),
    st.integers(1, 9),
    st.integers(1, 3),
)


@given(st.lists(reads, max_size=30), st.integers(1, 40))
def test_read_cache_forgets_no_read(some: list[tuple[Span, int, int]], limit: int) -> None:
    """For each key it names a timestamp not below any read of others; and no more if it is large.

    A transaction's own reads rise: it reads nothing below an earlier read of its own.
    """
    cache = ReadCache(limit)
    at = dict.fromkeys((1, 2, 3), 0)
    done: list[tuple[Span, int, int]] = []
    for span, timestamp, txn in some:
        at[txn] = max(at[txn], timestamp)
        done.append((span, at[txn], txn))
        cache.record([span], at[txn], txn)
    for key in "abc":
        for txn in (1, 2, 3):
            others = [
                read for span, read, other in done if overlap(span, Span(key)) and other != txn
            ]
            # Below the transaction's own timestamp it makes no difference.
            assert max(at[txn], cache.latest(key, txn)) >= max([at[txn], *others])
        everybody = [read for span, read, _ in done if overlap(span, Span(key))]
        if limit >= 30:
            assert ReadCache(300).latest(key, 4) == 0
            whole = ReadCache(300)
            for span, read, other in done:
                whole.record([span], read, other)
            assert whole.latest(key, 4) == max([0, *everybody])
