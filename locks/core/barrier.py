"""How parties meet at a barrier by locks alone: the steps of one party. Pure.

Theory of operation
-------------------
Everything happens in the lock table of one lock server, below an id that no program locks
(`root_of`). So all steps have one order. These are the locks:

* The *mutex* is held briefly: by a party that arrives, by the host when it checks whether all have
  arrived, and by a party that gives up.
* The first party to arrive is the *host* of a round. It holds two write locks: the round's *host
  lock* and its *turnstile*.
* Each other party requests read locks, first on the host lock, then on its own id below the
  turnstile. This id contains its number of arrival. Then it waits for one of the two.
* The last party, and each party that arrives when all have arrived, *calls* the host: it locks an
  id that the host watches.

When it is called, the host enters the mutex and looks. If all have arrived, it releases the
turnstile, and all others get their read locks in one step. If not, it releases everything, and all
parties arrive again.

**Has a party passed?** It sees this from its own grants, at any later time. A host that opens the
round releases the turnstile alone, and the host lock later. If a host dies, gives up or is cut off,
the lock server removes both locks in one step, and grants the waiting requests in the order in
which they were made: the host lock first. So a party that got the turnstile before the host lock
has passed. A party that got the host lock first has not (`has_passed`), and arrives again. This
also holds for a party that made its requests after the host had gone, because it requested the host
lock first.

**When is a round complete?** When the host looks. At that time all parties were at the lock server.
None of them can give up between this look and the release of the turnstile: to give up, a party
must enter the mutex, and there it sees whether the turnstile was opened. A party that dies or is
cancelled in between had met the others before. The ids of a round contain its host, so a party that
arrives again is in another round.

What happens if, at any point,

* *a party other than the host dies*? Its requests are removed, and its number is free. If the last
  party has called already, the host does not find all of them. Then all arrive again, late parties
  included. If the caller dies before the host notices the call, the call has no effect. Then the
  round waits for a party in its place, or a late party has called as well.
* *a party dies in the mutex*? The mutex is free. Requests that were made there are removed with
  their party.
* *the host dies*? Before it opens the round, all others get the host lock first, and arrive again.
  After that, all have passed.
* *a party times out*? It enters the mutex, so the host is not deciding meanwhile. Either it has
  passed, or it is not counted. If it finds that all have arrived, the host was called, and it gives
  the host a moment. If it can't get the mutex, because a party hangs there, it can't know whether
  it is counted: the barrier is `Broken` for it. A host that times out just leaves, because no party
  passes without it.
* *the host hangs or is slow*? The others wait until they time out, as for a party that has not
  arrived.
* *a connection is lost*? The lock server removes the party's requests. A party that held the mutex
  notices the loss before it relies on requests that it made there (`Stand`). A host that has opened
  the round checks that the release arrived. A waiting party that was not notified of the outcome
  gets an error.
* *the lock server is lost*? The same holds for all parties that were not notified yet. The others
  have passed.

No party waits for a lock while it holds the mutex, and a party in a turnstile's queue holds nothing
that others wait for. So there is no cycle of waits among these locks. Nothing else uses them, so
there is no cycle through them either.

Rejected: *Units of a counted lock as arrivals, and a lock that says "open"*. That lock may be
released only after all waiting parties have been notified, so a hung party would block the next
round, and each party would wake each other one. *The check at the release itself, without a mutex
for giving up*. Then a party may get `LockTimeout` while the others pass with it.
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
    """The id above all locks of a barrier; it is related to no other barrier, and to no program's id."""
    return (BARRIER, lock_id)


