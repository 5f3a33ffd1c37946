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
from locks.core.server.tree import Entry, EntryOwner, place_of
from locks.model import AgentId, LockId, Mode, Place

__all__ = ["SavedServer", "load_table", "save_server"]


class SavedOwner(NamedTuple):
    """An agent as its requests' owner; fields as in `EntryOwner`."""

    id: AgentId
    client: str
    requests_elsewhere: bool
    waits_elsewhere: bool
    turned: int
    waited: bool
    closes: bool  # whether it may lie on an unreported cycle


class SavedEntry(NamedTuple):
    """A request; fields as in `Entry`."""

    owner: int
    number: int
    lock_id: LockId
    mode: Mode
    place: Place
    room: Fraction
    since: int
    version: int
    granted: bool
    spare: bool
    yielded: bool
    notified: tuple[tuple[int, int], ...] | None


class SavedServer(NamedTuple):
    """All facts of a lock server."""

    version: int
    last_place: int
    counters: tuple[int, ...]
    owners: tuple[SavedOwner, ...]
    entries: tuple[SavedEntry, ...]
    watchers: tuple[tuple[LockId, tuple[Hashable, ...]], ...]


def save_server(
    table: LockTable,
    notifier: Notifier,
    watchers: Iterable[tuple[LockId, Iterable[Hashable]]],
) -> SavedServer:
    """The facts of a lock server."""
    number = {owner: i for i, owner in enumerate(table.owners.values())}
    closers = notifier.closers
    return SavedServer(
        table.version,
        table.last_place,
        tuple([getattr(table, name) for name in COUNTERS]),
        tuple(
            SavedOwner(
                owner.id,
                owner.client,
                owner.requests_elsewhere,
                owner.waits_elsewhere,
                owner.turned,
                owner.waited,
                owner in closers,
            )
            for owner in number
        ),
        tuple(_save_entry(entry, number) for owner in number for entry in owner.all()),
        tuple((lock_id, tuple(there)) for lock_id, there in watchers),
    )


def _save_entry(entry: Entry, number: dict[EntryOwner, int]) -> SavedEntry:
    notified = entry.notified
    return SavedEntry(
        number[entry.owner],
        entry.number,
        entry.slot.lock_id,
        entry.mode,
        entry.place,
        entry.room,
        entry.since,
        entry.version,
        entry.granted,
        entry.spare,
        entry.yielded,
        # Owners that are gone have forgotten it.
        None
        if notified is None
        else tuple((number[o], turned) for o, turned in notified.items() if o in number),
    )


def load_table(saved: SavedServer, table: LockTable, notifier: Notifier) -> None:
    """Put facts into a new, empty lock table and its notifier."""
    owners = []
    for each in saved.owners:
        owner = EntryOwner(each.id, each.client)
        owner.requests_elsewhere = each.requests_elsewhere
        owner.waits_elsewhere = each.waits_elsewhere
        owner.turned = each.turned
        owner.waited = each.waited
        owners.append(owner)
        table.owners[each.id] = owner
        if each.closes:
            notifier.closers[owner] = None
    granted: dict[Entry, bool] = {}
    for fact in saved.entries:
        entry = _enter(table, owners[fact.owner], fact)
        if fact.notified is not None:
            entry.notified = {owners[i]: turned for i, turned in fact.notified}
        granted[entry] = fact.granted
    table._entries = dict(sorted(table._entries.items()))
    in_order = sorted(granted, key=place_of)
    for entry in in_order:
        table._stand(entry)
        if granted[entry]:
            entry.granted = True
            entry.owner.waiting -= 1
            entry.slot.granted[entry.rank] += 1
    for entry in in_order:
        if not entry.granted:
            table._look(entry)  # it finds a reason to wait
    notifier.load(owners)
    table.version = saved.version
    table.last_place = saved.last_place
    for name, counted in zip(COUNTERS, saved.counters, strict=True):
        setattr(table, name, counted)


def _enter(table: LockTable, owner: EntryOwner, fact: SavedEntry) -> Entry:
    """Make an entry that is not in a queue yet."""
    slot = table._grow(fact.lock_id)
    entry = Entry(fact.number, owner, slot, fact.mode)
    entry.place, entry.room = fact.place, fact.room
    entry.since, entry.version = fact.since, fact.version
    table._entries[entry.number] = entry
    owner.entries.setdefault(slot, []).append(entry)
    owner.total += 1
    owner.waiting += 1
    table._set_yielded(entry, fact.yielded)
    if fact.spare:
        table._set_spare(entry, True)
    return entry
