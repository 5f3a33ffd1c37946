"""Simulated agents and their clients.

A `Host` is an agent with what its client was told. A `Client` carries out a script. Neither knows
anything of the world around it: what is to be sent is put into `out`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Literal

from locks.agent_machine import AgentMachine
from locks.errors import AgentEnded, CannotServe, DeadlockAborted
from locks.messages import (
    AgentMessage,
    Answer,
    Ended,
    Notify,
    Remove,
    Surrender,
    ToAgent,
    ToServer,
)
from locks.model import AgentId, Deadlock, LockId, LockInfo, Mode, related
from locks.sim.network import Party
from locks.sim.rules import OURS, Rule
from locks.sim.script import Script, Step

__all__ = ["SERIALS", "Client", "Fate", "Host", "Mail", "Violation", "needed"]

Fate = Literal["ends", "crashes"]
Mail = tuple[Party, Party, Any]

SERIALS = 1000  # the serial numbers of a client's agents are equal modulo this


class Violation(AssertionError):
    """Something that must always be true is not."""


class Host:
    """An agent, and what its client was told.

    Args:
        machine: The agent.
        client: Takes what the machine wants done apart from messages.

    Attributes:
        out: Messages to be sent, each with sender and receiver.
        told: The locks that the client was told it holds, by node and id.
    """

    __slots__ = ("agent", "client", "out", "told")

    def __init__(self, machine: AgentMachine, client: Callable[[Host, Any], None]) -> None:
        self.agent = machine
        self.client = client
        self.out: list[Mail] = []
        self.told: dict[tuple[str, LockId], Mode] = {}

    @property
    def ref(self) -> AgentId:
        """The agent's reference."""
        return self.agent.id

    def receive(self, message: AgentMessage) -> None:
        """The agent takes in a message."""
        self.perform(self.agent.receive(message))

    def settle(self) -> None:
        """The agent looks at what it knows."""
        self.perform(self.agent.settle())

    def node_up(self, node: str) -> None:
        """The agent's node sees another one again."""
        self.perform(self.agent.node_up(node))

    def node_down(self, node: str) -> None:
        """The agent's node has lost another one, and with it what was locked there."""
        self.perform(self.agent.node_down(node))
        self._lose([where for where in self.told if where[0] == node])

    def perform(self, effects: list[Any]) -> None:
        """Do what the agent wants done."""
        sender = self.ref
        for effect in effects:
            kind = type(effect)
            if kind is ToServer:
                if type(effect.message) is Surrender:
                    self._gives_up(effect.node, effect.message)
                self.out.append((sender, effect.node, effect.message))
            elif kind is ToAgent:
                self.out.append((sender, effect.agent, effect.message))
            else:
                self.client(self, effect)

    def has_all(self) -> None:
        """The client was told that it has all that it asked for."""
        infos = self.agent.lock_info()
        for info in infos:
            if not info.held or len(info.granted) < needed(info, self.agent.alive):
                raise Violation(f"the client of {self.ref} is told that it has {info}")
        self.told = {(node, info.lock_id): info.mode for info in infos for node in info.granted}

    def let_go(self, lock_id: LockId) -> None:
        """The client gives a lock up."""
        self.told = {where: m for where, m in self.told.items() if where[1] != lock_id}

    def _gives_up(self, node: str, message: Surrender) -> None:
        """From here on the agent answers nothing until it knows what it still holds."""
        if message.report is not None and self.agent.abort_on_deadlock:
            self._check_action(message.report)
        if message.aborts:
            self.told.clear()
        self._lose(
            [
                (where, lock_id)
                for where, lock_id in self.told
                if where == node and related(lock_id, message.lock_id)
            ]
        )

    def _lose(self, lost: list[tuple[str, LockId]]) -> None:
        """What the client was told does not hold any more; with too few nodes left, nowhere."""
        if lost:
            left = {where: mode for where, mode in self.told.items() if where not in lost}
            for info in self.agent.lock_info():
                if sum(lock == info.lock_id for _, lock in left) < needed(info, self.agent.alive):
                    left = {where: mode for where, mode in left.items() if where[1] != info.lock_id}
            self.told = left

    def _check_action(self, report: Deadlock) -> None:
        """An agent that is to abort rather than to surrender does so where its client was told."""
        taken = [where for where in self.told if related(where[1], report.lock_id)]
        if report.action == "surrendered" and any(node == report.node for node, _ in taken):
            raise Violation(f"{self.ref} surrenders what its client was told it has: {report}")


def needed(info: LockInfo, alive: Collection[str]) -> int:
    """On how many nodes a lock is needed, as its requirement says.

    Not `locks.wishes.needed`: this is to find out when that is wrong.
    """
    nodes = len(info.nodes)
    if info.require.endswith("_alive"):
        nodes = max(1, len(set(info.nodes) & set(alive)))
    if info.require.startswith("all"):
        return nodes
    return 1 if info.require == "any" else nodes // 2 + 1


