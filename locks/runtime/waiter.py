"""Blocking and waking across greenlets, hubs and native threads.

Theory of operation
-------------------
Four small things:

- `Mailbox`: the way into one gevent hub from any thread. It is a deque plus an async watcher, the
  only libev call that is safe while the loop runs without the GIL. (`loop.run_callback_threadsafe`
  also increments the loop's reference count, which the running loop changes without the GIL.)
- `Waiter`: one blocking wait of one caller.
- `Event`: opens once, for any number of callers.
- `Channel`: a queue with many senders and one receiver, which sleeps on a `Waiter`.

**Why is no wake-up lost?** `Waiter.wait` first publishes how it can be woken (`_parked`), and then
checks `_woken`. `Waiter.wake` first sets `_woken`, and then checks `_parked`. Under the GIL the
four steps have one order, in which the check of at least one side comes after the first step of the
other. So either the waiter sees that it was woken and doesn't block, or the waker sees where the
waiter is parked and wakes it. Both may happen, which is harmless: a native lock belongs to one
wait, and `_resume` runs in the waiter's own hub and switches only while `_greenlet` shows that the
greenlet is still parked here. The same argument holds for `Event` and `Channel`. No lock is taken,
so a signal handler or a finaliser that wakes a waiter can't deadlock.

**What keeps a loop alive?** gevent ends a loop with `LoopExit` when it has nothing to wait for.
Another thread, which the loop doesn't know, may wake a caller in a wait. So a wait keeps the loop
alive. The idle wait of a background greenlet (`idle=True`) doesn't.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import gevent
from gevent import getcurrent
from gevent._hub_local import get_hub_if_exists

from locks.errors import BlocksEventLoop
from locks.runtime.bridge import Bridge
from locks.runtime.hub_life import at_end
from locks.runtime.native import get_ident, native_lock
from locks.runtime.port import Place, world

if TYPE_CHECKING:
    from collections.abc import Callable

    from gevent.hub import Hub
    from typing_extensions import TypeVarTuple, Unpack

    Ts = TypeVarTuple("Ts")

__all__ = [
    "Channel",
    "Event",
    "Mailbox",
    "Waiter",
    "get_hub_if_exists",
    "mailbox_if_exists",
    "mailbox_of",
    "run_in_hub",
]

T = TypeVar("T")


class Mailbox:
    """The way into one hub from any thread: what is posted runs in the hub, in order."""

    __slots__ = ("__weakref__", "_blocked", "_posted", "_watcher", "hub")

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._blocked = 0
        self._posted: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._watcher: Any = hub.loop.async_(ref=False)
        self._watcher.start(self._run_posted)
        at_end(hub, self._watcher.stop)
        _mailboxes.add(self)

    def post(self, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> None:
        """Run `function(*args)` in the hub soon. Never blocks; the function must not block either.

        After the hub was destroyed, this does nothing, because no greenlet can wait there any more.
        The same holds in a forked child, if the hub's thread is in the parent.
        """
        watcher = self._watcher
        if watcher is None:
            return
        self._posted.append((function, args))
        try:
            watcher.send()
        except (ValueError, AttributeError, TypeError):
            # The different loops report in this way that they were destroyed.
            if self.hub.loop is not None:
                raise

    def soon(self, function: Callable[[], object]) -> None:
        """Run `function()` in the hub soon, by the cheapest way from where the caller is."""
        if is_here(self.hub):
            self.hub.loop.run_callback(function)
        else:
            self.post(function)

    def hold(self) -> None:
        """Keep the loop alive until the matching `release_hold`. Only in the hub's thread."""
        self._blocked += 1
        if self._blocked == 1:
            self._watcher.ref = True

    def release_hold(self) -> None:
        """Undo one `hold`. Only in the hub's thread."""
        self._blocked -= 1
        if self._blocked == 0 and self.hub.loop is not None:
            self._watcher.ref = False

    def rest(self, begun: Callable[[], object]) -> None:
        """Block the whole thread until a function is posted. This must be posted itself.

        Args:
            begun: called when any later post will end the sleep.
        """
        watcher, self._watcher = self._watcher, _Resting()
        try:
            begun()
            self._watcher.sleep()
        finally:
            self._watcher = watcher
        watcher.send()

    def leave_to_parent(self) -> None:
        """In a forked child: the hub's thread is in the parent, and so is the loop that would be woken."""
        self._watcher = None
        self._posted.clear()

    def _run_posted(self) -> None:
        # Only functions that are queued now: senders that never pause must not starve the loop.
        for _ in range(len(self._posted)):
            function, args = self._posted.popleft()
            try:
                function(*args)
            except BaseException as error:
                self.hub.handle_error(function, type(error), error, error.__traceback__)
        if self._posted:
            self._watcher.send()


