"""Thin locks: a lock that is held by a client without an agent, as long as nobody else is interested in it.

A `Lock` that is free needs no agent: a `ThinLock` says who holds it, since when, and its token. Nor does a transaction
with one lock that is free, or with none yet: a `ThinTransaction`. A node has one of them at a time. It is *inflated*
before anything else happens on the node: it gets its agent, of the age that it would have, with its request granted
under the same token. Everything else sees agents and the lock table, as if there were no thin locks.

**What inflates?** All that looks at agents or the lock table takes the node's turn. A thin lock leaves the turn's
journal torn, so before any other turn the journal is mended, and that inflates it. Only its own turns, which take and
release it (`Turn.quick`), do not. What looks at the agents of clients without a turn calls `ThinLocks.prepare` first.
Whoever wants to know of locks that are free again (watchers, a trace, an audit log) begins in a turn; from then on
there are no thin locks (`ThinLocks._may_begin`).

**Why is it atomic?** A thin lock is held from the assignment of one attribute on, and released by another one, so
there is nothing to undo. So does a thin transaction begin, lock and end. The inflation is a turn like any other, which is undone and done again. A call from within
a thin lock's turn is refused or answered as from within any turn: it never changes what that turn works on.

**When does it pay?** If locks are inflated often, it does not. So after each lock that did not stay thin, the next
ones take the usual way; twice as many each time, until one stays thin.
"""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Protocol, final
from weakref import WeakSet

import gevent
import pykka
from gevent import getcurrent

from locks.core.agent.machine import Object
from locks.model import LockId, agent_numbered, check_timeout
from locks.node.client.agent import Agent
from locks.node.client.clients import labelled
from locks.node.client.holders import Holders
from locks.node.client.refusals import not_held
from locks.node.history import Event
from locks.node.ports import NodePort, PendingCall
from locks.node.server import Server
from locks.runtime.bridge import is_in_event_loop
from locks.runtime.identity import client_key
from locks.runtime.leaving import Hold
from locks.runtime.monitor import (
    CannotMonitor,
    Client,
    DeathWatch,
    Down,
    Ending,
    Monitor,
    NativeThread,
    watch_of,
)
from locks.runtime.native import insist

if TYPE_CHECKING:
    from greenlet import greenlet

    from locks.runtime.inline import Journal

__all__ = ["ThinLock", "ThinLocks", "ThinTransaction"]

# Pauses: locks that take the usual way after one that did not stay thin.
SHORTEST = 16
LONGEST = 1024


class Home(NodePort, Protocol):
    """The part of a node that thin locks need besides."""

    running: bool
    server: Server
    holders: Holders[Agent]

    def new_number(self, created: int | None) -> int:
        """The number of a new agent."""

    def make_agent(self, thin: ThinLock) -> Agent:
        """An agent for a lock that was thin."""

    def take_in(self, agent: Agent, kept: bool) -> None:
        """Begin its transaction, which is kept for its client's `Lock`s, or not; in a turn."""


