"""Whom a lock server tells what: as little as the algorithm can do with.

A deadlock needs, wherever it passes through the table, somebody who comes in and somebody by whom
it goes out. Call an agent *entangled* when it waits and has other requests as well. Of a set of
requests that hang together (a *component*: all requests below the topmost id that is asked for),

* a *candidate* is a request that waits and whose agent has other requests, here or elsewhere;
* an *exit* is a request whose agent waits with another request, here or elsewhere.

A cycle through the component enters it by a candidate and leaves it by an exit. So

1.  while a component has no candidate or no exit it is *cold*: nobody in it is told anything but
    the state of the own requests. A holder that waits for nothing is no exit; handing on a lock
    that many want costs one message, however many wait.
2.  In a *hot* component of one id only the entangled are told. All of them know the whole queue of
    that id, so whoever waits in it with its only request is known to those before and after it.
    (If it must yield, they tell it; then it inquires, and is told from then on.)
3.  In a hot component of several ids everyone who waits is told, because a chain of waiting
    requests may pass over ids that are not related to each other.
4.  Told are only requests that wait, or whose agent waits (`RequestRecord.blocked`), and the
    changes of such requests: an edge to an agent that waits for nothing leads nowhere.

Who is told of an own request for the first time gets all that is related to it, then each change.
Knowledge that was interrupted (the component was cold for a while) is told anew in full.

What is left out here is proved by exploring all interleavings of small worlds, and many schedules
of large ones, in `tests/model`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from locks.lock_table import LockTable
from locks.lock_tree import Asker, Entry, Slot
from locks.model import AgentId, RequestRecord

__all__ = ["Informer"]

News = dict[AgentId, dict[Entry, RequestRecord]]


class Informer:
    """Decides after each step of a lock table who is told what.

    Args:
        table: The lock table.
        node: Name of its node, for the records.
    """

    def __init__(self, table: LockTable, node: str) -> None:
        self._table = table
        self._node = node
        self._step = 0

    def after(self, changed: list[Entry], asker: Asker | None = None) -> News:
        """Work out what to tell after one step.

        Args:
            changed: The entries that the step changed.
            asker: An asker whose standing elsewhere, or whose wish to be told, changed.

        Returns:
            For each agent the entries to tell it of, with their records. The state of its own
            changed entries is always among them, unless they are gone.
        """
        self._step += 1
        news: News = {}
        for entry in changed:
            if not entry.gone:
                news.setdefault(entry.asker.id, {})[entry] = entry.record(self._node)
        own: dict[Asker, list[Entry]] = {} if asker is None else {asker: []}
        for entry in changed:
            own.setdefault(entry.asker, []).append(entry)
        dirty = dict.fromkeys(changed)
        fresh: list[Entry] = []
        for each, entries in own.items():
            if each.waits or each.waited:
                self._turn(each, entries, dirty, fresh)
        for entry in changed:
            if entry.gone:
                _mark(entry, False, False)
        for entry in dirty:
            self._spread(entry, news)
        for entry in fresh:
            top = _top(entry.slot)
            if top is not None and _hot(top):
                self._warm(top, news)
                self._catch_up(entry, top, news)
        return news

    def _turn(
        self, asker: Asker, changed: list[Entry], dirty: dict[Entry, None], fresh: list[Entry]
    ) -> None:
        """Bring an asker that waits, or did, up to date.

        Its entries become dirty when it began or ceased to wait, and fresh when it may have to
        be told of them from now on.
        """
        waits = asker.waits
        if waits != asker.waited:
            asker.waited = waits
            self._table.version += 1
            asker.turned = self._table.version
            dirty.update(dict.fromkeys(asker.all()))
        if not waits:
            asker.inquired = False
        many = asker.total > 1 or asker.requests_elsewhere
        asker.entangled = waits and (many or asker.inquired)
        standing = (min(asker.waiting, 2), asker.waits_elsewhere, many, asker.entangled)
        # An asker may have thousands of entries: look at all of them only when it matters.
        if standing != asker.standing:
            asker.standing = standing
            changed = list(asker.all())
            fresh += changed
        for entry in changed:
            if not entry.gone:
                waiting = not entry.granted
                exit_ = asker.waits_elsewhere or asker.waiting > waiting
                if _mark(entry, many and waiting, exit_):
                    fresh.append(entry)
                if not waits:
                    entry.synced = -1

    def _spread(self, entry: Entry, news: News) -> None:
        """Tell of a change to those in its component who need it."""
        top = _top(entry.slot)
        if top is not None:
            if _hot(top):
                self._spread_to(entry, self._table.related(entry.slot.lock_id), top, news)
            else:
                top.untold = self._step
            return
        # A gone entry was the topmost one: what is below it is in pieces now.
        for each in self._table.related(entry.slot.lock_id):
            top = _top(each.slot)
            assert top is not None
            if _hot(top):
                self._spread_to(entry, (each,), top, news)
            else:
                top.untold = self._step

    def _spread_to(self, entry: Entry, hearers: Iterable[Entry], top: Slot, news: News) -> None:
        self._warm(top, news)
        entangled_only = not top.below
        alive = not entry.gone and (not entry.granted or entry.asker.waits)
        record = None
        for hearer in hearers:
            asker = hearer.asker
            if not (asker.entangled if entangled_only else asker.waited):
                hearer.synced = -1
            elif hearer.synced < _untold(hearer.slot):
                self._catch_up(hearer, top, news)
            elif (alive or entry.told) and asker is not entry.asker:
                if record is None:
                    record = entry.record(self._node)
                    entry.told = True
                news.setdefault(asker.id, {})[entry] = record

    def _warm(self, top: Slot, news: News) -> None:
        """When a component has just become hot, tell everyone in it who needs it."""
        if top.hot_at < _untold(top):
            top.hot_at = self._step
            for each in list(_component(top)):
                self._catch_up(each, top, news)

    def _catch_up(self, entry: Entry, top: Slot, news: News) -> None:
        """Tell an asker all that is related to one of its entries, unless it knows."""
        asker = entry.asker
        if not (asker.waited if top.below else asker.entangled):
            return
        if entry.gone or entry.synced >= _untold(entry.slot):
            return
        entry.synced = self._step
        told = news.setdefault(asker.id, {})
        told[entry] = entry.record(self._node)
        for other in self._table.related(entry.slot.lock_id):
            if other.asker is not asker and (not other.granted or other.asker.waits):
                told[other] = other.record(self._node)
                other.told = True


def _mark(entry: Entry, candidate: bool, exit_: bool) -> bool:
    """Count an entry as candidate and exit, or no longer; whether it became one of them."""
    more = candidate - entry.candidate
    more_exits = exit_ - entry.exit
    if more or more_exits:
        entry.candidate = candidate
        entry.exit = exit_
        for slot in entry.slot.path():
            slot.candidates += more
            slot.exits += more_exits
    return more > 0 or more_exits > 0


def _top(slot: Slot) -> Slot | None:
    """The topmost slot at or above this one that has entries."""
    top = None
    for each in slot.path():
        if each.writes or each.reads:
            top = each
    return top


def _hot(top: Slot) -> bool:
    return top.candidates > 0 and top.exits > 0


def _untold(slot: Slot) -> int:
    """The last step whose changes about this id were not told."""
    return max(each.untold for each in slot.path())


def _component(top: Slot) -> Iterator[Entry]:
    yield from top.entries()
    for below in top.subtree():
        yield from below.entries()
