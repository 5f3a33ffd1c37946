"""The lock table of the original: a row for each lock id, each with a queue and a version.

A request enters the queue of its own row. Copies of it enter the queues of all existing rows above
and below. A new row begins with copies of the entries in the nearest row above, or, if there is
none, in all rows below. A surrender takes an agent out of all rows that depend on each other, and
then enters its requests there again. An index maps agents to their rows.

Tables are values: each function returns a new table and the rows that have changed, in the order in
which they are sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from locks.model import AgentId, LockId, Mode, show
from locks_lab.original.queues import Entry, Group, Queue, enter, find, inherited, leave, merge
from locks_lab.worlds.host import Violation

__all__ = ["EMPTY", "Changed", "Row", "Table", "order", "remove", "request", "surrender", "watch"]


class Row(NamedTuple):
    """The row of a lock id in the table.

    Attributes:
        lock_id: The lock id.
        version: The version of its last change.
        queue: The holders and the waiting agents.
        watchers: Other agents that are informed of its changes.
    """

    lock_id: LockId
    version: int = 1
    queue: Queue = ()
    watchers: tuple[AgentId, ...] = ()


class Table(NamedTuple):
    """A lock table.

    Attributes:
        rows: In the order of their ids.
        concerns: Which agents have to do with which lock ids.
        version: How often it has changed.
    """

    rows: tuple[Row, ...] = ()
    concerns: frozenset[tuple[AgentId, LockId]] = frozenset()
    version: int = 0

    def row(self, lock_id: LockId) -> Row | None:
        """The row of a lock id."""
        return next((row for row in self.rows if row.lock_id == lock_id), None)


EMPTY = Table()
Changed = tuple[Row, ...]


def order(lock_id: LockId) -> tuple[tuple[bool, object], ...]:
    """Numbers come before names; a table before its rows."""
    return tuple((isinstance(part, str), part) for part in lock_id)


def _is_above(one: LockId, other: LockId) -> bool:
    """Whether a lock id is equal to another one, or above it."""
    return other[: len(one)] == one


def _are_related(one: LockId, other: LockId) -> bool:
    return _is_above(one, other) or _is_above(other, one)


def _with_rows(table: Table, rows: Iterable[Row]) -> Table:
    """A table with these rows; the last one counts of several of one id."""
    there = {row.lock_id: row for row in table.rows}
    there |= {row.lock_id: row for row in rows}
    return table._replace(rows=tuple(sorted(there.values(), key=lambda row: order(row.lock_id))))


def _indexed(table: Table, agent: AgentId, rows: Sequence[Row], copied: LockId | None) -> Table:
    """The table, with an agent's rows, and the agents copied into `copied`, added to its index."""
    index = table.concerns | {(agent, row.lock_id) for row in rows}
    for row in rows:
        if row.lock_id == copied:
            index |= {(e.agent, copied) for group in row.queue for e in group.entries}
            break
    return table._replace(concerns=index)


# --- Requests -----------------------------------------------------------------------------------


def request(table: Table, agent: AgentId, lock_id: LockId, mode: Mode) -> tuple[Table, Changed]:
    """An agent requests a lock."""
    table = table._replace(version=table.version + 1)
    near = [row for row in table.rows if _are_related(row.lock_id, lock_id)]
    copied, changed = _insert(near, agent, lock_id, mode, table.version)
    table = _indexed(table, agent, changed, lock_id if copied else None)
    return _with_rows(table, changed), tuple(changed)


def _insert(
    near: Sequence[Row], agent: AgentId, lock_id: LockId, mode: Mode, version: int
) -> tuple[bool, list[Row]]:
    """Enter a request into rows; returns whether its own row is a copy, and the rows that have changed."""
    direct = Entry(agent, version)
    copy = Entry(agent, version, False)
    if not near:
        return False, [Row(lock_id, version, (Group(mode, (direct,)),))]
    above, mine, below = _split(near, lock_id)

    def entered(rows: Iterable[Row]) -> list[Row]:
        return [r._replace(version=version, queue=enter(r.queue, mode, copy)) for r in rows]

    if mine is None:
        queue: Queue = ()
        if above:
            queue = inherited(above[-1].queue)
        else:
            for row in below:
                queue = merge(row.queue, queue)
        new = Row(lock_id, version, enter(queue, mode, direct))
        rows = [*entered(above), new, *entered(below)] if above else [new, *entered(below)]
        return True, rows
    new = mine._replace(version=version, queue=enter(mine.queue, mode, direct))
    if any(group.serves(agent, mode) for group in mine.queue):
        return False, [new]  # it has requested this before: the rows above and below do not change
    return False, [*entered(above), new, *entered(below)]


def _split(near: Sequence[Row], lock_id: LockId) -> tuple[Sequence[Row], Row | None, Sequence[Row]]:
    """The rows above a lock id, its own row, and the rows below; like the original, this goes by length.

    Ids of five elements and more have their own row from the beginning. It is empty: nothing is
    copied into it.
    """
    length = len(lock_id)
    first = 0
    if length == 3:  # one of each length, whether the id is below it or not
        for shorter in (1, 2):
            first += first < len(near) and len(near[first].lock_id) == shorter
    else:
        while first < len(near) and len(near[first].lock_id) < length:
            first += 1
    above, rest = near[:first], near[first:]
    if rest and rest[0].lock_id == lock_id:
        return above, rest[0], rest[1:]
    return above, (Row(lock_id) if length > 4 else None), rest


# --- Surrender ----------------------------------------------------------------------------------