class ThinLock:
    """A lock that its client holds without an agent. It has the methods of an agent that a `Lock` needs.

    Attributes:
        locks: The thin locks of its node.
        client: The client.
        name: Its name for others.
        lock_id: What it holds; `None` if a transaction has locked nothing yet.
        wanted: The lock as it was requested.
        created: The time of its beginning, if not now.
        number: The number of its agent, if it gets one: it has its age.
        token: The fencing token.
        since: When it was granted, by the node's clock.
        agent: Its agent, once it is inflated.
        here: The greenlet that is the client of a transaction, whatever that acts for later; `None` if any caller may use it.
    """

    __slots__ = (
        *("agent", "client", "created", "here", "lock_id", "locks"),
        *("name", "number", "since", "token", "wanted"),
    )

    def __init__(
        self,
        locks: ThinLocks,
        client: Client,
        wanted: Object | None,
        created: int | None = None,
        here: greenlet | None = None,
    ) -> None:
        self.locks = locks
        self.client = client
        self.wanted = wanted
        self.lock_id: LockId | None = None if wanted is None else wanted[0]
        self.name = ""
        self.created = created
        self.here = here
        self.number = self.token = 0
        self.since = 0.0
        self.agent: Agent | None = None

    def release(self, lock_id: LockId) -> None:
        """See `Agent.release`."""
        turn = self.locks.turn
        try:
            if turn.quick(self.locks.drop, self):
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
        insist(self.locks.turn.run_surely, self._let_go_of, lock_id)

    def _let_go_of(self, lock_id: LockId) -> None:
        if self.agent is not None:
            self.agent._let_go_of(lock_id)

    def withdraw(self, call: PendingCall | None, lock_id: LockId) -> None:
        """See `Agent.withdraw`."""
        self.let_go_of(lock_id)

    def inflated(self) -> Agent | None:
        """Its agent, which it gets now; `None` if it was released."""
        self.locks.prepare()
        return self.agent


@final
class ThinTransaction(ThinLock):
    """A transaction without an agent, with one lock or none. It has the methods of an agent that a `Transaction` needs."""

    __slots__ = ()

    def lock(self, wanted: Object, timeout: float | None) -> int | None:
        """Lock an id, if nobody else is interested in it; if this fails, or what follows, the caller calls `undo`.

        Returns:
            The fencing token; `None` if it must take the usual way.
        """
        if timeout is not None:
            check_timeout(timeout)
        lock_id, _, nodes, _ = wanted
        if (
            self.lock_id is not None
            or (self.here is not None and getcurrent() is not self.here)
            or nodes != (self.locks.node.name,)
            or type(lock_id[-1]) is tuple
            or Agent.spans is not None
            or is_in_event_loop()
        ):
            return None
        return self.locks.turn.quick(self.locks.grant, self, wanted)

    def undo(self, wanted: Object) -> None:
        """Release what was locked by this very request."""
        if self.wanted is wanted:
            insist(self.locks.turn.run_surely, self._unlock, wanted[0])

    def _unlock(self, lock_id: LockId) -> None:
        agent = self.agent
        if agent is not None and agent.machine.asks_for(lock_id):
            agent.event(agent.machine.unlock, lock_id)

    def unlock(self, lock_id: LockId) -> None:
        """See `Agent.unlock`; in a turn, at whose end it is done."""
        self.locks.turn.run_surely(self._unlock_later, lock_id)

    def _unlock_later(self, lock_id: LockId) -> None:
        self.locks.agent_of(self).unlock_now(lock_id)

    def leave_block(self) -> None:
        """See `Agent.leave_block`."""
        turn = self.locks.turn
        try:
            if turn.quick(self.locks.drop, self):
                return
        except BaseException:
            self.let_go()
            raise
        turn.run_surely(self._leave)

    def _leave(self) -> None:
        self.locks.agent_of(self)._leave()

    def let_go(self) -> None:
        """See `Agent.let_go`."""
        insist(self.locks.turn.run_surely, self._let_go)

    def _let_go(self) -> None:
        if self.agent is not None:
            self.agent.event(self.agent.machine.end_transaction, None)

    def inflated(self) -> Agent:
        """Its agent, which it gets now; one that has ended, if the transaction has.

        Raises:
            ReentrantCall: From within a turn.
        """
        turn, agent_of = self.locks.turn, self.locks.agent_of
        return self.agent or turn.quick(agent_of, self) or turn.run(agent_of, self)


