"""The nodes that a node knows of: where they are, who has asked for them, and when each was last alive.

Pure: it knows no clock and no chance, and dials nobody (`locks.otp.names.dialling` does). The rules:

* *Asked for*: nodes that the program has named. They are never forgotten, and their addresses are
  changed by the program alone.
* *Heard of*: all others. They were named by another node, with the age of the news: how long ago that
  node was itself connected with them. News makes a name younger, never older.
* *Met*: this node has been connected with it itself. Only such names are told to others, each with its
  age. So nobody passes on what it has only heard, and a name can't be kept alive by hearsay.
* A name that was only heard of is forgotten when nobody has been connected with it for a stated time.
* One node can bring in so many names that were never met. More take the place of its own oldest ones.
* The longer a node is gone, the seldomer it is dialled: again after half of that time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from heapq import nlargest, nsmallest
from typing import NamedTuple

from locks.otp.names.discovery import Address, HostAndPort, UnixAddress

__all__ = ["GONE", "LARGEST", "NAMES", "AddressBook", "Due", "Known", "News"]

NAMES = 1000  # that one node may name at a time, and bring in that were never met
GONE = 100  # of those that are named at a time may be gone
LARGEST = 10_000  # names in the book that were not asked for
SHORTEST = 0.05  # seconds between two dials of a node that was asked for, or met
HEARSAY = 1.0  # seconds, likewise for one that was only heard of
LONGEST_ASKED = 1.0  # seconds between two dials of a node that was asked for, at most
LONGEST = 60.0  # seconds, likewise for all others
SEEN = 5.0  # seconds between two looks at whether one is still connected
NEVER = -math.inf


class News(NamedTuple):
    """What one node tells of another one.

    Attributes:
        name: Its name.
        address: Where it listens.
        age: How many seconds ago it was known to be alive.
    """

    name: str
    address: HostAndPort
    age: float


class Due(NamedTuple):
    """Who is to be dialled now.

    Attributes:
        asked: Those that were asked for.
        heard: Of the others those that were met, and then those that have waited longest.
    """

    asked: list[str]
    heard: list[str]


class Known:
    """What is known of one node.

    Attributes:
        address: Where it listens; `None` if that is to be looked up.
        asked: Whether the program has asked for it.
        met: Whether this node has been connected with it.
        source: Who has named it.
        seen: When it was last known to be alive, by this node's clock.
        since: From when on it counts as gone, when its next dial is reckoned.
        due: When it is to be dialled next.
        failure: Why it could not be dialled last, and how often in a row that was the reason.
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
        forget: Says after how many seconds a name that was not asked for is forgotten.
        chance: A random number between 0 and 1: nodes don't dial in step.
        refusals: Where to say why nodes that are there can't be connected, by their names.
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

    # --- What is learned ------------------------------------------------------------------------

    def ask_for(self, name: str, address: Address | None, now: float) -> None:
        """The program wants to be connected with a node, from now on."""
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
        """The program does not want to be connected with a node any more."""
        self._forget_name(name)

    def hear(self, source: str, news: Iterable[News], now: float) -> int:
        """Take in what another node tells.

        Args:
            source: That node. What it says of itself is not hearsay.
            news: What it tells; checked, but not whether it is true.
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
        """Drop what is too much; return how many."""
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
        """Whether it was only heard of."""
        return not (known.met or known.asked or name in self._linked)

    def _drop(self, names: list[str], keep: int) -> int:
        """Keep so many of these: rather those that were met, and those that were seen last."""
        names.sort(key=lambda name: (self.known[name].met, self.known[name].seen), reverse=True)
        for name in names[keep:]:
            self._forget_name(name)
        return len(names) - keep

    # --- Connections that come and go -----------------------------------------------------------

    def connected(self, name: str, now: float) -> None:
        """The node is connected with another one."""
        known = self.known.get(name)
        if known is not None:
            known.met = True
            known.seen = now
            known.failure = ("", 0)
            self._refusals.pop(name, None)

    def lost(self, name: str, now: float) -> None:
        """The connection is gone."""
        known = self.known.get(name)
        if known is not None:
            known.seen = known.since = now
            # Not at once: those that are left are busy now, and a program that died is not back yet.
            known.due = now + self._pause(known, now)

    def has_failed(self, name: str) -> bool:
        """Whether the last dial of a node has failed, or it was refused since."""
        known = self.known.get(name)
        return name in self._refusals or (known is not None and known.failure[1] > 0)

    def failed(self, name: str, reason: str, refused: bool) -> int:
        """A dial has failed; returns how often in a row for this reason.

        Args:
            name: Of which node.
            reason: Why.
            refused: Whether something is there that has refused it.
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

    # --- What follows from it -------------------------------------------------------------------

    def _pause(self, known: Known, now: float) -> float:
        """How long to wait until the next dial."""
        shortest = SHORTEST if known.asked or known.met else HEARSAY
        longest = LONGEST_ASKED if known.asked else LONGEST
        gone = now - max(known.since, known.seen)
        return min(max(gone / 2, shortest), longest) * (0.8 + 0.4 * self._chance())

    def due(self, now: float, room: int) -> Due:
        """The nodes to dial now, and what is too old is forgotten.

        A node that is connected is seen alive by this. Who is to be dialled stays due until it is taken
        (`take`).

        Args:
            now: The time.
            room: How many may be dialled of those that were not asked for.
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

    def take(self, name: str, now: float) -> None:
        """It is dialled now; if that fails, it is due again after a pause."""
        known = self.known.get(name)
        if known is not None:
            known.due = now + self._pause(known, now)

    def next_due(self, now: float) -> float:
        """In how many seconds something is to be done, at the soonest; infinite if nothing is."""
        known = self.known.values()
        soonest = min((each.due for each in known), default=math.inf)
        ending = min((each.seen for each in known if not each.asked), default=math.inf)
        return max(0.0, min(soonest, ending + self._forget()) - now)

    def tell(self, now: float, to: str) -> list[News]:
        """What to tell a node of others: whom this one has met, the youngest first, and not too many."""
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
        """What to tell of a node that is connected; `None` if it is not, or has no address."""
        address = self._address_for_others(name)
        if address is None or name not in self._linked:
            return None
        return News(name, address, 0.0)

    def _address_for_others(self, name: str) -> HostAndPort | None:
        """Where a node is, if others can reach it there."""
        known = self.known.get(name)
        if known is None or isinstance(known.address, UnixAddress):
            return None
        return known.address
