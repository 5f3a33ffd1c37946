"""A node: one running instance of `locks`, with its lock server and its agents.

It puts together the actors (`locks.node.client.agent`, `locks.node.server`), the queue between them
(`locks.node.dispatch`), and the relations with other nodes (`locks.node.peers.cluster`). Its
clocks, its turn and its background are arguments, so a simulated node is a node, too
(`locks.runtime.port`).
"""

from __future__ import annotations

import itertools
import logging
import operator
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

import pykka

from locks.core.statistics import NodeStatistics, TrafficStatistics
from locks.errors import InvalidOption, MisuseError, NodeNotRunning
from locks.lock_ids import shown
from locks.model import (
    SERIAL_BITS,
    AgentId,
    LockId,
    View,
    agent_numbered,
    check_node_name,
    check_nodes,
    check_text,
    check_timeout,
)
from locks.node.client.agent import Agent
from locks.node.client.clients import can_be_linked, labelled, this_program
from locks.node.client.holders import Holders
from locks.node.client.one_client import join_waits
from locks.node.client.refusals import owner_has_ended
from locks.node.client.scope import first_servers, take_servers
from locks.node.client.thin import ThinLocks
from locks.node.dispatch import Dispatch, Trace
from locks.node.observing.audit import Audit
from locks.node.observing.long_waits import LONG, LongWaits
from locks.node.observing.statistics import Counters
from locks.node.ports import Background, Scope, Servers
from locks.node.server import Server, listener
from locks.node.services import Service, Services
from locks.ranges import LONGEST_NAME
from locks.runtime import interrupts
from locks.runtime.actor import end_all
from locks.runtime.addressed import OfAnotherNode, register, register_first
from locks.runtime.clock import monotonic, wall_ns
from locks.runtime.executor import Executor
from locks.runtime.first_use import Unloaded
from locks.runtime.identity import Listener
from locks.runtime.inline import Journal, Turn
from locks.runtime.monitor import (
    CannotMonitor,
    Client,
    Ending,
    current_client,
)
from locks.runtime.native import insist
from locks.runtime.shown import Shown

if TYPE_CHECKING:
    from locks.net import actors as remotes
    from locks.net import addresses
    from locks.net import notices as noted
    from locks.node import options as nodes
    from locks.node.peers import cluster as clusters
else:  # alone it needs nothing of what these stand on
    clusters = Unloaded("locks.node.peers.cluster")
    noted = Unloaded("locks.net.notices")
    nodes = Unloaded("locks.node.options")
    addresses = Unloaded("locks.net.addresses")
    remotes = Unloaded("locks.net.actors")

__all__ = ["Node", "Service", "Trace"]

logger = logging.getLogger("locks.runtime")


