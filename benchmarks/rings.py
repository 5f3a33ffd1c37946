"""Rings of three among thousands of client programs, in virtual time: the rest of `benchmarks.thousands`.

Agents and lock servers are the product's own machines, ids are placed as the product places them, and messages between programs
pass through a lock server, as in the product. So what is sent is not assumed. What each message costs, and what the heartbeats of all programs
cost, was measured (`Prices`). Each processor does one thing at a time (`locks_lab.crowd`).
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from benchmarks.placed import MEMBERS, ids_apart
from benchmarks.plan import NEAR, Costs
from locks.core.agent.machine import AgentMachine
from locks.core.messages import AgentEffect, AnswerWait, Ended, Surrender, ToAgent, ToServer
from locks.core.server.machine import ServerMachine
from locks.model import AgentId, LockId, related
from locks.node.ports import Servers
from locks_lab.crowd.links import Fair, Link, Mail, Scheduler
from locks_lab.crowd.machines import Processor, Program, Server, Time
from locks_lab.crowd.prices import Flat
from locks_lab.worlds.host import Violation

__all__ = ["RATE", "Prices", "Ring", "Rings", "Said", "said"]

TICKS = 4  # in net_ticktime
BEFORE = 0.05  # seconds for which all is quiet before the request that closes a ring
RATE = 20.0  # rings that are closed in a second while all programs are in rings
ALL_OVER = 10.0  # the virtual seconds over which programs take the locks that they keep


class Prices(NamedTuple):
    """Seconds of processor time, and how often there is a heartbeat.

    Attributes:
        costs: Of transactions.
        server_ticks: Of all servers, for the heartbeats of one program: the share of a processor.
        program_ticks: The same of the program.
        ticktime: The `net_ticktime` with which these were measured.
    """

    costs: Costs
    server_ticks: float = 0.0
    program_ticks: float = 0.0
    ticktime: float = 60.0


class Said(NamedTuple):
    """What the model says of rings. Times are in seconds.

    Attributes:
        within: The median of rings within one group of servers, one after the other.
        over: The same of rings through three groups.
        longest: The longest of all of them.
        server: The share of the time for which the busiest server's processor works for heartbeats.
        messages: How many a ring within one group takes, from the request that closes it; those that a relay passes on count twice.
        messages_over: The same through three groups.
        busy_within: The median of rings within one group, if all programs are in rings, of which so many are closed in a second.
        busy_over: The same through three groups.
        busy_longest: The longest of these.
    """

    within: float
    over: float
    longest: float
    server: float
    messages: float
    messages_over: float
    busy_within: float
    busy_over: float
    busy_longest: float


class Ring(NamedTuple):
    """Programs of which each holds its id, and wants that of the next one."""

    programs: Sequence[Client]
    ids: Sequence[LockId]


class Frame(NamedTuple):
    """What a lock server passes on from one program to another: a message, or the opening of a channel."""

    source: str
    target: str
    mail: Mail | None


class Opened(NamedTuple):
    """A program is told of a channel to another one."""

    program: Client
    peer: str

    def __call__(self) -> None:
        """Its agents say again what they have said to agents there."""
        self.program.peers.add(self.peer)
        for member in list(self.program.members.values()):
            assert isinstance(member, Transaction)
            member.perform(member.agent.peer_up(self.peer))
            member.settle()


class Relay(Server):
    """A lock server that also passes on what programs send to each other."""

    pass_on: Callable[[str, Frame], None]
    frame: Frame | None = None

    def begin(self, mail: Mail) -> float:
        """As `Station` says."""
        if isinstance(mail.message, Frame):
            self.frame = mail.message
            assert isinstance(self._price, Flat)
            return self._price.message
        return super().begin(mail)

    def finish(self, link: Link) -> None:
        """As `Station` says."""
        frame, self.frame = self.frame, None
        if frame is None:
            super().finish(link)
        else:
            self.pass_on(self.node, frame)


class Client(Program):
    """A program, with the measured costs."""

    costs: Costs

    def __init__(self, name: str, nodes: tuple[str, ...], processor: Processor) -> None:
        super().__init__(name, nodes, Fair(), processor)
        self.peers: set[str] = set()  # the programs to which there is a channel

    def begin(self, mail: Mail) -> float:
        """As `Station` says."""
        super().begin(mail)
        called = mail.agent is None and not isinstance(mail.message, Opened)
        return self.costs.fixed / 2 if called else self.costs.each


class Heartbeats:
    """What a processor does for heartbeats, of which each finds it asleep."""

    def __init__(self, rings: Rings, processor: Processor, rate: float, price: float) -> None:
        self.scheduler: Scheduler = Fair()
        self._rings = rings
        self._processor = processor
        self._rate = rate
        self._price = price
        self._link = Link("heartbeats")
        processor.stations.append(self)

    def start(self) -> None:
        """Begin, until `Rings.over`."""
        if self._rate:
            self._rings.time.at(
                self._rings.time.now + self._rings.drawn.expovariate(self._rate), self._tick
            )

    def _tick(self) -> None:
        if not self._rings.over:
            self._link.arrive(Mail(None, None))
            self._processor.kick()
            self.start()

    def ready(self) -> list[Link]:
        """As `Station` says."""
        return [self._link] if len(self._link) else []

    def begin(self, mail: Mail) -> float:
        """As `Station` says."""
        return self._price

    def finish(self, link: Link) -> None:
        """As `Station` says."""


class Transaction:
    """A transaction of a program."""

    def __init__(self, rings: Rings, program: Client) -> None:
        self._rings = rings
        self._program = program
        now = int(rings.time.now * 1e6)
        ref = AgentId(now, program.name, next(rings.serials))
        self.agent = AgentMachine(ref, program.name, program.alive, await_nodes=True)
        self._then: Callable[[], None] | None = None
        self._ids: list[LockId] = []
        program.members[ref] = self

    def lock(self, lock_id: LockId, then: Callable[[], None]) -> None:
        """Request a lock; call `then` when it is held."""
        self._then = then
        self._ids.append(lock_id)
        scope = self._rings.servers.at(lock_id)
        wanted = [(lock_id, "write", scope.nodes, scope.require)]
        self.perform(self.agent.ask_all(wanted, len(self._ids)))  # type: ignore[arg-type]

    def end(self) -> None:
        """Release all locks."""
        self._forget(lambda lock_id: True)
        self.perform(self.agent.end_transaction())

    def receive(self, message: Any) -> bool:
        """As `Member` says."""
        self.perform(self.agent.receive(message))
        return self.agent.unsettled

    def settle(self) -> None:
        """As `Member` says."""
        self.perform(self.agent.settle())

    def sees(self, node: str, up: bool) -> None:
        """As `Member` says: no server goes down here."""
        raise NotImplementedError

    def _forget(self, which: Callable[[LockId], bool]) -> None:
        relied = self._rings.relied
        for each in filter(which, self._ids):
            if relied.get(each) is self:
                del relied[each]

    def perform(self, effects: Iterable[AgentEffect]) -> None:
        """Do what its agent wants."""
        home = self._program.name
        for effect in effects:
            match effect:
                case ToServer():
                    given_up = effect.message
                    if isinstance(given_up, Surrender):
                        self._forget(partial(related, given_up.lock_id))
                    self._rings.send(home, effect.node, Mail(self.agent.id, given_up))
                case ToAgent():
                    self._rings.send_program(home, effect)
                case AnswerWait():
                    if isinstance(effect.result, Exception):
                        raise effect.result
                    self._granted()
                case Ended():
                    del self._program.members[self.agent.id]
                case _:
                    pass  # reports of deadlocks; nothing can be lost

    def _granted(self) -> None:
        for each in self._ids:
            other = self._rings.relied.setdefault(each, self)
            if other is not self:
                raise Violation(f"{self.agent.id} and {other.agent.id} both hold {each}")
        then, self._then = self._then, None
        assert then is not None
        then()


class Rings:
    """Programs, and lock servers of which some have each id.

    Args:
        programs: How many programs have a lock, apart from those in rings.
        prices: What is measured.
        servers: How many servers.
        copies: How many of them have each id.
        processors: How many processors servers and rings share, and the heartbeats of all programs; 0 for one each.
        seed: Decides when heartbeats are.

    Attributes:
        time: The clock.
        sent: How many messages were sent since a ring was closed.
        relied: Which transaction holds an id.
    """

    def __init__(
        self,
        programs: int,
        prices: Prices,
        servers: int = 9,
        copies: int = 3,
        processors: int = 0,
        seed: int = 1,
    ) -> None:
        self.time = Time(1 << 40)
        self.drawn = random.Random(seed)
        self.serials = count(1)
        self.servers = Servers(
            tuple(f"s{number}@host" for number in range(servers)), "majority", copies
        )
        self.relied: dict[LockId, Transaction] = {}
        self.sent = 0
        self._closed: list[float] = []  # when each ring was
        self._ended: list[float] = []
        self._left = 0  # transactions of rings that are not done
        self._delay = 0.0 if processors else NEAR
        self._prices = prices
        self._shared = [Processor(self.time) for _ in range(processors)]
        self._ways: dict[frozenset[str], str] = {}  # the relay of a channel
        self._stations: dict[str, Relay | Client] = {}
        self._processors: dict[str, Processor] = {}
        self._heartbeats: list[Heartbeats] = []
        period = prices.ticktime / TICKS
        for name in self.servers.nodes:
            server = Relay(
                name,
                ServerMachine,
                Flat(prices.costs.message, 0.0),
                Fair(),
                self.send,
                lambda *_: None,
                True,
            )
            server.pass_on = self._pass_on
            self._add(name, server, self._processor())
            price = prices.server_ticks * period / servers
            self._beat(self._processors[name], programs / period, price)
        for processor in self._shared:  # of programs that share processors with servers and rings
            rate = programs * servers / period / len(self._shared)
            self._beat(processor, rate, prices.program_ticks * period / servers)
        self.keepers = [self.program(f"p{number}", alone=True) for number in range(programs)]
        for number, keeper in enumerate(self.keepers):
            begin = partial(self._keep, keeper, (f"program {number}", "lock"))
            self.time.at(ALL_OVER * number / programs, keeper.call, begin)
        self.time.run()
        if len(self.relied) < programs:
            raise Violation(f"{programs - len(self.relied)} programs did not get their lock")

    def _processor(self) -> Processor:
        return (
            self._shared[len(self._stations) % len(self._shared)]
            if self._shared
            else Processor(self.time)
        )

    def _beat(self, processor: Processor, rate: float, price: float) -> None:
        self._heartbeats.append(Heartbeats(self, processor, rate, price))

    def _add(self, name: str, station: Relay | Client, processor: Processor) -> None:
        self._stations[name] = station
        self._processors[name] = processor
        processor.stations.append(station)

    def program(self, name: str, alone: bool = False) -> Client:
        """One more program; `alone` has a processor of its own in any case."""
        processor = Processor(self.time) if alone else self._processor()
        program = Client(name, self.servers.nodes, processor)
        program.costs = self._prices.costs
        self._add(name, program, processor)
        return program

    def _keep(self, keeper: Client, lock_id: LockId) -> None:
        Transaction(self, keeper).lock(lock_id, lambda: None)

    # --- Messages

    def send(self, source: str, target: str, mail: Mail) -> None:
        """Put a message on its way; of one link, messages keep their order."""
        self.sent += 1
        link = self._stations[target].links[source]
        self.time.at(self.time.now + self._delay, self._arrive, link, mail, target)

    def _arrive(self, link: Link, mail: Mail, target: str) -> None:
        link.arrive(mail)
        self._processors[target].kick()

    def send_program(self, source: str, effect: ToAgent) -> None:
        """Send a message to an agent, over the channel to its program; without one it is dropped, and a channel is opened."""
        target = effect.agent.node
        program = self._stations[source]
        assert isinstance(program, Client)
        pair = frozenset((source, target))
        mail = Mail(effect.agent, effect.message) if target in program.peers else None
        if mail is None and pair in self._ways:
            return  # it is being opened
        relay = self._ways.setdefault(pair, self.drawn.choice(self.servers.nodes))
        self.send(source, relay, Mail(None, Frame(source, target, mail)))

    def _pass_on(self, relay: str, frame: Frame) -> None:
        if frame.mail is not None:
            self.send(relay, frame.target, frame.mail)
            return
        for name, peer in ((frame.target, frame.source), (frame.source, frame.target)):
            program = self._stations[name]
            assert isinstance(program, Client)
            self.send(relay, name, Mail(None, Opened(program, peer)))

    # --- Rings

    def close(self, rings: Sequence[Ring], rate: float = 0.0) -> list[float]:
        """Programs that each hold a lock and want that of the next one: seconds from the request that closes a ring until all of it are done.

        Args:
            rings: The rings.
            rate: How many are closed in a second.
        """
        self._closed = [0.0] * len(rings)
        self._ended = [0.0] * len(rings)
        self._left = MEMBERS * len(rings)
        at = self.time.now
        for number, ring in enumerate(rings):
            at += self.drawn.expovariate(rate) if rate else 0.0
            for place, program in enumerate(ring.programs):
                begin = partial(self._begin, number, ring, place, at + MEMBERS * BEFORE)
                self.time.at(at + place * BEFORE, program.call, begin)
        for each in self._heartbeats:
            each.start()
        self.time.run()
        if self._left:
            raise Violation(f"{self._left} transactions of rings are stuck")
        return [end - begun for end, begun in zip(self._ended, self._closed, strict=True)]

    def _begin(self, number: int, ring: Ring, place: int, at: float) -> None:
        """A program takes its lock; it wants the next one's at a time, the last one of a ring later than the others."""
        program = ring.programs[place]
        one = Transaction(self, program)
        last = place == MEMBERS - 1

        def ask() -> None:
            if last:
                self.sent = 0
                self._closed[number] = self.time.now
            one.lock(ring.ids[(place + 1) % MEMBERS], done)

        def done() -> None:
            self._ended[number] = self.time.now
            self._left -= 1
            program.call(one.end)

        def held() -> None:
            self.time.at(max(self.time.now, at + last * BEFORE), program.call, ask)

        one.lock(ring.ids[place], held)

    @property
    def over(self) -> bool:
        """Whether all rings are resolved."""
        return not self._left


