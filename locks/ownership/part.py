"""One part that a worker takes, from joining to leaving, under any coordinator.

Tasks are begun and ended in the threads or greenlets of the program. What is granted and asked back
comes from the coordinator, in the background. Both meet in `Part`, under a lock that is held for a
few instructions only. Callbacks run in the background, one at a time: `on_gained` before the first
task of the group is begun, `on_lost` after the last one is over, and before the next owner gets it.

Signal handlers run in the middle of that. So `stop` waits for no lock: if it is held,
`stop` is carried out as soon as it is let go. And a `KeyboardInterrupt` is held back while a task is
entered as begun or ended: otherwise the task would be at hand for ever, and the worker could not leave. Other
exceptions from outside may tear the end of a block; then the task ends when its block's object is dropped.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any, TypeVar

from locks.errors import InvalidOption, assert_never
from locks.ownership.backlog import Backlog
from locks.ownership.errors import OwnershipEnded
from locks.ownership.member import Member
from locks.ownership.messages import (
    Closed,
    FromWorker,
    Gone,
    Grant,
    GroupsReleased,
    Idle,
    Leaving,
    Renew,
    Revoke,
    ToParticipant,
    Welcome,
)
from locks.runtime import Client, Event, Waiter, interrupts, monitor
from locks.runtime.native import native_lock

__all__ = ["Part"]

T = TypeVar("T")

# It is the next group's turn after so many seconds, or tasks. A look at the clock for each task would
# cost as much as a short task; so the number of tasks in a slice follows the time that they take.
SLICE_SECONDS = 0.001
MOST_IN_SLICE = 4096


def next_slice(done: int, seconds: float) -> int:
    """How many tasks there are to be in a slice, if the last one took so long for so many."""
    if not done:
        return 1
    return max(1, min(MOST_IN_SLICE, round(done * SLICE_SECONDS / max(seconds, 1e-9)), 4 * done))


class _State:
    """The lock around what a part knows. What is posted is done with it, at once or when it is free."""

    def __init__(self) -> None:
        self._lock = native_lock()
        self._posted: deque[Callable[[], object]] = deque()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if self._posted:
            self._run_posted()

    def post(self, function: Callable[[], object]) -> None:
        """Call a function with the lock, now or as soon as it is let go. From anywhere."""
        self._posted.append(function)
        self._run_posted()

    def _run_posted(self) -> None:
        while self._posted and self._lock.acquire(False):
            try:
                while self._posted:
                    self._posted.popleft()()
            finally:
                self._lock.release()


class Part:
    """One part that a worker takes, from joining to leaving. The shells tell it what it gets.

    Args:
        name: What is shared out.
        client: The thread, greenlet or actor that has joined: when it ends, so does the part.
        on_gained: Called with each group that is granted, and its token.
        on_lost: Called with each group that was let go.

    Attributes:
        over: Opens when it has ended.
        reason: Why, then: `"normal"` or an exception.
        agreements: How many agreements it was told of.
    """

    def __init__(
        self,
        name: Hashable,
        client: Client,
        on_gained: Callable[[int, int], object] | None = None,
        on_lost: Callable[[int], object] | None = None,
    ) -> None:
        self.name = name
        self._on_gained = on_gained
        self._on_lost = on_lost
        self.member = Member()
        self.over = Event()
        self.reason: object = None
        self.agreements = 0
        self.done = 0
        self.backlog: Backlog[Any] | None = None
        self.stopping = False
        self.leaves = False  # because it was told to
        self._tell: Callable[[FromWorker], object] = lambda message: None
        self.running = native_lock()  # held while it runs a backlog
        self._lock = _State()
        self._idle: set[Waiter] = set()
        self._slice = 16
        self._finished: list[int] = []  # asked back, and the last task is over
        try:
            self._monitor = monitor(client, lambda _: self._tell(Gone()))
        except (TypeError, ValueError) as error:
            raise InvalidOption(
                f"nobody could tell when the caller, {client!r}, has ended: {error}. Join in a "
                "thread of `threading`, a greenlet or an actor",
                client=repr(client),
            ) from None

    # --- By its participant, in the background ------------------------------------------------------

    def took_part(self, tell: Callable[[FromWorker], object]) -> None:
        """It has a participant: how to tell it something, from any thread."""
        self._tell = tell
        if self.stopping:  # meanwhile, or `join` was left by an exception
            tell(Gone())

    def told(self, message: ToParticipant | Idle | Leaving) -> GroupsReleased | Leaving | None:
        """The participant was told something, by the session or by the worker's own threads.

        Returns:
            What the session is to be told.
        """
        released: list[int] = []
        match message:
            case Revoke():
                released = self.revoked(message.groups)
            case Grant():
                self.granted(message.groups, message.token)
            case Renew():
                self.renewed(message.groups, message.token)
            case Idle():
                released = self.settle()
            case Welcome():
                self.resume()
            case Closed():
                self.suspend()
            case Leaving():
                return message
            case _:
                assert_never(message)
        return GroupsReleased(tuple(released)) if released else None

    def granted(self, groups: Iterable[int], token: int) -> None:
        """Groups are its own: the callback is told of each, then tasks may be begun."""
        for group in groups:
            if self._on_gained is not None:
                self._on_gained(group, token)
            with self._lock:
                self.member.granted(group, token)
        self.wake()

    def renewed(self, groups: Iterable[int], token: int) -> None:
        """Groups that are its own, and stay, have a larger token."""
        with self._lock:
            self.member.renewed(groups, token)

    def revoked(self, groups: Iterable[int]) -> list[int]:
        """Groups are asked back.

        Returns:
            Those that are let go; the participant will be told `Idle` for the others.
        """
        with self._lock:
            idle = self.member.revoked(groups)
        self.tell_lost(idle)
        return idle

    def suspend(self) -> None:
        """Begin nothing for now."""
        with self._lock:
            self.member.suspend()

    def settle(self) -> list[int]:
        """Tell the callback of groups that were asked back and whose last task is over.

        Returns:
            Those groups: they are let go, now.
        """
        with self._lock:
            groups, self._finished = self._finished, []
        self.tell_lost(groups)
        return groups

    def report(self) -> dict[int, int]:
        """Begin nothing for now, and tell what was not let go: the token of each group."""
        with self._lock:
            held = self.member.report()
            finished, self._finished = self._finished, []
        self.tell_lost(finished)
        return held

    def resume(self) -> None:
        """Go on."""
        with self._lock:
            if not self.stopping:
                self.member.resume()
        self.wake()

    def tell_lost(self, groups: Iterable[int]) -> None:
        """Tell the callback of groups that were let go."""
        if self._on_lost is not None:
            for group in groups:
                self._on_lost(group)

    def ended(self, reason: object) -> None:
        """The part is over."""
        self._monitor.cancel()
        self.reason = reason
        self.over.open()  # first: a thread that sees it stopping may ask whether it has failed
        with self._lock:
            self.stopping = True
            self.member.suspend()
        self.wake()

    def left(self, reason: object = "normal") -> None:
        """The part is over in good order: the callback is told of all that it still had."""
        try:
            self.tell_lost(self.report())
        except Exception as error:
            self.ended(error)
            raise
        self.ended(reason)

    @interrupts.whole
    def broken_off(self, error: BaseException) -> None:
        """`join` was left by an exception: the participant may be there, or may be on its way."""
        self.ended(error)
        self._tell(Gone())

    def abandon(self) -> None:
        """In a forked child: the part is taken in the parent. Who waits here, or leaves a block, goes on."""
        self._tell = lambda message: None
        self._lock = _State()  # a thread of the parent may have had it at the fork
        self.reason = OwnershipEnded(f"this worker's part in {self.name!r} is the parent process's")
        self.stopping = True
        self.over.open()
        self.wake()

    # --- From the program, in its own threads -------------------------------------------------------

    def begin(self, group: int) -> int | None:
        """Begin a task of a group; `None` if none may be begun."""
        with self._lock:
            return self.member.begin(group)

    def end(self, group: int) -> None:
        """A task is over. From anywhere, also from a finaliser: it waits for no lock."""
        shield = interrupts.enter()
        try:
            self._lock.post(partial(self._end, group))
        finally:
            interrupts.leave(shield)

    def _end(self, group: int) -> None:
        idle = self.member.end(group)
        if idle:
            self._finished.append(group)
            self._tell(Idle())
        if self.stopping and not self.member.at_hand:
            self._tell(Gone())

    def task(self, group: int) -> Task:
        """Do a task of a group, in a `with` block: its token, or `None` if none may be begun."""
        return Task(self, group)

    @interrupts.whole
    def stop(self, now: bool) -> None:
        """Begin nothing more; end when no task is at hand, or at once."""
        self._lock.post(partial(self._stop, now))

    def _stop(self, now: bool) -> None:
        self.stopping = self.leaves = True
        self.member.suspend()
        drained = now or not self.member.at_hand
        self._tell(Gone() if drained else Leaving())
        self.wake()

    def wake(self) -> None:
        """Have an idle worker look again."""
        for waiter in tuple(self._idle):
            waiter.wake()

    def work(self, group: int, tasks: Backlog[T], handler: Callable[[T, int], object]) -> int:
        """Do some tasks of one group; tell how many."""
        if not tasks.waiting((group,)):
            return 0
        done = 0
        with self.task(group) as token:
            if token is None:
                return 0
            line = tasks.line(group, token)
            owned, take_out = self.member.owned, line.popleft
            most = min(self._slice, len(line))
            begun = time.perf_counter()
            try:
                for done in range(most):  # noqa: B007, it is what `finally` looks at
                    if owned.get(group) != token:  # asked back, or renewed
                        break
                    handler(line[0], token)
                    take_out()
                else:
                    done = most
                self._slice = next_slice(done, time.perf_counter() - begun)
            finally:
                self.done += done
        return done

    def wait_for_work(self, tasks: Backlog[Any]) -> None:
        """Wait until there may be something to do."""
        waiter = Waiter()
        self._idle.add(waiter)
        tasks.idle(waiter)
        try:
            if not (self.stopping or tasks.finished or tasks.waiting(tuple(self.member.owned))):
                waiter.wait()
        finally:
            tasks.busy(waiter)
            self._idle.discard(waiter)

    def check_failed(self) -> None:
        """Raise an error if it has ended by one, or without being told to."""
        if self.over.is_open and (not self.leaves or isinstance(self.reason, Exception)):
            why, cause = "the node was stopped, or its client has ended", None
            if isinstance(self.reason, Exception):
                why, cause = repr(self.reason), self.reason
            raise OwnershipEnded(f"this worker's part in {self.name!r} has ended: {why}") from cause


class Task:
    """A task that is at hand for as long as its block, or, if an exception tears its end, until it is dropped."""

    __slots__ = ("_begun", "_group", "_part")

    def __init__(self, part: Part, group: int) -> None:
        self._begun = False
        self._part = part
        self._group = group

    @interrupts.whole
    def __enter__(self) -> int | None:
        try:
            shield = interrupts.enter()
            try:
                token = self._part.begin(self._group)
                self._begun = token is not None
            finally:
                interrupts.leave(shield)
        except BaseException:
            self.__exit__()
            raise
        return token

    @interrupts.whole
    def __exit__(self, *_: object) -> None:
        if self._begun:
            self._begun = False
            self._part.end(self._group)

    @interrupts.whole
    def __del__(self) -> None:
        if getattr(self, "_begun", False):
            self.__exit__()
