"""A simulated node: its lock server, its instances with their agents, and their messages.

What happens at a node depends on nothing but what it has, and what comes in: messages, and what it
notices of its connections. So the explorer can run each step once (`locks_lab.leader.explore`).
`eager` says what is done as soon as it can be:

    local   messages between parties of the node arrive at once, as they do in a program: agents
            and lock servers of one node share one turn (`locks.runtime.inline`)
    settle  agents look at what they know when nothing local is on its way
    news    what agents notify gets to the mailbox of their instance
    take    instances take all that is in their mailboxes
    wire    messages from one node to another keep their order, whoever sends them to whom: they go
            over one connection
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, cast

from locks.core.agent.machine import AgentMachine
from locks.core.messages import AgentMessage, Remove, ServerMessage, ToAgent, ToWatcher
from locks.errors import assert_never
from locks.model import AgentId
from locks_lab.leader.member import SimulatedInstance
from locks_lab.leader.parties import (
    Here,
    MemberId,
    Said,
    ToInstance,
    ToNode,
    WatchRequest,
    member_id,
)
from locks_lab.leader.rules import RULES
from locks_lab.schedules.schedule import AnyChoice as Choice
from locks_lab.worlds.host import Violation
from locks_lab.worlds.network import Link, Party, home_of
from locks_leader.core.events import MemberDown, MemberJoined, Received, Started
from locks_leader.core.messages import Kind
from locks_leader.policy import Policy

__all__ = ["EAGER", "ONE_WIRE", "NodeChoiceKind", "OwnKind", "SimulatedNode", "UseKind", "Uses"]

EAGER = frozenset({"local", "settle", "news", "take"})
ONE_WIRE = EAGER | {"wire"}
RESTLESS = 10_000  # more than happens at a node by itself at one time
LIVES = 1000  # the number of a node's first instance is its life times this, and 1

OwnKind = Literal["local", "settle", "news", "take"]  # what a node does by itself
# What users do at an instance. None of it needs to happen.
UseKind = Literal["call", "cast", "odd", "cancel", "resync", "broadcast", "lose"]
NodeChoiceKind = OwnKind | UseKind


class Uses(NamedTuple):
    """How often users may still do what.

    Attributes:
        call: Call the leader.
        cast: Send the leader a message.
        odd: One of both, where request or answer can't be sent to another node.
        cancel: Give up waiting for the answer to a call.
        resync: A follower asks its leader to be told again.
        broadcast: Tell others something, as only a leader may.
        lose: An agent ends by itself.
    """

    call: int = 0
    cast: int = 0
    odd: int = 0
    cancel: int = 0
    resync: int = 0
    broadcast: int = 0
    lose: int = 0

    def after(self, choice: Choice) -> Uses:
        """What is left after a choice, if that is a use."""
        kind = choice[0]
        return self._replace(**{kind: getattr(self, kind) - 1}) if kind in self._fields else self


class Parcel(NamedTuple):
    """A message from one node to another, where they all go over one connection.

    Attributes:
        sender: Who sends it.
        receiver: To whom.
        kind: The name of its type; named tuples of different types may be equal.
        message: The message.
    """

    sender: Party
    receiver: Party
    kind: str
    message: Said


class SimulatedNode:
    """A node that runs.

    Args:
        name: Its name.
        life: How often nodes were started before.
        policy: The election's policy.
        rule: The name of the rule that says which machines there are.
        eager: What is done as soon as it can be.
        downs_first: Instances are told who is down before they look at what it means.

    Attributes:
        up: The other nodes that it sees.
        out: What is to be sent to other nodes.
        now: The time; agents that begin later are younger.
        elections: Who was elected since somebody last looked: reference, term, ground, and the
            newcomer if the election is about one.
        written: The calls that were carried out since then: key, by whom, and its term.
    """

    def __init__(
        self,
        name: str,
        life: int,
        policy: Policy,
        rule: str,
        eager: frozenset[str] = EAGER,
        downs_first: bool = False,
    ) -> None:
        self.name = name
        self.policy = policy
        self.rule = rule
        self.eager = eager
        self.downs_first = downs_first
        self.server = RULES[rule].server(name, life << 32)
        self.up: dict[str, None] = {}
        self.instances: dict[MemberId, SimulatedInstance] = {}
        self.known: dict[str, dict[MemberId, Kind]] = {}  # of other nodes
        self.watchers: dict[MemberId, tuple[MemberId, ...]] = {}
        self.local: dict[Link, list[Any]] = {}
        self.unsettled: dict[AgentId, MemberId] = {}
        self.out: list[tuple[Party, Party, Any]] = []
        self.now = 0
        self.number = life * LIVES
        self.elections: list[tuple[Any, ...]] = []
        self.written: list[tuple[str, MemberId, int]] = []

    @property
    def alive(self) -> frozenset[str]:
        """The nodes whose lock servers are up."""
        return frozenset((self.name, *self.up))

    @property
    def kinds(self) -> tuple[tuple[str, ...], ...]:
        """Of what kind all is that waits at instances; different kinds of tuples may be equal."""
        return tuple(
            tuple(
                type(event.message if isinstance(event, Received) else event).__name__
                for event in (*each.news, *each.core.mailbox)
            )
            for each in self.instances.values()
        )

    # --- What can happen here

    def choices(self) -> list[Choice]:
        """All that can happen here by itself."""
        found: list[Choice] = [("local", link) for link in self.local]
        found += [("settle", agent) for agent in self.unsettled]
        found += [("news", each.ref) for each in self.instances.values() if each.news]
        found += [("take", each.ref) for each in self.instances.values() if each.core.ready]
        return found

    def uses(self, left: Uses) -> list[Choice]:
        """All that users can do here, as far as they still may."""
        found: list[Choice] = []
        for ref, each in self.instances.items():
            if left.call:
                found.append(("call", (ref, f"w{left.call}")))
            if left.cast:
                found.append(("cast", (ref, f"c{left.cast}")))
            if left.odd:
                found += [("odd", (ref, f"{how}{left.odd}")) for how in "ram"]
            if left.cancel:
                waiting = each.calls.keys() - each.answers.keys() - each.cancelled.keys()
                found += [("cancel", (ref, key)) for key in sorted(waiting)]
            if left.resync and each.machine.leader not in (None, ref) and not each.unsure:
                found.append(("resync", ref))
            if left.broadcast and each.poll is None:
                found += [("broadcast", (ref, to)) for to in ("all", "candidates")]
            if left.lose:
                found += [("lose", agent.id) for agent in each.agents]
        return found

    def do(self, choice: Choice) -> None:
        """Make one of the choices happen."""
        self._do(choice)
        self._hurry()

    def _do(self, choice: Choice) -> None:
        kind, what = cast(NodeChoiceKind, choice[0]), choice[1]
        match kind:
            case "local":
                queue = self.local[what]
                _, message = queue.pop(0)
                if not queue:
                    del self.local[what]
                self._arrives(what, message)
                return
            case "settle":  # it may have to wait for something: then it looks again after that
                self.instances[self.unsettled.pop(what)].settle(what)
                return
            case "news":
                self.instances[what].hear_news()
                return
            case "take":
                instance = self.instances[what]
                instance.take()
            case "call":
                instance = self.instances[what[0]]
                instance.call(what[1])
            case "cast":
                instance = self.instances[what[0]]
                instance.cast(what[1])
            case "odd":
                instance = self.instances[what[0]]
                (instance.cast if what[1][0] == "m" else instance.call)(what[1])
            case "cancel":
                instance = self.instances[what[0]]
                instance.cancel(what[1])
            case "resync":
                instance = self.instances[what]
                instance.doubt()
            case "broadcast":
                instance = self.instances[what[0]]
                instance.broadcast(what[1])
            case "lose":
                owner = self._owner(what)
                assert owner is not None
                instance = owner
                instance.lose(what)
            case _:
                assert_never(kind)
        self._note(instance)

    def _hurry(self) -> None:
        """Do what is done as soon as it can be."""
        for _ in range(RESTLESS):
            choice = self._eager_choice()
            if choice is None:
                return
            self._do(choice)
        raise Violation(f"{self.name} does not come to rest")

    def _eager_choice(self) -> Choice | None:
        eager = self.eager
        if self.local and "local" in eager:
            return ("local", next(iter(self.local)))
        if self.unsettled and "settle" in eager:
            return ("settle", next(iter(self.unsettled)))
        if "take" in eager:
            for each in self.instances.values():
                if each.core.ready:
                    return ("take", each.ref)
        return None  # news does not wait if it is eager

    def arrives(self, link: Link, message: Any) -> None:
        """A message from another node arrives."""
        if isinstance(message, Parcel):
            link, message = message[:2], message.message
        self._arrives(link, message)
        self._hurry()

    def start(self, kind: Kind) -> MemberId:
        """Start an instance."""
        self.number += 1
        ref = member_id(self.name, self.number)
        instance = SimulatedInstance(ref, kind, self.policy, self, self.rule)
        others = list(self.instances.values())
        self.instances[ref] = instance
        for other in others:
            other.put(MemberJoined(ref, self.name, kind))
            instance.put(MemberJoined(other.ref, self.name, other.machine.kind))
        for members in self.known.values():
            for member, its in members.items():
                instance.put(MemberJoined(member, member.node, its))
        for node in self.up:
            self.send(self.name, node, Here(((ref, kind),)))
        instance.put(Started())
        instance.take_all()
        self._note(instance)
        self._hurry()
        return ref

    def kill(self, ref: MemberId) -> None:
        """An instance ends."""
        instance = self.instances.pop(ref)
        instance.die()
        for agent in instance.agents:
            self.unsettled.pop(agent.id, None)
        for watcher in self.watchers.pop(ref, ()):
            self.send(ref, watcher, MemberDown(ref))
        self._hurry()

    def notices(self, other: str, version: int | None) -> None:
        """Another node is there, whose lock server has given this version; or it is gone."""
        instances = list(self.instances.values())
        if version is not None:
            self.up[other] = None
            self.server.raise_to(version)
            here = tuple((each.ref, each.machine.kind) for each in instances)
            if here:
                self.send(self.name, other, Here(here))
            for instance in instances:
                instance.sees(other, True)
        else:
            del self.up[other]
            self.known.pop(other, None)
            for ref, watchers in self.watchers.items():
                self.watchers[ref] = tuple(w for w in watchers if w.node != other)
            if self.downs_first:
                self._downs(instances, other)
            for instance in instances:
                instance.sees(other, False)
            if not self.downs_first:
                self._downs(instances, other)
            for agent in [agent for agent in self.server.table.owners if agent.node == other]:
                self._serve(Remove(agent))
        for instance in instances:
            self._note(instance)
        self._hurry()

    def _downs(self, instances: list[SimulatedInstance], other: str) -> None:
        for instance in instances:
            for member in [each for each in instance.monitored if each.node == other]:
                instance.lost(member)

    # --- What instances want

    def send(self, sender: Party, receiver: Party, message: Said) -> None:
        """Send a message to a party on any node."""
        if home_of(receiver) == self.name:
            self.local.setdefault((sender, receiver), []).append((type(message).__name__, message))
        elif "wire" in self.eager:
            parcel = Parcel(sender, receiver, type(message).__name__, message)
            self.out.append((self.name, home_of(receiver), parcel))
        else:
            self.out.append((sender, receiver, message))

    def new_agent(self, owner: MemberId, options: dict[str, Any]) -> AgentMachine:
        """A new agent, younger than all on this node."""
        self.now += 1
        ref = AgentId(self.now, self.name, owner.serial)
        return RULES[self.rule].agent(ref, str(owner), self.alive, **options)

    def monitor(self, watcher: MemberId, member: MemberId) -> bool:
        """An instance monitors a member; returns whether that is there still."""
        if member.node == self.name:
            if member not in self.instances:
                return False
            self._watch(WatchRequest(watcher, member))
        elif member.node in self.up:
            self.send(self.name, member.node, WatchRequest(watcher, member))
        else:
            return False
        return True

    def _watch(self, message: WatchRequest) -> None:
        watcher, member = message
        if member in self.instances:
            watchers = self.watchers.get(member, ())
            if watcher not in watchers:
                self.watchers[member] = (*watchers, watcher)
        else:
            self.send(member, watcher, MemberDown(member))

    # --- Messages

    def _arrives(self, link: Link, message: Any) -> None:
        sender, receiver = link
        if isinstance(receiver, MemberId):
            assert isinstance(sender, MemberId)
            self._tell(sender, receiver, message)
        elif isinstance(receiver, AgentId):
            self._tell_agent(receiver, message)
        else:
            self._take_in(sender, message)

    def _tell(self, sender: MemberId, receiver: MemberId, message: ToInstance) -> None:
        instance = self.instances.get(receiver)
        if instance is not None:
            instance.receive(sender, message)
            self._note(instance)

    def _tell_agent(self, agent: AgentId, message: AgentMessage) -> None:
        instance = self._owner(agent)
        if instance is not None:
            instance.hears(message, agent)
            self._note(instance)

    def _take_in(self, sender: Party, message: ToNode) -> None:
        match message:
            case Here():
                known = self.known.setdefault(home_of(sender), {})
                for member, kind in message.members:
                    known[member] = kind
                    for instance in self.instances.values():
                        instance.put(MemberJoined(member, member.node, kind))
            case WatchRequest():
                self._watch(message)
            case _:
                self._serve(message)

    def _serve(self, message: ServerMessage) -> None:
        for effect in self.server.handle(message):
            match effect:
                case ToAgent():
                    self.send(self.name, effect.agent, effect.message)
                case ToWatcher():
                    raise Violation(f"{self.name}: nobody watches, and {effect} is told")
                case _:
                    assert_never(effect)

    def _owner(self, agent: AgentId) -> SimulatedInstance | None:
        """The instance of an agent that lives."""
        for instance in self.instances.values():
            if any(each.id == agent for each in instance.agents):
                return instance
        return None

    def _note(self, instance: SimulatedInstance) -> None:
        """Something has happened to an instance: it goes on, and its agents may have to look."""
        instance.go_on()
        for agent in instance.agents:
            if agent.unsettled and agent.id not in self.unsettled:
                self.unsettled[agent.id] = instance.ref
        for agent_id, ref in list(self.unsettled.items()):
            if ref == instance.ref and all(agent.id != agent_id for agent in instance.agents):
                del self.unsettled[agent_id]
