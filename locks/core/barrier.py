"""How parties meet at a barrier, by locks alone: what one party does, step by step. Pure.

Theory of operation
-------------------
All of it happens in the lock table of one lock server, below an id that no program locks (`root_of`), so it has one
order. There is one lock, the *mutex*, that is held for a moment: by who arrives, by the host when it looks whether all
are there, and by who gives up. The first to arrive is the *host* of a round. It has two locks, to write: the round's
*host lock* and its *turnstile*. Each other party asks to read both of them, the host lock first, and waits; its
lock below the turnstile has its number of arrival. The last one, and whoever comes when all are there already, *calls*
the host: that is a lock that the host watches. The host enters the mutex and looks. If all are there, it releases the turnstile, and
all are granted it in one step. If not, it lets go of everything, and all arrive again.

**Who has passed** sees it by what it was granted, at any later time, and needs nobody else for it: a host that opens
releases the turnstile alone, and the host lock later. When a host dies, gives up or is cut off, the lock server removes both of its locks
in one step, and grants what waits for them in the order in which it was asked for: the host lock first. So who has the turnstile
before the host lock has passed; who has the host lock first has not (`has_passed`), and arrives again. That holds, too, for who
asked when the host was gone already: it asked for the host lock first.

**When the round is complete**: at the host's look. Then as many as there must be were at the lock server, all in one moment. None of them
can give up between that look and the release of the turnstile: for that it has to enter the mutex, and in there it sees whether it was
opened. One that dies, or is cancelled, in between has met the others before. Rounds have ids of their own, by their
host, so who comes again is in another one.

What if, at each point:

* *A party dies that is not the host*: its requests are gone, and its number is free. If the last one had called already,
  the host does not find all of them, and all arrive again, also who came too late to be one of them. A caller that
  dies before the host has noticed has called for nothing: the round waits for a party in its place, or, if somebody
  came too late, that one has called as well.
* *Somebody dies in the mutex*: it is free. What was asked for there is gone with who has asked.
* *The host dies*, before it has opened: all get the host lock first, and arrive again. After that: all have passed.
* *A party's time is over*: within the mutex, so not while the host decides. It has passed, or it is not counted. If it finds all there,
  the host was called; it gives it a moment. If the mutex is not to be had, because somebody in there hangs, it can't know whether
  it is counted: the barrier is `Broken` for it. The host itself just goes, as nobody passes without it.
* *The host hangs*, or is slow: as with any party that has not come, the others wait, until their time is over.
* *A connection is lost*: the lock server removes the party's requests. If the party had the mutex, it notices that before it relies on what
  it has asked for in there (`Stand`). A host that has opened asks whether that has arrived. Whoever has waited, and was not told the
  outcome, gets an error.
* *The lock server is lost*: the same for all who were not told yet. Who was told has passed.

Nobody waits for a lock while it is in the mutex, and who is in a turnstile's queue has nothing that others wait for. So
there is no circle of waits among these locks; and as they are nobody else's, there is none through them.

Rejected: *units of a counted lock as arrivals, with a lock that says "open"*: all who wait must be told before that may go, so a
hung party stops the next round, and each wakes each. *The look at the release itself*, without a mutex for who gives up: then one
gets `LockTimeout` and the others pass with it.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from locks.words import AgentId, Contender, LockId, Mode

__all__ = [
    "Await",
    "AwaitCall",
    "Begin",
    "Broken",
    "Disagree",
    "End",
    "Enter",
    "Leave",
    "Look",
    "Open",
    "Outcome",
    "Passed",
    "Round",
    "Stand",
    "Step",
    "TimedOut",
    "attend",
    "present_round",
    "root_of",
    "who_waits",
]

BARRIER = "$barrier"
"""The first element of the ids of barriers; not for users."""


def root_of(lock_id: LockId) -> LockId:
    """The id that covers all locks of a barrier. It is related to no other barrier's, and to none that programs lock."""
    return (BARRIER, lock_id)


class Round(NamedTuple):
    """One time that the parties meet.

    Attributes:
        root: The barrier's id.
        parties: How many have to come.
        host: The agent of the first one.
    """

    root: LockId
    parties: int
    host: AgentId

    @property
    def _id(self) -> LockId:
        return (*self.root, self.parties, *self.host)

    @property
    def turnstile(self) -> LockId:
        """What all others wait for; each below it, with its number."""
        return (*self._id, "turnstile")

    @property
    def host_lock(self) -> LockId:
        """What the host has until it goes."""
        return (*self._id, "host")

    @property
    def call(self) -> LockId:
        """What is locked to call the host."""
        return (*self._id, "call")

    def turn(self, number: int) -> LockId:
        """What the party with this number waits for."""
        return (*self.turnstile, number)

    def numbers(self, seen: Iterable[Contender]) -> set[int]:
        """Of those who wait at the turnstile."""
        turnstile = self.turnstile
        return {
            each.lock_id[-1]  # type: ignore[misc]
            for each in seen
            if each.lock_id[:-1] == turnstile and not each.granted
        }

    def has_host(self, seen: Iterable[Contender]) -> bool:
        """Whether its host is there."""
        return any(each.lock_id == self.host_lock and each.agent == self.host for each in seen)

    def is_full(self, seen: Collection[Contender]) -> bool:
        """Whether all are there."""
        return self.has_host(seen) and self.numbers(seen).issuperset(range(1, self.parties))


