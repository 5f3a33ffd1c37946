"""Who held which lock of a lock server, from when to when, for the logger `locks.audit`.

The logger is off unless its own level is set to INFO or below. If it is on, the lock server passes on the entries that a turn has
changed, or may have, after the commit. Each hold that has ended gets a line then, so a lock costs one. A hold that lasts gets
another line in between, within ten seconds: so the log has it, too, if the lock server is killed. The lock of an election gets
that line as soon as it is granted.

The turn only gathers records. The node's background makes lines of them, so no handler blocks a turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from itertools import takewhile
from math import inf
from typing import Any, Final, NamedTuple

from locks.core.server.machine import ServerMachine
from locks.core.server.tree import Entry
from locks.model import AgentId, Deadlock, LockId, Mode, show
from locks.node.observing.elections import is_contest
from locks.node.observing.times import Times
from locks.node.ports import NodePort
from locks.runtime.executor import Executor
from locks.runtime.logs import audit_event
from locks.words import HELD_UP

__all__ = ["Audit"]

LOOK: Final = 10.0  # seconds after which a lock that is held gets a line
LATE: Final = 5.0  # seconds by which a look may be late, before another one is planned in its place
SOME: Final = 1000  # locks that are looked at in one turn
MOST_LINES: Final = 100_000  # that wait to be written


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
    """Logs the holds of one lock server, and the deadlocks that it resolves.

    Args:
        node: The lock server's node.
        machine: The lock server's machine.
        times: The times of its requests and grants.
        executor: Writes the log.
        address: The address from which another node is connected; `None` if it is not connected.
    """

    def __init__(
        self,
        node: NodePort,
        machine: ServerMachine,
        times: Times,
        executor: Executor,
        address: Callable[[str], str | None],
    ) -> None:
        self._node = node
        self._machine = machine
        self._times = times
        self._executor = executor
        self._address_of = address
        self._seen = self._look_by = -inf
        self._records: deque[Hold | Deadlock] = deque()
        self._left_out = self._told = 0  # lines left out; of these, how many the log says

    # --- In the turn ----------------------------------------------------------------------------

    def note(self, changed: Iterable[Entry], broken: Sequence[Deadlock]) -> None:
        """A turn is committed that has changed these entries, or may have, and has resolved these deadlocks; the times do not know it yet."""
        times = self._times
        got, now = times.got, times.clock()
        records: list[Hold | Deadlock] = []
        for entry in dict.fromkeys(changed):
            lock_id = entry.slot.lock_id
            since = got.get(entry.number)
            if lock_id[0] == HELD_UP:
                continue
            if since is not None and (entry.gone or not entry.granted):
                hold = self._hold(entry, since)
                records.append(hold._replace(until=now, ended=self._end(entry)))
            elif since is None and entry.granted and not entry.gone:
                if is_contest(lock_id):
                    records.append(self._hold(entry, now))
                elif now > self._look_by:
                    self._look_by = now + LOOK + LATE
                    self._executor.run_soon(self._executor.run_later, LOOK, self.look)
        records += broken
        if records:
            room = max(0, MOST_LINES - len(self._records))
            self._records += records[:room]
            self._left_out += len(records[room:])
            self._executor.run_soon(self._write)

    def _hold(self, entry: Entry, since: float) -> Hold:
        requester = entry.requester
        where = self._address(requester.id.node) or ""
        lock_id = entry.slot.lock_id
        return Hold(entry.number, lock_id, entry.mode, requester.id, requester.client, where, since)

    def _address(self, name: str) -> str | None:
        """The address from which a node is connected; empty for this node, `None` if it is not connected."""
        return "" if name == self._node.name else self._address_of(name)

    def _end(self, entry: Entry) -> str:
        if not entry.gone:
            return "surrendered"
        return "client lost" if self._address(entry.requester.id.node) is None else "released"

    def _newer(self) -> list[int]:
        """The numbers of the locks that are held, and were granted since the last call; the newest first."""
        times, seen = self._times, self._seen
        self._look_by, self._seen = -inf, times.clock()
        return list(takewhile(lambda number: times.got[number] > seen, reversed(times.got)))

    def _some(self, numbers: Iterable[int]) -> list[Hold]:
        table, got = self._machine.table, self._times.got
        found = [(table.entry(number), got.get(number)) for number in numbers]
        return [
            self._hold(entry, since)
            for entry, since in found
            if entry is not None and since is not None and entry.slot.lock_id[0] != HELD_UP
        ]

    # --- Outside of the turn --------------------------------------------------------------------

    def look(self) -> None:
        """Log the locks that are held now, and were granted since the last look."""
        turn = self._node.turn
        numbers = turn.ask(self._newer)
        for at in range(0, len(numbers), SOME):  # between parts, others are served
            for hold in turn.ask(self._some, numbers[at : at + SOME]):
                self._log(hold)

    def _write(self) -> None:
        with suppress(IndexError):  # there are no more
            while True:
                self._log(self._records.popleft())
        missing = self._left_out - self._told
        if missing:
            self._told += missing
            name = self._node.name
            text = "%s: left out %d lines of the audit log; they came faster than they could be written"
            audit_event("audit_left_out", text, name, missing, node=name, count=missing)

    def _log(self, record: Hold | Deadlock) -> None:
        name = self._node.name
        if isinstance(record, Deadlock):
            audit_event(
                "deadlock",
                "%s: a deadlock was resolved: %s",
                *(name, record),
                node=name,
                agent=str(record.agent),
                lock=show(record.lock_id),
                action=record.action,
                report=str(record),
                left_out=0,
            )
            return
        lock, since = show(record.lock_id), self._wall(record.since)
        fields: dict[str, Any] = {
            "node": name,
            "lock": lock,
            "mode": record.mode,
            "number": record.number,
            "agent": str(record.agent),
            "client": record.client,
            "address": record.address,
            "since": since,
        }
        who = name, record.client, record.agent
        if record.until is None:
            text = "%s: %s (%s) holds %s %s since %s"
            audit_event("holds", text, *who, record.mode, lock, since, **fields)
            return
        fields["until"] = self._wall(record.until)
        fields["seconds"] = round(record.until - record.since, 6)
        fields["ended"] = record.ended
        text = "%s: %s (%s) held %s %s from %s to %s: %s"
        times = since, fields["until"], record.ended
        audit_event("held", text, *who, record.mode, lock, *times, **fields)

    def _wall(self, at: float) -> str:
        """A time of the lock server's clock, in UTC."""
        seconds = self._node.now() / 1e9 - self._times.clock() + at
        return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="microseconds")
