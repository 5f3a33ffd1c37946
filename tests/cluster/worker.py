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

import json
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import gevent

import locks
from tests.cluster.ledger import Ledger

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

    def work(self, path: str, until: float, **terms: Any) -> dict[str, int]:
        """Read a number from the ledger under a lock, and write it back increased; over and over."""
        return Ledger(path).work(until, **terms)


def main(kind: type[Client] = Client) -> None:
    """Read commands until there are no more; clients are of this kind."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    clients: dict[str, Client] = {}
    read: Callable[[], str] = sys.stdin.readline
    while True:
        # A read of standard input would hold up the hub of a patched program.
        line = gevent.get_hub().threadpool.apply(read) if PATCHED else read()
        if not line:
            break
        job = json.loads(line)
        name = job.pop("client")
        if name not in clients:
            clients[name] = kind()
        clients[name].take(job)
    locks.stop()


if __name__ == "__main__":
    main()
