"""The groups and present tasks of one worker: a state machine that several threads use without a lock.

A task of a group is begun and ended (`begin_task`, `end_task`). After a group is revoked, no task of it is
begun, and it is released when its last task has ended. While the worker is cut off from its
coordinator, it begins no task. It reports its groups to the next coordinator, and then continues.

The program's threads begin and end tasks, and an exception may be raised there at any instruction.
So `begin_task`, `end_task` and `suspend` make each change in one atomic step, and may be repeated without
harm. All other methods run in the background, one at a time. Why is no task missed? `begin_task` first
registers its task, and then checks that the worker owns the group. A revocation first takes the
group away, and then looks for tasks. So one of them sees the other. Likewise, `end_task` first removes
its task, and then checks whether the group waits to be released.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

__all__ = ["Member"]

_NOTHING: Mapping[int, int] = {}


class Member:
    """The groups and present tasks of one worker.

    Attributes:
        owned: The tokens of the groups in which tasks may be begun; empty while it is suspended.
        epoch: Replaced by another object whenever tasks of a group may no longer be begun, or only
            with another token. A caller that begins one task after the other checks only this.
        leaving: The tokens of the groups that were revoked, and not released yet.
        gained: How many groups it was granted.
        lost: How many of these it no longer owns.
    """

    def __init__(self) -> None:
        self._groups: dict[int, int] = {}  # its groups, whether suspended or not
        self.owned: Mapping[int, int] = self._groups
        self.epoch = object()
        self.leaving: dict[int, int] = {}
        self.gained = 0
        self.lost = 0
        self._at_hand: dict[Hashable, int] = {}  # the group of each task

    # --- From any thread; also twice, and in the middle of each other

    @property
    def at_hand(self) -> int:
        """How many tasks are begun and not ended."""
        return len(self._at_hand)

    def tasks_at_hand(self) -> tuple[Hashable, ...]:
        """The tasks that are begun and not ended."""
        return tuple(self._at_hand)

    def begin_task(self, group: int, task: Hashable) -> int | None:
        """Begin a task of a group.

        Returns:
            The group's token; `None` if no task may be begun there. Call `end_task` even then, because
            another thread may have seen the task.
        """
        self._at_hand[task] = group
        return self.owned.get(group)

    def end_task(self, task: Hashable) -> bool:
        """End a task, if it was begun.

        Returns:
            Whether a group can be released now, by `settle`.
        """
        self._at_hand.pop(task, None)
        return bool(self.leaving) and bool(self._idle())

    def suspend(self) -> None:
        """Begin no task for now; present tasks continue."""
        self.owned = _NOTHING
        self.epoch = object()

    # --- In the background

    def resume(self) -> None:
        """Continue with the groups that were not revoked meanwhile."""
        self.owned = self._groups

    def report(self) -> dict[int, int]:
        """Suspend, and return the tokens of all groups that were not released, for a new coordinator.

        All these groups are its own from then on: a revocation by the earlier coordinator no longer
        counts.
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
        """Take in that groups are revoked.

        Returns:
            The groups without a present task, which are released now.
        """
        for group in groups:
            if group in self._groups:
                self.leaving[group] = self._groups.pop(group)
                self.lost += 1
        self.epoch = object()
        return self.settle()

    def settle(self) -> list[int]:
        """Release revoked groups whose last task has ended.

        Returns:
            These groups.
        """
        idle = self._idle()
        for group in idle:
            del self.leaving[group]
        return idle

    def _idle(self) -> list[int]:
        busy = set(self._at_hand.values())
        return [group for group in tuple(self.leaving) if group not in busy]
