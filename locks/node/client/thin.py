"""Thin locks: a lock that is held by a client without an agent, as long as nobody else is interested in it.

A `Lock` that is free needs no transaction: a `ThinLock` says who holds it, since when, and its token. A node has one
at a time. It is *inflated* before anything else happens on the node: it gets its agent, of the age that it would have,
with its request granted under the same token. Everything else sees agents and the lock table, as if there were no
thin locks.

**What inflates?** All that looks at agents or the lock table takes the node's turn. A thin lock leaves the turn's
journal torn, so before any other turn the journal is mended, and that inflates it. Only its own turns, which take and
release it (`Turn.quick`), do not. What looks at the agents of clients without a turn calls `ThinLocks.prepare` first.
Whoever wants to know of locks that are free again (watchers, a trace, an audit log) begins in a turn; from then on
there are no thin locks (`ThinLocks._may_begin`).

**Why is it atomic?** A thin lock is held from the assignment of one attribute on, and released by another one, so
there is nothing to undo. The inflation is a turn like any other, which is undone and done again. A call from within
a thin lock's turn is refused or answered as from within any turn: it never changes what that turn works on.

**When does it pay?** If locks are inflated often, it does not. So after each lock that did not stay thin, the next
ones take the usual way.
"""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

import gevent
import pykka

from locks.model import LockId, Mode, agent_numbered
from locks.node.client.agent import Agent
from locks.node.client.clients import labelled
from locks.node.client.holders import Holders
from locks.node.client.refusals import not_held
from locks.node.history import Event
from locks.node.ports import NodePort, PendingCall
from locks.node.server import Server
from locks.runtime.bridge import is_in_event_loop
from locks.runtime.leaving import Hold
from locks.runtime.monitor import (
    CannotMonitor,
    Client,
    DeathWatch,
    Down,
    Monitor,
    NativeThread,
    watch_of,
)
from locks.runtime.native import insist

if TYPE_CHECKING:
    from locks.runtime.inline import Journal

__all__ = ["ThinLock", "ThinLocks"]

PAUSE = 16  # locks that take the usual way after one that did not stay thin


class Home(NodePort, Protocol):
    """The part of a node that thin locks need besides."""

    running: bool
    server: Server
    holders: Holders[Agent]

    def new_number(self) -> int:
        """The number of a new agent."""

    def make_agent(self, number: int, client: Client, label: str) -> Agent:
        """An agent for a lock that was thin."""

    def take_in(self, agent: Agent) -> None:
        """Begin its transaction; in a turn."""


class ThinLock:
    """A lock that its client holds without an agent. It has the methods of an agent that a `Lock` needs.

    Attributes:
        client: The client.
        name: Its name for others.
        lock_id: What it holds.
        mode: How.
        number: The number of its agent, if it gets one: it has its age.
        token: The fencing token.
        since: When it was granted, by the node's clock.
        agent: Its agent, once it is inflated.
    """

    __slots__ = ("_locks", "agent", "client", "lock_id", "mode", "name", "number", "since", "token")

    def __init__(
        self, locks: ThinLocks, client: Client, name: str, lock_id: LockId, mode: Mode
    ) -> None:
        self._locks = locks
        self.client = client
        self.name = name
        self.lock_id = lock_id
        self.mode = mode
        self.number = self.token = 0
        self.since = 0.0
        self.agent: Agent | None = None

    def release(self, lock_id: LockId) -> None:
        """See `Agent.release`."""
        turn = self._locks.turn
        try:
            if not turn.is_here() and turn.quick(self._locks.drop, self):
                return
        except BaseException:
            self.let_go_of(lock_id)
            raise
        turn.run_surely(self._release, lock_id)

    def _release(self, lock_id: LockId) -> None:
        if self.agent is None:  # in a turn it has one, unless it was released
            raise not_held(lock_id)
        self.agent._release(lock_id)

    def let_go_of(self, lock_id: LockId) -> None:
        """See `Agent.let_go_of`."""
        insist(self._locks.turn.run_surely, self._let_go_of, lock_id)

    def _let_go_of(self, lock_id: LockId) -> None:
        if self.agent is not None:
            self.agent._let_go_of(lock_id)

    def withdraw(self, call: PendingCall | None, lock_id: LockId) -> None:
        """See `Agent.withdraw`."""
        self.let_go_of(lock_id)

    def inflated(self) -> Agent | None:
        """Its agent, which it gets now; `None` if it was released."""
        self._locks.prepare()
        return self.agent


