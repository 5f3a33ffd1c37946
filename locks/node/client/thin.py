"""Thin locks: a lock that is held by a client without an agent, as long as nobody else is interested in it.

A `Lock` or an `RLock` that is free needs no agent: a `ThinLock` says who holds it, since when, and its token. A transaction
of the caller begins with a `LightAgent`, which has no machine; it can have one lock that is free. A node has one of all
these at a time. It is *inflated* before anything else happens on the node: it gets its agent, or what its agent lacks, of
the age that it would have, with its request granted under the same token. Everything else sees agents and the lock table,
as if there were no thin locks.

**What inflates?** All that looks at agents or the lock table takes the node's turn. While
a thin lock may be there (`ThinLocks.active`), the turn's journal counts as torn. Every other turn first mends the
journal, which converts the thin lock to a real one. Only its own turns, which take and release it (`Turn.quick`), do not. What looks at the agents of clients without a turn calls `ThinLocks.prepare` first.
Whoever asks a light agent itself for anything that it lacks inflates it (`LightAgent.__getattr__`), be it only its id.
Whoever wants to know of locks that are free again (watchers, a trace) begins in a turn; from then on there are no thin locks
(`ThinLocks._may_begin`). Nor are there any from the moment on at which the logger `locks.audit` is switched on.

**Why is it atomic?** A thin lock is held from the assignment of one attribute on, and released by another one, so
there is nothing to undo. So does a thin transaction begin, lock and end. The inflation is a turn like any other, which is
undone and done again. A call from within a thin lock's turn is refused or answered as from within any turn: it never
changes what that turn works on.

**When does it pay?** If locks are inflated often, it does not. So after each lock that did not stay thin, the next
ones take the usual way; twice as many each time, until one stays thin.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from logging import INFO
from typing import TYPE_CHECKING, Any, Protocol, final
from weakref import ref

import gevent
import pykka
from gevent import getcurrent

from locks.core.agent.machine import GRANTED, AgentMachine, Object
from locks.core.thin import Granted, Holder, Made, Thin
from locks.model import AgentId, LockId, LockResult, check_timeout
from locks.node.client.acquisitions import Acquisition, Acquisitions
from locks.node.client.agent import Agent
from locks.node.client.clients import labelled
from locks.node.client.holders import Holders
from locks.node.client.refusals import not_held
from locks.node.history import History
from locks.node.ports import NodePort, PendingCall
from locks.node.server import Server
from locks.runtime.addressed import OwnReference
from locks.runtime.bridge import is_in_event_loop
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
    watch_of,
)
from locks.runtime.native import insist

if TYPE_CHECKING:
    from greenlet import greenlet

    from locks.runtime.inline import Journal

__all__ = ["LightAgent", "ThinLock", "ThinLocks", "ThinRLock"]

# Pauses: locks that take the usual way after one that did not stay thin.
SHORTEST = 16
LONGEST = 1024


class Home(NodePort, Protocol):
    """The part of a node that thin locks need besides."""

    running: bool
    server: Server
    holders: Holders[Agent]

    def new_number(self) -> int:
        """The number of a new agent."""

    def take_in(self, agent: Agent, kept: bool) -> None:
        """Begin its transaction, which is kept for its client's `Lock`s, or not; in a turn."""


class ThinLock:
    """A lock that its client holds without an agent. It has the methods of an agent that a `Lock` needs.

    Args:
        locks: The thin locks of its node.
        client: The client.
        wanted: The lock as it is requested.
        name: The client's name for others.

    Attributes:
        client: The same.
        wanted: The same.
        number: The number of its agent, if it gets one: it has its age.
        granted: The lock, once it has it.
        agent: Its agent, once it is inflated.
    """

    __slots__ = ("_locks", "_name", "agent", "client", "granted", "number", "wanted")

    def __init__(self, locks: ThinLocks, client: Client, wanted: Object, name: str) -> None:
        self._locks = locks
        self._name = name
        self.client = client
        self.wanted = wanted
        self.number = 0
        self.granted: Granted | None = None
        self.agent: Agent | None = None

    @property
    def made(self) -> Made:
        """What its agent's machine is made of."""
        return self.number, self._name, True

    def release(self, lock_id: LockId) -> None:
        """See `Agent.release`."""
        turn = self._locks.turn
        try:
            if turn.quick(self._locks.drop, self):
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