class ThinLocks:
    """The thin locks of one node, one at a time. What has no docstring for callers is for the turn.

    Args:
        node: The node.
        journal: The journal of its turn; it is torn by these objects while there may be a thin lock.
        usable: Whether there may be any: the node is alone, and real.

    Attributes:
        node: The node.
        turn: The node's turn.
        held: The thin lock that is held, or the thin transaction, if there is one.
        taken: How many locks were taken that the lock table does not know of, the one that is held among them.
        due: Whether there may be something to inflate.
        usable: See above.
        pause: How many locks take the usual way before the next thin one; callers count it down.
    """

    def __init__(self, node: Home, journal: Journal, usable: bool) -> None:
        self.turn = node.turn
        self.held: ThinLock | None = None
        self.taken = self.pause = 0
        self._next_pause = SHORTEST
        self.due = False
        self.usable = usable
        self.node = node
        self._journal = journal
        self.monitor = Monitor(self._client_down, surely=True)  # of all clients that had thin locks
        self._watches: WeakSet[DeathWatch] = WeakSet()

    # --- For clients ------------------------------------------------------------------------------

    def take(self, thin: ThinLock, label: str | None, hold: Hold) -> bool:
        """Have a client hold a lock, or begin a transaction, if nobody else is interested in it.

        Args:
            thin: What it holds then. A client has only one thin `Lock`, and no other ones.
            label: As for `Lock`.
            hold: Gets the same, also if this is interrupted.

        Returns:
            Whether it holds it; else it must take the usual way.
        """
        if self.usable and Agent.spans is None:
            watch = self._meet(thin.client)
            if watch is not None:
                thin.name = labelled(thin.client, label, self.node.program, False)
                if self.turn.quick(self._take, thin, hold, watch):
                    return True
        self._wait_longer()
        return False

    def _wait_longer(self) -> None:
        self.pause = self._next_pause
        self._next_pause = min(2 * self.pause, LONGEST)

    def _meet(self, client: Client) -> DeathWatch | None:
        """Notice the client's end from now on; `None` if that is impossible, or it has come."""
        if not isinstance(client, (gevent.Greenlet, NativeThread, pykka.ActorRef, Ending)):
            return None
        try:
            watch = watch_of(client)
        except CannotMonitor:
            return None
        if watch is None or watch.ended:
            return None
        if self.monitor not in watch.monitors:
            self._watches.add(watch)
            watch.add(self.monitor, client)
        return watch

    def _client_down(self, down: Down) -> None:
        self.turn.post(self._end, down)

    def prepare(self) -> None:
        """Inflate, before something is looked at without a turn."""
        if self.due and not self.turn.is_here():
            self.turn.ask(bool)

    def close(self) -> None:
        """The node has stopped, or is another process's."""
        self.usable = False
        for watch in list(self._watches):
            watch.monitors.pop(self.monitor, None)

    # --- In a turn --------------------------------------------------------------------------------

    def _take(self, thin: ThinLock, hold: Hold, watch: DeathWatch) -> bool:
        node, journal, client, lock_id = self.node, self._journal, thin.client, thin.lock_id
        if journal.torn is not self:
            if journal.torn:
                journal.mend()
            if not self._may_begin():
                return False
            self.due = True
            journal.torn = self
        has_ended = self.monitor not in watch.monitors
        waits = isinstance(client, Ending) and client.waiting
        if self.held is not None or has_ended or waits:
            return False
        if lock_id is not None and (
            node.holders.get(client) is not None or not self._is_granted(thin, lock_id)
        ):
            return False
        thin.number = node.new_number(thin.created)
        node.counters.transactions += 1
        hold.take(thin)
        self.held = thin
        if self.monitor not in watch.monitors:  # the client ends at this moment
            self.turn.post(self._end, Down(client, "noproc"))
        return True

    def grant(self, thin: ThinTransaction, wanted: Object) -> int | None:
        """Have a thin transaction hold a lock; returns the token, or `None` if it must take the usual way."""
        free = self._journal.torn is self and self.held is thin and thin.lock_id is None
        if not free or not self._is_granted(thin, wanted[0]):
            return None
        thin.wanted = wanted
        thin.lock_id = wanted[0]
        return thin.token

    def _is_granted(self, thin: ThinLock, lock_id: LockId) -> bool:
        """Whether a lock is free; it is counted and gets its token then."""
        table = self.node.server.machine.table
        if next(table.related(lock_id), None) is not None:
            return False
        self.taken += 1
        thin.token = table.version + 2 * self.taken - 1
        thin.since = self.node.clock()
        return True

    def _may_begin(self) -> bool:
        """Whether nobody wants to know of free locks. What changes this takes a turn."""
        server = self.node.server
        watched = server.by_messages or server.audit is not None or server.machine.watches()
        # `locks.node.client.leaks` finds the line that took a lock by the objects that were made then.
        return self.node.running and not watched and not tracemalloc.is_tracing()

    def drop(self, thin: ThinLock) -> bool:
        """Release a thin lock, or end a thin transaction; returns whether it was one still."""
        if self._journal.torn is not self or self.held is not thin:
            return False
        lock_id = thin.lock_id
        self._next_pause = SHORTEST
        if lock_id is None:
            self.held = None
        else:
            seconds = self.node.clock() - thin.since
            self.held = None
            self.node.server.times.add_hold(lock_id, seconds)
        return True

    def agent_of(self, thin: ThinTransaction) -> Agent:
        """The agent of a transaction; it has ended, if the transaction has."""
        if self._journal.torn is self:
            self._journal.mend()
        if thin.agent is None:
            agent = self.node.make_agent(thin)
            agent.history.append((agent.machine.end_transaction, ()))
            agent.machine.end_transaction()
            agent.ended()
            thin.agent = agent
        return thin.agent

    def forsake(self) -> None:
        """In a forked child: what is held is the parent's."""
        thin = self.held
        if thin is not None and thin.agent is None:
            thin.agent = self.node.make_agent(thin)
            thin.agent.leave_to_parent()
        self.conclude()

    def steps(self) -> list[Event]:
        """The events of the lock server that were left out."""
        machine, thin = self.node.server.machine, self.held
        wanted = None if thin is None or thin.lock_id is None else thin.wanted
        steps: list[Event] = [(machine.pass_over, (self.taken - (wanted is not None),))]
        if thin is not None and wanted is not None:
            agent = (
                agent_numbered(thin.number, self.node.name) if thin.agent is None else thin.agent.id
            )
            steps.append((machine.request, (agent, thin.name, *wanted[:2])))
        return steps

    def inflate(self) -> None:
        """Carry them out, as a turn that is undone if it is interrupted, and done again."""
        journal, node, thin = self._journal, self.node, self.held
        journal.torn = True
        kept = type(thin) is ThinLock
        if thin is not None and thin.agent is None:
            other = node.holders.get(thin.client) if kept else None  # it begins at this moment
            alive = other is not None and other.is_alive()
            thin.agent = other if alive else node.make_agent(thin)
        if self.taken:
            node.server.carry_out(self.steps()[0])
        if thin is not None and thin.agent is not None:
            agent, wanted = thin.agent, thin.wanted
            node.take_in(agent, kept)
            if thin.lock_id is not None and wanted is not None:
                node.server.times.got.setdefault(thin.token, thin.since)
                told = node.request(agent.id, thin.name, *wanted[:2])
                agent.event(agent.machine.ask_told, wanted, told, PendingCall())
        journal.conclude()

    def conclude(self) -> None:
        """The inflation was committed."""
        if self.held is not None:
            self._wait_longer()
        self.held = None
        self.taken = 0
        self.due = False

    def _end(self, down: Down) -> None:
        """A client has ended, and so do its transactions, in their order, each in a turn. Calling it again has no effect."""
        clients = self.node.clients
        own = [each for each in clients.get(client_key(down.subject), ()) if each.is_alive()]
        if own:
            own[0].client_ended(down)
        if len(own) > 1:
            self.turn.post(self._end, down)
