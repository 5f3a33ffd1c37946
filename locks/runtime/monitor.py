"""Erlang-like monitors and links, on every kind of client.

Theory of operation
-------------------
Each client has one `DeathWatch` with the monitors that are notified when it ends. The watch is kept
*on* the subject (in its `__dict__`, or in the inbox of a `GeventActor`), so there is no registry to
search, lock or clean up. A watch goes away with its subject, and the subject is hooked once,
however many monitors come and go. Adding or cancelling a monitor is one dict operation.

How the end is noticed, each without polling:

=========================  =====================================================================
subject                    hook
=========================  =====================================================================
`GeventActor`              its own end fires the watch
any other Pykka actor      `actor_stopped.set` of this actor; and, once it was monitored from
                           within its own thread, the end of that thread
`gevent.Greenlet`          one `rawlink`; and, once it was monitored from within, the end of its
                           thread, which ends it, too
raw `greenlet.greenlet`    a weak reference: best effort. Its end is noticed when it is collected,
                           which is at its end if nobody holds it. The subject of its `Down` is
                           the (dead) weak reference, because the greenlet itself is gone
`threading.Thread`         from within: a sentinel in a native thread-local, which the interpreter
                           clears at the thread's end. From elsewhere: a helper that joins it (a
                           native thread, or a greenlet where threads are greenlets), one for each
                           monitored thread, however many monitors it has. The main thread never
                           ends before the process. A thread that Python did not start ends when
                           the interpreter forgets it: with its outermost call of Python
`Ending`                   the caller of its `end` fires the watch
=========================  =====================================================================

**Exactly once.** A monitor is in the dict of the watch until it is taken out: by `cancel`, by the
end of the subject, or, if the subject ended while the monitor was being added, by `monitor` itself.
`dict.pop` is atomic, so only one of them gets it.

What a thread's function raised can't be seen from outside, so a thread always ends "normal".
"""

from __future__ import annotations

import logging
import operator
import sys
import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import gevent
import greenlet
import pykka
from gevent import getcurrent, monkey

from locks.runtime.bridge import Bridge
from locks.runtime.callables import check_begun, check_callable
from locks.runtime.interrupts import whole
from locks.runtime.native import insist, is_main_thread
from locks.runtime.sentinels import Sentinel, sentinels
from locks.runtime.shown import Shown

__all__ = [
    "CannotMonitor",
    "Client",
    "DeathWatch",
    "Down",
    "Ending",
    "Killed",
    "Monitor",
    "Mortal",
    "acting",
    "current_client",
    "kept_watch",
    "monitor",
    "tell_end",
    "watch_end",
    "watch_of",
]

logger = logging.getLogger("locks.runtime")

# The native classes. Patching replaces them by subclasses, but leaves native threads as they are.
NativeThread: type[threading.Thread] = monkey.get_original("threading", "Thread")
_DummyThread: type[threading.Thread] = monkey.get_original("threading", "_DummyThread")

if TYPE_CHECKING:
    Client: TypeAlias = "pykka.ActorRef[Any] | gevent.Greenlet[..., Any] | greenlet.greenlet | threading.Thread | Ending"

_WATCH = "_locks_watch"  # the attribute of a subject that holds its watch
_NONE: dict[Any, Any] = {}
ACTOR_REF = "_locks_actor_ref"  # the attribute of a `GeventActor`'s greenlet that holds its ref


class Killed(gevent.GreenletExit):
    """Thrown into a greenlet that is killed for a reason."""

    def __init__(self, reason: object = "killed") -> None:
        super().__init__(reason)
        self.reason = reason


class CannotMonitor(TypeError, ValueError):
    """That is no client, or its end can't be noticed."""


class Down(NamedTuple):
    """The message of a monitor: the subject has ended.

    Attributes:
        subject: what was monitored.
        reason: "normal" for return or stop, the exception of a crash, "killed" or what the killer
            gave as its reason, "noproc" if it had ended before it was monitored.
    """

    subject: Any
    reason: Any


