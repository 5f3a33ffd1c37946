"""A server, and whoever changes the list of servers: pure machines for one lock (decision 0128).

An epoch has three steps: the old list, both lists, and the outcome, which is the new list or the old one again. The servers of the old list
agree on each step as in Paxos: whoever changes the list has a ballot, and adopts what an older one may have decided.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from locks.model import majority

__all__ = ["Changer", "Config", "Entry", "Promise", "Server", "Value", "most"]

List = tuple[int, ...]


def most(servers: List, those: Iterable[int]) -> bool:
    """Whether some servers are a majority of a list."""
    return len({*those} & {*servers}) >= majority(len(servers))


class Value(NamedTuple):
    """What is decided on in a step: a list, and the largest version of the old servers (`floor`)."""

    servers: List
    floor: int = 0


class Config(NamedTuple):
    """What is decided so far. -1: nothing is known; 0: the old list; 1: both lists; 2: the outcome."""

    step: int
    old: List
    new: List = ()
    floor: int = 0

    def then(self, value: Value) -> Config:
        """The next step."""
        floor = max(self.floor, value.floor)
        return self._replace(step=self.step + 1, new=value.servers, floor=floor)

    def enough(self, those: Iterable[int]) -> bool:
        """Whether these servers are enough for a lock."""
        those = {*those}
        if self.step == 2:
            return most(self.new, those)
        return most(self.old, those) and (self.step == 0 or most(self.new, those))

    @property
    def servers(self) -> List:
        """All servers that a lock is asked of."""
        lists = self.old if self.step < 2 else ()
        return tuple(sorted({*lists, *self.new}))


class Entry(NamedTuple):
    """A request at a server.

    Attributes:
        agent: Who asks.
        version: The version of its grant; 0 if it waits.
        joined: Whether the agent counts by both lists: it knows of them, and has majorities of both if it holds the lock.
        holds: Whether it held the lock when it asked. Those that wait go behind it.
    """

    agent: int
    version: int
    joined: bool
    holds: bool


class Promise(NamedTuple):
    """An answer to whoever changes the list; not `good`: a larger ballot was seen."""

    good: bool
    config: Config
    ballot: int
    accepted: tuple[int, Value] | None
    version: int


class Server(NamedTuple):
    """A server. After a restart it is `blank`, and takes no part until it has asked others.

    Attributes:
        config: What it knows to be decided.
        blank: Whether it was restarted, and has not asked enough others.
        ballot: The largest ballot that it has seen for the next step.
        accepted: What it has accepted for the next step.
        version: Its last version.
        queue: Who has the lock, and who waits.
    """

    config: Config
    blank: bool = False
    ballot: int = 0
    accepted: tuple[int, Value] | None = None
    version: int = 0
    queue: tuple[Entry, ...] = ()

    # --- Agreement

    def learn(self, config: Config) -> Server:
        """Something is decided."""
        if config.step <= self.config.step:
            return self
        version = max(self.version, config.floor)
        blank = self.blank and config.step < 2
        new = self._replace(config=config, ballot=0, accepted=None, version=version, blank=blank)
        return new.grant()

    def ready(self) -> bool:
        """Whether all that have the lock here count by both lists."""
        return all(each.joined for each in self.queue if each.version)

    def prepare(self, step: int, ballot: int) -> tuple[Server, Promise]:
        """Somebody wants to decide the next step."""
        good = not self.blank and self.config.step == step and ballot > self.ballot
        new = self._replace(ballot=ballot) if good else self
        return new, Promise(good, self.config, new.ballot, self.accepted, self.version)

    def barred(self, ballot: int) -> Server:
        """A server that was restarted asks what was accepted: nothing with a smaller ballot is accepted from now on."""
        return self._replace(ballot=max(self.ballot, ballot))

    def accept(self, step: int, ballot: int, value: Value) -> tuple[Server, Promise]:
        """Somebody decides the next step."""
        good = not self.blank and self.config.step == step and ballot >= self.ballot
        new = self._replace(ballot=ballot, accepted=(ballot, value)) if good else self
        return new, Promise(good, self.config, new.ballot, new.accepted, self.version)

    # --- The lock

    def ask(self, agent: int, config: Config, holds: bool, joined: bool) -> Server:
        """An agent asks for the lock. One that knows less than the server is told first."""
        new = self.learn(config)
        if new.blank or new.config.step > config.step:
            return new
        return new._replace(queue=(*new.queue, Entry(agent, 0, joined, holds))).grant()

    def join(self, agent: int, config: Config) -> Server:
        """An agent counts by both lists."""
        new = self.learn(config)
        queue = [e._replace(joined=True) if e.agent == agent else e for e in new.queue]
        return new._replace(queue=tuple(queue)).grant()

    def drop(self, agent: int) -> Server:
        """An agent releases the lock, or its connection is lost."""
        return self._replace(queue=tuple([e for e in self.queue if e.agent != agent])).grant()

    def confirm(self, agent: int, version: int, token: int) -> Server | None:
        """Give only larger versions than a token, if a grant stands."""
        if not any(e.agent == agent and e.version == version for e in self.queue):
            return None
        return self._replace(version=max(self.version, token))

    def may_have(self, entry: Entry) -> bool:
        """Whether a request may be granted: agents that don't count by both lists get nothing more."""
        return entry.joined or self.config.step == 0

    def grant(self) -> Server:
        """Grant the lock to the first one, if nobody has it."""
        if self.blank or self.config.step < 0 or any(each.version for each in self.queue):
            return self
        first = sorted([e for e in self.queue if self.may_have(e)], key=lambda e: not e.holds)
        if not first:
            return self
        version = self.version + 1
        granted = first[0]._replace(version=version)
        queue = [granted, *(e for e in self.queue if e.agent != granted.agent)]
        return self._replace(version=version, queue=tuple(queue))


