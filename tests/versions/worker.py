"""A program under load, in whichever version of `locks` it finds. The programs of the earlier version are made from this file, too."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import locks
import locks_leader
from tests.cluster.ledger import Bank, Ledger, Stale
from tests.cluster.worker import main
from tests.leader.worker import Candidate

ACCOUNTS = 5
PATIENCE = 30  # seconds that a wait may take
PAUSE = 3  # seconds at most between two turns: many programs share the processors with the servers


class Load:
    """What a program does over and over, each kind in a thread of its own, and how often it has done it.

    It moves money between accounts, whose locks it takes in random order, takes one lock for all of them, leads for a while, and
    watches the accounts. From its start to its end it keeps a lock of its own.

    Args:
        folder: Where the guarded files are, which fence.
        number: Its own number.
    """

    def __init__(self, folder: str, number: int) -> None:
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.times: dict[str, list[float]] = {}
        self._over = threading.Event()
        self._chance = random.Random(number)
        self._bank = Bank(Path(folder) / "bank", ACCOUNTS)
        self._terms = Ledger(Path(folder) / "terms")
        self._name = f"{number}/{os.getpid()}"
        self._own = locks.original.spawn_agent()
        locks.original.lock(self._own, ("held", number), "write", timeout=PATIENCE)
        locks.watch(("accounts",), watcher=self._seen)
        kinds: tuple[tuple[str, Callable[[], object]], ...] = (
            ("moves", self._move),
            ("sums", self._sum),
            ("terms", self._lead),
        )
        self._threads = [
            threading.Thread(target=self._repeat, args=kind, daemon=True) for kind in kinds
        ]
        for thread in self._threads:
            thread.start()

    def _did(self, what: str) -> None:
        self.times.setdefault(what, []).append(time.monotonic())
        self.done[what] += 1

    def _seen(self, view: object) -> None:
        self._did("views")

    def _repeat(self, what: str, do: Callable[[], object]) -> None:
        while not self._over.is_set():
            try:
                do()
                self._did(what)
            except (locks.LocksError, Stale) as error:
                self.failed[type(error).__name__] += 1
            self._over.wait(self._chance.random() * PAUSE)

    def _move(self) -> None:
        accounts = self._chance.sample(range(ACCOUNTS), 2)

        def move(tx: locks.Transaction) -> None:
            tokens = {account: tx.write_lock(("accounts", account)) for account in accounts}
            before = self._bank.read(tokens)
            time.sleep(self._chance.random() * 0.01)
            here, there = accounts
            after = {here: before[here] - 1, there: before[there] + 1}
            self._bank.write(tokens, before, after)

        locks.run_transaction(move, timeout=PATIENCE)

    def _sum(self) -> None:
        with locks.transaction(timeout=PATIENCE) as tx:
            tx.read_lock(("accounts",))
            tx.ensure_held()

    def _lead(self) -> None:
        def led(leadership: locks_leader.Leadership) -> None:
            number = self._terms.read(leadership.term, self._name)
            time.sleep(self._chance.random() * 0.01)
            self._terms.write(leadership.term, self._name, number)

        locks_leader.Election("load").run(led, timeout=PATIENCE)

    def end(self) -> None:
        """End it; raise an error if its own lock was lost meanwhile."""
        locks.unwatch(("accounts",), watcher=self._seen)
        self._over.set()
        for thread in self._threads:
            thread.join()
        locks.original.ensure_held(self._own)
        locks.original.end_transaction(self._own)


class Loaded(Candidate):
    """A client of the tests that can be under load."""

    load: Load

    def begin_load(self, folder: str, number: int) -> None:
        type(self).load = Load(folder, number)

    def counts(self) -> dict[str, Any]:
        load = type(self).load
        return {"done": load.done, "failed": load.failed}

    def end_load(self) -> dict[str, list[float]]:
        load = type(self).load
        load.end()
        return load.times

    def hidden(self) -> list[str]:
        """The client nodes that are connected."""
        return self._node().nodes(hidden=True)

    def version(self) -> str:
        """Where its `locks` is."""
        return str(locks.__file__)


def _broken(args: threading.ExceptHookArgs) -> None:
    """End the program with whatever is broken: nobody overlooks that."""
    threading.__excepthook__(args)
    os._exit(1)


if __name__ == "__main__":
    threading.excepthook = _broken
    main(Loaded)
