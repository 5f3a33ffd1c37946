"""What a node tells observers of its lock server: its requests with their times, its deadlocks, itself.

The machines have neither a clock nor a memory of what is over; this is the shell's. All of it is for the node's turn.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from locks.core.facts import (
    MOST_DEADLOCKS,
    DeadlockFact,
    DeadlockPage,
    RequestFact,
    RequestPage,
)
from locks.core.messages import ServerEffect, Surrender, Surrendered, ToAgent
from locks.core.server.machine import ServerMachine
from locks.lock_ids import size_of
from locks.model import Deadlock, LockId
from locks.node.clients import parts_of
from locks.node.stamps import Stamps

__all__ = ["Record"]

MOST_ITEMS = 100  # in one page
LARGEST_PAGE = 16 * 1024  # bytes of lock ids at which a page is full
MOST_EDGES = 50  # of reports, likewise


class Record:
    """What happened when at one lock server.

    Args:
        machine: The lock server's.
        now: The clock, in nanoseconds since 1970.
        started: When the lock server began, in microseconds since 1970.

    Attributes:
        started: When the lock server began, in microseconds since 1970.
        deadlocks: How many deadlocks it has broken.
        step: Called with the version of the lock table as each step begins.
    """

    def __init__(self, machine: ServerMachine, now: Callable[[], int], started: int = 0) -> None:
        self._machine = machine
        self._now = now
        self._stamps = Stamps(now, self._versions)
        self.step = self._stamps.step
        self.started = started
        self.deadlocks = 0
        self._reports: deque[tuple[int, int, Deadlock]] = deque(maxlen=MOST_DEADLOCKS)

    def surrendered(self, message: Surrender, effects: Sequence[ServerEffect]) -> None:
        """A surrender was taken in; if it has broken a deadlock, that is remembered."""
        last = effects[-1]
        if message.report is None or not isinstance(last, ToAgent):
            return
        answer = last.message
        if isinstance(answer, Surrendered) and answer.done:
            if self._reports and self._reports[-1][2] == message.report:
                return  # the turn was torn, and is taken again
            self.deadlocks += 1
            self._reports.append((self.deadlocks, self.now(), message.report))

    def now(self) -> int:
        """The clock, in microseconds since 1970."""
        return self._now() // 1000

    def _versions(self) -> Iterator[int]:
        for entry in self._machine.table.related(()):
            yield entry.number
            yield entry.since

    def requests(
        self, prefix: LockId | None, after: int, address: Callable[[str], str]
    ) -> RequestPage:
        """A page of requests.

        Args:
            prefix: Those on this id, above it and below it; all, if there is none.
            after: Those with larger numbers.
            address: From where a node is connected.
        """
        table = self._machine.table
        numbers = self._machine.numbers(prefix or ())
        found: list[RequestFact] = []
        now = self.now()
        size = 0
        for number in numbers[bisect_right(numbers, after) :]:
            if len(found) >= MOST_ITEMS or size >= LARGEST_PAGE:
                return RequestPage(tuple(found), True)
            entry = table.entry(number)
            assert entry is not None
            request = entry.record(self._machine.node)
            label, program, pid = parts_of(request.client)
            size += size_of(request.lock_id)
            since = self._stamps.when(request.since)
            asked = self._stamps.when(number)
            where = address(request.agent.node)
            found.append(RequestFact(request, asked, since, now, label, program, pid, where))
        return RequestPage(tuple(found), False)

    def reports(self, after: int) -> DeadlockPage:
        """A page of the deadlocks with larger numbers than this."""
        found: list[DeadlockFact] = []
        now = self.now()
        edges = 0
        for number, at, report in _later(self._reports, after):
            if edges >= MOST_EDGES:
                return DeadlockPage(tuple(found), True)
            edges += len(report.cycle)
            found.append(DeadlockFact(number, at, now, report))
        return DeadlockPage(tuple(found), False)


def _later(
    reports: Iterable[tuple[int, int, Deadlock]], after: int
) -> Iterator[tuple[int, int, Deadlock]]:
    return (each for each in reports if each[0] > after)
