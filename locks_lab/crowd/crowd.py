"""One run of a crowd: lock servers, programs and clients in virtual time, from a shape and a seed."""

from __future__ import annotations

import random
from functools import partial

from locks_lab.crowd.clients import Client
from locks_lab.crowd.links import Fair, Link, Mail
from locks_lab.crowd.machines import Processor, Program, Server, Time
from locks_lab.crowd.measures import Measures, Report
from locks_lab.crowd.rules import CROWD, CrowdRule
from locks_lab.crowd.shape import Fault, Shape
from locks_lab.worlds.host import Violation

__all__ = ["Crowd", "run_crowd"]


class Crowd:
    """Lock servers, programs, and clients that compete for the same locks.

    Args:
        shape: The parameters.
        seed: Decides everything that is drawn.
        rule: The rules.
        limit: After this number of events the run counts as endless.

    Attributes:
        time: The clock.
        servers: The lock servers, by name.
        programs: The programs, by name.
        clients: The clients.
    """

    def __init__(
        self, shape: Shape, seed: int = 0, rule: CrowdRule = CROWD, limit: int = 5_000_000
    ) -> None:
        self.shape = shape
        self.rule = rule
        self.time = Time(limit)
        self._random = random.Random(seed)
        self._measures = Measures(shape.nodes[0], self._now)
        self.servers: dict[str, Server] = {}
        self.programs: dict[str, Program] = {}
        self._server_processors = [
            Processor(self.time) for _ in range(shape.processors or shape.servers)
        ]
        self._on: dict[str, Processor] = {}
        price = rule.price()
        for number, node in enumerate(shape.nodes):
            processor = self._server_processors[number % len(self._server_processors)]
            server = Server(
                node,
                rule.machines.server,
                price,
                rule.scheduler(self._now),
                self._send,
                self._measures.arrives,
                rule.urgent_first,
            )
            self.servers[node] = server
            self._on[node] = processor
            processor.stations.append(server)
        for number in range(1, shape.programs + 1):
            name = f"p{number}"
            processor = self._on[name] = Processor(self.time)
            program = Program(name, shape.nodes, Fair(), processor)
            self.programs[name] = program
            processor.stations.append(program)
        names = list(self.programs)
        self.clients = [
            Client(
                number,
                shape,
                self.programs[names[(number - 1) % len(names)]],
                rule,
                self.time,
                self._send,
                self._measures,
                random.Random(self._random.random()),
            )
            for number in range(1, shape.clients + 1)
        ]
        for client in self.clients:
            begins = self._random.random() * shape.arrive
            self.time.at(begins, client.program.call, client.begin)
        for fault in shape.faults:
            self._plan(fault)

    def _now(self) -> float:
        return self.time.now

    # --- Messages

    def _send(self, source: str, target: str, mail: Mail) -> None:
        """Put a message on its way; of one link, messages keep their order."""
        station = self.servers.get(target) or self.programs[target]
        link = station.links[source]
        if not link.up:
            return
        if source == target:
            link.arrive(mail)
            return
        self._measures.messages[type(mail.message).__name__] += 1
        shape = self.shape
        delay = shape.delay * (1.0 + shape.jitter * self._random.random())
        link.last = max(link.last, self.time.now + delay)
        self.time.at(link.last, self._arrive, link, link.epoch, mail, self._on[target])

    def _arrive(self, link: Link, epoch: int, mail: Mail, processor: Processor) -> None:
        if epoch == link.epoch:
            link.arrive(mail)
            processor.kick()

    # --- Faults

    def _plan(self, fault: Fault) -> None:
        server = self.servers[fault.node]
        end = fault.at + fault.lasts
        if fault.kind == "silent":
            self.time.at(fault.at, self._silence, server, True)
            self.time.at(end, self._silence, server, False)
        elif fault.kind == "slow":
            self.time.at(fault.at, self._slow, server, fault.factor)
            self.time.at(end, self._slow, server, 1.0)
        else:
            self.time.at(fault.at, self._crash, server)
            self.time.at(end, self._restart, server)

    def _slow(self, server: Server, factor: float) -> None:
        server.factor = factor

    def _silence(self, server: Server, silent: bool) -> None:
        """A server reads nothing for a while. Programs that go by a rule for that notice it."""
        server.silent = silent
        self._on[server.node].kick()
        if self.rule.silence is not None:
            notice = partial(self.rule.silence, self, server.node, silent)
            self.time.at(self.time.now + (self.rule.patience if silent else 0.0), notice)

    def _crash(self, server: Server) -> None:
        server.crash()
        for program in self.programs.values():
            server.links[program.name].lose()
            program.links[server.node].lose()
            program.call(partial(program.sees, server.node, False))

    def _restart(self, server: Server) -> None:
        server.restart()
        for program in self.programs.values():
            program.call(partial(self._meet, program, server))

    def _meet(self, program: Program, server: Server) -> None:
        """A program is connected with a server that runs again."""
        server.links[program.name].up = True
        program.links[server.node].up = True
        program.sees(server.node, True)

    # --- Running

    def run(self) -> Report:
        """Run until no event is left.

        Raises:
            Violation: Two clients hold conflicting locks, or a client waits for ever.
        """
        self.time.run()
        stuck = [client.number for client in self.clients if not client.finished]
        if stuck:
            raise Violation(f"stuck: clients {stuck[:20]}, {len(stuck)} of {len(self.clients)}")
        links = [link for server in self.servers.values() for link in server.links.values()]
        processors = self._on
        return self._measures.report(
            self.shape,
            max(link.passed for link in links),
            sum(each.withheld for each in dict.fromkeys(processors.values())),
            {name: processor.busy for name, processor in processors.items()},
            self.time.events,
        )


def run_crowd(shape: Shape, seed: int = 0, rule: CrowdRule = CROWD) -> Report:
    """Run a crowd once; return the measurements."""
    return Crowd(shape, seed, rule).run()
