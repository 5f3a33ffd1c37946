"""The list of servers, which can change while programs run: what a server remembers, and what whoever changes it does. Pure.

Theory of operation
-------------------
A *roster* has a number. An even one has a list. An odd one has two, which differ by at most one server that goes and one that
comes: a change is under way. From an odd one, the next is the new list, or the old one again.

* **Who agrees.** The servers of the (old) list agree on each next roster as in Paxos: a majority promises a ballot and says what it
  has accepted; a majority accepts. All of it is on their disks before they answer. So whoever comes next finishes what was decided.
* **Where a lock is taken.** By an even roster on the servers of its id, by an odd one on those of both lists together; a majority
  of these is enough. For each id they are at most one server more than by either list. So a majority of them meets each majority by
  the old list, and each by the new one, and a lock by neighbouring rosters is one lock. A lock keeps its servers until it is released.
* **Only neighbours.** Locks by rosters that are no neighbours must not be there together: such as one by the old list and one by the
  new list alone, or two by two changes, one of which was undone. So a server promises a ballot for the next roster only when all
  programs that it serves have *joined* the present one: they have no locks or requests by older rosters, and ask for none. From then
  on it is *sealed*: it serves nobody who has not. A lock by an older roster needs one of the sealed majority, so there is none any
  more. To go back to the old list needs nothing of this, because locks by it may be there.
* **What is done** (`locks.core.done`). When a majority is sealed, no mark is set by the old list alone any more. Then servers of the new
  list collect all marks, and it is decided when so many have that the others can ask these.
* **Tokens.** A sealed server says its last version. The largest of a sealed majority is in the new roster (`floor`), and the new
  servers go on above it.

Decision 0129 has the reasons. `tests/model/test_epochs.py` explores small worlds with these machines.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, NamedTuple

from locks.model import majority
from locks.ranges import Number, Size, Text, Version

__all__ = [
    "MOST_PLACES",
    "Acceptor",
    "Changer",
    "Places",
    "Roster",
    "RosterFact",
    "differ_by_one",
    "enough_to_ask",
    "name_of",
]

MOST_PLACES = 100
Places = Annotated[tuple[Text, ...], Size(MOST_PLACES)]


def name_of(place: str) -> str:
    """The name of a server, from `name@host:port`."""
    return place.partition(":")[0]


def differ_by_one(old: Iterable[str], new: Iterable[str]) -> bool:
    """Whether at most one server goes, and at most one comes."""
    return len({*old} - {*new}) <= 1 and len({*new} - {*old}) <= 1


def enough_to_ask(servers: int, copies: int) -> int:
    """How many of the servers must be asked so that what a majority of those of some id has is among their answers.

    Args:
        servers: How many servers there are.
        copies: How many of them have each id; 0 if all have all ids.
    """
    return servers - majority(min(copies, servers) or servers) + 1


class Roster(NamedTuple):
    """What was decided.

    Attributes:
        number: Its number. If it is odd, a change is under way.
        base: Programs that still have requests by rosters with smaller numbers can't be served.
        floor: The versions of servers are larger.
        copies: How many servers have each id; 0 if all have all ids.
        servers: The list, each as `name@host:port`; if a change is under way, the old one.
        wanted: The new list, if a change is under way.
        listed: The number of the roster with which `servers` came into force.
    """

    number: Number
    base: Number
    floor: Version
    copies: Number
    servers: Places
    wanted: Places = ()
    listed: Number = 0

    @property
    def is_changing(self) -> bool:
        """Whether a change is under way."""
        return self.number % 2 == 1

    @property
    def places(self) -> tuple[str, ...]:
        """All servers; first those that stay."""
        stay = [each for each in self.servers if each in self.wanted]
        return tuple(dict.fromkeys((*stay, *self.servers, *self.wanted)))

    @property
    def then(self) -> tuple[str, ...]:
        """The list that comes next, or is there."""
        return self.wanted if self.is_changing else self.servers

    def begin(self, wanted: tuple[str, ...], floor: int = 0) -> Roster:
        """The next one, with both lists."""
        return self._next(floor)._replace(wanted=wanted)

    def finish(self, floor: int) -> Roster:
        """The next one, with the new list."""
        return self._next(floor)._replace(servers=self.wanted, wanted=(), listed=self.number + 1)

    def _next(self, floor: int) -> Roster:
        """The next one, after a majority was sealed."""
        floor = max(floor, self.floor)
        return self._replace(number=self.number + 1, base=self.number, floor=floor)

    def undo(self) -> Roster:
        """The next one, with the old list again."""
        return self._replace(number=self.number + 1, wanted=())

    def follows(self, before: Roster) -> bool:
        """Whether it can be the next one after another."""
        if self.is_changing:  # a configured list may lack ports
            same = {*map(name_of, self.servers)} == {*map(name_of, before.servers)}
            begun = before.begin(self.wanted, self.floor)._replace(servers=self.servers)
            return self.is_valid and same and self == begun
        return self.is_valid and self in (before.undo(), before.finish(self.floor))

    @property
    def is_valid(self) -> bool:
        """Whether there can be such a roster."""
        lists = [self.servers, *([self.wanted] if self.is_changing else [])]
        return (
            bool(self.is_changing or not self.wanted)
            and max(self.base, self.listed) <= self.number
            and all(0 < len(each) == len({name_of(place) for place in each}) for each in lists)
            and all(self.copies <= len(each) for each in lists)
            and (not self.is_changing or differ_by_one(*lists))
        )


class RosterFact(NamedTuple):
    """A server's answer to whoever changes the list.

    Attributes:
        good: Whether it has done what it was asked for.
        roster: What it knows to be decided.
        ballot: The largest ballot that it has promised for the next roster.
        accepted_at: The ballot with which it has accepted one; 0 if it has not.
        accepted: That one.
        version: Its last version.
        missing: The programs that have not joined.
        why: Why it can't take part, or can't do this now; empty if it can.
    """

    good: bool
    roster: Roster
    ballot: Number = 0
    accepted_at: Number = 0
    accepted: Roster | None = None
    version: Version = 0
    missing: Annotated[tuple[Text, ...], Size(MOST_PLACES)] = ()
    why: Text = ""


class Acceptor(NamedTuple):
    """What a server remembers of the agreement.

    Attributes:
        roster: What it knows to be decided.
        ballot: The largest ballot that it has promised for the next roster.
        accepted_at: The ballot with which it has accepted one.
        accepted: That one.
        sealed: Whether it serves only programs that have joined the present roster.
    """

    roster: Roster
    ballot: int = 0
    accepted_at: int = 0
    accepted: Roster | None = None
    sealed: bool = False

    @property
    def serves_from(self) -> int:
        """The smallest number that a program must have joined to be served."""
        return self.roster.number if self.sealed else self.roster.base

    def learn(self, roster: Roster) -> Acceptor:
        """Something was decided."""
        return type(self)(roster) if roster.number > self.roster.number else self

    def prepare(self, number: int, ballot: int, seal: bool, ready: bool) -> tuple[Acceptor, bool]:
        """Somebody wants to decide the roster after `number`; with `seal`, another one than the old list again.

        Args:
            number: The number of the present roster.
            ballot: The ballot.
            seal: Whether it must be sealed for it.
            ready: Whether all programs have joined.

        Returns:
            What it remembers now, and whether it promises.
        """
        good = self.roster.number == number and ballot > self.ballot
        good = good and (ready or self.sealed or not seal)
        if not good:
            return self, False
        return self._replace(ballot=ballot, sealed=self.sealed or seal), True

    def accept(self, ballot: int, roster: Roster) -> tuple[Acceptor, bool]:
        """Somebody decides the next roster."""
        good = roster.number == self.roster.number + 1 and ballot >= self.ballot
        if not good:
            return self, False
        return self._replace(ballot=ballot, accepted_at=ballot, accepted=roster), True

    def fact(self, good: bool, version: int = 0) -> RosterFact:
        """Its answer."""
        return RosterFact(good, self.roster, self.ballot, self.accepted_at, self.accepted, version)


class Changer(NamedTuple):
    """Whoever changes the list.

    Attributes:
        wants: The list that it wants. A change to another list that is under way is finished first.
        roster: What it knows to be decided.
        ballot: Its ballot.
        phase: `tell` (what is decided), `prepare`, `collect` (what is done), `accept`, or `over`.
        said: Which servers have answered as they should.
        best: What was accepted with the largest ballot; after the phase `prepare`, what it decides.
        best_at: That ballot.
        floor: The largest version of the sealed servers.
        salt: What it adds to larger ballots, so that two do not overtake each other forever.
        gives_up: Whether it wants no more than that no change is under way: it undoes it, unless the new list was decided.
    """

    wants: tuple[str, ...]
    roster: Roster
    ballot: int = 0
    phase: str = "tell"
    said: frozenset[str] = frozenset()
    best: Roster | None = None
    best_at: int = 0
    floor: int = 0
    salt: int = 1
    gives_up: bool = False

    @property
    def goes_back(self) -> bool:
        """Whether it undoes the change that is under way."""
        return self.roster.is_changing and self.gives_up

    @property
    def seals(self) -> bool:
        """Whether servers must be sealed for what it wants."""
        return not self.goes_back

    @property
    def asked(self) -> tuple[str, ...]:
        """The servers that it asks now."""
        if self.phase == "over":
            return ()
        roster = self.roster
        servers = {"tell": roster.places, "collect": roster.then}.get(self.phase, roster.servers)
        return tuple([each for each in servers if each not in self.said])

    def _enough(self) -> bool:
        """Whether enough servers have answered."""
        if self.phase == "collect":
            there, copies = self.roster.then, self.roster.copies
            return len(self.said & {*there}) >= enough_to_ask(len(there), copies)
        by_old = self.phase != "tell" or self.goes_back  # the new server may never answer
        needed = self.roster.servers if by_old else self.roster.then
        return len(self.said & {*needed}) >= majority(len(needed))

    def undoing(self) -> Changer:
        """It gives up what it wants."""
        return self._replace(gives_up=True)._anew(self.roster, self.ballot)

    def heard(self, place: str, fact: RosterFact) -> Changer:
        """A server has answered the present question."""
        if fact.roster.number > self.roster.number:
            return self._anew(fact.roster, self.ballot)
        if not fact.good:
            # A ballot is promised once, to one of those who have the same.
            seen = fact.ballot + (self.phase == "prepare")
            if self.phase != "tell" and seen > self.ballot:
                return self._anew(self.roster, fact.ballot)
            return self
        best, best_at, floor = self.best, self.best_at, self.floor
        if self.phase == "prepare":
            floor = max(floor, fact.version)
            if fact.accepted is not None and fact.accepted_at > best_at:
                best, best_at = fact.accepted, fact.accepted_at
        said = self.said | {place}
        new = self._replace(said=said, best=best, best_at=best_at, floor=floor)
        return new._goes_on() if new._enough() else new

    def _anew(self, roster: Roster, seen: int) -> Changer:
        """From what is decided on, with a larger ballot than one that was seen."""
        return self._begin("tell")._replace(roster=roster, ballot=seen)

    def _begin(self, phase: str) -> Changer:
        return self._replace(phase=phase, said=frozenset(), best=None, best_at=0, floor=0)

    def _goes_on(self) -> Changer:
        """Enough have answered."""
        roster = self.roster
        if self.phase == "tell":
            if not roster.is_changing and (self.gives_up or {*roster.servers} == {*self.wants}):
                return self._replace(phase="over", said=frozenset())
            return self._begin("prepare")._replace(ballot=self.ballot + self.salt)
        if self.phase == "prepare":
            best = self.best or self._wish()
            # Who has it accepted has seen to it that servers have collected what is done.
            collects = self.best is None and best.listed == best.number
            return self._begin("collect" if collects else "accept")._replace(best=best)
        assert self.best is not None
        if self.phase == "collect":
            return self._begin("accept")._replace(best=self.best)
        return self._anew(self.best, 0)

    def _wish(self) -> Roster:
        if not self.roster.is_changing:
            return self.roster.begin(self.wants, self.floor)
        return self.roster.undo() if self.goes_back else self.roster.finish(self.floor)
