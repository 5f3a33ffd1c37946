"""Application code as simulated clients, over the pure machines.

Clients run concurrently (`locks_lab.applications.stage`), each on a node. Messages in flight are in
a `Network`. The delays are as in programs that run `locks`:

- A message from a client to the lock server of its own node has arrived when the call returns. Such
  messages keep the order of the calls.
- Other messages take time: from a client to the servers of other nodes, from servers to agents, and
  between agents. So the order in which clients are notified of locks and deadlocks varies. In some
  runs these messages take no time: then everything that follows from a call on its node happens
  before any other client continues, as in a real node.
- A call that only inspects, or does not wait, sees the result of everything in flight on its node
  (`finish`).
- Nodes notice a lost connection or node after some time, and are connected again after some time.

The agents are not made here: `locks.testing` runs those of the product on this. The faults, and the
checks under faults, are those of a world (`locks_lab.applications.nodes`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from locks.core.agent.machine import AgentMachine
from locks.core.messages import (
    AgentEffect,
    AgentMessage,
    Request,
    ServerMessage,
    ToAgent,
    ToWatcher,
)
from locks.core.server.machine import ServerMachine
from locks.errors import MisuseError, assert_never
from locks.model import AgentId, Deadlock, LockId
from locks_lab.applications.breaking import Pending, read_change, write_change
from locks_lab.applications.greenlets import Client, Note, has_to_wait, words_of
from locks_lab.applications.nodes import Nodes
from locks_lab.applications.stage import MESSAGE, Stage
from locks_lab.applications.strategies import SLOW, SLOW_SHARE
from locks_lab.worlds.checks import check_clean, check_report, check_token, edges_of, serve
from locks_lab.worlds.client import TokenKey, key_of
from locks_lab.worlds.host import ClientEffect, Host, Message, Violation
from locks_lab.worlds.network import Change, Link, Network, Pair, Party, home_of

if TYPE_CHECKING:
    from typing_extensions import TypeVarTuple, Unpack

    Ts = TypeVarTuple("Ts")

__all__ = ["Application", "Client", "Home", "Note", "Violation"]

# Ranks of events that are due at the same time; clients come after them.
FAULTS, MESSAGES, SETTLING = -1.0, 0.0, 1.0

# How many times as long as a client takes for a step a node takes to notice something, from and to
# which power of 10.
NOTICES = 0.0, 3.5
# Seconds that a node takes to start, so that none of its agents has the number of an earlier one.
START = 0.001
BUDGET = {"cut": "cuts", "crash": "crashes"}  # each fault, and the entry of `may` that it uses up


class Home(Protocol):
    """A node, but for its lock server."""

    def enter(self) -> None:
        """From now on, calls are made on this node."""

    def show(self, effect: ToWatcher) -> None:
        """The lock server has something for a watcher."""

    def client_ended(self, client: Client) -> None:
        """A client of this node has ended; its transactions end with it."""

    def sees(self, node: str, there: bool) -> None:
        """Another node is connected, or is lost."""

    def lost(self, node: str) -> None:
        """Another node is lost, and the agents know it."""

    def receive(self, node: str, frame: bytes) -> None:
        """What another node says, other than to agents and lock servers, arrives."""

    def heard(self, agent: AgentId) -> None:
        """An agent of this node has taken in a message."""


class Homes(Protocol):
    """Makes nodes.

    Attributes:
        by_name: The nodes that it has made, by name.
    """

    @property
    def by_name(self) -> Mapping[str, Home]:
        """The nodes that it has made, by name."""

    def server(self, node: str, first_version: int = 0) -> ServerMachine:
        """Make a node; returns its lock server."""


class Tokens:
    """The fencing tokens of a transaction.

    Attributes:
        host: The agent.
        tokens: The tokens that it has got; of several of one lock, the last one.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.tokens: dict[TokenKey, int] = {}


