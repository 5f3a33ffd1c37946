"""A Pykka actor whose loop is a gevent greenlet.

Theory of operation
-------------------
`GeventActor` implements Pykka's three extension points for a new kind of actor: an inbox, a future,
and the runner of the loop, which is a `gevent.Greenlet` on the hub of the thread that starts the
actor. Inbox and future use `locks.runtime.waiter`, so actors and callers in any thread, patched or
not, can communicate. An actor handles messages while its hub runs.

**An actor dies alone.** Pykka's loop takes any `BaseException` for the end of the program, and
stops *every* actor, while the failing actor leaves its caller without an answer. And a greenlet
that is killed while it waits for a message leaves an actor that looks alive. So this module has its
own loop with one exit, `_end`, for all cases: it unregisters the actor, marks it as stopped,
answers the present message and all others with `ActorDeadError` (also those that arrive later by a
race: see `Channel.close`), and notifies the monitors of the reason. A greenlet that is killed
before it ever ran gets there through a link.

| what happened                           | hook         | reason in `Down`                      |
| --------------------------------------- | ------------ | ------------------------------------- |
| `stop`                                  | `on_stop`    | "normal"                              |
| exception in a `tell`ed message         | `on_failure` | the exception                         |
| exception in an `ask`ed message         | none         | none: the caller gets it              |
| exception in `on_start` or `on_stop`    | none         | the exception                         |
| `kill`, or any other `GreenletExit`     | `on_failure` | what `kill` was given, or "killed"    |
| any other `BaseException`               | `on_failure` | the exception                         |
| killed before it ever ran               | none         | what `kill` was given, or "killed"    |

`KeyboardInterrupt` is for the program: when the actor has ended, it propagates to the hub, which
raises it in the main greenlet.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import gevent
import pykka
from pykka import ActorDeadError, ActorRegistry
from pykka._envelope import Envelope
from pykka.messages import _ActorStop

from locks.runtime.clock import monotonic
from locks.runtime.exits import kill_greenlet
from locks.runtime.hub_life import at_end
from locks.runtime.interrupts import whole
from locks.runtime.monitor import (
    ACTOR_REF,
    DeathWatch,
    Killed,
    Mortal,
    current_client,
    end_reason,
    watch_end,
)
from locks.runtime.port import world
from locks.runtime.waiter import Channel, Event, Waiter

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from pykka._actor import ActorInbox
    from pykka._future import GetHookFunc
    from pykka._types import OptExcInfo

__all__ = ["GeventActor", "GeventFuture", "end_all", "kill"]

T = TypeVar("T")

logger = logging.getLogger("pykka")


class GeventFuture(pykka.Future[T]):
    """A future that can be set, and waited for, in any greenlet or thread.

    Otherwise like `pykka.ThreadingFuture`.
    """

    def __init__(self) -> None:
        super().__init__()
        # `list.pop` is atomic: a token is taken by exactly one caller.
        self._unset = [True]  # taken by the caller that sets the outcome or the hook
        self._hook_idle = [True]  # taken by the caller that runs the hook
        self._outcome: tuple[Any, OptExcInfo | None] | None = None
        self._waiters: list[Waiter] = []

    @property
    def is_set(self) -> bool:
        """Whether there is an outcome. If so, a `pykka.Timeout` from `get` is this outcome."""
        return self._outcome is not None

    def get(self, *, timeout: float | None = None) -> Any:
        """Return the value or raise the exception that was set. See `pykka.Future.get`."""
        if self._outcome is None:
            tell = world().clock()
            deadline = None if timeout is None else tell() + timeout
            while self._outcome is None:
                left = None if deadline is None else max(0.0, deadline - tell())
                if self._get_hook is not None and self._take_hook():
                    return self._get_from_hook(left)
                if not self._wait(left):
                    raise pykka.Timeout(f"{timeout} seconds")
        value, exc_info = self._outcome
        if exc_info is None:
            return value
        exc_type, exc_value, exc_traceback = exc_info
        if exc_value is None:
            assert exc_type is not None
            exc_value = exc_type()
        if exc_value.__traceback__ is not exc_traceback:
            exc_value = exc_value.with_traceback(exc_traceback)
        raise exc_value

    def set(self, value: T | None = None) -> None:
        """Set the value. See `pykka.Future.set`."""
        self._set((value, None))

    def set_exception(self, exc_info: OptExcInfo | None = None) -> None:
        """Set an exception, by default the one being handled. See `pykka.Future.set_exception`."""
        self._set((None, sys.exc_info() if exc_info is None else exc_info))

    def set_get_hook(self, func: GetHookFunc[T]) -> None:
        """Set the function that gets the value. See `pykka.Future.set_get_hook`."""
        if self._get_hook is None:
            self._take_unset()
        super().set_get_hook(func)
        self._wake_all()

    def _set(self, outcome: tuple[Any, OptExcInfo | None]) -> None:
        self._take_unset()
        self._outcome = outcome
        self._wake_all()

    def _take_unset(self) -> None:
        try:
            self._unset.pop()
        except IndexError:
            raise queue.Full from None

    def _take_hook(self) -> bool:
        try:
            return self._hook_idle.pop()
        except IndexError:
            return False

    def _get_from_hook(self, timeout: float | None) -> Any:
        """Run the hook in one caller; the others wait and then find its result."""
        try:
            return super().get(timeout=timeout)
        finally:
            self._hook_idle.append(True)
            self._wake_all()

    def _wait(self, timeout: float | None) -> bool:
        """Wait until there is an outcome or the hook may be run; False if the time ran out."""
        waiter = Waiter()
        self._waiters.append(waiter)
        try:
            # Check this after `_wake_all` can see the waiter, so that no wake-up is lost.
            if self._outcome is not None or (self._get_hook is not None and self._hook_idle):
                return True
            return waiter.wait(timeout)
        finally:
            self._waiters.remove(waiter)

    def _wake_all(self) -> None:
        for waiter in tuple(self._waiters):
            waiter.wake()


class Inbox(Channel[Any], Mortal):
    """A `GeventActor`'s messages, and the way to watch and to kill it through its ref.

    Attributes:
        greenlet: the greenlet of the actor's loop; None before the start and after the end.
    """

    __slots__ = ("greenlet", "watch")

    for_users = True

    def __init__(self) -> None:
        super().__init__()
        self.watch = DeathWatch()
        self.greenlet: gevent.Greenlet[..., None] | None = None

    put = Channel[Any].send
    get = Channel[Any].receive

    def empty(self) -> bool:
        """Whether no message waits."""
        return not self._items

    def kill(self, reason: object) -> None:
        """End the actor soon, whatever it is doing."""
        greenlet = self.greenlet
        if greenlet is not None:
            kill_greenlet(greenlet, Killed(reason))


class GeventActor(pykka.Actor):
    """A Pykka actor that runs in a greenlet, on the hub of the thread that starts it; or in the simulation that does."""

    actor_inbox: Inbox

    @staticmethod
    def _create_actor_inbox() -> ActorInbox:
        return Inbox()

    @staticmethod
    def _create_future() -> pykka.Future[Any]:
        return GeventFuture()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._message_in_hand: Envelope[Any] | None = None
        self._is_deferred = False  # the answer to the message in hand
        self._deferred: dict[pykka.Future[Any], None] = {}  # answers that are owed
        self._reason: object = None  # why it ended, once known
        self._told_failure = False
        self._forget_hub: Callable[[], object] | None = None

    def _start_actor_loop(self) -> None:
        greenlet = world().new_greenlet(self._actor_loop)
        greenlet.__dict__[ACTOR_REF] = self._actor_ref
        self.actor_inbox.greenlet = greenlet
        greenlet.rawlink(self._greenlet_ended)
        if isinstance(greenlet, gevent.Greenlet):
            hub: Any = greenlet.parent  # which does not wait for ever for one that refuses to end
            self._forget_hub = at_end(hub, partial(self._end, "its hub has ended"))
        greenlet.start()

    def _actor_loop(self) -> None:
        try:
            self._actor_loop_setup()
            self._actor_loop_running()
        except BaseException as error:
            self._die(error)
            if isinstance(error, KeyboardInterrupt):
                raise
        finally:
            self._end("normal")

    def _actor_loop_running(self) -> None:
        stopped = self.actor_stopped
        receive = self.actor_inbox.receive
        while not stopped.is_set():
            envelope = self._message_in_hand = receive()
            reply_to = envelope.reply_to
            self._is_deferred = False
            try:
                response = self._handle_receive(envelope.message)
                if reply_to is not None and not self._is_deferred:
                    reply_to.set(response)
            except Exception as error:
                if reply_to is not None:
                    logger.info("Exception returned from %s to caller:", self, exc_info=error)
                    if self._is_deferred:
                        self._answer_deferred(reply_to, error)
                    else:
                        reply_to.set_exception()
                else:
                    self._handle_failure(type(error), error, error.__traceback__)
                    self._tell_failure(error)
            self._message_in_hand = None

    @property
    def asked(self) -> bool:
        """Whether a caller waits for the answer to the message in hand."""
        return self._message_in_hand is not None and self._message_in_hand.reply_to is not None

    def defer(self) -> Callable[[Any], None]:
        """Answer the present message later.

        Returns:
            A function that gives the answer; its first call counts. If the actor ends before, the
            caller gets `ActorDeadError`. A message that was sent by `tell` needs no answer.
        """
        envelope = self._message_in_hand
        future = None if envelope is None else envelope.reply_to
        if future is None:
            return _nobody_waits
        self._is_deferred = True
        self._deferred[future] = None
        return partial(self._answer_deferred, future)

    def fail(self, error: Exception) -> None:
        """End because of an error that is not the caller's fault.

        The caller gets `ActorDeadError`; otherwise as if the message had been told.
        """
        self.defer()
        self._handle_failure(type(error), error, error.__traceback__)
        self._tell_failure(error)

    def _answer_deferred(self, future: pykka.Future[Any], answer: Any) -> None:
        if future in self._deferred:
            del self._deferred[future]
            if isinstance(answer, Exception):
                future.set_exception((type(answer), answer, None))
            else:
                future.set(answer)

    def _die(self, error: BaseException) -> None:
        """End because of an exception that was raised into the greenlet, or is no `Exception`."""
        if isinstance(error, gevent.GreenletExit):
            # Killed: this is not logged as a failure.
            self._reason = error.reason if isinstance(error, Killed) else "killed"
            self._mark_stopped()
            logger.debug("Killed %s", self)
        else:
            self._handle_failure(type(error), error, error.__traceback__)
        self._tell_failure(error)

    def _tell_failure(self, error: BaseException) -> None:
        """Call the hook, once: it may itself have been killed."""
        if not self._told_failure:
            self._told_failure = True
            try:
                self.on_failure(type(error), error, error.__traceback__)
            except Exception as second:
                self._handle_failure(type(second), second, second.__traceback__)

    def _handle_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._reason is None:
            self._reason = exception_value
        super()._handle_failure(exception_type, exception_value, traceback)

    def _mark_stopped(self) -> None:
        if not self.actor_stopped.is_set():
            ActorRegistry.unregister(self._actor_ref)
            self.actor_stopped.set()

    def _greenlet_ended(self, greenlet: gevent.Greenlet[..., None]) -> None:
        # Only news if the loop never ran; otherwise it has called `_end` itself.
        self._end(end_reason(greenlet))

    @whole
    def _end(self, reason: object) -> None:
        """Whatever the cause was: leave no caller waiting for this actor."""
        inbox = self.actor_inbox
        if inbox.closed:
            return
        self._mark_stopped()
        if self._forget_hub is not None:
            self._forget_hub()
        refuse = partial(_refuse, str(self))
        if self._message_in_hand is not None and not self._is_deferred:
            refuse(self._message_in_hand)
        for future in list(self._deferred):
            self._answer_deferred(future, ActorDeadError(f"{self} stopped before it answered"))
        inbox.close(refuse)
        inbox.greenlet = None
        inbox.watch.fire(self._actor_ref, reason if self._reason is None else self._reason)


def _nobody_waits(answer: Any) -> None:
    """Drop the answer to a message that was sent by `tell`."""


def kill(ref: pykka.ActorRef[Any], reason: object = "killed") -> None:
    """Kill a `GeventActor`: raise `Killed` in its greenlet soon, whatever it is doing.

    From any thread, without waiting. An actor that catches `GreenletExit` survives. Killing an
    actor that has ended does nothing. A process of another node is asked to exit.

    Args:
        ref: the actor to kill.
        reason: what its monitors are told.

    Raises:
        TypeError: for another kind of actor.
    """
    inbox = ref.actor_inbox
    if not (isinstance(inbox, Mortal) and inbox.for_users):
        raise TypeError(f"can't kill {ref!r}: it is not a GeventActor")
    inbox.kill(reason)


def end_all(refs: Iterable[pykka.ActorRef[Any]], timeout: float = 1) -> None:
    """Stop actors, and kill those that have not ended in time; the caller itself is left out.

    Args:
        refs: The `GeventActor`s.
        timeout: Seconds to wait for them to stop, and once more after they were killed.
    """
    me = current_client()
    ending = {ref: Event() for ref in list(refs) if ref != me}
    for ref, gone in ending.items():
        watch_end(ref, partial(_open, gone))
    for end in (_stop_soon, kill):
        for ref in ending:
            end(ref)
        deadline = monotonic() + timeout
        for gone in ending.values():
            gone.wait(max(0.0, deadline - monotonic()))
        ending = {ref: gone for ref, gone in ending.items() if not gone.is_open}


def _open(gone: Event, _: object) -> None:
    gone.open()


def _stop_soon(ref: pykka.ActorRef[Any]) -> None:
    ref.stop(block=False)


def tell(ref: pykka.ActorRef[Any], message: object) -> None:
    """Send an actor a message; do nothing if it has ended."""
    try:
        ref.tell(message)
    except ActorDeadError:
        logger.debug("%s has ended and does not receive %r", ref, message)


def ask(ref: pykka.ActorRef[Any], message: object) -> GeventFuture[Any]:
    """Ask an actor of any kind; a greenlet can wait for the answer without holding up a thread."""
    future: GeventFuture[Any] = GeventFuture()
    if ref.is_alive():
        ref.actor_inbox.put(Envelope(message, reply_to=future))
    else:
        error = ActorDeadError(f"{ref} not found")
        future.set_exception((ActorDeadError, error, None))
    return future


def _refuse(actor: str, envelope: Envelope[Any]) -> None:
    """Answer a message that a dead actor will not handle, as Pykka does for a stopped one."""
    reply_to = envelope.reply_to
    if reply_to is None:
        return
    with suppress(queue.Full):  # it was answered before the actor ended
        if isinstance(envelope.message, _ActorStop):
            reply_to.set(None)
        else:
            error = ActorDeadError(f"{actor} stopped before handling the message")
            reply_to.set_exception((ActorDeadError, error, None))


def _forked() -> None:
    """In a child: replace the lock of Pykka's registry, which a thread of the parent may have held."""
    ActorRegistry._actor_refs_lock = threading.RLock()


os.register_at_fork(after_in_child=_forked)