def present_round(root: LockId, seen: Iterable[Contender]) -> Round | None:
    """The round that was not opened yet; at most one host has a turnstile."""
    depth = len(root)
    for each in seen:
        lock_id = each.lock_id
        if lock_id[-1] == "turnstile" and each.mode == "write" and each.granted:
            parties: Any = lock_id[depth]
            return Round(root, parties, each.agent)
    return None


def who_waits(root: LockId, seen: Collection[Contender]) -> tuple[Contender, ...]:
    """One request of each party that waits in the present round, the host's first."""
    there = present_round(root, seen)
    if there is None:
        return ()
    turnstile = there.turnstile
    depth = len(turnstile)
    own = [each for each in seen if each.lock_id[:depth] == turnstile]
    return tuple(sorted(own, key=lambda each: each.lock_id[depth:]))


# --- What a party wants done, and what it is told then ---------------------------------------------


@dataclass(frozen=True)
class Enter:
    """Enter the mutex. Told: whether that was done before the time was over, and a moment more."""


@dataclass(frozen=True)
class Leave:
    """Leave the mutex."""


@dataclass(frozen=True)
class Look:
    """Told: all requests at the barrier, as they are now."""


@dataclass(frozen=True)
class Begin:
    """Begin a transaction. Told: its agent."""


@dataclass(frozen=True)
class Stand:
    """Ask for locks in that transaction, in this order, and wait for none; it fails if the mutex was lost before that."""

    wanted: tuple[tuple[LockId, Mode], ...]


Patience = Literal["deadline", "moment", "none"]


@dataclass(frozen=True)
class Await:
    """Wait until one of some locks is granted. Told: those that are, with the versions of the grants.

    Attributes:
        wanted: The locks.
        patience: Until the time is over; then a moment more; or not at all.
    """

    wanted: tuple[LockId, ...]
    patience: Patience = "deadline"


@dataclass(frozen=True)
class AwaitCall:
    """Wait until the host is called. Told: whether that was before the time was over."""

    call: LockId


@dataclass(frozen=True)
class Open:
    """Release a turnstile."""

    turnstile: LockId


@dataclass(frozen=True)
class End:
    """End the transaction, and leave the mutex."""


Step = Enter | Leave | Look | Begin | Stand | Await | AwaitCall | Open | End


@dataclass(frozen=True)
class Passed:
    """All have come; this one's number of arrival."""

    number: int


@dataclass(frozen=True)
class TimedOut:
    """The time is over. The party is not counted; nobody passes because of it.

    Attributes:
        seen: What was seen last.
    """

    seen: tuple[Contender, ...] = ()


@dataclass(frozen=True)
class Broken:
    """It is not known whether the others pass with this one."""


@dataclass(frozen=True)
class Disagree:
    """Others wait for another number of parties."""

    parties: int


Outcome = Passed | TimedOut | Broken | Disagree
Party = Generator[Step, Any, Outcome]
Part = Generator[Step, Any, Outcome | None]


def has_passed(grants: Mapping[LockId, int], turn: LockId, host_lock: LockId) -> bool:
    """Whether the turnstile was opened for a party, by the versions of what it was granted."""
    return turn in grants and (host_lock not in grants or grants[turn] < grants[host_lock])


def attend(root: LockId, parties: int) -> Party:
    """What a party does; whoever runs this carries each step out, and ends everything afterwards."""
    while True:
        if not (yield Enter()):
            return TimedOut()
        seen = yield Look()
        there = present_round(root, seen)
        if there is not None and there.parties != parties:
            return Disagree(there.parties)
        if parties == 1:
            return Passed(0)
        me = yield Begin()
        outcome = yield from (
            _host(Round(root, parties, me)) if there is None else _member(there, seen)
        )
        if outcome is not None:
            return outcome
        yield End()  # the host has gone, or this one is the host, and somebody else has gone


def _host(own: Round) -> Part:
    """The first of a round has entered the mutex."""
    yield Stand(((own.host_lock, "write"), (own.turnstile, "write")))
    yield Leave()
    if not (yield AwaitCall(own.call)):
        return TimedOut((yield Look()))
    if not (yield Enter()):
        return TimedOut()
    if not own.is_full((yield Look())):
        return None
    yield Open(own.turnstile)
    while True:
        seen = yield Look()
        if present_round(own.root, seen) != own:  # else that is under way still
            return Passed(0) if own.has_host(seen) else Broken()


def _member(there: Round, seen: tuple[Contender, ...]) -> Part:
    """Another one has entered the mutex."""
    taken = there.numbers(seen)
    free = [number for number in range(1, there.parties) if number not in taken]
    host_lock = there.host_lock
    wanted: list[tuple[LockId, Mode]] = [(host_lock, "read")]  # first: see above
    if free:
        wanted.append((there.turn(free[0]), "read"))
    if len(free) <= 1:
        wanted.append((there.call, "read"))
    yield Stand(tuple(wanted))
    yield Leave()
    if not free:  # too late for this round
        return None if (yield Await((host_lock,))) else TimedOut((yield Look()))
    turn = there.turn(free[0])
    both = (turn, host_lock)
    patience: Patience = "deadline"
    while True:
        grants = yield Await(both, patience)
        if not grants:  # the time is over
            if not (yield Enter()):
                return Broken()
            grants = yield Await(both, "none")
            if not grants:
                seen = yield Look()
                if patience == "moment" or not there.is_full(seen):
                    return TimedOut(seen)
                patience = "moment"
                yield Leave()
                continue
        return Passed(free[0]) if has_passed(grants, turn, host_lock) else None