class Round(NamedTuple):
    """One meeting of the parties.

    Attributes:
        root: The barrier's id.
        parties: The number of parties.
        host: The agent of the first party.
    """

    root: LockId
    parties: int
    host: AgentId

    @property
    def _id(self) -> LockId:
        return (*self.root, self.parties, *self.host)

    @property
    def turnstile(self) -> LockId:
        """The lock for which the other parties wait, each below it with its number."""
        return (*self._id, "turnstile")

    @property
    def host_lock(self) -> LockId:
        """The lock that the host holds until it leaves."""
        return (*self._id, "host")

    @property
    def call(self) -> LockId:
        """The lock that calls the host."""
        return (*self._id, "call")

    def turn(self, number: int) -> LockId:
        """The lock for which the party with this number waits."""
        return (*self.turnstile, number)

    def numbers(self, seen: Iterable[Contender]) -> set[int]:
        """The numbers of the parties that wait at the turnstile."""
        turnstile = self.turnstile
        return {
            each.lock_id[-1]  # type: ignore[misc]
            for each in seen
            if each.lock_id[:-1] == turnstile and not each.granted
        }

    def has_host(self, seen: Iterable[Contender]) -> bool:
        """Whether its host is present."""
        return any(each.lock_id == self.host_lock and each.agent == self.host for each in seen)

    def is_full(self, seen: Collection[Contender]) -> bool:
        """Whether all parties are present."""
        return self.has_host(seen) and self.numbers(seen).issuperset(range(1, self.parties))


def present_round(root: LockId, seen: Iterable[Contender]) -> Round | None:
    """The round that was not opened yet; at most one host holds a turnstile."""
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


# --- The steps of a party, and the answer to each -------------------------------------------------


@dataclass(frozen=True)
class Enter:
    """Enter the mutex. Answer: whether this succeeded before the deadline and a moment more."""


@dataclass(frozen=True)
class Leave:
    """Leave the mutex."""


@dataclass(frozen=True)
class Look:
    """Answer: all requests at the barrier, as they are now."""


@dataclass(frozen=True)
class Begin:
    """Begin a transaction. Answer: its agent."""


@dataclass(frozen=True)
class Stand:
    """Request locks in that transaction, in order, without waiting; fails if the mutex was lost."""

    wanted: tuple[tuple[LockId, Mode], ...]


Patience = Literal["deadline", "moment", "none"]


@dataclass(frozen=True)
class Await:
    """Wait until one of some locks is granted. Answer: the granted ones, with the grants' versions.

    Attributes:
        wanted: The locks.
        patience: How long: until the deadline; after it, a moment more; or not at all.
    """

    wanted: tuple[LockId, ...]
    patience: Patience = "deadline"


@dataclass(frozen=True)
class AwaitCall:
    """Wait until the host is called. Answer: whether that was before the deadline."""

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
    """All parties have arrived; this one has the number `number`."""

    number: int


@dataclass(frozen=True)
class TimedOut:
    """The party timed out. It is not counted, so no other party passes because of it.

    Attributes:
        seen: The requests that it saw last.
    """

    seen: tuple[Contender, ...] = ()


@dataclass(frozen=True)
class Broken:
    """It is unknown whether the others pass with this party."""


@dataclass(frozen=True)
class Disagree:
    """Others wait for another number of parties."""

    parties: int


Outcome = Passed | TimedOut | Broken | Disagree
Party = Generator[Step, Any, Outcome]
Part = Generator[Step, Any, Outcome | None]


def has_passed(grants: Mapping[LockId, int], turn: LockId, host_lock: LockId) -> bool:
    """Whether the turnstile was opened for a party, according to the versions of its grants."""
    return turn in grants and (host_lock not in grants or grants[turn] < grants[host_lock])


def attend(root: LockId, parties: int) -> Party:
    """The steps of a party; the caller carries each one out, and ends everything afterwards."""
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
        yield End()  # the host has left; or this is the host, and another party has left


def _host(own: Round) -> Part:
    """The steps of the first party of a round, from inside the mutex."""
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
        if present_round(own.root, seen) != own:  # otherwise the release is still under way
            return Passed(0) if own.has_host(seen) else Broken()


def _member(there: Round, seen: tuple[Contender, ...]) -> Part:
    """The steps of another party, from inside the mutex."""
    taken = there.numbers(seen)
    free = [number for number in range(1, there.parties) if number not in taken]
    host_lock = there.host_lock
    wanted: list[tuple[LockId, Mode]] = [(host_lock, "read")]  # first: see `has_passed`
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
        if not grants:  # timed out
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
