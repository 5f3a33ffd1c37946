"""A program with a node and workers that share out groups, for the tests (see `tests.cluster.worker`).

Each worker is a thread. It does one task after the other on each group that is its own: it reads a
number from the group's file, waits a little, and writes it back increased. The file fences.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from typing import Any

import locks_leader
from locks.ownership import NotOwner, OwnershipEnded
from locks_leader import Ownership
from tests.cluster.ledger import Ledger, Stale
from tests.cluster.worker import main
from tests.leader.worker import Candidate

__all__ = ["Hired", "Owner"]


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


class Owner(Candidate):
    """A client that can have workers."""

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

    def last_gain(self) -> float:
        """When a group was granted last."""
        return max((at for hired in _hired.values() for at, _ in hired.gained), default=0.0)

    def end_all(self) -> None:
        """All leave."""
        for hired in _hired.values():
            hired.worker.stop()
        for hired in _hired.values():
            hired.end()
        _hired.clear()


if __name__ == "__main__":
    main(Owner)
