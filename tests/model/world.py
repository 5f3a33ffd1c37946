"""A small world of lock servers, agents and clients under a schedule that is chosen from outside.

It runs the very machines that the actors run. Messages between two parties keep their order;
everything else happens in any order that `choices` and `do` allow. `run` picks at random, with a
seed that replays the run.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

from locks.agent_machine import AgentMachine
from locks.errors import DeadlockAborted, LocksError
from locks.messages import Answer, Ended, Notify, Surrender, ToAgent, ToServer, ToWatcher
from locks.model import AgentId, Edge, LockId, blocks, related
from locks.server_machine import ServerMachine

Step = tuple[Any, ...]
"""A client's step: ("lock", id, mode[, nodes, require]), ("ask", ...) without waiting, ("await",),
("unlock", id). Whatever the client still has is released when its script is at its end."""


class Client:
    """A client that carries out a script, begins again after an abort, and then ends."""

    def __init__(self, world: World, number: int, script: list[Step], **options: Any) -> None:
        self.world = world
        self.number = number
        self.script = script
        self.options = options
        self.generation = 0
        self.retries = 0
        self.reports: list[Any] = []
        self.begin()

    def begin(self) -> None:
        ref = AgentId(self.world.clock, "n1", self.number + 1000 * self.generation)
        self.world.clock += 1
        self.generation += 1
        self.agent = AgentMachine(ref, f"client-{self.number}", self.world.servers, **self.options)
        self.world.agents[ref] = self.agent
        self.at = 0
        self.waiting: int | None = None
        self.told: dict[LockId, str] = {}
        self.asked: dict[LockId, str] = {}

    @property
    def finished(self) -> bool:
        return self.agent.ended is not None and self.waiting is None

    def ready(self) -> bool:
        return self.waiting is None and not self.finished

    def step(self) -> None:
        agent, world = self.agent, self.world
        if self.at >= len(self.script):
            self.reports += agent.deadlocks
            self.told.clear()
            world.perform(agent, agent.end())
            return
        kind, *what = self.script[self.at]
        self.at += 1
        if kind in ("lock", "ask"):
            lock_id, mode, nodes, require = (*what, ("n1",), "all")[:4] if len(what) == 2 else what
            if self.asked.get(lock_id) != "write":
                self.asked[lock_id] = mode
            if kind == "lock":
                self.waiting = world.clock = world.clock + 1
                effects = agent.ask(lock_id, mode, nodes, require, self.waiting)
            else:
                effects = agent.ask(lock_id, mode, nodes, require)
        elif kind == "await":
            self.waiting = world.clock = world.clock + 1
            effects = agent.await_all(self.waiting)
        else:
            (lock_id,) = what
            self.told.pop(lock_id, None)
            self.asked.pop(lock_id, None)
            effects = agent.unlock(lock_id)
        world.perform(agent, effects)

    def gives_up(self, message: Surrender) -> None:
        """The agent yields; from now on it answers nothing until it knows what it still holds."""
        if message.report is not None and message.report.action == "aborted":
            self.told.clear()
        else:
            self.told = {i: m for i, m in self.told.items() if not related(i, message.lock_id)}

    def answer(self, result: Any) -> None:
        self.waiting = None
        if isinstance(result, LocksError):
            assert isinstance(result, DeadlockAborted), result
            self.retries += 1
            self.world.aborts += 1
            self.begin()
        else:
            self.told = dict(self.asked)
            self.world.check_exclusion()


class World:
    """Lock servers on `nodes`, and clients with their scripts."""

    def __init__(self, scripts: Iterable[list[Step]], nodes: tuple[str, ...] = ("n1",), **options: Any) -> None:
        self.clock = 1
        self.servers = {node: ServerMachine(node) for node in nodes}
        self.agents: dict[AgentId, AgentMachine] = {}
        self.channels: dict[tuple[Any, Any], deque[Any]] = {}
        self.unsettled: dict[AgentId, None] = {}
        self.sent: Counter[str] = Counter()
        self.surrenders: list[Any] = []
        self.superfluous = 0
        self.aborts = 0
        self.clients = [Client(self, n, script, **options) for n, script in enumerate(scripts, 1)]

    # --- what can happen, and making it happen

    def choices(self) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = [("deliver", link) for link in self.channels]
        to = {receiver for _, receiver in self.channels}
        found += [("settle", ref) for ref in self.unsettled if ref not in to]
        found += [("client", n) for n, client in enumerate(self.clients) if client.ready()]
        return found

    def do(self, choice: tuple[str, Any]) -> None:
        kind, what = choice
        if kind == "deliver":
            channel = self.channels[what]
            message = channel.popleft()
            if not channel:
                del self.channels[what]
            self.deliver(what[1], message)
        elif kind == "settle":
            del self.unsettled[what]
            agent = self.agents[what]
            self.perform(agent, agent.settle())
        else:
            self.clients[what].step()

    def deliver(self, receiver: Any, message: Any) -> None:
        if receiver in self.servers:
            server = self.servers[receiver]
            if isinstance(message, Surrender) and message.report is not None:
                real = self.in_cycle(message)
                before = server.table.statistics().refused_surrenders
                self.perform(receiver, server.handle(message))
                if server.table.statistics().refused_surrenders == before:
                    self.surrenders.append(message)
                    self.superfluous += not real
            else:
                self.perform(receiver, server.handle(message))
            return
        agent = self.agents[receiver]
        self.perform(agent, agent.receive(message))
        self.unsettled[receiver] = None

    def perform(self, actor: Any, effects: list[Any]) -> None:
        me = actor if isinstance(actor, str) else actor.id
        for effect in effects:
            if isinstance(effect, ToServer):
                if isinstance(effect.message, Surrender):
                    self.client_of(me).gives_up(effect.message)
                self.send(me, effect.node, effect.message)
            elif isinstance(effect, ToAgent):
                self.send(me, effect.agent, effect.message)
            elif isinstance(effect, Answer):
                client = self.client_of(me)
                assert client.waiting == effect.wait
                client.answer(effect.result)
            elif not isinstance(effect, (Notify, Ended, ToWatcher)):
                raise AssertionError(effect)

    def client_of(self, agent: AgentId) -> Client:
        return next(c for c in self.clients if c.agent.id == agent)

    def send(self, sender: Any, receiver: Any, message: Any) -> None:
        self.sent[type(message).__name__] += 1
        self.channels.setdefault((sender, receiver), deque()).append(message)

    def run(self, seed: int, limit: int = 200_000) -> None:
        """Carry on at random until nothing can happen any more; everyone must have finished."""
        rng = random.Random(seed)
        for _ in range(limit):
            choices = self.choices()
            if not choices:
                break
            self.do(rng.choice(choices))
        else:
            raise AssertionError(f"no end after {limit} steps (seed {seed})")
        stuck = [c for c in self.clients if not c.finished]
        assert not stuck, f"stuck (seed {seed}): {[(c.number, c.script, c.at) for c in stuck]}"
        for server in self.servers.values():
            assert not server.table.ids() and not server.table.askers

    # --- what must always be true

    def check_exclusion(self) -> None:
        """No two clients were told that they hold conflicting locks."""
        held = [
            (client, lock_id, mode)
            for client in self.clients
            for lock_id, mode in client.told.items()
        ]
        for i, (a, id_a, mode_a) in enumerate(held):
            for b, id_b, mode_b in held[i + 1 :]:
                assert a is b or not related(id_a, id_b) or mode_a == mode_b == "read", (
                    f"{a.number} has {mode_a} {id_a} and {b.number} has {mode_b} {id_b}"
                )

    def edges(self) -> list[Edge]:
        """The real wait-for graph, as the lock tables have it."""
        found = []
        for node, server in self.servers.items():
            for asker in server.table.askers.values():
                for entry in asker.all():
                    if not entry.granted:
                        w = entry.record(node)
                        for other in server.table.related(w.lock_id):
                            h = other.record(node)
                            if blocks(h, w):
                                found.append(Edge(w, h))
        return found

    def in_cycle(self, surrender: Any) -> bool:
        """Whether the edge for which a surrender is made lies in a real cycle now."""
        waiter, holder = surrender.waiter[0], surrender.holder[0]
        node = surrender.report.node
        follow: dict[AgentId, set[AgentId]] = {}
        start = None
        for w, h in self.edges():
            follow.setdefault(w.agent, set()).add(h.agent)
            if w.node == node and (w.number, h.number) == (waiter, holder):
                start = (h.agent, w.agent)
        if start is None:
            return False
        seen, todo = {start[0]}, [start[0]]
        while todo:
            for other in follow.get(todo.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return start[1] in seen
