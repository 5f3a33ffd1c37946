"""A node among nodes that run the original: the shell around `OriginalAgents` and `OriginalServers`.

A node that runs the original is recognised by its lock server's answer to our greeting
(`locks.node.peers.cluster`). `OriginalAgents` and `OriginalServers`, which are pure, translate the
messages between our agents and lock server and theirs; this module carries out their commands.
Everything happens in the node's turn.

Agents of the original do not report everything that matters. So for each of our waiting agents that
is entangled with some of them, this module asks them for their knowledge, and our lock servers for
their requests there. It repeats this as long as the agent waits.

The lock server of the original is monitored, because it may end without its node. Then its node is
no member until it answers a greeting again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

from locks.core.agent.machine import AgentMachine
from locks.core.messages import Knowledge, Resolved, ServerMessage, ToAgent, ViewChange
from locks.core.parts import MOST_RECORDS, pieces
from locks.errors import InvalidOption, assert_never
from locks.model import AgentId, LockId, View, show
from locks.node.client.agent import Agent
from locks.node.original.agents import OriginalAgents, OriginalWatcher, around
from locks.node.original.forms import (
    CastServer,
    Command,
    DemonitorPid,
    MonitorPid,
    SendTerm,
    ToLockServer,
    watcher_request,
)
from locks.node.original.servers import OriginalServers, cannot_unlock, is_election
from locks.node.peers.local_node import Connections
from locks.otp.bytes import etf
from locks.otp.bytes.control import SpawnRequest
from locks.otp.bytes.fields import BadMessage
from locks.otp.bytes.terms import Atom, Pid, Reference
from locks.otp.process.processes import CAST
from locks.wire.forms import LOCK_SERVER, OURS, pid_of
from locks.wire.values import ABOUT, AGENTS, About, pack_about, unpack_about

__all__ = ["OriginalPeers"]

PAUSE = 0.25  # seconds between two interviews
MOST_ASKED = 400  # agents of the original in one query to a lock server


class OriginalPeers:
    """One node's relations with nodes that run the original.

    Args:
        cluster: Its relations with other nodes.
    """

    def __init__(self, cluster: Connections) -> None:
        self._cluster = cluster
        self._node = cluster.node
        self._processes = cluster.processes
        self._agents = OriginalAgents(cluster.processes.me, self._pid_of, self._client_of)
        self._servers = OriginalServers(self._pid_of, self._is_original)
        self._monitors: dict[Pid, Reference] = {}
        self._lock_servers: dict[str, Reference] = {}
        self._interviewing = False
        self._told: tuple[ViewChange | None, Any] = (
            None,
            None,
        )  # the last change, and the view after it

    def _is_original(self, name: str) -> bool:
        return self._cluster.members.get(name, False)

    def _pid_of(self, agent: AgentId) -> Pid:
        """The pid of an agent of this node or another one."""
        distribution = self._cluster.distribution
        if agent.node == distribution.name:
            return pid_of(agent, distribution.creation)
        link = distribution.links.get(agent.node)
        return pid_of(agent, 0 if link is None else link.peer.creation)

    def _client_of(self, agent: AgentId) -> Pid | None:
        """The pid of an agent's client; it is known only for agents of this node."""
        ours = self._node.agents_by_id.get(agent)
        return None if ours is None else self._cluster.remotes.pid_of(ours.client)

    # --- Nodes that come and go -----------------------------------------------------------------

    def appeared(self, name: str) -> None:
        """A node runs the original; it is a member next."""
        told = partial(self._server_down, name)
        self._lock_servers[name] = self._processes.monitor(name, LOCK_SERVER, told)
        if not self._interviewing:
            self._interviewing = True
            self._cluster.executor.run_later(PAUSE, self._interview)

    def _server_down(self, name: str, reason: Any) -> None:
        """Take in that a lock server of the original has ended; its node may be lost as well."""
        self._lock_servers.pop(name, None)
        self._servers.server_down(name)
        self._cluster.left(name)
        link = self._cluster.distribution.links.get(name)
        if link is not None and reason != "noconnection":
            self._cluster.greet_again(link)

    def disconnected(self, name: str) -> None:
        """The connection to a node is lost."""
        reference = self._lock_servers.pop(name, None)
        if reference is not None:
            self._processes.demonitor(reference)
        self._perform(self._agents.node_down(name))
        self._perform(self._servers.node_down(name))

    # --- Messages of ours -----------------------------------------------------------------------

    def to_server(self, name: str, agent: AgentId, message: ServerMessage) -> None:
        """Send a message of an agent of ours to a lock server of the original."""
        client = self._client_of(agent)
        self._perform(self._servers.send(agent, name, message, client), agent)

    def to_agent(self, agent: AgentId, message: Any) -> None:
        """Take in a message of our lock server, or of an agent of ours, to an agent of the original.

        Such messages have no meaning there. The agent receives the state of our lock table as a
        watcher, and agents of the original never have to yield to ours.
        """
        if type(message) is Resolved:
            self._agents.resolved(message.report)
        elif type(message) is Knowledge and message.forgot:
            self._perform(self._servers.forgot(agent, message.sender))

    def tell_watcher(self, watcher: Hashable, news: View | ViewChange) -> None:
        """Tell a process of the original how a lock of ours is."""
        assert isinstance(watcher, OriginalWatcher)
        if isinstance(news, View):
            view = news
        else:  # all of it is sent; several may get the same
            if news is not self._told[0]:
                self._told = (news, self._node.server.machine.view(news.lock_id))
            view = self._told[1]
        self._perform(self._agents.told(watcher, view))

    # --- Messages of theirs ---------------------------------------------------------------------

    def from_agent(self, message: Any, sender: Pid) -> None:
        """Take in a message of a process of another node to our lock server.

        Raises:
            BadMessage: It is no message of the original.
        """
        self._perform(self._agents.cast(message, sender.node))

    def to_ours(self, agent: Agent, message: Any, sender: Pid | None) -> None:
        """Take in a message of a process of another node to an agent of ours.

        Raises:
            BadMessage: It is no message of the original.
        """
        self._perform(self._servers.receive(agent.id, message, sender), agent.id)

    def watcher_request(self, request: SpawnRequest) -> Callable[[], object] | None:
        """The effect of a request for a notification that a lock server is up; `None` for other requests."""
        module, function, _ = request.mfa
        pid = watcher_request(module, function, request.arguments)
        if pid is None or pid.node != request.sender.node:
            return None
        running = (Atom("locks_running"), Atom(self._node.name))
        return partial(self._processes.send, pid, etf.encode(running))

    # --- Refusals -------------------------------------------------------------------------------

    def check_unlock(self, agent: AgentMachine, lock_id: LockId) -> None:
        """Raise `MisuseError` if a lock is held or requested on a node that runs the original."""
        for name in self._originals(agent, lock_id):
            raise cannot_unlock(lock_id, name)

    def check_token(self, agent: AgentMachine, lock_id: LockId) -> None:
        """Raise `InvalidOption` if a lock is requested on a node that runs the original.

        The lock of an election is allowed, because its token is for Python candidates only.
        """
        for name in () if is_election(lock_id) else self._originals(agent, lock_id):
            raise InvalidOption(
                f"{show(lock_id)} has no fencing token: it was requested on {name}, which runs the Erlang original, where "
                "versions go back. Request it on Python nodes only",
                lock_id=lock_id,
                node=name,
            )

    def _originals(self, agent: AgentMachine, lock_id: LockId) -> list[str]:
        if True not in self._cluster.members.values():
            return []
        found = [info for info in agent.lock_info() if info.lock_id == lock_id]
        return [name for info in found for name in info.nodes if self._is_original(name)]

    # --- Carrying out ---------------------------------------------------------------------------

    def _perform(self, commands: Sequence[Command], agent: AgentId | None = None) -> None:
        """Carry commands out, in the name of one of our agents if they come from it."""
        node = self._node
        for command in commands:
            if isinstance(command, ToLockServer):
                node.deliver(node.server, command.message)
            elif isinstance(command, ToAgent):
                ours = node.agents_by_id.get(command.agent)
                if ours is not None:
                    node.deliver(ours, command.message)
            elif isinstance(command, CastServer):
                encoded = etf.encode((CAST, command.term))
                sender = None if agent is None else self._pid_of(agent)
                self._processes.send_named(command.node, LOCK_SERVER, encoded, sender)
            elif isinstance(command, SendTerm):
                self._processes.send(command.to, etf.encode(command.term))
            elif isinstance(command, MonitorPid):
                pid = command.pid
                told = partial(self._process_down, pid)
                self._monitors[pid] = self._processes.monitor(pid.node, pid, told)
            elif isinstance(command, DemonitorPid):
                reference = self._monitors.pop(command.pid, None)
                if reference is not None:
                    self._processes.demonitor(reference)
            else:
                assert_never(command)

    def _process_down(self, pid: Pid, reason: Any) -> None:
        """Take in that a process of the original that used our lock server has ended."""
        self._monitors.pop(pid, None)
        self._perform(self._agents.down(pid))
        self._perform(self._servers.down(pid))

    # --- Interviews -----------------------------------------------------------------------------

    def _interview(self) -> None:
        """For waiting agents of ours, ask agents of the original for their knowledge; in the hub."""
        if self._node.running and True in self._cluster.members.values():
            self._node.turn.run(self._interview_all)
            self._cluster.executor.spawn_later(PAUSE, self._interview)
        else:
            self._interviewing = False

    def _interview_all(self) -> None:
        agents = self._node.agents_by_id
        self._servers.keep(agents.keys())
        for agent in list(agents.values()):
            entangled = self._servers.entangled(agent.id, agent.machine.outlook())
            self._perform(self._servers.interview(agent.id, entangled), agent.id)
            if entangled:
                self._ask_lock_servers(agent.id, entangled)

    def _ask_lock_servers(self, agent: AgentId, entangled: list[AgentId]) -> None:
        """Ask the lock servers of Python nodes for the requests of agents of the original there."""
        machine = self._node.server.machine
        known = around(machine.table, machine.node, entangled, self._is_original)
        self._perform(self._servers.informed(agent, machine.node, machine.version, *known))
        question = (OURS, ABOUT, AGENTS.pack(entangled[:MOST_ASKED]))
        for name, original in self._cluster.members.items():
            if not original:
                answered = partial(self._informed, agent, name)
                self._processes.call(name, LOCK_SERVER, question, answered)

    def about(self, agents: Any) -> Any:
        """The records of agents of the original at our lock server, for an agent of another node."""
        machine = self._node.server.machine
        asked = AGENTS.unpack(agents)
        found, records = around(machine.table, machine.node, asked, self._is_original)
        parts = list(pieces(records))
        if len(parts) > 1 or len(found) > MOST_RECORDS:
            # These records are not declared complete for any agent.
            return pack_about(About(machine.version, (), parts[0] if parts else ()), machine.node)
        return pack_about(About(machine.version, tuple(found), tuple(records)), machine.node)

    def _informed(self, agent: AgentId, name: str, answered: bool, answer: Any) -> None:
        if not answered or agent not in self._node.agents_by_id:
            return
        try:
            about = unpack_about(answer, name)
        except BadMessage as error:
            self._node.log("ignored an answer of %s: %s", name, error)
            return
        self._perform(self._servers.informed(agent, name, *about))
