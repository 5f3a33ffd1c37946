"""Saving and loading the state of a lock server.

Only facts are saved: the requests, their order, and which are granted. The tree, the counts, and
the reasons for waiting follow from these by the rule of the lock table. So saving takes time in the
number of requests, and copies no long chains of linked objects.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from fractions import Fraction
from typing import NamedTuple

from locks.core.server.notifier import Notifier
from locks.core.server.table import COUNTERS, LockTable
from locks.core.server.tree import Entry, Requester, place_of
from locks.model import AgentId, LockId, Mode, Place

__all__ = ["SavedServer", "load_table", "save_server"]


class SavedRequester(NamedTuple):
    """An agent as its requests' requester; fields as in `Requester`."""

    id: AgentId
    client: str
    requests_elsewhere: bool
    waits_elsewhere: bool
    changed_at: int
    waited: bool
    closes: bool  # whether it may lie on an unreported cycle


class SavedEntry(NamedTuple):
    """A request; fields as in `Entry`."""

    requester: int
    number: int
    lock_id: LockId
    mode: Mode
    place: Place
    room: Fraction
    since: int
    version: int
    granted: bool
    spare: bool
    notified: tuple[tuple[int, int], ...] | None


class SavedServer(NamedTuple):
    """All facts of a lock server."""

    version: int
    last_place: int
    counters: tuple[int, ...]
    requesters: tuple[SavedRequester, ...]
    entries: tuple[SavedEntry, ...]
    watchers: tuple[tuple[LockId, tuple[Hashable, ...]], ...]


def save_server(
    table: LockTable,
    notifier: Notifier,
    watchers: Iterable[tuple[LockId, Iterable[Hashable]]],
) -> SavedServer:
    """The facts of a lock server."""
    number = {requester: i for i, requester in enumerate(table.requesters.values())}
    closers = notifier.closers
    return SavedServer(
        table.version,
        table.last_place,
        tuple([getattr(table, name) for name in COUNTERS]),
        tuple(
            SavedRequester(
                requester.id,
                requester.client,
                requester.requests_elsewhere,
                requester.waits_elsewhere,
                requester.changed_at,
                requester.waited,
                requester in closers,
            )
            for requester in number
        ),
        tuple(_save_entry(entry, number) for requester in number for entry in requester.all()),
        tuple((lock_id, tuple(there)) for lock_id, there in watchers),
    )


def _save_entry(entry: Entry, number: dict[Requester, int]) -> SavedEntry:
    notified = entry.notified
    return SavedEntry(
        number[entry.requester],
        entry.number,
        entry.slot.lock_id,
        entry.mode,
        entry.place,
        entry.room,
        entry.since,
        entry.version,
        entry.granted,
        entry.spare,
        # Owners that are gone have forgotten it.
        None
        if notified is None
        else tuple((number[o], changed_at) for o, changed_at in notified.items() if o in number),
    )


def load_table(saved: SavedServer, table: LockTable, notifier: Notifier) -> None:
    """Put facts into a new, empty lock table and its notifier."""
    requesters = []
    for each in saved.requesters:
        requester = Requester(each.id, each.client)
        requester.requests_elsewhere = each.requests_elsewhere
        requester.waits_elsewhere = each.waits_elsewhere
        requester.changed_at = each.changed_at
        requester.waited = each.waited
        requesters.append(requester)
        table.requesters[each.id] = requester
        if each.closes:
            notifier.closers[requester] = None
    granted: dict[Entry, bool] = {}
    for fact in saved.entries:
        entry = _enter(table, requesters[fact.requester], fact)
        if fact.notified is not None:
            entry.notified = {requesters[i]: changed_at for i, changed_at in fact.notified}
        granted[entry] = fact.granted
    table._entries = dict(sorted(table._entries.items()))
    in_order = sorted(granted, key=place_of)
    for entry in in_order:
        table._stand(entry)
        if granted[entry]:
            entry.granted = True
            entry.requester.waiting -= 1
            entry.slot.granted[entry.rank] += 1
    for entry in in_order:
        if not entry.granted:
            table._look(entry)  # it finds a reason to wait
    table.looked = []
    notifier.load(requesters)
    table.version = saved.version
    table.last_place = saved.last_place
    for name, counted in zip(COUNTERS, saved.counters, strict=True):
        setattr(table, name, counted)


def _enter(table: LockTable, requester: Requester, fact: SavedEntry) -> Entry:
    """Make an entry that is not in a queue yet."""
    slot = table._grow(fact.lock_id)
    entry = Entry(fact.number, requester, slot, fact.mode)
    entry.place, entry.room = fact.place, fact.room
    entry.since, entry.version = fact.since, fact.version
    table._entries[entry.number] = entry
    requester.entries.setdefault(slot, []).append(entry)
    requester.total += 1
    requester.waiting += 1
    if fact.spare:
        table._set_spare(entry, True)
    return entry