def said(programs: int, prices: Prices, rounds: int, processors: int = 0, seed: int = 1) -> Said:
    """What the model says of this number of programs.

    Args:
        programs: How many have a lock.
        prices: What is measured.
        rounds: How many rings of each kind are closed, one after the other.
        processors: As `Rings` says.
        seed: Decides everything that is drawn.
    """
    world = Rings(programs, prices, processors=processors, seed=seed)
    apart = ids_apart(world.servers, MEMBERS)

    def ring(members: Sequence[Client], number: int, over: bool) -> Ring:
        keys = apart if over else apart[number % MEMBERS :][:1] * MEMBERS
        return Ring(members, [(key, number, over, each) for each, key in enumerate(keys)])

    members = [world.program(f"ring{each}") for each in range(MEMBERS)]
    alone: dict[bool, list[float]] = {False: [], True: []}
    sent: dict[bool, list[int]] = {False: [], True: []}
    for number in range(rounds):
        for over in alone:
            alone[over] += world.close([ring(members, number, over)])
            sent[over].append(world.sent)
    keepers = world.keepers
    crowd = [
        ring(keepers[first : first + MEMBERS], first // MEMBERS // 2, first // MEMBERS % 2 == 1)
        for first in range(0, len(keepers) - MEMBERS + 1, MEMBERS)
    ]
    busy = [] if processors else world.close(crowd, RATE)
    middle = statistics.median
    return Said(
        middle(alone[False]),
        middle(alone[True]),
        max(alone[False] + alone[True]),
        prices.server_ticks * programs / len(world.servers.nodes),
        statistics.mean(sent[False]),
        statistics.mean(sent[True]),
        middle(busy[::2] or [0.0]),
        middle(busy[1::2] or [0.0]),
        max(busy, default=0.0),
    )
