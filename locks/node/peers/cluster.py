"""A node among others: which nodes have a lock server, and the messages between them.

When two nodes are connected, each greets the other's lock server with a call
(`locks.node.peers.greeter`). After the greeting, the other node is a *member*: its lock server can
be asked. A node that refuses the greeting is greeted again from time to time.

When the connection is lost, the node is no longer a member. Then the grants of its lock server are
unknown, and our lock server takes out the requests of that node's agents. A node that comes back
starts again, whether it was restarted or only cut off.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import pykka

from locks.core.agent.machine import AgentMachine
from locks.core.agent.refusals import refusal
from locks.core.messages import (
    AgentMessage,
    Knowledge,
    RaiseVersion,
    Refused,
    Release,
    Remove,
    Request,
    RequestStates,
    Resolved,
    ServerMessage,
    Surrender,
    Surrendered,
    ToAgent,
    VersionRaised,
)
from locks.core.parts import in_parts
from locks.core.statistics import TrafficStatistics
from locks.errors import LocksError, MisuseError, TransactionEnded, assert_never
from locks.lock_ids import is_held_up_id, shown, size_of
from locks.model import AgentId, Deadlock, LockId, RequestRecord, agent_numbered
from locks.net import messages
from locks.net.actors import Actors, Local, RemoteRef
from locks.net.addresses import Address, place
from locks.net.exchange import Exchange
from locks.net.link import Link
from locks.net.messages import (
    AboutActors,
    Agree,
    AnyAnswer,
    AnyQuestion,
    AskView,
    BadMessage,
    Frame,
    FromAgent,
    Greeting,
    Large,
    Limits,
    Refusal,
    Relaying,
    Seen,
    ToServer,
    brief,
    check_speaker,
    encode,
)
from locks.net.messages import ToAgent as FrameToAgent
from locks.net.network import Network
from locks.net.relay import AnyLink, RelayedLink, Relays
from locks.net.tls import Keys
from locks.net.versions import ASKED, check_version
from locks.node.client.agent import Agent
from locks.node.client.refusals import not_from_elsewhere
from locks.node.marks import memory_of
from locks.node.observing.inquiries import Inquiries
from locks.node.observing.news import are_servers, log_node_down, log_node_up
from locks.node.options import Options
from locks.node.peers.agreement import Agreements
from locks.node.peers.arrivals import Arrivals
from locks.node.peers.greeter import Greeter
from locks.node.peers.guests import Guests
from locks.node.peers.local_node import LocalNode
from locks.node.peers.silence import Silence
from locks.node.views.reader import ViewReader
from locks.node.views.sender import LARGEST_PAGE, Reader, ViewSender
from locks.ranges import one_line
from locks.runtime.addressed import OfAnotherNode
from locks.runtime.executor import Executor
from locks.runtime.identity import Listener
from locks.runtime.monitor import Client

__all__ = ["Cluster", "NodeDown", "NodeUp"]

logger = logging.getLogger("locks.nodes")

UNSENDABLE = (OverflowError, UnicodeEncodeError, NotImplementedError, TypeError)
ANSWERED = frozenset((RaiseVersion, Release, Request, Surrender))  # lock servers answer these


class NodeUp(NamedTuple):
    """A node was connected; see `Node.monitor_nodes`.

    Attributes:
        node: Its name.
    """

    node: str


class NodeDown(NamedTuple):
    """The connection to a node was lost.

    Attributes:
        node: Its name.
        reason: Why, in words.
    """

    node: str
    reason: str


class Cluster:
    """One node's relations with others.

    Args:
        node: The node.
        executor: Does the node's background work.
        options: The node's options.

    Attributes:
        options: The options of the node.
        members: The nodes with a lock server that can be asked.
        on_connected: Called with the name of each node that is connected, in the turn.
        on_silence: Called when a lock server becomes silent, or answers again, by the executor.
        silence: Watches which connected nodes are silent.
        relays: Links with nodes that are not connected, through lock servers.
        limits: What it may have at the lock servers of connected nodes, as far as they said.
    """

    def __init__(self, node: LocalNode, executor: Executor, options: Options) -> None:
        self.node = node
        self.executor = executor
        self.options = options
        self.members: set[str] = set()
        self.network = Network(
            node.name,
            node.turn,
            executor,
            listens=options.listen,
            peers=options.peers,
            locator=options.locator,
            keys=Keys.of(options.cookies, options.tls),
            ticktime=options.net_ticktime,
            is_client=options.hidden,
            check_address=options.check_address,
            on_up=self._connected,
            on_down=self._disconnected,
            refusals=node.refusals,
            notices=node.notices,
            on_frame=lambda link, body: self.exchange.take_in(link, body),
            may_be_thin=self._may_be_thin,
            on_thin=lambda link, body: self.exchange.take_thin(link, body),
            on_doubt=lambda link: self.exchange.ping(link),
        )
        self.network.open()
        self.exchange = Exchange(node.name, self.network.link_to, node.notices, self)
        self.actors = Actors(
            self.exchange,
            node.turn,
            executor,
            new_number=node.new_number,
            find=self._find,
            number_of=self._number_of,
        )
        self.silence = Silence(
            self.network.links,
            self.network.traffic,
            node.turn,
            executor,
            doubt=self.exchange.ping,
            awaited=self._awaited,
            changed=self._hears,
            lasts=lambda name: self.relays.avoid(name, f"no answer from {name}, which relays"),
        )
        self.relays = Relays(
            self.network,
            node.turn,
            executor,
            servers=self._relays,
            needed=self._partners,
            on_up=self._relayed,
            on_down=self._not_relayed,
            on_frame=self.exchange.take_in,
        )
        self.limits: dict[str, Limits] = {}
        self.greeter = Greeter(
            node,
            executor,
            self.network,
            self.exchange,
            options,
            is_member=self.members.__contains__,
            on_greeted=self._has_greeted,
            on_answered=self._greeted,
        )
        self.agreements = Agreements(
            node,
            executor,
            self.exchange,
            node.servers,
            on_agreed=self._may_join,
        )
        self._greeters: set[str] = set()  # nodes that have greeted this one
        self._refused_by: set[str] = set()  # nodes that have refused its greeting
        self.guests = Guests(
            node.server,
            executor,
            self.network.links.__contains__,
            options.limits,
            self._refuse,
        )
        self._last: tuple[Any, bytes] = (None, b"")  # message to a lock server, and its bytes
        self.arrivals = Arrivals(node, self.members, self.network.book.has_failed)
        self.views = ViewReader(self)
        self.readers = ViewSender(self, partial(executor.run_later, 0.0))
        self.inquiries = Inquiries(self)
        self._monitors: dict[Listener, None] = {}
        self._lost_servers: set[str] = set()  # until they are back
        self.on_connected: list[Callable[[str], object]] = []
        self.on_silence: dict[Callable[[], object], None] = {}
        if options.state is not None:
            memory_of(node, options.state)
        if node.servers is not None and node.name in node.servers.nodes:
            memory_of(node).recover(self)
        self.network.start()

    # --- Nodes that come and go, in the turn ----------------------------------------------------

    def _connected(self, link: Link) -> None:
        self.guests.is_back(link.peer.name)
        if link.peer.name in self.relays.links:
            self.relays.links[link.peer.name].lose("the nodes are connected")
        self.node.tell_agents(AgentMachine.peer_up, link.peer.name, in_touch=True)
        self._tell(NodeUp(link.peer.name), link)
        self.agreements.connected(link)
        self.greeter.greet(link)
        for act in self.on_connected:
            act(link.peer.name)

    def _relayed(self, link: RelayedLink) -> None:
        """There is a link through a server: actors and agents reach each other, but no lock server."""
        name = link.peer.name
        self.node.tell_agents(AgentMachine.peer_up, name, in_touch=True)
        self.arrivals.came(name, has_server=False)
        for act in self.on_connected:
            act(name)

    def _not_relayed(self, link: RelayedLink) -> None:
        """A link through a server has ended."""
        name = link.peer.name
        self.node.tell_agents(AgentMachine.peer_down, name, in_touch=True)
        self.exchange.lost(name)
        self.actors.lost(name)
        self.arrivals.left(name)

    def _greeted(self, link: Link, answered: bool, answer: Any) -> None:
        """Take in the answer to a greeting."""
        name = link.peer.name
        if not answered:
            return  # the connection is lost
        if isinstance(answer, Refusal):
            why = one_line(answer.why)
            self.node.refusals[name] = why
            self.node.notices.warn(
                "refused", name, "%s does not serve %s: %s", name, self.node.name, why
            )
            self._refused_by.add(name)
            self._left(name)
            self.greeter.greet_again(link)
        elif name in self._refused_by:
            self._refused_by.discard(name)
            self.node.refusals.pop(name, None)
            self._may_join(name)

    def _has_greeted(self, link: Link, limits: Limits) -> None:
        """Take in the greeting of another node; a client node has no lock server for others."""
        self.limits[link.peer.name] = limits
        name = link.peer.name
        if link.peer.hidden:
            self.node.refusals[name] = (
                "it is a client node (mesh=False), which grants no locks to others"
            )
            self.arrivals.came(name, has_server=False)
        else:
            self._greeters.add(name)
            self._may_join(name)

    def _may_join(self, name: str) -> None:
        """Make a node a member when it has greeted this one and agrees on the servers."""
        ready = name in self._greeters and self.agreements.may_ask(name)
        ready = ready and name not in self._refused_by
        if ready and name not in self.members:
            self._joined(name)

    def _joined(self, name: str) -> None:
        """Make a node a member: its lock server can be asked from now on."""
        node = self.node
        self.members.add(name)
        node.alive |= {name}
        node.tell_agents(AgentMachine.node_up, name)
        self.relays.look(at_once=True)
        self.arrivals.came(name)
        self.views.joined(name)

    def _left(self, name: str) -> None:
        """A node's lock server is gone."""
        if name not in self.members:
            return
        self.members.discard(name)
        node = self.node
        node.alive -= {name}
        node.silent -= {name}
        node.tell_agents(AgentMachine.node_down, name)

    def _awaited(self) -> set[str]:
        """The other nodes at which agents of ours wait, and that are not known to be silent."""
        thin = list(self.node.thin.asking.values())  # threads add to it
        nodes = {agent.remote.node for agent in thin if agent.remote is not None}
        for agent in list(self.node.agents_by_id.values()):
            nodes |= agent.machine.waits_at
        return (nodes & self.members) - self.node.silent

    def _hears(self, name: str, silent: bool) -> None:
        """A node is silent, or speaks again."""
        node = self.node
        if name not in self.members:
            return
        if silent:
            text = "%s does not answer, although it is connected: %s asks other lock servers first"
            node.silent |= {name}
            node.tell_agents(AgentMachine.node_silent, name)
        else:
            text = "%s answers %s again"
            node.silent -= {name}
            node.tell_agents(AgentMachine.node_speaks, name)
        self.executor.run_soon(logger.info, text, name, node.name)
        for act in list(self.on_silence):
            self.executor.run_soon(act)

    def _relays(self) -> list[str]:
        """The nodes that may relay: servers, silent ones only if there is no other."""
        servers = sorted(self.members & self.network.links.keys())
        return [name for name in servers if name not in self.node.silent] or servers

    def _disconnected(self, link: Link, reason: str) -> None:
        name = link.peer.name
        self.greeter.disconnected(name)
        self.limits.pop(name, None)
        self.arrivals.left(name)
        if name not in self.members:
            self.node.tell_agents(AgentMachine.peer_down, name, in_touch=True)
        self.agreements.lost(name)
        self._greeters.discard(name)
        self._refused_by.discard(name)
        self._left(name)
        self.exchange.lost(name)
        self.actors.lost(name)
        self.silence.lost(name)
        self.relays.lost(name)
        self.guests.lost(name)
        self.readers.lost(name)
        self.views.lost(name)
        if link.peer.hidden or name not in self.network.book.known:  # others are dialled
            self.node.refusals.pop(name, None)
        self._tell(NodeDown(name, reason), link)

    def connect(self, name: str, address: Address | None) -> None:
        """Connect to a node, and keep it connected; without an address, through a server."""
        self.network.connect(name, address)
        self.relays.look()

    def monitor_nodes(self, watcher: Listener, on: bool) -> None:
        """Tell a watcher of nodes that come and go, or stop telling it."""
        if on:
            self._monitors[watcher] = None
        else:
            self._monitors.pop(watcher, None)

    def traffic(self) -> TrafficStatistics:
        """The traffic between this node and others."""
        links, sum_ = self.network.links, self.network.traffic
        counts = (sum_.sent, sum_.received, sum_.bytes_sent, sum_.bytes_received)
        return TrafficStatistics(len(links), *counts)

    def _tell(self, news: NodeUp | NodeDown, link: Link) -> None:
        name = news.node
        if isinstance(news, NodeDown):
            self.node.counters.connections_lost += 1
            matters = self.network.is_running and are_servers(self.node, name)
            if matters:
                self._lost_servers.add(name)
            self.executor.run_soon(log_node_down, self.node, name, news.reason, matters)
        else:
            was_lost = name in self._lost_servers
            self._lost_servers.discard(name)
            self.executor.run_soon(log_node_up, self.node, name, was_lost)
        if not link.peer.hidden:
            self._tell_monitors(news)

    def _tell_monitors(self, news: NodeUp | NodeDown) -> None:
        for watcher in self._monitors:
            self.executor.run_soon(self._tell_one, watcher, news)

    def _tell_one(self, watcher: Listener, news: NodeUp | NodeDown) -> None:
        """Tell a watcher, outside of the turn."""
        if watcher.is_actor and not watcher.target.is_alive():
            self.node.turn.run(self.monitor_nodes, watcher, False)
        else:
            watcher.tell(self.executor, news)

    def register(self, name: str, actor: pykka.ActorRef[Any]) -> None:
        """Let an actor be reached from other nodes by a name, for as long as it lives."""
        before = self.actors.registered(name)
        if before is not None:
            raise MisuseError(f"can't use the name {name!r}: {before.subject} has it", name=name)
        self.actors.register(name, Local(actor))

    def ref_of(self, agent: AgentId) -> RemoteRef | None:
        """A reference to an agent of another node, if that is connected and may have it."""
        known = self.network.link_to(agent.node) is not None
        return self.actors.ref(agent.node, agent.created) if known else None

    def agent_behind(self, ref: OfAnotherNode) -> AgentId | None:
        """The id of an agent of another node; `None` for a name, which agents lack."""
        if not isinstance(ref, RemoteRef) or isinstance(ref.target, str):
            return None
        return agent_numbered(ref.target, ref.node)

    def place_of(self, name: str) -> str | None:
        """The address at which another node is looked for, as text, if known."""
        known = self.network.book.known.get(name)
        return None if known is None else place(known.address)

    def link(self, actor: Client, other: RemoteRef) -> None:
        """Link something of this node with an actor of another one."""
        self.actors.link(actor, other)

    # --- Messages to others, in the turn --------------------------------------------------------

    def send_to_server(self, name: str, agent: AgentId, message: ServerMessage) -> None:
        """An agent sends a message to the lock server of another node."""
        if name not in self.members:
            return
        last, encoded = self._last
        if message is not last:  # several nodes get the same message
            try:
                encoded = encode(ToServer(message))  # type: ignore[arg-type]  # agents watch nothing
            except UNSENDABLE as error:
                self._unsent(agent, message, error)
                return
            self._last = (message, encoded)
        self.network.links[name].send(encoded)
        if type(message) in ANSWERED:
            self.silence.asked(name)

    def send_to_agent(self, agent: AgentId, message: AgentMessage) -> None:
        """The lock server, or an agent, sends a message to an agent of another node."""
        link = self.network.link_to(agent.node)
        if link is None:
            # Nothing is lost: when there is a link, agents repeat it (`AgentMachine.peer_up`).
            if type(message) is Knowledge and message.records:
                self.relays.want(agent.node)
            return
        for part in in_parts(message, agent):
            try:
                link.send(encode(FrameToAgent(agent.created, part)))
            except UNSENDABLE as error:
                self._unsendable(agent, error)

    def _unsendable(self, agent: AgentId, error: Exception) -> None:
        text = "a message for %s can't be sent: %s"
        self.executor.run_soon(logger.error, text, agent, error)

    def _partners(self) -> set[str]:
        """The nodes with agents to which ours send records."""
        nodes: set[str] = set()
        for agent in list(self.node.agents_by_id.values()):
            if agent.machine.in_touch:
                nodes |= agent.machine.partners
        return nodes

    def _unsent(self, agent: AgentId, message: ServerMessage, error: Exception) -> None:
        """End an agent of ours whose message can't be sent; its client gets the reason."""
        text = f"{shown(message)} of transaction {agent} can't be sent: {error}"
        self.executor.run_soon(logger.error, "%s", text)
        self.node.turn.post(self._end, agent, TransactionEnded(text, agent=agent))

    def _end(self, agent: AgentId, error: LocksError) -> None:
        ours = self.node.agents_by_id.get(agent)
        if ours is not None:
            ours.event(ours.machine.end_transaction, error)

    def flush(self) -> bool:
        """Send all output, which may lose links; return whether there are new messages in the turn."""
        if not self.network.unsent:
            return False
        self.network.flush()
        return True

    # --- Messages from others, in the turn ------------------------------------------------------

    def _find(self, number: int) -> Local | None:
        """The agent with a number."""
        agent = self.node.agents_by_id.get(agent_numbered(number, self.node.name))
        return None if agent is None else Local(agent, closed=str(not_from_elsewhere(agent.id)))

    def _number_of(self, subject: Client) -> int | None:
        """The number of an agent: others know it already."""
        agent: Any = subject  # foreign: access its attributes only if it is one of ours
        return agent.id.created if issubclass(type(agent), Agent) else None

    def to_server(self, speaker: str, message: FromAgent) -> None:
        """An agent of another node sends something to our lock server."""
        self._check_agents(speaker, message)
        if type(message) is RaiseVersion:
            check_version(message.version, ASKED)
        report = message.report if type(message) is Surrender else None
        if report and (report.agent, report.server) != (message.agent, self.node.name):
            raise BadMessage("it reports a deadlock that is not resolved by this surrender")
        if report:
            _check_report(report)
        if type(message) is Request:
            self.node.thin.is_due()  # counts the pause down
        if self.guests.admit(speaker, message):
            self.node.deliver(self.node.server, message)

    def _check_agents(self, speaker: str, message: FromAgent) -> None:
        """Check who sends a message to our lock server, and what a request is for."""
        self._check_connected(speaker)
        check_speaker(message.agent.node, speaker)
        if type(message) is Request and is_held_up_id(message.lock_id):
            raise BadMessage("it requests what stands for a wait")

    def _may_be_thin(self) -> bool:
        """Whether a frame may be one for `thin`."""
        thin = self.node.thin
        return bool(thin.asking) or not (self.options.hidden or thin.pause)

    def thin(self, speaker: str, frame: Frame) -> bool:
        """Take in what concerns thin locks only: a request for a free one or its end, or the answer to one."""
        thin = self.node.thin
        if type(frame) is FrameToAgent:
            message = frame.message
            if frame.number not in thin.asking or type(message) is not RequestStates:
                return False
            self._check_connected(speaker)
            _check_records(message.records, speaker)
            return bool(thin.answered(speaker, frame.number, message))
        if type(frame) is not ToServer:
            return False
        asked = frame.message
        self._check_agents(speaker, asked)
        agent, guest = asked.agent, self.guests.of(speaker)
        if type(asked) is Remove and thin.part(asked):
            guest.parted(agent)
            return True
        if type(asked) is not Request or not guest.has_room(agent):
            return False
        answer = thin.request(asked)
        if answer is None:
            return False
        guest.count(agent)
        self.send_to_agent(agent, answer)
        self.flush()
        return True

    def to_agent(self, speaker: str, number: int, message: AgentMessage) -> None:
        """A lock server or an agent of another node sends something to one of our agents."""
        agent = self.node.agents_by_id.get(agent_numbered(number, self.node.name))
        if agent is None:
            return  # it has ended
        match message:
            case Knowledge():
                check_speaker(message.sender.node, speaker)
                _check_records(message.records)
            case Resolved():
                self._check_connected(speaker)
                check_speaker(message.report.server, speaker)
                _check_report(message.report)
                _check_records(message.records, speaker)
            case _:
                self._check_connected(speaker)
                check_speaker(message.node, speaker)
                if not isinstance(message, (Refused, VersionRaised)):
                    _check_records(message.records, speaker)
        if isinstance(message, Surrendered):
            check_version(message.version)
            if message.message.agent != agent.id:
                raise BadMessage("it answers a surrender of another agent")
        self.node.deliver(agent, message)

    def asked(
        self, speaker: str, question: AnyQuestion, answer: Callable[[AnyAnswer], object]
    ) -> None:
        """Another node asks something."""
        self._check_connected(speaker)
        match question:
            case Greeting():
                answer(self.greeter.take_greeting(speaker, question))
            case Agree():
                answer(self.agreements.take_servers(speaker, question))
            case AskView():
                # After this step, in which earlier messages, such as a release, are carried out.
                self.node.turn.post(self._answer_view, question.lock_id, answer)
            case _:
                self.inquiries.asked(speaker, question, answer)

    def about_views(
        self, speaker: str, frame: messages.Read | messages.EndRead | messages.Page | messages.Taken
    ) -> None:
        """Another node reads a view of ours, or tells of one of its own."""
        self._check_connected(speaker)
        match frame:
            case messages.Read(reading, lock_id):
                self.guests.reads(speaker, reading)
                self.readers.begin_watch(Reader(speaker, reading), lock_id)
            case messages.EndRead(reading):
                self.guests.ends_reading(speaker, reading)
                self.readers.end_watch(Reader(speaker, reading))
            case messages.Taken(reading, number):
                self.readers.taken(Reader(speaker, reading), number)
            case messages.Page():
                self.views.page(speaker, frame)
            case _:
                assert_never(frame)

    def about_actors(self, speaker: str, frame: AboutActors) -> None:
        """Another node says something to actors, or about some."""
        self.actors.take(speaker, frame)

    def relayed(self, link: AnyLink, frame: Relaying, body: bytes) -> None:
        """A frame of links through servers."""
        if not isinstance(link, Link):
            raise BadMessage("a link through a server leads through another one")
        self.relays.take(link, frame, body)

    def _check_connected(self, speaker: str) -> None:
        if speaker not in self.network.links:
            raise BadMessage("lock servers are asked, and answer, over connections only")

    def ignored(self, text: str, *args: object) -> None:
        """Log that the present message of another node was ignored."""
        self.node.notices.warn("ignored", self.node.name, text, *args)

    def _refuse(self, name: str, agent: AgentId, answer: Refused) -> None:
        """Refuse a request of a node that is at a limit."""
        here, text = self.node.name, str(refusal(answer))
        warning = "%s refused a request of %s: %s"
        self.node.notices.warn("limit", name, warning, here, name, text)
        self.node.perform(self.node.server, [ToAgent(agent, answer)])

    # --- Watching -------------------------------------------------------------------------------

    def _answer_view(self, lock_id: LockId, answer: Callable[[AnyAnswer], object]) -> None:
        """Answer a query for a view: with the view, if it fits into one page."""
        machine = self.node.server.machine
        size = 0
        for count, entry in enumerate(machine.table.related(lock_id)):
            size += size_of(entry.slot.lock_id)
            if count >= messages.MOST_ITEMS or size > LARGEST_PAGE:
                answer(Large())
                return
        answer(Seen(machine.view(lock_id)))

    # --- Its end --------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """Leave the cluster: all connections are closed. In the turn."""
        self.network.stop(reason)
        self.arrivals.close()


def _check_report(report: Deadlock) -> None:
    """Check what another node says of a deadlock, which people read."""
    if not report.node.isprintable():
        raise BadMessage(f"{brief(report.node)} is no node")
    _check_records([record for edge in report.cycle for record in edge])


def _check_records(records: Iterable[RequestRecord], server: str | None = None) -> None:
    """Check what another node says of requests: a lock server speaks of its own only."""
    for record in records:
        if server is not None:
            check_speaker(record.node, server)
        if not (record.node.isprintable() and record.agent.node.isprintable()):
            raise BadMessage(f"{brief(record.agent)} is an agent of no node")
        check_version(record.version)
        check_version(record.since)  # a token, to which others are asked to raise theirs
