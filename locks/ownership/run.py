"""A worker's run of a backlog: it does the tasks of its groups, one slice of a group after the other.

Its part notifies it of its groups, and the backlog of groups with tasks (`RoundRobin`). So a waiting
worker polls nothing, and a woken one looks at one group.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import ref

from gevent import getcurrent

from locks.errors import MisuseError
from locks.ownership.backlog import Among, Backlog, Doer, Run
from locks.ownership.errors import StaleToken
from locks.ownership.part import Part, Task
from locks.ownership.round_robin import BATCH, QUICK, SLICE, RoundRobin
from locks.runtime.callables import check_ran
from locks.runtime.leaving import Block, entering
from locks.runtime.port import world
from locks.runtime.waiter import Waiter

__all__ = ["BacklogRun", "check_not_within"]

T = TypeVar("T")

WITHIN = "pass a function that does the task in the call"

_under_way: dict[BacklogRun[Any], None] = {}  # in this process


class _Failed(BaseException):
    """A handler has raised an exception."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class BacklogRun(Block, Generic[T]):
    """A worker's run of a backlog, for as long as its block: one at a time.

    Args:
        worker: The worker.
        part: Its part.
        among: The set of workers that it belongs to.
        tasks: The backlog.
        handler: Does a task.
    """

    def __init__(
        self,
        worker: Doer,
        part: Part,
        among: Among,
        tasks: Backlog[T],
        handler: Callable[[T, int], object],
    ) -> None:
        self.worker = worker
        self.among = among
        # Not the greenlet itself: a greenlet that outlives its thread can crash the garbage
        # collector.
        self.caller = id(getcurrent())
        self._part = part
        self._tasks = tasks
        here = world()
        self._handler = here.stepwise(handler)
        self._guards = bool(tasks.retries) or tasks.on_failure != "stop"
        self._clock = here.clock()
        self._turns = RoundRobin(self._clock)
        self._waiter: Waiter | None = None
        self._me: ref[Run] = ref(self)

    # --- From others, in any thread

    def at(self, group: int) -> tuple[Task, int] | None:
        """The task that it has begun in a group, with its token."""
        for task in self._part.member.tasks_at_hand():
            if isinstance(task, Task) and task.group == group and task.of is self._tasks:
                return None if task.token is None else (task, task.token)
        return None

    def owns(self, group: int) -> None:
        """A group is the worker's own."""
        self._tasks.owned_by(group, self._me)

    def look(self) -> None:
        """Look at all groups that are the worker's own."""
        for group in tuple(self._part.member.owned):
            self.owns(group)

    def has_tasks(self, group: int) -> None:
        """A group that is the worker's own has tasks."""
        self._turns.add(group)
        self.wake()

    def wake(self) -> None:
        """Look again whether there is something to do, if it waits."""
        waiter = self._waiter
        if waiter is not None:
            waiter.wake()

    # --- In the worker's thread

    def __enter__(self) -> BacklogRun[T]:
        entering(self).take(self)
        self._tasks.begun(self)
        _under_way[self] = None
        runs = self._part.runs
        runs[self] = None
        if next(iter(tuple(runs))) is not self:
            raise MisuseError(
                f"this worker of {self._part.name!r} runs a backlog already: let each thread and greenlet "
                "have its own Ownership"
            )
        self.look()
        return self

    def _leave(self, held: BacklogRun[T] | None, error: BaseException | None) -> None:
        """The block is left; see `Block`."""
        self._let_go(self)

    def _let_go(self, held: BacklogRun[T]) -> None:
        """The block was left, and this was not noted; see `Block`."""
        self._part.runs.pop(self, None)
        self._tasks.ended(self)
        _under_way.pop(self, None)
        if self._tasks.finished:
            self._tasks.wake()  # the others

    def work(self) -> None:
        """Do tasks until all are done, or the part is over."""
        part, turns = self._part, self._turns
        while not part.stopping:
            group = turns.take_group()
            if group is not None:
                self._slice(group)
                world().give_way()  # to other workers, and callbacks
            elif not self._wait():
                return

    def _wait(self) -> bool:
        """Wait until there may be work; False if there will be no more."""
        waiter = self._waiter = Waiter()
        try:  # others can see the waiter now, so look for work
            if self._tasks.finished:
                return False
            if not (self._turns or self._part.stopping):
                waiter.wait(self._turns.seconds())
            return True
        finally:
            self._waiter = None

    def _slice(self, group: int) -> None:
        """Do some tasks of a group. If there are more, it moves to the end."""
        tasks, part = self._tasks, self._part
        until = tasks.waits_until(group)
        if group not in part.member.owned or not tasks.has(group):
            return
        if until is not None and until > self._clock():
            self._turns.put_off(group, until)
            return
        epoch = part.member.epoch
        with part.task(group, tasks) as token:
            if token is None:  # its part reports if the group is its own again
                return
            failure = self._first(group, token, epoch)
            if failure is not None:  # raised outside of `except`, so that its context is unchanged
                raise failure
        if tasks.has(group):
            self._turns.add(group)

    def _first(self, group: int, token: int, epoch: object) -> Exception | None:
        """Do the first tasks of a group.

        Returns:
            The failure that ends the run, if it came from a handler that is guarded.
        """
        tasks, part = self._tasks, self._part
        line = tasks.line(group, token)
        try:
            if tasks.waits_until(group) is None:
                self._some(line, token, epoch)
            elif line:
                self._again(group, line, token)
        except _Failed as failed:
            part.failed += 1
            error = failed.error
        except StaleToken:
            raise
        except Exception:
            part.failed += 1
            raise
        else:
            return None
        set_aside = tasks.failed(group, token, error, self._clock())
        if set_aside is None:
            return error
        part.set_aside += set_aside
        return None

    def _some(self, line: deque[T], token: int, epoch: object) -> None:
        """Do the first tasks of a queue, until the slice is over, or no more tasks may be begun."""
        part, take_out, clock = self._part, line.popleft, self._clock
        handler = self._guarded if self._guards else self._handler
        member = part.member
        done, look, size = 0, 1, len(line)
        last = clock()
        until = last + SLICE
        try:
            for done in range(size):
                if member.epoch is not epoch:
                    return
                if done == look:
                    now = clock()
                    if now >= until:
                        return
                    look += BATCH if now - last < QUICK else 1
                    last = now
                if (found := handler(line[0], token)) is not None:
                    check_ran(found, "handler", WITHIN)
                take_out()
            else:
                done = size
        finally:
            part.done += done

    def _again(self, group: int, line: deque[T], token: int) -> None:
        """Do the first task of a line, which has failed before."""
        check_ran(
            (self._guarded if self._guards else self._handler)(line[0], token), "handler", WITHIN
        )
        self._tasks.succeeded(group, token)
        line.popleft()
        self._part.done += 1

    def _guarded(self, task: T, token: int) -> None:
        """Call the handler, and mark its failures as such."""
        try:
            check_ran(self._handler(task, token), "handler", WITHIN)
        except StaleToken:
            raise
        except Exception as error:
            raise _Failed(error) from error


def check_not_within(worker: Doer, among: Among) -> None:
    """Refuse to run a worker in a task of another one of the same name.

    Raises:
        MisuseError: The caller is the handler of such a task.
    """
    caller = id(getcurrent())  # valid, because its run is under way
    for run in tuple(_under_way):
        if run.caller == caller and run.among.name == among.name and run.worker is not worker:
            raise MisuseError(
                f"run() was called by the handler of a task that {run.worker!r} has at hand: {worker!r} would "
                "get a part of its groups, and wait for ever for the tasks in the others. Let a thread of its own run it, add its "
                "tasks to the backlog that is run already, or give it another name"
            )


os.register_at_fork(after_in_child=_under_way.clear)  # these are runs of the parent
