"""A worker of the soak: `tests.cluster.worker` that also locks by majority, over and over, and puts it down."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from pathlib import Path

import gevent

import locks
from tests.cluster.ledger import Bank, Broken, Ledger, Stale
from tests.cluster.soak_checks import Hold
from tests.cluster.worker import Client, main

STUCK = 60.0  # seconds after which somebody of the bank is stuck


class Soaker(Client):
    """One client of a worker of the soak."""

    def toil(
        self,
        folder: str,
        until: float,
        name: str,
        nodes: list[str],
        ids: int,
        seed: int,
        patience: float = 1.0,
        cheats: bool = False,
        bank: bool = False,
    ) -> dict[str, int]:
        """Lock one of some ids by majority, increase a number with the token, release it; over and over.

        In the bank it locks two accounts, one after the other, and moves money from one to the other.

        Args:
            folder: Where the numbers are, and where each hold is put down.
            until: When to end, by `time.monotonic()`.
            name: Who does it.
            nodes: The lock servers.
            ids: How many ids there are.
            seed: For what is random.
            patience: Seconds to wait for a lock or a token at most.
            cheats: Whether to take the lock on any one node, and somebody else's token: what is
                checked must find it.
            bank: Whether the ids are accounts. Then it waits with much patience in half of the cases.

        Returns:
            How often what has happened.
        """
        chance = random.Random(seed)
        counts: Counter[str] = Counter()
        path = Path(folder, f"holds-{name.replace('/', '-')}-{os.getpid()}")
        with path.open("a") as file:
            while time.monotonic() < until:
                number = chance.randrange(ids)
                if cheats:
                    line = json.dumps(_cheat(number, name, folder))
                elif bank:
                    line = self._transfer(
                        chance, name, nodes, folder, (patience, STUCK), ids, counts
                    )
                else:
                    line = self._hold(chance, number, name, nodes, folder, patience, counts)
                if line:
                    file.write(line + "\n")
                    file.flush()
                gevent.sleep(chance.random() * (0.1 if bank else 0.02))
        return dict(counts)

    def _transfer(
        self,
        chance: random.Random,
        name: str,
        nodes: list[str],
        folder: str,
        patience: tuple[float, float],
        accounts: int,
        counts: Counter[str],
    ) -> str:
        """Move money once; returns what to put down, a line for each account."""
        pair = chance.sample(range(accounts), 2)
        bank = Bank(Path(folder, "bank"), accounts)
        waits = chance.choice(patience)
        asked = time.monotonic()
        holds: list[Hold] = []
        try:
            with locks.transaction(timeout=waits, await_nodes=chance.random() < 0.5) as tx:
                had = {}
                for account in pair:
                    tx.lock(["soak", account], nodes=nodes, require="majority")
                    had[account] = time.monotonic()
                    gevent.sleep(chance.random() * 0.02)
                tokens = {account: tx.token(["soak", account]) for account in pair}
                tx.ensure_held()
                owner, sure = f"{name}/{tx.agent.id.created}", time.monotonic()
                holds = [
                    Hold(each, owner, self._node().name, tokens[each], asked, had[each], sure, 0.0)
                    for each in pair
                ]
                before = bank.read(tokens)
                gevent.sleep(chance.random() * 0.01)
                source, target = pair
                after = {source: before[source] - 1, target: before[target] + 1}
                bank.write(tokens, before, after)
                tx.ensure_held()
                sure = time.monotonic()
                holds = [hold._replace(sure=sure) for hold in holds]
            counts["held"] += 1
        except locks.LocksError as error:
            counts[type(error).__name__] += 1
            if isinstance(error, locks.LockTimeout) and waits == STUCK:
                return json.dumps({"broken": f"{name} has waited for {STUCK:g} s: {error}"})
        except Stale:
            counts["refused"] += 1
        except Broken as error:
            return json.dumps({"broken": f"{name}: {error}"})
        gone = time.monotonic()
        return "\n".join(json.dumps(hold._replace(gone=gone)._asdict()) for hold in holds)

    def _hold(
        self,
        chance: random.Random,
        number: int,
        name: str,
        nodes: list[str],
        folder: str,
        patience: float,
        counts: Counter[str],
    ) -> str:
        """Hold a lock once; returns what to put down."""
        lock_id = ["soak", number]
        ledger = Ledger(Path(folder, f"ledger-{number}"))
        asked = time.monotonic()
        hold = None
        try:
            waits = chance.random() < 0.5
            with locks.transaction(timeout=patience, await_nodes=waits) as tx:
                tx.lock(lock_id, nodes=nodes, require="majority")
                had = time.monotonic()
                token = tx.token(lock_id)
                owner = f"{name}/{tx.agent.id.created}"
                tx.ensure_held()
                hold = Hold(
                    number, owner, self._node().name, token, asked, had, time.monotonic(), 0.0
                )
                value = ledger.read(token, owner)
                gevent.sleep(chance.random() * 0.01)
                ledger.write(token, owner, value)
                tx.ensure_held()
                hold = hold._replace(sure=time.monotonic())
            counts["held"] += 1
        except locks.LocksError as error:
            counts[type(error).__name__] += 1
        except Stale:
            counts["refused"] += 1
        except Broken as error:
            return json.dumps({"broken": f"{name}, id {number}: {error}"})
        if hold is None:
            return ""
        return json.dumps(hold._replace(gone=time.monotonic())._asdict())


def _cheat(number: int, name: str, folder: str) -> dict[str, object]:
    """Write without a lock, as if with one."""
    now = time.monotonic()
    lines = [line.split() for line in _lines(Path(folder, f"ledger-{number}"))]
    token = max((int(line[2]) for line in lines), default=1)
    return Hold(number, f"{name}/cheat", name, token, now, now, now, now)._asdict()


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


if __name__ == "__main__":
    main(Soaker)
