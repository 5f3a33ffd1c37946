"""The class that users use: one worker of an ownership, under any coordinator."""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeVar

from locks.errors import InvalidOption, MisuseError, ReentrantCall
from locks.node.node import Node
from locks.ownership.backlog import Among, Backlog
from locks.ownership.errors import NotOwner, OwnershipEnded
from locks.ownership.groups import Grouping
from locks.ownership.part import Part, Task
from locks.ownership.run import BacklogRun, check_not_within
from locks.program.default import default_node, is_at_hand
from locks.runtime.callables import check_callable, check_callbacks
from locks.runtime.interrupts import whole_itself
from locks.runtime.leaving import Block, Hold, entering
from locks.runtime.monitor import current_client
from locks.runtime.native import native_rlock
from locks.runtime.port import world

__all__ = ["Statistics", "Worker", "check_node", "node_of"]

T = TypeVar("T")
W = TypeVar("W", bound="Worker")

# The worker of each part. Not a `WeakSet`: an exception raised in the callback of a weak reference
# is lost.
_workers: dict[Part, weakref.ref[Worker]] = {}


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
        agreements: How many agreements it knows of, all in all.
        failed: How often the handler has failed in its tasks.
        set_aside: How many tasks it has set aside, see `Backlog`.
    """

    groups: int
    owned: int
    backlog: int
    done: int
    at_hand: int
    gained: int
    lost: int
    agreements: int
    failed: int
    set_aside: int


class Worker(Block, ABC):
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
        check_callbacks(on_gained=on_gained, on_lost=on_lost)
        self.name = name
        self.grouping = Grouping(groups, group_for)
        self.on_gained = on_gained
        self.on_lost = on_lost
        self._part: Part | None = None
        self._joining = native_rlock()

    def __repr__(self) -> str:
        owned = f"owns {len(self.owned())} of {self.groups}" if self.joined else "has not joined"
        return f"<{type(self).__name__} {self.name!r}: {owned}>"

    @abstractmethod
    def _start(self, part: Part) -> None:
        """Join; from then on the part receives its grants, until it is `ended`.

        It calls `part.took_part`.
        """

    @abstractmethod
    def _among(self) -> Among:
        """The set of workers that it belongs to."""

    # --- Taking part --------------------------------------------------------------------------------

    @property
    def joined(self) -> bool:
        """Whether it takes part."""
        return self._part is not None and not self._part.over.is_open

    def join(self) -> None:
        """Take part: groups are granted from now on, as long as the caller lives.

        Raises:
            MisuseError: It takes part already.
            InvalidOption: Others of this name have another number of groups; or the caller's end
                could not be noticed.
        """
        self._join(Hold(self))

    def _join(self, hold: Hold) -> None:
        if self._joining._is_owned():
            raise ReentrantCall(
                f"join() was called in the middle of join() of the same worker, of {self.name!r}, as by a "
                "signal handler; note what is to be done and do it later"
            )
        part = Part(self.name, current_client(), self.on_gained, self.on_lost)
        hold.take(part)
        try:
            _remember(self, part)
            with self._joining:
                self._begin(part)
            self._start(part)
        except BaseException as error:
            part.broken_off(error)
            hold.drop()
            raise

    def _begin(self, part: Part) -> None:
        if self.joined:
            raise MisuseError(f"this worker takes part in {self.name!r} already; make another one")
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
        self._join(entering(self))
        return self

    @whole_itself
    def _leave(self, held: Part | None, error: BaseException | None) -> None:
        """The block is left; see `Block`."""
        part = held or self._part
        if part is not None:
            part.stop(now=False)
            part.over.wait()
            if error is None:
                part.check_failed()

    def _let_go(self, held: Part) -> None:
        """The block was left, and this was not noted; see `Block`."""
        held.let_go()

    # --- Its groups ---------------------------------------------------------------------------------

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
        world().step()
        part = self._part
        return part is not None and self.grouping.group_of(resource) in part.member.owned

    def owned(self) -> dict[int, int]:
        """The groups that are its own, by now, and the token of each."""
        part = self._part
        if part is None:
            return {}
        return dict(part.member.owned)

    def hold(self, resource: Hashable) -> AbstractContextManager[int]:
        """Do a task on a resource: `with mine.hold(resource) as token: ...`.

        The resource's group is not handed on before the end of the block. More than one may be held
        at a time, also of the same group: then it is up to the program that they do not meet.

        Returns:
            What the `with` statement takes; it gives the fencing token: larger than that of each owner before,
            unless a server was restarted after its clock was set back.

        Raises:
            NotOwner: The group is not its own.
            OwnershipEnded: This worker takes no part.
        """
        return _Hold(self, resource)

    def _task(self, resource: Hashable) -> Task:
        part = self._part
        if part is None or part.over.is_open:
            if part is not None:
                part.check_failed()
            raise OwnershipEnded(f"this worker takes no part in {self.name!r}; join() first")
        return part.task(self.grouping.group_of(resource))

    # --- Working ------------------------------------------------------------------------------------

    def run(self, tasks: Backlog[T], handler: Callable[[T, int], object]) -> int:
        """Do the tasks whose resources are its own, one at a time, until all tasks are done.

        If it does not take part yet, it joins, and leaves at the end.

        Args:
            tasks: The tasks, shared with the other workers of this process.
            handler: Called with each task and its fencing token. A task whose handler is killed is
                not done: it will be done again, by the owner of its group. So is one whose handler
                raises, unless the backlog says otherwise (`on_failure`).

        Returns:
            How many tasks it has done.

        Raises:
            InvalidOption: The tasks have other groups, or are done by workers of another name, of
                another node, or of the other class of this name.
            MisuseError: This worker runs a backlog already; or it is called by the handler of a
                worker of the same name.
            OwnershipEnded: A callback has failed, or the node was stopped.
            Exception: What the handler raises, where a task that fails ends the run.
        """
        if not isinstance(tasks, Backlog):
            raise InvalidOption(
                f"{type(tasks).__name__} is not a Backlog; use Backlog(tasks, resource=...), one for "
                "all workers"
            )
        check_callable(handler, "handler")
        if tasks.grouping != self.grouping:
            raise InvalidOption(
                f"the backlog has {tasks.grouping.groups} groups and {self.name!r} has {self.groups}, "
                "or another group_for; give both the same"
            )
        among = self._among()
        check_not_within(self, among)
        tasks.shared_out_among(among)
        if self.joined:
            return self._run(among, tasks, handler)
        with self:
            return self._run(among, tasks, handler)

    def _run(self, among: Among, tasks: Backlog[T], handler: Callable[[T, int], object]) -> int:
        part = self._part
        assert part is not None
        before = part.done
        with BacklogRun(self, part, among, tasks, handler) as run:
            part.backlog = tasks
            run.work()
        part.check_failed()
        return part.done - before

    def statistics(self) -> Statistics:
        """How it is getting on; from any thread."""
        part = self._part
        if part is None:
            return Statistics(self.groups, *[0] * 9)
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
            failed=part.failed,
            set_aside=part.set_aside,
        )


class _Hold(Block, AbstractContextManager[int]):
    """A task on a resource; errors are raised before it is begun."""

    def __init__(self, worker: Worker, resource: Hashable) -> None:
        self._worker = worker
        self._resource = resource
        self._begun: list[Task] = []  # without a `with` statement, as by an `ExitStack`

    def __enter__(self) -> int:
        hold = entering(self)
        world().step()
        task = self._worker._task(self._resource)
        hold.take(task)
        try:
            token = task.begin()
            if token is None:
                raise NotOwner(
                    f"group {task.group} of {self._worker.name!r} is not owned here: leave "
                    f"{self._resource!r} to its owner",
                    resource=self._resource,
                    group=task.group,
                )
            if not hold.is_watched:
                self._begun.append(task)
            return token
        except BaseException:
            task.end()
            hold.drop()
            raise

    def _leave(self, held: Task | None, error: BaseException | None) -> None:
        """The block is left; see `Block`."""
        (held or self._begun.pop()).end()

    def _let_go(self, held: Task) -> None:
        """The block was left, and this was not noted; see `Block`."""
        held.end()


def check_node(node: Node | None) -> Node | None:
    """Refuse what is not a node."""
    if node is not None and not isinstance(node, Node):
        raise InvalidOption(f"node={node!r} is not a node: locks.start() returns one")
    return node


def node_of(given: Node | None) -> Node | None:
    """The node of `Among`: None for this program's own, also if it is given."""
    return None if given is None or (is_at_hand() and given is default_node()) else given


def _remember(worker: Worker, part: Part) -> None:
    """For a fork: a worker is about to take part; those that are over are forgotten."""
    for each in tuple(_workers):
        if each.over.is_open:
            _workers.pop(each, None)
    _workers[part] = weakref.ref(worker)


def _forget_parts() -> None:
    """In a forked child no worker takes part: the actors are in the parent."""
    for part, known in list(_workers.items()):
        worker = known()
        if worker is not None:
            worker._part = None
            worker._joining = native_rlock()
        part.leave_to_parent()
    _workers.clear()


os.register_at_fork(after_in_child=_forget_parts)
