"""Instances of elections, and workers that share out groups, on nodes of this process; and what tests wait for."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pykka

import locks
import locks_leader
from locks.ownership import NotOwner
from locks_leader import Info, Ownership
from tests.cluster.nodes import Nodes, peer
from tests.helpers import LIMIT, eventually
from tests.leader.gdict import GDict, Journal

Ref = pykka.ActorRef[Any]
NAMES = [f"m{number}@127.0.0.1" for number in range(5)]
GROUPS = 12


class Member(NamedTuple):
    """An instance, its node and its journal."""

    node: locks.node.Node
    ref: Ref
    journal: Journal

    @property
    def info(self) -> Info:
        """What it knows."""
        return locks_leader.info(self.ref, timeout=LIMIT)

    @property
    def content(self) -> Any:
        """Its dictionary."""
        return locks_leader.call(self.ref, ("content",))

    def store(self, key: str, value: Any = 1) -> None:
        """Write through it."""
        assert locks_leader.leader_call(self.ref, ("store", key, value)) == "ok"


def start_member(node: locks.node.Node, behaviour: type[GDict] = GDict, **options: Any) -> Member:
    """Start an instance."""
    journal = Journal()
    options.setdefault("resource", "r")
    return Member(node, locks_leader.start(behaviour, journal, node=node, **options), journal)


def agreed(members: Iterable[Member], limit: float = LIMIT) -> tuple[Member, list[Member]]:
    """Wait until one of these leads and the others follow it; returns it, and the others."""
    members = list(members)
    found: list[Member] = []

    def agree() -> bool:
        infos = [member.info for member in members]
        found[:] = [m for m, i in zip(members, infos, strict=True) if i.role == "leader"]
        following = [info for info in infos if info.role == "following"]
        return (
            len(found) == 1
            and len(following) == len(members) - 1
            and {(info.leader_node, info.term) for info in infos}
            == {(found[0].node.name, found[0].info.term)}
            and all(
                info.leader == found[0].ref
                for member, info in zip(members, infos, strict=True)
                if member.node is found[0].node
            )
        )

    eventually(agree, limit)
    return found[0], [member for member in members if member is not found[0]]


def nobody_leads(members: Iterable[Member]) -> None:
    """Wait until none of these leads, or follows."""
    for member in members:
        eventually(lambda m=member: (m.info.role, m.info.leader) == ("candidate", None))  # type: ignore[misc]


def have(members: Iterable[Member], **content: Any) -> None:
    """Wait until all have exactly this content."""
    for member in members:
        eventually(lambda member=member: member.content == content)  # type: ignore[misc]


def part(one: Iterable[Any], other: Iterable[Any]) -> None:
    """Cut the links between two parts: of members, or of nodes."""
    for a, b in _pairs(one, other):
        a.disconnect(b.name)
        b.disconnect(a.name)


def join(one: Iterable[Any], other: Iterable[Any]) -> None:
    """Connect two parts."""
    for a, b in _pairs(one, other):
        b.connect(peer(a), timeout=0)
        assert a.connect(peer(b))


def _pairs(
    one: Iterable[Any], other: Iterable[Any]
) -> list[tuple[locks.node.Node, locks.node.Node]]:
    first, second = (
        [e.node if isinstance(e, Member) else e for e in part] for part in (one, other)
    )
    return list(itertools.product(first, second))


# --- Workers that share out groups ------------------------------------------------------------


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
