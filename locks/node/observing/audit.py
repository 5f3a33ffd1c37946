"""Who held which lock of a lock server, from when to when, for an audit log (`locks node --audit`).

After the commit of a turn, the lock server passes on the entries that were changed, or may have. Each hold
that has ended is noted then, so a lock costs one record. A hold that lasts is noted once in between, by the
thread that writes the log (`lasting`): so the log has it, too, if the lock server is killed. The lock of an
election is noted as soon as it is granted.

A record is a plain tuple of what there is in the turn; `as_fields` makes the fields of a line of it, outside of
the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import takewhile
from math import inf
from typing import Any, NamedTuple

from locks.core.server.machine import ServerMachine
from locks.core.server.tree import Entry
from locks.model import AgentId, Deadlock, LockId, Mode, show
from locks.node.observing.elections import is_contest
from locks.node.observing.times import Times
from locks.runtime.inline import Turn
from locks.words import HELD_UP

__all__ = ["Audit", "Hold", "as_fields"]

SOME = 1000  # entries of one step


class Hold(NamedTuple):
    """A lock that is or was held.

    Attributes:
        number: The number of the request.
        lock_id: The lock.
        mode: Its mode.
        agent: The transaction.
        client: Its client.
        address: The address from which its node is connected; empty for the lock server's own node, and if it was lost.
        since: When it was granted, by the clock of the lock server's times.
        until: When it ended; `None` if it is still held.
        ended: How it ended: `released`, `surrendered` or `client lost`.
    """

    number: int
    lock_id: LockId
    mode: Mode
    agent: AgentId
    client: str
    address: str
    since: float
    until: float | None = None
    ended: str = ""


class Audit:
    """Notes the holds of one lock server.

    Args:
        machine: The lock server's machine.
        times: The times of its requests and grants.
        turn: The node's turn.
        put: Takes a record. It is called in the turn, so it must neither block nor raise.
        address: The address from which a node is connected; `None` if it is not connected.
    """

    def __init__(
        self,
        machine: ServerMachine,
        times: Times,
        turn: Turn,
        put: Callable[[Hold | Deadlock], object],
        address: Callable[[str], str | None],
    ) -> None:
        self._machine = machine
        self._times = times
        self._turn = turn
        self._put = put
        self._address = address
        self._seen = -inf

    # --- In the turn ----------------------------------------------------------------------------

    def note(self, changed: Iterable[Entry]) -> None:
        """A turn is committed that has changed these entries, or may have; the times do not know it yet."""
        times = self._times
        got = times.got
        for entry in dict.fromkeys(changed):
            since = got.get(entry.number)
            if since is None:
                lock_id = entry.slot.lock_id
                if entry.granted and not entry.gone and is_contest(lock_id):
                    self._put(self._hold(entry, times.clock()))
            elif (entry.gone or not entry.granted) and entry.slot.lock_id[0] != HELD_UP:
                hold = self._hold(entry, since)
                self._put(hold._replace(until=times.clock(), ended=self._end(entry)))

    def broke(self, report: Deadlock) -> None:
        """The lock server has broken a deadlock."""
        self._put(report)

    def _hold(self, entry: Entry, since: float) -> Hold:
        owner = entry.owner
        where = self._address(owner.id.node) or ""
        lock_id = entry.slot.lock_id
        return Hold(entry.number, lock_id, entry.mode, owner.id, owner.client, where, since)

    def _end(self, entry: Entry) -> str:
        if not entry.gone:
            return "surrendered"
        return "client lost" if self._address(entry.owner.id.node) is None else "released"

    def _some(self, numbers: Iterable[int]) -> list[Hold]:
        table, got = self._machine.table, self._times.got
        found = [(table.entry(number), got.get(number)) for number in numbers]
        return [
            self._hold(entry, since)
            for entry, since in found
            if entry is not None and since is not None and entry.slot.lock_id[0] != HELD_UP
        ]

    def _newer(self) -> list[int]:
        """The numbers of the locks that are held, and were granted since the last call; the newest first."""
        got, seen = self._times.got, self._seen
        self._seen = self._times.clock()
        return list(takewhile(lambda number: got[number] > seen, reversed(got)))

    # --- Outside of the turn --------------------------------------------------------------------

    def lasting(self) -> list[Hold]:
        """The locks that are held now, and were granted since the last call."""
        turn = self._turn
        numbers = turn.ask(self._newer)
        found: list[Hold] = []
        for at in range(0, len(numbers), SOME):  # between parts, others are served
            found += turn.ask(self._some, numbers[at : at + SOME])
        return found


def as_fields(record: Hold | Deadlock, wall: Callable[[float], str]) -> dict[str, Any]:
    """The fields of a line.

    Args:
        record: What was noted.
        wall: The text for a time of the lock server's clock.
    """
    if isinstance(record, Deadlock):
        return {
            "event": "deadlock",
            "lock": show(record.lock_id),
            "agent": str(record.agent),
            "action": record.action,
            "report": str(record),
        }
    fields: dict[str, Any] = {
        "event": "holds" if record.until is None else "held",
        "lock": show(record.lock_id),
        "mode": record.mode,
        "number": record.number,
        "agent": str(record.agent),
        "client": record.client,
        "address": record.address,
        "since": wall(record.since),
    }
    if record.until is None:
        return fields
    seconds = round(record.until - record.since, 6)
    return fields | {"until": wall(record.until), "seconds": seconds, "ended": record.ended}
