"""The text of one frame of `locks top`, from two looks at the servers and the size of the screen.

Rates come from the counters of the lock servers between the two looks, by the clock of each server. A server that was
missing at the first look, or was restarted since, has no rates yet.

Candidates that wait while another one leads do not count as waiting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from locks.core.facts import DeadlockFact, NodeFact, RequestFact
from locks.facts.around import is_standing, standing
from locks.facts.graph import WaitReport, grouped
from locks.facts.look import Look
from locks.facts.stories import as_table, duration, longest, who, wish
from locks.model import LockId, show
from locks.node.client.clients import parts_of
from locks.ranges import one_line

__all__ = ["frame", "rates"]

LEAST = (20, 3)  # smallest frame, in columns and lines


class Rates(NamedTuple):
    """The activity of one lock server, or several, in a second.

    Attributes:
        requests: New requests.
        grants: Grants.
        waits: Requests that had to wait.
        deadlocks: Resolved deadlocks.
        waited: Waits that ended with the lock.
        seconds_waited: Total time of these waits.
        held: Released locks.
        seconds_held: Total time for which these were held.
    """

    requests: float
    grants: float
    waits: float
    deadlocks: float
    waited: float
    seconds_waited: float
    held: float
    seconds_held: float


class _Section(NamedTuple):
    """A table below a heading.

    Attributes:
        heads: The headings of its columns.
        rows: Its rows, the most important first.
    """

    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def rates(before: Look | None, now: Look) -> dict[str, Rates]:
    """The rates by lock server, for the servers that answered at both looks."""
    earlier = {} if before is None else {fact.node: fact for fact in before.nodes}
    found = {}
    for fact in now.nodes:
        then = earlier.get(fact.node)
        seconds = 0.0 if then is None else (fact.now - then.now) / 1e6
        if then is not None and then.started == fact.started and seconds > 0:
            pairs = zip(_counted(then), _counted(fact), strict=True)
            found[fact.node] = Rates(*((new - old) / seconds for old, new in pairs))
    return found


def _counted(fact: NodeFact) -> Rates:
    table, (waits, _, holds) = fact.statistics.table, fact.statistics.times
    broken = sum(fact.statistics.broken)
    times = (waits.total, waits.seconds, holds.total, holds.seconds)
    return Rates(table.requests, table.grants, table.waits, broken, *times)


def frame(before: Look | None, now: Look, columns: int, lines: int) -> list[str]:
    """The lines of a frame, cut to the size of the screen.

    Args:
        before: The previous look; `None` if this is the first one.
        now: The look to show.
        columns: The width of the screen.
        lines: The height of the screen.
    """
    columns, lines = max(columns, LEAST[0]), max(lines, LEAST[1])
    measured = rates(before, now)
    rows = grouped(now.waits)
    held = [row for row in rows if row[0].granted]
    waiting = [row for row in rows if not row[0].granted and not is_standing(row[0])]
    text = [*_summary(now, len(held), len(waiting)), _rates(measured)]
    text += ["", *as_table(*_servers(now, measured))]
    sections = [
        _hottest(held, waiting),
        _waiting(now.waits, waiting[:lines]),
        _holding(held[:lines]),
        _deadlocks(before, now),
    ]
    shown = [section for section in sections if section.rows]
    room = lines - len(text) - 2 * len(shown)  # each section has an empty line and its headings
    for section, count in zip(shown, _shares([len(s.rows) for s in shown], room), strict=True):
        if count:
            text += ["", *as_table(section.heads, section.rows[:count])]
    return [one_line(line, columns).rstrip() for line in text[:lines]]


def _shares(wanted: Sequence[int], room: int) -> list[int]:
    """The rows of each section: a section that needs few gets these, and the others share the rest equally."""
    given = [0] * len(wanted)
    left = max(room, 0)
    while left and (hungry := [at for at, rows in enumerate(wanted) if given[at] < rows]):
        each = max(left // len(hungry), 1)
        for at in hungry[:left]:
            more = min(each, wanted[at] - given[at])
            given[at] += more
            left -= more
    return given


# --- Its parts ----------------------------------------------------------------------------------


def _summary(now: Look, held: int, waiting: int) -> list[str]:
    there = len(now.nodes)
    servers = f"{there} of {now.known} lock servers, {now.needed_in_all} needed"
    enough = "" if now.enough else ": locks can NOT be taken"
    edges = [edge for edge in now.waits.edges if not is_standing(edge.waiter)]
    waiters = {edge.waiter.request.agent for edge in edges}
    roots = len({edge.holder.request.agent for edge in edges} - waiters)
    behind = f" behind {roots} that {'is' if roots == 1 else 'are'} not waiting" if roots else ""
    return [f"{servers}{enough}; {held} held, {waiting} waiting{behind}"]


def _rates(measured: dict[str, Rates]) -> str:
    if not measured:
        return "per second: unknown before the next update"
    total = Rates(*map(sum, zip(*measured.values(), strict=True)))
    requests, grants, waits, deadlocks = map(_number, total[:4])
    text = f"per second: {requests} requests, {grants} grants, {waits} waits, {deadlocks} deadlocks"
    if total.waited:
        text += f"; average wait {_milliseconds(total.seconds_waited / total.waited)}"
    if total.held:
        text += f"; average hold {_milliseconds(total.seconds_held / total.held)}"
    return text


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else duration(seconds)


def _number(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 100 or rate == 0 else f"{rate:.1f}"


def _servers(now: Look, measured: dict[str, Rates]) -> _Section:
    rows = []
    candidates = standing(now.waits.requests)
    for fact in sorted(now.nodes):
        rate = measured.get(fact.node)
        figures = ["-"] * 3 if rate is None else [_number(each) for each in rate[:3]]
        table = fact.statistics.table
        waiting = max(0, table.waiting - candidates[fact.node])  # of two answers
        counts = (table.entries, waiting, fact.clients, sum(fact.statistics.broken))
        up = duration(fact.uptime)
        rows.append((fact.node, up, *figures, *map(str, counts)))
    rows += [(name, "silent", *["-"] * 7) for name, _ in sorted(now.silent)]
    heads = ("SERVER", "UP FOR", "REQUESTS/s", "GRANTS/s", "WAITS/s")
    return _Section((*heads, "LOCKS", "WAITING", "CLIENTS", "DEADLOCKS"), rows)


def _hottest(held: list[list[RequestFact]], waiting: list[list[RequestFact]]) -> _Section:
    """The ids for which most transactions wait."""
    waits: dict[LockId, list[RequestFact]] = {}
    for row in waiting:
        waits.setdefault(row[0].request.lock_id, []).append(longest(row))
    holders = Counter(row[0].request.lock_id for row in held)
    ids = sorted(waits, key=lambda each: (-len(waits[each]), -longest(waits[each]).seconds))
    rows = [
        (
            str(len(waits[each])),
            duration(longest(waits[each]).seconds),
            str(holders[each]),
            show(each),
        )
        for each in ids
    ]
    return _Section(("WAITING", "LONGEST", "HELD BY", "HOTTEST ID"), rows)


def _waiting(waits: WaitReport, waiting: list[list[RequestFact]]) -> _Section:
    ahead: dict[tuple[str, int], dict[str, None]] = {}
    for waiter, holder in waits.edges:
        ahead.setdefault(waiter.request.key, {})[holder.label] = None
    rows = []
    for row in waiting:
        names = dict.fromkeys(name for fact in row for name in ahead.get(fact.request.key, ()))
        behind = ", ".join(names) or "-"
        rows.append((duration(longest(row).seconds), wish(row[0]), who(row[0]), behind))
    return _Section(("WAITS FOR", "WANTS", "WHO", "BEHIND"), rows)


def _holding(held: list[list[RequestFact]]) -> _Section:
    rows = [(duration(longest(row).seconds), wish(row[0]), who(row[0])) for row in held]
    return _Section(("HELD FOR", "LOCK", "WHO"), rows)


def _deadlocks(before: Look | None, now: Look) -> _Section:
    """The newest first; those since the previous look are marked."""
    seen = None if before is None else {_key(fact) for fact in before.deadlocks}
    rows = []
    for fact in now.deadlocks:
        new = "new" if seen is not None and _key(fact) not in seen else ""
        report = fact.report
        circle = " > ".join(_circle(edge.waiter.client for edge in report.cycle))
        ago = duration(fact.seconds)
        rows.append((f"{ago} ago", new, report.action, show(report.lock_id), circle))
    return _Section(("DEADLOCK", "", "ACTION", "ID", "WHO WAITED FOR WHOM"), rows)


def _key(fact: DeadlockFact) -> tuple[str, int, int]:
    return fact.report.server, fact.number, fact.at


def _circle(clients: Iterable[str]) -> list[str]:
    """The clients of a cycle, back to the first one; repeated names in a row are merged."""
    names = [name for name, _ in groupby(parts_of(client)[0] for client in clients)]
    return names + names[:1]
