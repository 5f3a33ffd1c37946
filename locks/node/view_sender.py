"""Watchers of other nodes: they are told by pages, and only what has changed.

Each watcher reads the view of a lock id: first all of it, then what changes. What a reading has still
to be told is kept as the numbers of requests, each once, however often it changes. At the end of a turn
the next page is made of them, with the requests as the lock table has them then. So a page without a
rest behind it says exactly what the table is at that moment.

A view with thousands of rows goes out one page at a time, each when the one before was taken in, in a
turn of its own. After that, changes go out at once, as long as the reader takes pages in; else they
gather. So what waits for a slow reader is bounded, and so is the time that a turn takes for readers. A
page that several of them are told is made once.

All of it is for the node's turn. Lock server machines know these watchers as one, `OUTSIDE`.
"""

from __future__ import annotations

import logging
from typing import Protocol

from locks.core.messages import OUTSIDE, Unwatch, ViewChange, Watch
from locks.core.server.tree import Entry
from locks.model import LockId
from locks.node.original_peers import LocalNode
from locks.otp import etf
from locks.otp.processes import Processes
from locks.otp.terms import Pid, Term
from locks.runtime import Executor
from locks.wire import pages

__all__ = ["ViewSender"]

logger = logging.getLogger("locks")

AHEAD = 32  # pages that a reader may be sent before it has taken them in
PAGES = 64  # pages that are sent in one turn
WORK = 16 * 1024  # bytes of pages that are made in one turn, at most, and one page more
KEPT = 1024 * 1024  # bytes of terms that are kept
ROOM = 1000  # numbers that may gather for a reading beside those in the table


class _Connections(Protocol):
    """What this module needs of `locks.node.cluster.Cluster`; see there."""

    node: LocalNode
    executor: Executor
    processes: Processes


class _Reading:
    """What one watcher reads.

    Attributes:
        id: Its number.
        watcher: Who reads.
        lock_id: The view of which lock id.
        anew: Whether it begins, or has to begin again.
        greets: Whether it is to be told at once, also if there is nothing new.
        due: The requests that it is to be told, by their numbers.
        sent: Number of the last page.
        taken: Number of the last page that was taken in.
        complete: Whether there was no rest behind the last page.
    """

    __slots__ = (
        "anew",
        "complete",
        "due",
        "greets",
        "id",
        "lock_id",
        "sent",
        "taken",
        "watcher",
    )

    def __init__(self, number: int, watcher: Pid, lock_id: LockId) -> None:
        self.id = number
        self.watcher = watcher
        self.lock_id = lock_id
        self.anew = True
        self.greets = True
        self.due: dict[int, None] = {}
        self.sent = 0
        self.taken = 0
        self.complete = False

    @property
    def may_go_on(self) -> bool:
        """Whether the reader takes in another page now."""
        return self.sent - self.taken < (AHEAD if self.complete else 1)


