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

__all__ = ["NAMES", "Ref", "Seat", "agreed", "have", "join", "nobody_leads", "part", "sit"]

Ref = pykka.ActorRef[Any]
NAMES = [f"m{number}@127.0.0.1" for number in range(5)]


class Seat(NamedTuple):
    """An instance, its node and its journal."""

    node: locks.Node
    ref: Ref
    journal: Journal

    @property
    def info(self) -> Info:
        """What it knows."""
        return locks_leader.info(self.ref)

    @property
    def content(self) -> Any:
        """Its dictionary."""
        return locks_leader.call(self.ref, ("content",))

    def store(self, key: str, value: Any = 1) -> None:
        """Write through it."""
        assert locks_leader.leader_call(self.ref, ("store", key, value)) == "ok"


def sit(node: locks.Node, behaviour: type[GDict] = GDict, **options: Any) -> Seat:
    """Start an instance."""
    journal = Journal()
    options.setdefault("resource", "r")
    return Seat(node, locks_leader.start(behaviour, journal, node=node, **options), journal)


def agreed(seats: Iterable[Seat], limit: float = LIMIT) -> tuple[Seat, list[Seat]]:
    """Wait until one of these leads and the others follow it; returns it, and the others."""
    seats = list(seats)
    found: list[Seat] = []

    def agree() -> bool:
        infos = [seat.info for seat in seats]
        found[:] = [s for s, i in zip(seats, infos, strict=True) if i.role == "leader"]
        following = [info for info in infos if info.role == "following"]
        return (
            len(found) == 1
            and len(following) == len(seats) - 1
            and {(info.leader_node, info.term) for info in infos}
            == {(found[0].node.name, found[0].info.term)}
            and all(
                info.leader == found[0].ref
                for seat, info in zip(seats, infos, strict=True)
                if seat.node is found[0].node
            )
        )

    eventually(agree, limit)
    return found[0], [seat for seat in seats if seat is not found[0]]


def nobody_leads(seats: Iterable[Seat]) -> None:
    """Wait until none of these leads, or follows."""
    for seat in seats:
        eventually(lambda seat=seat: (seat.info.role, seat.info.leader) == ("candidate", None))  # type: ignore[misc]


def have(seats: Iterable[Seat], **content: Any) -> None:
    """Wait until all have exactly this content."""
    for seat in seats:
        eventually(lambda seat=seat: seat.content == content)  # type: ignore[misc]


def part(one: Iterable[Seat], other: Iterable[Seat]) -> None:
    """Cut the links between two parts."""
    pairs = [(a.node, b.node) for a in one for b in other]
    for a, b in pairs:
        a.disconnect(b.name)
        b.disconnect(a.name)


def join(one: Iterable[Seat], other: Iterable[Seat]) -> None:
    """Connect two parts."""
    pairs = [(a.node, b.node) for a in one for b in other]
    for a, b in pairs:
        b.connect(peer(a), timeout=0)
        assert a.connect(peer(b))
