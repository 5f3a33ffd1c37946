"""The lock server as a pure state machine: messages in, effects out.

It owns one node's lock table. It notifies agents as far as they need it
(`locks.core.server.notifier`), and watchers of changed views. It has no clock, actor or network;
the actor around it is `locks.node.server`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Sequence
from itertools import islice

from locks.core.messages import (
    OUTSIDE,
    End,
    Inquire,
    RaiseVersion,
    Refused,
    Release,
    Released,
    Remove,
    Request,
    RequestStates,
    Resolved,
    ServerEffect,
    ServerMessage,
    StandingElsewhere,
    Surrender,
    Surrendered,
    TableChange,
    ToAgent,
    ToWatcher,
    Unwatch,
    VersionRaised,
    ViewChange,
    Watch,
)
from locks.core.server.notifier import News, Notifier
from locks.core.server.saving import SavedServer, load_table, save_server
from locks.core.server.table import LockTable, TableStatistics
from locks.core.server.tree import Entry, Requester
from locks.core.server.watchers import Watchers
from locks.errors import assert_never
from locks.model import AgentId, LockId, Mode, RequestRecord, View, related, units_of

__all__ = ["ServerMachine"]

FEW = 1000  # requests that are sorted for a page


class ServerMachine:
    """One node's lock server.

    Args:
        node: Name of the node.
        first_version: Where the versions of its lock table start; larger than all versions that an
            earlier server of this node assigned.

    Attributes:
        changed: The entries that the last message changed; the shell records their times.
    """

    def __init__(self, node: str, first_version: int = 0) -> None:
        self.node = node
        self.changed: Sequence[Entry] = ()
        self._begin(first_version)

    def _begin(self, version: int) -> None:
        self.table = LockTable(version)
        self._notifier = Notifier(self.table, self.node)
        self._watchers = Watchers()

    def handle(self, message: ServerMessage) -> list[ServerEffect]:
        """Take in one message; return the effects to carry out, in order."""
        self.changed = ()
        # Frequent messages come first; `match` would take longer.
        if isinstance(message, Request):
            told, effects = self.request(
                message.agent,
                message.client,
                message.lock_id,
                message.mode,
                message.requests_elsewhere,
                message.waits_elsewhere,
                message.spare,
            )
            answer = told if isinstance(told, Refused) else RequestStates(self.node, told)
            return [ToAgent(message.agent, answer), *effects]
        if isinstance(message, Remove):
            return self._remove(message)
        if isinstance(message, Release):
            return self._release(message)
        if isinstance(message, StandingElsewhere):
            return self._standing(message)
        if isinstance(message, Surrender):
            return self._surrender(message)
        if isinstance(message, Inquire):
            return self._inquire(message)
        if isinstance(message, RaiseVersion):
            return self._raise(message)
        if isinstance(message, Watch):
            return self._watch(message)
        if isinstance(message, Unwatch):
            return self._unwatch(message)
        return assert_never(message)

    def request(
        self,
        agent: AgentId,
        client: str,
        lock_id: LockId,
        mode: Mode,
        requests_elsewhere: bool = False,
        waits_elsewhere: bool = False,
        spare: bool = False,
    ) -> tuple[tuple[RequestRecord, ...] | Refused, list[ServerEffect]]:
        """Take in a request, by message or by direct call; the arguments are the fields of `Request`.

        Returns:
            First the records for its agent: of the request, and perhaps of others. Then the other
            effects, in the order in which they are carried out.
        """
        self.changed = ()
        if type(lock_id[-1]) is tuple:
            units = units_of(lock_id)
            counted_slot = self.table.counted.get(lock_id[:-1])
            declared = units if counted_slot is None else counted_slot.units
            if units and (units != declared or mode != "write"):
                return Refused(self.node, lock_id, declared), []
        changed = self.table.request(agent, client, lock_id, mode, spare)
        requester = changed[0].requester
        moved: Requester | None = None
        if (
            requester.requests_elsewhere != requests_elsewhere
            or requester.waits_elsewhere != waits_elsewhere
        ):
            moved = requester
            requester.requests_elsewhere = requests_elsewhere
            requester.waits_elsewhere = waits_elsewhere
        self.changed = changed
        news = self._notifier.after(changed, moved)
        own = tuple(news.pop(agent).values())
        return own, self._tell(news) if news or self._watchers.any else []

    def raise_to(self, version: int) -> None:
        """Assign only larger versions from now on, because another node assigned this one."""
        self.table.raise_to(version)

    def pass_over(self, locks: int, version: int) -> None:
        """Count locks that were granted and released without this lock server, up to a version (`locks.core.thin`)."""
        self.table.pass_over(locks, version)

    @property
    def size(self) -> int:
        """The number of requests in the table."""
        return self.table.size

    def save(self) -> SavedServer:
        """Return the state, for `load`."""
        return save_server(self.table, self._notifier, self._watchers.all())

    def another(self) -> ServerMachine:
        """Make an empty lock server of the same node, into which a state can be loaded."""
        return type(self)(self.node)

    def load(self, saved: SavedServer) -> None:
        """Return to a saved state."""
        self._begin(saved.version)
        load_table(saved, self.table, self._notifier)
        for lock_id, watchers in saved.watchers:
            for watcher in watchers:
                self._watchers.add(lock_id, watcher)

    # --- Questions ------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The last version that was assigned or confirmed."""
        return self.table.version

    def view(self, lock_id: LockId) -> View:
        """The view of a lock id, as users see it."""
        return View(
            lock_id,
            self.node,
            tuple([entry.contender() for entry in self.table.view(lock_id)]),
            self.table.version,
        )

    def numbers(self, lock_id: LockId, after: int = 0) -> Iterator[int]:
        """The numbers larger than `after` of the requests related to an id, in rising order; `()` stands for all."""
        if lock_id:
            some = list(islice(self.table.related(lock_id), FEW + 1))
            if len(some) <= FEW:
                yield from sorted(entry.number for entry in some if entry.number > after)
                return
        # Entries are in the order of their numbers. A reader who reads all pages looks at each of them once.
        entries = self.table._entries
        numbers = list(entries)
        for at in range(bisect_right(numbers, after), len(numbers)):
            if not lock_id or related(entries[numbers[at]].slot.lock_id, lock_id):
                yield numbers[at]

    def watchers(self, lock_id: LockId) -> list[Hashable]:
        """The watchers of exactly this lock id."""
        return list(self._watchers.of(lock_id))

    def watches(self) -> int:
        """How many ids are watched by watchers of this node; an id counts once for each watcher."""
        return self._watchers.count

    @property
    def is_watched(self) -> bool:
        """Whether any id is watched, here or from other nodes."""
        return self._watchers.any

    def watched(self, watcher: Hashable) -> list[LockId]:
        """The ids that a watcher watches."""
        return [lock_id for lock_id, watchers in self._watchers.all() if watcher in watchers]

    def statistics(self) -> TableStatistics:
        """Counters of the lock table."""
        return self.table.statistics()

    # --- Messages -------------------------------------------------------------------------------

    def _release(self, message: Release) -> list[ServerEffect]:
        agent, lock_id = message.agent, message.lock_id
        effects = self._changed(self.table.release(agent, lock_id, message.mode))
        left = tuple(entry.record(self.node) for entry in self.table.own(agent, lock_id))
        effects.append(ToAgent(agent, Released(self.node, lock_id, left)))
        return effects

    def _remove(self, message: Remove) -> list[ServerEffect]:
        return self._changed(self.table.remove(message.agent))

    def _surrender(self, message: Surrender) -> list[ServerEffect]:
        agent, lock_id, waiter = message.agent, message.lock_id, message.waiter
        holder, report, knot = message.holder, message.report, message.knot
        stale = [end for end in knot if not self._stands(end)]
        if stale:
            changed = []
        elif message.aborts:
            requester = self.table.requesters.get(agent)
            stands = requester is not None and self.table.edge_stands(requester, waiter, holder)
            changed = self.table.remove(agent) if stands else []
        else:
            changed = self.table.surrender(agent, lock_id, waiter, holder)
        self.changed = changed
        resolved = report if changed else None
        if resolved is not None:
            self._notifier.forgotten(resolved.agents)
        news = self._notifier.after(changed)
        own = news.pop(agent, {})
        for end in (waiter, holder, *stale):
            entry = self.table.entry(end[0]) if end is not None else None
            if entry is not None and entry not in own:
                own[entry] = entry.record(self.node)
        gone = tuple([end[0] for end in stale if self.table.entry(end[0]) is None])
        answer = Surrendered(
            self.node, message, bool(changed), tuple(own.values()), self.table.version, gone
        )
        effects: list[ServerEffect] = []
        # So that what an agent of another node has elsewhere is free before the next one requests it.
        is_first = message.aborts and agent.node != self.node
        if is_first:
            effects.append(ToAgent(agent, answer))
        if resolved is not None:
            for member in resolved.agents:
                if member != agent:
                    records = tuple(news.pop(member, {}).values())
                    effects.append(ToAgent(member, Resolved(resolved, records)))
        effects += self._notify(news)
        if self._watchers.any:
            effects += self._views(changed)
        if not is_first:
            effects.append(ToAgent(agent, answer))
        return effects

    def _stands(self, end: End) -> bool:
        """Whether a request of a knot is unchanged, and its agent waits."""
        entry = self.table.entry(end[0])
        return entry is not None and entry.since == end[1] and entry.requester.waits

    def _standing(self, message: StandingElsewhere) -> list[ServerEffect]:
        requester = self.table.requesters.get(message.agent)
        if requester is None:
            return []
        requester.requests_elsewhere = message.requests_elsewhere
        requester.waits_elsewhere = message.waits_elsewhere
        return self._notify(self._notifier.after([], requester=requester))

    def _inquire(self, message: Inquire) -> list[ServerEffect]:
        requester = self.table.requesters.get(message.agent)
        return [] if requester is None else self._notify(self._notifier.again(requester))

    def _raise(self, message: RaiseVersion) -> list[ServerEffect]:
        lock_id, since, version = message.lock_id, message.since, message.version
        own = self.table.own(message.agent, lock_id)
        done = any(entry.granted and entry.since == since for entry in own)
        if done:
            self.table.raise_to(version)
        return [ToAgent(message.agent, VersionRaised(self.node, lock_id, since, version, done))]

    def _watch(self, message: Watch) -> list[ServerEffect]:
        watcher, lock_id = message.watcher, message.lock_id
        self._watchers.add(lock_id, watcher)
        return [] if watcher is OUTSIDE else [ToWatcher(watcher, self.view(lock_id))]

    def _unwatch(self, message: Unwatch) -> list[ServerEffect]:
        self._watchers.remove(message.lock_id, message.watcher)
        return []

    # --- Notifying ------------------------------------------------------------------------------

    def _changed(self, changed: list[Entry]) -> list[ServerEffect]:
        """The effects of a step that has changed these entries; see `Notifier.after`."""
        if not changed:
            return []
        self.changed = changed
        news = self._notifier.after(changed)
        return self._tell(news) if news or self._watchers.any else []

    def _tell(self, news: News) -> list[ServerEffect]:
        """The effects that notify agents and watchers of the last step's changes."""
        effects = self._notify(news)
        if self._watchers.any:
            effects += self._views(self.changed)
        return effects

    def _notify(self, news: News) -> list[ServerEffect]:
        effects: list[ServerEffect] = []
        for agent, records in news.items():
            effects.append(ToAgent(agent, RequestStates(self.node, tuple(records.values()))))
        return effects

    def _views(self, changed: Sequence[Entry]) -> list[ServerEffect]:
        effects: list[ServerEffect] = []
        if self._watchers.outside:
            numbers = tuple([(entry.number, entry.slot.lock_id) for entry in changed])
            effects.append(ToWatcher(OUTSIDE, TableChange(numbers)))
        for lock_id, entries in self._watchers.around(changed).items():
            change = ViewChange(
                lock_id,
                self.node,
                tuple([entry.number for entry in entries if entry.gone]),
                tuple([entry.contender() for entry in entries if not entry.gone]),
                self.table.version,
            )
            effects += [ToWatcher(watcher, change) for watcher in self._watchers.of(lock_id)]
        return effects
