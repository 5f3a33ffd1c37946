"""A world of elections: nodes, their instances, and the network. The caller chooses the schedule.

It runs the same machines as the actors, on the network of `locks_lab`. `World.choices` returns the
events that are possible next. `World.do` runs one, and then checks the invariants
(`locks_lab.leader.checks`). A choice is a pair:

    ("deliver", link)                   the first message on a link between two nodes arrives
    ("local", link)                     the same within a node, if that is not eager
    ("settle", agent), ("news", ref), ("take", ref)    see `locks_lab.leader.node`
    ("notice", pair), ("connect", pair) as in `locks_lab.worlds.world`
    ("start", number)                   the next instance starts; its number in `plan.later`
    ("call", (ref, key)) ...            an action of users; see `locks_lab.leader.node`
    ("cut", pair), ("mend", pair), ("crash", node), ("restart", node), ("kill", ref)

The last ones are *faults*, and their repairs. They never need to happen, nor do the actions of
users.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, cast, get_args

from locks.errors import assert_never
from locks_lab.leader.checks import (
    History,
    check_casts,
    check_grounds,
    check_polls,
    check_quiet,
)
from locks_lab.leader.member import SimulatedInstance
from locks_lab.leader.node import EAGER, OwnKind, Parcel, SimulatedNode, UseKind, Uses
from locks_lab.leader.parties import MemberId
from locks_lab.schedules.schedule import AnyChoice as Choice
from locks_lab.worlds.network import Link, Network, Pair, home_of
from locks_leader.core.messages import Kind
from locks_leader.policy import Policy

__all__ = ["FREE", "ChoiceKind", "ElectionPlan", "ElectionWorld"]

Change = Literal["cut", "mend", "crash", "restart"]
ChoiceKind = Literal["deliver", "notice", "connect", "start", "kill"] | OwnKind | UseKind | Change
FREE = ("kill", *get_args(UseKind), *get_args(Change))  # none of these needs to happen


class ElectionPlan(NamedTuple):
    """A world before it runs.

    Attributes:
        nodes: The nodes.
        instances: For each node in turn, the instances that run there from the beginning.
        later: The instances that start at any moment, in this order: the node, and the kind.
        policy: The election's policy.
        rule: The machines of the world.
        eager: The kinds of events that happen as soon as they can, at each node.
        downs_first: Instances are notified of members that are down before they evaluate the loss.
        uses: How often each action of users may happen.
        cuts: How often connections may be cut.
        crashes: How often nodes may crash.
        kills: How often instances may be killed.
        yields: How often each instance that starts with the world gives the leadership away as soon
            as it is elected.
    """

    nodes: tuple[str, ...] = ("n1", "n2")
    instances: tuple[tuple[Kind, ...], ...] = (("candidate",),)
    later: tuple[tuple[str, Kind], ...] = ()
    policy: Policy = Policy()
    rule: str = "ours"
    eager: frozenset[str] = EAGER
    downs_first: bool = False
    uses: Uses = Uses()
    cuts: int = 0
    crashes: int = 0
    kills: int = 0
    yields: int = 0

    def world(self) -> ElectionWorld:
        """The world, ready to run."""
        return ElectionWorld(self)


class ElectionWorld:
    """Nodes with instances of one election, and messages in flight.

    Args:
        plan: The world before it runs.

    Attributes:
        nodes: The running nodes.
        history: The events so far that the checks need.
        uses: How often each action of users may still happen.
        lossless: Whether no message can have been lost so far.
        sent: The number of messages between nodes, by kind.
        events: The number of events so far.
    """

    def __init__(self, plan: ElectionPlan) -> None:
        self.plan = plan
        self.network = Network(plan.nodes)
        self.nodes: dict[str, SimulatedNode] = {}
        self.history = History()
        self.sent: Counter[str] = Counter()
        self.events = 0
        self.restarts = 0
        self.uses = plan.uses
        self.cuts, self.crashes, self.kills = plan.cuts, plan.crashes, plan.kills
        self.lossless = True
        self.called = 0
        self.started = 0
        for name in plan.nodes:
            node = self._new_node(name)
            node.up = {other: None for other in plan.nodes if other != name}
        for number, name in enumerate(plan.nodes):
            for kind in plan.instances[number % len(plan.instances)]:
                self.instance(self.start(name, kind)).yields = plan.yields

    def _new_node(self, name: str) -> SimulatedNode:
        plan = self.plan
        node = SimulatedNode(
            name, self.restarts, plan.policy, plan.rule, plan.eager, plan.downs_first
        )
        self.nodes[name] = node
        return node

    @property
    def instances(self) -> list[SimulatedInstance]:
        """All that live."""
        return [each for node in self.nodes.values() for each in node.instances.values()]

    def instance(self, ref: MemberId) -> SimulatedInstance:
        """The instance of a reference."""
        return self.nodes[ref.node].instances[ref]

    # --- ChoiceKind can happen, and making it happen

    def choices(self, free: bool = True) -> list[Choice]:
        """All events that are possible next.

        Args:
            free: Include events that never need to happen.
        """
        network = self.network
        found: list[Choice] = [("deliver", link) for link in network.deliverable()]
        for node in self.nodes.values():
            found += node.choices()
        if not network.steady:
            found += [("notice", pair) for pair in network.notices()]
            found += [("connect", pair) for pair in network.connectable()]
        if self.started < len(self.plan.later):
            name = self.plan.later[self.started][0]
            if name in self.nodes:
                found.append(("start", self.started))
        return found + self.free_choices() if free else found

    def free_choices(self) -> list[Choice]:
        """ChoiceKind may happen next, and never needs to."""
        network = self.network
        found: list[Choice] = []
        for node in self.nodes.values():
            found += node.uses(self.uses)
        if self.kills:
            found += [("kill", each.ref) for each in self.instances]
        found += network.breaks(bool(self.cuts))
        if self.crashes:
            found += [("crash", name) for name in self.nodes]
        return found + [("restart", name) for name in sorted(network.crashed)]

    def do(self, choice: Choice) -> None:
        """Make one of the choices happen, and check all that must be true."""
        kind, what = cast(ChoiceKind, choice[0]), choice[1]
        self.events += 1
        for node in self.nodes.values():
            node.now = max(node.now, self.events << 10)
        match kind:
            case "deliver":
                message = self.network.take(what)
                self.nodes[home_of(what[1])].arrives(what, message)
                self._after(self.nodes[home_of(what[1])])
            case "local":
                self._do_at(home_of(what[1]), choice)
            case "settle" | "news" | "take" | "lose":
                self._do_at(home_of(what), choice)
            case "call" | "cast" | "odd" | "cancel" | "broadcast":
                self._do_at(home_of(what[0]), choice)
            case "notice":
                self._notice(what)
            case "connect":
                self.network.connect(what)
            case "start":
                self.started += 1
                self.start(*self.plan.later[what])
            case "kill":
                self.kills -= 1
                self.kill(what)
            case "cut" | "mend" | "crash" | "restart":
                self._change(kind, what)
            case _:
                assert_never(kind)
        self._check()

    def _do_at(self, name: str, choice: Choice) -> None:
        self.uses = self.uses.after(choice)
        self.nodes[name].do(choice)
        self._after(self.nodes[name])

    def start(self, name: str, kind: Kind = "candidate") -> MemberId:
        """Start an instance."""
        ref = self.nodes[name].start(kind)
        self._after(self.nodes[name])
        return ref

    def call(self, ref: MemberId) -> str:
        """A user calls the leader through an instance, to write a key; return the key."""
        self.called += 1
        key = f"w-{self.called}"
        self.nodes[ref.node].do(("call", (ref, key)))
        self._after(self.nodes[ref.node])
        return key

    def kill(self, ref: MemberId) -> None:
        """An instance ends."""
        self.lossless = False
        self.nodes[ref.node].kill(ref)
        self._after(self.nodes[ref.node])

    def split(self, *groups: Iterable[str]) -> None:
        """Cut all connections between nodes of different groups."""
        self.lossless = False
        parts = [frozenset(group) for group in groups]
        for a, b in list(self.network.seen):
            apart = any((a in part) != (b in part) for part in parts)
            if a < b and apart and frozenset((a, b)) not in self.network.apart:
                self.network.cut((a, b))

    def heal(self) -> None:
        """Mend all connections."""
        self.network.apart.clear()

    def _notice(self, pair: Pair) -> None:
        me, other = pair
        there = self.network.notice(pair)
        version = self.nodes[other].server.version if there else None
        self.nodes[me].notices(other, version)
        self._after(self.nodes[me])

    def _change(self, kind: Change, what: Any) -> None:
        match kind:
            case "cut":
                self.network.cut(what)
                self.lossless = False
                self.cuts -= 1
            case "mend":
                self.network.mend(what)
            case "crash":
                self.network.crash(what)
                self.lossless = False
                self.crashes -= 1
                del self.nodes[what]
            case "restart":
                self.network.restart(what)
                self.restarts += 1
                self._new_node(what)
                plan = self.plan
                for role in plan.instances[plan.nodes.index(what) % len(plan.instances)]:
                    self.start(what, role)
            case _:
                assert_never(kind)

    def _after(self, node: SimulatedNode) -> None:
        """Something has happened at a node."""
        for sender, receiver, message in node.out:
            kind = message.kind if isinstance(message, Parcel) else type(message).__name__
            self.sent[kind] += 1
            self.network.send(sender, receiver, message)
        node.out.clear()
        self.history.note(node, self.nodes)

    # --- ChoiceKind must be true

    def _check(self) -> None:
        check_polls(self.instances, self.network.seen, self._waits_in_vain)
        check_grounds(self.instances)

    def _waits_in_vain(self, link: Link) -> bool:
        """Whether nothing is on its way on a link."""
        wire = (home_of(link[0]), home_of(link[1]))
        if wire[0] == wire[1]:
            return link not in self.nodes[wire[0]].local
        return link not in self.network.links and wire not in self.network.links

    def check_quiet(self) -> None:
        """Make the checks when nothing needs to happen any more."""
        check_quiet(self.nodes, self.network.seen, self.plan.policy)
        if self.lossless:
            check_casts(self.instances, self.history)
