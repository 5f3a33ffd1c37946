"""The transaction's agent as an actor: it runs an `AgentMachine` in its node's turn.

Its messages are `locks.core.messages.AgentMessage`. The methods here are for the client. They check
that the caller is the client, run one event of the machine, and wait for the answer if there is
one.

An effect of the machine answers a wait. A wait that is given up, by a timeout or by an exception
raised into it, withdraws its requests, unless the answer arrives at the same time. A call that does
not wait at all (`timeout=0`) waits for no other client, but still for the answers of lock servers,
which take a short time from other nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from gevent import getcurrent

from locks.core.agent.flags import Flag, check_flag
from locks.core.agent.machine import GRANTED, AgentMachine, Object
from locks.core.messages import AgentEffect, AnswerWait, Ended, Lost, Surrendered
from locks.core.thin import Remote
from locks.errors import CannotServe, LockLost, NotHeld
from locks.model import (
    AgentId,
    Deadlock,
    LockId,
    LockInfo,
    LockResult,
    Notification,
    check_timeout,
)
from locks.node.client.acquisitions import Acquisition, Acquisitions
from locks.node.client.blocks import has_entered
from locks.node.client.clients import (
    Inbox,
    NotifyTarget,
    inbox_of,
    is_patched_thread,
    plain_label,
)
from locks.node.client.leaks import Held, held_at, is_forgetful, warn_of_leak
from locks.node.client.one_client import hold_up_others, interrupt_others, note_wait
from locks.node.client.owner import Owner
from locks.node.client.refusals import (
    blocks_event_loop,
    client_has_ended,
    explained,
    in_the_parent,
    no_inbox,
    no_units,
    not_client,
    not_held,
    stopped,
    timed_out,
    token_timed_out,
)
from locks.node.history import History
from locks.node.ports import Answering, AskedAlready, NodePort, PendingCall, Spans
from locks.runtime.addressed import InlineActor
from locks.runtime.bridge import is_in_event_loop
from locks.runtime.exits import exit_client
from locks.runtime.identity import Listener, Own, client_key
from locks.runtime.leaving import Hold
from locks.runtime.monitor import Client, Down, Ending, Monitor, current_client
from locks.runtime.native import insist
from locks.runtime.shown import Shown
from locks.runtime.waiter import Event

if TYPE_CHECKING:
    from typing_extensions import TypeVarTuple, Unpack

    Ts = TypeVarTuple("Ts")

__all__ = ["ANSWERED_WITHIN", "Agent", "NotifyTarget"]

T = TypeVar("T")

ANSWERED_WITHIN = (
    5.0  # seconds to wait for lock servers' answers in calls that do not wait for clients
)


class Agent(InlineActor, metaclass=Shown):
    """A transaction's agent.

    `locks.original.begin_transaction` and `locks.original.spawn_agent` make them. An agent is a Pykka actor
    reference: it can be monitored, and it stops when it is stopped.

    Attributes:
        id: The agent's reference.
        client: The client of the transaction.
        client_key: The client's key in dictionaries.
        kept_by: The `Holders` that keeps it for its client (`locks.node.client.holders`), if one
            does.
        acquisitions: How often its client has acquired each of its `locks.RLock`s; `None` if it
            never has.
        pauses: The waits of `threading.Condition`s for which its client has released a lock and will acquire it again. Until they
            are over, the transaction does not end with its last lock: blocks that were entered before the wait know it.
        blocks: The blocks of generators that hold something of it; some may have been left (`locks.node.client.blocks`).
        on_lost: Called with the error when locks are lost with a node, in the node's background
            greenlet.
        name: The client's name for others.
        thin_ids: The ids of its thin locks (`locks.node.client.thin`), while it has no machine.
        remote: What it has at the lock server of another node, likewise.
        spans: Is notified of the waits and locks of clients, if set.
    """

    _for_users = frozenset(
        ("client", "deadlocks", "id", "is_alive", "lock_info", "lost", "on_lost", "status", "stop")
    )
    long: ClassVar[int] = 1000
    spans: ClassVar[Spans | None] = None
    __slots__ = (
        "_here",
        "_link",
        "_lost",
        "_made",
        "_monitor",
        "_notified",
        "_options",
        "_tries",
        "acquisitions",
        "blocks",
        "client",
        "client_key",
        "id",
        "kept_by",
        "name",
        "node",
        "on_lost",
        "pauses",
        "remote",
        "thin_ids",
    )

    def __init__(
        self,
        node: NodePort,
        agent: AgentId,
        client: Client,
        name: str,
        *,
        here: bool = False,
        link: bool = False,
        notify: NotifyTarget = False,
        abort_on_deadlock: bool = False,
        await_nodes: bool = False,
        monitor_nodes: bool = False,
    ) -> None:
        self._stopped = False
        self._watch = None
        self.turn = node.turn
        self.node = node
        self.id = agent
        self.client = client
        self.client_key = client_key(client)
        self.name = name
        self.on_lost: Callable[[LockLost], object] | None = None
        # The greenlet in which its client has begun it, until it ends.
        self._here = getcurrent() if here and not isinstance(client, Ending) else None
        self._options = abort_on_deadlock, await_nodes, monitor_nodes, bool(notify)
        self._made: tuple[AgentMachine, History] | None = None
        self.thin_ids: dict[LockId, None] = {}
        self.remote: Remote | None = None
        self._link = link
        self._notified: Inbox | None = None
        if notify or monitor_nodes:
            self._set_notified(notify)
        self._monitor: Monitor | None = None
        self._lost: Event | None = None
        self.acquisitions: Acquisitions | None = None
        self.pauses: set[object] | None = None
        # Waits for conditions other than a grant.
        self._tries: dict[PendingCall, Callable[[], bool]] | None = None
        self.kept_by: Any = None
        self.blocks: dict[Hold, LockId | None] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it does nothing by itself, so that it may be thin."""
        _, *others = self._options
        return not (self._link or any(others))

    @property
    def machine(self) -> AgentMachine:
        """Its machine, which is made at first need."""
        made = self._made
        return self._make_in_turn()[0] if made is None else made[0]

    @property
    def history(self) -> History:
        """The machine's history."""
        made = self._made
        return self._make_in_turn()[1] if made is None else made[1]

    @history.setter
    def history(self, history: History) -> None:
        self._made = self.machine, history

    def _make_in_turn(self) -> tuple[AgentMachine, History]:
        # A turn inflates what is thin: so a transaction that has not ended has its machine then.
        if not self.turn.is_here():
            self.turn.ask(self.make_machine)
        return self.make_machine()

    def make_machine(self) -> tuple[AgentMachine, History]:
        """Make the machine, unless there is one. A transaction that has ended without one gets one that has ended."""
        if self._made is None:
            made = (self.id, self.name, self.node.alive, *self._options, self.node.silent)
            machine = AgentMachine(*made)
            history: History = [(machine.load, (made,))]
            if self._stopped:
                history.append((machine.end_transaction, ()))
                machine.end_transaction()
            self._made = machine, history
        return self._made

    def __str__(self) -> str:
        return str(self.id)

    def __repr__(self) -> str:
        return f"<Agent {self.id} of {self.name}>"

    # --- As an actor ----------------------------------------------------------------------------

    def start_monitoring(self) -> None:
        """Watch over the client; the transaction ends with it."""
        # Known before it begins, to be cancelled: the node may stop meanwhile.
        monitor = self._monitor = Monitor(self._client_down, surely=True)
        monitor.begin_monitoring(self.client)
        if self._stopped:  # `has_ended` may have looked before
            monitor.cancel()

    def handle(self, message: Any) -> None:
        """Carry a message out."""
        self.event(self.machine.receive, message)
        if type(message) is Surrendered:
            interrupt_others(self)

    def settle(self) -> None:
        """All that there was is taken in: look for deadlocks."""
        self.event(self.machine.settle)

    def event(self, event: Callable[[Unpack[Ts]], list[AgentEffect]], *args: Unpack[Ts]) -> None:
        """Record one event of the machine, run it, and carry out its effects; in a turn."""
        node = self.node
        history = self.history
        if self not in node.touched:
            node.touched[self] = len(history)
        history.append((event, args))
        effects = event(*args)
        if effects:
            node.perform(self, effects)
        if self._tries:
            self._look_at_tries(self._tries)

    def failed(self, message: Any, error: Exception) -> None:
        """Log it."""
        self.node.log("%s failed to handle %r: %s", self, message, error)

    def stop_inline(self, reason: object) -> None:
        """End the transaction, as any actor is stopped."""
        error = None if reason is None else stopped(self.id, reason)
        self.event(self.machine.end_transaction, error)

    def notify(self, notification: Notification) -> None:
        """Send the client a notification."""
        if self._notified is not None:
            self._tell_listener(self._notified, notification)

    def has_lost(self, lost: Lost) -> None:
        """Take in that acknowledged locks were lost with a node."""
        self._make_lost()
        assert self._lost is not None
        self._lost.open()
        if self.on_lost is not None:
            self._tell_listener(self.on_lost, lost.error)

    def _tell_listener(self, told: Callable[[Any], object], news: object) -> None:
        executor = self.node.executor
        if type(told) is Own:
            executor.run_soon(told, news)
        else:
            executor.run_soon(Listener(told).tell, executor, news)

    def has_ended(self, ended: Ended) -> None:
        """The machine has ended; so does the actor."""
        watch = self.ended()  # first: `start_monitoring` looks whether it was called
        self._here = None
        if self._monitor is not None:
            self._monitor.cancel()
            self._monitor = None  # or the two would keep each other in memory
        if isinstance(self.client, Ending):
            self.client.waiting.pop(self, None)
        if self._lost is not None and ended.reason is not None:
            self._lost.open()
        if watch is not None:
            reason = "normal" if ended.reason is None else ended.reason
            self.node.executor.run_soon(watch.fire, self, reason, "noproc", self.node.executor.tell)
        if self.spans is not None:
            self.node.executor.run_soon(self.spans.ended, self.id, ended.reason)
        if self._link and ended.reason is not None:
            self.node.executor.run_soon(exit_client, self.client, ended.reason)

    def leave_to_parent(self) -> None:
        """In a forked child: end the transaction, which is the parent's; waiting callers get an error."""
        error = in_the_parent(self.id)
        try:
            effects = self.machine.end_transaction(error)
        except Exception:
            # Another thread was in the middle of a turn. The machine is only asked for this end
            # from now on.
            self.machine.ended = Ended(error)
            effects = []
        if self.remote is not None and self.remote.asked is not None:
            self.remote.asked[1].answer(error)
        for effect in effects:
            if isinstance(effect, AnswerWait) and isinstance(effect.wait, PendingCall | Answering):
                effect.wait.answer(effect.result)
        if self._lost is not None:
            self._lost.open()
        self.ended()

    def _client_down(self, down: Down) -> None:
        self.turn.post(self.client_ended, down)

    def client_ended(self, down: Down) -> None:
        """The client has ended, and the transaction ends with it, except for what blocks of generators hold; in a turn."""
        blocks = self._open_blocks()
        if is_forgetful(down) and (held := self.forgotten()):
            self.has_leaked(held)
        if not blocks or self.machine.ended is not None:
            self.event(self.machine.end_transaction, client_has_ended(self, down))
            return
        for lock_id in self._beside(blocks):
            self.event(self.machine.unlock, lock_id)
        self.part()

    def forgotten(self) -> list[Held]:
        """What its client, which ends, has not released, but for blocks of generators; in a turn."""
        in_blocks = set(self._open_blocks().values())
        if None in in_blocks or self.machine.ended is not None:
            return []
        left = [each for each in self.machine.lock_info() if each.held]
        return held_at([each for each in left if each.lock_id not in in_blocks], self.history)

    def has_leaked(self, held: list[Held]) -> None:
        """Its client has ended, and has not released these."""
        self.node.executor.run_soon(warn_of_leak, self.name, held)

    # --- Blocks of generators -------------------------------------------------------------------

    def note_block(self, hold: Hold, lock_id: LockId | None = None) -> None:
        """A block of a generator holds a lock, or the transaction; it may be left elsewhere than here."""
        self.node.thin.prepare()  # an interrupted inflation is not done again after this
        self.blocks = {**self._open_blocks(), hold: lock_id}
        self._here = None

    def _open_blocks(self) -> dict[Hold, LockId | None]:
        """The blocks of generators that were not left."""
        return {each: i for each, i in (self.blocks or {}).items() if each.held is not None}

    def _beside(self, blocks: Mapping[Hold, LockId | None]) -> list[LockId]:
        """The ids that the client has requested otherwise than by these blocks."""
        ids = set(blocks.values())
        if None in ids:
            return []
        return [info.lock_id for info in self.machine.lock_info() if info.lock_id not in ids]

    def has_parted(self) -> bool:
        """Whether it belongs to blocks that the client, who calls, has left to others. If it does, it is parted from the client."""
        blocks = self._open_blocks()
        if not blocks or has_entered(blocks) or self.turn.ask(self._beside, blocks):
            return False
        self.turn.run(self.part)
        return True

    def part(self) -> None:
        """From now on it belongs to its blocks, not to its client; in a turn."""
        if self._monitor is not None:
            self._monitor.cancel()
            self._monitor = None
        self.blocks = None
        self.node.hand_over(self, Owner(plain_label(self.name)))

    # --- Requests -------------------------------------------------------------------------------

    def begin_call(self) -> None:
        """Each call for the client begins with this. It may part the transaction from the client, if the caller is in none of its blocks.

        Raises:
            NotClient: The caller is neither the client nor acts for an owner.
        """
        if self._here is not None and getcurrent() is self._here:
            return
        client = current_client()
        if self.blocks and not isinstance(self.client, Ending):
            blocks = self._open_blocks()
            if blocks and not (self._is_client(client) and has_entered(blocks)):
                self.turn.run(self.part)
        self._check_client(client)

    def _check_client(self, client: Client) -> None:
        """Raise `NotClient` unless this caller is the client, or acts for an owner."""
        if (
            client is not self.client
            and not isinstance(self.client, Ending)  # any caller that has it acts for its owner
            and not self._is_client(client)
            and not is_patched_thread(self.client)
        ):
            raise not_client(self, client)

    def _is_client(self, other: Client) -> bool:
        return client_key(other) == self.client_key

    def ask_for(self, objects: Sequence[Object]) -> None:
        """Ask for locks without waiting for them."""
        self.begin_call()
        try:
            self.turn.run(self.request_all, objects, None)
        except CannotServe as error:
            raise explained(error, self.node) from None

    def lock_all(self, objects: Sequence[Object], timeout: float | None) -> LockResult:
        """Request locks, and wait for these and all earlier requests."""
        call = PendingCall()
        try:
            return self.lock_by(call, objects, timeout)
        except BaseException:
            self.give_up(call)
            raise

    def lock_by(
        self, call: PendingCall, objects: Sequence[Object], timeout: float | None
    ) -> LockResult:
        """Do the same with a given call, which the caller gives up if this, or a later step, fails."""
        result: LockResult | None
        if self._made is None and len(objects) == 1:
            result = self._lock_thin(call, objects[0], timeout)
            if result is not None:
                return result
        result = self._await(call, timeout, self._ask_all, objects, call)
        if result is None:
            result = self._late(call, timeout, withdrawn=True)
        if self.spans is not None:
            self.spans.granted(self, [each[0] for each in objects])
        return result

    def _lock_thin(
        self, call: PendingCall, wanted: Object, timeout: float | None
    ) -> LockResult | None:
        """Hold a lock while the transaction is thin; `None` if it must take the usual way."""
        if timeout is not None:
            check_timeout(timeout)
        here = self._here
        if (here is not None and getcurrent() is not here) or is_in_event_loop():
            return None
        call.begun = True
        token = self.turn.thin(self.node.thin.grant, self, wanted, call)
        if call.sent:
            return self.await_answer(call, timeout)
        call.token = token
        return None if token is None else GRANTED

    def await_answer(self, call: PendingCall, timeout: float | None) -> LockResult:
        """Wait for the answer to a thin request; if that was inflated, then in the usual way, for the time that is left."""
        began = self.node.clock()
        waiter = call.waiter
        if call.result is None:
            waiter.wait(ANSWERED_WITHIN if timeout == 0 else timeout)
        result: Any = call.result
        if type(result) is LockResult:
            return result
        call.renew()
        left = timeout and timeout - (self.node.clock() - began)
        if waiter.woken and (left is None or left > 0 or timeout == 0):
            try:
                result = self._blocked(call, left)
            except CannotServe as error:
                raise explained(error, self.node) from None
        return self._late(call, timeout, withdrawn=True) if result is None else self._answer(result)

    def _ask_all(self, objects: Sequence[Object], call: PendingCall) -> None:
        """Request locks in the turn: one of this node by a call of its lock server, if nothing else is under way."""
        machine = self.machine
        if call.first:
            lock_id = objects[0][0]
            if call.acquisition or self.acquisitions is not None or machine.asks_for(lock_id):
                self._check_first(lock_id, call.acquisition)
        if machine.asks_alone(objects):
            lock_id, mode, _, _ = objects[0]
            records = self.node.request(self.id, self.name, lock_id, mode)
            if records:
                self.event(machine.ask_told, objects[0], records, call)
                if len(records) > 1:  # of others, too
                    self.node.unsettled[self] = None
                if records[0].state == "granted":
                    call.token = records[0].since
                return
        self.request_all(objects, call)

    def _check_first(self, lock_id: LockId, acquisition: Acquisition | None) -> None:
        """Refuse an id that a `Lock` requests twice, or a `Lock` and an `RLock`; in the request's turn.

        Args:
            lock_id: The id.
            acquisition: The acquisition that requests it; `None` for a `Lock`.

        Raises:
            AskedAlready: It is requested already, and not only by acquisitions.
        """
        if not self.machine.asks_for(lock_id):
            shares = self.acquisitions is not None and self.acquisitions.ask(lock_id, acquisition)
            if acquisition is not None and not shares:  # a release has removed it
                self.enter(lock_id, acquisition)
                self._check_first(lock_id, acquisition)
        elif acquisition is None or not self._is_acquired(lock_id):
            raise AskedAlready

    def request_all(self, objects: Sequence[Object], wait: Any) -> None:
        """Request locks in the turn."""
        self.event(self.machine.ask_all, objects, wait)

    def lock_free(self, objects: Sequence[Object], timeout: float | None) -> bool:
        """Lock all of these, if that needs no wait for other clients.

        Otherwise wait for the first one that is not free, and hold none of the others meanwhile. If `timeout` is 0, release
        all of them instead.

        Returns:
            Whether all are locked.
        """
        attempt, call = PendingCall(), PendingCall()
        try:
            if self._await(attempt, 0, self.request_all, objects, attempt) is not None:
                return True
            if timeout == 0:
                self.turn.run(self._keep_one, objects, attempt, None)
            elif self._await(call, timeout, self._keep_one, objects, attempt, call) is None:
                self._late(call, timeout, withdrawn=True)
            if attempt.result is None:
                return False
            self._answer(attempt.result)
            return True
        except BaseException:
            self.give_up(attempt)
            self.give_up(call)
            raise

    def _keep_one(
        self, objects: Sequence[Object], attempt: PendingCall, call: PendingCall | None
    ) -> None:
        """End an attempt to lock all of these: keep the request for the first that is not held, for `call`, and no other.

        An answer that came just now counts.
        """
        machine = self.machine
        if attempt.result is not None:
            if call is not None:
                call.result = attempt.result
            return
        missing = next((each for each in objects if not machine.holds(each[0])), objects[0])
        if call is not None:
            self.event(machine.ask_all, (missing,), call)
        self.event(machine.abandon_wait, attempt)
        for each in objects:
            if machine.asks_for(each[0]) and (call is None or each is not missing):
                self.event(machine.unlock, each[0])

    def give_up(self, call: PendingCall) -> None:
        """Withdraw the requests of an interrupted call, even if they were granted."""
        if call.begun:
            insist(self.turn.run_surely, self._abandon, call)

    def _abandon(self, wait: PendingCall | Answering) -> None:
        """Withdraw what only this wait was for, in the turn."""
        self.event(self.machine.abandon_wait, wait)

    def await_all(self, timeout: float | None) -> LockResult:
        """Wait for all requested locks."""
        call = PendingCall()
        try:
            result: LockResult | None
            result = self._await(call, timeout, self.event, self.machine.await_all, call)
            if result is None:
                result = self._late(call, timeout, withdrawn=False)
            if self.spans is not None:
                self.spans.granted(self, [each.lock_id for each in self.lock_info() if each.held])
            return result
        except BaseException:
            self.give_up(call)
            raise

    # --- Waits ----------------------------------------------------------------------------------

    def _late(self, call: PendingCall, timeout: float | None, withdrawn: bool) -> LockResult:
        """Give up the requests of a call that timed out; return the answer if it has just arrived.

        Raises:
            LockTimeout: It has not.
        """
        wanted = self._stop_waiting(call)
        result: Any = call.result
        if result is None:
            raise timed_out(self, wanted, timeout, withdrawn, call.quiet)
        return self._answer(result)

    def _stop_waiting(self, call: PendingCall) -> list[LockInfo]:
        """Give up a call's requests, unless the answer has just arrived; return those that are not held."""
        wanted = [info for info in self.turn.ask(self.machine.lock_info) if not info.held]
        self.turn.run(self._give_up_waiting, call)
        return wanted

    def _answer(self, result: Any) -> LockResult:
        """An answer; raises it if it is an error."""
        if isinstance(result, CannotServe):
            raise explained(result, self.node) from None
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]

    def _give_up_waiting(self, call: PendingCall) -> None:
        """The time is over; an answer that came just now counts."""
        if call.result is None:
            self.node.counters.timeouts += 1
            self._abandon(call)

    def _await(
        self,
        call: PendingCall,
        timeout: float | None,
        step: Callable[[Unpack[Ts]], object],
        *args: Unpack[Ts],
    ) -> Any:
        """Run the step that leads to the answer of `call`; return the answer, or `None` if there was none."""
        if timeout is not None:
            check_timeout(timeout)
        if not (call.checked or (self._here is not None and getcurrent() is self._here)):
            self.begin_call()
        if is_in_event_loop():
            raise blocks_event_loop()
        call.begun = True
        try:
            self.turn.run(step, *args)
            result: Any = call.result
            if type(result) is LockResult:
                return result
            return self._blocked(call, timeout)
        except CannotServe as error:
            raise explained(error, self.node) from None

    def _blocked(self, call: PendingCall, timeout: float | None) -> Any:
        """The client blocks until a call is answered; return the answer, `None` if it did not come."""
        waiter = call.waiter
        if call.result is None:
            if isinstance(self.client, Ending):
                note_wait(self)
                self.node.thin.prepare()
            if len(own := self.node.clients.get(self.client_key, ())) > 1:
                for each in list(own):
                    if each.blocks and each is not self:
                        each.has_parted()
                self.turn.run(hold_up_others, self, call, timeout != 0)
            over = None if self.spans is None else self.spans.waiting(self)
            try:
                if timeout == 0:
                    self._await_answers(call)
                else:
                    waiter.wait(timeout)
            finally:
                if over is not None:
                    over(call.result)
        if isinstance(call.result, Exception):
            raise call.result
        return call.result

    def _await_answers(self, call: PendingCall) -> None:
        """Wait for the answers of lock servers on other nodes, in a call that waits for no clients."""
        self._wait_until(lambda: self.machine.is_answered(call), call, ANSWERED_WITHIN)

    def sit_out(self, lock_id: LockId, timeout: float) -> float:
        """Wait until another thread of the owner releases a lock that the client itself holds, or time is up.

        Returns:
            The seconds that are left.
        """
        if is_in_event_loop():
            raise blocks_event_loop()
        until = self.node.clock() + timeout
        self._wait_until(lambda: not self.machine.asks_for(lock_id), PendingCall(), timeout)
        return max(0, until - self.node.clock())

    def _wait_until(self, is_so: Callable[[], bool], call: PendingCall, timeout: float) -> None:
        """Wait until something is so after an event of the machine, or the time is over."""
        if not self.turn.run(self._try, is_so, call):
            try:
                call.waiter.wait(timeout)
            finally:
                if self._tries:
                    self._tries.pop(call, None)

    def _try(self, is_so: Callable[[], bool], call: PendingCall) -> bool:
        """Begin to wait until something is so; returns whether it is."""
        if is_so():
            return True
        if self._tries is None:
            self._tries = {}
        self._tries[call] = is_so
        return False

    def _look_at_tries(self, tries: dict[PendingCall, Callable[[], bool]]) -> None:
        for call, is_so in list(tries.items()):  # several threads of an owner may try at once
            if is_so():
                tries.pop(call, None)
                call.waiter.wake()

    # --- Waits that do not block ----------------------------------------------------------------

    def lock_later(self, objects: Sequence[Object], answer: Callable[[Any], None]) -> None:
        """Request locks; the answer comes when these and all earlier requests are granted."""
        self._begin_wait(Answering(answer), self.request_all, objects)

    def await_later(self, answer: Callable[[Any], None]) -> None:
        """Have the answer delivered when all requested locks are granted."""
        self._begin_wait(Answering(answer), self.event, self.machine.await_all)

    def _begin_wait(
        self, wait: Answering, event: Callable[[Unpack[Ts], Answering], None], *args: Unpack[Ts]
    ) -> None:
        self.begin_call()
        try:
            self.turn.run(event, *args, wait)
        except CannotServe as error:
            raise explained(error, self.node) from None
        except BaseException:
            insist(self.turn.run_surely, self._abandon, wait)
            raise

    # --- Releases one by one ----------------------------------------------------------------------

    # The transaction of a client's `Lock`s begins with the first one and ends with the last one.

    def unlock(self, lock_id: LockId) -> None:
        """Release one id."""
        self.begin_call()
        self.turn.run_surely(self.unlock_now, lock_id)
        if self.spans is not None:
            self.spans.released(self.id, lock_id)

    def unlock_now(self, lock_id: LockId) -> None:
        """Release one id, in the turn."""
        self.event(self.machine.unlock, lock_id)

    def surrender(self, lock_id: LockId, other: AgentId, nodes: tuple[str, ...]) -> None:
        """Surrender a lock to an agent that waits for it, and move to the end of the queue."""
        self.begin_call()
        self.turn.run(self.event, self.machine.surrender, lock_id, other, nodes)

    def asks_for(self, lock_id: LockId) -> bool:
        """Whether exactly this id was requested."""
        # A client that has just begun has requested nothing; this needs no turn.
        is_new = self._made is not None and len(self._made[1]) == 1
        return not is_new and self.turn.ask(self._asks_for, lock_id)

    def _asks_for(self, lock_id: LockId) -> bool:
        return self.machine.asks_for(lock_id)

    def holds(self, lock_id: LockId) -> bool:
        """Whether exactly this id was requested and is held, in a transaction that has not ended."""
        return self.turn.ask(self._has, lock_id)

    def _has(self, lock_id: LockId) -> bool:
        return self.machine.ended is None and self.machine.holds(lock_id)

    def release(self, lock_id: LockId) -> None:
        """Release one id that is held; with the last one the transaction ends. In whatever thread.

        Raises:
            NotHeld: It is not held.
        """
        if not self._thinly(self.node.thin.release_of, self.let_go_of, lock_id):
            self._surely(self._release, lock_id)

    def _thinly(
        self, step: Callable[..., object], undo: Callable[..., object], *args: object
    ) -> bool:
        """Take a step of a thin transaction; returns whether it was one. If it is interrupted, it is undone."""
        if self._made is not None:
            return False
        try:
            return bool(self.turn.thin(step, self, *args))
        except BaseException:
            undo(*args)
            raise

    def _surely(self, release: Callable[..., object], lock_id: LockId, *args: object) -> None:
        """Release an id in a turn. If it is refused because the lock is lost at present, the lock is not to be had again later."""
        try:
            self.turn.run_surely(release, lock_id, *args)
        except NotHeld:
            self.turn.run_surely(self._give_up_lost, lock_id)
            raise

    def _give_up_lost(self, lock_id: LockId) -> None:
        if lock_id in self.machine.lost():
            self._let_go_of(lock_id)

    def _release(self, lock_id: LockId) -> None:
        machine = self.machine
        if machine.ended is not None or not machine.holds(lock_id):
            raise not_held(lock_id)
        if self.acquisitions is not None and self._is_acquired(lock_id):
            raise not_held(lock_id, by="an RLock")
        self._unlock_or_end(lock_id)

    def withdraw(self, call: PendingCall | None, lock_id: LockId) -> None:
        """Give up a call, if there is one, and the request for an id; this is completed in any case."""
        insist(self.turn.run_surely, self._withdraw, call, lock_id)

    def _withdraw(self, call: PendingCall | None, lock_id: LockId) -> None:
        if call is not None and call.begun:
            self._abandon(call)
            if isinstance(call.result, LockResult):
                self._let_go_of(lock_id)
                return
        # Remaining requests are those of other threads of an owner.
        self._end_if_idle()

    def let_go_of(self, lock_id: LockId) -> None:
        """Release one id if it is held or requested; this is completed in any case."""
        self.turn.run_surely(self._let_go_of, lock_id)

    def _let_go_of(self, lock_id: LockId) -> None:
        if self.machine.ended is None:
            if self.machine.asks_for(lock_id) and not self._is_acquired(lock_id):
                self._unlock_or_end(lock_id)
            else:
                self._end_if_idle()

    def _unlock_or_end(self, lock_id: LockId) -> None:
        """Release one requested id; if it is the last one, by ending the transaction."""
        if self.machine.size > 1 or self.pauses:
            self.unlock_now(lock_id)
            return
        self.event(self.machine.end_transaction)

    @property
    def is_over(self) -> bool:
        """Whether the transaction has ended normally."""
        made = self._made
        return self._stopped and (made is None or made[0].ended == Ended(None))

    def _end_if_idle(self) -> None:
        if self.machine.ended is None and self.machine.empty and not self.pauses:
            self.event(self.machine.end_transaction)

    def pause(self, lock_id: LockId, pause: object, given_back: list[Acquisition] | None) -> None:
        """Release one id for the wait of a condition. The transaction does not end until `resume` is called.

        Args:
            lock_id: The id, which is held.
            pause: The wait.
            given_back: The acquisitions of an `RLock` that are given back; `None` for a `Lock`.

        Raises:
            NotHeld: It is not held.
        """
        self.turn.run_surely(self._pause, lock_id, pause, given_back)

    def _pause(self, lock_id: LockId, pause: object, given_back: list[Acquisition] | None) -> None:
        if self.pauses is None:
            self.pauses = set()
        self.pauses.add(pause)
        try:
            if given_back is None:
                self._release(lock_id)
            for acquisition in given_back or ():
                self._give_back(lock_id, acquisition)
        except NotHeld:
            self.pauses.discard(pause)
            raise

    def resume(self, pause: object) -> None:
        """The wait of a condition is over, and the lock acquired again, if it could be."""
        insist(self.turn.run_surely, self._resume, pause)

    def _resume(self, pause: object) -> None:
        if self.pauses is not None:
            self.pauses.discard(pause)
        self._end_if_idle()

    def enter(self, lock_id: LockId, acquisition: Acquisition) -> None:
        """Add an acquisition, before the lock is requested; an owner may do so in several threads."""
        # In the turn: two threads would make two.
        acquired = self.acquisitions or self.turn.run(self.acquired)
        acquired.enter(lock_id, acquisition)

    def acquired(self) -> Acquisitions:
        """The acquisitions of its `RLock`s, made at first need; in a turn."""
        if self.acquisitions is None:
            self.acquisitions = Acquisitions()
        return self.acquisitions

    def has_acquired(self, lock_id: LockId) -> bool:
        """Whether there is an acquisition."""
        return self.acquisitions is not None and self.acquisitions.has(lock_id)

    def acquired_here(self, lock_id: LockId) -> list[Acquisition]:
        """The acquisitions that the calling greenlet has made, oldest first."""
        return [] if self.acquisitions is None else self.acquisitions.made_here(lock_id)

    def _is_acquired(self, lock_id: LockId) -> bool:
        """Whether acquisitions have the id, or wait for it, and no `Lock` does."""
        return self.acquisitions is not None and self.acquisitions.asked(lock_id)

    def _take_out(self, lock_id: LockId, acquisition: Acquisition) -> bool:
        """Remove an acquisition; return whether the id must be released. See `Acquisitions.take_out`."""
        return self.acquisitions is not None and self.acquisitions.take_out(lock_id, acquisition)

    def give_back(self, lock_id: LockId, acquisition: Acquisition) -> None:
        """Take an acquisition out, and with the last one release the id. In whatever thread.

        Raises:
            NotHeld: It is not held.
        """
        undo = partial(self.withdraw_acquisition, None)
        if not self._thinly(self.node.thin.give_back, undo, lock_id, acquisition):
            self._surely(self._give_back, lock_id, acquisition)

    def _give_back(self, lock_id: LockId, acquisition: Acquisition) -> None:
        if self._take_out(lock_id, acquisition):
            self._release(lock_id)
        elif not (self._is_acquired(lock_id) and self._has(lock_id)):
            raise not_held(lock_id)

    def withdraw_acquisition(
        self, call: PendingCall | None, lock_id: LockId, acquisition: Acquisition
    ) -> None:
        """Remove an acquisition, and give up the call that it was made for; this is completed in any case."""
        insist(self.turn.run_surely, self._withdraw_acquisition, call, lock_id, acquisition)

    def _withdraw_acquisition(
        self, call: PendingCall | None, lock_id: LockId, acquisition: Acquisition
    ) -> None:
        last = self._take_out(lock_id, acquisition)
        if call is not None and call.begun:
            self._abandon(call)
        if last:
            self._let_go_of(lock_id)
        else:
            self._end_if_idle()

    # --- Options and questions --------------------------------------------------------------------

    def change_flag(self, flag: Flag, value: NotifyTarget) -> None:
        """Change an option of the running transaction."""
        self.begin_call()
        self.turn.ask(self.machine.check_alive)
        flag = check_flag(flag, True if callable(value) and flag == "notify" else value)
        if flag == "notify":
            if value:
                self._set_notified(value)
            if callable(value):
                value = True
        elif flag == "monitor_nodes" and value is True:
            self._set_notified(value)
        self.turn.run(self.event, self.machine.set_flag, flag, value)

    def status(self) -> LockResult:
        """Status and deadlocks so far."""
        if not self._is_client(current_client()):
            return self._ask(self.machine.result)
        return self.turn.run(self._tell_status)

    def _tell_status(self) -> LockResult:
        self.machine.check_alive()
        self.event(self.machine.told_status)
        return self.machine.result()

    def lock_info(self) -> list[LockInfo]:
        """All lock requests, as users see them."""
        return self._ask(self.machine.lock_info)

    def _ask(self, question: Callable[[Unpack[Ts]], T], *args: Unpack[Ts]) -> T:
        """Ask a question in a turn; raise why the transaction has ended, if it has."""

        def ask() -> T:
            self.machine.check_alive()
            return question(*args)

        self.node.look_awake()
        answer: T = self.turn.ask(ask)
        return answer

    def notify_when_held(self) -> None:
        """Notify the client when all requested locks are granted, whatever its other notifications."""
        self.node.thin.prepare()  # as in `note_block`
        if self._notified is None:
            self._set_notified(True)
        self.await_later(self._tell_result)

    def _tell_result(self, result: LockResult | Exception) -> None:
        if isinstance(result, LockResult):  # otherwise the end is notified as usual
            self.notify(Notification(self.id, result.status, result.deadlocks))

    def monitors_nodes(self) -> bool:
        """Whether the client is notified of lock servers that come and go."""
        return self._ask(lambda: self.machine.monitor_nodes)

    # --- Fencing tokens, and lost locks -----------------------------------------------------------

    def token(self, lock_id: LockId, timeout: float | None = None) -> int:
        """The fencing token of a lock that is held; on several nodes, these must confirm it first."""
        self.node.look_awake()
        token = self.turn.ask(self.known_token, lock_id)
        if token is None:
            call = PendingCall()
            try:
                establish = self.machine.establish_token
                token = self._await(call, timeout, self.event, establish, lock_id, call)
            except BaseException:
                self.give_up(call)
                raise
            if token is None:
                raise token_timed_out(lock_id, timeout)
        return token

    def unit(self, lock_id: LockId) -> int:
        """Which unit of a counted lock the client has, counted from 0."""
        unit = self.turn.ask(self.machine.unit, lock_id)
        if unit is None:
            raise no_units(lock_id)
        return unit

    def token_nowait(self, lock_id: LockId) -> None:
        """Have the client notified of the fencing token of a lock that is held."""
        self.begin_call()
        if self._notified is None:
            raise no_inbox(self)
        self.turn.run(self._establish_token, lock_id)

    def _establish_token(self, lock_id: LockId) -> None:
        token = self.known_token(lock_id)
        if token is not None:
            self._tell_token(lock_id, token)
        else:
            wait = Answering(partial(self._tell_token, lock_id))
            self.event(self.machine.establish_token, lock_id, wait)

    def _tell_token(self, lock_id: LockId, token: object) -> None:
        self.notify(Notification(self.id, "token", (lock_id, token)))

    def token_later(self, lock_id: LockId, answer: Callable[[Any], None]) -> None:
        """The answer is the fencing token of a lock that is held."""
        self.begin_call()
        self.turn.run(self._find_token, lock_id, answer)

    def _find_token(self, lock_id: LockId, answer: Callable[[Any], None]) -> None:
        token = self.known_token(lock_id)
        if token is None:
            self.event(self.machine.establish_token, lock_id, Answering(answer))
        else:
            answer(token)

    def known_token(self, lock_id: LockId) -> int | None:
        """The fencing token if it is known already, in the turn."""
        return self.machine.token(lock_id)

    def ensure_held(self, lock_id: LockId | None = None) -> None:
        """Raise `LockLost` unless the client still holds its acknowledged locks."""
        self.node.look_awake()
        self.turn.ask(self.machine.ensure_held, lock_id)

    @property
    def lost(self) -> Event:
        """Open once locks are lost with a node, or the transaction was ended from outside."""
        if self._lost is None:
            self.turn.run(self._make_lost)
        assert self._lost is not None
        return self._lost

    def _make_lost(self) -> None:
        if self._lost is None:
            self._lost = Event()
            ended = self.machine.ended
            if ended is not None and ended.reason is not None:
                self._lost.open()

    # --- The end ----------------------------------------------------------------------------------

    def end_transaction(self) -> None:
        """End the transaction."""
        if self._here is None or getcurrent() is not self._here:
            self.begin_call()
        self.leave_block()

    def leave_block(self) -> None:
        """End the transaction as its block is left, in whatever thread that is.

        Raises:
            LocksError: Why it has ended before.
        """
        if not self._thinly(self.node.thin.end, self.let_go):
            self.turn.run_surely(self._leave)

    def _leave(self) -> None:
        machine = self.machine
        if machine.ended is not None:
            machine.check_alive()
        self.event(machine.end_transaction)

    def deadlocks(self) -> tuple[Deadlock, ...]:
        """The deadlocks of the transaction that were resolved so far, also when it has ended."""
        return self.turn.ask(lambda: self.machine.deadlocks)

    def let_go(self) -> None:
        """End the transaction, from any caller, if it has not ended; this is completed in any case."""
        insist(self._let_go)

    def _let_go(self) -> None:
        self.turn.run_surely(self._end)

    def _end(self) -> None:
        self.event(self.machine.end_transaction, None)

    def _set_notified(self, notify: NotifyTarget) -> None:
        self._notified = inbox_of(self.client, notify, self._notified)
