"""A crowd in virtual time: many clients of some programs want one lock of several servers.

Worlds (`locks_lab.worlds`) leave out time. Here messages cost processor time, and a program or a server handles one message after the
other. Machines are the product's own. Links are served in turn, some messages at a time, as the product's hub does it.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from locks.core.agent.machine import AgentMachine
from locks.core.messages import (
    AgentEffect,
    AnswerWait,
    Ended,
    Request,
    Surrender,
    ToAgent,
    ToServer,
)
from locks.core.server.machine import ServerMachine
from locks.model import RIVALS, AgentId, LockId, Mode
from locks_lab.worlds.host import Violation
from locks_lab.worlds.rules import OURS, Rule

LOCK: LockId = ("lock",)
MESSAGE, EFFECT, CLIENT, DELAY = 40e-6, 10e-6, 100e-6, 50e-6  # seconds
HOLD = 0.001
PIECE = 30  # messages of a link that are read at once


class Shape(NamedTuple):
    """How many there are; each client runs `rounds` transactions, and a share of them reads."""

    clients: int
    servers: int = 3
    programs: int = 3
    reads: float = 0.0
    rounds: int = 1


class Turns:
    """The links that have input, in the order in which they are served."""

    def __init__(self) -> None:
        self.line: deque[str] = deque()

    def next(self) -> str | None:
        """The next one, which leaves the line."""
        return self.line.popleft() if self.line else None


class Station:
    """A program or a server, on a processor of its own; it serves its links in turn."""

    def __init__(self, crowd: Crowd, name: str, turns: Turns) -> None:
        self.crowd = crowd
        self.name = name
        self.turns = turns
        self.works = False
        self.links: dict[str, deque[Any]] = defaultdict(deque)

    def arrive(self, source: str, agent: AgentId, message: Any) -> None:
        """A message of a link can be read."""
        if not self.links[source]:
            self.turns.line.append(source)
        self.links[source].append((agent, message))
        if not self.works:
            self._go_on()

    def _go_on(self) -> None:
        source = self.turns.next()
        if source is not None:
            self._serve(source, PIECE)
        elif any(self.links.values()):
            raise Violation(f"{self.name} is idle while there is input")

    def _serve(self, source: str, left: int) -> None:
        took, done = self.handle(*self.links[source][0])
        self.works = True
        self.crowd.at(took, self._served, source, left - 1, done)

    def _served(self, source: str, left: int, done: Callable[[], None]) -> None:
        done()
        self.links[source].popleft()
        if self.links[source] and left:
            self._serve(source, left)
            return
        self.works = False
        if self.links[source]:
            self.turns.line.append(source)
        self._go_on()

    def handle(self, agent: AgentId, message: Any) -> tuple[float, Callable[[], None]]:
        """How long a message takes, and what follows it."""
        raise NotImplementedError


class Server(Station):
    """A lock server."""

    def __init__(self, crowd: Crowd, name: str, turns: Turns, machine: ServerMachine) -> None:
        super().__init__(crowd, name, turns)
        self.machine = machine

    def handle(self, agent: AgentId, message: Any) -> tuple[float, Callable[[], None]]:
        if self.name == "n1" and isinstance(message, Request):
            self.crowd.queue.setdefault(agent, message.mode)
        effects = [e for e in self.machine.handle(message) if isinstance(e, ToAgent)]
        return MESSAGE + EFFECT * len(effects), partial(self.crowd.send, self.name, effects)


class Program(Station):
    """A program with many clients; what a client does is a message of its program to itself."""

    def __init__(self, crowd: Crowd, name: str, turns: Turns) -> None:
        super().__init__(crowd, name, turns)
        self.clients: dict[AgentId, Client] = {}

    def handle(self, agent: AgentId, message: Any) -> tuple[float, Callable[[], None]]:
        if callable(message):
            return CLIENT, message
        client = self.clients.get(agent)
        return CLIENT, partial(client.receive, message) if client else lambda: None


class Client:
    """Locks, holds, ends, and comes again; as often as the shape says."""

    def __init__(self, crowd: Crowd, number: int, program: Program, mode: Mode) -> None:
        self.crowd, self.number, self.program, self.mode = crowd, number, program, mode
        self.left = crowd.shape.rounds
        self.agent: AgentMachine

    def begin(self) -> None:
        """Request the lock, with a new agent."""
        self.left -= 1
        crowd = self.crowd
        me = AgentId(int(crowd.now * 1e6) * 4096 + self.number, self.program.name, self.number)
        nodes = tuple(crowd.servers)
        self.agent = crowd.rule.agent(me, "", frozenset(nodes), await_nodes=True)
        self.program.clients[me] = self
        wanted = [(LOCK, self.mode, nodes, "majority")]
        self._perform(self.agent.ask_all(wanted, 1))  # type: ignore[arg-type]

    def receive(self, message: Any) -> None:
        """Its agent handles a message."""
        self._perform([*self.agent.receive(message), *self.agent.settle()])

    def _end(self) -> None:
        del self.crowd.holders[self.agent.id]
        self._perform(self.agent.end_transaction())

    def _perform(self, effects: Iterable[AgentEffect]) -> None:
        me = self.agent.id
        for effect in effects:
            if isinstance(effect, ToServer):
                if isinstance(effect.message, Surrender):
                    raise Violation("a deadlock of one lock")
                self.crowd.send(self.program.name, [effect], me)
            elif isinstance(effect, ToAgent):
                self.crowd.send(self.program.name, [effect])
            elif isinstance(effect, AnswerWait):
                self.crowd.granted(me, self.mode)
                self.crowd.at(HOLD, self.program.arrive, self.program.name, me, self._end)
            elif isinstance(effect, Ended):
                del self.program.clients[me]
                self.crowd.ended += 1
                if self.left:
                    self.begin()


class Crowd:
    """All of it. `run` until nothing is left to happen.

    Attributes:
        now: Seconds of virtual time.
        ended: How many transactions have ended.
        messages: How many messages of each kind were sent between stations.
        queue: Who waits at the gate, which is the first server, in the order in which they came.
        overtaken: How often a request was overtaken there by a later one that it excludes, at most.
    """

    def __init__(self, shape: Shape, rule: Rule = OURS, turns: type[Turns] = Turns) -> None:
        self.shape, self.rule = shape, rule
        self.now = 0.0
        self.ended = 0
        self.messages: Counter[str] = Counter()
        self.queue: dict[AgentId, Mode] = {}
        self.holders: dict[AgentId, Mode] = {}
        self._passed: Counter[AgentId] = Counter()
        self._agenda: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._planned = 0
        self._last: dict[tuple[str, str], float] = defaultdict(float)
        made = [f"n{number}" for number in range(1, shape.servers + 1)]
        self.servers = {name: Server(self, name, turns(), rule.server(name)) for name in made}
        names = [f"p{number}" for number in range(1, shape.programs + 1)]
        self.programs = {name: Program(self, name, turns()) for name in names}
        for number in range(1, shape.clients + 1):
            program = self.programs[names[number % len(names)]]
            mode: Mode = "read" if number <= shape.reads * shape.clients else "write"
            begin = Client(self, number, program, mode).begin
            program.arrive(program.name, AgentId(0, program.name, number), begin)

    @property
    def overtaken(self) -> int:
        return max(self._passed.values(), default=0)

    def at(self, seconds: float, what: Callable[..., None], *arguments: Any) -> None:
        """Plan an event."""
        self._planned += 1
        heapq.heappush(self._agenda, (self.now + seconds, self._planned, what, arguments))

    def send(
        self, source: str, effects: Iterable[ToServer | ToAgent], agent: AgentId | None = None
    ) -> None:
        """Put messages on their way. Those of one link keep their order."""
        for effect in effects:
            if isinstance(effect, ToServer):
                assert agent is not None
                target: Station = self.servers[effect.node]
                receiver = agent
            else:
                receiver = effect.agent
                target = self.programs[receiver.node]
            self.messages[type(effect.message).__name__] += 1
            self.at(DELAY, target.arrive, source, receiver, effect.message)

    def granted(self, agent: AgentId, mode: Mode) -> None:
        """A client is told that it holds the lock."""
        if any(held in RIVALS[mode] for held in self.holders.values()):
            raise Violation("two clients hold the lock")
        self.holders[agent] = mode
        for other, wanted in self.queue.items():
            if other == agent:
                break
            self._passed[other] += wanted in RIVALS[mode]
        self.queue.pop(agent, None)

    def run(self) -> Crowd:
        """Until nothing is left to happen.

        Raises:
            Violation: A processor was idle while it had input, two hold the lock, or somebody waits for ever.
        """
        while self._agenda:
            self.now, _, what, arguments = heapq.heappop(self._agenda)
            what(*arguments)
        if self.ended < self.shape.clients * self.shape.rounds:
            raise Violation(f"stuck after {self.ended} transactions")
        return self
