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
from tests.cluster.ledger import Broken, Ledger, Stale
from tests.cluster.soak_checks import Hold
from tests.cluster.worker import Client, main


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
    ) -> dict[str, int]:
        """Lock one of some ids by majority, increase a number with the token, release it; over and over.

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
                else:
                    line = self._hold(chance, number, name, nodes, folder, patience, counts)
                if line:
                    file.write(line + "\n")
                    file.flush()
                gevent.sleep(chance.random() * 0.02)
        return dict(counts)

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
