"""One of several programs leads, and its successor knows what it has done.

The leader holds a lock. It records its work in *marks*: each mark is also a lock, whose id says what was done, and until when. The
others watch the marks, and remember them after the leader's death has removed them; the next leader sets them again.

A mark that is set just as the leader dies may not have reached the others. So `ran` keeps the end of the last work on a majority of the servers, too, as
`locks.once` does: there it outlives its setter. The next leader reads it (`latest`) before it does the same work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any
from weakref import ref

import locks
from locks.api import unwatch_on, watch_on
from locks.model import LockId, View, check_lock_id
from locks.node.client.refusals import check_may_wait
from locks.node.node import Node
from locks.program.default import default_node
from locks.runtime.clock import monotonic
from locks.runtime.identity import Own
from locks.shapes.once import MarkAsker

__all__ = ["Leading", "from_mark", "to_mark"]

logger = logging.getLogger("locks.engines")

TIMEOUT = 30.0  # seconds for operations that wait for lock servers only
REMEMBERED = 3600.0  # seconds for which servers remember the last work: until the others were surely told of its mark
TRIES = 1.0  # seconds to try to ask servers what they remember
PAUSE = 60.0  # seconds until servers that do not remember it are asked again


def to_mark(at: datetime) -> int:
    """Convert a time to a mark: microseconds since 1970."""
    return int(at.timestamp() * 1e6)


def from_mark(mark: int) -> datetime:
    """The time of a mark."""
    return datetime.fromtimestamp(mark / 1e6, timezone.utc)


class Leading:
    """This program's participation.

    Args:
        lock_id: The subject: the leader's lock and the marks are below it.
        label: The name of this program, as shown to others.

    Attributes:
        marks: The work that is known to be done, each with its end (any number that increases).
    """

    def __init__(self, lock_id: Sequence[Any], label: str) -> None:
        above = check_lock_id(lock_id)
        self._leader: LockId = (*above, "leader")
        self._above: LockId = (*above, "marks")
        self._runs: LockId = (*above, "runs")
        self._label = label
        self._owner: locks.Owner | None = None
        self._agent: locks.actors.Agent | None = None
        self._set: dict[str, LockId] = {}
        self._askers: dict[str, MarkAsker] = {}
        self._exact: set[str] = set()
        self._asks_from = 0.0
        self._watches: tuple[ref[Node], Own] | None = None  # where it watches the marks
        self.marks: dict[str, int] = {}

    def follow(self) -> None:
        """Watch the marks; `lead` does so, too. The program's node may be another one than at the last time."""
        node = default_node()
        if self._watches is None or self._watches[0]() is not node:
            watcher = Own(self._told)
            watch_on(node, self._above, None, watcher)
            self._watches = (ref(node), watcher)

    def _told(self, view: View) -> None:
        for each in view.holders:
            match each.lock_id[len(self._above) :]:
                case (str(what), int(until)):
                    self.marks[what] = max(self.marks.get(what, until), until)
                case _:
                    pass  # another lock above the marks

    def lead(self, timeout: float | None) -> bool:
        """Wait until this program leads; return whether it does.

        Args:
            timeout: Seconds to wait at most; `None` waits for ever.

        Raises:
            LocksError: It is unknown, because lock servers are missing.
        """
        self.follow()
        owner = self._owner = locks.Owner(self._label)
        try:
            self._agent, _ = locks.original.begin_transaction(
                [(self._leader, "write")], client=owner, timeout=timeout
            )
        except BaseException as error:
            self.give_up()
            if isinstance(error, locks.LockTimeout):
                return False
            raise
        self._set, self._askers, self._exact = {}, {}, set()
        return True

    @property
    def lost(self) -> bool:
        """Whether this program led and lost its lock; then it must stop working as the leader."""
        try:
            if self._agent is not None:
                self._agent.ensure_held()
        except locks.LocksError:
            return True
        return False

    def await_loss(self, timeout: float) -> bool:
        """Wait until the lock is lost; return whether it was lost."""
        agent = self._agent
        return agent is None or agent.lost.wait(timeout) or self.lost

    def mark(self, done: Mapping[str, int]) -> None:
        """Set marks; for the leader only.

        Args:
            done: The work that was done, each with its end.

        Raises:
            BlocksEventLoop: The caller runs in an event loop and must not wait; nothing was requested.
            LocksError: This program no longer leads.
        """
        check_may_wait()
        agent = self._leads()
        new = {what: (*self._above, what, until) for what, until in done.items()}
        changed = {what: each for what, each in new.items() if self._set.get(what) != each}
        if changed:
            locks.original.lock_objects(agent, [(each, "write") for each in changed.values()])
            locks.original.await_all_locks(agent, timeout=TIMEOUT)
        for what, each in changed.items():
            if what in self._set:  # until now both marks existed
                locks.original.unlock(agent, self._set[what])
            self._set[what] = each
            self.marks[what] = done[what]

    def ran(self, what: str, until: int) -> None:
        """Set the mark of work that was done just now, so that it can't be missed; for the leader only.

        Args:
            what: The work.
            until: Its end.

        Raises:
            BlocksEventLoop: The caller runs in an event loop and must not wait; nothing was requested.
            LocksError: This program no longer leads.
        """
        self.mark({what: until})

        def keep(asker: MarkAsker) -> None:
            asker.read(TRIES)
            asker.set(asker.new(until, REMEMBERED), TRIES)

        if self._ask(what, keep):
            self._exact.add(what)

    def latest(self, what: str) -> int | None:
        """The end of the last work, also if its leader died before this program was told of the mark; for the leader only.

        Raises:
            LocksError: This program no longer leads.
        """

        def read(asker: MarkAsker) -> None:
            found = asker.find(TRIES, TRIES)
            if found is not None and found.token > self.marks.get(what, 0):
                self.marks[what] = found.token

        if what not in self._exact and self._ask(what, read):
            self._exact.add(what)
        return self.marks.get(what)

    def _ask(self, what: str, ask: Callable[[MarkAsker], object]) -> bool:
        """Ask the servers what they remember of some work; return whether they could answer."""
        agent = self._leads()
        if monotonic() < self._asks_from:
            return False
        if what not in self._askers:
            lock_id = (*self._runs, what)
            locks.original.lock_objects(agent, [(lock_id, "write")])
            locks.original.await_all_locks(agent, timeout=TIMEOUT)
            self._askers[what] = MarkAsker(agent, lock_id)
        try:
            ask(self._askers[what])
        except locks.CannotServe as error:
            self._asks_from = monotonic() + PAUSE
            logger.warning(
                "the lock servers can't keep what was done last, so the last work of a leader that dies may be repeated: %s",
                error,
            )
            return False
        return True

    def _leads(self) -> locks.actors.Agent:
        if self._agent is None:
            raise locks.errors.NotHeld(
                "can't set or read a mark: this program does not lead", lock_id=self._leader
            )
        return self._agent

    def give_up(self) -> None:
        """Stop leading. It may be called anywhere, repeatedly, and in a signal handler. The marks are still watched."""
        owner, self._owner, self._agent = self._owner, None, None
        if owner is not None:
            owner.end()

    def end(self) -> None:
        """Stop leading, and watching the marks. A signal handler in the middle of a call of `locks` can't do the latter: call it again."""
        self.give_up()
        if self._watches is not None:
            node, watcher = self._watches[0](), self._watches[1]
            if node is not None and node.running:
                try:
                    unwatch_on(node, self._above, None, watcher)
                except locks.errors.ReentrantCall:
                    return
                except locks.errors.NodeNotRunning:
                    pass  # it has just ended
            self._watches = None
