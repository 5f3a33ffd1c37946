"""One worker's part in an ownership, whoever coordinates it: what users hold in their hands.

Tasks are begun and ended in the threads or greenlets of the program. What is granted and asked back
comes from the coordinator, in the background. Both meet in `Part`, under a lock that is held for a
few instructions only. Callbacks run in the background, one at a time: `on_gained` before the first
task of the group is begun, `on_lost` after the last one is over, and before anybody else gets it.
"""

from __future__ import annotations

import os
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import gevent

from locks.errors import InvalidOption, MisuseError
from locks.ownership.backlog import Backlog
from locks.ownership.errors import NotOwner, OwnershipEnded
from locks.ownership.groups import Grouping
from locks.ownership.member import Member
from locks.runtime import Client, Gate, Waiter, current_client, monitor
from locks.runtime.inline import native_lock
from locks.runtime.waiter import get_hub_if_exists

__all__ = ["Part", "Statistics", "Worker"]

T = TypeVar("T")
W = TypeVar("W", bound="Worker")

_workers: weakref.WeakSet[Worker] = weakref.WeakSet()

# It is the next group's turn after so many seconds, or tasks. A look at the clock for each task would
# cost as much as a short task; so the number of tasks in a slice follows the time that they take.
SLICE_SECONDS = 0.001
MOST_IN_SLICE = 4096


class Statistics(NamedTuple):
    """How a worker is getting on.

    Attributes:
        groups: How many groups there are.
        owned: How many of them are its own.
        backlog: How many tasks wait in those, in the backlog that it runs; 0 if it runs none.
        done: How many tasks it has done.
        at_hand: How many it has begun and not ended.
        gained: How many groups it was granted, all in all.
        lost: How many of them it does not own any more.
        agreements: How many agreements on who owns what it knows of, all in all.
    """

    groups: int
    owned: int
    backlog: int
    done: int
    at_hand: int
    gained: int
    lost: int
    agreements: int


def next_slice(done: int, seconds: float) -> int:
    """How many tasks there are to be in a slice, if the last one took so long for so many."""
    if not done:
        return 1
    return max(1, min(MOST_IN_SLICE, round(done * SLICE_SECONDS / max(seconds, 1e-9)), 4 * done))


class Part:
    """One part that a worker takes, from joining to leaving. The shells tell it what it gets.

    Args:
        worker: The worker.
        client: Who has joined: when it ends, so does the part.

    Attributes:
        over: Opens when it has ended.
        reason: Why, then: `"normal"` or an exception.
        agreements: How many agreements it was told of.
    """

    def __init__(self, worker: Worker, client: Client) -> None:
        self.worker = worker
        self.client = client
        self.member = Member()
        self.over = Gate()
        self.reason: object = None
        self.agreements = 0
        self.done = 0
        self.backlog: Backlog[Any] | None = None
        self.stopping = False
        self.leaves = False  # because it was told to
        self.let_go: Callable[[], object] = lambda: None
        self.drained: Callable[[], object] = lambda: None
        self.leaving: Callable[[], object] = lambda: None
        self._lock = native_lock()
        self._idle: set[Waiter] = set()
        self._slice = 16
        self._finished: list[int] = []  # asked back, and nothing is at hand any more
        try:
            self._monitor = monitor(client, lambda _: self.drained())
        except (TypeError, ValueError) as error:
            raise InvalidOption(
                f"nobody could tell when the caller, {client!r}, has ended: {error}. Join in a "
                "thread of `threading`, a greenlet or an actor",
                client=repr(client),
            ) from None

    # --- From the coordinator, in the background ----------------------------------------------------

    def granted(self, groups: Iterable[int], token: int) -> None:
        """Groups are its own: the callback is told of each, then tasks may be begun."""
        for group in groups:
            if self.worker.on_gained is not None:
                self.worker.on_gained(group, token)
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
            Those that are let go; for the others `let_go` will be called, in any thread, and
            `settle` tells which.
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
        if self.worker.on_lost is not None:
            for group in groups:
                self.worker.on_lost(group)

    def ended(self, reason: object) -> None:
        """The part is over."""
        self._monitor.cancel()
        with self._lock:
            self.stopping = True
            self.member.suspend()
        self.reason = reason
        self.over.open()
        self.wake()

    # --- From the program, in its own threads -------------------------------------------------------

    def begin(self, group: int) -> int | None:
        """Begin a task of a group; `None` if none may be begun."""
        with self._lock:
            return self.member.begin(group)

    def end(self, group: int) -> None:
        """A task is over."""
        with self._lock:
            let_go = self.member.end(group)
            if let_go:
                self._finished.append(group)
            drained = self.stopping and not self.member.at_hand
        if let_go:
            self.let_go()
        if drained:
            self.drained()

    def stop(self, now: bool) -> None:
        """Begin nothing more; end when nothing is at hand, or at once."""
        with self._lock:
            self.stopping = self.leaves = True
            self.member.suspend()
            drained = now or not self.member.at_hand
        (self.drained if drained else self.leaving)()
        self.wake()

    def wake(self) -> None:
        """Have whoever is idle look again."""
        for waiter in tuple(self._idle):
            waiter.wake()

    def work(self, group: int, tasks: Backlog[T], handler: Callable[[T, int], object]) -> int:
        """Do some tasks of one group; tell how many."""
        if not tasks.waiting((group,)):
            return 0
        token = self.begin(group)
        if token is None:
            return 0
        done = 0
        begun = time.perf_counter()
        try:
            line = tasks.line(group, token)
            owned, take_out = self.member.owned, line.popleft
            most = min(self._slice, len(line))
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
            self.end(group)
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
        """Raise an error if it has ended, and not because it was told to."""
        if self.over.is_open and not self.leaves:
            why, cause = "the node was stopped, or its client has ended", None
            if isinstance(self.reason, Exception):
                why, cause = repr(self.reason), self.reason
            raise OwnershipEnded(
                f"this worker's part in {self.worker.name!r} has ended: {why}"
            ) from cause


