"""The states of a world that count as equal in an exploration.

The order of a dictionary is part of the state, unless it only decides the order of messages to
different parties (`UNORDERED`, and `SINGLE` with a single node). Messages to agents that have ended
do nothing, so they are dropped. Servers' counters are renamed (`Labels`):

* Versions and numbers of requests have only three uses: to decide which of two states of *one*
  request, or of its agent (`changed_at`), is newer; whether they are equal; and in which order the
  requests of one agent came. So each agent has its own counter at each server, which counts by one.
  Numbers of different agents only have to differ.
* The version in an answer to a surrender is larger than all versions that were known before.
* Places are compared only between related requests, so each first element of ids has its own
  counter.

With renamed counters, the records in one message may have another order, so the choice between
several equal cycles may differ. `rename=False` explores with the real counters; the tests compare
the two for small worlds.
"""

from __future__ import annotations

import copyreg
import itertools
from collections.abc import Collection
from fractions import Fraction
from functools import partial
from typing import Any

from msgspec.structs import astuple

from locks.core.agent.fencing import Tokens
from locks.core.messages import (
    AgentMessage,
    Remove,
    Request,
    ServerMessage,
    Surrender,
    Surrendered,
)
from locks.core.server.machine import ServerMachine
from locks.core.server.table import COUNTERS
from locks.core.server.tree import Entry, Requester, Slot
from locks.model import AgentId, RequestRecord
from locks.ranges import replace

__all__ = ["DROPPED", "SINGLE", "UNORDERED", "Labels", "fields", "freeze"]

DROPPED = {
    "LockTable": {*COUNTERS, "spares", "looked"},
    "ScriptedClient": {
        *("aborts", "options", "script", "nodes", "clock", "rule", "home"),
        *("fresh", "gone"),
    },
    "Host": {"out", "client"},
    "ClientWaits": {"_answered"},
    "Resolver": {"silent"},  # the ledger's
    "Notifier": {
        "waiting",
        "asking",
        "away",
    },  # and attributes that are ignored
}
# Dictionaries that are only looked into, or gone through only to send to different parties.
UNORDERED = frozenset(
    {
        *("_entries", "notified", "latest", "places", "told", "waiting", "open"),
        *("_passed_on", "_sources", "giving_up", "_unanswered", "releasing"),
        *("_unacknowledged", "used", "standings", "had", "tokens", "asked", "reached"),
        "counted",
    }
)
SINGLE = UNORDERED | {"requesters"}  # iterated only where agents wait at other nodes
PLACING = (Request, Surrender)  # the messages by which requests get a place
LATER = 10**18  # later than each renamed version
ROOM = (
    10**11
)  # for the versions of one agent; larger than those of servers that were restarted before
LIFE = 10**6  # for the versions of one life of a lock server


# --- Freezing -----------------------------------------------------------------------------------


def freeze(
    value: Any, unordered: Collection[str], seen: dict[int, int], ordered: bool = True
) -> Any:
    """A value as tuples that are equal if, and only if, there is no difference that matters."""
    kind = type(value)
    if value is None or kind in (int, str, bool, Fraction) or isinstance(value, tuple):
        return value
    if isinstance(value, dict):
        items = value.items() if ordered else sorted(value.items(), key=_by_key)
        return tuple(
            [(freeze(k, unordered, seen), freeze(v, unordered, seen, ordered)) for k, v in items]
        )
    if kind is list:
        return tuple([freeze(v, unordered, seen) for v in value])
    if kind in (set, frozenset):
        return frozenset(value)
    if isinstance(value, partial):
        return (value.func.__name__, value.args)
    if isinstance(value, Tokens) and not value.waits:
        return None  # as if there were none
    if id(value) in seen:
        return ("seen", seen[id(value)])
    seen[id(value)] = len(seen)
    dropped = {name for each in kind.__mro__ for name in DROPPED.get(each.__name__, ())}
    found: list[Any] = [kind.__name__]
    for name in fields(value):
        if name in ("deadlocks", "reports"):
            found.append(len(getattr(value, name)))
        elif name not in dropped:
            found.append(freeze(getattr(value, name), unordered, seen, name not in unordered))
    return tuple(found)


def fields(value: Any) -> list[str]:
    """The names of an object's fields."""
    names = [name for each in type(value).__mro__ for name in getattr(each, "__slots__", ())]
    return names + list(getattr(value, "__dict__", ()))


def _by_key(item: tuple[Any, Any]) -> Any:
    """Sort key for the items of a dictionary whose order does not matter."""
    key = item[0]
    return key if isinstance(key, int) else key.id if isinstance(key, Requester) else repr(key)


