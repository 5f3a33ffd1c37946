"""The transaction's agent as a pure state machine: events in, effects out.

An agent requests locks for its client, notifies the client when it holds them, and finds and
resolves deadlocks together with other agents. Each method is an event, and returns the effects to
carry out. A method that refuses a call raises before it changes anything. The machine has no clock,
actor or network. It has parts, each with its own state: `ledger` keeps the lock requests,
`requests` the client's waits for them, `deadlocks` the knowledge of deadlocks, `fencing` the
fencing tokens, and `hold_ups` the effect of a wait on the client's other transactions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final

from locks.core.agent.counted import unit_of
from locks.core.agent.deadlocks import Resolver
from locks.core.agent.fencing import Tokens
from locks.core.agent.flags import Flag, check_flag
from locks.core.agent.gate import NOBODY, answered
from locks.core.agent.hold_ups import HoldUps
from locks.core.agent.ledger import Ledger
from locks.core.agent.refusals import refusal
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
GRANTED: Final = LockResult(HAVE_ALL, ())  # the answer to nearly all waits
NORMALLY: Final = Ended(None)  # the end of nearly all transactions
REPORTS = 100  # an agent keeps the reports of its newest deadlocks


class AgentMachine:
    """One transaction's agent.

    Args:
        agent: Its reference.
        client: Name of its client, for people.
        alive: The nodes whose lock servers are up; kept up to date by `node_up`, `node_down`.
        abort_on_deadlock: Abort instead of surrendering a lock that the client was told it holds.
        await_nodes: Wait for needed nodes that are down, instead of aborting.
        monitor_nodes: Notify the client of lock servers that come and go.
        notify: Notify the client of lock infos and changes of status.
        silent: The nodes that are up but do not answer; kept up to date by `node_silent`,
            `node_speaks`.
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
        self._tokens: Tokens | None = None  # locks on one node, the usual case, need none
        self._hold_ups: HoldUps | None = None  # clients with one transaction need none

    def save(self) -> SavedAgent:
        """Return the state, for `load`."""
        return save_agent(self)

    def load(self, saved: SavedAgent) -> None:
        """Return to a saved state."""
        load_agent(self, saved)

    def another(self) -> AgentMachine:
        """Make an empty machine of the same agent, into which a state can be loaded."""
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
        """Request a lock; the same as `ask_all` for one."""
        return self.ask_all(((lock_id, mode, nodes, require),), wait)

    def ask_all(
        self,
        objects: Iterable[Object],
        wait: Hashable | None = None,
    ) -> list[AgentEffect]:
        """Request locks; with `wait`, answer when these and all earlier lock requests are held.

        Args:
            objects: The locks.
            wait: The wait to answer.

        Raises:
            ConflictingRequest: An id was requested before with another requirement, or an
                upgrade names other nodes.
            InvalidOption: Counted locks do not support such a request.
            CannotServe: Too few of the nodes are up, and `await_nodes` is off.
        """
        if self.ended is not None:
            self.check_alive()
        ledger = self._ledger
        objects = list(objects)
        check_terms(ledger.requests, ledger.alive, objects, self.await_nodes)
        undo = []
        for wanted in objects:
            undo.append(ledger.add(wanted))
        if wait is not None:
            self._waits.begin_wait(wait, ledger.seq, undo)
        else:
            self._waits.keep(undo)
        return self._conclude()

    def has_asked(self, wanted: Object, wait: Hashable) -> list[AgentEffect]:
        """Do the same as `ask_all` for one lock whose request was sent already."""
        self.ask_all((wanted,), wait)
        return []

    def asks_alone(self, objects: Sequence[Object]) -> bool:
        """Whether `ask_all` would just send one request to the agent's own node.

        If so, and nothing else is under way, a direct call may make the request. Then `ask_told`
        takes the place of `ask_all`.
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
        """Do the same as `ask_all`, and take in the lock server's answer, after a direct call.

        Args:
            wanted: The lock.
            told: The records that the lock server returned: of the request, and perhaps of others.
            wait: As for `ask_all`.
        """
        ledger = self._ledger
        undo = (ledger.add_told(wanted, told[0]),)
        if not ledger.open:
            self._waits.answered(wait, undo)
            ledger.acknowledge(ledger.seq)
            deadlocks = self.deadlocks
            return [AnswerWait(wait, LockResult(HAVE_ALL, deadlocks) if deadlocks else GRANTED)]
        self._waits.begin_wait(wait, ledger.seq, undo)
        if len(told) > 1:
            self._take_in(told)
        return self._conclude()

    def await_all(self, wait: Hashable) -> list[AgentEffect]:
        """Answer `wait` when all lock requests so far are held; at once if there are none."""
        self.check_alive()
        self._waits.begin_wait(wait, self._ledger.seq)
        return self._conclude()

    def abandon_wait(self, wait: Hashable) -> list[AgentEffect]:
        """Withdraw the requests of a wait that the client gave up, or whose answer it did not receive."""
        self._withdraw(wait)
        if self._tokens is not None:
            self._tokens.abandon_wait(wait)
        return self._conclude()

    def establish_token(self, lock_id: LockId, wait: Hashable) -> list[AgentEffect]:
        """Answer `wait` with the fencing token of a lock that is held, at once if it is known.

        Otherwise lock servers confirm it first. If the lock is lost, surrendered or unlocked
        meanwhile, or the transaction ends, the answer is the corresponding error.

        Raises:
            NotHeld: The lock is not held now. Other errors are those of `token`.
        """
        self.token(lock_id)
        self._tokens = self._my_tokens()
        self._tokens.await_token(lock_id, wait)
        return self._conclude()

    def unlock(self, lock_id: LockId) -> list[AgentEffect]:
        """Release a lock, or cancel the request for it, before the transaction ends.

        If another thread of the same owner is waiting for this lock, its wait is answered with
        `NotHeld`.

        Raises:
            NotHeld: The transaction has not requested this id.
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
        """Give up a lock at the client's wish, and move to the end of its queue.

        Raises:
            NotHeld: The transaction doesn't hold it on all of these nodes.
        """
        self.check_alive()
        self._ledger.request(lock_id).check_granted(nodes, self.id, other)
        for node in nodes:
            self._resolver.surrender(node, Surrender(self.id, lock_id))
        return self._conclude()

    def set_flag(self, flag: Any, value: Any) -> list[AgentEffect]:
        """Change an option; `notify=True` notifies the client of the present status at once.

        Raises:
            InvalidOption: There is no such flag, or the value is not a bool.
        """
        self.check_alive()
        flag = check_flag(flag, value)
        setattr(self, flag, value)
        if flag == "notify" and value:
            self._notify_status()
        return self._conclude()

    def end_transaction(self, reason: LocksError | None = None) -> list[AgentEffect]:
        """End the transaction: release everything, and answer all waits with the reason."""
        if self.ended is None:
            if self._waits.pending or self._tokens is not None:
                error = reason or TransactionEnded(
                    f"transaction {self.id} was ended", agent=self.id
                )
                self._out += [AnswerWait(wait, error) for wait in self._waits.end_waits()]
                if self._tokens is not None:
                    self._tokens.end_waits(error)
            self._hold_ups = None
            self._ledger.release_all()
            if self._resolver.graph is not None:
                self._resolver.end_search()
            if self.notify and reason is not None:  # the client knows of an end that it requested
                self._notify_end(reason)
            self.ended = NORMALLY if reason is None else Ended(reason)
            self._out.append(self.ended)
        return self._flush()

    # --- Other transactions of its client ---------------------------------------------------------

    def hold_up(self, wait: Hashable) -> list[AgentEffect]:
        """Note that the client blocks in a wait for locks; the caller calls `held_up` of its others."""
        self._my_hold_ups().begin_hold_up(wait)
        return self._conclude()

    def held_up(self, lock_id: LockId, beside: bool = False) -> list[AgentEffect]:
        """Note that the client blocks in a wait of another transaction; see `HoldUps.join_hold_up`."""
        if self.ended is None:
            self._my_hold_ups().join_hold_up(lock_id, beside)
        return self._conclude()

    def interrupt(self, error: Exception) -> list[AgentEffect]:
        """Answer all waits with an error, because another transaction of the client was aborted."""
        self._break_off(self._waits.unanswered, error)
        return self._conclude()

    # --- Nodes that come and go -------------------------------------------------------------------

    def node_up(self, node: str) -> list[AgentEffect]:
        """Note that the lock server of a node is up."""
        if self.ended is None and node not in self._ledger.alive:
            if self.monitor_nodes:
                self._out.append(Notify(Notification(self.id, "nodeup", node)))
            self._resolver.node_up(node)
            self._ledger.node_up(node)
        return self._conclude()

    def node_down(self, node: str) -> list[AgentEffect]:
        """Note that the lock server of a node is gone, with all its grants.

        Acknowledged locks that are granted on too few nodes now are reported as `Lost`, before all
        other effects. Then the transaction ends if one of its requests can't be granted any more,
        unless nodes are awaited.
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
                return self.end_transaction(self._ledger.ending(missing))
        return self._conclude()

    def node_silent(self, node: str) -> list[AgentEffect]:
        """Note that a node is connected but does not answer; until it does, it is no gate."""
        return self._hear(self._ledger.silent | {node})

    def node_speaks(self, node: str) -> list[AgentEffect]:
        """Note that a silent node answers again."""
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
        """Whether it exchanged records with agents; otherwise `peer_up` and `peer_down` do nothing."""
        return self._resolver.in_touch

    @property
    def partners(self) -> set[str]:
        """The nodes with which it needs connections, because it sent records to agents there."""
        return self._resolver.partners

    def peer_up(self, node: str) -> list[AgentEffect]:
        """Note that a node is connected; its agents may lack the records sent to them before."""
        self._resolver.node_up(node)
        return self._conclude()

    def peer_down(self, node: str) -> list[AgentEffect]:
        """Note that a node without a lock server is gone; messages to its agents may be lost."""
        self._resolver.peer_down(node)
        return self._conclude()

    # --- Messages from others -------------------------------------------------------------------

    def receive(self, message: AgentMessage) -> list[AgentEffect]:
        """Take in a message from a lock server or an agent; `settle` must follow the last one."""
        if self.ended is None:
            # Frequent messages come first; `match` would take longer.
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
                self._learn(message.records)  # ignored before: they might have been released
            elif isinstance(message, VersionRaised):
                if self._tokens is not None:
                    self._tokens.raised(message)
            elif isinstance(message, Refused):
                self._refused(message)
            else:
                assert_never(message)
        return self._conclude()

    def settle(self) -> list[AgentEffect]:
        """Look for deadlocks, after all arrived messages are taken in; yield, or pass records on."""
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
        if self._resolver.giving_up and (  # unknown until the surrender is answered
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
        """Note that the client is told the status; `have_all_locks` acknowledges all locks."""
        if self.status() == "have_all_locks":
            self._ledger.acknowledge(self._ledger.seq)
        return self._flush()

    def lost(self) -> tuple[LockId, ...]:
        """The lost locks: acknowledged, but the client must not rely on them any more."""
        return tuple(request.lock_id for request in self._ledger.lost())

    def lock_info(self) -> list[LockInfo]:
        """All lock requests, as users see them."""
        return [request.info() for request in self._ledger.requests.values()]

    def token(self, lock_id: LockId) -> int | None:
        """The fencing token of a lock that is held.

        Returns:
            The token if it is known: the lock is on one node, or the token was established.
            `None` if it must be established first (`establish_token`).

        Raises:
            NotHeld: It is not held.
            LockLost: It is lost, and the client was not told since that it holds it again.
            InvalidOption: It was requested on several nodes, and needs neither all of them nor
                a majority.
        """
        self.check_alive()
        tokens = self._my_tokens()
        refusal = tokens.refusal(lock_id)
        if refusal is not None:
            raise refusal
        return tokens.known(self._ledger.request(lock_id))

    def unit(self, lock_id: LockId) -> int | None:
        """The number of the unit that it holds of a counted lock, from 0; raises `NotHeld` without one."""
        self.check_alive()
        if not self.holds(lock_id):
            raise NotHeld(f"{self.id} does not hold {show(lock_id)}", lock_id=lock_id)
        return unit_of(self._ledger.request(lock_id))

    def ensure_held(self, lock_id: LockId | None) -> None:
        """Raise unless an acknowledged lock is still held, as far as the agent knows.

        Args:
            lock_id: Which lock; `None` for all acknowledged locks.

        Raises:
            NotHeld: The lock was not acknowledged, and it is not held, or its surrender is under
                way.
            LockLost: The lock was lost with a node or by a surrender, and the client was not told
                since that it holds it again; or its surrender is under way.
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
        """Whether exactly this id was requested."""
        return lock_id in self._ledger.requests

    def is_answered(self, wait: Hashable) -> bool:
        """Whether all lock servers but silent ones have answered the requests of a wait."""
        upto = self._waits.upto(wait)
        ledger = self._ledger
        return all(
            answered(r, ledger.alive, ledger.silent) for r in ledger.open.values() if r.seq <= upto
        )

    @property
    def waits_at(self) -> set[str]:
        """The nodes at which requests of the agent wait, or were not answered."""
        return self._ledger.waits_at

    @property
    def size(self) -> int:
        """The number of lock requests."""
        return len(self._ledger.requests)

    @property
    def empty(self) -> bool:
        """Whether there are no lock requests."""
        return not self._ledger.requests

    def holds(self, lock_id: LockId) -> bool:
        """Whether exactly this id was requested and is held."""
        request = self._ledger.requests.get(lock_id)
        return request is not None and request.held

    def grants(self, lock_id: LockId) -> dict[str, int]:
        """The nodes that grant the request for exactly this id, each with the version of its grant."""
        request = self._ledger.requests.get(lock_id)
        return {} if request is None else request.grants()

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
        """The unanswered waits for locks."""
        return list(self._waits.unanswered)

    def hold_up_id(self, wait: Hashable) -> LockId | None:
        """The id of the hold-up lock for a wait; `None` if the wait is over."""
        return None if self._hold_ups is None else self._hold_ups.by_wait.get(wait)

    def outlook(self) -> Exploration | None:
        """The result of a search now; `None` if the agent does not wait."""
        return self._resolver.explore()

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
            self._resolver.begin_search()
        self._learn(records)
        if others:
            for record in records:
                if record.state == "spare" and record.agent != me:
                    self._give_way(record)

    def _learn(self, records: tuple[RequestRecord, ...]) -> None:
        """Add records to the wait-for graph, if the agent keeps one now."""
        if self._resolver.graph is None:
            return
        for record in records:
            if record.agent != self.id or not self._ledger.may_be_released(record):
                self._resolver.learn(record)

    def _give_way(self, spare: RequestRecord) -> None:
        """Surrender a grant that blocks another agent's spare request, unless this agent holds a lock by it."""
        ends = self._ledger.blocking(spare)
        if ends is not None:
            self._resolver.surrender(spare.node, Surrender(self.id, spare.lock_id, *ends))

    def _resolved(self, report: Deadlock) -> None:
        """Note a resolved deadlock, and query the lock servers; the one that resolved it needs no query."""
        self.deadlocks = (*self.deadlocks, report)[-REPORTS:]
        self._resolver.forget(node for node in self._ledger.used if node != report.server)

    def _surrendered(self, message: Surrendered) -> None:
        if not self._resolver.is_answered(message):
            return
        report = message.message.report
        done = message.done and report is not None
        if message.done and report is not None:
            self._resolved(report)
        # If there is one wait, none is for this lock alone.
        postpone = done and not message.message.aborts and len(self._waits.pending) == 1
        self._ledger.surrendered(message.node, message.message.lock_id, done, postpone)
        self._take_in(message.records)
        self._resolver.surrendered(message)
        if postpone:
            self._ledger.postpone(message)
        if message.done and report is not None and message.message.aborts:
            text = (
                f"transaction {self.id} was aborted to resolve a deadlock; run it again.\n{report}"
            )
            self._out += self.end_transaction(DeadlockAborted(text, deadlock=report))

    def _refused(self, message: Refused) -> None:
        """Answer the waits for a refused request with an error, or else all waits; if there are none, end with it."""
        lock_id, mode = message.lock_id, message.mode
        if not self._ledger.refused(message.node, lock_id, mode):
            return
        error = refusal(message)
        waits = self._waits.asking_for(lock_id) or self._waits.unanswered
        if waits:
            self._break_off(waits, error)
            self._ledger.withdraw_refused(lock_id, mode)
        else:
            self._out += self.end_transaction(error)

    # --- Notifying the client -------------------------------------------------------------------

    def _idle(self) -> bool:
        """Whether no request waits or is unanswered, and no surrender is unanswered."""
        return self._ledger.idle and not self._resolver.giving_up

    def _conclude(self) -> list[AgentEffect]:
        """After each event: answer the waits that are over, and notify of changes."""
        if self.ended is None:
            ledger = self._ledger
            resolver = self._resolver
            if ledger.open and not resolver.is_in_doubt:
                ledger.resume()
            if resolver.graph is not None and self._idle():
                resolver.end_search()
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
        if self._resolver.giving_up:  # surrenders at silent nodes
            for request in ledger.requests.values():
                if request.seq < first_open and not ledger.is_sure(request):
                    first_open = request.seq
        # Waits are in the order of the numbers they wait for: if the first continues, all do.
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
        """Notify the client of lost locks."""
        error = locks_lost(self.id, lost, ends)
        first: list[AgentEffect] = [Lost(error.lock_ids, error)]
        if self.notify:
            first.append(Notify(Notification(self.id, "lost", error.lock_ids)))
        self._out[:0] = first

    def _withdraw(self, wait: Hashable) -> None:
        """Withdraw the requests that only this wait was for."""
        for lock_id, mode, before in self._waits.abandon_wait(wait):
            if mode is None or before is None:
                self._ledger.drop(lock_id)
            else:
                self._ledger.downgrade(lock_id, mode, before)

    def _break_off(self, waits: list[Hashable], error: Exception) -> None:
        """Answer these waits with an error, and withdraw the requests that only they were for."""
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
        """Return the effects so far, and forget them."""
        effects = self._out[:]
        self._out.clear()
        return effects
