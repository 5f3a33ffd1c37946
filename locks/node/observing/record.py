"""The record of a lock server for observers: its requests with their times, and its deadlocks.

The machines have no clock and no memory of past events; the shell records these. Everything is for
the node's turn. Times are measured by a clock that never goes back, and converted to the wall clock
when they are reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from locks.core.facts import (
    MOST_DEADLOCKS,
    DeadlockFact,
    DeadlockPage,
    RequestFact,
    RequestPage,
)
from locks.core.server.machine import ServerMachine
from locks.lock_ids import size_of
from locks.model import Deadlock, LockId
from locks.node.client.clients import parts_of
from locks.node.observing.statistics import Counters
from locks.node.observing.times import Times

__all__ = ["Record"]

MOST_ITEMS = 100  # in one page
LARGEST_PAGE = 16 * 1024  # bytes of lock ids at which a page is full
MOST_EDGES = 50  # of reports, likewise


class Record:
    """The events at one lock server, with their times.

    Args:
        machine: The lock server's machine.
        times: The times of its requests and grants.
        now: The wall clock, in nanoseconds since 1970.
        counters: The node's counters.
        started: When the lock server began, in microseconds since 1970.

    Attributes:
        started: When the lock server began, in microseconds since 1970.
    """

    def __init__(
        self,
        machine: ServerMachine,
        times: Times,
        now: Callable[[], int],
        counters: Counters,
        started: int = 0,
    ) -> None:
        self._machine = machine
        self._times = times
        self._now = now
        self._counters = counters
        self.started = started
        self._reports: deque[tuple[int, float, Deadlock]] = deque(maxlen=MOST_DEADLOCKS)

    def broke(self, report: Deadlock) -> None:
        """Record a broken deadlock; calling it again has no effect."""
        if not self._reports or self._reports[-1][2] is not report:
            broken = self._counters.broken
            self._reports.append((sum(broken.values()) + 1, self._times.clock(), report))
            broken[report.action] += 1

    def now(self) -> int:
        """The clock, in microseconds since 1970."""
        return self._now() // 1000

    def _teller(self, now: int) -> Callable[[float | None], int]:
        """Return a function that converts a measured time to microseconds since 1970; 0 for `None`."""
        measured = self._times.clock()

        def tell(time: float | None) -> int:
            return 0 if time is None else max(1, now - int((measured - time) * 1e6))

        return tell

    def requests(
        self, prefix: LockId | None, after: int, address: Callable[[str], str]
    ) -> RequestPage:
        """A page of requests.

        Args:
            prefix: Only requests related to this id; `None` for all.
            after: Only requests with larger numbers.
            address: Returns the address from which a node is connected.
        """
        table = self._machine.table
        found: list[RequestFact] = []
        now = self.now()
        tell = self._teller(now)
        asked, got = self._times.asked, self._times.got
        size = 0
        for number in self._machine.numbers(prefix or (), after):
            if len(found) >= MOST_ITEMS or size >= LARGEST_PAGE:
                return RequestPage(tuple(found), True)
            entry = table.entry(number)
            assert entry is not None
            request = entry.record(self._machine.node)
            label, program, pid = parts_of(request.client)
            size += size_of(request.lock_id)
            since = got.get(number)
            times = (tell(asked.get(number, since)), tell(since), now)
            where = address(request.agent.node)
            found.append(RequestFact(request, *times, label, program, pid, where))
        return RequestPage(tuple(found), False)

    def reports(self, after: int) -> DeadlockPage:
        """A page of the deadlocks with larger numbers than this."""
        found: list[DeadlockFact] = []
        now = self.now()
        tell = self._teller(now)
        edges = 0
        for number, at, report in _later(self._reports, after):
            if edges >= MOST_EDGES:
                return DeadlockPage(tuple(found), True)
            edges += len(report.cycle)
            found.append(DeadlockFact(number, tell(at), now, report))
        return DeadlockPage(tuple(found), False)


def _later(
    reports: Iterable[tuple[int, float, Deadlock]], after: int
) -> Iterator[tuple[int, float, Deadlock]]:
    return (each for each in reports if each[0] > after)
