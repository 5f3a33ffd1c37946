"""One of several programs leads, and what it has done is known to its successor.

The leader has a lock. For what it has done it leaves *marks*: each is a lock, too, whose id says what was done, and until when. The others
watch the marks, and remember them when the leader's death has taken them away; who leads next sets them anew. A mark that is
set at the very moment of the death may be missed: then what it stands for is done once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import locks
from locks.model import LockId, View, check_lock_id
from locks.node.client.refusals import check_may_wait

__all__ = ["Leading", "from_mark", "to_mark"]

TIMEOUT = 30.0  # seconds for what only lock servers are waited for


def to_mark(at: datetime) -> int:
    """A moment as marks have it: microseconds since 1970."""
    return int(at.timestamp() * 1e6)


def from_mark(mark: int) -> datetime:
    """The moment of a mark."""
    return datetime.fromtimestamp(mark / 1e6, timezone.utc)


class Leading:
    """This program's part in it.

    Args:
        lock_id: What it is about: the leader has a lock below it, and the marks are there, too.
        label: What this program is called where others see it.

    Attributes:
        marks: What was done, and until when (any number that rises), as far as is known.
    """

    def __init__(self, lock_id: Sequence[Any], label: str) -> None:
        above = check_lock_id(lock_id)
        self._leader: LockId = (*above, "leader")
        self._above: LockId = (*above, "marks")
        self._label = label
        self._owner: locks.Owner | None = None
        self._agent: locks.Agent | None = None
        self._set: dict[str, LockId] = {}
        self._follows = False
        self.marks: dict[str, int] = {}

    def follow(self) -> None:
        """Watch the marks; `lead` does it, too."""
        if not self._follows:
            locks.watch(self._above, watcher=self._told)
            self._follows = True

    def _told(self, view: View) -> None:
        for each in view.holders:
            match each.lock_id[len(self._above) :]:
                case (str(what), int(until)):
                    self.marks[what] = max(self.marks.get(what, until), until)
                case _:
                    pass  # a lock of somebody else's, above

    def lead(self, timeout: float | None) -> bool:
        """Wait until this program leads; return whether it does.

        Args:
            timeout: Seconds to wait at most; `None` waits for ever.

        Raises:
            LocksError: It can't be known, for lock servers are missing.
        """
        self.follow()
        owner = self._owner = locks.Owner(self._label)
        try:
            self._agent, _ = locks.begin_transaction(
                [(self._leader, "write")], client=owner, timeout=timeout
            )
        except BaseException as error:
            self.give_up()
            if isinstance(error, locks.LockTimeout):
                return False
            raise
        self._set = {}
        return True

    @property
    def lost(self) -> bool:
        """Whether this program has led, and its lock was lost, or broken; what it does as the leader is to be left."""
        try:
            if self._agent is not None:
                self._agent.ensure_held()
        except locks.LocksError:
            return True
        return False

    def await_loss(self, timeout: float) -> bool:
        """Wait until the lock is lost; return whether it is."""
        agent = self._agent
        return agent is None or agent.lost.wait(timeout) or self.lost

    def mark(self, done: Mapping[str, int]) -> None:
        """Leave marks; for the leader.

        Args:
            done: What was done, and until when.

        Raises:
            BlocksEventLoop: The caller is in an event loop, and must not wait; nothing was asked for.
            LocksError: This program does not lead any more.
        """
        check_may_wait()
        agent = self._agent
        if agent is None:
            raise locks.NotHeld("only the leader leaves marks", lock_id=self._leader)
        new = {what: (*self._above, what, until) for what, until in done.items()}
        changed = {what: each for what, each in new.items() if self._set.get(what) != each}
        if changed:
            locks.lock_objects(agent, [(each, "write") for each in changed.values()])
            locks.await_all_locks(agent, timeout=TIMEOUT)
        for what, each in changed.items():
            if what in self._set:  # until here both were there
                locks.unlock(agent, self._set[what])
            self._set[what] = each
            self.marks[what] = done[what]

    def give_up(self) -> None:
        """Lead no longer; from anywhere, also twice, and in a signal handler. The marks are watched as long as the program runs."""
        owner, self._owner, self._agent = self._owner, None, None
        if owner is not None:
            owner.end()
