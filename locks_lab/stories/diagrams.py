"""Traces as Mermaid diagrams.

`sequence_diagram` draws each message where it arrives. So everything that a party knows is above
the party's reaction. A message that has not arrived when the trace ends is drawn where it was sent,
with a cross. Messages without news are left out: answers to releases, and messages of an agent that
has dropped its knowledge and asks what is still current. `wait_for_graph` draws who waits for whom,
with thick arrows for cycles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from locks.core.messages import (
    Knowledge,
    Surrender,
    Surrendered,
)
from locks.errors import assert_never
from locks.model import AgentId, Edge, show
from locks_lab.stories.formatter import Formatter, name_of
from locks_lab.stories.story import teller_for
from locks_lab.stories.words import listed
from locks_lab.worlds.checks import reached
from locks_lab.worlds.client import SERIALS
from locks_lab.worlds.events import Event
from locks_lab.worlds.host import Mail
from locks_lab.worlds.network import Party
from locks_lab.worlds.trace import Post, agents_of, neighbours, nodes_of

__all__ = ["escape", "folded", "sequence_diagram", "wait_for_graph"]

WIDTH = 40  # of labels, about
SAFE = frozenset(" .,-_/()'=+*!?:\n")


def escape(text: str) -> str:
    """Escape a text for a label of Mermaid: special characters are written as codes."""
    found = "".join(c if c.isalnum() or c in SAFE else f"#{ord(c)};" for c in text)
    return found.replace("\n", "<br/>")


# --- Sequence diagrams --------------------------------------------------------------------------


def sequence_diagram(events: Iterable[Event]) -> str:
    """Draw the messages, and the findings of agents.

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
            if event.choice[0] == "deliver" and arrival is not None:
                assert event.message is not None
                yield from self._arrow("->>", (*event.choice[1], event.message))
            yield from self._notes(event)
            for mail in event.sent:
                if number not in arrived:
                    yield from self._arrow("-x", mail)
                number += 1

    def _arrow(self, arrow: str, mail: Mail) -> Iterator[str]:
        label = self.formatter.label(*mail)
        if label:
            yield f"    {self.ids[mail[0]]}{arrow}{self.ids[mail[1]]}: {folded(label)}"

    def _notes(self, event: Event) -> Iterator[str]:
        text, parties = self._remark(event)
        if text:
            yield self._note(text, *parties)

    def _remark(self, event: Event) -> tuple[str, tuple[Party, ...]]:
        """A note about an event, and its parties; empty if the event needs none."""
        here = () if event.party is None else (event.party,)
        match event.choice:
            case ("cut", pair):
                return "the connection breaks", pair
            case ("mend", pair):
                return "the connection can be made again", pair
            case ("connect", pair):
                return "the connection is there again", pair
            case ("notice", (me, other)):
                return f"{other} is {'there again' if event.there else 'gone'}", (me,)
            case ("crash", node):
                return "crashes", (node,)
            case ("restart", node):
                return "is started again", (node,)
            case ("time out", _):
                return "gives up waiting", here
            case ("die", _):
                return "crashes" if event.fate == "crashes" else "dies", here
            case ("settle", _):
                return self._finding(event), here
            case ("deliver", _):
                return self._judgement(event), here
            case ("step", _):
                return "", ()
            case _:
                assert_never(event.choice)

    def _judgement(self, event: Event) -> str:
        """The result of a surrender at a lock server."""
        message = event.message
        if not isinstance(message, Surrender) or message.report is None:
            return ""
        done = any(isinstance(m, Surrendered) and m.done for *_, m in event.sent)
        edge = self.formatter.arrow(message.report.cycle[0])
        return f"as it was: {edge}" if done else "it has changed meanwhile"

    def _finding(self, event: Event) -> str:
        """The finding of an agent, if the agent acts on it."""
        me, found = event.party, event.found
        if found is None or not isinstance(me, AgentId):
            return ""
        sent = [message for *_, message in event.sent]
        if any(isinstance(message, Surrender) for message in sent):
            return "a circle, and I am the youngest"
        before, behind = neighbours(me, found)
        if not (before and behind and any(isinstance(m, Knowledge) and m.records for m in sent)):
            return ""
        wait = "wait" if len(before) > 1 else "waits"
        to_me, from_me = listed(map(self.name, before)), listed(map(self.name, behind))
        return f"{to_me} {wait} for me, I wait for {from_me}"

    def _note(self, text: str, *parties: Party) -> str:
        return f"    Note over {','.join(self.ids[party] for party in parties)}: {folded(text)}"


# --- Wait-for graphs ----------------------------------------------------------------------------


def wait_for_graph(edges: Iterable[Edge]) -> str:
    """Draw who waits for whom.

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


def folded(text: str) -> str:
    """A label in several lines, if it is long."""
    lines = [""]
    for part in re.split(r"(?<=[,;]) ", text):
        if lines[-1] and len(lines[-1]) + len(part) > WIDTH:
            lines.append(part)
        else:
            lines[-1] = f"{lines[-1]} {part}".strip()
    return escape("\n".join(lines))