class ViewSender:
    """Tells watchers of other nodes what is locked on this one.

    Args:
        cluster: What the node has to do with others.

    Attributes:
        ready: The readings that have something to be told, and take it in; `flush` is due.
    """

    def __init__(self, cluster: _Connections) -> None:
        self._cluster = cluster
        self._readings: dict[int, _Reading] = {}
        self._by_id: dict[LockId, dict[Pid, _Reading]] = {}
        self.ready: dict[_Reading, None] = {}
        self._next = 0
        self._terms: dict[int, tuple[Entry, int, Term]] = {}  # with the version that they are of
        self._kept = 0
        self._continues = False

    # --- Who watches ----------------------------------------------------------------------------

    def begin(self, watcher: Pid, lock_id: LockId) -> None:
        """A process of another node watches a lock id. If it did before, it is told at once."""
        there = self._by_id.setdefault(lock_id, {})
        reading = there.get(watcher)
        if reading is None:
            self._next += 1
            reading = _Reading(self._next, watcher, lock_id)
            there[watcher] = self._readings[reading.id] = reading
        reading.greets = True
        self._wake(reading)
        server = self._cluster.node.server
        self._cluster.node.deliver(server, Watch(OUTSIDE, lock_id))

    def end(self, watcher: Pid, lock_id: LockId) -> None:
        """A process of another node watches a lock id no more."""
        there = self._by_id.get(lock_id, {})
        reading = there.pop(watcher, None)
        if reading is not None:
            self._readings.pop(reading.id, None)
            self.ready.pop(reading, None)
        if not there:
            self._by_id.pop(lock_id, None)
            server = self._cluster.node.server
            self._cluster.node.deliver(server, Unwatch(OUTSIDE, lock_id))

    def lost(self, node: str) -> None:
        """The connection to a node is lost, and all watchers there."""
        for reading in list(self._readings.values()):
            if reading.watcher.node == node:
                self.end(reading.watcher, reading.lock_id)

    def watchers(self, lock_id: LockId) -> list[Pid]:
        """The processes of other nodes that watch exactly this id."""
        return list(self._by_id.get(lock_id, ()))

    # --- What they are told ---------------------------------------------------------------------

    def changed(self, change: ViewChange) -> None:
        """A step of the lock table has changed the view of a lock id."""
        most = self._cluster.node.server.machine.table.size + ROOM
        for reading in self._by_id.get(change.lock_id, {}).values():
            if reading.anew:
                continue
            due = reading.due
            due.update(dict.fromkeys(change.gone))
            due.update([(request.number, None) for request in change.requests])
            if len(due) > most:  # of requests that have come and gone since
                reading.anew = True
                due.clear()
            self._wake(reading)

    def taken(self, node: str, reading: int, page: int) -> None:
        """A reader has taken in a page, and all before it."""
        found = self._readings.get(reading)
        if found is not None and found.watcher.node == node:
            found.taken = max(found.taken, min(page, found.sent))
            self._wake(found)

    def _wake(self, reading: _Reading) -> None:
        if reading.may_go_on and (reading.due or reading.anew or reading.greets):
            self.ready[reading] = None

    # --- At the end of a turn -------------------------------------------------------------------

    def flush(self) -> None:
        """Send the next pages; with many of them the rest follows in turns of its own."""
        work = 0
        made: dict[tuple[LockId, bool, tuple[int, ...]], tuple[Term, bool]] = {}
        for count, reading in enumerate(list(self.ready)):
            if work >= WORK or count >= PAGES:
                self._go_on_later()
                return
            work += self._send_page(reading, made)

    def _go_on_later(self) -> None:
        if not self._continues:
            self._continues = True
            self._cluster.executor.run_soon(self._cluster.node.turn.run, self._go_on)

    def _go_on(self) -> None:
        """The end of this turn sends the next pages."""
        self._continues = False

    def _send_page(
        self,
        reading: _Reading,
        made: dict[tuple[LockId, bool, tuple[int, ...]], tuple[Term, bool]],
    ) -> int:
        """Send a reading its next page; return how many bytes had to be made for it.

        What was sent is put down afterwards. If that is torn, the page is sent again, and says the same.
        """
        table = self._cluster.node.server.machine.table
        if reading.anew:
            found = [entry.number for entry in table.related(reading.lock_id)]
            reading.due = dict.fromkeys(found)
        numbers: list[int] = []
        gone: list[int] = []
        terms: list[Term] = []
        size = 0
        for number in reading.due:
            if len(numbers) >= pages.MOST_ITEMS or size >= pages.LARGEST_PAGE:
                break
            numbers.append(number)
            entry = table.entry(number)
            term = None if entry is None else self._term(entry)
            if term is None:
                gone.append(number)
            else:
                terms.append(term)
                size += len(term.encoded)
        complete = len(numbers) == len(reading.due)
        key = (reading.lock_id, reading.anew, tuple(numbers))
        work = 0
        content, same = made.get(key, (None, False))
        if content is None or same != complete:
            content = pages.pack_content(table.version, reading.anew, complete, gone, terms)
            made[key] = (content, complete)
            work = len(content.encoded)
        page = pages.pack_page(reading.id, reading.sent + 1, content)
        self._cluster.processes.send(reading.watcher, etf.encode(page))
        reading.sent += 1
        reading.complete = complete
        reading.anew = reading.greets = False
        for number in numbers:
            del reading.due[number]
        if not (reading.due and reading.may_go_on):
            self.ready.pop(reading, None)
        return work

    def _term(self, entry: Entry) -> Term | None:
        """The term of a request; none of one that can't be sent, which nobody is told of."""
        known = self._terms.get(entry.number)
        if known is not None and known[0] is entry and known[1] == entry.since:
            return known[2]
        try:
            term = pages.contender_term(entry.contender())
        except etf.EncodeError as error:
            text = "watchers on other nodes are not told of a request: %s"
            self._cluster.executor.run_soon(logger.error, text, error)
            return None
        if self._kept > KEPT:
            self._terms.clear()
            self._kept = 0
        self._terms[entry.number] = (entry, entry.since, term)
        self._kept += len(term.encoded)
        return term