class Application(Stage, Nodes):
    """Clients, the lock servers of nodes, and the messages in flight between them.

    Args:
        homes: Makes the nodes.
        names: The names of the nodes.

    Attributes:
        deadlocks: The resolved deadlocks, in order.
        sent: Number of messages sent, by kind.
    """

    def __init__(self, homes: Homes, names: Sequence[str]) -> None:
        Stage.__init__(self)
        Nodes.__init__(self, homes, names, Network(names))
        self.homes = homes.by_name
        for node, other in self.network.seen:
            self.homes[node].sees(other, True)
        self.hosts: dict[AgentId, Host] = {}
        self.deadlocks: list[Deadlock] = []
        self.sent: Counter[str] = Counter()
        self._unsettled: dict[AgentId, None] = {}
        self._bearers: dict[AgentId, Tokens] = {}
        self._pending: dict[str, Pending] = {}  # events that follow without a client
        self._broken: dict[Change, Change] = {}  # faults that were drawn, and their repairs
        self._first: list[Change] = []  # faults at the beginning of the run

    # --- What is called from below

    def _enter(self, node: str) -> None:
        self.homes[node].enter()

    def _client_ended(self, client: Client) -> None:
        self._enter(client.node)
        self.homes[client.node].client_ended(client)

    def _begun(self) -> None:
        for change in self._first:
            self._at(self.time, FAULTS, self._make, change)

    def _breaks(self) -> list[str]:
        may = self.may
        if not (may["cuts"] or may["crashes"] or self._broken):
            return []
        crashes = self.names if may["crashes"] else ()
        found = self._may_break(bool(may["cuts"]), crashes, True)
        mends = self._broken.values()
        return [write_change(each) for each in found if each[0] in BUDGET or each in mends]

    def _break(self, step: str) -> None:
        change = read_change(step)
        kind, where = change
        if kind in BUDGET:
            self.may[BUDGET[kind]] -= 1
            mend: Any = ("mend" if kind == "cut" else "restart", where)
            self._broken[change] = mend
        else:
            self._broken = {broken: mend for broken, mend in self._broken.items() if mend != change}
        self._make(change)

    def _repair(self) -> bool:
        waiting = any(not client.dead for client in self.clients)
        mends, self._broken = (list(self._broken.values()) if waiting else []), {}
        for change in mends:
            self._make(change)
        return bool(mends)

    def _why_stuck(self) -> list[str]:
        cuts = [
            f"{' and '.join(sorted(pair))} are cut off from each other"
            for pair in self.network.apart
        ]
        crashed = [f"{node} has crashed" for node in self.network.crashed]
        return sorted([*cuts, *crashed]) + self._edges()

    def _edges(self) -> list[str]:
        return [str(edge) for server in self.servers.values() for edge in edges_of(server)]

    def _check_left(self) -> None:
        for server in self.servers.values():
            check_clean(server)

    # --- Agents

    def host(self, machine: AgentMachine, others: Callable[[Host, ClientEffect], None]) -> Host:
        """Add an agent; `others` carries out its effects other than messages."""
        host = Host(machine, others)
        if host.ref.node in self.servers:
            self.hosts[host.ref] = host
        return host

    def remove(self, host: Host) -> None:
        """An agent has ended."""
        host.told.clear()
        self.hosts.pop(host.ref, None)
        self._unsettled.pop(host.ref, None)

    def perform(self, host: Host, effects: list[AgentEffect]) -> None:
        """Carry out an agent's effects after a call; its node's server gets messages at once."""
        if host.ref not in self.hosts:
            return  # its node has crashed
        host.perform(effects)
        self._send_out(host)
        link = (host.ref, host.ref.node)
        while link in self.network.links:
            self._take(link)

    def finish(self, node: str) -> None:
        """Deliver all messages in flight on a node, and those that follow from them there."""
        network = self.network
        alone = len(network.nodes) == 1
        while True:
            links = (
                network.links if alone else [each for each in network.links if _is_at(each, node)]
            )
            if links:
                self._take(network.oldest(links))
                continue
            agent = next((each for each in self._unsettled if each.node == node), None)
            if agent is None:
                return
            self._settle(agent)

    def told(self, host: Host) -> None:
        """A client was notified that it holds all that it requested."""
        with self._noticing():
            host.has_all()
            for server in self.servers.values():
                self._check_told(host, server)
            for other in self.hosts.values():
                if other.told and other is not host:
                    self._check_exclusion(host, other)

    def got_token(self, host: Host, lock_id: LockId, token: int) -> None:
        """A client has got a fencing token."""
        key = key_of(host.agent, lock_id)
        if key is None:  # it has ended meanwhile
            return
        bearer = self._bearers.setdefault(host.ref, Tokens(host))
        bearer.tokens[key] = token
        self.seen["tokens"] += 1
        with self._noticing():
            check_token(bearer, key, self._bearers.values(), self.servers.values())

    # --- Messages

    def send(self, sender: Party, receiver: Party, message: Message | bytes) -> None:
        """Put a message on its way, if its receiver is still there, and can be reached; or a frame, from node to node."""
        self.sent[type(message).__name__] += 1
        if home_of(sender) != home_of(receiver):
            self.speaker = self.running
        if isinstance(receiver, str) or receiver in self.hosts:
            self.network.send(sender, receiver, message)
            link = (sender, receiver)
            if len(self.network.links.get(link, ())) == 1:
                self._plan(link)

    _send = send

    def _send_out(self, host: Host) -> None:
        for sender, receiver, message in host.out:
            self.send(sender, receiver, message)
        host.out.clear()

    def _plan(self, link: Link) -> None:
        """Plan when the first message on a link arrives."""
        number, _ = self.network.links[link][0]
        self._at(self.time + self._delay(), MESSAGES, self._arrive, link, number)

    def _delay(self) -> float:
        """How long a message takes, in seconds."""
        if self._agenda.strategy.prompt:
            return 0.0
        mean = MESSAGE * (SLOW if self._rng.random() < SLOW_SHARE else 1.0)
        return self._rng.expovariate(1 / mean)

    def later(self, node: str, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> None:
        """Call a function on a node, outside of any client, after as long as a message takes."""
        self._at(self.time + self._delay(), MESSAGES, self._call, node, function, args)

    def _arrive(self, link: Link, number: int) -> None:
        queue = self.network.links.get(link)
        if queue is None or queue[0][0] != number:
            return  # a call has been faster, or it was lost
        if self.network.may_arrive(link):  # else that is planned again when it may
            self._take_in_order(link)

    def _take_in_order(self, link: Link) -> None:
        """Take the first message on a link. A frame keeps its order with all messages of its connection."""
        links = self.network.links
        while True:
            frames = home_of(link[0]), home_of(link[1])
            near = [link, frames] if frames in links else [link]
            if link == frames:
                near = [each for each in links if (home_of(each[0]), home_of(each[1])) == frames]
            first = self.network.oldest(near)
            if first == link:
                break
            self._take_in_order(first)
        self._take(link)
        if link in links:
            self._plan(link)

    def _take(self, link: Link) -> None:
        """The first message on a link arrives; then all must be as it should be."""
        message = self.network.take(link)
        receiver = link[1]
        with self._noticing():
            if isinstance(message, bytes):
                self.homes[home_of(receiver)].receive(home_of(link[0]), message)
            elif isinstance(receiver, str):
                self._serve(self.servers[receiver], message)
            elif receiver in self.hosts:
                self._tell(self.hosts[receiver], message)

    def _tell(self, host: Host, message: AgentMessage) -> None:
        host.receive(message)
        self._after(host)

    def _after(self, host: Host) -> None:
        """Something has happened to an agent."""
        self._send_out(host)
        if host.ref in self.hosts:
            self.homes[host.ref.node].heard(host.ref)
            if host.agent.unsettled:
                if host.ref not in self._unsettled:
                    self._at(self.time, SETTLING, self._settle, host.ref)
                self._unsettled[host.ref] = None

    def _settle(self, agent: AgentId) -> None:
        if agent in self._unsettled:
            del self._unsettled[agent]
            host = self.hosts[agent]
            host.settle()
            self._send_out(host)

    def _serve(self, server: ServerMachine, message: ServerMessage) -> None:
        served = serve(server, message)
        new = served.after.keys() - served.before.keys()
        self._check_tokens(server.node, {since for _, since in new})
        for effect in served.effects:
            match effect:
                case ToAgent():
                    if isinstance(message, Request) and has_to_wait(message, effect.message):
                        self.seen["waits"] += 1
                    self.send(server.node, effect.agent, effect.message)
                case ToWatcher():
                    self.homes[server.node].show(effect)
                case _:
                    assert_never(effect)
        if served.resolved is not None:
            self._resolved(served.resolved)
        for host in self.hosts.values():
            if host.told:
                self._check_told(host, server)

    def _resolved(self, report: Deadlock) -> None:
        check_report(report)
        self.deadlocks.append(report)
        self.seen["deadlocks"] += 1
        living = {client.name: client for client in self.clients if not client.dead}
        places = {name: self.place(client) for name, client in living.items()}
        who, what, details = words_of(report, places)
        self.note(who, what, matters=True, details=details)

    # --- Connections and nodes

    def change(self, change: Change) -> None:
        """A connection or a node breaks, or is mended; it is done when this returns, or as the run begins."""
        if self.closing:
            raise MisuseError("the simulation has run; nothing can break any more")
        if self._main is None:
            self._first.append(change)
            return
        self._at(self.time, FAULTS, self._make, change)
        self.pause()

    def _is_news(self, change: Change) -> bool:
        """Whether a change would change anything."""
        network = self.network
        match change:
            case ("cut", pair):
                return frozenset(pair) not in network.apart
            case ("mend", pair):
                return frozenset(pair) in network.apart
            case ("notice", pair):
                return pair in network.notices()
            case ("connect", pair):
                return pair in network.connectable()
            case ("crash", node):
                return node not in network.crashed
            case ("restart", node):
                return node in network.crashed
            case _:
                assert_never(change)

    def _make(self, change: Change) -> None:
        """Make a change happen, unless it is so already."""
        if not self._is_news(change):
            return
        there = self.network.make(change)
        match change:
            case ("cut", pair):
                self.seen["cuts"] += 1
                self._note_pair(pair, "breaks")
            case ("mend", pair):
                self._note_pair(pair, "can be made again")
            case ("connect", pair):
                self._note_pair(pair, "is there again")
            case ("notice", pair):
                self._noticed(*pair, there)
            case ("crash", node):
                self.seen["crashes"] += 1
                self._end_or_begin("crash", node)
                self._crashed(node)
            case ("restart", node):
                self.time += START
                self._end_or_begin("restart", node)
                self.note(node, "is started again; its lock table is empty", matters=True)
            case _:
                assert_never(change)
        self._plan_changes()

    def _note_pair(self, pair: Pair, what: str) -> None:
        self.note(f"the connection between {pair[0]} and {pair[1]}", what, matters=True)

    def _plan_changes(self) -> None:
        """Plan the changes that need no cause: nodes notice losses, and are connected again."""
        network, strategy = self.network, self._agenda.strategy
        changes: list[Change] = [("notice", pair) for pair in network.notices()]
        changes += [("connect", pair) for pair in network.connectable()]
        for change in changes:
            step = write_change(change)
            if step not in self._pending:
                pending = self._pending[step] = Pending(step)
                strategy.begin(pending)
                delay = strategy.delay(pending) * 10 ** self._rng.uniform(*NOTICES)
                due = self.time + delay
                self._agenda.plan(due, pending.rank, self._follow, (step, change), pending)

    def _follow(self, step: str, change: Change) -> None:
        del self._pending[step]
        self._make(change)

    def _noticed(self, node: str, other: str, there: bool) -> None:
        """A node has noticed that another one is gone, or there: its agents and its lock server do."""
        what = f"sees {other} again" if there else f"notices that {other} is gone"
        self.note(node, what, matters=True)
        with self._noticing():
            self.homes[node].sees(other, there)
            for host in [host for host in self.hosts.values() if host.ref.node == node]:
                (host.node_up if there else host.node_down)(other)
                self._after(host)
            self._notice_peer(self.servers[node], other, there)
            if not there:
                self.homes[node].lost(other)
        for link in list(self.network.links) if there else ():
            if home_of(link[0]) == other and home_of(link[1]) == node:
                self._plan(link)

    def _crashed(self, node: str) -> None:
        """A node has crashed: its transactions and its clients are gone."""
        self.note(node, "crashes: its lock table is lost", matters=True)
        for host in [host for host in self.hosts.values() if host.ref.node == node]:
            self.remove(host)
            self.network.drop(host.ref)
        for client in (*self.clients, *self._helpers):
            if client.node == node and not client.dead:
                if not client.is_helper:
                    self.note(client.name, f"is gone with {node}", matters=True)
                client.killed = client.gone = True
                self._take_out(client)


def _is_at(link: Link, node: str) -> bool:
    """Whether both ends of a link are on a node."""
    return home_of(link[0]) == node == home_of(link[1])
