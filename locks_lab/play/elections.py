"""The board of a world of elections: a candidate on each node."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, cast

from locks.model import AgentId
from locks_lab.leader.node import Uses
from locks_lab.leader.parties import MemberId
from locks_lab.leader.schedule import in_order
from locks_lab.leader.words import ElectionWords, role_of
from locks_lab.leader.world import FREE, ElectionPlan, ElectionWorld
from locks_lab.play.board import MoveGroup, Option, Said, Seen
from locks_lab.play.ours import broken_seen, table_seen
from locks_lab.schedules.schedule import AnyChoice as Choice
from locks_lab.stories.words import capital, listed
from locks_lab.worlds.checks import edges_of
from locks_lab.worlds.network import Link, Party

__all__ = ["ElectionGame"]

ANY_NUMBER = 1_000  # faults that may happen
CALLS = 9  # leader calls
RULE = ("How a leader is elected", "leader_explained.md")
FAULTS = {
    "kill": "{} ends.",
    "cut": "The connection of {} breaks.",
    "mend": "{} can be connected again.",
    "crash": "{} crashes.",
    "restart": "{} is started again.",
    "call": "Somebody calls the leader through {}.",
    "connect": "{} are connected again.",
}


class ElectionGame:
    """A world of one election.

    Args:
        nodes: The nodes.
        rule: The name of the rule; see `locks_lab.leader.rules`.
    """

    def __init__(self, nodes: tuple[str, ...], rule: str) -> None:
        plan = ElectionPlan(
            nodes=nodes,
            rule=rule,
            uses=Uses(call=CALLS),
            cuts=ANY_NUMBER,
            crashes=ANY_NUMBER,
            kills=ANY_NUMBER,
        )
        self.world: ElectionWorld = plan.world()
        self._words = ElectionWords()
        names = listed(f"{each.ref.node}" for each in self.world.instances)
        self._said = [Said((f"A candidate starts on each of {names}.",))]
        self._states = self._all_states()

    def options(self) -> Iterator[Option]:
        """See `Game`."""
        for choice in self.world.choices():
            text, group = self._about(choice)
            yield Option(_move(choice), text, group, partial(self._do, choice, text))

    def _do(self, choice: Choice, text: str) -> None:
        if choice[0] == "deliver":
            self._words.label(choice[1], self.world.network.links[choice[1]][0][-1])
        before = self._states
        self.world.do(choice)
        self._states = self._all_states()
        news = [
            f"  {capital(name)} {state}."
            for name, states in self._states.items()
            for state in states
            if state not in before.get(name, ())
        ]
        self._said.append(Said((text, *news), RULE if news else ()))

    def _about(self, choice: Choice) -> tuple[str, MoveGroup]:
        kind, what = choice
        if kind == "deliver":
            label = self._labels(what)[0]
            return f"{_name(what[0])} → {_name(what[1])}: {label}", "message"
        if kind == "notice":
            there = self.world.network.seen[what] == "healing"
            return (
                f"{what[0]} notices that {what[1]} is {'there again' if there else 'gone'}.",
                "message",
            )
        subject = what[0] if kind == "call" else what
        is_pair = kind in ("cut", "mend", "connect")
        name = listed(subject) if is_pair else _name(subject)
        return capital(FAULTS[kind].format(name)), "fault" if kind in FREE else "message"

    def _labels(self, link: Link) -> list[str]:
        words = self._words.copy()
        queue = self.world.network.links[link]
        return [words.label(link, each) or type(each).__name__ for *_, each in queue]

    def usual(self) -> str | None:
        """See `Game`."""
        choices = self.world.choices(free=False)
        return _move(in_order(self.world, choices)) if choices else None

    def check_end(self) -> None:
        """See `Game`."""
        self.world.check_quiet()

    def said(self) -> list[Said]:
        """See `Game`."""
        return self._said

    def _all_states(self) -> dict[str, list[str]]:
        """The role and the keys of each candidate, in words."""
        found: dict[str, list[str]] = {}
        for each in self.world.instances:
            states = [_role(role_of(each))]
            states += [f"has the keys {listed(sorted(each.app.keys))}"] if each.app.keys else []
            states += [
                f"has the answer to {key}: {value}" for key, value in sorted(each.answers.items())
            ]
            found[_name(each.ref)] = states
        return found

    def seen(self) -> Seen:
        """See `Game`."""
        world = self.world
        numbers = {node: number for number, node in enumerate(world.plan.nodes, 1)}

        def number(agent: AgentId) -> int:
            return numbers[agent.node]

        nodes = [
            {
                "name": node,
                "up": node in world.nodes,
                "table": table_seen(world.nodes[node].server, _name, number)
                if node in world.nodes
                else [],
            }
            for node in numbers
        ]
        edges = [edge for node in world.nodes.values() for edge in edges_of(node.server)]
        return {
            "nodes": nodes,
            "clients": [
                {
                    "number": number(each.ref),
                    "name": _name(each.ref),
                    "node": each.ref.node,
                    "state": _role(role_of(each)),
                    "steps": [],
                    "first": 0,
                    "at": 0,
                    "holds": [f"key {key}" for key in sorted(each.app.keys)],
                    "wants": [],
                    "knows": [
                        f"{capital(name)} is up." for name in sorted(world.nodes[each.ref.node].up)
                    ],
                    "sees": [],
                }
                for each in world.instances
            ],
            "flight": [
                {"from": _name(a), "to": _name(b), "texts": self._labels((a, b))}
                for a, b in world.network.links
            ],
            "waits": [
                {
                    "from": number(waiter.agent),
                    "to": number(holder.agent),
                    "lock": f"on {waiter.node}",
                    "text": f"{_name(waiter.agent)} waits for {_name(holder.agent)}, on {waiter.node}",
                }
                for waiter, holder in edges
                if waiter.agent.node != holder.agent.node
            ],
            "broken": broken_seen(world.network),
        }


def _role(role: str) -> str:
    return role.replace(": candidate", "")


def _name(party: Any) -> str:
    """A candidate, or a node; an agent is its candidate."""
    return f"candidate {party.node}" if isinstance(party, AgentId) else str(party)


def _move(choice: Choice) -> str:
    """A move as text: no two choices of a world have the same."""
    kind, what = choice
    if kind == "call":
        return f"call:{what[0]}"
    return (
        f"{kind}:{'>'.join(map(_party, cast(tuple[Party, ...], what)))}"
        if _is_pair(what)
        else f"{kind}:{_party(what)}"
    )


def _is_pair(what: object) -> bool:
    return isinstance(what, tuple) and not isinstance(what, AgentId)


def _party(party: Party) -> str:
    if isinstance(party, AgentId) and not isinstance(party, MemberId):
        return f"{party.node}~{party.created}"
    return str(party)
