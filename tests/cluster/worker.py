"""A program with a node and clients, for the tests: it does what it is told on standard input.

Each line is a JSON object: `id`, `do` (a method of `Client`), `client` (who is to do it) and its
arguments. Each client is a thread (with `--patched` a greenlet: the whole program is monkey-patched)
and does one thing after the other. Each answer is a line: `id`, `at` (when it was done, by the clock
that all processes of this machine share) and `result` or `error`.
"""

# ruff: noqa: E402  (what is patched must be patched first)

from __future__ import annotations

import sys

PATCHED = "--patched" in sys.argv
if PATCHED:
    from gevent import monkey

    monkey.patch_all()

import contextlib
import json
import logging
import os
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent

import locks
from tests.cluster.ledger import Broken, Ledger, Stale

STUCK = 60.0  # seconds after which a client of the soak is stuck

_printing = threading.Lock()
_started = threading.Event()
_node: list[locks.node.Node] = []


def say(**answer: Any) -> None:
    """Write one line."""
    line = json.dumps({"at": time.monotonic(), **answer}, default=repr) + "\n"
    with _printing:
        os.write(1, line.encode())


class Client:
    """One client with at most one transaction at a time."""

    def __init__(self) -> None:
        self._jobs: queue.Queue[dict[str, Any]] = queue.Queue()
        self.agent: Any = None
        self.told: list[Any] = []
        self.losses: list[Any] = []
        threading.Thread(target=self._work, daemon=True).start()

    def take(self, job: dict[str, Any]) -> None:
        """Let it do something, after all else that it was told."""
        self._jobs.put(job)

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            number, what = job.pop("id"), job.pop("do")
            if what != "start":
                _started.wait()
            try:
                say(id=number, result=getattr(self, what)(**job))
            except Exception as error:
                about = getattr(error, "about", {})
                say(id=number, error=[type(error).__name__, str(error), about])

    # --- The node

    def start(self, **options: Any) -> Any:
        tls = options.pop("tls", None)
        if tls is not None:
            options["tls"] = locks.TLS(*tls)
        _node.append(locks.start(**options))
        _started.set()
        return _node[0].address

    def _node(self) -> locks.node.Node:
        return _node[0]

    def connect(self, peer: str, timeout: float = 5) -> bool:
        return self._node().connect(peer, timeout=timeout)

    def disconnect(self, node: str) -> bool:
        return self._node().disconnect(node)

    def nodes(self) -> list[str]:
        return self._node().nodes()

    def alive(self) -> list[str]:
        return sorted(self._node().alive)

    def holders(self, lock_id: list[Any]) -> list[str]:
        return [contender.client for contender in locks.holders(lock_id)]

    def waiting(self, lock_id: list[Any], node: str) -> int:
        """How many requests wait for it on a node."""
        return len(locks.queue(lock_id, node=node).waiting)

    def requests(self, lock_id: list[Any], node: str) -> list[str]:
        """All requests for it on a node."""
        return [f"{r.agent} {r.granted}" for r in locks.queue(lock_id, node=node).requests]

    def agents(self) -> int:
        return locks.statistics().agents

    def clear(self) -> None:
        """End all transactions, whoever has them."""
        for agent in self._node().agents():
            agent.stop()

    def asked(self) -> int:
        """How many locks all transactions have asked for."""
        return sum(len(agent.lock_info()) for agent in self._node().agents())

    def entries(self) -> int:
        return locks.statistics().table.entries

    # --- A transaction

    def begin(self, objects: list[Any] = [], **options: Any) -> str:  # noqa: B006
        self.told = []
        self.losses = []
        self.agent, result = locks.original.begin_transaction(
            [tuple(each) for each in objects], notify=self.told.append, **options
        )
        self.agent.on_lost = lambda error: self.losses.append(
            [time.monotonic(), type(error).__name__, list(error.nodes)]
        )
        return result.status

    def lock(self, lock_id: list[Any], mode: str = "write", **options: Any) -> str:
        return locks.original.lock(self.agent, lock_id, mode, **options).status  # type: ignore[arg-type]

    def granted(self) -> list[list[str]]:
        """On which nodes each of its locks is granted."""
        return [list(info.granted) for info in locks.original.lock_info(self.agent)]

    def token(self, lock_id: list[Any], timeout: float = 10) -> int:
        return locks.original.fencing_token(self.agent, lock_id, timeout=timeout)

    def ensure_held(self, lock_id: list[Any] | None = None) -> None:
        locks.original.ensure_held(self.agent, lock_id)

    def await_lost(self, timeout: float = 10) -> bool:
        return self.agent.lost.wait(timeout)

    def lost(self) -> list[Any]:
        """When which nodes took locks away."""
        return self.losses

    def notified(self) -> list[Any]:
        return [[each.kind, each.value] for each in self.told]

    def deadlocks(self) -> int:
        return len(locks.original.transaction_status(self.agent).deadlocks)

    def unlock(self, lock_id: list[Any]) -> None:
        locks.original.unlock(self.agent, lock_id)

    def end(self) -> None:
        locks.original.end_transaction(self.agent)

    # --- What programs do besides

    def spin(self, seconds: float) -> None:
        """Compute; in a patched program nothing else runs meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass

    def stick(self, seconds: float) -> None:
        """Nothing runs in the hub of the program's node for a while."""
        _node[0].executor.run_soon(time.sleep, seconds)

    # --- The soak (`tests.cluster.soak`)

    def toil(
        self, folder: str, until: float, nodes: list[str], ids: int, seed: int, cheats: bool = False
    ) -> dict[str, int]:
        """Lock one or two of some ids by majority, increase their numbers with the tokens, release them; over and over.

        Args:
            folder: Where the numbers are, and where each hold is put down.
            until: When to end, by `time.monotonic()`.
            nodes: The lock servers.
            ids: How many ids there are.
            seed: For what is random.
            cheats: Whether to take no lock, and somebody else's token: what is checked must find it.

        Returns:
            How often what has happened.
        """
        chance, counts = random.Random(seed), Counter[str]()
        with Path(folder, f"holds-{os.getpid()}-{id(self)}").open("a") as file:
            while time.monotonic() < until:
                numbers = chance.sample(range(ids), chance.choice((1, 1, 2)))
                hold = _cheat if cheats else _hold
                for each in hold(chance, numbers, Path(folder), nodes, counts):
                    file.write(json.dumps(each) + "\n")
                    file.flush()
                gevent.sleep(chance.random() * 0.05)
        return dict(counts)

    def mix(self, kind: str, **given: Any) -> dict[str, int]:
        """Do one kind of work over and over (`tests.cluster.mixed`); returns how often what has happened."""
        from tests.cluster.mixed import mix

        return mix(kind, _node[0].name, **given)

    def lead(self, folder: str, nodes: list[str]) -> None:
        """Stand for election from now on, and as the leader increase a number with the term."""
        import locks_leader

        name, ledger = f"{_node[0].name}/{os.getpid()}", Ledger(Path(folder, "led"))

        def work(leadership: locks_leader.Leadership) -> None:
            while not leadership.lost.wait(0.02):
                with contextlib.suppress(locks.LocksError, Stale):
                    leadership.ensure_leading()
                    term = leadership.term
                    ledger.write(term, name, ledger.read(term, name))

        def stand() -> None:
            while True:
                election = locks_leader.Election("chief", policy="majority", nodes=nodes)
                with contextlib.suppress(locks.LocksError):
                    election.run(work)

        threading.Thread(target=stand, daemon=True).start()


