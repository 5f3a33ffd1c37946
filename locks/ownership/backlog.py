"""Tasks that wait for the owners of their resources, in memory, by group.

Each group has a line of tasks. A worker takes the first one, and takes it out when it is done: one
that was at hand when its worker died is done again. With a new token, that is when a group was
handed over, the line is copied: a worker that still has an old token takes nothing out of the new
line. So a task costs no lock.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from locks.errors import InvalidOption, MisuseError
from locks.ownership.errors import StaleToken
from locks.ownership.groups import Grouping
from locks.runtime import Waiter
from locks.runtime.native import native_lock

__all__ = ["AtHand", "Backlog", "Doer", "Done", "Run", "TaskState", "Waiting"]

T = TypeVar("T")


class Doer(Protocol):
    """A worker that runs a backlog: an `Ownership`."""

    @property
    def name(self) -> Hashable:
        """What is shared out."""

    def owned(self) -> dict[int, int]:
        """The groups that are its own, by now, and the token of each."""

    def stop(self, *, now: bool = False) -> None:
        """Leave; `now`: even if the task at hand hangs."""


class Run(Protocol):
    """A worker's run of a backlog."""

    @property
    def worker(self) -> Doer:
        """The worker."""

    def at(self, group: int) -> tuple[object, int] | None:
        """What it has begun in a group, and with which token."""


class Waiting(NamedTuple):
    """A task that is to be done.

    Attributes:
        group: Its group.
        ahead: How many tasks of the group will be done before it, also the one at hand.
        worker: The owner of the group; None if no worker that runs this backlog has it just now.
    """

    group: int
    ahead: int
    worker: Doer | None


class AtHand(NamedTuple):
    """A task that a worker is doing.

    Attributes:
        group: Its group.
        worker: The worker.
        token: The fencing token that its handler was given.
    """

    group: int
    worker: Doer
    token: int


class Done(NamedTuple):
    """A task that is not in the backlog any more; or was never added, which a backlog can't tell apart.

    Attributes:
        group: Its group.
    """

    group: int


TaskState = Waiting | AtHand | Done


def _itself(task: Any) -> Hashable:
    return task  # type: ignore[no-any-return]


class _Line(Generic[T]):
    __slots__ = ("tasks", "token")

    def __init__(self) -> None:
        self.tasks: deque[T] = deque()
        self.token = 0


