"""One part of a worker, from joining to leaving, under any coordinator.

The program's threads or greenlets begin and end tasks. Grants and revocations come from the
coordinator, in the background. Both meet in `Part`, which needs no lock (`Member` says why).

Callbacks run in the background, one at a time: `on_gained` before the first task of a group begins,
and `on_lost` after its last task has ended, before the next owner gets the group.

Signal handlers and finalisers can interrupt any of this, and exceptions from them and from other
threads can be raised at any instruction. So `begin_task`, `end_task` and `stop`, which the program's threads
call, never wait, and may be repeated without harm. If one is interrupted, the object of the `with`
statement ends the task again (`locks.runtime.leaving`). They notify the participant because of the
present state, not because of their own change. So after an interruption, the repeated call notifies
it, or the next call that ends a task or stops.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any

from locks.errors import InvalidOption, assert_never
from locks.lock_ids import shown
from locks.ownership.backlog import Backlog, Run
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
from locks.runtime import interrupts
from locks.runtime.callables import check_begun
from locks.runtime.leaving import Block, entering
from locks.runtime.monitor import Client, Down, watch_end
from locks.runtime.port import world
from locks.runtime.waiter import Event

__all__ = ["Part"]


class Part:
    """One part of a worker, from joining to leaving. The shells notify it of grants and revocations.

    Args:
        name: The name of the ownership.
        client: The thread, greenlet or actor that has joined: when it ends, so does the part.
        on_gained: Called with each granted group, and its token.
        on_lost: Called with each released group.

    Attributes:
        client: The same.
        over: Opens when it has ended.
        reason: Why it has ended: `"normal"` or an exception.
        agreements: The number of agreements that it knows of.
        done: How many tasks it has done.
        failed: How often one has failed.
        set_aside: How many it has set aside.
    """

    def __init__(
        self,
        name: Hashable,
        client: Client,
        on_gained: Callable[[int, int], object] | None = None,
        on_lost: Callable[[int], object] | None = None,
    ) -> None:
        self.name = name
        self.client = client
        self._on_gained = on_gained
        self._on_lost = on_lost
        self.member = Member()
        self.over = Event()
        self.reason: object = None
        self.agreements = 0
        self.done = 0
        self.failed = 0
        self.set_aside = 0
        self.backlog: Backlog[Any] | None = None
        self.stopping = False
        self.leaves = False  # because it was told to
        self._tell: Callable[[FromWorker], object] = _nobody
        self._seen_in: dict[object, Callable[[], tuple[str, int, int, int]]] = {}
        self.runs: dict[
            Run, None
        ] = {}  # the run of a backlog, and later ones that find it and fail
        try:
            self._monitor = watch_end(client, lambda _: self._tell(Gone()))
        except (TypeError, ValueError) as error:
            raise InvalidOption(
                f"nobody could tell when the caller, {client!r}, has ended: {error}. Join in a "
                "thread of `threading`, a greenlet or an actor",
                client=repr(client),
            ) from None

    def seen_in(
        self, workers: dict[object, Callable[[], tuple[str, int, int, int]]], groups: int
    ) -> None:
        """Be among the statistics of a node until it is over.

        Args:
            workers: The node's.
            groups: How many groups there are.
        """
        name = shown(self.name)
        self._seen_in = workers
        workers[self] = lambda: (name, groups, len(self.member.owned), self.done)

    # --- By its participant, in the background ------------------------------------------------------

    def took_part(self, tell: Callable[[FromWorker], object]) -> None:
        """Set how to notify its participant, from any thread."""
        self._tell = tell
        if self.stopping:  # it was stopped meanwhile, or an exception left `join`
            tell(Gone())

    def told(self, message: ToParticipant | Idle | Leaving) -> GroupsReleased | Leaving | None:
        """Take in a message to the participant, from the session or from the worker's threads.

        Returns:
            The message for the session, if there is one.
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

    def granted(self, groups: Collection[int], token: int) -> None:
        """Take in granted groups: call the callback for each, then allow tasks."""
        world().note(self.client, "owns groups {} of {}, token {}", list(groups), self.name, token)
        for group in groups:
            if self._on_gained is not None:
                check_begun(self._on_gained(group, token), "on_gained")
            self.member.granted(group, token)
            for run in tuple(self.runs)[:1]:
                run.owns(group)

    def renewed(self, groups: Iterable[int], token: int) -> None:
        """Groups that are its own, and stay, have a larger token."""
        self.member.renewed(groups, token)

    def revoked(self, groups: Iterable[int]) -> list[int]:
        """Take in that groups are revoked.

        Returns:
            The groups that are released now; for the others, the participant gets `Idle` later.
        """
        idle = self.member.revoked(groups)
        self.tell_lost(idle)
        return idle

    def suspend(self) -> None:
        """Begin nothing for now."""
        self.member.suspend()

    def settle(self) -> list[int]:
        """Call the callback for revoked groups whose last task has ended.

        Returns:
            These groups, which are released now.
        """
        groups = self.member.settle()
        self.tell_lost(groups)
        return groups

    def report(self) -> dict[int, int]:
        """Suspend, and return the tokens of all groups that were not released."""
        return self.member.report()

    def resume(self) -> None:
        """Go on."""
        if not self.stopping:
            self.member.resume()
            if self.stopping:  # it was stopped meanwhile; `begin_task` checks this, too
                self.member.suspend()
        for run in tuple(self.runs)[:1]:
            run.look()
        self.wake()

    def tell_lost(self, groups: Collection[int]) -> None:
        """Call the callback for released groups."""
        if groups:
            world().note(self.client, "has let go groups {} of {}", list(groups), self.name)
        if self._on_lost is not None:
            for group in groups:
                check_begun(self._on_lost(group), "on_lost")

    def ended(self, reason: object) -> None:
        """The part is over."""
        self.reason = reason
        self.over.open()  # first: a thread that sees it stopping may ask whether it has failed
        self.stopping = True
        self.member.suspend()
        self.wake()
        self._seen_in.pop(self, None)
        self._monitor.cancel()

    def participant_ended(self, down: Down) -> None:
        """The participant has ended the part before, unless its hub ended while it refused to."""
        if not self.over.is_open:
            self.ended(down.reason)

    def left(self, reason: object = "normal") -> None:
        """End the part normally: call the callback for all remaining groups."""
        try:
            self.tell_lost(self.report())
        except BaseException as error:  # also if the participant is killed in a slow callback
            self.ended(error)
            raise
        self.ended(reason)

    @interrupts.whole
    def broken_off(self, error: BaseException) -> None:
        """`join` was left by an exception: the participant may be there, or may be on its way."""
        self.ended(error)
        self._tell(Gone())

    def leave_to_parent(self) -> None:
        """In a forked child: end the part, which belongs to the parent; waiting callers continue."""
        self._tell = lambda message: None
        self.reason = OwnershipEnded(f"this worker's part in {self.name!r} is the parent process's")
        self.stopping = True
        self.over.open()
        self.wake()

    # --- From the program, in its own threads -------------------------------------------------------

    def task(self, group: int, of: Backlog[Any] | None = None) -> Task:
        """A task of a group; in a `with` block: its token, or `None` if none may be begun."""
        return Task(self, group, of)

    def begin_task(self, task: Task) -> int | None:
        """Begin a task; `None` if none may be begun. If this is torn, end it."""
        task.token = token = self.member.begin_task(task.group, task)
        if token is None or self.stopping:
            self.end_task(task)
            return None
        world().note(self.client, "works on group {} of {}, token {}", task.group, self.name, token)
        return token

    def end_task(self, task: Task) -> None:
        """A task is over. From anywhere, also from a finaliser, and more than once."""
        if self.member.end_task(task):
            self._tell(Idle())
        if self.stopping and not self.member.at_hand:
            self._tell(Gone())

    @interrupts.whole
    def stop(self, now: bool) -> None:
        """Begin no more tasks; end after the present ones, or at once."""
        self.stopping = self.leaves = True
        self.member.suspend()
        drained = now or not self.member.at_hand
        self._tell(Gone() if drained else Leaving())
        self.wake()

    @interrupts.whole
    def let_go(self) -> None:
        """The worker's block was left, and this was not noted; or entering it was torn."""
        self.stop(now=False)
        if self._tell is _nobody:  # if a participant still comes, it is dismissed
            self.ended("normal")

    def wake(self) -> None:
        """Have an idle worker look again."""
        for run in tuple(self.runs):
            run.wake()

    def check_failed(self) -> None:
        """Raise an error if it has ended by an error, or without a call of `stop`."""
        if self.over.is_open and (not self.leaves or isinstance(self.reason, Exception)):
            why, cause = "the node was stopped, or its client has ended", None
            if isinstance(self.reason, Exception):
                why, cause = repr(self.reason), self.reason
            raise OwnershipEnded(f"this worker's part in {self.name!r} has ended: {why}") from cause


class Task(Block):
    """A task that is begun for the duration of its block.

    Attributes:
        group: Its group.
        of: The backlog whose first tasks in the group are done, one after the other; None without a
            backlog.
        token: The group's token when it was begun; None before that.
    """

    __slots__ = ("_part", "group", "of", "token")

    def __init__(self, part: Part, group: int, of: Backlog[Any] | None = None) -> None:
        self._part = part
        self.group = group
        self.of = of
        self.token: int | None = None

    def begin(self) -> int | None:
        """Begin it; `None` if it may not be begun. If this is torn, end it."""
        return self._part.begin_task(self)

    def end(self) -> None:
        """It is over. From anywhere, and more than once."""
        self._part.end_task(self)

    def __enter__(self) -> int | None:
        entering(self).take(self)
        return self.begin()

    def _leave(self, held: Task | None, error: BaseException | None) -> None:
        """The block is left; see `Block`."""
        self.end()

    def _let_go(self, held: Task) -> None:
        """The block was left, and this was not noted; see `Block`."""
        self.end()


def _nobody(message: FromWorker) -> None:
    """There is no participant yet."""
