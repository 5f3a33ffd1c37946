"""What is done, once for each lock id: the marks of a lock server, and what the marks of several mean. Pure.

Theory of operation
-------------------
A client runs some work once on all servers together (`locks.once`). It holds the write lock of the work's id by a majority of
the servers meanwhile. Each server has a table of *marks*, by lock id; a mark is kept until its time is over, whatever becomes of
its setter.

* **Read.** When the client holds the lock, it asks the servers for the mark. An answer counts if the server grants the lock to the
  client, and if it is *complete*: it knows all marks that it may have to know. If a majority of answers counts and there is no
  mark, the client runs the work.
* **Set.** After the work, the client sets the mark on the servers whose answers counted. A server accepts it only under the same
  grant as before. The client sends it twice: the mark is *set* when a majority has accepted it, and then, asked again, still has
  it. So there was a time at which a majority had it together.
* **A mark that is found** may be on few servers, because its setter died. So the reader sets it in the same way before it says that
  the work is done.
* **Grants that are new.** A server that was restarted grants the lock anew, and accepts no mark under the old grant. So while a client
  works, it takes note of new grants, at a time at which it still has a majority of those that it had noted before (`extended`). Then no
  other run can have begun in between. If too few grants are left, the mark can't be set: a client that has only found it reads again; one
  whose work is done gives up.
* **Restart.** A server that begins without a memory is not complete. It asks the other servers for all marks. It becomes complete
  when so many complete ones have answered that each mark that is set is among theirs (`Recovery`).

**At most one run sets its mark, and none begins after that.** Take two runs that both set their marks. There is a server on which
both did, because two majorities meet. There, one grant was over before the other one began, so the second run has read after the
first one set. If the server did not restart in between, the second run has found the mark, and did not run. If it did restart, it
was complete again when it answered, and it has the mark: for all servers that were complete without the mark at the time when a
majority had it together are a minority, N - M, and a server that restarts later asks N - M + 1 complete ones. By induction, one
of these has it. The same holds for a run that begins later.

**What is lost.** If a majority forgets at the same time, marks may be lost. Then the servers do not become complete, and say so.
When all are new, or have forgotten, at one time, they begin *anew*: the first that knows this tells the others.

**If each id is on some of the servers only** (`copies`), all this holds among the servers of an id. A server has ids of many such
groups. So it is complete when few enough of *all* servers are missing, M - 2, that it has asked N - M + 1 complete ones of each group that
it can be in, where N is the number of copies.

**A server that keeps its marks** on a disk forgets none of those that it has accepted, for it answers only when a mark is kept. If it was
complete, it is so again after a restart: it is like one that was not connected for a while. Its grants are gone as in any restart.

Rejected: *The leader's locks as marks* (decision 0041): they end with the leader. *A mark that is accepted once*: a server that has
accepted it and restarts may ask the others before they have it, and is complete without it. *Ballots that a server promises, as in
Paxos*: promises would have to survive a restart; grants need not, because a server without grants accepts nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from locks.core.facts import AskMark, Mark, MarkFact
from locks.model import majority
from locks.ranges import MOST_NUMBER, replace
from locks.words import LockId

__all__ = [
    "Marks",
    "Reading",
    "Recovery",
    "Told",
    "are_set",
    "can_be_set",
    "extended",
    "forgetful",
    "grants_over",
    "read",
    "shifted",
    "why_not",
]

MOST_MARKS = 100  # in one page


def shifted(mark: Mark, then: int, now: int) -> Mark:
    """A mark with its times by another clock.

    Args:
        mark: The mark.
        then: The time of the clock that its times are by.
        now: The time of the other clock at that moment.
    """
    at, until = (min(max(0, each + now - then), MOST_NUMBER) for each in (mark.at, mark.until))
    return replace(mark, at=at, until=until)


class Marks:
    """The marks of one server. Times are microseconds by its own clock.

    Attributes:
        number: The number of the last mark that was added.
        kept: The number of the last one that survives a restart of the server; `None` if it keeps none.
    """

    def __init__(self) -> None:
        self._numbers: dict[LockId, int] = {}
        self._marks: dict[int, Mark] = {}  # by number, the oldest first
        self._ends: list[tuple[int, int]] = []
        self.number = 0
        self.kept: int | None = None

    def __iter__(self) -> Iterator[Mark]:
        return iter(self._marks.values())

    def __len__(self) -> int:
        return len(self._marks)

    def find(self, lock_id: LockId, now: int) -> Mark | None:
        """The mark of a lock id, if there is one and its time is not over."""
        mark = self._marks.get(self._numbers.get(lock_id, 0))
        return mark if mark is not None and mark.until > now else None

    def adds(self, mark: Mark, now: int) -> bool:
        """Whether a mark is news: there is none yet, or one with a smaller token."""
        present = self.find(mark.lock_id, now)
        return mark.until > now and (present is None or present.token < mark.token)

    def add(self, mark: Mark, now: int) -> None:
        """Keep a mark, unless it is no news; forget those whose time is over."""
        while self._ends and self._ends[0][0] <= now:
            self._forget(heapq.heappop(self._ends)[1])
        if self.adds(mark, now):
            self._forget(self._numbers.get(mark.lock_id, 0))
            self.number += 1
            self._numbers[mark.lock_id] = self.number
            self._marks[self.number] = mark
            heapq.heappush(self._ends, (mark.until, self.number))

    def _forget(self, number: int) -> None:
        mark = self._marks.pop(number, None)
        if mark is not None:
            del self._numbers[mark.lock_id]

    def is_kept(self, mark: Mark) -> bool:
        """Whether a mark that it has survives as much as this server can."""
        return self.kept is None or self._numbers[mark.lock_id] <= self.kept

    def not_kept(self) -> list[Mark]:
        """The marks that are still to be kept."""
        first = self.number + 1 if self.kept is None else self.kept + 1
        numbers = range(first, self.number + 1)
        return [self._marks[number] for number in numbers if number in self._marks]

    def page(self, after: int, now: int) -> tuple[tuple[Mark, ...], int]:
        """Some of the marks, and the number of the last one; 0 if there are no later ones.

        Args:
            after: Only marks with larger numbers than this.
            now: The present time.
        """
        found: list[Mark] = []
        first = next(iter(self._marks), self.number)  # what is before it was forgotten
        for number in range(max(after + 1, first), self.number + 1):
            mark = self._marks.get(number)
            if mark is not None and mark.until > now:
                found.append(mark)
                if len(found) == MOST_MARKS:
                    return tuple(found), number
        return tuple(found), 0

    def accepts(self, question: AskMark, since: int) -> bool:
        """Whether a server may set the mark of a question.

        Args:
            question: The question.
            since: The version of the asking agent's grant; 0 if it has none.
        """
        return since > 0 and since == question.since

    def answer(
        self, question: AskMark, since: int, complete: bool, servers: tuple[str, ...], now: int
    ) -> MarkFact:
        """Set the mark of a question, if it has one and that may be set, and answer.

        To a question that sets a mark, it does not tell one that is not kept yet: it is not set before.

        Args:
            question: The question.
            since: The version of the asking agent's grant; 0 if it has none.
            complete: Whether the server is complete.
            servers: The servers with which it shares its marks.
            now: The present time.
        """
        mark = question.mark
        before = self._tellable(question, now)
        if mark is not None and self.accepts(question, since):
            self.add(shifted(mark, question.now, now), now)
        had = before is not None and (mark is None or before.token >= mark.token)
        return MarkFact(self._tellable(question, now), had, since, complete, servers, now)

    def _tellable(self, question: AskMark, now: int) -> Mark | None:
        found = self.find(question.lock_id, now)
        return found if question.mark is None or found is None or self.is_kept(found) else None


class Told(NamedTuple):
    """What another server has told of itself, when it began to tell its marks.

    Attributes:
        started: When it was started.
        complete: Whether it was complete.
        anew: See `MarkPage`.
    """

    started: int
    complete: bool
    anew: tuple[tuple[str, int], ...] = ()


class Recovery:
    """Decides when a server that has begun without a memory is complete.

    It asks all others, in rounds. A round is over when each has answered or can't be asked.

    Args:
        name: The server's name.
        started: When it was started.
        servers: The names of all servers.
        copies: How many of them have each id; 0 if all have all ids.

    Attributes:
        others: The names of the others.
        complete: Whether it knows all marks that it may have to know.
        anew: See `MarkPage`.
    """

    def __init__(self, name: str, started: int, servers: Collection[str], copies: int = 0) -> None:
        self._own = (name, started)
        self.others = frozenset(servers) - {name}
        self._copies = copies or len(servers)
        self.complete = self._copies == 1  # no other server has its marks
        self.anew: tuple[tuple[str, int], ...] = ()
        self._incomplete: dict[str, int] = {}

    def round_over(self, told: Mapping[str, Told]) -> None:
        """Take in the answers of one round; the marks in them were added."""
        number = len(self.others) + 1
        if sum(each.complete for each in told.values()) > number - majority(self._copies):
            self.complete = True
        incomplete = {name: each.started for name, each in told.items() if not each.complete}
        if incomplete.keys() == self.others and incomplete == self._incomplete:
            # All were incomplete in both rounds, and so at one time between them.
            self.anew = tuple(sorted([*incomplete.items(), self._own]))
        for each in told.values():
            if self._own in each.anew:  # another server was sooner, and has had all marks
                self.anew = each.anew
        self.complete = self.complete or bool(self.anew)
        self._incomplete = incomplete


# --- What the answers of several servers mean ---------------------------------------------------


class Reading(NamedTuple):
    """What a client has read.

    Attributes:
        grants: The servers whose answers count, with the versions of their grants.
        mark: The mark with the largest token, if there is one.
    """

    grants: dict[str, int]
    mark: Mark | None


def read(servers: Collection[str], told: Mapping[str, MarkFact]) -> Reading | None:
    """What the answers of the servers mean; `None` if too few of them count.

    Args:
        servers: The names of all servers.
        told: The answers. The times of their marks are by the client's clock.
    """
    grants = {name: fact.since for name, fact in told.items() if fact.counts(servers)}
    if len(grants) < majority(len(servers)):
        return None
    marks = [fact.mark for name, fact in told.items() if name in grants and fact.mark is not None]
    return Reading(grants, max(marks, key=lambda mark: mark.token, default=None))


def why_not(name: str, fact: MarkFact, servers: Collection[str]) -> str:
    """Why the answer of a server does not count for a client of these servers; empty if it is the grant alone that may be missing."""
    if set(fact.servers) != set(servers):
        return f"{name} was not started with the servers {', '.join(servers)}; start it with all of them"
    return forgetful(name, fact.complete, fact.trouble)


def forgetful(name: str, complete: bool, trouble: str) -> str:
    """Why a server can't say what is done; empty if it can.

    Args:
        name: Its name.
        complete: Whether it knows all marks that it may have to know.
        trouble: Why it can't write its state file; empty if it can.
    """
    if not complete:
        return (
            f"{name} has begun without a memory, and the others have not told what is done; if a majority of "
            "the servers has lost its memory, restart all of them to begin anew"
        )
    return f"{name} can't write its state file: {trouble}" if trouble else ""


def are_set(
    servers: Collection[str],
    grants: Mapping[str, int],
    had: Collection[str],
    told: Mapping[str, MarkFact],
) -> tuple[bool, set[str]]:
    """Whether a mark is set after one more round of setting it.

    Args:
        servers: The names of all servers.
        grants: The servers on which it is set, with the versions of their grants.
        had: Those that had it after the round before.
        told: The answers of this round.

    Returns:
        Whether it is set, and the servers that have it now.
    """
    same = {name for name, fact in told.items() if fact.since == grants.get(name) and fact.mark}
    again = {name for name in same if name in had and told[name].had}
    return len(again) >= majority(len(servers)), same


def grants_over(grants: Mapping[str, int], told: Mapping[str, MarkFact]) -> list[str]:
    """The servers that have said that their grants are over, of these; one that is silent may still have its grant."""
    return [name for name, since in grants.items() if name in told and told[name].since != since]


def can_be_set(
    servers: Collection[str], grants: Mapping[str, int], told: Mapping[str, MarkFact]
) -> bool:
    """Whether so many grants may be left that a mark can still be set.

    Args:
        servers: The names of all servers.
        grants: The servers on which it is set, with the versions of their grants.
        told: The answers of the last round.
    """
    return len(grants) - len(grants_over(grants, told)) >= majority(len(servers))


def extended(
    servers: Collection[str],
    grants: Mapping[str, int],
    first: Mapping[str, MarkFact],
    second: Mapping[str, MarkFact],
) -> dict[str, int]:
    """The grants of a client that works, and those that it has got since, if no other client can have held the lock in between.

    Args:
        servers: The names of all servers.
        grants: The servers whose answers counted, with the versions of their grants.
        first: The answers of one round.
        second: Those of a later one. What both say was so at a time between them.
    """
    had = {name: fact.since for name, fact in first.items()}
    now = {name: fact.since for name, fact in second.items() if 0 < fact.since == had.get(name)}
    kept = now.items() & grants.items()
    return {**grants, **now} if len(kept) >= majority(len(servers)) else dict(grants)