class Node(metaclass=Shown):
    """One running instance of `locks`. `locks.start` makes it.

    Args:
        name: Its name, `name@host`.
        trace: Called with sender, receiver and message of each message between actors, in order,
            after its turn.
        options: How it takes part in a cluster; `None` if it stays alone.
        register_agents: Whether its agents are in Pykka's registry; the lock server is in any case.
        log_waits_longer_than: See `locks.start`.
        executor: Calls foreign code. If it is not the node's own executor, the node is simulated:
            it is in no registry, may have any name, and does not handle Ctrl-C.
        turn: Makes the turn of its actors.
        counters: The counters of its statistics.
        clocks: Two clocks: the time in nanoseconds since 1970, for people; and a monotonic time in
            seconds, for measurements.
        first_version: The first version of its lock table; by default larger than all versions of
            earlier nodes of this name.
        agents: Makes its agents.

    Attributes:
        alive: The nodes whose lock servers can be asked, its own among them.
        silent: Of these, those that say nothing (`locks.node.peers.silence`).
        cluster: What it has to do with other nodes, if it has.
        is_clustered: Whether other nodes may hear of its locks.
        dependents: Actors that are stopped with it.
        server: The reference of its lock server.
        services: What else lives on it.
        thin: The thin locks of its clients.
        servers: Where locks are taken; `None` before the first one, if it meets others and none were
            set.
        scope: The same for each lock; `None` if it depends on the id, too.
        refusals: Why nodes that run can't be connected, by their names.
    """

    cluster: clusters.Cluster | None = None
    _for_users = frozenset(
        (
            *("address", "agents", "await_nodes", "connect", "disconnect", "link", "monitor_nodes"),
            *("nodes", "register", "remote", "spawn_agent", "statistics"),
            *("stop", "trace", "view"),
        )
    )

    def __init__(
        self,
        name: str,
        trace: Trace | None = None,
        options: nodes.Options | None = None,
        register_agents: bool = False,
        log_waits_longer_than: float = LONG,
        *,
        executor: Background | None = None,
        turn: Callable[[Journal, Callable[..., object]], Turn] = Turn,
        counters: Counters | None = None,
        clocks: tuple[Callable[[], int], Callable[[], float]] = (wall_ns, monotonic),
        first_version: int | None = None,
        agents: type[Agent] = Agent,
    ) -> None:
        simulated = executor is not None
        # Simulated nodes have short names, such as n1.
        self._check_name: Callable[[str], str] = str if simulated else check_node_name
        self.name = self._check_name(name)
        self.alive = frozenset((name,))
        self.silent: frozenset[str] = frozenset()
        self.servers: Servers | None = None
        self.scope: Scope | None = None
        take_servers(self, first_servers(name, options))
        self.program = "" if options is None else this_program()
        self.running = True
        self.now, self.clock = clocks
        self.executor: Background = Executor.choose() if executor is None else executor
        self.refusals: dict[str, str] = {}
        self.counters = Counters() if counters is None else counters
        self._new_agent = agents
        self._dispatch = Dispatch(
            name, self.executor, self.counters, trace, self._forget, self._broken
        )
        self.agents_by_id = self._dispatch.agents
        self.deliver = self._dispatch.deliver
        self.perform = self._dispatch.perform
        self.touched = self._dispatch.touched
        self.unsettled = self._dispatch.unsettled
        self.tell_agents = self._dispatch.tell_agents
        self.turn = turn(self._dispatch, self.executor.run_soon)
        self.is_clustered = options is not None
        if first_version is None:
            first_version = self.now() // 1000  # nothing makes a million changes a second
        self.server = self._dispatch.server = Server(self, first_version)
        usual = simulated or register_agents
        self.thin = self._dispatch.thin_locks = ThinLocks(self, self._dispatch, not usual)
        self.request = self.server.request
        self.server.by_messages = trace is not None
        self.clients: dict[Hashable, dict[Agent, None]] = {}  # the transactions of each
        # The implicit transactions for `locks.Lock`s.
        self.holders: Holders[Agent] = Holders(self, abort_on_deadlock=True)
        self.services = Services()
        self._serial = itertools.count(1)
        if options is not None:
            assert isinstance(self.executor, Executor)
            try:
                self.cluster = clusters.Cluster(self, self.executor, options)
                self._dispatch.cluster = self.cluster
            except BaseException:
                self.executor.stop(timeout=5)
                raise
        self.dependents: set[pykka.ActorRef[Any]] = set()
        # Taken by the caller of `stop` that calls it: others of this process may have a shield, too.
        self._unshield = [interrupts.uninstall] if not simulated and interrupts.install() else []
        self._registers = register_agents
        if not simulated:
            register_first(self.server)
        if isinstance(self.executor, Executor):
            server, executor = self.server, self.executor
            server.audit = Audit(self, server.machine, server.times, executor, self._address_of)
            if log_waits_longer_than < inf:
                LongWaits(self.server, self.executor, log_waits_longer_than)

    def __repr__(self) -> str:
        return f"<Node {self.name} {'running' if self.running else 'stopped'}>"

    def _address_of(self, name: str) -> str | None:
        """The address from which another node is connected; `None` if it is not."""
        return None if self.cluster is None else self.cluster.network.address_of(name)

    # --- Its life -------------------------------------------------------------------------------

    def spawn_agent(
        self,
        client: Client | None = None,
        created: int | None = None,
        keep: Callable[[Agent], object] | None = None,
        label: str | None = None,
        **options: Any,
    ) -> Agent:
        """Begin a transaction.

        Args:
            client: Its client; the caller by default.
            created: The time in its reference, in nanoseconds since 1970; now by default.
            keep: Called with the agent; from then on the caller must end it if anything fails.
            label: See `locks.original.spawn_agent`.
            **options: The same.
        """
        if not self.running:
            self.check_running()
        here = client is None
        if client is None:
            client = current_client()
        elif isinstance(client, OfAnotherNode):
            raise InvalidOption(
                f"can't begin a transaction for client {client!r}, which is on another node; let an actor on this node be the client, "
                "and ask that actor",
                client=repr(client),
            )
        owner = client if isinstance(client, Ending) else None
        if owner is not None and owner.watch.ended:
            raise owner_has_ended(client)
        if options.get("link") and not can_be_linked(client):
            raise InvalidOption(
                f"can't link {client!r}: a thread can't be stopped from outside. Use "
                "link=False; the transaction ends with its client anyway",
                client=repr(client),
            )
        ref = agent_numbered(self.new_number(created), self.name)
        name = labelled(client, label, self.program, here)
        agent = self._new_agent(self, ref, client, name, here=here, **options)
        if here and keep is not None and agent.is_plain and self.thin.is_due():
            fits = self.scope is None or self.thin.fits(self.scope.nodes)  # as far as is known
            if fits and self.thin.begin(agent, keep):
                return agent
        agent.make_machine()
        let_go = agent.let_go  # there may be no memory for it when it is needed
        try:
            self.agents_by_id[ref] = agent
            own = self.clients.setdefault(agent.client_key, {})
            own[agent] = None
            if self.clients.get(agent.client_key) is not own:
                self._enlist(agent)
            if not self.running:  # it was stopped meanwhile, perhaps without ending this agent
                self.check_running()
            agent.start_monitoring()
            if owner is not None and owner.waiting:  # by other threads
                self.turn.run(join_waits, agent)
            if self._registers:
                register(agent)
            if keep is not None:
                keep(agent)
            return agent
        except CannotMonitor as error:
            insist(let_go)
            self.turn.run(self.counters.take_back)
            raise InvalidOption(
                f"can't begin a transaction for client {client!r}: {error}", client=repr(client)
            ) from error
        except BaseException:
            insist(let_go)
            raise

    def take_in(self, agent: Agent) -> None:
        """Begin the transaction of an agent that was thin; in a turn. Calling it again has no effect."""
        self.agents_by_id[agent.id] = agent
        self._enlist(agent)

    # An agent may begin while another one of its client ends, in another thread or in a finaliser
    # within this one. A lock would do harm: its holder may have to wait for the turn.

    def _enlist(self, agent: Agent) -> None:
        """An agent has begun, as another one was forgotten."""
        key = agent.client_key
        while True:
            own = self.clients.setdefault(key, {})
            own[agent] = None
            if self.clients.get(key) is own:
                return

    def hand_over(self, agent: Agent, client: Ending) -> None:
        """An agent has another client from now on; in a turn."""
        self._forget(agent, has_ended=False)
        agent.kept_by = None
        agent.client = agent.client_key = client
        self._enlist(agent)

    def _forget(self, agent: Agent, has_ended: bool = True) -> None:
        """An agent has ended, or gets another client; in a turn."""
        self.counters.ended += has_ended
        key = agent.client_key
        own = self.clients.get(key)
        if own is not None:
            own.pop(agent, None)
            if not own:
                for begun in list(self.clients.pop(key, ())):  # meanwhile
                    self._enlist(begun)
        if agent.kept_by is not None:
            agent.kept_by.forget(key, agent)
        if self._registers and has_ended:
            self.executor.run_soon(pykka.ActorRegistry.unregister, agent)

    def new_number(self, created: int | None = None) -> int:
        """The number of a new agent or actor: when it was made, and a serial number below."""
        microseconds = (self.now() if created is None else created) // 1000
        return microseconds << SERIAL_BITS | next(self._serial) & ((1 << SERIAL_BITS) - 1)

    def stop(self) -> None:
        """Stop the node: transactions end, waits end with an error, everything is released. The rule is in `locks.stop`."""
        if self.running:
            self.running = False
            self.turn.run_surely(self._leave)
            end_all(self.dependents)
        if self.server.is_alive():
            pykka.ActorRegistry.unregister(self.server)
            with suppress(IndexError):
                self._unshield.pop()()
            watch = self.server.ended()
            if watch is not None:
                fire = (self.server, "normal", "noproc", self.executor.tell)
                self.executor.run_soon(watch.fire, *fire)
            self.turn.run_surely(self.services.node_stopped)
            self.thin.close()
        self.executor.stop(timeout=5)  # also who comes second waits for that

    def _leave(self) -> None:
        # In one turn: what is released here is not granted to agents of other nodes.
        self._dispatch.end_agents("was stopped")
        if self.cluster is not None:
            self.cluster.stop("the node was stopped")

    def _broken(self) -> None:
        """The lock server has crashed: the node can vouch for nothing."""
        self.running = False
        self.server.fence()
        self._dispatch.end_agents("lost its lock server")
        if self.cluster is not None:
            self.cluster.stop("the lock server crashed")

    def leave_to_parent(self) -> None:
        """In a forked child: the node lives in the parent, and so do its agents' clients."""
        self.running = False
        self._unshield.clear()
        self.turn.reset()
        self.thin.close()
        self._dispatch.forsake()
        self.server.ended()
        if isinstance(self.executor, Executor):
            self.executor.leave_to_parent()
        for ref in self.dependents:
            ref.actor_stopped.set()
        for each in (self.server, *self.dependents, *self.agents_by_id.values()):
            pykka.ActorRegistry.unregister(each)
        for agent in list(self.agents_by_id.values()):
            agent.leave_to_parent()
        if self.cluster is not None:
            self.cluster.network.leave_to_parent()

    def add_dependent(self, actor: pykka.ActorRef[Any]) -> None:
        """From now on the actor ends with the node.

        Raises:
            NodeNotRunning: The node was stopped; so is the actor.
        """
        self.dependents.add(actor)
        if not self.running:  # `stop` may have looked before
            self.dependents.discard(actor)
            actor.stop(block=False)
            self.check_running()

    def check_running(self) -> None:
        """Raise `NodeNotRunning` when the node was stopped."""
        if not self.running:
            raise NodeNotRunning(
                f"node {self.name} was stopped; start one with locks.start()", nodes=(self.name,)
            )

    def service(self, kind: str, name: str, make: Callable[[], Service]) -> Any:
        """The service of this kind and name on the node; made when it is first needed. In the turn.

        Raises:
            NodeNotRunning: The node was stopped.
        """
        self.check_running()
        return self.services.get(kind, name, make)

    @property
    def trace(self) -> Trace | None:
        """The function that is called for each message between actors, if there is one."""
        return self._dispatch.trace

    @trace.setter
    def trace(self, trace: Trace | None) -> None:
        self._dispatch.trace = trace
        # A trace must see all messages; in a turn, so there is no thin lock.
        self.turn.run(setattr, self.server, "by_messages", trace is not None)

    # --- For its actors -------------------------------------------------------------------------

    @cached_property
    def notices(self) -> noted.Notices:
        """Logs warnings about messages of others, which a node without peers gets, too: from actors of its program."""
        return noted.Notices(self.executor.run_soon, self.clock)

    def agent_ref(self, agent: AgentId) -> Agent | remotes.RemoteRef | None:
        """A reference to an agent of this node or of a connected one."""
        if self.cluster is not None and agent.node != self.name:
            return self.cluster.ref_of(agent)
        return self.agents_by_id.get(agent)

    def watcher_down(self, watcher: Any) -> None:
        """An actor that watched lock ids has ended."""
        if self.cluster is not None:
            self.cluster.views.watcher_down(watcher)

    def watchers_elsewhere(self, lock_id: LockId) -> list[Any]:
        """The readers on other nodes that watch exactly this lock id of this node."""
        return [] if self.cluster is None else self.cluster.readers.watchers(lock_id)

    def log(self, text: str, *args: Any) -> None:
        """Log an error, outside of the turn."""
        self.executor.run_soon(logger.error, text, *args)

    # --- Other nodes ----------------------------------------------------------------------------

    def look_awake(self) -> None:
        """Notice the loss of locks that others have been given while this program did not run, before a question is answered."""
        if self.cluster is not None and self.cluster.network.may_have_slept:
            self.turn.run_surely(self.cluster.network.look_awake)

    def _needs_cluster(self) -> clusters.Cluster:
        self.check_running()
        if self.cluster is None:
            raise MisuseError(
                f"node {self.name} can't connect to other nodes: it was started without a cookie; use "
                "locks.start(name, cookie=...)",
                node=self.name,
            )
        return self.cluster

    def place_of(self, name: str) -> str | None:
        """The address at which it looks for another node, as text, if known."""
        return None if self.cluster is None else self.cluster.place_of(name)

    @property
    def address(self) -> addresses.HostAndPort | None:
        """Where it listens for other nodes, host and port; `None` if it does not."""
        return None if self.cluster is None else self.cluster.network.address

    def nodes(self, *, hidden: bool = False) -> list[str]:
        """The nodes that it is connected with; either client nodes, or the others.

        Those with which it is in touch through a server count as client nodes.
        """
        if self.cluster is None:
            return []
        links = list(self.cluster.network.links.values())
        names = [link.peer.name for link in links if link.peer.hidden is bool(hidden)]
        return sorted([*names, *self.cluster.relays.links] if hidden else names)

    def connect(self, peer: str, *, timeout: float | None = 5) -> bool:
        """Connect to another node, and stay connected: a connection that is lost is made anew.

        Args:
            peer: `name@host:port`; `name@host` if its address is known, or between client nodes.
            timeout: Seconds to wait at most; `None` waits for ever. It is tried on afterwards.

        Returns:
            Whether it is connected, and its lock server can be asked if it has one for others. If
            not, `refusals` says why, if the node runs.

        Raises:
            InvalidOption: That is not a peer, or its address is not allowed (see `start`).
        """
        cluster = self._needs_cluster()
        check_timeout(timeout)
        network = cluster.network
        options = cluster.options
        address: addresses.Address | None = None
        if (
            isinstance(peer, str)
            and ":" not in peer
            and (options.hidden or peer in network.book.known)
        ):
            name = check_node_name(peer)
        else:
            name, address = nodes.parse_peer(peer)
        if name == self.name:
            raise InvalidOption(f"can't connect {name} to itself; name another node", peer=name)
        if address is not None:
            options.check_address(address, "connects to")
        self.turn.run(cluster.connect, name, address)
        return cluster.arrivals.await_node(name, timeout, server=False)

    def await_nodes(self, names: Iterable[str], *, timeout: float | None = None) -> bool:
        """Wait until the lock servers of other nodes can be asked; those of client nodes never can.

        Args:
            names: The nodes; the own one is there already.
            timeout: Seconds to wait at most; `None` waits for ever.

        Returns:
            Whether all of them were there at some moment of the wait. If not, `refusals` says why,
            of those that run.
        """
        cluster = self._needs_cluster()
        check_timeout(timeout)
        given = names if isinstance(names, str) else list(names)
        return cluster.arrivals.await_all(check_nodes(given) if given != [] else (), timeout)

    def disconnect(self, name: str) -> bool:
        """Disconnect from another node, and stay apart from it until `connect` is called.

        Returns:
            Whether it was connected.
        """
        (name,) = check_nodes([name])
        was_connected = self.turn.run(self._needs_cluster().network.disconnect, name)
        self.refusals[name] = (
            f"{self.name} was told by disconnect() to stay disconnected from {name}"
        )
        return was_connected

    def monitor_nodes(
        self,
        watcher: pykka.ActorRef[Any] | Callable[[clusters.NodeUp | clusters.NodeDown], object],
        on: bool = True,
    ) -> None:
        """Tell a watcher of nodes that are connected, and of those that are lost; not of client nodes.

        Args:
            watcher: An actor's reference, which gets `NodeUp` and `NodeDown` as messages, or a
                callable. A callable may block: only its own later news wait for it.
            on: `False` ends it.
        """
        cluster = self._needs_cluster()
        self.turn.run(cluster.monitor_nodes, listener(watcher), on)

    def register(self, name: str, actor: pykka.ActorRef[Any]) -> None:
        """Let an actor be reached from other nodes by a name.

        Raises:
            MisuseError: The name is taken.
        """
        cluster = self._needs_cluster()
        name = check_text(name)
        if not isinstance(actor, pykka.ActorRef):
            raise InvalidOption(
                f"{shown(actor)} is not an actor's reference; pass an ActorRef", actor=shown(actor)
            )
        self.turn.run(cluster.register, name, actor)

    def remote(self, name: str, node: str) -> remotes.RemoteRef:
        """A reference to the actor of this name on another node.

        Raises:
            InvalidOption: The name is too long, or there can be no such node.
        """
        name = check_text(name)
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise InvalidOption(
                f"the name {shown(name)} is none of an actor: it must be printable, and have at most {LONGEST_NAME} characters",
                name=shown(name),
            )
        return self._needs_cluster().actors.ref(self._check_name(node), name)

    def link(self, actor: Client, other: remotes.RemoteRef) -> None:
        """Link an actor, a greenlet or a thread of this node to one of another node.

        When one of them ends abnormally, or the connection is lost, the other one is stopped.

        Raises:
            InvalidOption: `actor` can't be stopped, or `other` is known by its name only.
        """
        cluster = self._needs_cluster()
        if not can_be_linked(actor) or isinstance(actor, OfAnotherNode):
            raise InvalidOption(f"can't link {actor!r}: it can't be stopped from outside")
        self.turn.run(cluster.link, actor, other)

    # --- Questions ------------------------------------------------------------------------------

    def agents(self) -> list[Agent]:
        """The agents of the transactions that this node runs, the oldest first."""
        self.thin.prepare()
        return sorted(self.agents_by_id.values(), key=operator.attrgetter("id"))

    def why_away(self, name: str) -> str:
        """Why the lock server of another node can't be asked."""
        from locks.node.observing.inquiries import unreachable  # few programs need it

        return self.refusals.get(name) or unreachable(name, self)

    def view(
        self,
        lock_id: LockId,
        node: str | tuple[str, ...] | None = None,
        timeout: float | None = None,
        patient: bool = True,
    ) -> View:
        """What is known of a lock id on this node, or on another one.

        Args:
            lock_id: The lock id.
            node: The other node; or several, of which one is asked that is not silent.
            timeout: Seconds to wait for it at most.
            patient: Whether it is waited for even if it is silent.
        """
        check_timeout(timeout)
        names = (node,) if isinstance(node, str) else node
        if names is None or names[0] == self.name:
            return self.turn.ask(self.server.machine.view, lock_id)
        return self._needs_cluster().views.view(names, lock_id, timeout, patient)

    def watch_elsewhere(
        self, node: str, lock_id: LockId, watcher: Listener, must_run: bool
    ) -> None:
        """Have a watcher told of a lock id of another node, which has to run now, or may come later."""
        self.turn.run(self._needs_cluster().views.watch, node, lock_id, watcher, must_run)

    def statistics(self) -> NodeStatistics:
        """Counters and present size."""
        table = self.turn.ask(self.server.machine.statistics)
        times = self.server.times
        traffic = TrafficStatistics() if self.cluster is None else self.cluster.traffic()
        others = 0 if self.cluster is None else self.cluster.readers.count
        watches = self.turn.ask(self.server.machine.watches) + others
        agents = len(self.agents_by_id)
        fullest = 0 if self.cluster is None else self.cluster.guests.fullest()
        measured = (times.all.statistics(), traffic, watches, times.handed_on, fullest)
        return self.counters.statistics(self.name, agents, table, *measured)