class Changer(NamedTuple):
    """Whoever changes the list.

    Attributes:
        name: Ballots of different ones differ.
        wants: The list that it wants; the old one to undo a change, or do nothing.
        config: What it knows to be decided.
        ballot: Its ballot.
        phase: What it does.
        said: Which servers have answered as they should.
        best: What was accepted with the largest ballot.
        floor: The largest version of those that have accepted.
        rounds: How many ballots it may still use.
    """

    name: int
    wants: List
    config: Config
    ballot: int
    phase: str = "prepare"
    said: frozenset[int] = frozenset()
    best: tuple[int, Value] | None = None
    floor: int = 0
    rounds: int = 2

    def value(self) -> Value | None:
        """What it decides: what may be decided already, or its own wish."""
        if self.best is not None:
            return self.best[1]
        if self.config.step == 0:
            return Value(self.wants) if self.wants != self.config.old else None
        back = self.wants == self.config.old
        return Value(self.config.old if back else self.config.new, self.floor)

    def enough(self) -> bool:
        """Whether enough servers have answered."""
        if self.phase == "tell" and self.config.step == 1:
            # The new servers must be there before it goes on; not to undo it.
            return most(self.config.new, self.said) or self.wants == self.config.old
        if self.phase == "tell":
            return most(self.config.new, self.said)
        return most(self.config.old, self.said)

    def needs_ready(self) -> bool:
        """Whether servers must be ready: before the new list alone counts."""
        return self.config.step == 1 and self.wants != self.config.old

    def heard(self, at: int, promise: Promise) -> Changer:
        """A server has answered."""
        if promise.config.step > self.config.step:
            return self.knows(promise.config)
        if not promise.good:
            return self.again(promise.ballot)
        best = self.best
        if self.phase == "prepare":
            best = max((e for e in (best, promise.accepted) if e is not None), default=None)
        floor = max(self.floor, promise.version)
        new = self._replace(said=self.said | {at}, best=best, floor=floor)
        return new.goes_on() if new.enough() else new

    def told(self, at: int) -> Changer:
        """A server knows what is decided."""
        new = self._replace(said=self.said | {at})
        return new.goes_on() if new.enough() else new

    def again(self, seen: int) -> Changer:
        """With a larger ballot than one that was seen."""
        if not self.rounds:
            return self._replace(phase="over", said=frozenset())
        ballot = (seen // 10 + 1) * 10 + self.name
        return Changer(self.name, self.wants, self.config, ballot, rounds=self.rounds - 1)

    def knows(self, config: Config) -> Changer:
        """Something is decided."""
        return Changer(self.name, self.wants, config, self.ballot, "tell", rounds=self.rounds)

    def goes_on(self) -> Changer:
        """Enough have answered."""
        if self.phase == "prepare":
            value = self.value()
            if value is None:
                return self._replace(phase="over", said=frozenset())
            return self._replace(phase="accept", said=frozenset(), best=(self.ballot, value))
        if self.phase == "accept":
            assert self.best is not None
            return self.knows(self.config.then(self.best[1]))
        if self.config.step == 2:
            return self._replace(phase="over", said=frozenset())
        return Changer(self.name, self.wants, self.config, self.ballot, rounds=self.rounds)