@final
class ThinRLock(ThinLock):
    """The same for `RLock`s, which it counts, until its agent does.

    Attributes:
        acquisitions: How often it was acquired.
    """

    __slots__ = ("acquisitions",)

    def __init__(
        self, locks: ThinLocks, client: Client, wanted: Object, name: str, first: Acquisition
    ) -> None:
        super().__init__(locks, client, wanted, name)
        self.acquisitions = Acquisitions()
        self.acquisitions.enter(wanted[0], first)
        self.acquisitions.ask(wanted[0], first)

    def enter(self, acquisition: Acquisition) -> bool:
        """Acquire it once more; returns whether it is thin still."""
        return bool(self._locks.turn.quick(self._locks.enter, self, acquisition))

    def give_back(self, lock_id: LockId, acquisition: Acquisition) -> None:
        """See `Agent.give_back`."""
        turn = self._locks.turn
        try:
            if turn.quick(self._locks.give_back, self, acquisition):
                return
        except BaseException:
            self.withdraw_acquisition(None, lock_id, acquisition)
            raise
        turn.run_surely(self._give_back, lock_id, acquisition)

    def _give_back(self, lock_id: LockId, acquisition: Acquisition) -> None:
        if self.agent is None:
            raise not_held(lock_id)
        self.agent._give_back(lock_id, acquisition)

    def withdraw_acquisition(
        self, call: PendingCall | None, lock_id: LockId, acquisition: Acquisition
    ) -> None:
        """See `Agent.withdraw_acquisition`."""
        insist(self._locks.turn.run_surely, self._withdraw_acquisition, lock_id, acquisition)

    def _withdraw_acquisition(self, lock_id: LockId, acquisition: Acquisition) -> None:
        if self.agent is not None:
            self.agent._withdraw_acquisition(None, lock_id, acquisition)