class Worker(ABC):
    """One worker's part in an ownership; see `locks.ownership.Ownership` for its arguments."""

    def __init__(
        self,
        name: Hashable,
        groups: int = 64,
        *,
        group_for: Callable[[Any], int] | None = None,
        on_gained: Callable[[int, int], object] | None = None,
        on_lost: Callable[[int], object] | None = None,
    ) -> None:
        for argument, value in (("on_gained", on_gained), ("on_lost", on_lost)):
            if value is not None and not callable(value):
                raise InvalidOption(f"{argument}={value!r} can't be called; pass a function")
        self.name = name
        self.grouping = Grouping(groups, group_for)
        self.on_gained = on_gained
        self.on_lost = on_lost
        self._part: Part | None = None
        _workers.add(self)

    def __repr__(self) -> str:
        owned = f"owns {len(self.owned())} of {self.groups}" if self.joined else "has not joined"
        return f"<{type(self).__name__} {self.name!r}: {owned}>"

    @abstractmethod
    def _start(self, part: Part) -> None:
        """Join; from then on the part gets what it is granted, until it is `ended`.

        It sets `part.let_go`, `part.drained` and `part.leaving`, which are called in any thread.
        """

    # --- Taking part --------------------------------------------------------------------------------

    @property
    def joined(self) -> bool:
        """Whether it takes part."""
        return self._part is not None and not self._part.over.is_open

    def join(self) -> None:
        """Take part: groups are granted from now on, as long as the caller lives.

        Raises:
            MisuseError: It takes part already.
            InvalidOption: Others of this name have another number of groups; or the caller is
                nothing whose end could be noticed.
        """
        if self.joined:
            raise MisuseError(f"this worker takes part in {self.name!r} already; make another one")
        part = Part(self, current_client())
        try:
            self._start(part)
        except BaseException as error:
            part.ended(error)
            raise
        self._part = part

    def stop(self, *, now: bool = False) -> None:
        """Leave as soon as the tasks at hand are done. From anywhere; without waiting.

        Args:
            now: Leave even if tasks are at hand, because they hang: others may begin with the same
                resources. Only the token tells them apart.
        """
        if self._part is not None:
            self._part.stop(now)

    def __enter__(self: W) -> W:
        self.join()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._part is not None:
            self._part.stop(now=False)
            self._part.over.wait()

    # --- What is its own ----------------------------------------------------------------------------

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return self.grouping.groups

    def group_for(self, resource: Hashable) -> int:
        """The group that a resource belongs to.

        Raises:
            InvalidOption: It has none.
        """
        return self.grouping.group_of(resource)

    def owns(self, resource: Hashable) -> bool:
        """Whether tasks on a resource may be begun here, by now.

        To do one, use `hold`: what was true may have changed.
        """
        part = self._part
        return part is not None and self.grouping.group_of(resource) in part.member.owned

    def owned(self) -> dict[int, int]:
        """The groups that are its own, by now, and the token of each."""
        part = self._part
        if part is None:
            return {}
        return dict(part.member.owned)

    @contextmanager
    def hold(self, resource: Hashable) -> Iterator[int]:
        """Do a task on a resource: `with mine.hold(resource) as token: ...`.

        The resource's group is not handed on before the end of the block. More than one may be held
        at a time, also of the same group: then it is up to the program that they do not meet.

        Yields:
            The fencing token: larger than that of each owner before.

        Raises:
            NotOwner: The group is not its own.
            OwnershipEnded: This worker takes no part.
        """
        group = self.grouping.group_of(resource)
        part = self._part
        if part is None or part.over.is_open:
            if part is not None:
                part.check_failed()
            raise OwnershipEnded(f"this worker takes no part in {self.name!r}; join() first")
        token = part.begin(group)
        if token is None:
            raise NotOwner(
                f"group {group} of {self.name!r} is not owned here: leave {resource!r} to its owner",
                resource=resource,
                group=group,
            )
        try:
            yield token
        finally:
            part.end(group)

    # --- Working ------------------------------------------------------------------------------------

    def run(self, tasks: Backlog[T], handler: Callable[[T, int], object]) -> int:
        """Do the tasks whose resources are its own, one at a time, until all are done by somebody.

        If it does not take part yet, it joins, and leaves at the end.

        Args:
            tasks: The tasks, shared with the other workers of this process.
            handler: Called with each task and its fencing token. A task whose handler raises, or is
                killed, is not done: it will be done again, by whoever owns its group then.

        Returns:
            How many tasks it has done.

        Raises:
            InvalidOption: The tasks have other groups.
            OwnershipEnded: A callback has failed, or the node was stopped.
            Exception: What the handler raises.
        """
        if not isinstance(tasks, Backlog):
            raise InvalidOption(
                f"{type(tasks).__name__} is no Backlog; use Backlog(tasks, resource=...), one for "
                "all workers"
            )
        if tasks.grouping != self.grouping:
            raise InvalidOption(
                f"the backlog has {tasks.grouping.groups} groups and {self.name!r} has {self.groups}, "
                "or another group_for; give both the same"
            )
        if not self.joined:
            with self:
                return self.run(tasks, handler)
        part = self._part
        assert part is not None
        before = part.done
        part.backlog = tasks
        while not (part.stopping or tasks.finished):
            worked = 0
            for group in tuple(part.member.owned):
                worked += part.work(group, tasks, handler)
                if get_hub_if_exists() is not None:
                    gevent.sleep(0)  # greenlets of this thread: other workers, and callbacks
            if tasks.finished:
                tasks.wake()  # the others
            elif not worked:
                part.wait_for_work(tasks)
        part.check_failed()
        return part.done - before

    def statistics(self) -> Statistics:
        """How it is getting on; from any thread."""
        part = self._part
        if part is None:
            return Statistics(self.groups, 0, 0, 0, 0, 0, 0, 0)
        member, owned = part.member, self.owned()
        return Statistics(
            groups=self.groups,
            owned=len(owned),
            backlog=0 if part.backlog is None else part.backlog.waiting(owned),
            done=part.done,
            at_hand=member.at_hand,
            gained=member.gained,
            lost=member.lost,
            agreements=part.agreements,
        )


def _forget_parts() -> None:
    """In a forked child nobody takes part: the actors are in the parent."""
    for worker in list(_workers):
        worker._part = None


os.register_at_fork(after_in_child=_forget_parts)
