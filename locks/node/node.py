"""A node: one running instance of `locks`, with its lock server and its agents.

The node carries messages between its actors. All of them take one turn (`locks.runtime.inline`):
whoever calls runs what follows from the call at once, in its own thread or greenlet, until every
message is delivered; then agents that learned something look for deadlocks (so that an agent has
taken in all that there is before it does), and what that brings about is delivered in turn.
Messages between two actors keep their order. Foreign code (notifications, watchers, monitors)
never runs within a turn; it is handed to the node's `Executor`.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pykka

from locks.core.agent.machine import AgentMachine
from locks.core.messages import (
    AnswerWait,
    Ended,
    Knowledge,
    Lost,
    Notify,
    Surrendered,
    ToAgent,
    ToServer,
    ToWatcher,
)
from locks.core.server.table import TableStatistics
from locks.errors import AgentEnded, InvalidOption, LockTimeout, MisuseError, NodeNotRunning
from locks.model import AgentId, LockId, View, show
from locks.node.agent import Agent, check_timeout
from locks.node.cluster import Cluster, NodeDown, NodeUp
from locks.node.server import Server
from locks.otp.calls import BlockingCall
from locks.otp.options import Address, Options, check_node_name, parse_peer
from locks.otp.remote import RemoteRef
from locks.runtime import Client, Executor, current_client, end_all, interrupts, tell
from locks.runtime.inline import Turn
from locks.wire import SERIAL_BITS, agent_numbered, unpack_view

if TYPE_CHECKING:
    from locks.groups.scope import Scope

__all__ = ["Node", "NodeStatistics", "Trace"]

logger = logging.getLogger("locks")

Trace = Callable[[Any, Any, Any], object]


class NodeStatistics(NamedTuple):
    """Counters of a node since it was started, and its size now.

    Attributes:
        name: The node's name.
        transactions: Transactions begun.
        aborted: Transactions that were aborted to resolve a deadlock.
        deadlocks: Deadlocks resolved on this node, by surrender or abort.
        agents: Agents alive now.
        knowledge: Messages by which agents passed knowledge on.
        table: Counters of the lock table.
    """

    name: str
    transactions: int
    aborted: int
    deadlocks: int
    agents: int
    knowledge: int
    table: TableStatistics


class Node:
    """One running instance of `locks`. `locks.start` makes it.

    Args:
        name: Its name, `name@host`.
        trace: Called with sender, receiver and message for each message between actors, within
            the turn: it must be quick, and must not call `locks`.
        options: How it takes part in a cluster; `None` if it stays alone.

    Attributes:
        agent_class: What its agents are.
        now: Says the time of creation of an agent, in nanoseconds since 1970.
        alive: The nodes whose lock servers can be asked, its own among them.
        cluster: What it has to do with other nodes, if it has.
        dependents: Actors that are stopped with it.
        scopes: Its process groups, by scope; `None` if it can have none.
    """

    agent_class: ClassVar[type[Agent]] = Agent
    now: Callable[[], int] = staticmethod(time.time_ns)
    cluster: Cluster | None = None
    scopes: dict[str, Scope] | None = None

    def __init__(
        self, name: str, trace: Trace | None = None, options: Options | None = None
    ) -> None:
        self.name = check_node_name(name)
        self.alive = frozenset((name,))
        self.running = True
        self.trace = trace
        self.executor = Executor.choose()
        self.turn = Turn(self._finish)
        # Versions go on rising across restarts: nothing makes a million changes a second.
        self.server = Server(self, time.time_ns() // 1000)
        self.agents: dict[AgentId, Agent] = {}
        self.clients: dict[Client, dict[Agent, None]] = {}  # the transactions of each client
        self.holders: dict[Client, Agent] = {}  # the transactions of `locks.Lock`s
        self.scopes = {}
        self._queue: deque[tuple[Server | Agent, Any]] = deque()
        self._unsettled: dict[Agent, None] = {}
        self._serial = itertools.count(1)
        self._transactions = self._aborted = self._deadlocks = self._knowledge = 0
        if options is not None:
            try:
                self.cluster = Cluster(self, options)
            except BaseException:
                self.executor.stop(timeout=5)
                raise
        self.dependents: set[pykka.ActorRef[Any]] = set()
        self._shielded = interrupts.install()

    def __repr__(self) -> str:
        return f"<Node {self.name} {'running' if self.running else 'stopped'}>"

    # --- Its life -------------------------------------------------------------------------------

    def spawn_agent(
        self, client: Client | None = None, created: int | None = None, **options: Any
    ) -> Agent:
        """Begin a transaction.

        Args:
            client: Whose it is; the caller by default.
            created: The time of creation, in nanoseconds since 1970, that the agent's reference
                says; now by default.
            **options: See `locks.begin_transaction`.
        """
        self.check_running()
        if client is None:
            client = current_client()
        if options.get("link") and not _can_be_linked(client):
            raise InvalidOption(
                f"a thread can't be linked: {client!r} can't be stopped from outside. Use "
                "link=False; the transaction ends with its client in any case",
                client=repr(client),
            )
        number = self.new_number(created)
        ref = agent_numbered(number, self.name)
        agent = self.agent_class(self, ref, client, **options)
        self.agents[ref] = agent
        self.clients.setdefault(client, {})[agent] = None
        try:
            agent.start_monitoring()
        except (TypeError, ValueError) as error:
            del self.agents[ref]
            self._forget(agent)
            raise InvalidOption(
                f"client {client!r} can't have a transaction: {error}", client=repr(client)
            ) from error
        self._transactions += 1
        return agent

    def new_number(self, created: int | None = None) -> int:
        """The number of a new agent or process: when it was made, and a serial number below."""
        microseconds = (self.now() if created is None else created) // 1000
        return microseconds << SERIAL_BITS | next(self._serial) & ((1 << SERIAL_BITS) - 1)

    def stop(self) -> None:
        """Stop the node: transactions end, those who wait are told, everything is released."""
        if self.running:
            self.running = False
            self.turn.run(self._leave)
            end_all(self.dependents)
        if self.server.is_alive():
            if self._shielded:
                interrupts.uninstall()
            watch = self.server.ended()
            if watch is not None:
                self.executor.run_soon(watch.fire, self.server, "normal")
            self.turn.run(self._end_scopes)
            self.executor.stop(timeout=5)

    def _leave(self) -> None:
        # In one turn: what is released here is granted to nobody of another node any more.
        self._end_agents()
        if self.cluster is not None:
            self.cluster.stop("the node was stopped")

    def _end_scopes(self) -> None:
        for scope in (self.scopes or {}).values():
            scope.end()

    def _end_agents(self, why: str = "was stopped") -> None:
        for agent in list(self.agents.values()):
            text = f"node {self.name} {why}; transaction {agent.id} has ended"
            agent.event(agent.machine.end, AgentEnded(text, agent=agent.id))

    def _crashed(self, actor: Server | Agent, error: Exception) -> None:
        """An actor broke down in the middle of a message; what it knows can't be trusted any more.

        An agent goes alone. Without its lock server, a node can vouch for nothing.
        """
        self.executor.run_soon(partial(logger.error, "%s has crashed", actor, exc_info=error))
        if isinstance(actor, Agent):
            text = f"transaction {actor.id} has crashed: {error!r}"
            actor.event(actor.machine.end, AgentEnded(text, agent=actor.id))
        else:
            self.running = False
            self._queue.clear()
            self._end_agents("has lost its lock server")
            if self.cluster is not None:
                self.cluster.stop("the lock server has crashed")

    def check_running(self) -> None:
        """Raise `NodeNotRunning` when the node was stopped."""
        if not self.running:
            raise NodeNotRunning(
                f"node {self.name} was stopped; start one with locks.start()", node=self.name
            )

    # --- Messages, in a turn --------------------------------------------------------------------

    def deliver(self, receiver: Server | Agent, message: Any) -> None:
        """Put a message into the queue."""
        self._queue.append((receiver, message))

    def perform(self, sender: Server | Agent, effects: Sequence[Any]) -> None:
        """Do what a machine wants done."""
        for effect in effects:
            kind = type(effect)
            receiver: Server | Agent | None
            if kind is ToServer:
                if effect.node != self.name:
                    self._send(sender, effect.node, effect.message)
                    continue
                receiver = self.server
            elif kind is ToAgent:
                if effect.agent.node != self.name:
                    self._send(sender, effect.agent, effect.message)
                    continue
                receiver = self.agents.get(effect.agent)
            else:
                self._perform_other(sender, effect)
                continue
            if receiver is not None:
                self._queue.append((receiver, effect.message))
                if self.trace is not None:
                    self.trace(sender, receiver, effect.message)

    def _send(self, sender: Any, receiver: str | AgentId, message: Any) -> None:
        """Send a message to a lock server, or an agent, of another node."""
        if self.trace is not None:
            self.trace(sender, receiver, message)
        if self.cluster is None:
            return  # an agent that has never been here: the simulator's
        if isinstance(receiver, str):
            self.cluster.to_server(receiver, sender, message)
        else:
            self.cluster.to_agent(receiver, message)

    def _perform_other(self, sender: Any, effect: Any) -> None:
        kind = type(effect)
        if kind is AnswerWait:
            effect.wait.answer(effect.result)
        elif kind is Ended:
            self.agents.pop(sender.id, None)
            self._forget(sender)
            self._unsettled.pop(sender, None)
            sender.has_ended(effect)
        elif kind is Notify:
            sender.notify(effect.notification)
        elif kind is Lost:
            sender.has_lost(effect)
        elif kind is ToWatcher:
            watcher = effect.watcher
            if self.cluster is not None and self.cluster.tell_watcher(watcher, effect.view):
                return
            told = partial(tell, watcher) if isinstance(watcher, pykka.ActorRef) else watcher
            self.executor.run_soon(told, effect.view)
        else:
            raise AssertionError(f"unknown effect {effect!r}")

    def _forget(self, agent: Agent) -> None:
        client = agent.client
        own = self.clients.get(client)
        if own is not None:
            own.pop(agent, None)
            if not own:
                self.clients.pop(client, None)
        if self.holders.get(client) is agent:
            del self.holders[client]

    def _finish(self) -> None:
        queue = self._queue
        unsettled = self._unsettled
        while True:
            while queue:
                receiver, message = queue.popleft()
                try:
                    receiver.handle(message)
                except Exception as error:
                    self._crashed(receiver, error)
                    continue
                if type(receiver) is Agent:
                    kind = type(message)
                    if kind is Knowledge:
                        self._knowledge += 1
                    elif kind is Surrendered and message.done and message.message.report:
                        self._deadlocks += 1
                        self._aborted += message.message.report.action == "aborted"
                    if receiver.machine.unsettled:
                        unsettled[receiver] = None
            if unsettled:
                agent = next(iter(unsettled))
                del unsettled[agent]
                try:
                    agent.settle()
                except Exception as error:
                    self._crashed(agent, error)
            elif self.cluster is not None and self.cluster.distribution.unsent:
                self.cluster.distribution.flush()  # a link that is lost here is news
            else:
                return

    def tell_agents(self, event: Callable[[AgentMachine, str], list[Any]], node: str) -> None:
        """Another node's lock server is there, or gone: tell all agents. In a turn."""
        for agent in list(self.agents.values()):
            try:
                agent.event(event, agent.machine, node)
            except Exception as error:
                self._crashed(agent, error)
            if agent.machine.unsettled:
                self._unsettled[agent] = None

    def log(self, text: str, *args: Any) -> None:
        """Log an error, outside of the turn."""
        self.executor.run_soon(logger.error, text, *args)

    # --- Other nodes ----------------------------------------------------------------------------

    def _needs_cluster(self) -> Cluster:
        self.check_running()
        if self.cluster is None:
            raise MisuseError(
                f"node {self.name} was started to be alone; start it with a cookie: "
                "locks.start(name, cookie=...)",
                node=self.name,
            )
        return self.cluster

    @property
    def address(self) -> Address | None:
        """Where it listens for other nodes, host and port; `None` if it does not."""
        return self.cluster.distribution.address if self.cluster is not None else None

    def nodes(self) -> list[str]:
        """The nodes that it is connected with."""
        return sorted(self.cluster.distribution.links) if self.cluster is not None else []

    def runs_original(self, name: str) -> bool:
        """Whether the lock server of another node, which is connected, is the original's."""
        return self.cluster is not None and self.cluster.members.get(name) is True

    def connect(self, peer: str, *, timeout: float | None = 5) -> bool:
        """Connect to another node, and stay connected: a connection that is lost is made anew.

        Args:
            peer: `name@host:port`; `name@host` if its address is known, or with epmd.
            timeout: Seconds to wait at most; `None` waits for ever. It is tried on afterwards.

        Returns:
            Whether it is connected, and its lock server can be asked if it has one.

        Raises:
            InvalidOption: That is no peer, or its address is not allowed (see `start`).
        """
        cluster = self._needs_cluster()
        check_timeout(timeout)
        distribution = cluster.distribution
        known = distribution.options.epmd or peer in distribution.addresses
        name, address = parse_peer(peer, known)
        if name == self.name:
            raise InvalidOption(f"{name} is the node itself, not a peer", peer=name)
        if address is not None:
            distribution.options.check_address(address, "connects to")
        self.turn.run(distribution.connect, name, address)
        waiter = self.turn.ask(partial(cluster.wait_for, name, server=False))
        return waiter is None or waiter.wait(timeout)

    def await_nodes(self, names: Iterable[str], *, timeout: float | None = None) -> bool:
        """Wait until the lock servers of other nodes can be asked.

        Args:
            names: The nodes; the own one is there already.
            timeout: Seconds to wait at most; `None` waits for ever.

        Returns:
            Whether all of them were there at some moment of the wait.
        """
        cluster = self._needs_cluster()
        check_timeout(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        for name in names:
            waiter = None
            if name != self.name:
                waiter = self.turn.ask(partial(cluster.wait_for, name, server=True))
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if waiter is not None and not waiter.wait(left):
                return False
        return True

    def disconnect(self, name: str) -> bool:
        """Disconnect from another node, and stay apart from it until `connect` is called.

        Returns:
            Whether it was connected.
        """
        return self.turn.ask(self._needs_cluster().distribution.disconnect, name)

    def monitor_nodes(
        self, watcher: pykka.ActorRef[Any] | Callable[[NodeUp | NodeDown], object], on: bool = True
    ) -> None:
        """Have somebody told of nodes that are connected, and of those that are lost.

        Args:
            watcher: An actor's reference, which gets `NodeUp` and `NodeDown` as messages, or a
                callable. A callable runs in the node's background greenlet.
            on: `False` ends it.
        """
        cluster = self._needs_cluster()
        if not (isinstance(watcher, pykka.ActorRef) or callable(watcher)):
            raise InvalidOption(
                f"watcher {watcher!r} is neither an actor's reference nor a callable",
                watcher=repr(watcher),
            )
        self.turn.run(cluster.monitor_nodes, watcher, on)

    def register(self, name: str, actor: pykka.ActorRef[Any]) -> None:
        """Let an actor be reached from other nodes by a name.

        Raises:
            MisuseError: The name is taken.
        """
        cluster = self._needs_cluster()
        if not isinstance(actor, pykka.ActorRef):
            raise InvalidOption(f"{actor!r} is not an actor's reference", actor=repr(actor))
        self.turn.run(cluster.register, name, actor)

    def remote(self, name: str, node: str) -> RemoteRef:
        """A reference to the actor, or the Erlang process, of this name on another node."""
        return self._needs_cluster().remotes.ref(node, name)

    def link(self, actor: Client, other: RemoteRef) -> None:
        """Link an actor, a greenlet or a thread of this node to a process of another one.

        When one of them ends abnormally, or the connection is lost, the other one is stopped.

        Raises:
            InvalidOption: `actor` can't be stopped, or `other` is known by its name only.
        """
        cluster = self._needs_cluster()
        if not _can_be_linked(actor) or isinstance(actor, RemoteRef):
            raise InvalidOption(f"{actor!r} can't be linked: it can't be stopped from outside")
        self.turn.run(cluster.link, actor, other)

    # --- Questions ------------------------------------------------------------------------------

    def view(self, lock_id: LockId, node: str | None = None, timeout: float | None = None) -> View:
        """What is known of a lock id on this node, or on another one."""
        if node in (None, self.name):
            return self.turn.ask(self.server.machine.view, lock_id)
        assert node is not None
        cluster = self._needs_cluster()
        call = BlockingCall(cluster.processes, self.turn)
        self.turn.run(cluster.ask_view, node, lock_id, call)
        outcome = call.wait(timeout)
        if outcome is None:
            raise LockTimeout(f"{node} did not say within {timeout} s who has {show(lock_id)}")
        answered, answer = outcome
        if not answered:
            raise NodeNotRunning(f"{node} does not answer: {answer}", nodes=[node])
        return unpack_view(answer)

    def statistics(self) -> NodeStatistics:
        """Counters and present size."""
        return NodeStatistics(
            self.name,
            self._transactions,
            self._aborted,
            self._deadlocks,
            len(self.agents),
            self._knowledge,
            self.turn.ask(self.server.machine.statistics),
        )


def _can_be_linked(client: Client) -> bool:
    return isinstance(client, pykka.ActorRef) or not hasattr(client, "is_alive")
