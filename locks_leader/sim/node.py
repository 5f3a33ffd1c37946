"""A simulated node: its lock server, its instances with their agents, and their messages.

What happens at a node depends on nothing but what it has, and what comes in: messages, and what it
notices of its connections. So the explorer can run each step once (`locks_leader.sim.explore`).
`eager` says what is done as soon as it can be:

    local   messages between parties of the node arrive at once, as they do in a program: agents
            and lock servers of one node share one turn (`locks.runtime.inline`)
    settle  agents look at what they know when nothing local is on its way
    take    instances take all that is in their mailboxes
    wire    messages from one node to another keep their order, whoever sends them to whom: they go
            over one connection
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from locks.core.agent.machine import AgentMachine
from locks.core.messages import Remove, ToAgent
from locks.model import AgentId
from locks.sim.host import Violation
from locks.sim.network import Link, Pair, Party, home_of
from locks.sim.schedule import AnyChoice as Choice
from locks_leader.core.membership import Kind
from locks_leader.policy import Policy
from locks_leader.sim.member import Instance
from locks_leader.sim.parties import Down, Here, MemberId, Watch, member_id
from locks_leader.sim.rules import RULES

__all__ = ["EAGER", "Node", "Pair"]

EAGER = frozenset({"local", "settle", "take"})
ONE_WIRE = EAGER | {"wire"}
RESTLESS = 10_000  # more than happens at a node by itself at one time
LIVES = 1000  # the number of a node's first instance is its life times this, and 1


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
    message: Any


class Node:
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
        self.instances: dict[MemberId, Instance] = {}
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

    # --- What can happen here

    def choices(self) -> list[Choice]:
        """All that can happen here by itself."""
        found: list[Choice] = [("local", link) for link in self.local]
        found += [("settle", agent) for agent in self.unsettled]
        found += [("take", each.ref) for each in self.instances.values() if each.ready]
        return found

    def do(self, choice: Choice) -> None:
        """Make one of the choices happen."""
        self._do(choice)
        self._hurry()

    def _do(self, choice: Choice) -> None:
        kind, what = choice
        if kind == "local":
            queue = self.local[what]
            _, message = queue.pop(0)
            if not queue:
                del self.local[what]
            self._arrives(what, message)
        elif kind == "settle":
            instance = self.instances[self.unsettled.pop(what)]
            instance.settle(what)
        else:
            instance = self.instances[what]
            instance.take()
            self._note(instance)

    def _hurry(self) -> None:
        """Do what is done as soon as it can be."""
        for _ in range(RESTLESS):
            if "local" in self.eager and self.local:
                self._do(("local", next(iter(self.local))))
            elif "settle" in self.eager and self.unsettled:
                self._do(("settle", next(iter(self.unsettled))))
            elif "take" in self.eager:
                ready = next((each for each in self.instances.values() if each.ready), None)
                if ready is None:
                    return
                self._do(("take", ready.ref))
            else:
                return
        raise Violation(f"{self.name} does not come to rest")

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
        instance = Instance(ref, kind, self.policy, self, self.rule)
        others = list(self.instances.values())
        self.instances[ref] = instance
        for other in others:
            other.queue("joined", ref, kind)
            instance.queue("joined", other.ref, other.machine.kind)
        for members in self.known.values():
            for member, its in members.items():
                instance.queue("joined", member, its)
        for node in self.up:
            self.send(self.name, node, Here(((ref, kind),)))
        instance.start()
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
            self.send(ref, watcher, Down(ref))
        self._hurry()

    def call(self, ref: MemberId, key: str) -> None:
        """Somebody calls the leader through an instance."""
        self.instances[ref].call(key)
        self._note(self.instances[ref])
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
            self._sees(instances, other, True)
        else:
            del self.up[other]
            self.known.pop(other, None)
            for ref, watchers in self.watchers.items():
                self.watchers[ref] = tuple(w for w in watchers if w.node != other)
            if self.downs_first:
                self._downs(instances, other)
            self._sees(instances, other, False)
            if not self.downs_first:
                self._downs(instances, other)
            for agent in [agent for agent in self.server.table.owners if agent.node == other]:
                self._serve(Remove(agent))
        self._hurry()

    def _downs(self, instances: list[Instance], other: str) -> None:
        for instance in instances:
            for member in [each for each in instance.monitored if each.node == other]:
                instance.lost(member)

    def _sees(self, instances: list[Instance], other: str, there: bool) -> None:
        for instance in instances:
            instance.sees(other, there)
            self._note(instance)

    # --- What instances want

    def send(self, sender: Party, receiver: Party, message: Any) -> None:
        """Send a message to a party on any node."""
        if home_of(receiver) == self.name:
            self.local.setdefault((sender, receiver), []).append((type(message).__name__, message))
        elif "wire" in self.eager:
            parcel = Parcel(sender, receiver, type(message).__name__, message)
            self.out.append((self.name, home_of(receiver), parcel))
        else:
            self.out.append((sender, receiver, message))

    def new_agent(self, owner: MemberId, **options: bool) -> AgentMachine:
        """A new agent, younger than all on this node."""
        self.now += 1
        ref = AgentId(self.now, self.name, owner.serial)
        return RULES[self.rule].agent(ref, str(owner), self.alive, **options)

    def monitor(self, instance: Instance, member: MemberId) -> None:
        """An instance monitors a member; if that is gone it is told at once."""
        if member.node == self.name:
            if member in self.instances:
                self._watch(Watch(instance.ref, member))
            else:
                instance.lost(member)
        elif member.node in self.up:
            self.send(self.name, member.node, Watch(instance.ref, member))
        else:
            instance.lost(member)

    def _watch(self, message: Watch) -> None:
        watcher, member = message
        if member in self.instances:
            watchers = self.watchers.get(member, ())
            if watcher not in watchers:
                self.watchers[member] = (*watchers, watcher)
        else:
            self.send(member, watcher, Down(member))

    # --- Messages

    def _arrives(self, link: Link, message: Any) -> None:
        sender, receiver = link
        if isinstance(receiver, MemberId):
            instance = self.instances.get(receiver)
            if instance is not None:
                assert isinstance(sender, MemberId)
                instance.receive(sender, message)
                self._note(instance)
        elif isinstance(receiver, AgentId):
            for instance in self.instances.values():
                if any(agent.id == receiver for agent in instance.agents):
                    instance.hears(message, receiver)
                    self._note(instance)
        elif isinstance(message, Here):
            known = self.known.setdefault(home_of(sender), {})
            for member, kind in message.members:
                known[member] = kind
                for instance in self.instances.values():
                    instance.queue("joined", member, kind)
        elif isinstance(message, Watch):
            self._watch(message)
        else:
            self._serve(message)

    def _serve(self, message: Any) -> None:
        for effect in self.server.handle(message):
            assert isinstance(effect, ToAgent)
            self.send(self.name, effect.agent, effect.message)

    def _note(self, instance: Instance) -> None:
        """Something has happened to an instance: which of its agents have something to look at."""
        for agent in instance.agents:
            if agent.unsettled and agent.id not in self.unsettled:
                self.unsettled[agent.id] = instance.ref
        for agent_id, ref in list(self.unsettled.items()):
            if ref == instance.ref and all(agent.id != agent_id for agent in instance.agents):
                del self.unsettled[agent_id]


def names(nodes: int) -> Sequence[str]:
    """Names of nodes."""
    return tuple(f"n{number}" for number in range(1, nodes + 1))
