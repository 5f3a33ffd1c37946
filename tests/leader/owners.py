"""Workers that share out groups over nodes of this process, and what tests wait for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

import locks
import locks_leader
from locks.ownership import NotOwner
from locks_leader import Ownership
from tests.cluster.nodes import Nodes, peer
from tests.helpers import LIMIT, eventually

__all__ = [
    "GROUPS",
    "NAMES",
    "Diary",
    "Hand",
    "hire",
    "join",
    "leader_of",
    "part",
    "shared",
    "staff",
]

NAMES = [f"m{number}@127.0.0.1" for number in range(5)]
GROUPS = 12


class Diary:
    """What the callbacks of some workers were told, in order: (worker, "gained" or "lost", group)."""

    def __init__(self) -> None:
        self.events: list[tuple[int, str, int]] = []
        self.tokens: dict[int, list[int]] = {}  # of each group, in the order in which they came

    def callbacks(self, worker: int) -> dict[str, Any]:
        """The callbacks of one worker."""

        def gained(group: int, token: int) -> None:
            self.events.append((worker, "gained", group))
            self.tokens.setdefault(group, []).append(token)

        def lost(group: int) -> None:
            self.events.append((worker, "lost", group))

        return {"on_gained": gained, "on_lost": lost}

    def check(self) -> None:
        """No group has two owners at once, and tokens rise."""
        owner: dict[int, int] = {}
        for worker, what, group in self.events:
            if what == "gained":
                assert group not in owner, f"{group} is of {owner[group]}, and {worker} gains it"
                owner[group] = worker
            else:
                assert owner.pop(group) == worker
        for group, tokens in self.tokens.items():
            assert tokens == sorted(set(tokens)), (group, tokens)


def hire(node: locks.node.Node, **options: Any) -> Ownership:
    """A worker that has joined, on a node of this process, for the calling thread."""
    options.setdefault("groups", GROUPS)
    worker = Ownership("ingest", group_for=int, node=node, **options)
    worker.join()
    return worker


def staff(
    nodes: Nodes, /, names: Sequence[str] = NAMES[:3], each: int = 1, **options: Any
) -> list[Ownership]:
    """Workers on nodes that are connected, which have shared out all groups."""
    met = nodes.meet(*names, mesh=False)
    workers = [hire(node, **options) for node in met for _ in range(each)]
    eventually(lambda: shared(workers))
    return workers


def shared(workers: Iterable[Ownership]) -> bool:
    """Whether these own all groups, each group one of them, and nobody has many more than another."""
    owned = [worker.owned() for worker in workers]
    counts = [len(each) for each in owned]
    groups = sorted(group for each in owned for group in each)
    return groups == list(range(GROUPS)) and max(counts) - min(counts) <= 1


def leader_of(workers: Iterable[Ownership]) -> Ownership:
    """The one that leads."""

    def find() -> Ownership | None:
        found = [
            w
            for w in workers
            if w._participant and locks_leader.info(w._participant).role == "leader"
        ]
        return found[0] if len(found) == 1 else None

    found = eventually(find)
    assert found is not None
    return found


def part(one: Iterable[locks.node.Node], other: Iterable[locks.node.Node]) -> None:
    """Cut the links between two parts."""
    for a, b in [(a, b) for a in one for b in other]:
        a.disconnect(b.name)
        b.disconnect(a.name)


def join(one: Iterable[locks.node.Node], other: Iterable[locks.node.Node]) -> None:
    """Connect two parts."""
    for a, b in [(a, b) for a in one for b in other]:
        b.connect(peer(a), timeout=0)
        assert a.connect(peer(b))


class Hand:
    """A task at hand, in a thread of its own, until it is put down."""

    def __init__(self, worker: Ownership, group: int) -> None:
        self.token = 0
        self._begun = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(worker, group), daemon=True)
        self._thread.start()
        assert self._begun.wait(LIMIT)

    def _work(self, worker: Ownership, group: int) -> None:
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            try:
                with worker.hold(group) as self.token:
                    self._begun.set()
                    assert self._over.wait(2 * LIMIT)
                    return
            except NotOwner:  # not yet
                time.sleep(0.001)

    def put_down(self) -> None:
        """End the task."""
        self._over.set()
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()
