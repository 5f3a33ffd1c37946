"""Logs long waits, once when they have become long, and again when they end.

A wait that ends soon costs nothing here. When a wait begins and no check is planned, one is
planned. A check goes through the waiting agents, and plans the next check for the time when the
oldest remaining wait becomes long; without waits it plans none. So there is one timer for each
node, and none while no agent waits. The timer keeps no loop running (`locks.runtime.executor`).
Waits of candidates in elections are not logged: they wait as long as another one leads.

The text about a wait is gathered in the turn, and logged after it, by the executor.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from locks.core.server.tree import Entry
from locks.model import RIVALS, AgentId, LockId, Mode
from locks.node.observing.elections import is_contest
from locks.runtime.executor import Executor
from locks.runtime.hub_life import Timer
from locks.runtime.logs import Sparing, log_event
from locks.words import is_held_up_id, show

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import TypeVarTuple, Unpack

    from locks.node.server import Server

    Ts = TypeVarTuple("Ts")

__all__ = ["LONG", "LongWaits"]

LONG = 1.0  # seconds after which a wait is logged, by default
SOONEST = 0.01  # seconds between two checks, and a tenth of the limit
LATE = 5.0  # seconds by which a check may be late, before another one is planned in its place
MOST_LINES = 100  # in a minute
MOST_HOLDERS = 10  # that are named
MOST_LOOKED_AT = 1000  # requests, to find them


class _Wait(NamedTuple):
    """The data of a wait for the log."""

    number: int
    agent: AgentId
    client: str
    lock_id: LockId
    mode: Mode
    seconds: float
    holders: tuple[str, ...] = ()


class LongWaits:
    """Looks for long waits at one lock server.

    Args:
        server: The lock server.
        executor: Checks and logs.
        limit: The duration from which a wait is long, in seconds.
    """

    def __init__(self, server: Server, executor: Executor, limit: float) -> None:
        self._server = server
        self._executor = executor
        self._limit = limit
        self._times = times = server.times
        self._told: dict[int, bool] = {}  # the numbers of long waits; whether each was logged
        self._sparing = Sparing(MOST_LINES)
        self._timer: Timer | None = None
        times.long = limit
        times.look_by = -inf
        times.on_wait = self._begin
        times.on_long = self._has_ended

    # --- In the turn ----------------------------------------------------------------------------

    def _begin(self) -> None:
        """A wait has begun, and no look is planned, or it is overdue."""
        self._times.look_by = self._times.clock() + self._limit + LATE
        self._run_soon(self._plan, self._limit)

    def _has_ended(self, entry: Entry, seconds: float, granted: bool) -> None:
        """A long wait is over."""
        if is_contest(entry.slot.lock_id):
            return
        was_logged = self._told.pop(entry.number, None)
        self._run_soon(self._tell_end, self._wait_of(entry, seconds), granted, was_logged)

    def _run_soon(self, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> None:
        if not self._executor.run_soon(function, *args):  # the node has stopped
            self._times.look_by = inf

    def _wait_of(self, entry: Entry, seconds: float) -> _Wait:
        requester = entry.requester
        return _Wait(
            entry.number, requester.id, requester.client, entry.slot.lock_id, entry.mode, seconds
        )

    def _gather(self) -> tuple[list[_Wait], float]:
        """The waits that have become long, the longest first, and when to check again: 0.0 without waits."""
        times = self._times
        now = times.clock()
        limit, told = self._limit, self._told
        long: list[tuple[float, Entry]] = []
        begun: list[float] = []
        waiting = set()
        for requester in self._server.machine.table.requesters.values():
            for entry in requester.all() if requester.waiting else ():
                lock_id = entry.slot.lock_id
                if not entry.waits or is_held_up_id(lock_id) or is_contest(lock_id):
                    continue
                waiting.add(entry.number)
                if entry.number in told:
                    continue
                asked = times.asked.get(entry.number, now)
                if now - asked >= limit:
                    long.append((asked, entry))
                else:
                    begun.append(asked)
        for number in told.keys() - waiting:
            told.pop(number, None)
        if not waiting:
            times.look_by = -inf
            return [], 0.0
        pause = max(min(begun, default=now) + limit - now, SOONEST, limit / 10)
        times.look_by = now + pause + LATE
        waits = []
        for asked, entry in sorted(long, key=itemgetter(0)):
            told[entry.number] = self._sparing.admit(now)
            if told[entry.number]:
                wait = self._wait_of(entry, now - asked)
                waits.append(wait._replace(holders=self._in_the_way(entry, now)))
        return waits, pause

    def _in_the_way(self, entry: Entry, now: float) -> tuple[str, ...]:
        """The holders of the lock that an entry waits for, with times; or else the entry directly ahead."""
        found: list[Entry] = []
        rivals = RIVALS[entry.mode]
        table = self._server.machine.table
        for other in islice(table.related(entry.slot.lock_id), MOST_LOOKED_AT):
            if other.granted and other.requester is not entry.requester and other.mode in rivals:
                found.append(other)
        if not found and entry.blocker is not None:
            found.append(entry.blocker)
        texts = []
        for other in found[:MOST_HOLDERS]:
            does = "holds" if other.granted else "is ahead in the queue with"
            wish = f"{other.mode} {show(other.slot.lock_id)}"
            got = self._times.got.get(other.number)
            since = "" if got is None else f" for {now - got:.1f} s"
            texts.append(f"{other.requester.client} ({other.requester.id}) {does} {wish}{since}")
        if len(found) > MOST_HOLDERS:
            texts.append(f"{len(found) - MOST_HOLDERS} more")
        return tuple(texts)

    # --- In the executor ------------------------------------------------------------------------

    def _plan(self, pause: float) -> None:
        """Look again after a while. The timer keeps no loop running."""
        if self._timer is not None:
            self._timer.close()
        self._timer = self._executor.new_timer(pause, partial(self._run_soon, self._look))

    def _look(self) -> None:
        server = self._server
        if not server.is_alive():
            return
        waits, pause = server.turn.ask(self._gather)
        if pause:
            self._plan(pause)
        elif self._timer is not None:
            self._timer.close()
            self._timer = None
        for wait in waits:
            log_event(
                "wait",
                "%s: %s (%s) has been waiting %.1f s for %s %s: %s",
                server.node.name,
                wait.client,
                wait.agent,
                wait.seconds,
                wait.mode,
                show(wait.lock_id),
                ", ".join(wait.holders) or "nothing blocks it any more",
                holders=list(wait.holders),
                **self._fields(wait),
            )
        self._tell_left_out()

    def _tell_end(self, wait: _Wait, granted: bool, was_logged: bool | None) -> None:
        if was_logged is None:  # it ended before a check
            was_logged = self._sparing.admit(self._times.clock())
        if was_logged:
            log_event(
                "wait_over",
                "%s: %s (%s) %s %s %s after %.1f s",
                self._server.node.name,
                wait.client,
                wait.agent,
                "got" if granted else "stopped waiting for",
                wait.mode,
                show(wait.lock_id),
                wait.seconds,
                granted=granted,
                **self._fields(wait),
            )

    def _tell_left_out(self) -> None:
        left = self._sparing.take_left_out()
        if left:
            log_event(
                "waits_left_out",
                "%s: left out %s more lines like these",
                self._server.node.name,
                left,
                node=self._server.node.name,
                count=left,
            )

    def _fields(self, wait: _Wait) -> dict[str, Any]:
        return {
            "node": self._server.node.name,
            "agent": str(wait.agent),
            "client": wait.client,
            "lock": show(wait.lock_id),
            "mode": wait.mode,
            "seconds": round(wait.seconds, 3),
        }
