"""Traces as Mermaid diagrams.

`sequence_diagram` draws each message where it arrives, so that all that a party knows stands above
what it does. A message that has not arrived when the trace ends is drawn where it was sent, with a
cross. Left out is what says nothing new: answers to releases, that somebody has forgotten what it was
told, and asks what still matters. `wait_for_graph` draws who waits for whom; the thick arrows are
those of a cycle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from locks.core.agent.wait_graph import Exploration
from locks.core.messages import (
    Knowledge,
    RaiseVersion,
    Release,
    Remove,
    Request,
    RequestStates,
    Resolved,
    StandingElsewhere,
    Surrender,
    Surrendered,
    VersionRaised,
)
from locks.model import AgentId, Edge, RequestRecord, show
from locks.sim.checks import reached
from locks.sim.client import SERIALS
from locks.sim.formatter import Formatter, listed, name_of
from locks.sim.host import Mail
from locks.sim.network import Party
from locks.sim.story import teller_for
from locks.sim.trace import Post, agents_of, neighbours, nodes_of
from locks.sim.world import Event

__all__ = ["escape", "sequence_diagram", "wait_for_graph"]

WIDTH = 40  # of labels, about
SAFE = frozenset(" .,-_/()'=+*!?:\n")
FAULTS = {
    "cut": "the connection breaks",
    "mend": "the connection can be made again",
    "connect": "the connection is there again",
    "crash": "crashes",
    "restart": "is started again",
}


def escape(text: str) -> str:
    """A text as Mermaid takes it in a label; what could mean something to it is written as codes."""
    found = "".join(c if c.isalnum() or c in SAFE else f"#{ord(c)};" for c in text)
    return found.replace("\n", "<br/>")


# --- Sequence diagrams --------------------------------------------------------------------------


def sequence_diagram(events: Iterable[Event]) -> str:
    """Who sends what to whom, and what agents find.

    Args:
        events: The events of a world that was made with `trace=True`.

    Returns:
        A Mermaid sequence diagram.
    """
    return "\n".join(_Sequence(list(events)).lines())


class _Sequence:
    """Draws events."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self.formatter = teller_for(events)
        self.name = self.formatter.name
        self.ids = self._ids()

    def _ids(self) -> dict[Party, str]:
        """The participants, with their ids in the diagram."""
        nodes = nodes_of(self.events)
        found: dict[Party, str] = {
            node: f"S{number}" if len(nodes) > 1 else "S" for number, node in enumerate(nodes, 1)
        }
        for agent in sorted(agents_of(self.events), key=lambda a: (a.serial % SERIALS, a.serial)):
            found[agent] = _agent_id(agent)
        return found

    def lines(self) -> Iterator[str]:
        """The diagram's lines."""
        yield "sequenceDiagram"
        for party, short in self.ids.items():
            name = self.formatter.server(party) if isinstance(party, str) else self.name(party)
            yield f"    participant {short} as {escape(name.removeprefix('the '))}"
        post = Post()
        arrivals = [post.note(event) for event in self.events]
        arrived = {arrival[0] for arrival in arrivals if arrival is not None}
        number = 0
        for event, arrival in zip(self.events, arrivals, strict=True):
            if arrival is not None:
                sender, receiver = event.choice[1]
                yield from self._arrow("->>", (sender, receiver, event.detail))
            yield from self._notes(event)
            for mail in event.sent:
                if number not in arrived:
                    yield from self._arrow("-x", mail)
                number += 1

    def _arrow(self, arrow: str, mail: Mail) -> Iterator[str]:
        label = self._label(*mail)
        if label:
            yield f"    {self.ids[mail[0]]}{arrow}{self.ids[mail[1]]}: {_folded(label)}"

    def _label(self, sender: Party, receiver: Party, message: Any) -> str:
        """What is said, as short as possible."""
        if isinstance(message, Request):
            to = f"to {message.mode} " if self.formatter.reads else ""
            wish = f"wants {to}{show(message.lock_id)}"
            if message.waits_elsewhere:
                return f"{wish}, waits elsewhere"
            return f"{wish}, has requests elsewhere" if message.requests_elsewhere else wish
        if isinstance(message, Release):
            return f"releases {show(message.lock_id)}"
        if isinstance(message, Remove):
            return "lets go of everything"
        if isinstance(message, RaiseVersion):
            return f"token {message.version} of {show(message.lock_id)}?"
        if isinstance(message, VersionRaised):
            return f"token {message.version} of {show(message.lock_id)}: {'yes' if message.done else 'no'}"
        if isinstance(message, StandingElsewhere):
            if message.waits_elsewhere:
                return "waits elsewhere"
            return "has requests elsewhere" if message.requests_elsewhere else "is here alone"
        if isinstance(message, Surrender):
            return "aborts" if message.aborts else f"surrenders {show(message.lock_id)}"
        what: list[str] = []
        if isinstance(message, Surrendered):
            what.append("done" if message.done else "refused")
        elif isinstance(message, Resolved):
            what.append("the deadlock is resolved")
        if isinstance(message, (RequestStates, Knowledge, Resolved, Surrendered)):
            what += self._facts(sender, receiver, message.records)
        return ", ".join(what)

    def _facts(
        self, sender: Party, receiver: Party, records: Sequence[RequestRecord]
    ) -> Iterator[str]:
        subjects = {sender: "I", receiver: "you"}
        for record, before in self.formatter.news(sender, receiver, records):
            yield self.formatter.fact(record, before, subjects.get(record.agent, ""), sender)

    def _notes(self, event: Event) -> Iterator[str]:
        kind, what = event.choice
        if kind in FAULTS:
            nodes = (what,) if isinstance(what, str) else what
            yield self._note(FAULTS[kind], *nodes)
        elif kind == "notice":
            yield self._note(f"{what[1]} is {'there again' if event.detail else 'gone'}", what[0])
        elif event.party is not None:
            text = self._remark(event)
            if text:
                yield self._note(text, event.party)

    def _remark(self, event: Event) -> str:
        """What is worth a note about what a party does."""
        kind, message = event.choice[0], event.detail
        if kind == "time out":
            return "gives up waiting"
        if kind == "die":
            return "crashes" if message == "crashes" else "dies"
        if kind == "settle" and event.found is not None and isinstance(event.party, AgentId):
            return self._finding(event.party, event.found, [m for *_, m in event.sent])
        if kind == "deliver" and isinstance(message, Surrender) and message.report is not None:
            done = any(isinstance(m, Surrendered) and m.done for *_, m in event.sent)
            edge = self.formatter.arrow(message.report.cycle[0])
            return f"as it was: {edge}" if done else "it has changed meanwhile"
        return ""

    def _finding(self, me: AgentId, found: Exploration, sent: Sequence[Any]) -> str:
        """What an agent finds, if it does something about it."""
        if any(isinstance(message, Surrender) for message in sent):
            return "a circle, and I am the youngest"
        before, behind = neighbours(me, found)
        if not (before and behind and any(isinstance(m, Knowledge) and m.records for m in sent)):
            return ""
        wait = "wait" if len(before) > 1 else "waits"
        to_me, from_me = listed(map(self.name, before)), listed(map(self.name, behind))
        return f"{to_me} {wait} for me, I wait for {from_me}"

    def _note(self, text: str, *parties: Party) -> str:
        return f"    Note over {','.join(self.ids[party] for party in parties)}: {_folded(text)}"


