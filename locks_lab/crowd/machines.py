"""Processors, and the lock servers and programs that run on them, each with its links."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from locks.core.agent.lines import Lines
from locks.core.messages import Request, ToAgent
from locks.core.server.machine import ServerMachine
from locks.model import AgentId
from locks_lab.crowd.links import Link, Links, Mail, Scheduler
from locks_lab.crowd.prices import CLIENT, Price
from locks_lab.worlds.host import Violation

if TYPE_CHECKING:
    from typing_extensions import TypeVarTuple, Unpack

    Ts = TypeVarTuple("Ts")

__all__ = ["Member", "Processor", "Program", "Send", "Server", "Station", "Time"]

Send = Callable[[str, str, Mail], None]  # from whom, to whom
VERSIONS = 1_000_000  # a restarted server begins this number of versions later
SETTLE = 3  # messages of one link that fit into one slice of the product


class Time:
    """Virtual time, and the events planned in it.

    Args:
        limit: After this number of events the run counts as endless.

    Attributes:
        now: The current time, in seconds.
        events: The number of events so far.
    """

    def __init__(self, limit: int = 5_000_000) -> None:
        self.now = 0.0
        self.events = 0
        self._limit = limit
        self._agenda: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0

    def at(self, when: float, what: Callable[[Unpack[Ts]], None], *arguments: Unpack[Ts]) -> None:
        """Plan an event; events that are due at the same time happen in the order of these calls."""
        self._number += 1
        heapq.heappush(self._agenda, (when, self._number, what, arguments))

    def run(self) -> None:
        """Until nothing is left to happen.

        Raises:
            Violation: That takes too many events.
        """
        while self._agenda:
            if self.events >= self._limit:
                raise Violation(f"no end after {self.events:,} events, and {self.now:.3f} s")
            self.now, _, what, arguments = heapq.heappop(self._agenda)
            self.events += 1
            what(*arguments)


class Station(Protocol):
    """A program or server on a processor: it reads links, one message at a time.

    Attributes:
        scheduler: Decides which link it reads next.
    """

    scheduler: Scheduler

    def ready(self) -> list[Link]:
        """The links with something to read, if it reads at all."""
        ...

    def begin(self, mail: Mail) -> float:
        """Take a message in; how many seconds that takes."""
        ...

    def finish(self, link: Link) -> None:
        """That time is over."""
        ...


class Processor:
    """Does one thing at a time.

    Args:
        time: The clock.

    Attributes:
        stations: The stations that run on it, in turn.
        busy: How many seconds it has worked.
        withheld: How many seconds it was idle while there were unread messages.
    """

    def __init__(self, time: Time) -> None:
        self.stations: list[Station] = []
        self.busy = 0.0
        self.withheld = 0.0
        self._time = time
        self._works = False
        self._idle_since: float | None = None
        self._alarm: float | None = None

    def kick(self) -> None:
        """There may be something to do."""
        if self._works:
            return
        now = self._time.now
        again = None
        for number, station in enumerate(self.stations):
            ready = station.ready()
            if not ready:
                continue
            found = station.scheduler.next(ready, now)
            if isinstance(found, Link):
                if self._idle_since is not None:
                    self.withheld += now - self._idle_since
                    self._idle_since = None
                self._alarm = None
                self.stations.append(self.stations.pop(number))  # it is last now
                self._work(station, found)
                return
            again = found if again is None else min(again, found)
        if again is None:
            self._idle_since = None
            return
        if again <= now:
            raise Violation("a scheduler reads nothing, and does not wait for anything")
        if self._idle_since is None:
            self._idle_since = now
        if self._alarm is None or again < self._alarm:
            self._alarm = again
            self._time.at(again, self._awake, again)

    def _awake(self, alarm: float) -> None:
        if self._alarm == alarm:
            self._alarm = None
            self.kick()

    def _work(self, station: Station, link: Link) -> None:
        took = station.begin(link.take())
        self._works = True
        self.busy += took
        self._time.at(self._time.now + took, self._done, station, link, took)

    def _done(self, station: Station, link: Link, took: float) -> None:
        self._works = False
        station.scheduler.served(link, took, self._time.now)
        station.finish(link)
        self.kick()


class Server:
    """A lock server on its processor.

    Args:
        node: Its name.
        machine: The class of its machine.
        price: The cost of its steps.
        scheduler: Decides which link it reads next.
        send: Sends a message.
        arrived: Called with each request that it handles.
        urgent_first: As `Link` says.

    Attributes:
        links: The links to it, by name of the sender.
        factor: How many times as long as usual a step takes.
        silent: Whether it reads nothing.
        up: Whether it runs.
    """

    def __init__(
        self,
        node: str,
        machine: type[ServerMachine],
        price: Price,
        scheduler: Scheduler,
        send: Send,
        arrived: Callable[[str, Request], None],
        urgent_first: bool,
    ) -> None:
        self.node = node
        self.machine = machine(node)
        self.scheduler = scheduler
        self.links = Links(urgent_first)
        self.factor = 1.0
        self.silent = False
        self.up = True
        self._price = price
        self._send = send
        self._arrived = arrived
        self._effects: list[Any] = []

    def ready(self) -> list[Link]:
        """As `Station` says."""
        if self.silent or not self.up:
            return []
        return list(self.links.unread)

    def begin(self, mail: Mail) -> float:
        """As `Station` says."""
        if isinstance(mail.message, Request):
            self._arrived(self.node, mail.message)
        self._effects, price = self._price.step(self.machine, mail.message)
        return price * self.factor

    def finish(self, link: Link) -> None:
        """As `Station` says."""
        effects, self._effects = self._effects, []
        for effect in effects:
            if isinstance(effect, ToAgent):
                self._send(self.node, effect.agent.node, Mail(effect.agent, effect.message))

    def crash(self) -> None:
        """It ends, and its state is lost."""
        self.up = False
        self._effects = []

    def restart(self) -> None:
        """It runs again, and has nothing."""
        self.machine = type(self.machine)(self.node, self.machine.version + VERSIONS)
        self.up = True


class Member(Protocol):
    """A client of a program, as the program sees it."""

    def receive(self, message: Any) -> bool:
        """Its agent handles a message; returns whether `settle` must follow."""
        ...

    def settle(self) -> None:
        """Its agent examines what it knows."""
        ...

    def sees(self, node: str, up: bool) -> None:
        """Its program notices that a lock server is up or down."""
        ...


class Program:
    """A program with many clients, on its own processor. Its agents share one link with each lock server.

    Args:
        name: The name of the program and of its node.
        nodes: The lock servers.
        scheduler: Decides which link it reads next.

    Attributes:
        links: The links to it, by name of the sender. The link under its own name has the calls of
            its clients and agents.
        members: Its clients that are in a transaction, by agent.
        alive: The lock servers that it sees as up.
        lines: Which of its clients requested each lock last.
        processor: The processor on which it runs.
    """

    def __init__(
        self, name: str, nodes: tuple[str, ...], scheduler: Scheduler, processor: Processor
    ) -> None:
        self.name = name
        self.alive = frozenset(nodes)
        self.scheduler = scheduler
        self.processor = processor
        self.links = Links()
        self.members: dict[AgentId, Member] = {}
        self.lines = Lines()
        self._mail: Mail | None = None
        self._unsettled: dict[AgentId, None] = {}
        self._read = 0

    def call(self, what: Callable[[], None]) -> None:
        """Call a function of a client, or of the program, as soon as the processor is free."""
        self.links[self.name].arrive(Mail(None, what))
        self.processor.kick()

    def ready(self) -> list[Link]:
        """As `Station` says."""
        return list(self.links.unread)

    def begin(self, mail: Mail) -> float:
        """As `Station` says."""
        self._mail = mail
        return CLIENT

    def finish(self, link: Link) -> None:
        """As `Station` says."""
        mail, self._mail = self._mail, None
        assert mail is not None
        if mail.agent is None:
            mail.message()
        else:
            member = self.members.get(mail.agent)
            if member is not None and member.receive(mail.message):
                self._unsettled[mail.agent] = None
        self._read += 1
        if self._unsettled and (self._read >= SETTLE or not len(link)):
            self._read = 0
            unsettled, self._unsettled = self._unsettled, {}
            for agent in unsettled:
                member = self.members.get(agent)
                if member is not None:
                    member.settle()

    def sees(self, node: str, up: bool) -> None:
        """It notices that a lock server is up or down."""
        self.alive = self.alive | {node} if up else self.alive - {node}
        for member in list(self.members.values()):
            member.sees(node, up)