class Client:
    """A client: carries out a script, begins again after an abort, and ends.

    Args:
        number: Its number, from 1. Its first agent is older than those of larger numbers.
        script: What it does.
        nodes: The nodes; it lives on the first one unless `home` says otherwise.
        home: The node where it lives.
        clock: Says the creation time of its next agent; without it, agents of the same generation
            are in the order of their clients.
        rule: Which machine its agents are.
        options: For its agents.

    Attributes:
        waiting: Whether it waits, and whether it may give up waiting.
        finished: Whether its script is at its end, or it has died.
        failed: Whether it has ended because nodes were down.
        aborts: How often a transaction of it was aborted.
        reports: The deadlocks that its ended transactions were told of.
    """

    def __init__(
        self,
        number: int,
        script: Script,
        nodes: Iterable[str],
        home: str | None = None,
        clock: Callable[[], int] | None = None,
        rule: Rule = OURS,
        **options: Any,
    ) -> None:
        self.number = number
        self.script = script
        self.nodes = tuple(nodes)
        self.home = home or self.nodes[0]
        self.alive = set(self.nodes)  # as its node sees them
        self.clock = clock
        self.rule = rule
        self.options = options
        self.generation = -1
        self.aborts = 0
        self.reports: list[Deadlock] = []
        self.finished = False
        self.failed = False
        self.first = 0
        self.host: Host
        self._begin()

    def _begin(self) -> None:
        """Begin a transaction: the one at `first` in the script."""
        self.generation += 1
        created = self.clock() if self.clock else (self.generation + 1) * SERIALS + self.number
        ref = AgentId(created, self.home, self.number + SERIALS * self.generation)
        machine = self.rule.agent(ref, f"client-{self.number}", self.alive, **self.options)
        before = self.host.out if self.generation else []
        self.host = Host(machine, self._effect)
        self.host.out = before
        self.at = self.first
        self.waiting: Literal["no", "yes", "for a while"] = "no"

    @property
    def agent(self) -> AgentMachine:
        """Its present agent."""
        return self.host.agent

    @property
    def ref(self) -> AgentId:
        """Its present agent's reference."""
        return self.host.agent.id

    @property
    def told(self) -> dict[tuple[str, LockId], Mode]:
        """The locks that it was told it holds, by node and id."""
        return self.host.told

    # --- What can happen to it

    @property
    def ready(self) -> bool:
        """Whether it can take its next step."""
        return self.waiting == "no" and not self.finished

    @property
    def next_step(self) -> Step | None:
        """Its next step; `None` if that is to end."""
        return self.script[self.at] if self.at < len(self.script) else None

    def step(self) -> None:
        """Take the next step."""
        step = self.next_step
        if step is None:
            self._end()
            return
        self.at += 1
        try:
            getattr(self, "_" + step.kind)(step)
        except CannotServe:
            self._fail()

    def time_out(self) -> None:
        """Give up waiting."""
        self.waiting = "no"
        self.host.perform(self.agent.abandon(self.number))

    def node_up(self, node: str) -> None:
        """Its node sees another one again."""
        self.alive.add(node)
        if not self.finished:
            self.host.node_up(node)

    def node_down(self, node: str) -> None:
        """Its node has lost another one."""
        self.alive.discard(node)
        if not self.finished:
            self.host.node_down(node)

    def die(self, fate: Fate) -> None:
        """It ends at once, or its agent crashes; then lock servers notice, and nobody else."""
        self.told.clear()
        if fate == "ends":
            self.host.perform(self.agent.end(AgentEnded("died", agent=self.ref)))
        else:
            self.host.out += [(self.ref, node, Remove(self.ref)) for node in self.nodes]
        self.finished = True
        self.waiting = "no"

    def vanish(self) -> None:
        """Its node has crashed."""
        self.told.clear()
        self.host.out.clear()
        self.finished = True
        self.waiting = "no"

    # --- Steps

    def _ask(self, step: Step, wait: int | None = None) -> None:
        nodes = step.nodes or (self.home,)
        self.host.perform(self.agent.ask(step.lock_id, step.mode, nodes, step.require, wait))

    def _lock(self, step: Step) -> None:
        self.waiting = "yes"
        self._ask(step, self.number)

    def _try(self, step: Step) -> None:
        self.waiting = "for a while"
        self._ask(step, self.number)

    def _await(self, step: Step | None = None) -> None:
        self.waiting = "yes"
        self.host.perform(self.agent.await_all(self.number))

    def _unlock(self, step: Step) -> None:
        if self.agent.asks_for(step.lock_id):
            self.host.let_go(step.lock_id)
            self.host.perform(self.agent.unlock(step.lock_id))

    def _surrender(self, step: Step) -> None:
        for info in self.agent.lock_info():
            if info.lock_id == step.lock_id and set(info.granted) == set(info.nodes):
                self.host.perform(self.agent.surrender(step.lock_id, self.ref, info.nodes))
                self._await()

    def _again(self, step: Step) -> None:
        self._end()
        self.finished = False
        self.first = self.at
        self._begin()

    def _end(self) -> None:
        self.told.clear()
        self.finished = True
        self.reports += self.agent.deadlocks
        self.host.perform(self.agent.end())

    def _fail(self) -> None:
        """Nodes that it needs are down, and it does not wait for them."""
        self.failed = True
        if not self.agent.ended:
            self._end()
        self.told.clear()
        self.finished = True

    # --- What its agent wants done

    def _effect(self, host: Host, effect: Any) -> None:
        if isinstance(effect, Answer):
            if self.waiting == "no" or effect.wait != self.number:
                raise Violation(f"client {self.number} is answered, and does not wait")
            self.waiting = "no"
            if not isinstance(effect.result, Exception):
                host.has_all()
        elif isinstance(effect, Ended):
            if isinstance(effect.reason, DeadlockAborted):
                self.reports += self.agent.deadlocks
                self.aborts += 1
                self._begin()
            elif isinstance(effect.reason, CannotServe):
                self.reports += self.agent.deadlocks
                self._fail()
        elif not isinstance(effect, Notify):
            raise Violation(f"nobody asked for {effect}")
