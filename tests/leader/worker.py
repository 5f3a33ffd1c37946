"""A program with a node, instances of elections, and workers that share out groups, for the tests (see `tests.cluster.worker`).

Each worker is a thread. It does one task after the other on each group that is its own: it reads a
number from the group's file, waits a little, and writes it back increased. The file fences.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import Counter
from typing import Any, NamedTuple

import locks
import locks_leader
from locks.node.observing.elections import ELECTION_ID
from locks.ownership import NotOwner, OwnershipEnded
from locks_leader import Ownership
from tests.cluster.ledger import Ledger, Stale
from tests.cluster.worker import Client, main
from tests.leader.gdict import GDict, Journal

_elections: list[locks_leader.Election] = []
_led: list[int] = []


class Instance(NamedTuple):
    """An instance of an election, and what has happened to it."""

    ref: Any
    journal: Journal


_instances: dict[str, Instance] = {}


class Candidate(Client):
    """A client that can stand for election, and use it. `key` says which instance is meant."""

    def meet(self, peers: list[str]) -> None:
        """Connect to these nodes, and stay connected."""
        for peer in peers:
            self._node().connect(peer, timeout=0)

    def part(self, names: list[str]) -> None:
        """Disconnect from these nodes, and stay apart."""
        for name in names:
            self._node().disconnect(name)

    def nothing(self) -> None:
        """Do nothing, after all else that this client was told to do."""

    def stand(
        self, key: str = "a", quorum: int | None = None, pause: float = 0, **options: Any
    ) -> None:
        journal = Journal()
        if quorum is not None:
            options["policy"] = locks_leader.quorum(quorum)
        ref = locks_leader.start(GDict, journal, pause, **options)
        _instances[key] = Instance(ref, journal)

    def run_for(self, name: str, nodes: list[str] | None = None) -> None:
        """Take part in an election with `Election`, by a majority of nodes if there are some; when it leads, and no more, is noted."""

        def elected(leadership: locks_leader.Leadership) -> None:
            _led.append(leadership.term)

        def lost(leadership: locks_leader.Leadership) -> None:
            _led.append(0)

        _elections.append(
            locks_leader.Election(
                name, on_elected=elected, on_lost=lost, policy=nodes and "majority", nodes=nodes
            )
        )
        _elections[-1].start()

    def standing(self, name: str, nodes: list[str]) -> int:
        """How many stand in an election, as that lock server sees it that all of them ask first."""
        lock_id = (ELECTION_ID, name)
        return max(len(locks.queue(lock_id, node=node).requests) for node in nodes)

    def led(self) -> list[int]:
        """The terms in which it has led; 0 when it led no more."""
        return _led

    def info(self, key: str = "a") -> dict[str, Any]:
        info = locks_leader.info(_instances[key].ref, timeout=60)
        return {
            "role": info.role,
            "leader_node": info.leader_node,
            "term": info.term,
            "candidates": len(info.candidates),
            "workers": len(info.workers),
        }

    def content(self, key: str = "a") -> dict[str, Any]:
        found: dict[str, Any] = locks_leader.call(_instances[key].ref, ("content",))
        return found

    def leader_call(self, request: list[Any], key: str = "a", timeout: float = 10) -> Any:
        return locks_leader.leader_call(_instances[key].ref, tuple(request), timeout=timeout)

    def leader_cast(self, message: list[Any], key: str = "a") -> None:
        locks_leader.leader_cast(_instances[key].ref, tuple(message))

    def journal(self, key: str = "a") -> dict[str, Any]:
        journal = _instances[key].journal
        journal.check()
        return {
            "events": journal.events,
            "executed": journal.executed,
            "downs": journal.downs,
            "errors": journal.errors,
        }

    def crash(self, key: str = "a") -> None:
        """Let a callback raise an exception."""
        logging.getLogger("pykka").setLevel(logging.CRITICAL)  # which logs it, as it should
        locks_leader.cast(_instances[key].ref, "crash")

    def kill(self, key: str = "a") -> None:
        locks.actors.kill(_instances[key].ref)

    def end_instance(self, key: str = "a") -> None:
        _instances.pop(key).ref.stop()

    def end_all(self) -> None:
        """End all instances and workers, as well as they let themselves."""
        for hired in _hired.values():
            hired.worker.stop()
        while _hired:
            _hired.popitem()[1].end()
        for key in list(_instances):
            ref = _instances.pop(key).ref
            if ref.is_alive():
                ref.stop()

    # --- Workers that share out groups

    def hire(
        self, path: str, count: int = 2, pause: float = 0.003, groups: int = 12, **options: Any
    ) -> list[str]:
        """So many more workers; returns their names."""
        names = [f"{self._node().name[:2]}.{len(_hired) + number}" for number in range(count)]
        for name in names:
            _hired[name] = Hired(name, path, pause, groups=groups, **options)
        return names

    def dismiss(self, name: str) -> float:
        """Let a worker leave; returns when it was told so."""
        at = time.monotonic()
        _hired[name].worker.stop()
        return at

    def owned(self) -> dict[str, dict[str, int]]:
        """What each worker owns: tokens by group."""
        return {
            name: {str(group): token for group, token in hired.worker.owned().items()}
            for name, hired in _hired.items()
            if hired.worker.joined
        }

    def at_hand(self) -> int:
        """How many tasks are at hand."""
        return sum(hired.worker.statistics().at_hand for hired in _hired.values())

    def moves(self) -> list[int]:
        """How many groups all have gained and lost."""
        found = [hired.worker.statistics() for hired in _hired.values()]
        return [sum(each.gained for each in found), sum(each.lost for each in found)]

    def agreements(self) -> int:
        """How many they know of."""
        return max(hired.worker.statistics().agreements for hired in _hired.values())

    def leads(self) -> bool:
        """Whether one of the workers leads."""
        participants: list[Any] = [
            h.worker._participant
            for h in _hired.values()
            if h.worker.joined and h.worker._participant
        ]
        return any(locks_leader.info(participant).role == "leader" for participant in participants)

    def done(self) -> dict[str, Any]:
        """What each worker has done, and how its writes went."""
        return {name: [hired.tasks, dict(hired.counts)] for name, hired in _hired.items()}

    def stop_node(self) -> None:
        locks.stop()

    def write(self, path: str, key: str = "a") -> None:
        """While the instance leads, write its term into a file, which fences; from now on."""
        threading.Thread(target=_write, args=(path, key, self._node().name), daemon=True).start()


def _write(path: str, key: str, name: str) -> None:
    ledger, instance = Ledger(path), _instances[key]
    while key in _instances:
        events = instance.journal.events
        if instance.journal.leads():
            term = events[-1][2]
            with contextlib.suppress(Stale):
                ledger.write(term, name, ledger.read(term, name))
        time.sleep(0.002)


class Hired:
    """A worker, what it has done, and what it was told.

    Attributes:
        tasks: When each task was begun and ended, and its group.
        gained: When it was granted a group, and which.
        counts: How many writes were taken, and how many refused.
    """

    def __init__(self, name: str, path: str, pause: float, **options: Any) -> None:
        self.name = name
        self.tasks: list[tuple[float, float, int]] = []
        self.gained: list[tuple[float, int]] = []
        self.counts: Counter[str] = Counter()
        self._stores = [Ledger(f"{path}/{group}") for group in range(options["groups"])]
        self._owner = f"{name}/{os.getpid()}"
        self._pause = pause
        self.worker = Ownership("tests", group_for=int, on_gained=self._gained, **options)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _gained(self, group: int, token: int) -> None:
        self.gained.append((time.monotonic(), group))

    def _work(self) -> None:
        with self.worker:
            while self.worker.joined:
                groups = list(self.worker.owned())
                for group in groups:
                    self._do(group)
                if not groups:
                    time.sleep(0.002)

    def _do(self, group: int) -> None:
        store = self._stores[group]
        try:
            with self.worker.hold(group) as token:
                begun = time.monotonic()
                try:
                    number = store.read(token, self._owner)
                    time.sleep(self._pause)
                    store.write(token, self._owner, number)
                    self.counts["written"] += 1
                except Stale:
                    self.counts["refused"] += 1
                except Exception as error:  # for the test to see
                    self.counts[repr(error)] += 1
                self.tasks.append((begun, time.monotonic(), group))
        except (NotOwner, OwnershipEnded):
            self.counts["not owner"] += 1

    def end(self) -> None:
        """Leave."""
        self.worker.stop()
        self._thread.join(10)


_hired: dict[str, Hired] = {}


if __name__ == "__main__":
    main(Candidate)
