"""Instances of elections on nodes of this process, and what tests wait for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pykka

import locks
import locks_leader
from locks_leader import Info
from tests.cluster.nodes import peer
from tests.helpers import LIMIT, eventually
from tests.leader.gdict import GDict, Journal

__all__ = [
    "NAMES",
    "Member",
    "Ref",
    "agreed",
    "have",
    "join",
    "nobody_leads",
    "part",
    "start_member",
]

Ref = pykka.ActorRef[Any]
NAMES = [f"m{number}@127.0.0.1" for number in range(5)]


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


def part(one: Iterable[Member], other: Iterable[Member]) -> None:
    """Cut the links between two parts."""
    pairs = [(a.node, b.node) for a in one for b in other]
    for a, b in pairs:
        a.disconnect(b.name)
        b.disconnect(a.name)


def join(one: Iterable[Member], other: Iterable[Member]) -> None:
    """Connect two parts."""
    pairs = [(a.node, b.node) for a in one for b in other]
    for a, b in pairs:
        b.connect(peer(a), timeout=0)
        assert a.connect(peer(b))
