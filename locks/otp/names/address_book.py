"""The address book: the known nodes, their addresses, and when each was last alive.

Pure: it has no clock and no random numbers, and dials no node (`locks.otp.names.dialling` does).
The rules:

* *Asked for*: nodes that the program has named. They are never forgotten, and only the program
  changes their addresses.
* *Heard of*: all others. Another node has named them, with an age: how long ago that node was
  connected with them. News makes a name younger, never older.
* *Met*: nodes with which this node has been connected itself. Only these names are passed on, each
  with its age. So no node passes on names that it has only heard of, and hearsay can't keep a name
  alive.
* A name that was only heard of is forgotten when no node has been connected with it for a
  configured time.
* The number of names that one node brings in and that were never met is limited. Further ones
  replace its oldest ones.
* The longer a node is gone, the more rarely it is dialled: again after half of that time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from heapq import nlargest, nsmallest
from typing import NamedTuple

from locks.otp.names.addresses import Address, HostAndPort, UnixAddress

__all__ = ["GONE", "LARGEST", "NAMES", "AddressBook", "Due", "Known", "News"]

NAMES = 1000  # names that one node may send at a time, and that it may bring in and were never met
GONE = 100  # how many of the names sent at a time may be of nodes that are gone
LARGEST = 10_000  # names in the book that were not asked for
SHORTEST = 0.05  # seconds between two dials of a node that was asked for, or met
HEARSAY = 1.0  # seconds, likewise for a node that was only heard of
LONGEST_ASKED = 1.0  # seconds between two dials of a node that was asked for, at most
LONGEST = 60.0  # seconds, likewise for all others
SEEN = 5.0  # seconds between two checks whether a node is still connected
NEVER = -math.inf


class News(NamedTuple):
    """News of one node about another one.

    Attributes:
        name: Its name.
        address: Where it listens.
        age: How many seconds ago it was known to be alive.
    """

    name: str
    address: HostAndPort
    age: float


class Due(NamedTuple):
    """The nodes to dial now.

    Attributes:
        asked: Nodes that were asked for.
        heard: Others: first those that were met, then those that have waited longest.
    """

    asked: list[str]
    heard: list[str]


class Known:
    """The knowledge about one node.

    Attributes:
        address: Where it listens; `None` if there is a way through lock servers only.
        asked: Whether the program has asked for it.
        met: Whether this node has been connected with it.
        source: The node that named it.
        seen: When it was last known to be alive, by this node's clock.
        since: When it was lost; the time of its next dial depends on this.
        due: When to dial it next.
        failure: The reason of the last failed dial, and how often in a row it was the reason.
    """

    __slots__ = ("address", "asked", "due", "failure", "met", "seen", "since", "source")

    def __init__(self, address: Address | None, source: str, seen: float, since: float) -> None:
        self.address = address
        self.asked = False
        self.met = False
        self.source = source
        self.seen = seen
        self.since = since
        self.due = since
        self.failure = ("", 0)


class AddressBook:
    """The nodes that one node knows of.

    All times are by one clock that only goes forward.

    Args:
        own: The node's own name, which is never in the book.
        linked: The nodes that it is connected with now.
        forget: Returns after how many seconds a name that was not asked for is forgotten.
        chance: Returns a random number between 0 and 1, so that nodes don't dial in step.
        refusals: Filled with the reasons for which running nodes can't be connected, by their
            names.
    """

    def __init__(
        self,
        own: str,
        linked: Collection[str],
        *,
        forget: Callable[[], float],
        chance: Callable[[], float],
        refusals: dict[str, str],
    ) -> None:
        self._own = own
        self._linked = linked
        self._forget = forget
        self._chance = chance
        self._refusals = refusals
        self.known: dict[str, Known] = {}

    @property
    def addresses(self) -> dict[str, Address | None]:
        """The addresses of all nodes in it."""
        return {name: known.address for name, known in self.known.items()}

    # --- News -----------------------------------------------------------------------------------

    def ask_for(self, name: str, address: Address | None, now: float) -> None:
        """Note that the program wants a connection with a node."""
        if name == self._own:
            return
        known = self.known.get(name)
        if known is None:
            known = Known(address, self._own, NEVER, now)
        known.address = address
        known.asked = True
        known.since = known.due = now
        self.known[name] = known

    def give_up(self, name: str) -> None:
        """Note that the program no longer wants a connection with a node."""
        self._forget_name(name)

    def hear(self, source: str, news: Iterable[News], now: float) -> int:
        """Take in news from another node.

        Args:
            source: That node. Its news about itself is not hearsay.
            news: The news; its form is checked, its truth is not.
            now: The time.

        Returns:
            How many names were dropped or not taken in, because it has named too many.
        """
        oldest = now - self._forget()
        added = False
        for name, address, age in news:
            seen = now - age
            if name == self._own or seen <= oldest:
                continue
            known = self.known.get(name)
            if known is None:
                known = Known(address, source, seen, seen)
                known.due = now if age < HEARSAY else now + self._pause(known, now)
                known.met = name == source
                self.known[name] = known
                added = True
            elif name == source:
                known.met = True
                if not known.asked:
                    known.address = address
            elif seen > known.seen and name not in self._linked:
                known.seen = seen
                if not known.asked:
                    known.address = address
                    known.due = min(known.due, now + self._pause(known, now))
        return self._keep_within(source) if added else 0

    def _keep_within(self, source: str) -> int:
        """Drop names above the limits; return how many."""
        rumours = {
            name: known for name, known in self.known.items() if self._is_rumour(name, known)
        }
        brought = [name for name, known in rumours.items() if known.source == source]
        dropped = self._drop(brought, NAMES) if len(brought) > NAMES else 0
        if len(self.known) > LARGEST:
            others = [
                name
                for name, known in self.known.items()
                if not known.asked and name not in self._linked
            ]
            if len(others) > LARGEST:
                dropped += self._drop(others, LARGEST - LARGEST // 10)
        return dropped

    def _forget_name(self, name: str) -> None:
        self.known.pop(name, None)
        self._refusals.pop(name, None)

    def _is_rumour(self, name: str, known: Known) -> bool:
        """Whether a node was only heard of."""
        return not (known.met or known.asked or name in self._linked)

    def _drop(self, names: list[str], keep: int) -> int:
        """Keep this many names, first of nodes that were met, then of those seen last; drop others."""
        names.sort(key=lambda name: (self.known[name].met, self.known[name].seen), reverse=True)
        for name in names[keep:]:
            self._forget_name(name)
        return len(names) - keep

    # --- Connections that come and go -----------------------------------------------------------

    def connected(self, name: str, now: float) -> None:
        """Note that another node is connected."""
        known = self.known.get(name)
        if known is not None:
            known.met = True
            known.seen = now
            known.failure = ("", 0)
            self._refusals.pop(name, None)

    def lost(self, name: str, now: float) -> None:
        """Note that the connection to a node is lost."""
        known = self.known.get(name)
        if known is not None:
            known.seen = known.since = now
            # Not at once: the remaining nodes are busy now, and a program that died is not back
            # yet.
            known.due = now + self._pause(known, now)

    def has_failed(self, name: str) -> bool:
        """Whether the last dial of a node has failed, or was refused."""
        known = self.known.get(name)
        return name in self._refusals or (known is not None and known.failure[1] > 0)

    def failed(self, name: str, reason: str, refused: bool) -> int:
        """Note that a dial has failed; return how often in a row for this reason.

        Args:
            name: The node.
            reason: Why.
            refused: Whether a program answered there and refused it.
        """
        known = self.known.get(name)
        if known is None:
            return 0
        before, times = known.failure
        known.failure = (reason, times + 1 if reason == before else 1)
        if refused:
            self._refusals[name] = reason
        else:
            self._refusals.pop(name, None)
        return known.failure[1]

    # --- Dials, and news for others -------------------------------------------------------------

    def _pause(self, known: Known, now: float) -> float:
        """Seconds until the next dial."""
        shortest = SHORTEST if known.asked or known.met else HEARSAY
        longest = LONGEST_ASKED if known.asked else LONGEST
        gone = now - max(known.since, known.seen)
        return min(max(gone / 2, shortest), longest) * (0.8 + 0.4 * self._chance())

    def due(self, now: float, room: int) -> Due:
        """Return the nodes to dial now, and forget names that are too old.

        This also notes that connected nodes are alive. A node stays due until it is taken (`dialled`).

        Args:
            now: The time.
            room: How many nodes may be dialled that were not asked for.
        """
        forget = self._forget()
        oldest = now - forget
        ripe = [
            (name, known)
            for name, known in self.known.items()
            if known.due <= now or known.seen <= oldest
        ]
        asked, heard = [], []
        for name, known in ripe:
            if name in self._linked:
                known.met = True
                known.seen = now
                known.due = now + SEEN
            elif known.asked:
                if known.due <= now:
                    asked.append(name)
            elif known.seen <= oldest:
                self._forget_name(name)
            elif known.due <= now:
                heard.append((not known.met, known.due, name))
        return Due(asked, [name for *_, name in nsmallest(max(room, 0), heard)])

    def dialled(self, name: str, now: float) -> None:
        """Note that a node is dialled now; if that fails, it is due again after a pause."""
        known = self.known.get(name)
        if known is not None:
            known.due = now + self._pause(known, now)

    def next_due(self, now: float) -> float:
        """Seconds until the next node is due or forgotten, at the soonest; infinite if there is none."""
        known = self.known.values()
        soonest = min((each.due for each in known), default=math.inf)
        ending = min((each.seen for each in known if not each.asked), default=math.inf)
        return max(0.0, min(soonest, ending + self._forget()) - now)

    def news_for(self, now: float, to: str) -> list[News]:
        """The news for another node: the nodes that this one has met, the youngest first, limited."""
        oldest = now - self._forget()
        there = [
            News(name, address, 0.0)
            for name in self._linked
            if name != to and (address := self._address_for_others(name)) is not None
        ]
        seen = [
            (known.seen, name)
            for name, known in self.known.items()
            if known.met and known.seen > oldest and name not in self._linked
        ]
        gone = [
            News(name, address, now - when)
            for when, name in nlargest(GONE, seen)
            if name != to and (address := self._address_for_others(name)) is not None
        ]
        return [*there[: NAMES - GONE - 1], *gone]

    def told_of(self, name: str) -> News | None:
        """The news about a connected node; `None` if it is not connected, or has no address."""
        address = self._address_for_others(name)
        if address is None or name not in self._linked:
            return None
        return News(name, address, 0.0)

    def _address_for_others(self, name: str) -> HostAndPort | None:
        """The address of a node, if others can reach it there."""
        known = self.known.get(name)
        if known is None or isinstance(known.address, UnixAddress):
            return None
        return known.address
