"""Tasks in memory, by group, which wait for the owners of their resources.

Each group has a queue of tasks. A worker does the first task, and removes it when it is done. So a
task is done again if its worker died during it. When a group gets a new token, because it was
handed over, the queue is copied. A worker with an old token then removes nothing from the new
queue. So a task needs no lock.

A caller that adds a task notifies only the run that owns its group. No task is missed: the caller
first puts the task into the queue, and then looks for the owner. A run that gets a group first
registers as its owner, and then looks for tasks.

A failed task stays first in its queue, with a note (`_Trouble`) of the number of failures and the
end of the group's pause; or it is set aside. Only the owner may report a failure.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from math import isfinite
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, get_args

from locks.errors import InvalidOption, MisuseError
from locks.lock_ids import shown
from locks.model import LockId, is_seconds
from locks.node.node import Node
from locks.ownership.errors import StaleToken
from locks.ownership.groups import Grouping
from locks.runtime import interrupts
from locks.runtime.callables import check_callable
from locks.runtime.native import native_lock
from locks.runtime.port import world

__all__ = ["Among", "AtHand", "Backlog", "Doer", "Done", "Run", "SetAside", "TaskState", "Waiting"]

T = TypeVar("T")
OnFailure = Literal["stop", "set aside"]


class Among(NamedTuple):
    """The set of workers that share out resources; only tokens within the same set can be compared.

    Attributes:
        shell: The class of the workers.
        node: The node; None for the program's own.
        name: The lock by which they agree.
    """

    shell: str
    node: Node | None
    name: LockId

    def __str__(self) -> str:
        where = "this program's node" if self.node is None else self.node.name
        return f"{self.shell}({shown(self.name[1])}) on {where}"

    def same(self, other: Among) -> bool:
        """Whether both are the same set; also on a node that was restarted, whose tokens keep rising."""
        if (self.shell, self.name) != (other.shell, other.name):
            return False
        mine, theirs = self.node, other.node
        if mine is theirs or mine is None or theirs is None:
            return mine is theirs
        return mine.name == theirs.name and not (mine.running and theirs.running)


class Doer(Protocol):
    """A worker that runs a backlog: an `Ownership`."""

    @property
    def name(self) -> Hashable:
        """The name of the ownership."""

    def owned(self) -> dict[int, int]:
        """The groups that are its own, by now, and the token of each."""

    def stop(self, *, now: bool = False) -> None:
        """Leave; with `now`, even if the present task hangs."""


class Run(Protocol):
    """A worker's run of a backlog."""

    @property
    def worker(self) -> Doer:
        """The worker."""

    def at(self, group: int) -> tuple[object, int] | None:
        """The task that it has begun in a group, with its token."""

    def owns(self, group: int) -> None:
        """Note, from the worker's part, that the worker owns a group."""

    def look(self) -> None:
        """Note, from the worker's part, that the worker's groups may have changed."""

    def has_tasks(self, group: int) -> None:
        """Note, from the backlog and in any thread, that one of the worker's groups has tasks."""

    def wake(self) -> None:
        """Look again whether there is something to do, if it waits."""


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


class SetAside(NamedTuple):
    """A task that has failed, and will not be done any more.

    Attributes:
        group: Its group.
        task: The task.
        error: What its handler has raised, the last time.
        attempts: How often it was begun, by all its owners.
    """

    group: int
    task: Any
    error: Exception
    attempts: int


TaskState = Waiting | AtHand | Done | SetAside


def _itself(task: Any) -> Hashable:
    return task  # type: ignore[no-any-return]


class _Trouble(NamedTuple):
    """Of the first task of a line: how often it has failed, and when it may be begun again."""

    attempts: int
    until: float


class _Line(Generic[T]):
    __slots__ = ("tasks", "token", "trouble")

    def __init__(self) -> None:
        self.tasks: deque[T] = deque()
        self.token = 0
        self.trouble: _Trouble | None = None