class Monitor(metaclass=Shown):
    """A request to be notified of one subject's end.

    Args:
        callback: The function to call.
        surely: Whether to call it again if it was interrupted; then it may be called twice, and its
            exceptions are raised where the end was noticed. Otherwise they are logged.
        is_programs: Whether the callback is the program's, and may block: it is called after all others.
    """

    _for_users = frozenset(("cancel",))

    __slots__ = ("_callback", "_is_cancelled", "_watch", "is_programs", "surely")

    def __init__(
        self,
        callback: Callable[[Down], object],
        surely: bool = False,
        is_programs: bool = False,
    ) -> None:
        self._callback = callback
        self._is_cancelled = False
        self.surely = surely
        self.is_programs = is_programs
        self._watch: DeathWatch | None = None

    def begin_monitoring(self, subject: Client) -> None:
        """Watch a subject; see `monitor`."""
        watch: DeathWatch | None = None
        if isinstance(subject, gevent.Greenlet) and not subject.ready():  # most have one already
            watch = subject.__dict__.get(_WATCH)
        watch = watch or watch_of(subject)
        if watch is None:
            self._notify(Down(subject, "noproc"))
        else:
            watch.add(self, subject)

    def cancel(self) -> None:
        """Don't call back. Does nothing when the callback has run or is running."""
        self._is_cancelled = True
        watch = self._watch
        if (
            watch is not None
            and watch.monitors.pop(self, watch) is None
            and not watch.monitors
            and type(watch) is not DeathWatch
        ):
            watch.forsaken()

    @property
    def target(self) -> Callable[[Down], object]:
        """The callback."""
        return self._callback

    def __call__(self, down: Down) -> None:
        """Call back, in a thread that may be blocked, unless it was cancelled meanwhile."""
        if not self._is_cancelled:
            self._notify(down)

    def _notify(self, down: Down) -> None:
        if self.surely:
            try:
                self._callback(down)
            except BaseException:
                insist(self._callback, down)
                raise
            return
        try:
            check_begun(self._callback(down), "the callback")
        except Exception:
            logger.exception("a monitor's callback failed: %r", down)


class DeathWatch:
    """The monitors of one subject's end."""

    __slots__ = ("__weakref__", "_late", "ended", "monitors")

    def __init__(self) -> None:
        self.ended = False
        self.monitors: dict[Monitor, None] = {}
        self._late: object = "noproc"

    @whole
    def fire(
        self,
        subject: object,
        reason: object,
        late: object = "noproc",
        tell: Callable[..., object] | None = None,
    ) -> None:
        """Notify the monitors of the subject's end. Only the first call counts.

        Args:
            subject: the subject.
            reason: why it has ended.
            late: the reason for later monitors.
            tell: what calls the program's callbacks with their arguments; without it, they are called here.
        """
        try:
            self._fire(subject, reason, late, tell)
        except BaseException:  # after any interruption, notify the remaining ones
            insist(self._fire, subject, reason, late, tell)
            raise

    def _fire(
        self, subject: object, reason: object, late: object, tell: Callable[..., object] | None
    ) -> None:
        self._late = late
        self.ended = True
        if self.monitors:
            self._notify_all(Down(subject, reason), tell)

    def add(self, monitor: Monitor, subject: object) -> None:
        """Tell the monitor of the end, at once if it has come."""
        monitor._watch = self
        self.monitors[monitor] = None
        if self.ended:
            # `fire` may not have seen this one.
            self._notify_all(Down(subject, self._late))

    def forsaken(self) -> None:
        """No monitor is left: the last one was cancelled."""

    def _notify_all(self, down: Down, tell: Callable[..., object] | None = None) -> None:
        at_hand: Monitor | None = None
        try:
            for monitor in sorted(self.monitors, key=_is_programs):
                at_hand = monitor if monitor.surely else None
                if self.monitors.pop(monitor, down) is not None:
                    continue
                if tell is not None and monitor.is_programs:
                    tell(monitor, down)
                else:
                    monitor._notify(down)
        except BaseException:
            if at_hand is not None:  # it is unknown whether it was notified
                self.monitors[at_hand] = None
                at_hand._notify(down)
                self.monitors.pop(at_hand, None)
            raise


_is_programs = operator.attrgetter("is_programs")


class Mortal:
    """The inbox of an actor that can be watched and killed.

    Attributes:
        watch: its monitors.
        for_users: whether users may kill it, by its reference.
    """

    __slots__ = ()

    watch: DeathWatch
    for_users: ClassVar[bool] = False

    def kill(self, reason: object) -> None:
        """End the actor soon, whatever it is doing."""
        raise NotImplementedError


class Ending:
    """A client that does not run by itself: the program ends it.

    Attributes:
        watch: its monitors.
        waiting: the agents with which it waits, in several threads; some waits may be over.
    """

    __slots__ = ("__weakref__", "waiting", "watch")

    def __init__(self) -> None:
        self.watch = DeathWatch()
        self.waiting: dict[Any, None] = {}

    def end(self, reason: object = "normal") -> None:
        """End it: notify its monitors. Only the first call counts."""
        self.watch.fire(self, reason)


if not TYPE_CHECKING:  # for `typing.get_type_hints`; gevent's greenlets can't be subscripted
    Client = pykka.ActorRef[Any] | gevent.Greenlet | greenlet.greenlet | threading.Thread | Ending

acting: ContextVar[Ending | None] = ContextVar("acting", default=None)
"""The client that the caller acts for, if it is not the caller itself."""


def watch_end(subject: Client, callback: Callable[[Down], object]) -> Monitor:
    """The same as `monitor`, for callbacks of `locks` itself: they never block, and are called before those of the program."""
    new = Monitor(callback)
    new.begin_monitoring(subject)
    return new


