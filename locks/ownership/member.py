"""What one worker owns, and what it has at hand: a state machine, to be used by several threads without a lock.

A task of a group is begun and ended (`begin`, `end`). A group that is asked back is not begun any
more, and is let go when nothing of it is at hand. While the worker is on its own, cut off from
its coordinator, it begins nothing; it reports what it has to the next coordinator, and goes on.

Tasks are begun and ended by the program's threads, and an exception may come up at any instruction there. So
`begin`, `end` and `suspend` change something in one step, which is not torn, and can be done again at no
harm. All else is done in the background, one at a time. Why nobody is missed: `begin` puts its task down and looks after
that whether the group is its own; who asks back takes the group away and looks after that for tasks. One of them
sees the other. Likewise `end` takes its task away and then looks whether the group is waited for.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

__all__ = ["Member"]

_NOTHING: Mapping[int, int] = {}


class Member:
    """What one worker owns.

    Attributes:
        owned: The token of each group in which tasks may be begun; none while it is suspended.
        epoch: Another object as soon as there are groups whose tasks may not be begun any more, or with another token:
            who begins one task after the other looks at this alone.
        leaving: The token of each group that was asked back, and is not let go yet.
        gained: How many groups it was granted.
        lost: How many of them it does not own any more.
    """

    def __init__(self) -> None:
        self._groups: dict[int, int] = {}  # what it owns, suspended or not
        self.owned: Mapping[int, int] = self._groups
        self.epoch = object()
        self.leaving: dict[int, int] = {}
        self.gained = 0
        self.lost = 0
        self._at_hand: dict[Hashable, int] = {}  # the group of each task

    # --- From any thread; also twice, and in the middle of each other

    @property
    def at_hand(self) -> int:
        """How many tasks are at hand."""
        return len(self._at_hand)

    def tasks_at_hand(self) -> tuple[Hashable, ...]:
        """The tasks that are at hand."""
        return tuple(self._at_hand)

    def begin(self, group: int, task: Hashable) -> int | None:
        """Begin a task of a group.

        Returns:
            The group's token; `None` if no task may be begun there. Then it is to be ended all the same:
            somebody may have seen it.
        """
        self._at_hand[task] = group
        return self.owned.get(group)

    def end(self, task: Hashable) -> bool:
        """A task is over, if it is at hand.

        Returns:
            Whether a group is to be let go, by `settle`.
        """
        self._at_hand.pop(task, None)
        return bool(self.leaving) and bool(self._idle())

    def suspend(self) -> None:
        """Begin nothing for now; what is at hand goes on."""
        self.owned = _NOTHING
        self.epoch = object()

    # --- In the background

    def resume(self) -> None:
        """Go on with what was not asked back meanwhile."""
        self.owned = self._groups

    def report(self) -> dict[int, int]:
        """Tell a new coordinator what has not been let go: the token of each group.

        All of it is its own from then on: a coordinator that has asked for some of it is one no more.
        """
        self.suspend()
        self._groups.update(self.leaving)
        self.lost -= len(self.leaving)
        self.leaving.clear()
        return dict(self._groups)

    def granted(self, group: int, token: int) -> None:
        """A group is its own."""
        self._groups[group] = token
        self.gained += 1

    def renewed(self, groups: Iterable[int], token: int) -> None:
        """Groups that are its own have another token, for tasks that are begun from now on."""
        for group in groups:
            if group in self._groups:
                self._groups[group] = token
        self.epoch = object()

    def revoked(self, groups: Iterable[int]) -> list[int]:
        """Groups are asked back.

        Returns:
            Those without a task at hand: they are let go, now.
        """
        for group in groups:
            if group in self._groups:
                self.leaving[group] = self._groups.pop(group)
                self.lost += 1
        self.epoch = object()
        return self.settle()

    def settle(self) -> list[int]:
        """Let groups go that were asked back, and have no task at hand any more.

        Returns:
            Those groups.
        """
        idle = self._idle()
        for group in idle:
            del self.leaving[group]
        return idle

    def _idle(self) -> list[int]:
        busy = set(self._at_hand.values())
        return [group for group in tuple(self.leaving) if group not in busy]