class Backlog(Generic[T]):
    """Tasks that are to be done; shared by the workers of one process.

    Args:
        tasks: The tasks that there are from the start, oldest first.
        resource: Tells the resource of a task; the task itself by default.
        groups: As for the workers' `Ownership`.
        group_for: Likewise.
        more: Whether tasks will be added. Then `Ownership.run` goes on until `close` is called.
        retries: How often a task that fails is begun again. Until then its group waits, for the
            tasks of a group are begun in order; all other groups go on.
        retry_delay: After how many seconds.
        on_failure: What happens to a task that fails, and is not begun again. `"stop"`: it stays in
            the backlog, and the exception ends the worker's run. `"set aside"`: it is put into
            `set_aside`, and the group goes on.

    A task *fails* when its handler raises an `Exception`; `StaleToken` says that the worker was
    left behind, and always ends the run. So does what is not an `Exception`, such as
    `KeyboardInterrupt` or a kill.
    """

    def __init__(
        self,
        tasks: Iterable[T] = (),
        resource: Callable[[T], Hashable] = _itself,
        *,
        groups: int = 64,
        group_for: Callable[[Any], int] | None = None,
        more: bool = False,
        retries: int = 0,
        retry_delay: float = 0.0,
        on_failure: OnFailure = "stop",
    ) -> None:
        check_callable(resource, "resource", "pass a function from a task to its resource")
        if not isinstance(tasks, Iterable):
            raise InvalidOption(
                f"tasks={shown(tasks)} are not tasks: pass a list, or leave them out"
            )
        if type(retries) is not int or retries < 0:
            raise InvalidOption(f"retries={shown(retries)} is not a whole number from 0")
        if not (is_seconds(retry_delay) and isfinite(retry_delay)):
            raise InvalidOption(
                f"retry_delay={shown(retry_delay)} is not a number of seconds from 0"
            )
        if on_failure not in get_args(OnFailure):
            raise InvalidOption(
                f"on_failure={shown(on_failure)}: give one of {', '.join(map(repr, get_args(OnFailure)))}"
            )
        self.grouping = Grouping(groups, group_for)
        self.retries = retries
        self.retry_delay = retry_delay
        self.on_failure: OnFailure = on_failure
        self._resource = resource
        self._lines: list[_Line[T]] = [_Line() for _ in range(groups)]
        self._lock = native_lock()
        self._more = True
        self._among: list[Among] = []  # whose workers do its tasks, once there are some
        self._adding: list[bool] = []  # one for each call of `add` that is under way
        self._runs: dict[Run, None] = {}
        self._owners: dict[int, weakref.ref[Run]] = {}  # the run that was granted each group last
        self._set_aside: list[SetAside] = []
        self._over = False
        _backlogs.add(self)
        self.add(*tasks)
        self._more = more

    def __repr__(self) -> str:
        return f"<Backlog of {len(self)} tasks{', more to come' if self._more else ''}>"

    def __len__(self) -> int:
        return sum(len(line.tasks) for line in self._lines)

    @property
    def finished(self) -> bool:
        """Whether all tasks are done, or set aside, and none will be added."""
        if self._more or self._adding:  # `add` may have looked before it was closed
            return False
        self._over = self._over or not any(line.tasks for line in self._lines)
        return self._over

    @property
    def set_aside(self) -> tuple[SetAside, ...]:
        """The tasks that were set aside, in that order."""
        return tuple(self._set_aside)

    def shared_out_among(self, among: Among) -> None:
        """Be the backlog of these workers, and of no others.

        Raises:
            InvalidOption: Others do its tasks: they do not know of each other.
        """
        with self._lock:
            if not self._among:
                self._among.append(among)
        first = self._among[0]
        if not first.same(among):
            raise InvalidOption(
                f"this backlog is shared out among the workers of {first}, which know nothing of those of "
                f"{among}: each task would be done by both. Make a backlog for each",
                first=str(first),
                among=str(among),
            )

    def waiting(self, groups: Iterable[int]) -> int:
        """How many tasks of some groups are not done."""
        return sum(len(self._lines[group].tasks) for group in groups)

    def state(self, task: T) -> TaskState:
        """Whether a task waits, is being done, or is done, and where; from any thread.

        It looks for the first equal task of the group.

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
            aside = (each for each in self.set_aside if each.group == group and each.task == task)
            return next(aside, Done(group))
        # A worker that is at the group before and after is at its first task in between.
        if not ahead and before is not None and after is not None and before[0] is after[0]:
            _, token, worker = before
            return AtHand(group, worker, token)
        owners = (run.worker for run in tuple(self._runs) if group in run.worker.owned())
        return Waiting(group, ahead, next(owners, None))

    def _at_hand(self, group: int) -> tuple[object, int, Doer] | None:
        """The task begun in a group, its token, and the worker; of several, the newest by token."""
        found = [(*begun, run.worker) for run in tuple(self._runs) if (begun := run.at(group))]
        return max(found, key=lambda begun: begun[1], default=None)

    def begun(self, run: Run) -> None:
        """A worker runs the backlog from now on."""
        self._runs[run] = None

    def ended(self, run: Run) -> None:
        """Note that a run has ended."""
        self._runs.pop(run, None)

    def owned_by(self, group: int, run: weakref.ref[Run]) -> None:
        """Note that a run owns a group; notify it if the group has tasks, now or later."""
        self._owners[group] = run
        if self._lines[group].tasks:
            self._tell(group)

    def add(self, *tasks: T) -> None:
        """Add tasks; from any thread. Nobody but the owners of their groups notices.

        Raises:
            MisuseError: It is closed; nothing was added.
            InvalidOption: The resource of a task has no group; nothing was added.
        """
        world().step()
        self._add(list(map(self.grouping.group_of, map(self._resource, tasks))), tasks)

    @interrupts.whole
    def _add(self, groups: list[int], tasks: tuple[T, ...]) -> None:
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
            for group in dict.fromkeys(groups) if self._runs else ():
                self._tell(group)
            if not self._more:  # closed meanwhile: runs may have waited for the end of this call
                self.wake()

    def _tell(self, group: int) -> None:
        known = self._owners.get(group)
        owner = None if known is None else known()
        if owner is not None:
            owner.has_tasks(group)

    def close(self) -> None:
        """No more tasks will be added."""
        self._more = False
        self.wake()

    def wake(self) -> None:
        """Have all runs look again."""
        for run in tuple(self._runs):
            run.wake()

    # --- A group's line, for the run that owns it

    def has(self, group: int) -> bool:
        """Whether there are tasks in a group."""
        return bool(self._lines[group].tasks)

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

    def waits_until(self, group: int) -> float | None:
        """When the first task of a group, which has failed, may be begun again; None if it has not failed."""
        trouble = self._lines[group].trouble
        return None if trouble is None else trouble.until

    def succeeded(self, group: int, token: int) -> None:
        """Note that the first task of a group, which had failed before, is done and will be removed."""
        line = self._lines[group]
        if line.token == token:
            line.trouble = None

    def failed(self, group: int, token: int, error: Exception, now: float) -> bool | None:
        """Note that the first task of a group has failed for the owner with this token.

        Returns:
            True if it is set aside, False if it will be begun again; None if the worker must stop,
            or is no longer the owner.
        """
        line = self._lines[group]
        with self._lock:
            if line.token != token:
                return None
            attempts = 1 if line.trouble is None else line.trouble.attempts + 1
            if attempts <= self.retries:
                line.trouble = _Trouble(attempts, now + self.retry_delay)
                return False
            if self.on_failure == "stop":
                line.trouble = _Trouble(attempts, now)
                return None
            self._set_aside.append(SetAside(group, line.tasks[0], error, attempts))
            line.trouble = None
            line.tasks.popleft()
            return True


_backlogs: weakref.WeakSet[Backlog[Any]] = weakref.WeakSet()


def _forked() -> None:
    """In a child: calls of the parent's other threads are not under way here."""
    for backlog in list(_backlogs):
        backlog._lock = native_lock()
        backlog._adding.clear()
        backlog._runs.clear()
        backlog._owners.clear()


os.register_at_fork(after_in_child=_forked)
