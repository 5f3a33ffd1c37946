"""Watchers on other nodes: they receive pages with changes only.

Each watcher reads the view of a lock id: first the whole view, then the changes. The requests that
a reading has not received yet are kept as numbers, each once, however often it changes. A page
contains the present state of these requests. So a page with nothing left behind it shows exactly
the present table.

A view with thousands of rows is sent one page at a time, each when the page before was confirmed.
After that, changes are sent at once, as long as the reader confirms pages; otherwise they gather.
So the data that waits for a slow reader is bounded. A page for several readers is made once.

The turn that changes a request only notes it for each node with watchers. The remaining work (finding
the readings concerned, making pages and sending them) is done in turns of its own, one in each round
of the hub, as for links that have input: a bounded part for each node in turn.

Everything is for the node's turn. The lock server's machine knows all these watchers as one,
`OUTSIDE`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from locks.core.messages import OUTSIDE, TableChange, Unwatch, Watch
from locks.core.server.tree import Entry
from locks.core.server.watchers import Watchers
from locks.model import LockId
from locks.node.peers.local_node import Connections
from locks.otp.bytes import etf
from locks.otp.bytes.terms import Pid, Term
from locks.wire import pages

__all__ = ["ViewSender"]

logger = logging.getLogger("locks.nodes")

AHEAD = 32  # pages that a reader may be sent before it has taken them in
NOTES = 100  # changes that are noted for readings of a node in one round
SENT = 4096  # bytes of pages after which other nodes are next
KEPT = 1024 * 1024  # bytes of terms that are kept
ROOM = 1000  # numbers that may gather for a reading beyond those in the table
PAGES = 64  # pages that are kept for other readers
Made = dict[tuple[int, LockId, bool, bool, tuple[int, ...]], Term]


class _Audience:
    """The watchers of one node.

    Attributes:
        index: The lock ids that they watch, with their readings.
        changed: Changed requests that were not noted for the readings yet: their lock ids, by
            number.
        ready: The readings with data to send whose reader keeps up.
    """

    __slots__ = ("changed", "index", "ready")

    def __init__(self) -> None:
        self.index = Watchers()
        self.changed: dict[int, LockId] = {}
        self.ready: dict[_Reading, None] = {}

    def readings(self, lock_id: LockId) -> list[_Reading]:
        """The readings of exactly this id."""
        return list(self.index.of(lock_id))  # type: ignore[arg-type]


class _Reading:
    """The reading of one watcher.

    Attributes:
        id: Its number.
        watcher: The reading process.
        lock_id: The lock id of the view.
        anew: Whether it begins, or has to begin again.
        greets: Whether it gets a page at once, even if there is nothing new.
        due: The numbers of the requests to send.
        sent: Number of the last page.
        taken: Number of the last page that was confirmed.
        complete: Whether nothing was left after the last page.
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
    """Sends views of this node to watchers on other nodes.

    Args:
        cluster: The node's relations with others.
        later: Calls a function in the hub's next round.
    """

    def __init__(
        self, cluster: Connections, later: Callable[[Callable[[], object]], object]
    ) -> None:
        self._cluster = cluster
        self._later = later
        self._is_due = False  # whether a turn for them is planned
        self._readings: dict[int, _Reading] = {}
        self._by_id: dict[LockId, dict[Pid, _Reading]] = {}
        self._audiences: dict[str, _Audience] = {}
        self._next = 0
        self._terms: dict[int, tuple[Entry, int, Term]] = {}  # with the version that they are of
        self._kept = 0
        self._made: Made = {}  # pages with the present state of the table

    @property
    def count(self) -> int:
        """How many ids are watched from other nodes, counted once for each watcher."""
        return len(self._readings)

    # --- Watchers -------------------------------------------------------------------------------

    def begin_watch(self, watcher: Pid, lock_id: LockId) -> None:
        """Begin a watch by a process of another node; if it watches already, it gets a page at once."""
        audience = self._audiences.get(watcher.node)
        if audience is None:
            audience = self._audiences[watcher.node] = _Audience()
        readings = self._by_id.setdefault(lock_id, {})
        reading = readings.get(watcher)
        if reading is None:
            self._next += 1
            reading = _Reading(self._next, watcher, lock_id)
            readings[watcher] = self._readings[reading.id] = reading
        audience.index.add(lock_id, reading)
        reading.greets = True
        self._wake(reading)
        self._cluster.node.deliver(self._cluster.node.server, Watch(OUTSIDE, ()))

    def end_watch(self, watcher: Pid, lock_id: LockId) -> None:
        """End a watch by a process of another node."""
        readings = self._by_id.get(lock_id, {})
        reading = readings.pop(watcher, None)
        if reading is not None:
            self._readings.pop(reading.id, None)
            audience = self._audience(reading)
            audience.index.remove(lock_id, reading)
            audience.ready.pop(reading, None)
            if not audience.index.any:
                self._leave(watcher.node)
        if not readings:
            self._by_id.pop(lock_id, None)

    def lost(self, node: str) -> None:
        """The connection to a node is lost, and all watchers there."""
        audience = self._audiences.get(node)
        if audience is not None:
            for _, readings in audience.index.all():
                for reading in readings:
                    assert isinstance(reading, _Reading)
                    self.end_watch(reading.watcher, reading.lock_id)

    def _leave(self, node: str) -> None:
        """Forget a node without watches."""
        self._audiences.pop(node, None)
        if not self._audiences:
            self._cluster.node.deliver(self._cluster.node.server, Unwatch(OUTSIDE, ()))

    def watchers(self, lock_id: LockId) -> list[Pid]:
        """The processes of other nodes that watch exactly this id."""
        return list(self._by_id.get(lock_id, ()))

    # --- Pages ----------------------------------------------------------------------------------

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
        self._go_on_soon()

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
        current = self._readings.get(reading)
        if current is not None and current.watcher.node == node:
            current.taken = max(current.taken, min(page, current.sent))
            self._wake(current)

    def _wake(self, reading: _Reading) -> None:
        if reading.may_go_on and (reading.due or reading.anew or reading.greets):
            self._audience(reading).ready[reading] = None
            self._go_on_soon()

    # --- In turns of their own ------------------------------------------------------------------

    def _go_on_soon(self) -> None:
        if not self._is_due:
            self._later(self._go_on)
            self._is_due = True

    def _go_on(self) -> None:
        self._cluster.node.turn.run_surely(self._serve)

    def _serve(self) -> None:
        """Do a part of the work for each node's watchers."""
        for audience in list(self._audiences.values()):
            self._note(audience)
            sent = 0
            while audience.ready and not audience.changed and sent < SENT:
                sent += self._send_page(audience, next(iter(audience.ready)))
        self._is_due = False
        if any(audience.changed or audience.ready for audience in self._audiences.values()):
            self._go_on_soon()

    def _note(self, audience: _Audience) -> None:
        """Note changed requests for the readings concerned."""
        most = self._most
        notes = 0
        while audience.changed and notes < NOTES:
            number, lock_id = next(iter(audience.changed.items()))
            for watched in audience.index.related(lock_id):
                for reading in audience.readings(watched):
                    notes += 1
                    if not reading.anew:
                        reading.due[number] = None
                        if len(reading.due) > most:  # of requests that have come and gone since
                            reading.anew = True
                            reading.due.clear()
                        self._wake(reading)
            del audience.changed[number]

    def _send_page(self, audience: _Audience, reading: _Reading) -> int:
        """Send a reading its next page; return its size.

        What was sent is noted afterwards. If this is interrupted, the same page is sent again.
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
        page = etf.encode(pages.pack_page(reading.id, reading.sent + 1, content))
        self._cluster.processes.send(reading.watcher, page)
        reading.sent += 1
        reading.complete = complete
        reading.anew = reading.greets = False
        for number in numbers:
            del reading.due[number]
        if not (reading.due and reading.may_go_on):
            audience.ready.pop(reading, None)
        return len(page)

    def _term(self, entry: Entry) -> Term | None:
        """The term of a request; `None` if it can't be sent, and is left out."""
        cached = self._terms.get(entry.number)
        if cached is not None and cached[0] is entry and cached[1] == entry.since:
            return cached[2]
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