def monitor(subject: Client, callback: Callable[[Down], object]) -> Monitor:
    """Call `callback(Down)` once, as soon as the subject ends, or now if it has ended.

    The callback runs in the thread that notices the end, perhaps in a hub or in a thread that is
    nearly gone; of a transaction, and of what is on another node, in a thread for the program's callbacks. If it blocks, it holds up
    that thread and the program's other monitors of the same subject, and nothing else. It is not called after
    `cancel` has returned, unless it is being called at that moment by another thread.

    Raises:
        CannotMonitor: for something that is not a client; for a thread that wasn't started, or one
            that Python's `threading` didn't start, if called from outside of it: its end can't be
            noticed from there.
        InvalidOption: The callback can't be called, or is a coroutine function or a generator.
    """
    check_callable(callback, "callback")
    new = Monitor(callback, is_programs=True)
    new.begin_monitoring(subject)
    return new


def current_client() -> Client:
    """Return the owner for which the caller acts, or else the caller: an actor's ref, greenlet or thread.

    The same context always gets the same object. In a thread's main greenlet that is the thread's
    `threading.Thread`. Where threads are greenlets (monkey-patched), it is the greenlet, whose end
    can be noticed.
    """
    owner = acting.get()
    if owner is not None:
        return owner
    current = getcurrent()
    if isinstance(current, gevent.Greenlet):
        ref: pykka.ActorRef[Any] | None = current.__dict__.get(ACTOR_REF)
        if ref is not None:
            return ref
        thread = getattr(threading, "_active", _NONE).get(id(current))  # as `_green_thread`
        return current if thread is None else _actor_of(thread) or current
    if current.parent is not None:
        # A simulated actor has its reference at the same place as a greenlet of gevent.
        simulated: pykka.ActorRef[Any] | None = current.__dict__.get(ACTOR_REF)
        if simulated is not None:
            return simulated
        return current.client if type(current) is Bridge else current
    thread = threading.current_thread()
    return _actor_of(thread) or thread


def watch_of(subject: Client) -> DeathWatch | None:
    """Return the subject's watch, hooked to its end; None if it has ended."""
    if isinstance(subject, gevent.Greenlet):
        if subject.ready():
            return None
        return subject.__dict__.get(_WATCH) or _watch_greenlet(subject)
    if isinstance(subject, Ending):
        return subject.watch
    if isinstance(subject, pykka.ActorRef):
        inbox = subject.actor_inbox
        if isinstance(inbox, Mortal):
            return inbox.watch
        return _watch_of_foreign_actor(subject)
    if isinstance(subject, NativeThread):
        return _watch_of_thread(subject)
    if isinstance(subject, greenlet.greenlet):
        return _watch_of_raw_greenlet(subject)
    raise CannotMonitor(
        f"can't monitor {subject!r}: it is not an actor's reference, a greenlet, a thread or an owner"
    )


def kept_watch(subject: Client) -> DeathWatch | None:
    """The watch that a greenlet or a thread has already, if it has one. This is fast, and does not say whether it has ended."""
    watch: DeathWatch | None = getattr(subject, "__dict__", _NONE).get(_WATCH)
    return watch


# Two threads that hook the same subject at the same time get the same watch (`setdefault`) and may
# both hook it. That is harmless, since only the first `fire` counts.


def _watch_greenlet(subject: gevent.Greenlet[..., Any]) -> DeathWatch:
    watch: DeathWatch = subject.__dict__.setdefault(_WATCH, DeathWatch())
    subject.rawlink(_greenlet_ended)
    if subject.ready():
        # It ended in its own thread meanwhile; it is unknown whether our link was called.
        _greenlet_ended(subject)
    elif getcurrent() is subject and not is_main_thread():
        sentinels()[subject] = Sentinel(subject, partial(_tell_greenlet, subject))
    return watch


@whole
def _greenlet_ended(subject: gevent.Greenlet[..., Any]) -> None:
    subject.__dict__[_WATCH].fire(subject, end_reason(subject))
    if not is_main_thread():
        sentinels().pop(subject, None)


def _tell_greenlet(subject: gevent.Greenlet[..., Any]) -> None:
    reason = end_reason(subject) if subject.ready() else "its thread has ended"
    subject.__dict__[_WATCH].fire(subject, reason)


def end_reason(subject: gevent.Greenlet[..., Any]) -> object:
    """Return why a greenlet has ended, in the form of `Down`."""
    if subject.exception is not None:
        return subject.exception
    value = subject.value
    if isinstance(value, Killed):
        return value.reason
    return "killed" if isinstance(value, gevent.GreenletExit) else "normal"


_raw_watches: dict[weakref.ref[greenlet.greenlet], DeathWatch] = {}


