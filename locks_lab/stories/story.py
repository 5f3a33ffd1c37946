"""Stories: the events of a world in sentences.

`act` lets clients take their steps in turn, in a world whose story is easy to read. `tell` turns
the events of any world that was made with `trace=True` into sentences. Lines at the margin are
actions of clients, and faults of nodes and connections. Indented lines are their consequences: lock
servers grant and refuse, agents examine their knowledge, and explain their actions.

A message is mentioned when it is sent. Its arrival is not mentioned, unless its receiver has acted
since, or has received a message that was sent later. An agent that examines its knowledge and does
nothing is not mentioned.

The sentences about messages are in `locks_lab.stories.formatter`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from locks.core.agent.wait_graph import Exploration
from locks.core.messages import (
    Knowledge,
    Release,
    Remove,
    Request,
    RequestStates,
    Resolved,
    Surrendered,
)
from locks.errors import assert_never
from locks.model import AgentId, Edge, Require, show
from locks_lab.schedules.schedule import finish
from locks_lab.stories.formatter import Formatter
from locks_lab.stories.words import capital, listed
from locks_lab.worlds.client import SERIALS
from locks_lab.worlds.events import Event
from locks_lab.worlds.host import Message, Violation
from locks_lab.worlds.network import Link, Pair, Party
from locks_lab.worlds.rules import OURS, Rule
from locks_lab.worlds.script import Step
from locks_lab.worlds.trace import Post, agents_of, neighbours, nodes_of
from locks_lab.worlds.world import World

__all__ = ["Unfinished", "act", "tell", "tell_each", "teller_for"]

MOST = 20_000  # events of a story
ENOUGH: dict[Require, str] = {
    "any": "One of {} is enough.",
    "majority": "A majority of {} is enough.",
    "all_alive": "Those of {} that are up are enough.",
    "majority_alive": "A majority of those of {} that are up is enough.",
}


# --- Acting -------------------------------------------------------------------------------------


class Unfinished(Violation):
    """A story that has failed.

    Attributes:
        world: The world, with its events.
    """

    def __init__(self, message: str, world: World) -> None:
        super().__init__(message)
        self.world = world


def act(
    scripts: Iterable[str | Iterable[Step | tuple[Any, ...]]],
    nodes: Sequence[str] = ("n1",),
    homes: Sequence[str] = (),
    rule: Rule = OURS,
    turns: Iterable[int] = (),
    **options: Any,
) -> World:
    """Let clients take their steps in turn; all messages arrive in between, the oldest first.

    Args:
        scripts: The scripts of the clients.
        nodes: The nodes.
        homes: The nodes of the clients, in turn; all on the first node by default.
        rule: The machines of the world.
        turns: The clients that take the first steps, by number; afterwards all that can continue,
            in turn.
        options: Options of the agents.

    Returns:
        The world after all have finished, with its `events`.

    Raises:
        Unfinished: A check failed, or a client is stuck.
        InvalidOption: A client whose turn it is cannot take a step.
    """
    world = World(scripts, nodes, homes=homes, rule=rule, trace=True, **options)
    try:
        finish(world, MOST, turns=turns)
    except Violation as violation:
        raise Unfinished(str(violation), world) from violation
    return world


# --- Telling ------------------------------------------------------------------------------------


def tell(events: Iterable[Event]) -> Iterator[str]:
    """Describe events in sentences, one for each line.

    Args:
        events: The events of a world that was made with `trace=True`.
    """
    for lines in tell_each(list(events)):
        yield from lines


def tell_each(events: Sequence[Event], agents: Iterable[AgentId] = ()) -> Iterator[list[str]]:
    """Describe the beginning, and then each event, in sentences.

    Args:
        events: The events of a world that was made with `trace=True`.
        agents: Agents that may not occur in them yet.
    """
    return _Narrator(events, agents).tell(events)


def teller_for(events: Sequence[Event]) -> Formatter:
    """A formatter that mentions nodes and modes only if these events need it."""
    modes = {m.mode for event in events for *_, m in event.sent if isinstance(m, Request)}
    return Formatter(several=len(nodes_of(events)) > 1, reads="read" in modes)


class _Narrator:
    """Tells events."""

    def __init__(self, events: Sequence[Event], agents: Iterable[AgentId]) -> None:
        self.formatter = teller_for(events)
        self.agents = sorted({*agents_of(events), *agents})
        self.name = self.formatter.name
        self.post = Post()
        self.now: dict[int, AgentId] = {}  # the present agents of the clients, by number
        self.collecting: set[AgentId] = set()  # agents that wait until they hold everything
        self.patient: set[AgentId] = set()  # agents whose grants are worth mentioning

    def tell(self, events: Iterable[Event]) -> Iterator[list[str]]:
        yield [*self._opening()]
        for event in events:
            if isinstance(event.party, AgentId):
                self.now[event.party.serial % SERIALS] = event.party
            margin = "  " if event.choice[0] in ("deliver", "settle") else ""
            lines = [f"{margin}{line}" for line in self._told(event)]
            if isinstance(event.party, AgentId):
                lines += self._afterwards(event, event.party)
            yield lines

    def _told(self, event: Event) -> Iterator[str]:
        """Describe an event in sentences."""
        match event.choice:
            case ("deliver", link):
                return self._deliver(event, link)
            case ("settle", _):
                return self._settle(event)
            case ("step", _):
                return self._step(event)
            case ("time out", _):
                return self._time_out(event)
            case ("die", _):
                return self._die(event)
            case ("notice", pair):
                return self._notice(event, pair)
            case ("connect", pair):
                return self._connection(event, pair, "is there again")
            case ("cut", pair):
                return self._connection(event, pair, "breaks")
            case ("mend", pair):
                return self._connection(event, pair, "can be made again")
            case ("crash", node):
                return self._crash(event, node)
            case ("restart", node):
                return iter([f"{node} is started again; its lock table is empty."])
            case _:
                assert_never(event.choice)

    def _opening(self) -> Iterator[str]:
        first = [agent for agent in self.agents if agent.serial < SERIALS]
        self.now = {agent.serial: agent for agent in first}
        if len(first) > 1:
            where = " (on {})" if self.formatter.several else ""
            names = [self.name(agent) + where.format(agent.node) for agent in first]
            yield f"By age, the oldest first: {', '.join(names)}."

    def _said(self, event: Event) -> Iterator[str]:
        """Describe the messages that are sent."""
        self.post.note(event)
        yield from self.formatter.lines(event.sent)

    def _afterwards(self, event: Event, agent: AgentId) -> Iterator[str]:
        """Describe the reaction of its client."""
        if event.token is not None:
            lock_id, token = event.token
            margin = "" if event.choice[0] == "step" else "  "
            yield f"{margin}{capital(self.name(agent))} has the fencing token {token} of {show(lock_id)}."
        if event.told and agent in self.collecting:
            self.collecting.discard(agent)
            if agent in self.patient | self.formatter.waits:
                self.patient.discard(agent)
                self.formatter.waits.discard(agent)
                yield f"  {capital(self.name(agent))} has all that it asked for."
        message = event.message
        if isinstance(message, Surrendered) and message.done and message.message.report:
            self.collecting.add(agent)
            if message.message.aborts:
                for line in self._again(agent, "  "):
                    yield f"{line} (run_transaction keeps its age instead.)"

    def _again(self, agent: AgentId, indent: str = "") -> Iterator[str]:
        """A client begins another transaction."""
        later = [a for a in self.agents if a.serial == agent.serial + SERIALS]
        for new in later:
            yield f"{indent}{capital(self.name(agent))} begins again, as {self.name(new)}: a new transaction, so the youngest."

    # --- Clients

    def _step(self, event: Event) -> Iterator[str]:
        agent, step = event.party, event.step
        assert isinstance(agent, AgentId)
        who = capital(self.name(agent))
        if step is None or step.kind == "again":
            self.formatter.reasons[agent] = "is done"
        lines = list(self._said(event))
        if event.ended and step is not None:
            asks = f"asks {self._wish(step)}" if step.asks else f"goes on with {step}"
            lines = [f"{who} {asks}. Too few nodes are up, so it ends."]
        elif step is None or step.kind == "again":
            lines = lines or [f"{who} is done."]
            if step is not None:
                lines += self._again(agent)
        elif step.kind == "await":
            self.collecting.add(agent)
            self.patient.add(agent)
            if not event.told:
                lines.append(f"{who} waits until it has all that it asked for.")
        elif step.asks:
            lines = lines or [f"{who} asks {self._wish(step)}, and has asked for that before."]
            lines[0] += self._terms(step)
            if step.kind != "ask":
                self.collecting.add(agent)
                if len(step.nodes) > 1:
                    self.patient.add(agent)
        elif step.kind == "token":
            if not lines and event.token is None:
                lines = [f"{who} does not get a fencing token of {_id(step)}."]
        elif step.kind == "surrender":
            self.collecting.add(agent)
            lines = lines or [
                f"{who} has nothing to surrender: it does not have all of {_id(step)}."
            ]
        else:
            lines = lines or [f"{who} has nothing to release: it has not asked for {_id(step)}."]
        yield from lines

    def _wish(self, step: Step) -> str:
        return self.formatter.wish(step.mode, step.lock_id) + self.formatter.at(*step.nodes)

    def _terms(self, step: Step) -> str:
        terms = ""
        if len(step.nodes) > 1 and step.require in ENOUGH:
            terms = " " + ENOUGH[step.require].format(listed(step.nodes))
        if step.kind == "try":
            terms += " It may give up waiting."
        elif step.kind == "ask":
            terms += " It does not wait for it now."
        return terms

    def _time_out(self, event: Event) -> Iterator[str]:
        assert isinstance(event.party, AgentId)
        self.collecting.discard(event.party)
        yield f"{capital(self.name(event.party))} gives up waiting."
        yield from self._said(event)

    def _die(self, event: Event) -> Iterator[str]:
        agent = event.party
        assert isinstance(agent, AgentId)
        who = capital(self.name(agent))
        self.post.note(event)
        if event.fate == "crashes":
            yield f"{who} crashes: lock servers take out what it had, and nobody else is told."
        else:
            yield f"{who} dies, and lets go of everything."

    # --- Agents

    def _settle(self, event: Event) -> Iterator[str]:
        agent, found = event.party, event.found
        assert isinstance(agent, AgentId)
        if found is not None:
            told = [to for _, to, m in event.sent if isinstance(m, Knowledge)]
            targets = [to for to in dict.fromkeys(told) if to in found.targets]
            if targets:
                yield self._why(agent, found, [self.name(each) for each in sorted(targets)])
        yield from self._said(event)

    def _why(self, me: AgentId, found: Exploration, told: list[str]) -> str:
        """Explain why an agent sends its knowledge."""
        before, behind = neighbours(me, found)
        reached = [self.name(a) + self._through(found.edges, me, a) for a in behind]
        sees = f"{capital(self.name(me))} sees that "
        if len(before) == 1:
            sees += (
                f"{self.name(before[0])} waits for it{self._through(found.edges, before[0], me)}"
            )
        else:
            reach = [self.name(a) + self._through(found.edges, a, me) for a in before]
            sees += f"{listed(reach)} wait for it"
        sees += f", and that it waits for {listed(reached)}."
        if before == behind and len(before) == 1:
            return f"{sees} That is a circle. {capital(told[0])} is the youngest in it: it is told."
        if len(before) == len(behind) == 1:
            return (
                f"{sees} Both are younger. The older one of them, {told[0]}, is told of the other."
            )
        return f"{sees} All are younger. Of each two of them, the older one is told of the other."

    def _through(self, edges: Iterable[Edge], start: AgentId, goal: AgentId) -> str:
        """The agents through which one agent waits for another."""
        follow: dict[AgentId, list[AgentId]] = defaultdict(list)
        for edge in edges:
            follow[edge.waiter.agent].append(edge.holder.agent)
        ways: dict[AgentId, list[AgentId]] = {start: []}
        for agent in (todo := [start]):
            for other in follow[agent]:
                if other == goal:
                    way = ways[agent]
                    return f" (through {listed(map(self.name, way))})" if way else ""
                if other not in ways and other <= min(start, goal):
                    ways[other] = [*ways[agent], other]
                    todo.append(other)
        return ""

    # --- Messages that arrive

    def _deliver(self, event: Event, link: Link) -> Iterator[str]:
        arrival = self.post.note(event)
        sender, receiver = link
        message = event.message
        assert message is not None
        if isinstance(receiver, str):
            self.formatter.take_in(receiver, message)
        if arrival is not None and arrival[1] and receiver not in self.formatter.gone:
            yield from self._late(sender, receiver, message)
        if isinstance(message, Surrendered) and message.done and message.message.aborts:
            self.formatter.reasons[message.message.agent] = "is aborted"
        yield from self.formatter.lines(event.sent)

    def _late(self, sender: Party, receiver: Party, message: Message) -> Iterator[str]:
        """Mention that a message arrives late, if its receiver may have lacked it."""
        one, other = self._name(sender), self._name(receiver)
        if isinstance(message, (RequestStates, Resolved, Surrendered, Knowledge)):
            others = [record for record in message.records if record.agent != receiver]
            records = others or message.records
            facts = ", ".join(self.formatter.fact(record, here=sender) for record in records)
            if facts:
                yield f"Only now {other} gets what {one} told it: {facts}."
        elif isinstance(message, Remove):
            yield f"Only now {other} hears that {one} lets go of everything."
        elif isinstance(message, Release):
            yield f"Only now {other} hears that {one} lets go of {_id(message)}."

    def _name(self, party: Party) -> str:
        return self.formatter.server(party) if isinstance(party, str) else self.name(party)

    # --- Nodes and connections

    def _connection(self, event: Event, pair: Pair, what: str) -> Iterator[str]:
        yield f"The connection of {' and '.join(pair)} {what}."
        yield from self._said(event)

    def _notice(self, event: Event, pair: Pair) -> Iterator[str]:
        me, other = pair
        if event.there:
            yield f"{me} sees {other} again."
        else:
            some = self.formatter.forget(lambda r: r.node == me and r.agent.node == other)
            more = ", and takes out what was locked from there" if some else ""
            yield f"{me} notices that {other} is gone{more}."
        for number, lock_ids in event.lost:
            who = capital(self.name(self.now[number]))
            yield f"  {who} is told that it has lost {listed(map(show, lock_ids))}."
        for number in event.ended:
            self.formatter.reasons[self.now[number]] = "ends, for too few of its nodes are up,"
        yield from (f"  {line}" for line in self._said(event))
        for agent in sorted({self.now[number] for number in event.ended} - self.formatter.gone):
            yield f"  {capital(self.name(agent))} ends, for too few of its nodes are up."

    def _crash(self, event: Event, node: str) -> Iterator[str]:
        names = [f"client {number}" for number in event.ended]
        lost = f", and so {'are' if len(names) > 1 else 'is'} {listed(names)}" if names else ""
        self.formatter.forget(lambda r: r.node == node)
        yield f"{node} crashes: its lock table is lost{lost}."
        self.post.note(event)


def _id(what: Step | Release) -> str:
    return "/".join(map(str, what.lock_id))