class Backlog(Generic[T]):
    """Tasks that are to be done; shared by the workers of one process.

    Args:
        tasks: The tasks that there are from the start, oldest first.
        resource: Tells the resource of a task; the task itself by default.
        groups: As for the workers' `Ownership`.
        group_for: Likewise.
        more: Whether tasks will be added. Then `Ownership.run` goes on until `close` is called.
    """

    def __init__(
        self,
        tasks: Iterable[T] = (),
        resource: Callable[[T], Hashable] = _itself,
        *,
        groups: int = 64,
        group_for: Callable[[Any], int] | None = None,
        more: bool = False,
    ) -> None:
        if not callable(resource):
            raise InvalidOption(
                f"resource={resource!r} can't be called: pass a function from a task to its resource"
            )
        if not isinstance(tasks, Iterable):
            raise InvalidOption(f"tasks={tasks!r} are no tasks: pass a list, or leave it away")
        self.grouping = Grouping(groups, group_for)
        self._resource = resource
        self._lines: list[_Line[T]] = [_Line() for _ in range(groups)]
        self._lock = native_lock()
        self._more = True
        self._names: list[Hashable] = []  # the name of the workers, once there are some
        self._adding: list[bool] = []  # one for each call of `add` that is under way
        self._idle: set[Waiter] = set()
        self._runs: dict[Run, None] = {}
        _backlogs.add(self)
        self.add(*tasks)
        self._more = more

    def __repr__(self) -> str:
        return f"<Backlog of {len(self)} tasks{', more to come' if self._more else ''}>"

    def __len__(self) -> int:
        return sum(len(line.tasks) for line in self._lines)

    @property
    def finished(self) -> bool:
        """Whether all tasks are done, and none will be added."""
        if self._more or self._adding:  # `add` may have looked before it was closed
            return False
        return not any(line.tasks for line in self._lines)

    def shared_out_by(self, name: Hashable) -> None:
        """Be the backlog of the workers of this name, and of no others.

        Raises:
            InvalidOption: Workers of another name do its tasks: they do not know of each other.
        """
        with self._lock:
            if not self._names:
                self._names.append(name)
        if self._names != [name]:
            raise InvalidOption(
                f"this backlog is shared out among the workers of {self._names[0]!r}, which know "
                f"nothing of those of {name!r}: make one for each name",
                name=repr(name),
            )

    def waiting(self, groups: Iterable[int]) -> int:
        """How many tasks of some groups are not done."""
        return sum(len(self._lines[group].tasks) for group in groups)

    def state(self, task: T) -> TaskState:
        """Whether a task waits, is at hand, or is done, and where; from any thread.

        It looks through the tasks of the group, for one that is equal; of several, for the first.

        Raises:
            InvalidOption: The resource of the task has no group.
        """
        group = self.grouping.group_of(self._resource(task))
        before = self._at_hand(group)
        tasks = self._lines[group].tasks.copy()  # in one step
        after = self._at_hand(group)
        try:
            ahead = tasks.index(task)
        except ValueError:
            return Done(group)
        # Whoever is at the group before and after is at its first task in between.
        if not ahead and before is not None and after is not None and before[0] is after[0]:
            _, token, worker = before
            return AtHand(group, worker, token)
        owners = (run.worker for run in tuple(self._runs) if group in run.worker.owned())
        return Waiting(group, ahead, next(owners, None))

    def _at_hand(self, group: int) -> tuple[object, int, Doer] | None:
        """What is begun in a group, its token, and the worker; of several the one that is not left behind."""
        found = [(*begun, run.worker) for run in tuple(self._runs) if (begun := run.at(group))]
        return max(found, key=lambda begun: begun[1], default=None)

    def begun(self, run: Run) -> None:
        """A worker runs the backlog from now on."""
        self._runs[run] = None

    def ended(self, run: Run) -> None:
        """It does so no more."""
        self._runs.pop(run, None)

    def add(self, *tasks: T) -> None:
        """Add tasks; from any thread.

        Raises:
            MisuseError: It is closed; nothing was added.
            InvalidOption: The resource of a task has no group; nothing was added.
        """
        groups = list(map(self.grouping.group_of, map(self._resource, tasks)))
        self._adding.append(True)
        try:
            if not self._more:
                raise MisuseError(
                    "this backlog is closed: make it with more=True, and add before you call close()"
                )
            with self._lock:
                for group, task in zip(groups, tasks, strict=True):
                    self._lines[group].tasks.append(task)
        finally:
            self._adding.pop()
            self.wake()

    def close(self) -> None:
        """No more tasks will be added."""
        self._more = False
        self.wake()

    def line(self, group: int, token: int) -> deque[T]:
        """The tasks of a group that are not done, for the owner with this token; oldest first.

        The owner takes the first one out when it is done.

        Raises:
            StaleToken: An owner with a larger token was here before.
        """
        line = self._lines[group]
        if token != line.token:
            with self._lock:
                if token < line.token:
                    raise StaleToken(
                        f"token {token} of group {group} is older than {line.token}: somebody else "
                        "owns the group by now",
                        token=token,
                        newest=line.token,
                    )
                line.tasks = line.tasks.copy()
                line.token = token
        return line.tasks

    def wake(self) -> None:
        """Have idle workers look again."""
        for waiter in tuple(self._idle):
            waiter.wake()

    def idle(self, waiter: Waiter) -> None:
        """Wake a waiter when something changes."""
        self._idle.add(waiter)

    def busy(self, waiter: Waiter) -> None:
        """Do not wake it any more."""
        self._idle.discard(waiter)


_backlogs: weakref.WeakSet[Backlog[Any]] = weakref.WeakSet()


def _forked() -> None:
    """In a child: calls of the parent's other threads are not under way here."""
    for backlog in list(_backlogs):
        backlog._lock = native_lock()
        backlog._adding.clear()
        backlog._runs.clear()


os.register_at_fork(after_in_child=_forked)