def _watch_of_raw_greenlet(subject: greenlet.greenlet) -> DeathWatch | None:
    if subject.dead:
        return None
    watch: DeathWatch | None = subject.__dict__.get(_WATCH)
    if watch is None:
        watch = subject.__dict__.setdefault(_WATCH, DeathWatch())
        _raw_watches[weakref.ref(subject, _raw_greenlet_ended)] = watch
    return watch


@whole
def _raw_greenlet_ended(ref: weakref.ref[greenlet.greenlet]) -> None:
    _raw_watches.pop(ref).fire(ref, "normal")


def tell_end(subject: greenlet.greenlet, reason: object) -> None:
    """Report that a raw greenlet has ended, so that its monitors need not wait for its collection."""
    watch: DeathWatch | None = subject.__dict__.get(_WATCH)
    if watch is not None:
        watch.fire(subject, reason)


def _watch_of_foreign_actor(subject: pykka.ActorRef[Any]) -> DeathWatch | None:
    stopped: Any = subject.actor_stopped
    watch: DeathWatch | None = subject.__dict__.get(_WATCH)
    if watch is None:
        if stopped.is_set():
            return None
        watch = subject.__dict__.setdefault(_WATCH, DeathWatch())
        if hasattr(stopped, "rawlink"):  # a patched `threading.Event`
            stopped.rawlink(lambda _: watch.fire(subject, "normal"))
        else:
            _hook_set(stopped, watch, subject)
        if stopped.is_set():
            watch.ended = True
    if _THREAD_HOOKED not in subject.__dict__ and current_client() is subject:
        # Its thread may end without stopping it: `SystemExit` in `on_start`, for one.
        subject.__dict__[_THREAD_HOOKED] = True
        own = _watch_of_thread(_thread_here())
        if own is not None:
            own.add(Monitor(lambda down: watch.fire(subject, down.reason)), subject)
    return watch


_THREAD_HOOKED = "_locks_thread_hooked"


def _hook_set(stopped: Any, watch: DeathWatch, subject: pykka.ActorRef[Any]) -> None:
    original = stopped.set

    @whole
    def set_and_tell() -> None:
        # Pykka stops a crashed actor inside of the `except` clause that caught the crash.
        error = sys.exc_info()[1]
        try:
            original()
        finally:
            watch.fire(subject, "normal" if error is None else error)
            stopped.__dict__.pop("set", None)  # else event and hook keep each other alive

    stopped.set = set_and_tell


def _watch_of_thread(subject: threading.Thread) -> DeathWatch | None:
    watch: DeathWatch | None = subject.__dict__.get(_WATCH)
    if watch is not None:
        return watch
    new = DeathWatch()
    if subject is threading.main_thread():
        pass
    elif subject is _thread_here():
        current = getcurrent()
        if isinstance(current, gevent.Greenlet) and _green_thread(current) is subject:
            watch_end(current, lambda down: new.fire(subject, down.reason))
        else:
            sentinels()[subject] = Sentinel(subject, partial(new.fire, subject, "normal"))
    elif subject.ident is None:
        raise CannotMonitor(f"can't monitor {subject!r}: the thread was not started")
    elif not subject.is_alive():
        return None
    elif isinstance(subject, _DummyThread):
        raise CannotMonitor(f"can't monitor {subject!r}: only that thread itself can")
    elif monkey.is_module_patched("threading"):
        gevent.spawn(_join, subject, new)
    else:
        threading.Thread(
            target=_join, args=(subject, new), name="locks-monitor", daemon=True
        ).start()
    kept: DeathWatch = subject.__dict__.setdefault(_WATCH, new)
    return kept


def _join(subject: threading.Thread, watch: DeathWatch) -> None:
    subject.join()
    watch.fire(subject, "normal")


def _green_thread(current: greenlet.greenlet) -> threading.Thread | None:
    """Return the patched `threading.Thread` that the greenlet is, if it is one."""
    # `threading` lists its threads by ident, which is the greenlet's id where patched. Not
    # `current_thread()`, which invents a dummy thread for each greenlet.
    active: dict[int, threading.Thread] = getattr(threading, "_active", {})
    return active.get(id(current))


def _thread_here() -> threading.Thread:
    """Return the caller's thread, a patched one if the caller is one."""
    return _green_thread(getcurrent()) or threading.current_thread()


def _actor_of(thread: threading.Thread) -> pykka.ActorRef[Any] | None:
    """Return the ref of the Pykka actor whose loop the thread runs, if it runs one."""
    # Pykka has no public way to ask this. If `threading` forgets its target some day, an actor's
    # client is its thread, which lives just as long.
    actor = getattr(getattr(thread, "_target", None), "__self__", None)
    # `isinstance` takes long: `pykka.Actor` is an abstract class.
    return None if actor is None or not isinstance(actor, pykka.Actor) else actor.actor_ref
