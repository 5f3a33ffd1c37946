"""The transaction's agent as an actor: it runs an `AgentMachine` in its node's turn.

Its messages are `locks.core.messages.AgentMessage`. The methods here are what a client may call; they
check that it is the client who calls, run one event of the machine, and wait for the answer where
there is something to wait for. A wait that is given up, by a timeout or by any exception that is
raised into it, withdraws its requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, TypeVar

from gevent import getcurrent

from locks.core.agent.flags import Flag, check_flag
from locks.core.agent.machine import AgentMachine, Object
from locks.core.checked import check_agent_message
from locks.core.messages import AnswerWait, Ended, Knowledge, Lost, Surrendered
from locks.errors import CannotServe, LockLost
from locks.model import AgentId, Deadlock, LockId, LockInfo, LockResult, Notification
from locks.node.client.actors import LockAgent
from locks.node.client.clients import Inbox, NotifyTarget, inbox_of, is_patched_thread, labelled
from locks.node.client.holding import Entered, Holding
from locks.node.client.one_client import interrupt_others
from locks.node.client.refusals import (
    client_has_ended,
    explained,
    in_the_parent,
    no_inbox,
    no_units,
    not_client,
    not_to_be_told,
    stopped,
    token_timed_out,
)
from locks.node.history import History
from locks.node.ports import Answering, NodePort, PendingCall
from locks.runtime import (
    Client,
    Down,
    Ending,
    Event,
    Monitor,
    client_key,
    current_client,
    exit_client,
)
from locks.runtime.native import insist
from locks.runtime.shown import Shown

__all__ = ["Agent", "NotifyTarget"]

T = TypeVar("T")


class Agent(Holding, metaclass=Shown):
    """A transaction's agent.

    `locks.begin_transaction` and `locks.spawn_agent` make them. An agent is a Pykka actor
    reference: it can be monitored, and it stops when it is stopped.

    Attributes:
        id: The agent's reference.
        client: Whose transaction it is.
        client_key: What stands for the client in dictionaries.
        acquisitions: How often its client has acquired each of its `locks.RLock`s; `None` if it has none.
        on_lost: Called with the error when locks are lost with a node, in the node's background
            greenlet.
    """

    _for_users = frozenset(
        ("client", "deadlocks", "id", "is_alive", "lock_info", "lost", "on_lost", "status", "stop")
    )
    long: ClassVar[int] = 1000
    _behind = LockAgent

    __slots__ = (
        "_here",
        "_link",
        "_lost",
        "_monitor",
        "_notified",
        "_tries",
        "acquisitions",
        "client",
        "client_key",
        "history",
        "id",
        "machine",
        "node",
        "on_lost",
    )

    def __init__(
        self,
        node: NodePort,
        agent: AgentId,
        client: Client,
        *,
        here: bool = False,
        link: bool = False,
        notify: NotifyTarget = False,
        abort_on_deadlock: bool = False,
        await_nodes: bool = False,
        monitor_nodes: bool = False,
        label: str | None = None,
    ) -> None:
        super().__init__(node.turn)
        self.node = node
        self.id = agent
        self.client = client
        self.client_key = client_key(client)
        self._link = link
        self._notified: Inbox | None = None
        made = (
            agent,
            labelled(client, label, node.program, here),
            node.alive,
            abort_on_deadlock,
            await_nodes,
            monitor_nodes,
            bool(notify),
            node.silent,
        )
        self.machine = AgentMachine(*made)
        self.history: History = [(self.machine.load, (made,))]
        self._here = getcurrent() if here and not isinstance(client, Ending) else None
        if notify or monitor_nodes:
            self._set_notified(notify)
        self._monitor: Monitor | None = None
        self._lost: Event | None = None
        self.acquisitions: dict[LockId, Entered] | None = None
        self._tries: dict[PendingCall, Callable[[], bool]] | None = None
        self.on_lost: Callable[[LockLost], object] | None = None

    def __str__(self) -> str:
        return str(self.id)

    def __repr__(self) -> str:
        return f"<Agent {self.id} of {self.machine.client}>"

    # --- As an actor ----------------------------------------------------------------------------

    def start_monitoring(self) -> None:
        """Watch over the client; the transaction ends with it."""
        self._monitor = Monitor(
            self._client_down, surely=True
        )  # known before it begins, to be cancelled
        self._monitor.begin(self.client)

    def admit(self, message: Any) -> Knowledge:
        """Check a message from a program, before the turn.

        Raises:
            MisuseError: It is no `AgentMessage`, a field of it is wrong, or it says what lock servers
                say: only they can grant a lock.
        """
        checked = check_agent_message(message)
        if not isinstance(checked, Knowledge):
            raise not_to_be_told(self.id, message)
        return checked

    def receive(self, message: Knowledge) -> None:
        """Take in a message that was admitted."""
        self.node.deliver(self, message)

    def handle(self, message: Any) -> None:
        """Carry a message out."""
        self.event(self.machine.receive, message)
        if type(message) is Surrendered:
            interrupt_others(self)

    def settle(self) -> None:
        """All that there was is taken in: look for deadlocks."""
        self.event(self.machine.settle)

    def event(self, event: Callable[..., list[Any]], *args: Any) -> None:
        """Put one event of the machine down, run it, and do what it wants done; in a turn."""
        node = self.node
        step = (event, args)
        node.touched.append((self, step))
        self.history.append(step)
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
        self.event(self.machine.end, error)

    def notify(self, notification: Notification) -> None:
        """Tell the client something that it asked to be told."""
        if self._notified is not None:
            self.node.executor.run_soon(self._notified, notification)

    def has_lost(self, lost: Lost) -> None:
        """Locks that the client was told it has are gone with a node."""
        self._make_lost()
        assert self._lost is not None
        self._lost.open()
        if self.on_lost is not None:
            self.node.executor.run_soon(self.on_lost, lost.error)

    def has_ended(self, ended: Ended) -> None:
        """The machine has ended; so does the actor."""
        self._here = None
        self.node.lines.leave(self.id)
        if self._monitor is not None:
            self._monitor.cancel()
            self._monitor = None  # or the two would keep each other in memory
        if isinstance(self.client, Ending):
            self.client.waiting.pop(self, None)
        if self._lost is not None and ended.reason is not None:
            self._lost.open()
        watch = self.ended()
        if watch is not None:
            reason = "normal" if ended.reason is None else ended.reason
            self.node.executor.run_soon(watch.fire, self, reason)
        if self.spans is not None:
            self.node.executor.run_soon(self.spans.ended, self.id, ended.reason)
        if self._link and ended.reason is not None:
            self.node.executor.run_soon(exit_client, self.client, ended.reason)

    def abandon(self) -> None:
        """In a forked child: the transaction lives in the parent. Callers that wait here are told so."""
        error = in_the_parent(self.id)
        try:
            effects = self.machine.end(error)
        except Exception:
            # Another thread was in the middle of a turn. Nothing but this end will be asked of the machine.
            self.machine.ended = Ended(error)
            effects = []
        for effect in effects:
            if isinstance(effect, AnswerWait) and isinstance(effect.wait, PendingCall | Answering):
                with suppress(RuntimeError):  # of the background, which is the parent's
                    effect.wait.answer(effect.result)
        if self._lost is not None:
            self._lost.open()
        self.ended()

    def _client_down(self, down: Down) -> None:
        self.turn.post(self.client_ended, down)

    def client_ended(self, down: Down) -> None:
        """The client has ended, and the transaction ends with it; in a turn."""
        self.event(self.machine.end, client_has_ended(self, down))

    # --- What the client calls ------------------------------------------------------------------

    def check_client(self) -> None:
        """Raise `NotClient` unless it is the client who calls, or somebody for an owner."""
        if self._here is not None and getcurrent() is self._here:
            return
        client = current_client()
        if (
            client is not self.client
            and not isinstance(self.client, Ending)  # whoever has it acts for its owner
            and not self._is_client(client)
            and not is_patched_thread(self.client)
        ):
            raise not_client(self, client)

    def _is_client(self, other: Client) -> bool:
        return client_key(other) == self.client_key

    def ask_for(self, objects: Sequence[Object]) -> None:
        """Ask for locks without waiting for them."""
        self.check_client()
        try:
            self.turn.run(self.request_all, objects, None)
        except CannotServe as error:
            raise explained(error, self.node) from None

    def lock_all(self, objects: Sequence[Object], timeout: float | None) -> LockResult:
        """Ask for locks, and wait for these and all that was asked for before."""
        call = self.node.new_call()
        try:
            return self.lock_by(call, objects, timeout)
        except BaseException:
            self.give_up(call)
            raise

    def lock_by(
        self, call: PendingCall, objects: Sequence[Object], timeout: float | None
    ) -> LockResult:
        """The same; whoever calls gives the call up if this, or what comes after it, fails."""
        result: LockResult | None
        result = self._await(call, timeout, self._ask_all, objects, call)
        if result is None:
            result = self._late(call, timeout, withdrawn=True)
        if self.spans is not None:
            self.spans.granted(self, [each[0] for each in objects])
        return result

    def _ask_all(self, objects: Sequence[Object], call: PendingCall) -> None:
        """Ask for locks in the turn; for one at once, if nothing else matters."""
        machine = self.machine
        if call.first:
            lock_id = objects[0][0]
            if call.acquisition or self.acquisitions or machine.asks_for(lock_id):
                self.check_first(lock_id, call.acquisition)
        if machine.asks_for_one(objects):
            lock_id, mode, _, _ = objects[0]
            record = self.node.ask_at_once(self.id, machine.client, lock_id, mode)
            if record is not None:
                self.event(machine.ask_answered, objects[0], record, call)
                return
        self.request_all(objects, call)

    def request_all(self, objects: Sequence[Object], wait: Any) -> None:
        """Request locks in the turn; where agents of this node wait at the gate, there alone."""
        queued = self.node.lines.join(self.machine, objects)
        self.event(self.machine.ask_all, objects, wait, queued)

    def give_up(self, call: PendingCall) -> None:
        """A call was interrupted: withdraw what was asked for with it, also if that was granted."""
        if call.begun:
            insist(self.turn.run_surely, self.event, self.machine.abandon, call)

    def await_all(self, timeout: float | None) -> LockResult:
        """Wait for all that was asked for."""
        call = self.node.new_call()
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

    def unlock(self, lock_id: LockId) -> None:
        """Release one id."""
        self.check_client()
        self.turn.run_surely(self.unlock_now, lock_id)
        if self.spans is not None:
            self.spans.released(self.id, lock_id)

    def surrender(self, lock_id: LockId, other: AgentId, nodes: tuple[str, ...]) -> None:
        """Give up a lock to an agent that waits for it, and stand last."""
        self.check_client()
        self.turn.run(self.event, self.machine.surrender, lock_id, other, nodes)

    def change_flag(self, flag: Flag, value: NotifyTarget) -> None:
        """Change an option of the running transaction."""
        self.check_client()
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
        """All locks asked for."""
        return self._ask(self.machine.lock_info)

    def _ask(self, question: Callable[..., T], *args: Any) -> T:
        """Ask a question in a turn; raise why the transaction has ended, if it has."""

        def ask() -> T:
            self.machine.check_alive()
            return question(*args)

        answer: T = self.turn.ask(ask)
        return answer

    def token(self, lock_id: LockId, timeout: float | None = None) -> int:
        """The fencing token of a lock that is held; on several nodes they are asked first."""
        token = self.turn.ask(self.known_token, lock_id)
        if token is None:
            call = self.node.new_call()
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
        self.check_client()
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
        self.check_client()
        self.turn.run(self._find_token, lock_id, answer)

    def _find_token(self, lock_id: LockId, answer: Callable[[Any], None]) -> None:
        token = self.known_token(lock_id)
        if token is None:
            self.event(self.machine.establish_token, lock_id, Answering(answer))
        else:
            answer(token)

    def notify_when_held(self) -> None:
        """Notify the client when all that was asked for is granted, whatever else it wants to be told."""
        if self._notified is None:
            self._set_notified(True)
        self.await_later(self._tell_result)

    def _tell_result(self, result: LockResult | Exception) -> None:
        if isinstance(result, LockResult):  # else the end is told as ever
            self.notify(Notification(self.id, result.status, result.deadlocks))

    def monitors_nodes(self) -> bool:
        """Whether the client is told of lock servers that come and go."""
        return self._ask(lambda: self.machine.monitor_nodes)

    def known_token(self, lock_id: LockId) -> int | None:
        """The fencing token if it is known without asking, in the turn."""
        if self.node.guard is not None:
            self.node.guard.check_token(self.machine, lock_id)
        return self.machine.token(lock_id)

    def ensure_held(self, lock_id: LockId | None = None) -> None:
        """Raise `LockLost` unless the client still has what it was told it has."""
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

    def end(self) -> None:
        """End the transaction."""
        if self._here is None or getcurrent() is not self._here:
            self.check_client()
        self.turn.run_surely(self._leave)

    def leave(self) -> None:
        """End the transaction as its block is left, in whatever thread that is.

        Raises:
            LocksError: Why it has ended before.
        """
        self.turn.run_surely(self._leave)

    def _leave(self) -> None:
        machine = self.machine
        if machine.ended is not None:
            machine.check_alive()
        self.event(machine.end)

    def deadlocks(self) -> tuple[Deadlock, ...]:
        """The deadlocks of the transaction that were resolved so far, also when it has ended."""
        return self.turn.ask(lambda: self.machine.deadlocks)

    def let_go(self) -> None:
        """End the transaction, whoever calls, if it has not ended; it is done in any case."""
        insist(self._let_go)

    def _let_go(self) -> None:
        self.turn.run_surely(self.event, self.machine.end)

    def _set_notified(self, notify: NotifyTarget) -> None:
        self._notified = inbox_of(self.client, self, notify, self._notified)
