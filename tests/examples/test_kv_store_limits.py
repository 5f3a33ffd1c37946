"""The example store: large values, damaged files, time limits, and runs within runs."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from examples.kv_store import (
    Restart,
    Store,
    StoreFailed,
    Transaction,
    TransactionOver,
    TransactionTimeout,
    TxnDeadlockAborted,
    TxnLockTimeout,
)
from examples.kv_store.keys import LONGEST_KEY
from examples.kv_store.storage import SMALL
from locks.errors import InvalidOption, MisuseError
from tests.examples.kv_oracle import LIMIT, content, put, waits
from tests.helpers import EXPLORE, SEED, eventually

# --- Large values ---------------------------------------------------------------------------------


def count(store: Store, table: str) -> int:
    """How many rows a table has."""
    ((rows,),) = store.storage._run(f"SELECT count(*) FROM {table}")
    return int(rows)


def test_large_values_are_beside_the_keys(store: Store) -> None:
    """No row that is looked through for a key has a large value in it, before and after the commit."""
    large = "x" * 5_000_000
    with store.begin() as tx:
        tx.put("a", large)
        tx.put("b", "y" * SMALL)
        for table, expected in (("intents", SMALL), ("versions", None)):
            longest = store.storage._run(f"SELECT max(length(value)) FROM {table}")
            assert longest == [(expected,)]
        assert tx.get("a") == large
    assert store.storage._run("SELECT max(length(value)) FROM versions") == [(SMALL,)]
    assert content(store) == {"a": large, "b": "y" * SMALL}


def test_large_values_survive_the_process(tmp_path: Path) -> None:
    """Those that are committed; those that are not are gone with their intents."""
    path = str(tmp_path / "store.db")
    large = "é" * (SMALL + 1)
    with Store(path) as store:
        put(store, a=large)
        store.begin().put("b", large)
    with Store(path) as store:
        assert content(store) == {"a": large}
        assert count(store, "large") == 1


def test_keys_are_not_too_long(store: Store) -> None:
    """A key is compared with many others; its limit is its own."""
    with store.begin() as tx:
        tx.put("k" * LONGEST_KEY, "1")
        with pytest.raises(InvalidOption, match=f"a key of {LONGEST_KEY + 1} characters is too"):
            tx.put("k" * (LONGEST_KEY + 1), "1")
    assert list(content(store)) == ["k" * LONGEST_KEY]


# --- Damaged files --------------------------------------------------------------------------------


def filled(path: Path, rng: random.Random) -> dict[str, str]:
    """Make a store with keys, some versions of each, and some large values."""
    with Store(str(path), sync=False) as store:
        for n in range(60):
            value = "".join(rng.choices("abcdefgh", k=rng.choice([3, 40, 400, 3000])))
            with store.begin() as tx:
                tx.put(f"key/{n % 40}", value)
        return content(store)


def test_flipped_byte_is_an_error_and_never_a_value(tmp_path: Path) -> None:
    """Wherever it is: all that is there is read as it was, or the store says that it is damaged."""
    print("LOCKS_SEED =", SEED)
    rng = random.Random(SEED)
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    expected = filled(path, rng)
    whole = path.read_bytes()
    outcomes = {"refused": 0, "as before": 0}
    for _ in range(1500 if EXPLORE else 60):
        damaged = bytearray(whole)
        place = rng.randrange(len(whole)) if rng.random() < 0.8 else rng.randrange(200)
        damaged[place] ^= rng.randrange(1, 256)
        copy.write_bytes(damaged)
        for suffix in ("-wal", "-shm", "-journal"):
            Path(f"{copy}{suffix}").unlink(missing_ok=True)
        try:
            with Store(str(copy)) as store:
                found = content(store)
        except (StoreFailed, InvalidOption):
            outcomes["refused"] += 1
        else:
            assert found == expected, f"byte {place}"
            outcomes["as before"] += 1
    print(outcomes)
    assert outcomes["refused"] > outcomes["as before"] / 2


# --- Time limits ----------------------------------------------------------------------------------


def test_wait_has_a_limit(tmp_path: Path) -> None:
    """The request gives its place up; its transaction goes on, and may try again."""
    with Store(lock_timeout=0.01) as store:
        holder, other = store.begin(), store.begin()
        holder.put("a", "1")
        with pytest.raises(
            TxnLockTimeout, match=r"transaction 2 has waited 0.01 s for 'a'"
        ) as caught:
            other.put("a", "2")
        assert (caught.value.key, caught.value.holder.id, caught.value.timeout) == ("a", 1, 0.01)
        with pytest.raises(TxnLockTimeout):
            other.scan()
        assert not waits(store, other)
        assert other.get("b") is None
        holder.commit()
        other.lock_timeout = None
        other.put("a", "2")
        other.commit()
        assert content(store) == {"a": "2"}


def test_transaction_has_a_limit() -> None:
    """After that each request is refused, the commit too, and nothing of it is left."""
    with Store(timeout=0.01) as store:
        tx = store.begin()
        tx.put("a", "1")
        eventually(lambda: time.monotonic() >= (tx._deadline or 0))
        for job in (tx.commit, lambda: tx.get("a"), lambda: tx.put("b", "")):
            with pytest.raises(TransactionTimeout, match=r"longer than 0.01 s"):
                job()
        assert tx.state == "aborted"
        store.timeout = None
        assert content(store) == {}
        assert not store.table.states()


def test_forgotten_transaction_is_aborted_by_who_waits_for_it(pool: ThreadPoolExecutor) -> None:
    """Its client does nothing more, so whoever it is in the way of looks at its time."""
    with Store(timeout=0.05) as store:
        forgotten = store.begin()
        forgotten.put("a", "1")
        store.timeout = None
        other = store.begin()
        pool.submit(other.put, "a", "2").result(LIMIT)
        assert forgotten.state == "aborted"
        with pytest.raises(TransactionTimeout):
            forgotten.get("b")
        other.commit()
        assert content(store) == {"a": "2"}


@pytest.mark.parametrize("seed", range(10 if EXPLORE else 1))
def test_money_stays_where_times_run_out(seed: int) -> None:
    """Transfers under limits so short that some fail: none is done by half."""
    accounts = [f"account/{n}" for n in range(4)]
    failed = []
    with Store() as store:
        put(store, **dict.fromkeys(accounts, "100"))  # without a limit: a busy machine takes longer
        store.lock_timeout, store.timeout = 0.002, 0.01

        def client(number: int) -> None:
            rng = random.Random(1000 * seed + number)
            for _ in range(60 if EXPLORE else 20):
                source, target = rng.sample(accounts, 2)

                def transfer(tx: Transaction) -> None:
                    there, here = int(tx.get(source) or 0), int(tx.get(target) or 0)  # noqa: B023
                    tx.put(source, str(there - 1))  # noqa: B023
                    if rng.random() < 0.2:
                        eventually(lambda: time.monotonic() >= (tx._deadline or 0))
                    tx.put(target, str(here + 1))  # noqa: B023

                try:
                    store.run(transfer)
                except (TransactionTimeout, TxnLockTimeout, TransactionOver) as error:
                    failed.append(error)
                except (Restart, TxnDeadlockAborted):
                    pass

        threads = [threading.Thread(target=client, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.timeout = store.lock_timeout = None
        assert sum(map(int, content(store).values())) == 400
        assert not store.active
        assert not store.table.states()
    assert failed


# --- Runs within runs -----------------------------------------------------------------------------


def test_run_within_run_is_refused(store: Store) -> None:
    """It would wait for the outer one for ever; afterwards all is as before."""

    def outer(tx: Transaction) -> None:
        tx.put("a", "1")
        store.run(lambda inner: inner.put("a", "2"))

    with pytest.raises(MisuseError, match="Hand the outer transaction on"):
        store.run(outer)
    assert content(store) == {}
    store.run(lambda tx: tx.put("a", "3"))
    assert content(store) == {"a": "3"}
