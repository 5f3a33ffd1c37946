"""Whatever moment the process is killed at: what was committed is there, and nothing else."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from examples.kv_store import Storage, Store, StoreFailed
from tests.examples.kv_child import ACCOUNTS, MONEY, THREADS
from tests.helpers import EXPLORE, SEED, run_script

ROOT = Path(__file__).parents[2]


def check_bank(path: Path, acknowledged: dict[str, str], killed: int) -> None:
    """See that the bank is whole, and that nothing acknowledged is missing."""
    with Store(str(path)) as store:
        data = dict(store.run(lambda tx: tx.scan()))
        assert not store.storage.writers("", "\U0010ffff")
        assert not store.storage._run("SELECT * FROM commits")
    log = {key[len("log/") :]: value for key, value in data.items() if key.startswith("log/")}
    assert acknowledged.items() <= log.items(), "something that was acknowledged is lost"
    assert len(log) - len(acknowledged) <= THREADS * killed, "more than one at a time for a thread"
    balances = dict.fromkeys(range(ACCOUNTS), MONEY)
    for line in log.values():
        source, target, amount = map(int, line.split())
        balances[source] -= amount
        balances[target] += amount
    for account, balance in balances.items():
        assert int(data.get(f"account/{account}", MONEY)) == balance, (
            "not all of a transfer is there"
        )


def killed_run(path: Path, run: int, lines: int, delay: float) -> dict[str, str]:
    """Start the child, kill it after it has said so much and a moment more; return what it said."""
    command = [sys.executable, str(ROOT / "tests/examples/kv_child.py"), str(path), str(run)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            said = [child.stdout.readline() for _ in range(lines)]
            if delay:
                time.sleep(delay)  # the moment is what the test chooses; nothing is waited for
        finally:
            child.kill()
        said += child.stdout.readlines()
        assert child.stderr.read() == ""
    whole = [line.rstrip("\n") for line in said if line.endswith("\n")]
    return dict(line.split(" ", 1) for line in whole)


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path: Path) -> None:
    """Transfers by four threads, killed again and again, on one file: not a coin is lost."""
    rng = random.Random(SEED)
    path = tmp_path / "bank.db"
    acknowledged: dict[str, str] = {}
    rounds = 60 if EXPLORE else 7
    for run in range(1, rounds + 1):
        # Some are killed before they have said anything, perhaps while they open the file.
        lines = (0, 1, rng.randint(11, 150))[run % 3]
        delay = rng.uniform(0, 0.6) if lines == 0 else rng.uniform(0, 0.01)
        acknowledged |= killed_run(path, run, lines, delay)
        check_bank(path, acknowledged, killed=run)
    assert len(acknowledged) > 10


class Crashes:
    """What is on the disk at each moment between two statements: what a killed process leaves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.acknowledged = 0
        self.told: list[int] = []  # for each copy, how many transactions were acknowledged

    def copy(self, path: str) -> None:
        """Keep a copy of what is on the disk now."""
        for suffix in ("", "-wal"):
            if Path(path + suffix).exists():
                shutil.copy(path + suffix, self.folder / f"{len(self.told)}.db{suffix}")
        self.told.append(self.acknowledged)

    def storage(self, path: str, *, sync: bool) -> Storage:
        """Make the storage of a store, with a copy before each statement."""
        crashes = self

        class Watched(Storage):
            def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
                crashes.copy(path)
                return super()._run(statement, *values)

        return Watched(path, sync=sync)


def test_killed_before_each_statement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each moment between two statements to SQLite, one by one: all or nothing, in order.

    The n-th transaction writes n to two keys, deletes one and makes one; another transaction has
    an intent all the time. What is found is what the last acknowledged one has left, or the next.
    """
    crashes = Crashes(tmp_path / "copies")
    crashes.folder.mkdir()
    monkeypatch.setattr("examples.kv_store.store.Storage", crashes.storage)
    number = 4
    for first in (1, 1 + number):  # closed and opened again in between
        with Store(str(tmp_path / "store.db")) as store:
            store.begin().put("never", "seen")
            for n in range(first, first + number):
                with store.begin() as tx:
                    tx.put("a", str(n))
                    tx.put("b", str(n))
                    tx.delete(f"only {n - 1}")
                    tx.put(f"only {n}", "x")
                crashes.acknowledged = n
            store.vacuum(store.oracle.last)
    monkeypatch.undo()

    def expected(n: int) -> dict[str, str]:
        return {"a": str(n), "b": str(n), f"only {n}": "x"} if n else {}

    ahead = set()
    for moment, n in enumerate(crashes.told):
        with Store(str(crashes.folder / f"{moment}.db"), sync=False) as store:
            found = dict(store.run(lambda tx: tx.scan()))
        assert found in (expected(n), expected(n + 1)), f"moment {moment}"
        if found == expected(n + 1):
            ahead.add(n)
    # The moments between the commit point and the acknowledgement are among them each time.
    assert ahead == set(range(2 * number))


def test_second_store_is_told_the_truth(tmp_path: Path) -> None:
    """Whether this process has the file open already, or another one; nothing is changed by that."""
    path = str(tmp_path / "store.db")
    opens = f"from examples.kv_store import Store, StoreFailed\ntry:\n    Store({path!r})"
    opens += "\nexcept StoreFailed as error:\n    print(error)"
    with Store(path) as store:
        store.run(lambda tx: tx.put("a", "1"))
        for name in (path, str(tmp_path / "." / "store.db")):
            with pytest.raises(StoreFailed, match="open in another Store of this process already"):
                Store(name)
        assert "another process has it open" in run_script(opens)
        assert store.run(lambda tx: tx.get("a")) == "1"
    with Store(path) as store:
        assert store.run(lambda tx: tx.get("a")) == "1"
