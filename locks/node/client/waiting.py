"""How an agent's clients wait for what they have asked for.

Who waits is answered by an effect of the machine. If none comes in time, what was asked for is withdrawn, and an
answer that comes in this very moment counts. Who does not want to wait at all (`timeout=0`) waits for no other client, but
for the lock servers' answers, which of other nodes take a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar

from gevent import getcurrent

from locks.core.agent.machine import AgentMachine, Object
from locks.errors import CannotServe
from locks.model import AgentId, LockId, LockInfo, LockResult, check_timeout
from locks.node.client.door import Door
from locks.node.client.one_client import hold_up_others, note_wait
from locks.node.client.refusals import blocks_event_loop, explained, timed_out
from locks.node.ports import Answering, NodePort, PendingCall, Spans
from locks.runtime import Ending
from locks.runtime.bridge import is_in_event_loop
from locks.runtime.elsewhere import clock
from locks.runtime.native import insist

__all__ = ["ANSWERED_WITHIN", "Waiting"]

ANSWERED_WITHIN = 5.0  # seconds that lock servers have to answer those who do not wait for others


class Waiting(Door):
    """The waits of an agent's clients.

    Attributes:
        spans: Who is told of them, if anybody is.
    """

    __slots__ = ()
    spans: ClassVar[Spans | None] = None

    node: NodePort
    machine: AgentMachine
    id: AgentId
    client: Any
    client_key: Hashable
    _here: Any  # the greenlet in which its client has begun it, until it ends
    _tries: (
        dict[PendingCall, Callable[[], bool]] | None
    )  # who waits until something is so, if no lock is it

    def check_client(self) -> None:
        """Raise `NotClient` unless it is the client who calls."""
        raise NotImplementedError

    def event(self, event: Callable[..., list[Any]], *args: Any) -> None:
        """Run one event of the machine, and do what it wants done; in a turn."""
        raise NotImplementedError

    def give_up(self, call: PendingCall) -> None:
        """Withdraw what was asked for with a call."""
        raise NotImplementedError

    def _ask_all(self, objects: Sequence[Object], call: PendingCall) -> None:
        """Ask for locks in the turn."""
        raise NotImplementedError

    def try_all(self, objects: Sequence[Object]) -> LockId | None:
        """Lock all of these, if no other client has to be waited for; else none of them.

        Returns:
            The first one that is not free; `None` if all are locked.
        """
        call = self.node.new_call()
        try:
            if self._await(call, 0, self._ask_all, objects, call) is None:
                missing = [info.lock_id for info in self._stop_waiting(call)]
                if call.result is None:
                    return missing[0] if missing else objects[0][0]
                self._answer(call.result)
            return None
        except BaseException:
            self.give_up(call)
            raise

    def _late(self, call: PendingCall, timeout: float | None, withdrawn: bool) -> LockResult:
        """The answer did not come in time: give up what was asked for.

        Raises:
            LockTimeout: It has not come just now either.
        """
        wanted = self._stop_waiting(call)
        result: Any = call.result
        if result is None:
            self.node.counters.timeouts += 1
            raise timed_out(self, wanted, timeout, withdrawn, call.quiet)
        return self._answer(result)

    def _stop_waiting(self, call: PendingCall) -> list[LockInfo]:
        """Give up what was asked for, unless the answer has come just now; return what is not held."""
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
            self.event(self.machine.abandon, call)

    def _await(
        self, call: PendingCall, timeout: float | None, step: Callable[..., object], *args: Any
    ) -> Any:
        """Do in the turn what has `call` answered; return the answer, `None` if it did not come."""
        if timeout is not None:
            check_timeout(timeout)
        if not (call.checked or (self._here is not None and getcurrent() is self._here)):
            self.check_client()
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
            if len(self.node.clients.get(self.client_key, ())) > 1:
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
        """Who does not want to wait for others waits for what lock servers elsewhere say all the same."""
        self._wait_until(lambda: self.machine.is_answered(call), call, ANSWERED_WITHIN)

    def sit_out(self, lock_id: LockId, timeout: float) -> float:
        """The client waits for what it has itself: until the time is over, unless another thread of an owner releases it.

        Returns:
            The seconds that are left.
        """
        if is_in_event_loop():
            raise blocks_event_loop()
        now = clock()
        until = now() + timeout
        self._wait_until(lambda: not self.machine.asks_for(lock_id), self.node.new_call(), timeout)
        return max(0, until - now())

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

    # --- Waits that block nobody ----------------------------------------------------------------

    def lock_later(self, objects: Sequence[Object], answer: Callable[[Any], None]) -> None:
        """Ask for locks; the answer comes when these and all that was asked for before are granted."""
        self._begin_wait(Answering(answer), self.request_all, objects)

    def await_later(self, answer: Callable[[Any], None]) -> None:
        """The answer comes when all that was asked for is granted."""
        self._begin_wait(Answering(answer), self.event, self.machine.await_all)

    def request_all(self, objects: Sequence[Object], wait: Any) -> None:
        """Request locks in the turn."""
        raise NotImplementedError

    def _begin_wait(self, wait: Answering, event: Callable[..., None], *args: Any) -> None:
        self.check_client()
        try:
            self.turn.run(event, *args, wait)
        except CannotServe as error:
            raise explained(error, self.node) from None
        except BaseException:
            insist(self.turn.run_surely, self.event, self.machine.abandon, wait)
            raise
