"""A node among others: which nodes have a lock server, and the messages between them.

When two nodes are connected, each greets the other's lock server with a call
(`locks.node.peers.greeter`). After the greeting, the other node is a *member*: its lock server can
be asked. A node without a lock server is greeted again from time to time.

When the connection is lost, the node is no longer a member. Then the grants of its lock server are
unknown, and our lock server takes out the requests of that node's agents. A node that comes back
starts again, whether it was restarted or only cut off.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
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
    Request,
    ServerMessage,
    Surrender,
    ToAgent,
    Unwatch,
    Watch,
)
from locks.core.parts import in_parts
from locks.core.statistics import TrafficStatistics
from locks.errors import LocksError, MisuseError, TransactionEnded
from locks.lock_ids import shown, size_of
from locks.model import AgentId, LockId, agent_numbered
from locks.net.addresses import Address, place
from locks.net.budgets import Limits
from locks.net.link import Link
from locks.net.relay import RelayedLink, Relays
from locks.node.client.agent import Agent
from locks.node.client.refusals import not_from_elsewhere
from locks.node.marks import memory_of
from locks.node.observing.inquiries import UNKNOWN, Inquiries
from locks.node.observing.news import are_servers, log_node_down, log_node_up
from locks.node.peers.agreement import SERVERS, Agreements
from locks.node.peers.arrivals import Arrivals
from locks.node.peers.greeter import Greeter
from locks.node.peers.greeting import GREETING, refusal_in
from locks.node.peers.guests import Guests
from locks.node.peers.local_node import LocalNode
from locks.node.peers.silence import Silence
from locks.node.views.reader import ViewReader
from locks.node.views.sender import ViewSender
from locks.otp.bytes import control, etf
from locks.otp.bytes.control import BadMessage, StrangeMessage, brief, check_speaker
from locks.otp.bytes.terms import Pid
from locks.otp.distribution import Distribution
from locks.otp.options import Options
from locks.otp.process.processes import CAST, Local, Processes, parse_call, parse_cast
from locks.otp.process.remote import Errors, RemoteRef, Remotes
from locks.runtime.addressed import OfAnotherNode
from locks.runtime.executor import Executor
from locks.runtime.identity import Listener
from locks.runtime.monitor import Client
from locks.wire import pages
from locks.wire.forms import LOCK_SERVER, agent_of, is_ours, pid_of, to_lock_id
from locks.wire.messages import pack, unpack_to_agent, unpack_to_server
from locks.wire.refusals import pack_attributes, unpack_error
from locks.wire.values import VIEW, pack_view

__all__ = ["Cluster", "NodeDown", "NodeUp"]

logger = logging.getLogger("locks.nodes")

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
        self.members: set[str] = set()
        self.distribution = Distribution(
            node.name,
            options,
            node.turn,
            executor,
            on_up=self._connected,
            on_down=self._disconnected,
            refusals=node.refusals,
            notices=node.notices,
            on_frame=self._take_frame,
            on_doubt=lambda link: self.processes.prod(link),
        )
        self.distribution.open()
        self.processes = Processes(
            self.distribution,
            node.turn,
            executor,
            new_number=node.new_number,
            find=self._find,
            number_of=self._number_of,
        )
        self.silence = Silence(
            self.distribution.links,
            self.distribution.traffic,
            node.turn,
            executor,
            doubt=self.processes.prod,
            awaited=self._awaited,
            changed=self._hears,
            lasts=lambda name: self.relays.avoid(name, f"no answer from {name}, which relays"),
        )
        self.relays = Relays(
            self.distribution,
            node.turn,
            executor,
            servers=self._relays,
            needed=self._partners,
            on_up=self._relayed,
            on_down=self._not_relayed,
            on_frame=self.processes.receive,
        )
        self.remotes = Remotes(
            node.name, self.processes, node.turn, executor, Errors(pack_attributes, unpack_error)
        )
        self.limits: dict[str, Limits] = {}
        self.greeter = Greeter(
            node,
            executor,
            self.distribution,
            self.processes,
            is_member=self.members.__contains__,
            on_greeted=self._has_greeted,
            on_answered=self._greeted,
        )
        self.agreements = Agreements(
            node,
            executor,
            self.processes,
            node.servers,
            on_agreed=self._may_join,
        )
        self._greeters: set[str] = set()  # nodes that have greeted this one
        self._refused_by: set[str] = set()  # nodes that have refused its greeting
        self.guests = Guests(
            node.server,
            executor,
            self.distribution.links.__contains__,
            options.limits,
            self._refuse,
        )
        self._last: tuple[Any, bytes] = (None, b"")  # message to a lock server, and its bytes
        self.arrivals = Arrivals(node, self.members, self.distribution.book.has_failed)
        self.views = ViewReader(self)
        self.readers = ViewSender(self, partial(executor.run_later, 0.0))
        self.inquiries = Inquiries(self)
        self._monitors: dict[Listener, None] = {}
        self._lost_servers: set[str] = set()  # until they are back
        self.on_connected: list[Callable[[str], object]] = []
        self.on_silence: dict[Callable[[], object], None] = {}
        self.processes.register(LOCK_SERVER, Local(self._to_server, node.server))
        if options.state is not None:
            memory_of(node, options.state)
        if node.servers is not None and node.name in node.servers.nodes:
            memory_of(node).recover(self)
        self.distribution.start()

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
        self.arrivals.left(name)
        self.processes.lost(name)

    def _greeted(self, link: Link, answered: bool, answer: Any) -> None:
        """Take in the answer to a greeting."""
        name = link.peer.name
        if not answered and answer != "noconnection":
            self.arrivals.came(name, has_server=False)
            self.greeter.greet_again(link)
        elif (why := refusal_in(answer)) is not None:
            self.node.refusals[name] = why
            self.node.notices.warn(
                "refused", name, "%s does not serve %s: %s", name, self.node.name, why
            )
            self._refused_by.add(name)
            self._left(name)
            self.greeter.greet_again(link)
        elif answered and name in self._refused_by:
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
        """The other nodes at which agents of ours wait."""
        nodes: set[str] = set()
        for agent in list(self.node.agents_by_id.values()):  # threads add to it
            nodes |= agent.machine.waits_at
        return nodes & self.members

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
        servers = sorted(self.members & self.distribution.links.keys())
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
        self.processes.lost(name)
        self.silence.lost(name)
        self.relays.lost(name)
        self.guests.lost(name)
        self.readers.lost(name)
        self.views.lost(name)
        if link.peer.hidden:
            self.node.refusals.pop(name, None)
        self._tell(NodeDown(name, reason), link)

    def connect(self, name: str, address: Address | None) -> None:
        """Connect to a node, and keep it connected; without an address, through a server."""
        self.distribution.connect(name, address)
        self.relays.look()

    def monitor_nodes(self, watcher: Listener, on: bool) -> None:
        """Tell a watcher of nodes that come and go, or stop telling it."""
        if on:
            self._monitors[watcher] = None
        else:
            self._monitors.pop(watcher, None)

    def traffic(self) -> TrafficStatistics:
        """The traffic between this node and others."""
        links, sum_ = self.distribution.links, self.distribution.traffic
        counts = (sum_.sent, sum_.received, sum_.bytes_sent, sum_.bytes_received)
        return TrafficStatistics(len(links), *counts)

    def _tell(self, news: NodeUp | NodeDown, link: Link) -> None:
        name = news.node
        if isinstance(news, NodeDown):
            self.node.counters.connections_lost += 1
            matters = self.distribution.is_running and are_servers(self.node, name)
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
        before = self.processes.registered(name)
        if before is not None:
            raise MisuseError(f"can't use the name {name!r}: {before.subject} has it", name=name)
        self.remotes.register(name, actor)

    def ref_of(self, agent: AgentId) -> RemoteRef | None:
        """A reference to an agent of another node, if that is connected and may have it."""
        link = self.distribution.link_to(agent.node)
        if link is None or agent_numbered(agent.created, agent.node) != agent:
            return None
        return self.remotes.ref(agent.node, pid_of(agent, link.peer.creation))

    def agent_behind(self, ref: OfAnotherNode) -> AgentId | None:
        """The id of an agent of another node; `None` for a name, which agents lack."""
        if not isinstance(ref, RemoteRef) or isinstance(ref.target, str):
            return None
        return agent_of(ref.target)

    def place_of(self, name: str) -> str | None:
        """The address at which another node is looked for, as text, if known."""
        known = self.distribution.book.known.get(name)
        return None if known is None or known.address is None else place(known.address)

    def link(self, actor: Client, other: RemoteRef) -> None:
        """Link something of this node with a process of another one."""
        self.processes.link(actor, self.remotes.pid_of(actor), self.remotes.pid_of(other))

    # --- Messages to others, in the turn --------------------------------------------------------

    def to_server(self, name: str, agent: AgentId, message: ServerMessage) -> None:
        """An agent sends a message to the lock server of another node."""
        if name not in self.members:
            return
        last, encoded = self._last
        # Several nodes get the same message, so the last one is kept encoded. Compare the types,
        # too: messages of different classes may be equal as tuples.
        if type(message) is not type(last) or message != last:
            try:
                encoded = etf.encode((CAST, pack(message)))
            except etf.EncodeError as error:
                self._unsent(agent, message, error)
                return
            self._last = (message, encoded)
        self.processes.send_named(name, LOCK_SERVER, encoded)
        if type(message) in ANSWERED:
            self.silence.asked(name)

    def to_agent(self, agent: AgentId, message: AgentMessage) -> None:
        """The lock server, or an agent, sends a message to an agent of another node."""
        link = self.distribution.link_to(agent.node)
        if link is None:
            # Nothing is lost: when there is a link, agents repeat it (`AgentMachine.peer_up`).
            if type(message) is Knowledge and message.records:
                self.relays.want(agent.node)
            return
        pid = pid_of(agent, link.peer.creation)
        for part in in_parts(message, agent):
            try:
                encoded = etf.encode(pack(part, agent))
            except etf.EncodeError as error:
                self._unsendable(agent, error)
            else:
                self.processes.send(pid, encoded)

    def _unsendable(self, agent: AgentId, error: etf.EncodeError) -> None:
        text = "a message for %s can't be sent: %s"
        self.executor.run_soon(logger.error, text, agent, error)

    def _partners(self) -> set[str]:
        """The nodes with agents to which ours send records."""
        nodes: set[str] = set()
        for agent in list(self.node.agents_by_id.values()):
            if agent.machine.in_touch:
                nodes |= agent.machine.partners
        return nodes

    def _unsent(self, agent: AgentId, message: ServerMessage, error: etf.EncodeError) -> None:
        """End an agent of ours whose message can't be sent; its client gets the reason."""
        text = f"{shown(message)} of transaction {agent} can't be sent: {error}"
        self.executor.run_soon(logger.error, "%s", text)
        self._end(agent, TransactionEnded(text, agent=agent))

    def _end(self, agent: AgentId, error: LocksError) -> None:
        ours = self.node.agents_by_id.get(agent)
        if ours is not None:
            self.node.turn.post(ours.event, ours.machine.end_transaction, error)

    def could_not_send(self, error: Exception) -> bool:
        """Whether an error means that a message can't be sent."""
        return isinstance(error, etf.EncodeError)

    def flush(self) -> bool:
        """Send all output, which may lose links; return whether there are new messages in the turn."""
        if not self.distribution.unsent:
            return False
        self.distribution.flush()
        return True

    # --- Messages from others, in the turn ------------------------------------------------------

    def _take_frame(self, link: Link, frame: bytes) -> None:
        """Take in a frame of a connection."""
        if frame.startswith(control.PASS_THROUGH):
            self.processes.receive(link, frame)
        else:
            self.relays.take(link, frame)

    def _find(self, number: int) -> Local | None:
        """The agent with a pid's number."""
        agent = self.node.agents_by_id.get(agent_numbered(number, self.node.name))
        if agent is None:
            return None
        return Local(partial(self._to_agent, agent), agent, can_exit=False)

    def _number_of(self, subject: Client) -> int | None:
        """The number of the pid of an agent: others know its reference already."""
        agent: Any = subject  # foreign: access its attributes only if it is one of ours
        return agent.id.created if issubclass(type(agent), Agent) else None

    def _to_server(self, message: Any, sender: Pid | None) -> None:
        """A process of another node sends something to our lock server."""
        if sender is None:
            return
        try:
            term = parse_cast(message)
            if sender.node not in self.distribution.links:
                raise BadMessage("lock servers are asked over connections only")
            if is_ours(term):
                self._take_ours(term, sender)
                return
            call = parse_call(message)
            if call is None:
                raise StrangeMessage(f"{brief(term)} is not a message for a lock server")
            caller, tag, request = call
            check_speaker(caller, sender.node)
            if is_ours(request) and request[1] == VIEW and len(request) == 3:
                # After this step, in which earlier messages, such as a release, are carried out.
                lock_id = to_lock_id(request[2])
                self.node.turn.post(self._answer_view, caller, tag, lock_id)
            elif not self.inquiries.take_call(caller, tag, request):
                self.remotes.answer_term(caller, tag, self._answer(sender.node, request))
        except StrangeMessage as error:
            self.ignored("ignored a message of %s: %s", sender.node, error)

    def ignored(self, text: str, *args: object) -> None:
        """Log that the present message of another node was ignored."""
        self.node.notices.warn("ignored", self.processes.speaker, text, *args)

    def _take_ours(self, term: tuple[Any, ...], sender: Pid) -> None:
        """Take in a message of another node to our lock server."""
        if term[1] is pages.TAKEN:
            self.readers.taken(sender.node, *pages.unpack_taken(term))
            return
        message = unpack_to_server(term, sender.node)
        if not self.guests.admit(sender.node, message):
            return
        watcher: Any  # a pid
        if type(message) is Watch:
            watcher, lock_id = message
            self.readers.begin_watch(watcher, lock_id)
        elif type(message) is Unwatch:
            watcher, lock_id = message
            self.readers.end_watch(watcher, lock_id)
        else:
            self.node.deliver(self.node.server, message)

    def _refuse(self, name: str, agent: AgentId, answer: Refused) -> None:
        """Refuse a request of a node that is at a limit."""
        here, text = self.node.name, str(refusal(answer))
        warning = "%s refused a request of %s: %s"
        self.node.notices.warn("limit", name, warning, here, name, text)
        self.node.perform(self.node.server, [ToAgent(agent, answer)])

    def _answer(self, name: str, request: Any) -> Any:
        """The answer to a call of the lock server."""
        if is_ours(request) and request[1] == GREETING:
            return self.greeter.take_greeting(name, request)
        if is_ours(request) and request[1] == SERVERS:
            return self.agreements.take_servers(name, request)
        return UNKNOWN

    def _to_agent(self, agent: Agent, message: Any, sender: Pid | None) -> None:
        """A process of another node sends something to one of our agents."""
        try:
            if is_ours(message):
                speaker = self.processes.speaker
                unpacked = unpack_to_agent(message, agent.id, agent.machine.client, speaker)
                if type(unpacked) is not Knowledge and speaker not in self.distribution.links:
                    raise BadMessage(f"{brief(message[1])} is not what agents tell each other")
                self.node.deliver(agent, unpacked)
                return
            call = parse_call(message)
            if call is None:
                raise StrangeMessage(f"{brief(message)} is not a message for an agent")
            caller, tag, _ = call
            check_speaker(caller, self.processes.speaker)
            self.remotes.answer_term(caller, tag, not_from_elsewhere(agent.id))
        except StrangeMessage as error:
            self.ignored("ignored a message to %s: %s", agent, error)

    # --- Watching -------------------------------------------------------------------------------

    def _answer_view(self, caller: Pid, tag: Any, lock_id: LockId) -> None:
        self.remotes.answer_term(caller, tag, self._view(lock_id))

    def _view(self, lock_id: LockId) -> Any:
        """The answer to a query for a view: the view, if it fits into one page."""
        machine = self.node.server.machine
        size = 0
        for count, entry in enumerate(machine.table.related(lock_id)):
            size += size_of(entry.slot.lock_id)
            if count >= pages.MOST_ITEMS or size > pages.LARGEST_PAGE:
                return pages.LARGE
        return pack_view(machine.view(lock_id))

    # --- Its end --------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """Leave the cluster: all connections are closed. In the turn."""
        self.distribution.stop(reason)
        self.arrivals.close()