class _Resting:
    """Stands for the watcher of a hub whose thread sleeps: sending ends the sleep."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = native_lock()
        self._lock.acquire()

    def sleep(self) -> None:
        """Sleep until a function is posted."""
        self._lock.acquire()

    def send(self) -> None:
        """End the sleep."""
        with suppress(RuntimeError):  # another caller has released it as well
            self._lock.release()


_mailboxes: weakref.WeakSet[Mailbox] = weakref.WeakSet()


def is_here(hub: Hub) -> bool:
    """Whether a hub is that of the caller's thread. A thread that is about to end must not ask gevent, which would keep a thread-local for ever."""
    return hub.thread_ident == get_ident() and get_hub_if_exists() is hub


def run_in_hub(hub: Hub, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> None:
    """Run `function(*args)` in any hub soon, from any thread, whether it has a mailbox or not."""
    mailbox = mailbox_if_exists(hub)
    if is_here(hub):
        hub.loop.run_callback(function, *args)
    elif mailbox is not None:
        mailbox.post(function, *args)
    elif hub.loop is not None:
        hub.loop.run_callback_threadsafe(function, *args)


def mailbox_if_exists(hub: Hub) -> Mailbox | None:
    """Return the hub's mailbox, if it has one."""
    mailbox: Mailbox | None = hub.__dict__.get("_locks_mailbox")
    return mailbox


def mailbox_of(hub: Hub) -> Mailbox:
    """Return the hub's mailbox, made on first use. Only in the hub's thread."""
    mailbox = mailbox_if_exists(hub)
    if mailbox is None:
        mailbox = hub.__dict__["_locks_mailbox"] = Mailbox(hub)
    return mailbox


class Waiter:
    """One blocking wait of one caller, woken from anywhere.

    The caller that waits creates it and hands it to the code that will call `wake`. It works once:
    after `wake` it stays woken.
    """

    __slots__ = ("_greenlet", "_parked", "_woken")

    _greenlet: Any  # the greenlet that `_resume` may switch to; set only while it blocks in a hub

    def __init__(self) -> None:
        self._woken = False
        # Where the caller blocks: the native lock that it sleeps on, its hub's mailbox, or its
        # parent's `Parked`.
        self._parked: Any = None

    def __repr__(self) -> str:
        state = "woken" if self._woken else "parked" if self._parked is not None else "idle"
        return f"<Waiter {state}>"

    @property
    def woken(self) -> bool:
        """Whether `wake` was called."""
        return self._woken

    def wake(self) -> None:
        """End the wait, or the need for it.

        From any thread, greenlet or hub, before or during the wait, more than once. Never blocks
        and never switches greenlets.
        """
        self._woken = True
        parked = self._parked
        if parked is None:
            return
        if type(parked) is Mailbox:
            parked.soon(self._resume)
            return
        try:
            parked.release()
        except RuntimeError:  # someone else woke it as well, or its event loop was closed
            return

    def wait(self, timeout: float | None = None, *, idle: bool = False) -> bool:
        """Block until woken.

        In a thread with a hub, only the calling greenlet blocks; in any other thread, the thread
        blocks; in a `Bridge`, its parent waits. An exception raised into the waiting context
        (`gevent.Timeout`, `GreenletExit`, `KeyboardInterrupt`) propagates, and a later `wake` does
        no harm.

        Args:
            timeout: seconds, or None to wait without limit.
            idle: whether this wait is no reason to keep the hub's loop running.

        Returns:
            True if woken, False if the time ran out.

        Raises:
            BlocksEventLoop: in the hub's own greenlet, which must never block.
            RuntimeError: if another caller already waits.
        """
        if self._woken:
            return True
        if timeout is not None and timeout <= 0:
            world().look()
            return self._woken
        if self._parked is not None:
            raise RuntimeError("another caller is already waiting with this Waiter")
        if (place := world().place()) is not None:
            return self._wait_at(place, timeout)
        current = getcurrent()
        if type(current) is Bridge:
            return self._wait_in_bridge(current, timeout)
        hub = get_hub_if_exists()
        if hub is None:
            return self._wait_in_thread(timeout)
        return self._wait_in_hub(hub, timeout, idle)

    def _wait_at(self, place: Place, timeout: float | None) -> bool:
        self._parked = place
        try:
            place.wait(timeout)
        finally:
            self._parked = None
        return self._woken

    def _wait_in_bridge(self, bridge: Bridge, timeout: float | None) -> bool:
        parked = self._parked = bridge.park()
        try:
            if not self._woken:
                bridge.wait(parked, timeout)
        finally:
            self._parked = None
        return self._woken

    def _wait_in_thread(self, timeout: float | None) -> bool:
        lock = native_lock()
        lock.acquire()
        self._parked = lock
        try:
            if not self._woken:
                lock.acquire(timeout=-1 if timeout is None else min(timeout, threading.TIMEOUT_MAX))
        finally:
            self._parked = None
        return self._woken

    def _wait_in_hub(self, hub: Hub, timeout: float | None, idle: bool) -> bool:
        current = getcurrent()
        if current is hub:
            raise BlocksEventLoop(
                "can't wait in the hub's own greenlet (in a callback of a timer, a link or a watcher): it "
                "would stop every greenlet of this thread. Spawn a greenlet for the call"
            )
        mailbox: Mailbox = hub.__dict__.get("_locks_mailbox") or mailbox_of(hub)
        timer: Any = None
        if not idle:
            mailbox.hold()
        try:
            self._parked = mailbox
            if timeout is not None:
                timer = hub.loop.timer(timeout)
                timer.start(self._resume, update=True)
            # A loop, because foreign code may switch into this greenlet by mistake.
            while True:
                if self._woken or not (timer is None or timer.active):
                    break
                self._greenlet = current
                hub.switch()
        finally:
            self._greenlet = None
            self._parked = None
            if not idle:
                mailbox.release_hold()
            if timer is not None:
                timer.stop()
                timer.close()
        return self._woken

    def _resume(self) -> None:
        """Switch to the waiting greenlet, if it still waits. Runs in the hub."""
        greenlet = self._greenlet
        if greenlet is not None:
            self._greenlet = None
            greenlet.switch()


class Event:
    """Opens once; any number of callers, in any contexts, wait for it."""

    __slots__ = ("_open", "_waiters")

    def __init__(self) -> None:
        self._open = False
        self._waiters: list[Waiter] = []

    @property
    def is_open(self) -> bool:
        """Whether callers may pass."""
        return self._open

    def open(self) -> None:
        """Let all callers pass, from now on. From anywhere; never blocks."""
        self._open = True
        for waiter in tuple(self._waiters):
            waiter.wake()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until open; False if the time ran out. See `Waiter.wait`."""
        if self._open:
            return True
        waiter = Waiter()
        self._waiters.append(waiter)
        try:
            # Check again after the waiter can be seen: `open` may have run meanwhile.
            return self._open or waiter.wait(timeout)
        finally:
            self._waiters.remove(waiter)


class Channel(Generic[T]):
    """A first-in first-out queue of many senders, from anywhere, and one receiver.

    Each item is either received or refused, exactly once.
    """

    __slots__ = ("_items", "_receiver", "_refuse")

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._receiver: Waiter | None = None
        self._refuse: Callable[[T], object] | None = None

    def __len__(self) -> int:
        return len(self._items)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._refuse is not None

    def send(self, item: T) -> None:
        """Append the item, or refuse it after `close`. Never blocks, never switches greenlets."""
        self._items.append(item)
        receiver = self._receiver
        if receiver is not None:
            receiver.wake()
        elif self._refuse is not None:
            self._refuse_all()

    def receive(self) -> T:
        """Take the oldest item; wait, as an idle greenlet, while there is none."""
        while not self._items:
            waiter = self._receiver = Waiter()
            try:
                if not self._items:
                    waiter.wait(idle=True)
            finally:
                if (
                    self._receiver is waiter
                ):  # otherwise another receiver came after one that gave up
                    self._receiver = None
        return self._items.popleft()

    def clear(self) -> None:
        """Forget all queued items."""
        self._items.clear()

    def close(self, refuse: Callable[[T], object]) -> None:
        """Call `refuse(item)` for all queued items and, in their senders, for all later ones.

        Only the receiver may close, or any caller once the receiver is gone.
        """
        self._refuse = refuse
        self._refuse_all()

    def _refuse_all(self) -> None:
        # The closer and senders may do this at the same time: each `popleft` has one taker.
        refuse = self._refuse
        while refuse is not None:
            try:
                item = self._items.popleft()
            except IndexError:
                return
            refuse(item)


def _forked() -> None:
    """In a child: only the hub of the thread that has forked is here, and its loop gets descriptors of its own."""
    hub = get_hub_if_exists()
    for mailbox in list(_mailboxes):
        if mailbox.hub is not hub:
            mailbox.leave_to_parent()
        elif hub.loop is not None:
            gevent.reinit(hub)  # a plain `os.fork` does not: it would take the parent's wake-ups


os.register_at_fork(after_in_child=_forked)