class ThinLocks:
    """The thin locks of one node, one at a time. What has no docstring for callers is for the turn.

    Args:
        node: The node.
        journal: The journal of its turn; it is torn by these objects while there may be a thin lock.
        usable: Whether there may be any: the node is alone, and real.

    Attributes:
        turn: The node's turn.
        held: The thin lock that is held, if one is.
        taken: How many were taken that the lock table does not know of, the one that is held among them.
        usable: See above.
        pause: How many locks take the usual way before the next thin one; callers count it down.
    """

    def __init__(self, node: Home, journal: Journal, usable: bool) -> None:
        self.turn = node.turn
        self.held: ThinLock | None = None
        self.taken = self.pause = 0
        self.usable = usable
        self._node = node
        self._journal = journal
        self.monitor = Monitor(self._client_down, surely=True)  # of all clients that had thin locks
        self._watches: WeakSet[DeathWatch] = WeakSet()

    # --- For clients ------------------------------------------------------------------------------

    def take(
        self, client: Client, lock_id: LockId, mode: Mode, label: str | None, hold: Hold
    ) -> bool:
        """Have a client hold a lock, if nobody else is interested in it, and the client has no other one.

        Args:
            client: The client, which calls.
            lock_id: The lock.
            mode: How.
            label: As for `Lock`.
            hold: Gets the `ThinLock`, also if this is interrupted.

        Returns:
            Whether it holds it; else it must take the usual way.
        """
        if self.usable and Agent.spans is None and not is_in_event_loop():
            watch = self._meet(client)
            if watch is not None:
                name = labelled(client, label, self._node.program, False)
                thin = ThinLock(self, client, name, lock_id, mode)
                if self.turn.quick(self._take, thin, hold, watch):
                    return True
        self.pause = PAUSE
        return False

    def _meet(self, client: Client) -> DeathWatch | None:
        """Notice the client's end from now on; `None` if that is impossible, or it has come."""
        if not isinstance(client, (gevent.Greenlet, NativeThread, pykka.ActorRef)):
            return None
        try:
            watch = watch_of(client)
        except CannotMonitor:
            return None
        if watch is not None and self.monitor not in watch.monitors:
            self._watches.add(watch)
            watch.add(self.monitor, client)
        return watch

    def _client_down(self, down: Down) -> None:
        self.turn.post(self._end, down)

    def prepare(self) -> None:
        """Inflate, before something is looked at without a turn."""
        if self.taken and not self.turn.is_here():
            self.turn.ask(bool)

    def close(self) -> None:
        """The node has stopped, or is another process's."""
        self.usable = False
        for watch in list(self._watches):
            watch.monitors.pop(self.monitor, None)

    # --- In a turn --------------------------------------------------------------------------------

    def _take(self, thin: ThinLock, hold: Hold, watch: DeathWatch) -> bool:
        node, journal = self._node, self._journal
        table = node.server.machine.table
        if journal.torn is not self:
            if journal.torn:
                journal.mend()
            if not self._may_begin():
                return False
            journal.torn = self
        if (
            self.held is not None
            or node.holders.get(thin.client) is not None
            or next(table.related(thin.lock_id), None) is not None
        ):
            return False
        thin.number = node.new_number()
        self.taken += 1
        thin.token = table.version + 2 * self.taken - 1
        node.counters.transactions += 1
        hold.take(thin)
        thin.since = node.clock()
        self.held = thin
        if self.monitor not in watch.monitors:  # the client ends at this moment
            self.turn.post(self._end, Down(thin.client, "noproc"))
        return True

    def _may_begin(self) -> bool:
        """Whether nobody wants to know of free locks. What changes this takes a turn."""
        server = self._node.server
        watched = server.by_messages or server.audit is not None or server.machine.watches()
        # `locks.node.client.leaks` finds the line that took a lock by the objects that were made then.
        return self._node.running and not watched and not tracemalloc.is_tracing()

    def drop(self, thin: ThinLock) -> bool:
        """Release a thin lock; returns whether it was one still."""
        if self._journal.torn is not self or self.held is not thin:
            return False
        seconds = self._node.clock() - thin.since
        self.held = None
        self._node.server.times.add_hold(thin.lock_id, seconds)
        return True

    def steps(self) -> list[Event]:
        """The events of the lock server that were left out."""
        machine, thin = self._node.server.machine, self.held
        steps: list[Event] = [(machine.pass_over, (self.taken - (thin is not None),))]
        if thin is not None:
            agent = (
                agent_numbered(thin.number, self._node.name)
                if thin.agent is None
                else thin.agent.id
            )
            steps.append((machine.request, (agent, thin.name, thin.lock_id, thin.mode)))
        return steps

    def inflate(self) -> None:
        """Carry them out, as a turn that is undone if it is interrupted, and done again."""
        journal, node, thin = self._journal, self._node, self.held
        journal.torn = True
        if thin is not None and thin.agent is None:
            kept = node.holders.get(thin.client)  # it begins at this moment
            alive = kept is not None and kept.is_alive()
            thin.agent = kept if alive else node.make_agent(thin.number, thin.client, thin.name)
        node.server.carry_out(self.steps()[0])
        if thin is not None and thin.agent is not None:
            agent = thin.agent
            node.take_in(agent)
            node.server.times.got.setdefault(thin.token, thin.since)
            told = node.request(agent.id, thin.name, thin.lock_id, thin.mode)
            assert node.scope is not None
            wanted = (thin.lock_id, thin.mode, *node.scope)
            agent.event(agent.machine.ask_told, wanted, told, PendingCall())
        journal.conclude()

    def conclude(self) -> None:
        """The inflation was committed."""
        if self.held is not None:
            self.pause = PAUSE
        self.held = None
        self.taken = 0

    def _end(self, down: Down) -> None:
        """A client has ended; its locks are not thin any more. Calling it again has no effect."""
        agent = self._node.holders.get(down.subject)
        if agent is not None:
            agent.client_ended(down)