# --- Wait-for graphs ----------------------------------------------------------------------------


def wait_for_graph(edges: Iterable[Edge]) -> str:
    """Who waits for whom.

    Args:
        edges: Edges from request to request, such as those of `World.edges`.

    Returns:
        A Mermaid flowchart, with an arrow from each agent to each one that it waits for. Thick
        arrows belong to a cycle.
    """
    edges = list(edges)
    several = len({edge.waiter.node for edge in edges}) > 1
    reads = any(record.mode == "read" for edge in edges for record in edge)
    formatter = Formatter(several=several, reads=reads)
    labels: dict[tuple[AgentId, AgentId], dict[str, None]] = {}
    for waiter, holder in edges:
        wish = f"{waiter.mode} {show(waiter.lock_id)}" if reads else show(waiter.lock_id)
        pair = (waiter.agent, holder.agent)
        labels.setdefault(pair, {})[f"wants {wish}{formatter.at(waiter.node)}"] = None
    lines = ["flowchart LR"]
    for agent in sorted({agent for pair in labels for agent in pair}):
        lines.append(f'    {_agent_id(agent)}(["{escape(name_of(agent))}"])')
    follow: dict[AgentId, set[AgentId]] = {}
    for waiter_id, holder_id in labels:
        follow.setdefault(waiter_id, set()).add(holder_id)
    for (waiter_id, holder_id), wishes in labels.items():
        tail, head = ("==", "==>") if waiter_id in reached(holder_id, follow) else ("--", "-->")
        label = escape("\n".join(wishes))
        lines.append(f'    {_agent_id(waiter_id)} {tail} "{label}" {head} {_agent_id(holder_id)}')
    return "\n".join(lines)


# --- Texts --------------------------------------------------------------------------------------


def _agent_id(agent: AgentId) -> str:
    generation, number = divmod(agent.serial, SERIALS)
    return f"A{number}" + (f"_{generation + 1}" if generation else "")


def _folded(text: str) -> str:
    """A label in several lines, if it is long."""
    lines = [""]
    for part in re.split(r"(?<=[,;]) ", text):
        if lines[-1] and len(lines[-1]) + len(part) > WIDTH:
            lines.append(part)
        else:
            lines[-1] = f"{lines[-1]} {part}".strip()
    return escape("\n".join(lines))
