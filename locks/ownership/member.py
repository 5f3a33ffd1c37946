"""What one worker owns, and what it has at hand: a pure state machine.

A task of a group is begun and ended (`begin`, `end`). A group that is asked back is not begun any
more, and is let go when nothing of it is at hand. While the worker is on its own, cut off from
its coordinator, it begins nothing; it reports what it has to the next coordinator, and goes on.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Member"]


class Member:
    """What one worker owns.

    Attributes:
        owned: The token of each group in which tasks may be begun.
        leaving: The token of each group that was asked back, and has tasks at hand.
        suspended: Whether no task may be begun for now; then `owned` is empty.
        gained: How many groups it was granted.
        lost: How many of them it does not own any more.
    """

    def __init__(self) -> None:
        self.owned: dict[int, int] = {}
        self.leaving: dict[int, int] = {}
        self.suspended = False
        self.gained = 0
        self.lost = 0
        self._at_hand: dict[int, int] = {}
        self._kept: dict[int, int] = {}  # what it owns while suspended

    @property
    def at_hand(self) -> int:
        """How many tasks are at hand."""
        return sum(self._at_hand.values())

    def suspend(self) -> None:
        """Begin nothing for now; what is at hand goes on."""
        self.suspended = True
        self._kept.update(self.owned)
        self.owned.clear()

    def report(self) -> dict[int, int]:
        """Tell a new coordinator what has not been let go: the token of each group.

        All of it is its own from then on: a coordinator that has asked for some of it is one no more.
        """
        self.suspend()
        self._kept.update(self.leaving)
        self.lost -= len(self.leaving)
        self.leaving.clear()
        return dict(self._kept)

    def resume(self) -> None:
        """Go on with what was not asked back meanwhile."""
        self.suspended = False
        self.owned.update(self._kept)
        self._kept.clear()

    def granted(self, group: int, token: int) -> None:
        """A group is its own."""
        (self._kept if self.suspended else self.owned)[group] = token
        self.gained += 1

    def renewed(self, groups: Iterable[int], token: int) -> None:
        """Groups that are its own have another token, for tasks that are begun from now on."""
        for group in groups:
            for owned in (self.owned, self._kept):
                if group in owned:
                    owned[group] = token

    def revoked(self, groups: Iterable[int]) -> list[int]:
        """Groups are asked back.

        Returns:
            Those without a task at hand: they are let go, now.
        """
        idle = []
        for group in groups:
            token = self.owned.pop(group, None) or self._kept.pop(group, None)
            if token is not None:
                self.lost += 1
                if group in self._at_hand:
                    self.leaving[group] = token
                else:
                    idle.append(group)
        return idle

    def begin(self, group: int) -> int | None:
        """Begin a task of a group.

        Returns:
            The group's token; `None` if no task may be begun there.
        """
        token = self.owned.get(group)
        if token is not None:
            self._at_hand[group] = self._at_hand.get(group, 0) + 1
        return token

    def end(self, group: int) -> bool:
        """A task that was begun is over.

        Returns:
            Whether the group was asked back meanwhile, and is let go, now.
        """
        left = self._at_hand[group] - 1
        if left:
            self._at_hand[group] = left
            return False
        del self._at_hand[group]
        return self.leaving.pop(group, None) is not None