# --- Pickling -----------------------------------------------------------------------------------


def _blank() -> Slot:
    return Slot((), None)


def _reduce(slot: Slot) -> tuple[Any, ...]:
    """A slot that gets the shared empty `children` again: a copy of that would be shared, too, and not be known as empty."""
    names = [name for name in fields(slot) if name != "children" or slot.children]
    return _blank, (), (None, {name: getattr(slot, name) for name in names})


copyreg.pickle(Slot, _reduce)


# --- Renaming -----------------------------------------------------------------------------------


class Labels:
    """The counters of one server, renamed.

    Args:
        machine: The server.
        life: How many lives of this server were before.
        final: Whether agents that are removed never come back.

    Attributes:
        latest: For each agent, its latest version.
        places: The last place for each first element of ids.
        first: The last place when renaming began.
    """

    def __init__(self, machine: ServerMachine, life: int = 0, final: bool = True) -> None:
        self.latest: dict[AgentId, int] = {}
        self.places: dict[Any, int] = {}
        self.first = machine.table.last_place
        self.life = life
        self.final = final
        machine.table.last_place = 0
        machine.table.version = LATER

    def begin(self, machine: ServerMachine, message: ServerMessage) -> None:
        """Before a step: the place counter is that of the id."""
        if isinstance(message, PLACING):
            machine.table.last_place = self.places.get(message.lock_id[0], self.first)

    def end(
        self, machine: ServerMachine, message: ServerMessage, sent: list[AgentMessage]
    ) -> list[AgentMessage]:
        """After a step: rename the new counters, in the server and in its messages."""
        table = machine.table
        if isinstance(message, PLACING):
            self.places[message.lock_id[0]] = table.last_place
        elif table.last_place:
            raise AssertionError(f"{message} gives a place, and is not known to")
        table.last_place = 0
        table.version = LATER
        entries = list(table._entries.values())
        names = self._names(machine, entries, sent)
        if names:
            table._entries.clear()
            for entry in entries:
                self._rename(entry, names)
                table._entries[entry.number] = entry
            for owner in table.requesters.values():
                owner.changed_at = names.get(owner.changed_at, owner.changed_at)
        if isinstance(message, Remove) and self.final:
            self.latest.pop(message.agent, None)
            if not self.latest and not entries:
                self.places.clear()
        return [self._renamed(one, names) for one in sent]

    def _names(
        self, machine: ServerMachine, entries: list[Entry], sent: list[AgentMessage]
    ) -> dict[int, int]:
        """New names for the versions that are new."""
        new: dict[AgentId, set[int]] = {}

        def note(agent: AgentId, *versions: int) -> None:
            new.setdefault(agent, set()).update(v for v in versions if v > LATER)

        for entry in entries:
            note(entry.requester.id, entry.number, entry.since, entry.version)
        for owner in machine.table.requesters.values():
            note(owner.id, owner.changed_at)
        for one in sent:
            for record in _records(one):
                note(record.agent, record.number, record.since, record.version)
        names: dict[int, int] = {}
        for agent, versions in new.items():
            before = self.latest.get(agent, agent.serial * ROOM + self.life * LIFE)
            names.update(zip(sorted(versions), itertools.count(before + 1)))
            if versions:
                self.latest[agent] = before + len(versions)
        return names

    def _rename(self, entry: Entry, names: dict[int, int]) -> None:
        entry.number = names.get(entry.number, entry.number)
        entry.since = names.get(entry.since, entry.since)
        entry.version = names.get(entry.version, entry.version)
        if entry.notified:
            entry.notified = {owner: names.get(v, v) for owner, v in entry.notified.items()}

    def _renamed(self, sent: AgentMessage, names: dict[int, int]) -> AgentMessage:
        changed: dict[str, Any] = {}
        if isinstance(sent, Surrendered):
            changed["version"] = LATER
        elif any(type(field) is int and field > LATER for field in astuple(sent)):
            raise AssertionError(f"{sent} has a version that is not renamed")
        if found := _records(sent):
            changed["records"] = tuple(self._record(record, names) for record in found)
        return replace(sent, **changed)

    def _record(self, record: RequestRecord, names: dict[int, int]) -> RequestRecord:
        return replace(
            record,
            number=names.get(record.number, record.number),
            since=names.get(record.since, record.since),
            version=names.get(record.version, record.version),
        )


def _records(message: AgentMessage) -> tuple[RequestRecord, ...]:
    found: tuple[RequestRecord, ...] = getattr(message, "records", ())
    return found
