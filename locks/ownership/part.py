"""One part that a worker takes, from joining to leaving, under any coordinator.

Tasks are begun and ended in the threads or greenlets of the program. What is granted and asked back
comes from the coordinator, in the background. Both meet in `Part`, which needs no lock (`Member` says why).
Callbacks run in the background, one at a time: `on_gained` before the first
task of the group is begun, `on_lost` after the last one is over, and before the next owner gets it.

Signal handlers and finalisers run in the middle of that, and exceptions of theirs, and of other threads, come up
there. So what the program's threads do, `begin`, `end` and `stop`, waits for nothing, and twice is as good as
once: whatever tears it, the object that the `with` statement has ends the task again (`locks.runtime.leaving`). What
they tell the participant, they tell because of what is so, and not because of what they have changed. So if that was
torn, it is told then, or by whoever ends a task or stops next.
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
from locks.runtime import Client, Event, interrupts, watch_end
from locks.runtime.leaving import Block, entering
from locks.runtime.port import world

__all__ = ["Part"]


class Part:
    """One part that a worker takes, from joining to leaving. The shells tell it what it gets.

    Args:
        name: What is shared out.
        client: The thread, greenlet or actor that has joined: when it ends, so does the part.
        on_gained: Called with each group that is granted, and its token.
        on_lost: Called with each group that was let go.

    Attributes:
        client: The same.
        over: Opens when it has ended.
        reason: Why, then: `"normal"` or an exception.
        agreements: How many agreements it was told of.
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
        self.runs: dict[Run, None] = {}  # the one that runs a backlog, and those that find that out
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

    def granted(self, groups: Collection[int], token: int) -> None:
        """Groups are its own: the callback is told of each, then tasks may be begun."""
        world().note(self.client, "owns groups {} of {}, token {}", list(groups), self.name, token)
        for group in groups:
            if self._on_gained is not None:
                self._on_gained(group, token)
            self.member.granted(group, token)
            for run in tuple(self.runs)[:1]:
                run.owns(group)

    def renewed(self, groups: Iterable[int], token: int) -> None:
        """Groups that are its own, and stay, have a larger token."""
        self.member.renewed(groups, token)

    def revoked(self, groups: Iterable[int]) -> list[int]:
        """Groups are asked back.

        Returns:
            Those that are let go; the participant will be told `Idle` for the others.
        """
        idle = self.member.revoked(groups)
        self.tell_lost(idle)
        return idle

    def suspend(self) -> None:
        """Begin nothing for now."""
        self.member.suspend()

    def settle(self) -> list[int]:
        """Tell the callback of groups that were asked back and whose last task is over.

        Returns:
            Those groups: they are let go, now.
        """
        groups = self.member.settle()
        self.tell_lost(groups)
        return groups

    def report(self) -> dict[int, int]:
        """Begin nothing for now, and tell what was not let go: the token of each group."""
        return self.member.report()

    def resume(self) -> None:
        """Go on."""
        if not self.stopping:
            self.member.resume()
            if self.stopping:  # meanwhile; `begin` looks, too
                self.member.suspend()
        for run in tuple(self.runs)[:1]:
            run.look()
        self.wake()

    def tell_lost(self, groups: Collection[int]) -> None:
        """Tell the callback of groups that were let go."""
        if groups:
            world().note(self.client, "has let go groups {} of {}", list(groups), self.name)
        if self._on_lost is not None:
            for group in groups:
                self._on_lost(group)

    def ended(self, reason: object) -> None:
        """The part is over."""
        self._seen_in.pop(self, None)
        self._monitor.cancel()
        self.reason = reason
        self.over.open()  # first: a thread that sees it stopping may ask whether it has failed
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
        self.reason = OwnershipEnded(f"this worker's part in {self.name!r} is the parent process's")
        self.stopping = True
        self.over.open()
        self.wake()

    # --- From the program, in its own threads -------------------------------------------------------

    def task(self, group: int, of: Backlog[Any] | None = None) -> Task:
        """A task of a group; in a `with` block: its token, or `None` if none may be begun."""
        return Task(self, group, of)

    def begin(self, task: Task) -> int | None:
        """Begin a task; `None` if none may be begun. If this is torn, end it."""
        task.token = token = self.member.begin(task.group, task)
        if token is None or self.stopping:
            self.end(task)
            return None
        world().note(self.client, "works on group {} of {}, token {}", task.group, self.name, token)
        return token

    def end(self, task: Task) -> None:
        """A task is over. From anywhere, also from a finaliser, and more than once."""
        if self.member.end(task):
            self._tell(Idle())
        if self.stopping and not self.member.at_hand:
            self._tell(Gone())

    @interrupts.whole
    def stop(self, now: bool) -> None:
        """Begin nothing more; end when no task is at hand, or at once."""
        self.stopping = self.leaves = True
        self.member.suspend()
        drained = now or not self.member.at_hand
        self._tell(Gone() if drained else Leaving())
        self.wake()

    @interrupts.whole
    def let_go(self) -> None:
        """The worker's block was left, and this was not noted; or entering it was torn."""
        self.stop(now=False)
        if self._tell is _nobody:  # if a participant comes all the same, it is shown out
            self.ended("normal")

    def wake(self) -> None:
        """Have an idle worker look again."""
        for run in tuple(self.runs):
            run.wake()

    def check_failed(self) -> None:
        """Raise an error if it has ended by one, or without being told to."""
        if self.over.is_open and (not self.leaves or isinstance(self.reason, Exception)):
            why, cause = "the node was stopped, or its client has ended", None
            if isinstance(self.reason, Exception):
                why, cause = repr(self.reason), self.reason
            raise OwnershipEnded(f"this worker's part in {self.name!r} has ended: {why}") from cause


class Task(Block):
    """A task that is at hand for as long as its block.

    Attributes:
        group: Its group.
        of: The backlog whose first task in the group is at hand, one after the other; None if none is.
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
        return self._part.begin(self)

    def end(self) -> None:
        """It is over. From anywhere, and more than once."""
        self._part.end(self)

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