@final
class LightAgent(Agent):
    """The agent of a thin transaction: it can lock what is free, and end. What else an agent has is made when somebody needs it.

    From then on its class is `Agent`, whatever method of this class still runs; so these call methods of `Agent` by its name.
    """

    __slots__ = ()

    def __init__(
        self, node: NodePort, client: Client, made: Made, here: greenlet | None = None
    ) -> None:
        self.turn = node.turn
        self.node = node
        self.client = client
        self.on_lost = None
        self._here = here
        self.made = made
        self.granted: Granted | None = None

    def __getattr__(self, name: str) -> Any:
        if name not in LATER:
            raise AttributeError(f"'Agent' object has no attribute {name!r}", name=name, obj=self)
        self.node.thin.inflate_agent(self)
        return object.__getattribute__(self, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        self.node.thin.inflate_agent(self)  # so it fails like any agent
        return object.__reduce_ex__(self, protocol)

    def complete(self, ended: bool) -> None:
        """Have what an agent has; in a turn. Calling it again has no effect, so it is looked up in this class."""
        if type(self) is LightAgent:
            node, (_, name, abort) = self.node, self.made
            ref = node.thin.reference(self)
            made = (ref, name, node.alive, abort, False, False, False, node.silent)
            machine = AgentMachine(*made)
            history: History = [(machine.load, (made,))]
            if ended:
                history.append((machine.end_transaction, ()))
                machine.end_transaction()
            self._complete(machine, history)
            self.__class__ = Agent  # type: ignore[assignment]

    def is_alive(self) -> bool:
        """Whether its transaction has not ended."""
        # In this order: it is complete before it is not held any more.
        return self.node.thin.held is self or (type(self) is not LightAgent and not self._stopped)

    def is_set(self) -> bool:
        """Whether it has stopped."""
        return not self.is_alive()

    def lock_by(
        self, call: PendingCall, objects: Sequence[Object], timeout: float | None
    ) -> LockResult:
        """Lock an id, if nobody else is interested in it; everything else in the usual way."""
        if timeout is not None:
            check_timeout(timeout)
        here, thin = self._here, self.node.thin
        if (
            len(objects) == 1
            and (here is None or getcurrent() is here)
            and Agent.spans is None
            and not is_in_event_loop()
        ):
            (wanted,) = objects
            lock_id, _, nodes, _ = wanted
            if nodes == thin.here and type(lock_id[-1]) is not tuple:
                call.begun = True
                call.token = thin.turn.quick(thin.grant, self, wanted, call)
                if call.token is not None:
                    return GRANTED
        return Agent.lock_by(self, call, objects, timeout)

    def end_transaction(self) -> None:
        """End the transaction."""
        here = self._here
        if here is None or getcurrent() is here:
            self.leave_block()
        else:
            Agent.end_transaction(self)

    def leave_block(self) -> None:
        """See `Agent.leave_block`."""
        thin = self.node.thin
        try:
            if thin.turn.quick(thin.drop, self):
                return
        except BaseException:
            self.let_go()
            raise
        Agent.leave_block(self)


# What an agent has later than a light one.
LATER = {*Agent.__slots__, *OwnReference.__slots__} - {
    *("_here", "client", "granted", "made", "node", "on_lost"),
}


class ThinLocks(Thin):
    """The thin locks of one node, one at a time. What has no docstring for callers is for the turn.

    Args:
        node: The node.
        journal: The journal of its turn.
        usable: Whether there may be any: the node is alone, and real.

    Attributes:
        node: The node.
        here: Its name, as the nodes of a lock.
        turn: The node's turn.
        held: The thin lock that is held, or the agent of the thin transaction, if there is one.
        active: Whether no other turn has begun since the last thin lock, so that there may be one. The journal is torn then.
        due: Whether there may be something to inflate.
        usable: See above.
        pause: How many locks take the usual way before the next thin one; `Lock`s count it down.
    """

    def __init__(self, node: Home, journal: Journal, usable: bool) -> None:
        super().__init__(node.server.machine)
        self.held: ThinLock | Agent | None = None
        self.turn = node.turn
        self.pause = 0
        self._next_pause = SHORTEST
        self.active = False
        self.due = False
        self.usable = usable
        self.node = node
        self.here = (node.name,)
        self._journal = journal
        self.monitor = Monitor(self._client_down, surely=True)  # of all clients that had thin locks
        self._watches: dict[ref[DeathWatch], object] = {}

    # --- For clients ------------------------------------------------------------------------------

    def begin(
        self,
        number: int,
        client: Client,
        keep: Callable[[Agent], object],
        options: Mapping[str, Any],
    ) -> Agent | None:
        """Begin a transaction of the caller, with the options of `locks.original.spawn_agent`; `None` if it must take the usual way."""
        if self.pause:
            self.pause -= 1
            return None
        label = abort = None
        for name, value in options.items():
            if name == "label":
                label = value
            elif name == "abort_on_deadlock":
                abort = value
            elif value:  # it needs a machine
                return None
        here = None if isinstance(client, Ending) else getcurrent()
        made = number, labelled(client, label, self.node.program, False), bool(abort)
        agent = LightAgent(self.node, client, made, here)
        return agent if self.take(agent, keep) else None

    def take(self, thin: ThinLock | LightAgent, keep: Callable[[Any], object]) -> bool:
        """Have a client hold a lock, or begin a transaction, if nobody else is interested in it.

        Args:
            thin: What it has then. A client has only one thin `Lock`, and no other ones.
            keep: Called with the same, also if this is interrupted.

        Returns:
            Whether it has it; else it must take the usual way.
        """
        client = thin.client
        if (
            self.usable
            and Agent.spans is None
            and isinstance(client, (gevent.Greenlet, NativeThread, pykka.ActorRef, Ending))
        ):
            try:
                watch = watch_of(client)
            except CannotMonitor:
                watch = None
            if watch is not None and not watch.ended:
                if self.monitor not in watch.monitors:
                    self._watches[ref(watch, self._watches.pop)] = None  # no calls of Python
                    watch.add(self.monitor, client)
                if self.turn.quick(self._take, thin, keep, watch):
                    return True
        self._wait_longer()
        return False

    def _wait_longer(self) -> None:
        self.pause = self._next_pause
        self._next_pause = min(2 * self.pause, LONGEST)

    def _client_down(self, down: Down) -> None:
        key, held = client_key(down.subject), self.held
        # Without the turn, and in this order: who is not held any more is listed, if it has not ended.
        if (held is not None and client_key(held.client) == key) or key in self.node.clients:
            self.turn.post(self._end, down)

    def prepare(self) -> None:
        """Inflate, before something is looked at without a turn."""
        if self.due and not self.turn.is_here():
            self.turn.ask(bool)

    def inflate_agent(self, agent: LightAgent) -> None:
        """Complete an agent.

        Raises:
            ReentrantCall: From within a turn, while its transaction is thin.
        """
        if self.held is agent:
            self.turn.ask(bool)
        if self.turn.is_here():
            LightAgent.complete(agent, True)
        else:
            self.turn.quick(LightAgent.complete, agent, True)

    def close(self) -> None:
        """The node has stopped, or is another process's."""
        self.usable = False
        for watch in [each() for each in list(self._watches)]:
            if watch is not None:
                watch.monitors.pop(self.monitor, None)

    # --- In a turn --------------------------------------------------------------------------------

    def _take(
        self, thin: ThinLock | LightAgent, keep: Callable[[Any], object], watch: DeathWatch
    ) -> bool:
        node, journal, client = self.node, self._journal, thin.client
        if not self.active:
            if journal.torn:
                journal.mend()
            if not self._may_begin():
                return False
            self.due = True
            journal.torn = True
            self.active = True  # last: an exception may come between the two
        has_ended = self.monitor not in watch.monitors
        waits = isinstance(client, Ending) and client.waiting
        if self.held is not None or has_ended or waits:
            return False
        if type(thin) is not LightAgent:
            if node.holders.get(client) is not None:
                return False
            if not self.give(thin, thin.wanted, node.clock()):
                return False
            thin.number = node.new_number()
        keep(thin)
        self.held = thin
        if self.monitor not in watch.monitors:  # the client ends at this moment
            self.turn.post(self._end, Down(client, "noproc"))
        return True

    def grant(self, agent: LightAgent, wanted: Object, call: PendingCall) -> int | None:
        """Have a thin transaction hold a lock; returns the token, or `None` if it must take the usual way."""
        if (
            not self.active
            or self.held is not agent
            or not self.give(agent, wanted, self.node.clock(), call)
        ):
            return None
        assert agent.granted is not None
        return agent.granted[1]

    def _may_begin(self) -> bool:
        """Whether nobody wants to know of free locks. What changes this takes a turn, but for the level of a logger."""
        server = self.node.server
        audited = 0 < audit_logger.level <= INFO
        watched = server.by_messages or audited or server.machine.watches()
        # `locks.node.client.leaks` finds the line that took a lock by the objects that were made then.
        return self.node.running and not watched and not tracemalloc.is_tracing()

    def drop(self, thin: ThinLock | Agent) -> bool:
        """Release a thin lock, or end a thin transaction; returns whether it was one still."""
        if not self.active or self.held is not thin:
            return False
        granted = thin.granted
        self._next_pause = SHORTEST
        self.node.counters.ended += 1
        if granted is None:
            self.held = None
        else:
            wanted, _, since, _ = granted
            seconds = self.node.clock() - since
            self.held = None
            self.node.server.times.add_hold(wanted[0], seconds)
        return True

    def enter(self, thin: ThinRLock, acquisition: Acquisition) -> bool:
        """Acquire a thin lock once more; returns whether it was one still."""
        is_thin = self.active and self.held is thin
        if is_thin:
            thin.acquisitions.enter(thin.wanted[0], acquisition)
        return is_thin

    def give_back(self, thin: ThinRLock, acquisition: Acquisition) -> bool:
        """Undo one acquisition, and release the lock with the last one; returns whether it was thin still."""
        is_thin = self.active and self.held is thin
        if is_thin and thin.acquisitions.take_out(thin.wanted[0], acquisition):
            self.drop(thin)
        return is_thin

    def _complete(self, thin: ThinLock | Agent) -> Agent:
        """The agent of what is held, which has all that it needs."""
        if not isinstance(thin, ThinLock):
            if type(thin) is LightAgent:
                LightAgent.complete(thin, False)
            return thin
        if thin.agent is None:
            other = self.node.holders.get(thin.client)  # it begins at this moment
            if other is None or not other.is_alive():
                other = LightAgent(self.node, thin.client, thin.made)
                LightAgent.complete(other, False)
            thin.agent = other
        return thin.agent

    def forsake(self) -> None:
        """In a forked child: what is held is the parent's."""
        self.active = False
        if self.held is not None:
            self._complete(self.held).leave_to_parent()
        self.conclude()

    def reference(self, holder: Holder) -> AgentId:
        """See `Thin`; its client may have an agent."""
        if isinstance(holder, ThinLock) and holder.agent is not None:
            return holder.agent.id
        return super().reference(holder)

    def inflate(self) -> None:
        """Carry them out, as a turn that is undone if it is interrupted, and done again."""
        journal, node, thin = self._journal, self.node, self.held
        self.active = False
        journal.torn = True
        agent = None if thin is None else self._complete(thin)
        steps = self.steps()
        if self.taken:
            node.server.carry_out(steps[0])
        if thin is not None and agent is not None:
            node.take_in(agent, kept=isinstance(thin, ThinLock))
            if isinstance(thin, ThinRLock):
                agent.take_over(thin.wanted[0], thin.acquisitions)
            if thin.granted is not None:
                wanted, token, since, call = thin.granted
                node.server.times.got.setdefault(token, since)
                records = node.request(*steps[1][1])
                agent.event(agent.machine.ask_told, wanted, records, call or PendingCall())
        journal.conclude()

    def conclude(self) -> None:
        """The inflation was committed."""
        if self.held is not None:
            self._wait_longer()
        super().conclude()
        self.due = False

    def _end(self, down: Down) -> None:
        """A client has ended, and so do its transactions, in their order, each in a turn. Calling it again has no effect."""
        clients = self.node.clients
        own = [each for each in clients.get(client_key(down.subject), ()) if each.is_alive()]
        if own:
            own[0].client_ended(down)
        if len(own) > 1:
            self.turn.post(self._end, down)
