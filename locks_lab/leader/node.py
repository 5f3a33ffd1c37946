"""A simulated node: its lock server, its instances with their agents, and their messages.

A step of a node depends only on its state and on the event: a message, or a change of a connection
that the node notices. So the explorer can run each step once (`locks_lab.leader.explore`).

`eager` is the set of kinds of events that happen as soon as they can:

    local   messages between parties of the node arrive at once, as they do in a program: agents
            and lock servers of one node share one turn (`locks.runtime.inline`)
    settle  agents settle when no local message is in flight
    news    notifications of agents are put into the mailbox of their instance
    take    instances handle everything in their mailboxes
    wire    all messages from one node to another keep their order, because they use one
            connection
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, cast

from locks.core.agent.machine import AgentMachine
from locks.core.messages import AgentMessage, Remove, ServerMessage, ToAgent, ToWatcher
from locks.errors import assert_never
from locks.model import AgentId
from locks_lab.leader.member import SimulatedInstance
from locks_lab.leader.parties import (
    Gone,
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

OwnKind = Literal["local", "settle", "news", "take"]  # events within a node
# Actions of users at an instance. They never need to happen.
UseKind = Literal["call", "cast", "odd", "cancel", "broadcast", "lose"]
NodeChoiceKind = OwnKind | UseKind


class Uses(NamedTuple):
    """How often each action of users may still happen.

    Attributes:
        call: Call the leader.
        cast: Cast a message to the leader.
        odd: A call or cast whose request or answer cannot be sent to another node.
        cancel: Give up waiting for the answer to a call.
        broadcast: Broadcast a message, which only a leader may do.
        lose: An agent ends by itself.
    """

    call: int = 0
    cast: int = 0
    odd: int = 0
    cancel: int = 0
    broadcast: int = 0
    lose: int = 0

    def after(self, choice: Choice) -> Uses:
        """The remaining uses after a choice, if the choice is a use."""
        kind = choice[0]
        return self._replace(**{kind: getattr(self, kind) - 1}) if kind in self._fields else self


class Parcel(NamedTuple):
    """A message from one node to another, if all such messages use one connection.

    Attributes:
        sender: The sender.
        receiver: The receiver.
        kind: The name of its type; named tuples of different types may be equal.
        message: The message.
    """

    sender: Party
    receiver: Party
    kind: str
    message: Said


class SimulatedNode:
    """A running node.

    Args:
        name: Its name.
        life: How often nodes were started before.
        policy: The election's policy.
        rule: The name of the rule for the machines.
        eager: The kinds of events that happen as soon as they can.
        downs_first: Instances are notified of members that are down before they evaluate the loss.

    Attributes:
        up: The other nodes that it sees as up.
        out: The messages to other nodes.
        now: The time; agents that begin later are younger.
        elections: The elections since the last check: reference, term, ground, and the newcomer if
            the election is about one.
        written: The calls that were carried out since the last check: key, leader, and its term.
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
        """The types of all events that wait at instances; tuples of different types may be equal."""
        return tuple(
            tuple(
                type(event.message if isinstance(event, Received) else event).__name__
                for event in (*each.news, *each.core.mailbox)
            )
            for each in self.instances.values()
        )

    # --- Events

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
        """Run all eager events."""
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
        for node in self.up:
            self.send(self.name, node, Gone(ref))
        self._gone(ref)
        self._hurry()

    def notices(self, other: str, version: int | None) -> None:
        """Another node is up, and its lock server has sent this version; or, with None, it is down."""
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
            gone = self.known.pop(other, {})
            for ref, watchers in self.watchers.items():
                self.watchers[ref] = tuple(w for w in watchers if w.node != other)
            if self.downs_first:
                self._downs(instances, other, gone)
            for instance in instances:
                instance.sees(other, False)
            if not self.downs_first:
                self._downs(instances, other, gone)
            for agent in [agent for agent in self.server.table.requesters if agent.node == other]:
                self._serve(Remove(agent))
        for instance in instances:
            self._note(instance)
        self._hurry()

    def _downs(
        self, instances: list[SimulatedInstance], other: str, gone: Iterable[MemberId]
    ) -> None:
        for instance in instances:
            monitored = [each for each in instance.monitored if each.node == other]
            for member in dict.fromkeys((*gone, *monitored)):
                instance.lost(member)

    # --- Requests of instances

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
        """An instance monitors a member; return whether the member is up."""
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
            case Gone():
                if self.known.get(message.member.node, {}).pop(message.member, None) is not None:
                    self._gone(message.member)
            case WatchRequest():
                self._watch(message)
            case _:
                self._serve(message)

    def _gone(self, member: MemberId) -> None:
        for instance in list(self.instances.values()):
            instance.lost(member)
            self._note(instance)

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
        """After an event of an instance: continue it, and note whether its agents must settle."""
        instance.go_on()
        for agent in instance.agents:
            if agent.unsettled and agent.id not in self.unsettled:
                self.unsettled[agent.id] = instance.ref
        for agent_id, ref in list(self.unsettled.items()):
            if ref == instance.ref and all(agent.id != agent_id for agent in instance.agents):
                del self.unsettled[agent_id]
