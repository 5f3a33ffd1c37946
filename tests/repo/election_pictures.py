"""Pictures of an election, as Mermaid diagrams: `python -m tests.repo.election_pictures roles`.

`roles` draws the table of transitions. The others run a small simulated world (`locks_lab.leader`)
in which messages arrive in the order of sending. They draw each message where it arrives:

    election    two candidates start on two connected nodes
    succession  three candidates on three nodes; the leader's node crashes

A candidate and its agents are one party. A node's lock server and its process groups are one party,
too. Messages that contain nothing new, or only keep knowledge up to date, are left out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from locks_lab.leader.node import EAGER
from locks_lab.leader.schedule import in_order
from locks_lab.leader.words import CANDIDATE, ElectionWords, role_of
from locks_lab.leader.world import ElectionPlan, ElectionWorld
from locks_lab.schedules.schedule import AnyChoice as Choice
from locks_lab.stories.diagrams import escape
from locks_lab.worlds.network import Link, Party, home_of
from locks_leader.core.machine import TRANSITIONS

__all__ = ["main", "roles", "story"]


def roles() -> str:
    """The transitions from each role."""
    lines = ["stateDiagram-v2", "    [*] --> candidate"]
    labels: dict[tuple[str, str], list[str]] = {}
    for (role, change), becomes in TRANSITIONS.items():
        labels.setdefault((role, becomes), []).append(change)
    lines += [f"    {a} --> {b}: {', '.join(what)}" for (a, b), what in labels.items()]
    return "\n".join(lines)


def story(name: str) -> str:
    """One of the stories of this module, as a sequence diagram."""
    nodes, tell = STORIES[name]
    scene = _Scene(nodes)
    tell(scene)
    return "\n".join(scene.lines())


def _election(scene: _Scene) -> None:
    scene.settle()


def _succession(scene: _Scene) -> None:
    scene.settle()
    scene.begin()
    scene.do(("crash", "n1"))
    scene.settle()


STORIES: dict[str, tuple[int, Callable[[_Scene], None]]] = {
    "election": (2, _election),
    "succession": (3, _succession),
}


class _Scene:
    """A world with a candidate on each node, and the drawing of its events.

    Args:
        nodes: The number of nodes.
    """

    def __init__(self, nodes: int) -> None:
        names = tuple(f"n{number}" for number in range(1, nodes + 1))
        self.world: ElectionWorld = ElectionPlan(nodes=names, eager=EAGER - {"local"}).world()
        self.drawn: list[str] = []
        self._words = ElectionWords()
        self._roles: dict[str, str] = {}
        self._note_roles()
        self.begin()

    def begin(self) -> None:
        """Drop the events so far from the drawing; draw only the state that they led to."""
        self.drawn.clear()
        for node, text in self._roles.items():
            if text != CANDIDATE:
                self.drawn.append(_note(_candidate(node), text))

    def settle(self) -> None:
        """Continue until nothing needs to happen any more."""
        while choices := self.world.choices(free=False):
            self.do(in_order(self.world, choices))

    def do(self, choice: Choice) -> None:
        """Make something happen, and draw it."""
        kind, what = choice
        if kind in ("deliver", "local"):
            label = self._words.label(what, self._message(kind, what))
            if label:
                sender, receiver = map(self._party, what)
                self.drawn.append(f"    {sender}->>{receiver}: {escape(label)}")
        elif kind == "crash":
            self.drawn.append(_note(_node(what), "crashes, with its candidate"))
        self.world.do(choice)
        if kind == "notice" and what[1] not in self.world.nodes[what[0]].up:
            self.drawn.append(_note(_node(what[0]), f"{what[1]} is gone"))
        self._note_roles()

    def lines(self) -> Iterator[str]:
        """The diagram's lines."""
        yield "sequenceDiagram"
        names = self.world.plan.nodes
        for name in names:
            parties = [
                f"{_candidate(name)} as candidate {name[1:]}",
                f"{_node(name)} as node {name}",
            ]
            for party in parties if name != names[-1] else reversed(parties):
                yield f"    participant {party}"
        yield from self.drawn

    def _message(self, kind: str, link: Link) -> Any:
        """The message that is about to arrive."""
        if kind == "deliver":
            return self.world.network.links[link][0][-1]
        return self.world.nodes[home_of(link[1])].local[link][0][-1]

    def _party(self, party: Party) -> str:
        return _node(party) if isinstance(party, str) else _candidate(party.node)

    def _note_roles(self) -> None:
        """Draw the new roles of the candidates."""
        for instance in self.world.instances:
            role = role_of(instance)
            node = instance.ref.node
            if self._roles.get(node, CANDIDATE) != role:
                self.drawn.append(_note(_candidate(node), role))
            self._roles[node] = role


def _candidate(node: str) -> str:
    return f"C{node[1:]}"


def _node(node: str) -> str:
    return f"N{node[1:]}"


def _note(parties: str, text: str) -> str:
    return f"    Note over {parties}: {escape(text)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a diagram; return the exit status.

    Args:
        arguments: The arguments; those of the process by default.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tests.repo.election_pictures",
        description="Pictures of an election, for Mermaid.",
    )
    parser.add_argument("what", choices=["roles", *STORIES])
    what = parser.parse_args(arguments).what
    print(roles() if what == "roles" else story(what))
    return 0


if __name__ == "__main__":
    sys.exit(main())