class _Place(NamedTuple):
    """The position of an agent: a row, and how it came into the queue of this row."""

    row: Row
    mode: Mode
    direct: bool


def surrender(
    table: Table,
    agent: AgentId,
    lock_id: LockId,
    version: int | None,
    behind: AgentId | None = None,
) -> tuple[Table, Changed]:
    """An agent gives up a lock, and is then last in its queue; no effect if the row has changed since.

    Args:
        table: The table.
        agent: The agent.
        lock_id: The lock.
        version: The version of the row that the agent knows; None if it does not matter.
        behind: The agent behind which it stands then, if only this row is concerned; None for the
            last position.
    """
    row = table.row(lock_id)
    if row is None or version not in (None, row.version):
        return table, ()
    places = [_place(row, agent) for row in _dependent(table, agent, lock_id)]
    if not places:
        return table, ()
    copies = [place for place in places if not place.direct]
    clusters = [
        [place, *(c for c in copies if _are_related(c.row.lock_id, place.row.lock_id))]
        for place in places
        if place.direct
    ]
    affected = [c for c in clusters if any(place.row.lock_id == lock_id for place in c)]
    table = table._replace(version=table.version + 1)
    there = {
        place.row.lock_id: place.row._replace(
            version=table.version,
            queue=leave(place.row.queue, agent),
            watchers=tuple(w for w in place.row.watchers if w != agent),
        )
        for cluster in affected
        for place in cluster
    }
    rows = sorted(there.values(), key=lambda row: order(row.lock_id))
    copied = False
    if behind is not None and len(rows) == 1:
        rows = [_behind(rows[0], behind, Group(places[0].mode, (Entry(agent, table.version),)))]
        affected = []
    for place, *_ in affected:
        fresh, entered = _insert(rows, agent, place.row.lock_id, place.mode, table.version)
        copied = copied or fresh
        for each in entered:  # the last one counts, and no row is added
            rows = [each if row.lock_id == each.lock_id else row for row in rows]
    if copied:
        table = _indexed(table, agent, [r for r in rows if r.lock_id == lock_id], lock_id)
    return _updated(table, agent, rows)


def _behind(row: Row, agent: AgentId, group: Group) -> Row:
    """A row with another group in its queue, behind an agent, or last if that agent is not there."""
    place = next((n for n, g in enumerate(row.queue, 1) if g.of(agent)), len(row.queue))
    return row._replace(queue=(*row.queue[:place], group, *row.queue[place:]))


def _dependent(table: Table, agent: AgentId, lock_id: LockId) -> list[Row]:
    """The rows that an agent's surrender has to do with, as its index has them."""
    own = sorted((i for a, i in table.concerns if a == agent), key=order)
    todo = [i for i in own if _are_related(i, lock_id)]
    seen = set(todo)
    found: list[Row] = []
    for place, each in enumerate(todo):
        if each == lock_id:  # all that follow are below
            return found + [_row(table, i) for i in todo[place:]]
        row = _row(table, each)
        found.append(row)
        if not _place(row, agent).direct:
            extra = [i for i in own if _is_above(each, i) and i not in seen]
            seen |= set(extra)
            found += [_row(table, i) for i in extra]
    return found


def _row(table: Table, lock_id: LockId) -> Row:
    row = table.row(lock_id)
    if row is None:
        raise Violation(f"the lock server crashes: it has no row for {show(lock_id)}")
    return row


def _place(row: Row, agent: AgentId) -> _Place:
    found = find(row.queue, agent)
    if found is None:
        raise Violation(
            f"the lock server crashes: {agent} is not in the queue of {show(row.lock_id)}"
        )
    mode, entry = found
    return _Place(row, mode, entry.direct)


def _updated(table: Table, agent: AgentId, rows: Iterable[Row]) -> tuple[Table, Changed]:
    """The table with rows that an agent has left, and perhaps entered again; empty rows are removed."""
    changed = []
    there = {row.lock_id: row for row in table.rows}
    index = table.concerns
    for row in rows:
        if not row.queue:
            index -= {(agent, row.lock_id)}
        if row.queue or row.watchers:
            there[row.lock_id] = row
            changed.append(row)
        else:
            there.pop(row.lock_id, None)
    ordered = tuple(sorted(there.values(), key=lambda row: order(row.lock_id)))
    return table._replace(rows=ordered, concerns=index), tuple(changed)


# --- Ending, and watching -----------------------------------------------------------------------


def remove(table: Table, agent: AgentId) -> tuple[Table, Changed]:
    """An agent has ended: it leaves all queues."""
    own = sorted((i for a, i in table.concerns if a == agent), key=order)
    if not own:
        return table, ()
    version = table.version + 1
    table = table._replace(
        version=version, concerns=frozenset(each for each in table.concerns if each[0] != agent)
    )
    rows = [
        row._replace(
            version=version,
            queue=leave(row.queue, agent),
            watchers=tuple(w for w in row.watchers if w != agent),
        )
        for row in map(table.row, own)
        if row is not None
    ]
    return _updated(table, agent, reversed(rows))


def watch(table: Table, agent: AgentId, lock_id: LockId) -> Table:
    """Register a watcher of a lock. The lock gets a row, even if nobody has requested it."""
    row = table.row(lock_id) or Row(lock_id)
    watchers = (agent, *(each for each in row.watchers if each != agent))
    table = table._replace(concerns=table.concerns | {(agent, lock_id)})
    return _with_rows(table, [row._replace(watchers=watchers)])
