"""The transaction's agent as a pure state machine: events in, effects out.

An agent asks lock servers for the locks that its client wants, tells the client when it has them,
and finds and resolves deadlocks together with the agents that it meets. Each method is an event
and returns what is to be done; a call that is refused raises before anything is changed. It knows
no clock, no actor and no network. The machine is composed of parts, each with
its own state: `ledger` keeps what the client wants and what was requested for it, `requests` who waits for
that, `deadlocks` what the agent does about deadlocks, `fencing` how it gets fencing tokens, and `hold_ups`
what a wait means for the client's other transactions.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any, Final

from locks.core.agent.counted import another_number, unit_of
from locks.core.agent.deadlocks import Resolver
from locks.core.agent.fencing import Tokens
from locks.core.agent.flags import Flag, check_flag
from locks.core.agent.gate import NOBODY, answered
from locks.core.agent.hold_ups import HoldUps
from locks.core.agent.ledger import Ledger
from locks.core.agent.requests import (
    ClientWaits,
    LockRequest,
    has_ended,
    locks_lost,
    unlocked_meanwhile,
)
from locks.core.agent.saving import SavedAgent, load_agent, save_agent
from locks.core.agent.terms import Object, check_terms
from locks.core.agent.wait_graph import Exploration
from locks.core.messages import (
    AgentEffect,
    AgentMessage,
    AnswerWait,
    Ended,
    Knowledge,
    Lost,
    Notify,
    Refused,
    Released,
    RequestStates,
    Resolved,
    Surrender,
    Surrendered,
    VersionRaised,
)
from locks.errors import (
    DeadlockAborted,
    LocksError,
    NotHeld,
    TransactionEnded,
    assert_never,
)
from locks.model import (
    AgentId,
    Deadlock,
    LockId,
    LockInfo,
    LockResult,
    Mode,
    Notification,
    RequestRecord,
    Require,
    Status,
    show,
)

__all__ = ["AgentMachine", "Flag", "Object"]

HAVE_ALL: Final = "have_all_locks"
GRANTED: Final = LockResult(HAVE_ALL, ())  # what nearly all are answered
NORMALLY: Final = Ended(None)  # likewise what nearly all end with
REPORTS = 100  # of so many deadlocks, the newest ones, an agent keeps the reports


class AgentMachine:
    """One transaction's agent.

    Args:
        agent: Its reference.
        client: Name of its client, for people.
        alive: The nodes whose lock servers are up; kept up to date by `node_up`, `node_down`.
        abort_on_deadlock: Abort instead of surrendering a lock that the client was told it has.
        await_nodes: Wait for nodes that are needed and down, instead of aborting.
        monitor_nodes: Notify the client of lock servers that come and go.
        notify: Notify the client of lock infos and changes of status.
        silent: Of the nodes that are up, those that say nothing; kept up to date by `node_silent`, `node_speaks`.
    """

    __slots__ = (
        "_hold_ups",
        "_last_status",
        "_ledger",
        "_out",
        "_resolver",
        "_tokens",
        "_waits",
        "abort_on_deadlock",
        "await_nodes",
        "client",
        "deadlocks",
        "ended",
        "id",
        "monitor_nodes",
        "notify",
    )

    def __init__(
        self,
        agent: AgentId,
        client: str,
        alive: Iterable[str],
        abort_on_deadlock: bool = False,
        await_nodes: bool = False,
        monitor_nodes: bool = False,
        notify: bool = False,
        silent: frozenset[str] = NOBODY,
    ) -> None:
        self.id = agent
        self.client = client
        self.abort_on_deadlock = abort_on_deadlock
        self.await_nodes = await_nodes
        self.monitor_nodes = monitor_nodes
        self.notify = notify
        self.deadlocks: tuple[Deadlock, ...] = ()
        self.ended: Ended | None = None
        self._out: list[AgentEffect] = []
        self._waits = ClientWaits()
        self._last_status: Status = "no_locks"
        self._resolver = resolver = Resolver(agent, self._out)
        self._ledger = ledger = Ledger(agent, client, alive, self._out, resolver)
        ledger.silent = resolver.silent = silent
        self._tokens: Tokens | None = None  # most locks are on one node, and have theirs at once
        self._hold_ups: HoldUps | None = None  # most clients have one transaction

    def save(self) -> SavedAgent:
        """Its state, to go back to with `load`."""
        return save_agent(self)

    def load(self, saved: SavedAgent) -> None:
        """Go back to a state that was saved."""
        load_agent(self, saved)

    def another(self) -> AgentMachine:
        """A machine of the same agent that has nothing yet, to `load` a state."""
        return type(self)(self.id, self.client, ())

    # --- The client's calls ---------------------------------------------------------------------

    def ask(
        self,
        lock_id: LockId,
        mode: Mode,
        nodes: tuple[str, ...],
        require: Require,
        wait: Hashable | None = None,
    ) -> list[AgentEffect]:
        """Ask for a lock; the same as `ask_all` for one."""
        return self.ask_all(((lock_id, mode, nodes, require),), wait)

    def ask_all(
        self,
        objects: Iterable[Object],
        wait: Hashable | None = None,
        queued: Collection[LockId] = (),
    ) -> list[AgentEffect]:
        """Ask for locks; with `wait`, answer when these and all earlier lock requests are held.

        Args:
            objects: The locks.
            wait: Who waits for them.
            queued: Those for which this program waits at the gate already (`locks.core.agent.gate.Lines`).

        Raises:
            ConflictingRequest: An id was asked for before with another requirement, or an
                upgrade names other nodes.
            InvalidOption: It is a counted lock, which can't be asked for like this.
            CannotServe: Too few of the nodes are up, and `await_nodes` is off.
        """
        if self.ended is not None:
            self.check_alive()
        ledger = self._ledger
        objects = list(objects)
        check_terms(ledger.requests, ledger.alive, objects, self.await_nodes)
        undo = []
        for wanted in objects:
            undo.append(ledger.add(wanted, bool(queued) and wanted[0] in queued))
        if wait is not None:
            self._waits.begin(wait, ledger.seq, undo)
        else:
            self._waits.keep(undo)
        return self._conclude()

    def asks_alone(self, objects: Sequence[Object]) -> bool:
        """Whether `ask_all` would send one request only, to its own node, and nothing else is under way.

        Then the request may be made by a call, and `ask_told` takes the place of `ask_all`.
        """
        if len(objects) != 1:
            return False
        lock_id, _, nodes, _ = objects[0]
        node = self.id.node
        ledger = self._ledger
        return not (
            nodes != (node,)
            or type(lock_id[-1]) is tuple
            or lock_id in ledger.requests
            or node not in ledger.alive
            or ledger.open
            or ledger.releasing
            or (ledger.used and (len(ledger.used) > 1 or node not in ledger.used))
            or self.notify
            or self.ended is not None
            or self._hold_ups is not None
            or self._resolver.giving_up
        )

    def ask_told(
        self, wanted: Object, told: tuple[RequestRecord, ...], wait: Hashable
    ) -> list[AgentEffect]:
        """The same as `ask_all`, and what follows, of what `asks_alone`, when the request was made by a call.

        Args:
            wanted: The lock.
            told: What the lock server has told: the state of the request, and perhaps of others.
            wait: As for `ask_all`.
        """
        ledger = self._ledger
        undo = (ledger.add_told(wanted, told[0]),)
        if not ledger.open:
            self._waits.answered(wait, undo)
            ledger.acknowledge(ledger.seq)
            deadlocks = self.deadlocks
            return [AnswerWait(wait, LockResult(HAVE_ALL, deadlocks) if deadlocks else GRANTED)]
        self._waits.begin(wait, ledger.seq, undo)
        if len(told) > 1:
            self._take_in(told)
        return self._conclude()

    def await_all(self, wait: Hashable) -> list[AgentEffect]:
        """Answer `wait` when everything asked for so far is held; at once if nothing was."""
        self.check_alive()
        self._waits.begin(wait, self._ledger.seq)
        return self._conclude()

    def abandon(self, wait: Hashable) -> list[AgentEffect]:
        """A client gave up waiting, or the last answer: withdraw what only this wait was for."""
        self._withdraw(wait)
        if self._tokens is not None:
            self._tokens.abandon(wait)
        return self._conclude()

    def establish_token(self, lock_id: LockId, wait: Hashable) -> list[AgentEffect]:
        """Answer `wait` with the fencing token of a lock that is held, at once if it is known.

        Otherwise lock servers are asked to confirm it. If the lock is lost, surrendered or
        unlocked meanwhile, or the transaction ends, the answer is the error that says so.

        Raises:
            NotHeld: It is not held now; as for `token`, with its other errors.
        """
        self.token(lock_id)
        self._tokens = self._my_tokens()
        self._tokens.wait(lock_id, wait)
        return self._conclude()

    def unlock(self, lock_id: LockId) -> list[AgentEffect]:
        """Release a lock, or cancel the request for it, before the transaction ends.

        Whoever has asked for it and still waits for all that he has asked for, in another thread of an owner, is told so.

        Raises:
            NotHeld: The transaction has not asked for this id.
        """
        self.check_alive()
        self._ledger.request(lock_id)
        if self._waits.pending:
            self._break_off(self._waits.asking_for(lock_id), unlocked_meanwhile(lock_id))
        self._ledger.drop(lock_id)
        return self._conclude()

    def surrender(
        self, lock_id: LockId, other: AgentId, nodes: tuple[str, ...]
    ) -> list[AgentEffect]:
        """Give up a lock because the client wants to, and stand last behind all that wait for it.

        Raises:
            NotHeld: The transaction doesn't hold it on all of these nodes.
        """
        self.check_alive()
        self._ledger.request(lock_id).check_granted(nodes, self.id, other)
        for node in nodes:
            self._resolver.surrender(node, Surrender(self.id, lock_id))
        return self._conclude()

    def set_flag(self, flag: Any, value: Any) -> list[AgentEffect]:
        """Change an option; switching `notify` on tells the present status at once.

        Raises:
            InvalidOption: There is no such flag, or the value is not a bool.
        """
        self.check_alive()
        flag = check_flag(flag, value)
        setattr(self, flag, value)
        if flag == "notify" and value:
            self._notify_status()
        return self._conclude()

    def end(self, reason: LocksError | None = None) -> list[AgentEffect]:
        """End the transaction; everything is released, and all waits are answered with the reason."""
        if self.ended is None:
            if self._waits.pending or self._tokens is not None:
                error = reason or TransactionEnded(
                    f"transaction {self.id} was ended", agent=self.id
                )
                self._out += [AnswerWait(wait, error) for wait in self._waits.end()]
                if self._tokens is not None:
                    self._tokens.end(error)
            self._hold_ups = None
            self._ledger.end()
            if self._resolver.graph is not None:
                self._resolver.cease()
            if self.notify and reason is not None:  # its own end is no news to the client
                self._notify_end(reason)
            self.ended = NORMALLY if reason is None else Ended(reason)
            self._out.append(self.ended)
        return self._flush()

    # --- Other transactions of its client ---------------------------------------------------------

    def hold_up(self, wait: Hashable) -> list[AgentEffect]:
        """The client blocks in a wait for locks; `held_up` of its other agents is to follow."""
        self._my_hold_ups().begin(wait)
        return self._conclude()

    def held_up(self, lock_id: LockId, beside: bool = False) -> list[AgentEffect]:
        """The client blocks in a wait of another transaction of its own; the id stands for that. See `HoldUps.join`."""
        if self.ended is None:
            self._my_hold_ups().join(lock_id, beside)
        return self._conclude()

    def interrupt(self, error: Exception) -> list[AgentEffect]:
        """Another transaction of the client was aborted: if it waits in this one, it is told."""
        self._break_off(self._waits.unanswered, error)
        return self._conclude()

    # --- Nodes that come and go -------------------------------------------------------------------

    def node_up(self, node: str) -> list[AgentEffect]:
        """The lock server of a node is there (again)."""
        if self.ended is None and node not in self._ledger.alive:
            if self.monitor_nodes:
                self._out.append(Notify(Notification(self.id, "nodeup", node)))
            self._resolver.node_up(node)
            self._ledger.node_up(node)
        return self._conclude()

    def node_down(self, node: str) -> list[AgentEffect]:
        """The lock server of a node is gone, and with it all that it had granted.

        What the client was told it has, and is granted on too few nodes now, is `Lost`, before
        anything else is said. Then what can't be granted any more ends the transaction, unless
        nodes are awaited.
        """
        if self.ended is None and node in self._ledger.alive:
            lost = self._ledger.node_down(node)
            missing = None if self.await_nodes else self._ledger.unservable()
            if lost:
                self._lose(lost, missing is not None and missing.lost is not None)
            if self.monitor_nodes:
                self._out.append(Notify(Notification(self.id, "nodedown", node)))
            self._resolver.node_down(node, self._ledger.used)
            if missing is not None:
                return self.end(self._ledger.ending(missing))
        return self._conclude()

    def node_silent(self, node: str) -> list[AgentEffect]:
        """A node is connected and says nothing: what needs a majority waits for another one first, until it speaks."""
        return self._hear(self._ledger.silent | {node})

    def node_speaks(self, node: str) -> list[AgentEffect]:
        """A node that was silent says something again."""
        return self._hear(self._ledger.silent - {node})

    def _hear(self, silent: frozenset[str]) -> list[AgentEffect]:
        if self.ended is None:
            silent &= self._ledger.alive
            self._resolver.silent = silent
            self._ledger.hear(silent)
            self._resolver.unsettled = self._resolver.graph is not None
        return self._conclude()

    @property
    def in_touch(self) -> bool:
        """Whether it has told other agents something, or was told: else `peer_up` and `peer_down` do nothing."""
        return self._resolver.in_touch

    @property
    def partners(self) -> set[str]:
        """The nodes of the agents that it has told something that may still matter: it has to be connected with them."""
        return self._resolver.partners

    def peer_up(self, node: str) -> list[AgentEffect]:
        """A node is connected: its agents know nothing of what they were told before."""
        self._resolver.node_up(node)
        return self._conclude()

    def peer_down(self, node: str) -> list[AgentEffect]:
        """A node is gone that had no lock server, and perhaps what agents there were told."""
        self._resolver.peer_down(node)
        return self._conclude()

    # --- What comes from others -----------------------------------------------------------------

    def receive(self, message: AgentMessage) -> list[AgentEffect]:
        """Take in a message from a lock server or an agent; `settle` is to follow."""
        if self.ended is None:
            # The frequent ones first; `match` would take longer.
            if isinstance(message, RequestStates):
                self._take_in(message.records)
            elif isinstance(message, Knowledge):
                self._resolver.learn_from(message)
            elif isinstance(message, Surrendered):
                self._surrendered(message)
            elif isinstance(message, Resolved):
                self._resolved(message.report)
                self._take_in(message.records)
            elif isinstance(message, Released):
                self._ledger.released(message)
                self._learn(message.records)  # until now, they might have been the ones released
            elif isinstance(message, VersionRaised):
                if self._tokens is not None:
                    self._tokens.raised(message)
            elif isinstance(message, Refused):
                self._refused(message)
            else:
                assert_never(message)
        return self._conclude()

    def settle(self) -> list[AgentEffect]:
        """All that had arrived is taken in: look for deadlocks, yield or pass on."""
        if self.ended is None:
            self._resolver.settle(self._ledger.is_acknowledged, self.abort_on_deadlock)
        return self._flush()

    # --- Questions ------------------------------------------------------------------------------

    @property
    def unsettled(self) -> bool:
        """Whether `settle` has something to do."""
        return self._resolver.unsettled

    def status(self) -> Status:
        """The status of the transaction."""
        if not self._ledger.requests:
            return "no_locks"
        if self._resolver.giving_up and (  # what is held is known when that is answered
            self._resolver.is_in_doubt
            or not all(map(self._ledger.is_sure, self._ledger.requests.values()))
        ):
            return "waiting"
        if not self._ledger.open:
            return "have_all_locks"
        return "waiting" if self._ledger.unservable() is None else "cannot_serve"

    def result(self) -> LockResult:
        """Status and deadlocks so far."""
        return LockResult(self.status(), self.deadlocks)

    def told_status(self) -> list[AgentEffect]:
        """The client is told the status; if that is that it has all locks, they are acknowledged."""
        if self.status() == "have_all_locks":
            self._ledger.acknowledge(self._ledger.seq)
        return self._flush()

    def lost(self) -> tuple[LockId, ...]:
        """What the client was told it has, and must not rely on any more; for `ensure_held`."""
        return tuple(request.lock_id for request in self._ledger.lost())

    def lock_info(self) -> list[LockInfo]:
        """All locks asked for."""
        return [request.info() for request in self._ledger.requests.values()]

    def token(self, lock_id: LockId) -> int | None:
        """The fencing token of a lock that is held.

        Returns:
            The token if it is known: the lock is on one node, or the token was established.
            `None` if it must be established first (`establish_token`).

        Raises:
            NotHeld: It is not held.
            LockLost: It is lost, and the client was not told since that it has it again.
            InvalidOption: It was asked for on several nodes, and needs neither all of them nor
                a majority.
        """
        self.check_alive()
        tokens = self._my_tokens()
        refusal = tokens.refusal(lock_id)
        if refusal is not None:
            raise refusal
        return tokens.known(self._ledger.request(lock_id))

    def unit(self, lock_id: LockId) -> int | None:
        """Which unit of a counted lock it has, counted from 0; raises `NotHeld` if it has none."""
        self.check_alive()
        if not self.holds(lock_id):
            raise NotHeld(f"{self.id} does not hold {show(lock_id)}", lock_id=lock_id)
        return unit_of(self._ledger.request(lock_id))

    def ensure_held(self, lock_id: LockId | None) -> None:
        """Make sure that what the client was told it has is granted, as far as the agent knows.

        Args:
            lock_id: Which lock; `None` for all that it was told it has.

        Raises:
            NotHeld: The client was not told that it is held, and it is not, or may be surrendered: that is under way.
            LockLost: It is lost, with a node or by a surrender, and the client was not told since
                that it has it again; or a surrender of it is under way.
        """
        self.check_alive()
        if lock_id is None:
            lost = self._ledger.lost()
            if lost:
                raise locks_lost(self.id, lost)
            return
        request = self._ledger.request(lock_id)
        if self._ledger.is_lost(request):
            raise locks_lost(self.id, (request,))
        is_held = request.held and self._ledger.is_sure(request)
        if request.acknowledged is None and not is_held:
            raise NotHeld(
                f"{self.id} has requested {show(lock_id)}, but does not hold it yet",
                lock_id=lock_id,
            )

    def asks_for(self, lock_id: LockId) -> bool:
        """Whether this very id was asked for."""
        return lock_id in self._ledger.requests

    def is_answered(self, wait: Hashable) -> bool:
        """Whether all lock servers that are not silent have answered what somebody waits for; it may have to go on waiting."""
        upto = self._waits.upto(wait)
        ledger = self._ledger
        return all(
            answered(r, ledger.alive, ledger.silent) for r in ledger.open.values() if r.seq <= upto
        )

    @property
    def waits_at(self) -> set[str]:
        """The nodes at which it waits for others."""
        return {node for node, _ in self._ledger.waiting}

    def queues_for(self, lock_id: LockId) -> bool:
        """Whether it waits at the gate of a lock, or has not been answered there."""
        return self.ended is None and self._ledger.queues_for(lock_id)

    @property
    def size(self) -> int:
        """How many lock requests there are to save."""
        return len(self._ledger.requests)

    @property
    def empty(self) -> bool:
        """Whether nothing is asked for."""
        return not self._ledger.requests

    def holds(self, lock_id: LockId) -> bool:
        """Whether this very id was asked for and is held."""
        request = self._ledger.requests.get(lock_id)
        return request is not None and request.held

    def check_alive(self) -> None:
        """Raise the reason for which the transaction ended, if it has."""
        if self.ended is not None:
            raise has_ended(self.id, self.ended.reason)

    @property
    def awaited(self) -> bool:
        """Whether its client waits for locks."""
        return bool(self._waits.pending)

    @property
    def lasting(self) -> list[Hashable]:
        """The waits for locks that are not answered."""
        return list(self._waits.unanswered)

    def hold_up_id(self, wait: Hashable) -> LockId | None:
        """What stands for a wait in which the client blocks; nothing if it is over."""
        return None if self._hold_ups is None else self._hold_ups.by_wait.get(wait)

    def outlook(self) -> Exploration | None:
        """What it would find if it looked now; nothing if it does not wait."""
        return self._resolver.look()

    # --- Taking in ------------------------------------------------------------------------------

    def _take_in(self, records: tuple[RequestRecord, ...]) -> None:
        me = self.id
        others = False
        for record in records:
            if record.agent != me:
                others = True
            elif self._ledger.update(record) and self.notify:
                self._out.append(Notify(Notification(me, "lock_info", record)))
        if others and not self._idle():
            self._resolver.begin()
        self._learn(records)
        if others:
            for record in records:
                if record.state == "spare" and record.agent != me:
                    self._give_way(record)

    def _learn(self, records: tuple[RequestRecord, ...]) -> None:
        """Put records into what is known of deadlocks, if the agent keeps that now."""
        if self._resolver.graph is None:
            return
        for record in records:
            if record.agent != self.id:
                self._resolver.learn(record)
            # A request that was released may still be reported: it waits for nobody.
            elif not self._ledger.may_be_released(record):
                self._resolver.learn(self._ledger.known(record))

    def _give_way(self, spare: RequestRecord) -> None:
        """Another agent holds a lock, and a grant of this one keeps it from standing on this node, too.

        If this one holds nothing by that, it can't get the lock before the other one releases it.
        """
        ends = self._ledger.way_for(spare)
        if ends is not None:
            self._resolver.surrender(spare.node, Surrender(self.id, spare.lock_id, *ends))

    def _resolved(self, report: Deadlock) -> None:
        """A deadlock is resolved; the lock server that did so says by itself what still matters."""
        self.deadlocks = (*self.deadlocks, report)[-REPORTS:]
        self._resolver.forget(node for node in self._ledger.used if node != report.server)

    def _surrendered(self, message: Surrendered) -> None:
        if not self._resolver.expects(message):
            return
        report = message.message.report
        if message.done and report is not None:
            self._resolved(report)
        self._take_in(message.records)
        self._resolver.surrendered(message)
        resolved = message.done and report is not None and not message.message.aborts
        if resolved and len(self._waits.pending) == 1:  # nobody waits for this lock alone
            self._ledger.postpone(message)
        if message.done and report is not None and message.message.aborts:
            text = (
                f"transaction {self.id} was aborted to resolve a deadlock; run it again.\n{report}"
            )
            self._out += self.end(DeadlockAborted(text, deadlock=report))

    def _refused(self, message: Refused) -> None:
        """What was asked for can't be had: who waits is told; if nobody does, the transaction ends."""
        node, lock_id, units = message
        if self._ledger.refused(node, lock_id):
            error = another_number(lock_id, units, node)
            self._out += self.interrupt(error) if self._waits.pending else self.end(error)

    # --- Telling the client ---------------------------------------------------------------------

    def _idle(self) -> bool:
        """Whether no request waits, or may be found to wait."""
        return self._ledger.idle and not self._resolver.giving_up

    def _conclude(self) -> list[AgentEffect]:
        """After each event: answer those whose wait is over, and say what has changed."""
        if self.ended is None:
            ledger = self._ledger
            resolver = self._resolver
            if ledger.open and ledger.idle and not resolver.giving_up:
                ledger.resume()
            if resolver.graph is not None and self._idle():
                resolver.cease()
            if not (resolver.giving_up and resolver.is_in_doubt):
                if self._waits.pending:
                    self._answer()
                if self._tokens is not None:
                    self._tokens.go_on()
            if self.notify and self.status() != self._last_status:
                self._notify_status()
            if self._hold_ups is not None:
                self._hold_ups.tidy()
            if ledger.standings or len(ledger.used) > 1:
                ledger.tell_standing()
        return self._flush() if self._out else []

    def _answer(self) -> None:
        ledger = self._ledger
        first_open = ledger.seq + 1
        for request in ledger.open.values():
            if request.seq < first_open:
                first_open = request.seq
        if self._resolver.giving_up:  # at nodes that are silent
            for request in ledger.requests.values():
                if request.seq < first_open and not ledger.is_sure(request):
                    first_open = request.seq
        # They came in the order of what they wait for: if the first one goes on waiting, all do.
        for waiting in self._waits.pending.values():
            if waiting.upto >= first_open:
                return
            break
        for wait, upto in self._waits.over(first_open):
            result = GRANTED
            if self.deadlocks or not ledger.requests:
                result = LockResult(HAVE_ALL if ledger.requests else "no_locks", self.deadlocks)
            self._out.append(AnswerWait(wait, result))
            ledger.acknowledge(upto)

    def _lose(self, lost: list[LockRequest], ends: bool) -> None:
        """Tell the client of locks that are lost."""
        error = locks_lost(self.id, lost, ends)
        first: list[AgentEffect] = [Lost(error.lock_ids, error)]
        if self.notify:
            first.append(Notify(Notification(self.id, "lost", error.lock_ids)))
        self._out[:0] = first

    def _withdraw(self, wait: Hashable) -> None:
        """Somebody waits no longer: withdraw what only this wait was for."""
        for lock_id, mode, before in self._waits.abandon(wait):
            if mode is None or before is None:
                self._ledger.drop(lock_id)
            else:
                self._ledger.downgrade(lock_id, mode, before)

    def _break_off(self, waits: list[Hashable], error: Exception) -> None:
        """Answer those who wait with an error, and withdraw what only they wanted."""
        for wait in waits:
            self._withdraw(wait)
            self._out.append(AnswerWait(wait, error))

    def _my_tokens(self) -> Tokens:
        if self._tokens is not None:
            return self._tokens
        return Tokens(self.id, self._ledger.requests, self._out)

    def _my_hold_ups(self) -> HoldUps:
        if self._hold_ups is None:
            self._hold_ups = HoldUps(self.id, self._ledger, self._waits)
        return self._hold_ups

    def _notify_end(self, reason: LocksError) -> None:
        news = Notification(self.id, "ended", reason)
        if isinstance(reason, DeadlockAborted):
            news = Notification(self.id, "aborted", reason.deadlock)
        self._out.append(Notify(news))

    def _notify_status(self) -> None:
        status = self._last_status = self.status()
        value = None
        if status == "have_all_locks":
            value = self.deadlocks
            self._ledger.acknowledge(self._ledger.seq)
        self._out.append(Notify(Notification(self.id, status, value)))

    def _flush(self) -> list[AgentEffect]:
        """What is to be done."""
        effects = self._out[:]
        self._out.clear()
        return effects
