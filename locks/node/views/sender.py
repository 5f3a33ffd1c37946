"""Watchers of other nodes: they are told by pages, and only what has changed.

Each watcher reads the view of a lock id: first all of it, then what changes. What a reading has still
to be told is kept as the numbers of requests, each once, however often it changes. When a page is made of
them, it has the requests as the lock table has them then. So a page without a
rest behind it says exactly what the table is at that moment.

A view with thousands of rows goes out one page at a time, each when the one before was taken in. After that,
changes go out at once, as long as the reader takes pages in; else they gather. So what waits for a slow
reader is bounded. A page that several of them are told is made once.

**Who watches pays.** In the turn that changes something, it is only put down for each node that has watchers. What
follows, finding the readings that it concerns, making pages and sending them, is taken from that node's share of this node's
time (`locks.otp.links.budgets.Pace`): a moment of it at the end of that turn, so that watchers are told at once, and all else in
turns of its own, when it is the node's turn.

All of it is for the node's turn. Lock server machines know these watchers as one, `OUTSIDE`.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import Protocol

from locks.core.messages import OUTSIDE, TableChange, Unwatch, Watch
from locks.core.server.tree import Entry
from locks.core.server.watchers import Watchers
from locks.model import LockId
from locks.node.peers.local_node import LocalNode
from locks.otp.bytes import etf
from locks.otp.bytes.terms import Pid, Term
from locks.otp.distribution import Distribution
from locks.otp.links.budgets import SLICE, Share
from locks.otp.process.processes import Processes
from locks.runtime import Executor
from locks.runtime.waiter import run_in_hub
from locks.wire import pages

__all__ = ["ViewSender"]

logger = logging.getLogger("locks.nodes")

AHEAD = 32  # pages that a reader may be sent before it has taken them in
AT_ONCE = SLICE / 4  # seconds for the watchers of a node at the end of somebody's turn
KEPT = 1024 * 1024  # bytes of terms that are kept
ROOM = 1000  # numbers that may gather for a reading beside those in the table
PAGES = 64  # that are kept to be told others
Made = dict[tuple[int, LockId, bool, bool, tuple[int, ...]], Term]


class _Connections(Protocol):
    """What this module needs of `locks.node.peers.cluster.Cluster`; see there."""

    node: LocalNode
    executor: Executor
    distribution: Distribution
    processes: Processes


class _Audience:
    """The watchers of one node.

    Attributes:
        share: Its share of this node's time.
        index: The lock ids that they watch, with their readings.
        changed: Requests that have changed, and were not put down for the readings yet: their lock ids, by
            their numbers.
        ready: The readings that have something to be told, and take it in.
        waits: Whether a turn of its own is to come.
        moment: For how many seconds it is to be served at the end of this turn.
    """

    __slots__ = ("changed", "index", "moment", "ready", "share", "waits")

    def __init__(self, share: Share) -> None:
        self.share = share
        self.index = Watchers()
        self.changed: dict[int, LockId] = {}
        self.ready: dict[_Reading, None] = {}
        self.waits = False
        self.moment = AT_ONCE

    def readings(self, lock_id: LockId) -> list[_Reading]:
        """Those of exactly this id."""
        return list(self.index.of(lock_id))  # type: ignore[arg-type]


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
        ready: The nodes with watchers that are to be told something; `flush` is due.
    """

    def __init__(self, cluster: _Connections) -> None:
        self._cluster = cluster
        self._readings: dict[int, _Reading] = {}
        self._by_id: dict[LockId, dict[Pid, _Reading]] = {}
        self._audiences: dict[str, _Audience] = {}
        self.ready: dict[_Audience, None] = {}
        self._next = 0
        self._terms: dict[int, tuple[Entry, int, Term]] = {}  # with the version that they are of
        self._kept = 0
        self._made: Made = {}  # pages that say how the table is now

    @property
    def count(self) -> int:
        """How many ids are watched from other nodes, counted once for each watcher."""
        return len(self._readings)

    # --- Who watches ----------------------------------------------------------------------------

    def begin(self, watcher: Pid, lock_id: LockId) -> None:
        """A process of another node watches a lock id. If it did before, it is told at once."""
        audience = self._audiences.get(watcher.node)
        if audience is None:
            share = self._cluster.distribution.line.pace.share(watcher.node)
            audience = self._audiences[watcher.node] = _Audience(share)
        there = self._by_id.setdefault(lock_id, {})
        reading = there.get(watcher)
        if reading is None:
            self._next += 1
            reading = _Reading(self._next, watcher, lock_id)
            there[watcher] = self._readings[reading.id] = reading
        audience.index.add(lock_id, reading)
        reading.greets = True
        self._wake(reading)
        self._cluster.node.deliver(self._cluster.node.server, Watch(OUTSIDE, ()))

    def end(self, watcher: Pid, lock_id: LockId) -> None:
        """A process of another node watches a lock id no more."""
        there = self._by_id.get(lock_id, {})
        reading = there.pop(watcher, None)
        if reading is not None:
            self._readings.pop(reading.id, None)
            audience = self._audience(reading)
            audience.index.remove(lock_id, reading)
            audience.ready.pop(reading, None)
            if not audience.index.any:
                self._leave(watcher.node)
        if not there:
            self._by_id.pop(lock_id, None)

    def lost(self, node: str) -> None:
        """The connection to a node is lost, and all watchers there."""
        audience = self._audiences.get(node)
        if audience is not None:
            for _, readings in audience.index.all():
                for reading in readings:
                    assert isinstance(reading, _Reading)
                    self.end(reading.watcher, reading.lock_id)

    def _leave(self, node: str) -> None:
        """Nothing is watched by a node any more."""
        audience = self._audiences.pop(node, None)
        if audience is not None:
            self.ready.pop(audience, None)
        if not self._audiences:
            self._cluster.node.deliver(self._cluster.node.server, Unwatch(OUTSIDE, ()))

    def watchers(self, lock_id: LockId) -> list[Pid]:
        """The processes of other nodes that watch exactly this id."""
        return list(self._by_id.get(lock_id, ()))

    # --- What they are told ---------------------------------------------------------------------

    def changed(self, change: TableChange) -> None:
        """A step of the lock table has changed some requests."""
        most = self._most
        self._made.clear()
        for audience in self._audiences.values():
            if len(audience.changed) > most:  # as good as all; and some have come and gone since
                for reading in self._all(audience):
                    reading.anew = True
                    self._wake(reading)
                audience.changed.clear()
            audience.changed.update(change.changed)
            self._go_on_soon(audience)

    @property
    def _most(self) -> int:
        """How many numbers may gather."""
        return self._cluster.node.server.machine.table.size + ROOM

    def _all(self, audience: _Audience) -> list[_Reading]:
        return [each for each in self._readings.values() if self._audience(each) is audience]

    def _audience(self, reading: _Reading) -> _Audience:
        return self._audiences[reading.watcher.node]

    def taken(self, node: str, reading: int, page: int) -> None:
        """A reader has taken in a page, and all before it."""
        found = self._readings.get(reading)
        if found is not None and found.watcher.node == node:
            found.taken = max(found.taken, min(page, found.sent))
            self._wake(found)

    def _wake(self, reading: _Reading) -> None:
        if reading.may_go_on and (reading.due or reading.anew or reading.greets):
            audience = self._audience(reading)
            audience.ready[reading] = None
            self._go_on_soon(audience)

    def _go_on_soon(self, audience: _Audience) -> None:
        if not audience.waits:
            self.ready[audience] = None

    # --- At the end of a turn, and in turns of their own ----------------------------------------

    def flush(self) -> None:
        """Tell watchers what is new, for a moment; the rest is done in turns of its own."""
        for audience in list(self.ready):
            if self._cluster.distribution.line.pace.is_ahead(audience.share):
                self._serve(audience)
            audience.moment = AT_ONCE
            if audience.changed or audience.ready:
                run_in_hub(self._cluster.executor.hub, self._come_back, audience)
                audience.waits = True
            self.ready.pop(audience, None)

    def _come_back(self, audience: _Audience) -> None:
        """In the hub: wait until it is the turn of a node's watchers."""
        go_on = partial(self._cluster.node.turn.run_surely, self._go_on, audience)
        self._cluster.distribution.line.enter(audience, audience.share, go_on)

    def _go_on(self, audience: _Audience) -> None:
        """The end of this turn goes on with what waits."""
        audience.waits = False
        if audience in self._audiences.values():
            audience.moment = SLICE
            self.ready[audience] = None

    def _serve(self, audience: _Audience) -> None:
        """Do some of what is to be done for a node's watchers."""
        until = time.perf_counter() + audience.moment
        begin = time.thread_time()
        try:
            if self._find(audience, until):
                while True:
                    if not audience.ready or time.perf_counter() > until:
                        break
                    self._send_page(audience, next(iter(audience.ready)))
        finally:
            pace = self._cluster.distribution.line.pace
            pace.served_elsewhere(audience.share, time.thread_time() - begin)

    def _find(self, audience: _Audience, until: float) -> bool:
        """Put down what has changed for the readings that it concerns; return whether it is done."""
        most = self._most
        while audience.changed:
            number, lock_id = next(iter(audience.changed.items()))
            for watched in audience.index.related(lock_id):
                for reading in audience.readings(watched):
                    if not reading.anew:
                        reading.due[number] = None
                        if len(reading.due) > most:  # of requests that have come and gone since
                            reading.anew = True
                            reading.due.clear()
                        self._wake(reading)
            del audience.changed[number]
            if time.perf_counter() > until:
                return False
        return True

    def _send_page(self, audience: _Audience, reading: _Reading) -> None:
        """Send a reading its next page.

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
        key = (table.version, reading.lock_id, reading.anew, complete, tuple(numbers))
        content = self._made.get(key)
        if content is None:
            if len(self._made) >= PAGES:
                self._made.clear()
            content = pages.pack_content(table.version, reading.anew, complete, gone, terms)
            self._made[key] = content
        page = pages.pack_page(reading.id, reading.sent + 1, content)
        self._cluster.processes.send(reading.watcher, etf.encode(page))
        reading.sent += 1
        reading.complete = complete
        reading.anew = reading.greets = False
        for number in numbers:
            del reading.due[number]
        if not (reading.due and reading.may_go_on):
            audience.ready.pop(reading, None)

    def _term(self, entry: Entry) -> Term | None:
        """The term of a request; none of one that can't be sent, which nobody is told of."""
        known = self._terms.get(entry.number)
        if known is not None and known[0] is entry and known[1] == entry.since:
            return known[2]
        try:
            term = pages.contender_term(entry.contender())
        except etf.EncodeError as error:
            text = "can't inform watchers on other nodes of a request: %s"
            self._cluster.executor.run_soon(logger.error, text, error)
            return None
        if self._kept > KEPT:
            self._terms.clear()
            self._kept = 0
        self._terms[entry.number] = (entry, entry.since, term)
        self._kept += len(term.encoded)
        return term
