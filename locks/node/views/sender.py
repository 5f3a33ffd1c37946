"""Watchers on other nodes: they receive pages with changes only.

Each watcher reads the view of a lock id: first the whole view, then the changes. The requests that
a reading has not received yet are kept as numbers, each once, however often it changes. A page
contains the present state of these requests. So a page with nothing left behind it shows exactly
the present table.

A view with thousands of rows is sent one page at a time, each when the page before was confirmed.
After that, changes are sent at once, as long as the reader confirms pages; otherwise they gather.
So the data that waits for a slow reader is bounded.

The turn that changes a request only notes it for each node with watchers. The remaining work (finding
the readings concerned, making pages and sending them) is done in turns of its own, one in each round
of the hub, as for links that have input: a bounded part for each node in turn.

Everything is for the node's turn. The lock server's machine knows all these watchers as one,
`OUTSIDE`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from msgspec import Raw

from locks.core.messages import OUTSIDE, TableChange, Unwatch, Watch
from locks.core.server.tree import Entry
from locks.core.server.watchers import Watchers
from locks.model import LockId
from locks.net.messages import MOST_ITEMS, BadMessage, Page, encode
from locks.node.peers.local_node import Connections

__all__ = ["ViewSender"]

AHEAD = 32  # pages that a reader may be sent before it has taken them in
NOTES = 100  # changes that are noted for readings of a node in one round
SENT = 4096  # bytes of pages after which other nodes are next
KEPT = 10_000  # requests that are kept encoded, for the next reader
ROOM = 1000  # numbers that may gather for a reading beyond those in the table
LARGEST_PAGE = 16 * 1024  # bytes at which a page is full


class Reader(NamedTuple):
    """Who reads a view.

    Attributes:
        node: The node.
        number: The number of the reading there.
    """

    node: str
    number: int


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

    def all(self) -> list[_Reading]:
        """All readings."""
        return [each for _, readings in self.index.all() for each in readings]  # type: ignore[misc]


class _Reading:
    """The reading of one watcher.

    Attributes:
        watcher: Who reads.
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
        "lock_id",
        "sent",
        "taken",
        "watcher",
    )

    def __init__(self, watcher: Reader, lock_id: LockId) -> None:
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
        self._readings: dict[Reader, _Reading] = {}
        self._audiences: dict[str, _Audience] = {}
        self._encoded: dict[int, Raw] = {}  # requests as they are now, by number

    @property
    def count(self) -> int:
        """How many ids are watched from other nodes, counted once for each watcher."""
        return len(self._readings)

    # --- Watchers -------------------------------------------------------------------------------

    def begin_watch(self, watcher: Reader, lock_id: LockId) -> None:
        """Begin a reading of another node; if it is begun already, it gets a page at once."""
        audience = self._audiences.get(watcher.node)
        if audience is None:
            audience = self._audiences[watcher.node] = _Audience()
        reading = self._readings.get(watcher)
        if reading is None:
            reading = self._readings[watcher] = _Reading(watcher, lock_id)
        elif reading.lock_id != lock_id:
            raise BadMessage(f"{watcher.number} is already the number of another reading")
        audience.index.add(lock_id, reading)
        reading.greets = True
        self._wake(reading)
        self._cluster.node.deliver(self._cluster.node.server, Watch(OUTSIDE, ()))

    def end_watch(self, watcher: Reader) -> None:
        """End a reading of another node."""
        reading = self._readings.pop(watcher, None)
        if reading is None:
            return
        audience = self._audience(reading)
        audience.index.remove(reading.lock_id, reading)
        audience.ready.pop(reading, None)
        if not audience.index.any:
            self._leave(watcher.node)

    def lost(self, node: str) -> None:
        """The connection to a node is lost, and all watchers there."""
        audience = self._audiences.get(node)
        if audience is not None:
            for reading in audience.all():
                self.end_watch(reading.watcher)

    def _leave(self, node: str) -> None:
        """Forget a node without watches."""
        self._audiences.pop(node, None)
        if not self._audiences:  # then nobody says what has changed
            self._encoded.clear()
            self._cluster.node.deliver(self._cluster.node.server, Unwatch(OUTSIDE, ()))

    def watchers(self, lock_id: LockId) -> list[Reader]:
        """The readers on other nodes that watch exactly this id."""
        audiences = list(self._audiences.values())
        return [each.watcher for audience in audiences for each in audience.readings(lock_id)]

    # --- Pages ----------------------------------------------------------------------------------

    def changed(self, change: TableChange) -> None:
        """A step of the lock table has changed some requests."""
        for number, _ in change.changed:
            self._encoded.pop(number, None)
        most = self._most
        for audience in self._audiences.values():
            if len(audience.changed) > most:  # as good as all; and some have come and gone since
                for reading in audience.all():
                    reading.anew = True
                    self._wake(reading)
                audience.changed.clear()
            audience.changed.update(change.changed)
        self._go_on_soon()

    @property
    def _most(self) -> int:
        """How many numbers may gather."""
        return self._cluster.node.server.machine.table.size + ROOM

    def _audience(self, reading: _Reading) -> _Audience:
        return self._audiences[reading.watcher.node]

    def taken(self, watcher: Reader, page: int) -> None:
        """A reader has taken in a page, and all before it."""
        current = self._readings.get(watcher)
        if current is not None:
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
        requests: list[Raw] = []
        size = 0
        for number in reading.due:
            if len(numbers) >= MOST_ITEMS or size >= LARGEST_PAGE:
                break
            numbers.append(number)
            entry = table.entry(number)
            if entry is None:
                gone.append(number)
            else:
                requests.append(self._contender(entry))
                size += len(requests[-1])
        complete = len(numbers) == len(reading.due)
        page = encode(
            Page(
                reading.watcher.number,
                reading.sent + 1,
                table.version,
                reading.anew,
                complete,
                tuple(gone),
                cast(Any, requests),  # encoded already: several readers get the same
            )
        )
        self._cluster.exchange.send_body(reading.watcher.node, page)
        reading.sent += 1
        reading.complete = complete
        reading.anew = reading.greets = False
        for number in numbers:
            del reading.due[number]
        if not (reading.due and reading.may_go_on):
            audience.ready.pop(reading, None)
        return len(page)

    def _contender(self, entry: Entry) -> Raw:
        """A request, encoded."""
        encoded = self._encoded.get(entry.number)
        if encoded is None:
            if len(self._encoded) >= KEPT:
                self._encoded.clear()
            encoded = self._encoded[entry.number] = Raw(encode(entry.contender()))
        return encoded
