"""The circle that an agent of the original finds, and who must give up what in it.

A place in the graph is a lock with one of its holders. An arrow leads from a lock to all places of
the agents that wait for it. The search for circles is depth first, in the order in which the agent
learned of the waits. A circle is the path between a place and a later place that leads back to it.
So if circles share a place, a part may be left out. The circle that is found last counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from locks.model import AgentId
from locks_lab.original.messages import Key
from locks_lab.original.queues import Queue

__all__ = ["Place", "circle"]


class Place(NamedTuple):
    """A lock, and one of its holders, that is of the agents at the head of its queue."""

    agent: AgentId
    key: Key


def circle(queues: Sequence[tuple[Key, Queue]]) -> list[Place]:
    """Return the circle that counts in the queues that an agent knows; empty if there is none.

    Args:
        queues: The queues with waiting agents.
    """
    known = dict(queues)
    places = [
        Place(entry.agent, key) for key, queue in queues if queue for entry in queue[0].entries
    ]
    arrows = {
        place: [
            other
            for other in places
            if other.agent != place.agent
            and any(group.of(other.agent) for group in known[place.key][1:])
        ]
        for place in places
    }
    found = [part for part in _parts(arrows) if len(part) > 1]
    return found[-1] if found else []


class _Visit:
    """A place on the path of the search."""

    def __init__(self, place: Place, arrows: Iterable[Place]) -> None:
        self.place = place
        self.rest = iter(arrows)
        self.back: set[Place] = set()  # the places on the way that can be reached from here


def _parts(arrows: Mapping[Place, Sequence[Place]]) -> Iterable[list[Place]]:
    """The parts of a graph, each in the order in which its places were visited."""
    seen: set[Place] = set()
    for start in arrows:
        if start in seen:
            continue
        seen.add(start)
        open_, path = [start], [_Visit(start, arrows[start])]
        while path:
            here = path[-1]
            place = next(here.rest, None)
            if place is None:
                path.pop()
                outer = {visit.place for visit in path}
                if here.back & outer:
                    path[-1].back |= here.back
                else:
                    first = open_.index(here.place)
                    yield open_[first:]
                    del open_[first:]
            elif place not in seen:
                seen.add(place)
                open_.append(place)
                path.append(_Visit(place, arrows[place]))
            elif any(visit.place == place for visit in path):
                here.back.add(place)