def _hold(
    chance: random.Random, numbers: list[int], folder: Path, nodes: list[str], counts: Counter[str]
) -> list[dict[str, Any]]:
    """Hold locks once; returns what to put down of each."""
    asked, patience = time.monotonic(), chance.choice((1.0, STUCK))
    node, owner = _node[0].name, ""
    holds: list[dict[str, Any]] = []
    try:
        with locks.transaction(timeout=patience, await_nodes=chance.random() < 0.5) as tx:
            for number in numbers:
                tx.lock(["soak", number], nodes=nodes, require="majority")
                # From now on it has all of them: with `await_nodes` one may have been lost, and had again.
                had = time.monotonic()
                gevent.sleep(chance.random() * 0.01)
            tokens = {number: tx.token(["soak", number]) for number in numbers}
            tx.ensure_held()
            owner, sure = f"{node}/{tx.agent.id.created}", time.monotonic()
            holds = [
                {"lock_id": each, "owner": owner, "process": node, "token": tokens[each], "asked": asked, "had": had, "sure": sure}
                for each in numbers
            ]  # fmt: skip
            for number in numbers:
                ledger = Ledger(folder / f"ledger-{number}")
                value = ledger.read(tokens[number], owner)
                gevent.sleep(chance.random() * 0.01)
                ledger.write(tokens[number], owner, value)
            tx.ensure_held()
            for hold in holds:
                hold["sure"] = time.monotonic()
        counts["held"] += 1
    except locks.LocksError as error:
        counts[type(error).__name__] += 1
        if isinstance(error, locks.LockTimeout) and patience == STUCK:
            return [{"broken": f"{node} has waited for {STUCK:g} s: {error}", "since": asked}]
    except Stale:
        counts["refused"] += 1
    except Broken as error:
        return [{"broken": f"{owner}, ids {numbers}: {error}"}]
    return [{**hold, "gone": time.monotonic()} for hold in holds]


def _cheat(
    chance: random.Random, numbers: list[int], folder: Path, nodes: list[str], counts: Counter[str]
) -> list[dict[str, Any]]:
    """Pretend to have locks, with the last token that was seen."""
    now, node, found = time.monotonic(), _node[0].name, []
    for number in numbers:
        path = folder / f"ledger-{number}"
        lines = path.read_text().splitlines() if path.exists() else []
        token = max((int(line.split()[2]) for line in lines), default=1)
        times = dict.fromkeys(("asked", "had", "sure", "gone"), now)
        found.append({"lock_id": number, "owner": f"{node}/cheat", "process": node, "token": token, **times})  # fmt: skip
    return found


def main(kind: type[Client] = Client) -> None:
    """Read commands until there are no more; clients are of this kind."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    if PATCHED:  # a read of standard input would hold up its hub
        _read(kind, lambda: gevent.get_hub().threadpool.apply(sys.stdin.readline))
    else:
        reader = threading.Thread(target=_read, args=(kind, sys.stdin.readline))
        reader.start()
        # Only while the main thread runs does greenlet free what it has of threads that have ended: a third of a KiB for each.
        while reader.is_alive():
            reader.join(1.0)
    locks.stop()


def _read(kind: type[Client], read: Callable[[], str]) -> None:
    clients: dict[str, Client] = {}
    while line := read():
        job = json.loads(line)
        name = job.pop("client")
        if name not in clients:
            clients[name] = kind()
        clients[name].take(job)


if __name__ == "__main__":
    main()
