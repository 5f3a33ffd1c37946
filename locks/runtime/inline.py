"""Actors without a greenlet of their own, and the turn that they take.

An actor whose handlers never wait needs nothing to run in: the sender of a message can run the
handler at once, if no other handler is running. All inline actors that work together share one
`Turn`. It is a native lock, so a turn may be taken in any thread, and a queue for what is posted
while another thread has it. Handlers must not block, switch greenlets, or call foreign code.

This is what makes a transaction cheap: starting an actor with a greenlet and switching to it and
back costs ten times as much as what the actor has to do.

An inline actor is its own reference, inbox and stop flag, so one small object is all that it
costs. It is a `pykka.ActorRef`: it can be asked, told, stopped, monitored and passed around like
any other. It is not in Pykka's registry, where each exit costs time in the number of actors;
its owner (a node) knows it and stops it.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

import pykka
from gevent import monkey
from pykka.messages import _ActorStop

from locks.runtime import interrupts
from locks.runtime.actor import GeventFuture
from locks.runtime.monitor import DeathWatch, Mortal

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka._envelope import Envelope

T = TypeVar("T")

__all__ = ["InlineActor", "OwnReference", "Turn", "native_lock"]

native_lock = monkey.get_original("_thread", "allocate_lock")
"""Make a lock of the operating system's threads, also in a monkey-patched program."""


class Turn:
    """One at a time, in whatever thread; a `KeyboardInterrupt` waits until the turn is over.

    Args:
        finish: Called at the end of each turn, before another thread gets it.
    """

    __slots__ = ("_finish", "_lock", "_posted")

    def __init__(self, finish: Callable[[], object]) -> None:
        self._lock = native_lock()
        self._posted: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._finish = finish

    def reset(self) -> None:
        """In a forked child: the thread that had the turn, if any, does not exist here."""
        self._lock = native_lock()
        self._posted.clear()

    def run(self, function: Callable[..., object], *args: Any) -> None:
        """Take the turn, call `function(*args)`, and finish what follows from it.

        Raises:
            RuntimeError: From within a turn.
        """
        token = interrupts.enter()
        try:
            self._lock.acquire()
            try:
                function(*args)
                self._finish()
            finally:
                self._lock.release()
            if self._posted:
                self._run_posted()
        finally:
            interrupts.leave(token)

    def ask(self, question: Callable[..., T], *args: Any) -> T:
        """Call `question(*args)` in a turn and return the answer."""
        answers: list[T] = []
        self.run(lambda: answers.append(question(*args)))
        return answers[0]

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Have `function(*args)` called in a turn: now, or by the thread that has the turn now.

        From anywhere, also from within a turn, a finaliser or a signal handler.
        """
        self._posted.append((function, args))
        token = interrupts.enter()
        try:
            self._run_posted()
        finally:
            interrupts.leave(token)

    def _run_posted(self) -> None:
        # A thread that fails to get the lock leaves its work to the thread that has it, which looks
        # again after letting go. So no work is left behind.
        while self._posted and self._lock.acquire(False):
            try:
                while self._posted:
                    function, args = self._posted.popleft()
                    function(*args)
                self._finish()
            finally:
                self._lock.release()


class OwnReference(pykka.ActorRef[Any], Mortal):
    """An actor's reference that is its own inbox and stop flag, too."""

    __slots__ = ("_stopped", "_watch")

    def __init__(self) -> None:
        self._stopped = False
        self._watch: DeathWatch | None = None

    @property
    def actor_class(self) -> Any:  # type: ignore[override]
        """The class of the actor, for Pykka."""
        return type(self)

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        """The actor's identity, for Pykka."""
        return f"urn:locks:{self}"

    @property
    def actor_inbox(self) -> Any:  # type: ignore[override]
        """Where messages are put."""
        return self

    @property
    def actor_stopped(self) -> Any:  # type: ignore[override]
        """The flag that says whether it has stopped."""
        return self

    def is_alive(self) -> bool:
        """Whether the actor is alive, as far as is known here."""
        return not self._stopped

    def is_set(self) -> bool:
        """Whether the actor is known to have stopped."""
        return self._stopped

    @staticmethod
    def _create_future() -> GeventFuture[Any]:
        return GeventFuture()

    def empty(self) -> bool:
        """Whether no message waits here: they wait elsewhere, if anywhere."""
        return True


class InlineActor(OwnReference):
    """An actor that handles messages in its owner's turn.

    Subclasses implement `receive`, `stop_inline` and `failed`, and call `ended` when they have
    ended.

    Args:
        turn: The turn that it takes.
    """

    __slots__ = ("turn",)

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self.turn = turn

    # --- What subclasses implement

    def receive(self, message: Any) -> Any:
        """Handle a message, in a turn; what is returned is the reply."""
        raise NotImplementedError

    def stop_inline(self, reason: object) -> None:
        """Stop, in a turn; `None` is the reason of a normal stop."""
        raise NotImplementedError

    def failed(self, message: Any, error: Exception) -> None:
        """A message whose answer nobody waits for could not be handled."""
        raise NotImplementedError

    def ended(self) -> DeathWatch | None:
        """Mark the actor as dead; return its monitors, to be fired outside of the turn."""
        self._stopped = True
        return self._watch

    # --- As an inbox

    def put(self, envelope: Envelope[Any]) -> None:
        """Have a message handled."""
        self.turn.post(self._take, envelope)

    def kill(self, reason: object) -> None:
        """End the actor soon."""
        self.turn.post(self.stop_inline, reason)

    @property
    def watch(self) -> DeathWatch:  # type: ignore[override]
        """Its monitors."""
        if self._watch is None:
            self._watch = DeathWatch()
            if self._stopped:
                self._watch.fire(self, "noproc")
        return self._watch

    def _take(self, envelope: Envelope[Any]) -> None:
        future = envelope.reply_to
        try:
            if self._stopped:
                raise pykka.ActorDeadError(f"{self} not found")
            if isinstance(envelope.message, _ActorStop):
                self.stop_inline(None)
                reply = None
            else:
                reply = self.receive(envelope.message)
        except Exception as error:
            if future is None:
                self.failed(envelope.message, error)
            else:
                future.set_exception(sys.exc_info())
        else:
            if future is not None:
                future.set(reply)
