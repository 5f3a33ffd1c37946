"""Thin locks: a client holds a free lock without an agent's machine, as long as nobody else is interested in it.

An agent gets its machine at first need. Until then its transaction is *thin*: it can take locks that are free (a `Lock`, an `RLock`,
`Transaction.lock`), release them, and end. The node only notes who holds what, with which token (`locks.core.thin`).

**On one other node** the client's agent has no machine. The client sends the request, and waits (`Agent.await_answer`). An answer that grants
it is taken in by `answered`. The end of the transaction sends `Remove`. If anything else happens meanwhile, inflation has the machine take in
what was granted, or note the request that was sent, and wakes the client, which waits on in the usual way. A message may be sent twice, when
the client is interrupted after it was sent; lock servers take no harm from that.

**A lock server** notes the locks that it grants to agents of other nodes in the same way (`ThinLocks.request`). If it is interrupted, the
connection is lost, and with it all that their node has here.

**What inflates?** Every other turn, first of all (`Turn`, by `Journal.thin`): each agent gets its machine, of the age of its transaction,
and the lock server each request, under the token that the client was given. So whatever looks at agents or the lock table in a turn sees no
thin lock. What looks at them without a turn calls `ThinLocks.prepare` first.
Whoever wants to be notified of locks that become free (watchers, a trace, the logger `locks.audit`) ends thin locks as long as that lasts
(`ThinLocks._may_be_thin`).

**Why is it atomic?** A thin transaction begins, ends, and takes and releases each lock by a single assignment, so there is nothing to undo.
Whoever is interrupted beside it cleans up in a usual turn. The inflation is a turn of its own, which is undone and done again. A call
from within a thin lock's turn is refused or answered as from within any turn: it never changes what that turn works on.

**When does it pay?** If locks are inflated often, it does not. So after an inflation of locks or transactions the next ones take the usual
way; twice as many each time, until a lock is released thin.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from logging import INFO
from typing import TYPE_CHECKING, Protocol
from weakref import ref

import gevent
import pykka

from locks.core.agent.machine import GRANTED, Object
from locks.core.messages import AgentMessage, Remove, Request, RequestStates
from locks.core.thin import Granted, Guest, Remote, Thin
from locks.model import LockId, agent_numbered, covers
from locks.node.client.acquisitions import Acquisition
from locks.node.client.agent import Agent
from locks.node.client.clients import labelled
from locks.node.client.holders import Holders
from locks.node.ports import NodePort, PendingCall
from locks.node.server import Server
from locks.runtime.identity import client_key
from locks.runtime.logs import audit_logger
from locks.runtime.monitor import (
    CannotMonitor,
    Client,
    DeathWatch,
    Down,
    Ending,
    Monitor,
    NativeThread,
    kept_watch,
    watch_of,
)

if TYPE_CHECKING:
    from locks.node.peers.cluster import Cluster
    from locks.runtime.inline import Journal

__all__ = ["ThinLocks"]

# Pauses: locks that take the usual way after one that did not stay thin.
SHORTEST = 16
LONGEST = 1024


class Home(NodePort, Protocol):
    """The part of a node that thin locks need besides."""

    running: bool
    cluster: Cluster | None
    server: Server
    holders: Holders[Agent]

    def new_number(self) -> int:
        """The number of a new agent."""

    def take_in(self, agent: Agent) -> None:
        """Begin its transaction; in a turn."""


class ThinLocks(Thin):
    """The thin locks of one node.

    Args:
        node: The node.
        journal: The journal of its turn.
        usable: Whether there may be any: the node is real.

    Attributes:
        agents: The agents of the thin transactions, the oldest first.
        asking: Those that wait for the answer of another node's lock server, by their numbers.
        usable: See above.
        pause: How many locks take the usual way before the next thin one.
        monitor: The monitor of all clients that had thin locks.
    """

    def __init__(self, node: Home, journal: Journal, usable: bool) -> None:
        super().__init__(node.server.machine)
        self.agents: dict[Agent, None] = {}
        self.asking: dict[int, Agent] = {}
        self.usable = usable
        self.pause = 0
        self.monitor = Monitor(self._client_down, surely=True)
        self._next_pause = SHORTEST
        self._node = node
        self._here = (node.name,)
        self._turn = node.turn
        self._journal = journal
        self._watches: dict[ref[DeathWatch], object] = {}

    # --- For clients ------------------------------------------------------------------------------

    def is_due(self) -> bool:
        """Whether the next lock may be thin; this counts the pause down."""
        if self.pause:
            self.pause -= 1
            return False
        return self.usable and Agent.spans is None

    def fits(self, nodes: tuple[str, ...]) -> bool:
        """Whether locks on these nodes may be thin: on this one while it has no others, and on one other."""
        is_alone = self._node.cluster is None
        return len(nodes) == 1 and (nodes == self._here) is is_alone

    def begin(self, agent: Agent, keep: Callable[[Agent], object]) -> bool:
        """Begin a thin transaction of the caller.

        Args:
            agent: Its agent.
            keep: Called with the agent, also if this is interrupted.

        Returns:
            Whether it has begun; else it must take the usual way.
        """
        watch = self._watch(agent.client)
        return watch is not None and bool(self._turn.thin(self._begin, agent, keep, watch))

    def take(
        self,
        client: Client,
        wanted: Object,
        label: str | None,
        keep: Callable[[Agent], object],
        call: PendingCall,
        acquisition: Acquisition | None = None,
    ) -> bool:
        """Have a client hold a lock by its implicit transaction, if nobody else is interested in it; or request it on another node.

        Args:
            client: The client.
            wanted: The lock.
            label: The client's label, if it has one.
            keep: Called with the agent before, also if this is interrupted.
            call: The call, to be withdrawn if this is interrupted.
            acquisition: That of an `RLock`.

        Returns:
            Whether it has it, or waits for the answer (`PendingCall.sent`); else it must take the usual way.
        """
        watch = self._watch(client)
        if watch is None:
            return False
        name = labelled(client, label, self._node.program, False)
        call.begun = True
        return bool(
            self._turn.thin(self._take, client, wanted, name, keep, call, acquisition, watch)
        )

    def _watch(self, client: Client) -> DeathWatch | None:
        """The watch over a client, with the monitor; `None` if the client can't have thin locks."""
        watch = kept_watch(client)
        if watch is not None and self.monitor in watch.monitors:  # it is not there after the end
            return watch
        if not isinstance(client, (gevent.Greenlet, NativeThread, pykka.ActorRef, Ending)):
            return None
        try:
            watch = watch_of(client)
        except CannotMonitor:
            return None
        if watch is not None and self.monitor not in watch.monitors:
            if watch.ended:
                return None
            self._watches[ref(watch, self._watches.pop)] = None  # no calls of Python
            watch.add(self.monitor, client)
        return watch

    def _client_down(self, down: Down) -> None:
        key = client_key(down.subject)
        # Without the turn, and in this order: an agent that is not thin any more is listed, if it has not ended.
        if any(each.client_key == key for each in list(self.agents)) or key in self._node.clients:
            self._turn.post(self._end_client, down)

    def prepare(self) -> None:
        """Inflate, before something is looked at without a turn."""
        if self._journal.thin and not self._turn.is_here():
            self._turn.ask(bool)

    def close(self) -> None:
        """The node has stopped, or is another process's."""
        self.usable = False
        for watch in [each() for each in list(self._watches)]:
            if watch is not None:
                watch.monitors.pop(self.monitor, None)

    # --- In a turn for what is thin ---------------------------------------------------------------

    def _may_be_thin(self, client: Client, watch: DeathWatch) -> bool:
        """Whether the client lives and does not wait (as an owner may, in another thread), and nobody wants to know of free locks."""
        if self.monitor not in watch.monitors or (isinstance(client, Ending) and client.waiting):
            return False
        return self._is_unnoticed()

    def _is_unnoticed(self) -> bool:
        """Whether nobody wants to know of locks that are free, so that one can be thin."""
        # `locks.node.client.leaks` finds the line that took a lock by the objects that were made then.
        if 0 < audit_logger.level <= INFO or tracemalloc.is_tracing():
            return False
        if self._journal.thin:  # no other turn since, and whatever changes the rest takes one
            return True
        server = self._node.server
        watched = server.by_messages or server.fenced or server.machine.is_watched
        return self._node.running and not watched

    def _begin(self, agent: Agent, keep: Callable[[Agent], object], watch: DeathWatch) -> bool:
        if not self._may_be_thin(agent.client, watch):
            return False
        keep(agent)
        self._add(agent, watch)
        return True

    def _add(self, agent: Agent, watch: DeathWatch) -> None:
        self._journal.thin = True
        self.agents[agent] = None
        if self.monitor not in watch.monitors:  # the client ends at this moment
            self._turn.post(self._end_client, Down(agent.client, "noproc"))

    def _take(
        self,
        client: Client,
        wanted: Object,
        name: str,
        keep: Callable[[Agent], object],
        call: PendingCall,
        acquisition: Acquisition | None,
        watch: DeathWatch,
    ) -> bool:
        node = self._node
        holders, lock_id = node.holders, wanted[0]
        agent = holders.get(client)
        if agent is not None and agent.is_alive() and agent not in self.agents:
            return False
        if acquisition is not None and agent is not None and agent.has_acquired(lock_id):
            granted = self.held.get(lock_id)
            if granted is None or not covers(granted.wanted[1], wanted[1]):
                return False
            keep(agent)
            agent.acquired().enter(lock_id, acquisition)
            return True
        if not self._may_be_thin(client, watch):
            return False
        here = wanted[2] == self._here
        if not here and (acquisition is not None or not self._may_ask(agent, wanted)):
            return False
        if here and not self.is_free(lock_id):
            return False
        if agent is None or not agent.is_alive():
            reference = agent_numbered(node.new_number(), node.name)
            agent = Agent(node, reference, client, name, **holders.options)
            keep(agent)
            self._add(agent, watch)
            agent.kept_by = holders
            if not holders.follow(agent):
                self.end(agent)  # another thread of the owner has begun one, without the turn
                return False
        else:
            keep(agent)
        if acquisition is not None:
            acquired = agent.acquired()
            acquired.enter(lock_id, acquisition)
            acquired.ask(lock_id, acquisition)
        if here:
            self.put(agent, wanted, node.clock(), call)
        else:
            self._ask(agent, wanted, call)
        return True

    def grant(self, agent: Agent, wanted: Object, call: PendingCall) -> int | None:
        """Have a thin transaction hold a lock, or request it on another node (`PendingCall.sent`).

        Returns:
            The token; `None` if it was requested, or must take the usual way.
        """
        lock_id, _, nodes, _ = wanted
        if agent not in self.agents or type(lock_id[-1]) is tuple or Agent.spans is not None:
            return None
        if not self.fits(nodes):
            return None
        if nodes == self._here:
            return self.give(agent, wanted, self._node.clock(), call)
        if self._may_ask(agent, wanted):
            self._ask(agent, wanted, call)
        return None

    def release_of(self, agent: Agent, lock_id: LockId) -> bool:
        """Release a thin lock of an implicit transaction, which ends with its last one; returns whether it was one."""
        if agent.remote is not None:
            held = agent.remote.held
            return len(held) == 1 and held[0][0][0] == lock_id and self.end(agent)
        granted = self.held.get(lock_id)
        if granted is None or granted.holder is not agent:
            return False
        if agent.acquisitions is not None and agent._is_acquired(lock_id):
            return False
        is_last = len(agent.thin_ids) == 1
        self.release(granted)
        return not is_last or self.end(agent)

    def give_back(self, agent: Agent, lock_id: LockId, acquisition: Acquisition) -> bool:
        """Undo one acquisition, and release the lock with the last one; returns whether it was thin."""
        granted = self.held.get(lock_id)
        if granted is None or granted.holder is not agent or not agent._is_acquired(lock_id):
            return False
        if agent._take_out(lock_id, acquisition):
            self.release_of(agent, lock_id)
        return True

    def end(self, agent: Agent) -> bool:
        """End a thin transaction; returns whether it was one."""
        if agent not in self.agents or not agent.is_alive():
            return False
        remote = agent.remote
        if remote is not None:
            message = remote.end(agent.id)
            if message is None:
                return False
            self._send(agent, remote.node, message)
            self._next_pause = SHORTEST
        if agent.thin_ids:
            self.release_all(agent)
        if agent.kept_by is not None:
            agent.kept_by.forget(agent.client_key, agent)
        self._node.counters.ended += 1
        watch = agent.ended()
        self.agents.pop(agent, None)
        if watch is not None:
            executor = self._node.executor
            executor.run_soon(watch.fire, agent, "normal", "noproc", executor.tell)
        return True

    def release(self, granted: Granted) -> None:
        """A thin lock is released."""
        self._next_pause = SHORTEST
        super().release(granted)
        node = self._node
        node.server.times.add_hold(granted.wanted[0], node.clock() - granted.since)

    # --- On another node --------------------------------------------------------------------------

    def _may_ask(self, agent: Agent | None, wanted: Object) -> bool:
        """Whether a transaction, or a new one, may request a lock on another node."""
        (name,) = wanted[2]
        if name not in self._node.alive or name in self._node.silent:
            return False
        if agent is None or not agent.is_alive() or agent.remote is None:
            return True
        return agent.remote.may_ask(wanted)

    def _ask(self, agent: Agent, wanted: Object, call: PendingCall) -> None:
        """Request a lock on another node."""
        call.renew()  # from now on it can be woken
        remote = agent.remote or Remote(wanted[2][0])
        agent.remote, message = remote.ask(agent, wanted, call)
        self.asking[agent.id.created] = agent
        self._send(agent, remote.node, message)
        call.sent = True

    def _send(self, agent: Agent, name: str, message: Request | Remove) -> None:
        cluster = self._node.cluster
        assert cluster is not None
        cluster.send_to_server(name, agent.id, message)
        cluster.flush()

    def answered(self, speaker: str, number: int, message: AgentMessage) -> bool:
        """Take in a message to an agent, in a turn for what is thin, if it grants what the agent asks; returns whether it does."""
        agent = self.asking.get(number)
        if agent is None or agent.remote is None or agent.remote.asked is None:
            return False
        call: PendingCall = agent.remote.asked[1]
        after = agent.remote.granted(speaker, agent.id, message)
        if after is None:
            return False
        agent.remote = after
        del self.asking[number]
        call.token = after.held[-1][1].since
        call.answer(GRANTED)
        return True

    # --- For agents of other nodes ----------------------------------------------------------------

    def request(self, message: Request) -> RequestStates | None:
        """Answer a request of another node in place of the lock server, if nobody else is interested in the lock; in a turn for what is thin."""
        if not (self.is_due() and self._is_unnoticed() and self.may_serve(message)):
            return None
        self._journal.thin = True
        return self.serve(message, self._node.clock())

    # --- In a usual turn --------------------------------------------------------------------------

    def inflate(self) -> None:
        """Make of what is thin what it would be without thin locks, as a turn of its own."""
        journal, node = self._journal, self._node
        journal.torn = True
        for agent in self.agents:
            if agent.is_alive():
                agent.make_machine()
                node.take_in(agent)
                if agent.remote is not None:
                    sent = agent.remote.asked is not None and agent.remote.asked[1].sent
                    for event, args in agent.remote.steps(agent.machine, sent):
                        agent.event(event, *args)
        for event, args, granted in self.steps():
            if granted is None:
                node.server.carry_out((event, args))
                continue
            agent = granted.holder
            node.server.times.got.setdefault(granted.token, granted.since)
            if type(agent) is Guest:  # it has its answer
                node.server.take_over((event, args))
                continue
            records = node.request(*args)
            agent.event(agent.machine.ask_told, granted.wanted, records, granted.call)
        journal.conclude()

    def conclude(self) -> None:
        """The inflation was committed."""
        if self.agents or self.guests:
            self.pause = self._next_pause
            self._next_pause = min(2 * self.pause, LONGEST)
        for agent in self.agents:
            if agent.remote is not None and agent.remote.asked is not None:
                agent.remote.asked[1].waiter.wake()  # to wait in the usual way
            agent.remote = None
        self._forget()

    def forsake(self) -> None:
        """In a forked child: what is thin is the parent's."""
        agents = list(self.agents)
        self._forget()  # or to make the machines would inflate, and write to the parent's connections
        for agent in agents:
            agent.leave_to_parent()

    def _forget(self) -> None:
        """Nothing is thin any more."""
        self.asking.clear()
        self.agents.clear()
        super().conclude()
        self._journal.thin = False

    def _end_client(self, down: Down) -> None:
        """A client has ended, and so do its transactions, in their order, each in a turn. Calling it again has no effect."""
        clients = self._node.clients
        own = [each for each in clients.get(client_key(down.subject), ()) if each.is_alive()]
        if own:
            own[0].client_ended(down)
        if len(own) > 1:
            self._turn.post(self._end_client, down)
