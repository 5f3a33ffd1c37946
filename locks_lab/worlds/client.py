"""Simulated clients: they carry out scripts, with one agent after the other (`locks_lab.worlds.host`).

A `ScriptedClient` does not know the world around it: it puts messages into its host's `out`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Literal, NamedTuple

from locks.core.agent.machine import AgentMachine
from locks.core.messages import AgentMessage, AnswerWait, Ended, Lost, Notify, Remove
from locks.errors import (
    CannotServe,
    DeadlockAborted,
    InvalidOption,
    LockLost,
    NotHeld,
    TransactionEnded,
    assert_never,
)
from locks.model import SERIAL_BITS, SERIAL_MASK, AgentId, Deadlock, LockId, Mode
from locks_lab.worlds.host import ClientEffect, Host, Violation
from locks_lab.worlds.rules import OURS, Rule
from locks_lab.worlds.script import Script, Step

__all__ = ["SERIALS", "Fate", "ScriptedClient", "TokenKey", "key_of"]

Fate = Literal["ends", "crashes"]

SERIALS = 1000  # the serial numbers of a client's agents are equal modulo this


class TokenKey(NamedTuple):
    """The lock of a fencing token.

    Attributes:
        lock_id: The lock.
        nodes: The nodes that were asked for it, in order of their names.
        mode: The mode of the lock.
        agent: The agent that holds it.
        confirmed: The nodes that have certainly confirmed it. It is empty if a majority of the
            nodes is enough.
        unit: The unit of a counted lock; tokens of other units do not matter to it.
    """

    lock_id: LockId
    nodes: tuple[str, ...]
    mode: Mode
    agent: AgentId
    confirmed: tuple[str, ...]
    unit: int | None = None

    def is_ordered_with(self, other: TokenKey) -> bool:
        """Whether two tokens are sure to have been confirmed by a node in common."""
        if self.lock_id == other.lock_id and self.unit != other.unit:
            return False
        if self.confirmed and other.confirmed:
            return not set(self.confirmed).isdisjoint(other.confirmed)
        sure = self.confirmed or other.confirmed or self.nodes
        return self.nodes == other.nodes == sure


def key_of(agent: AgentMachine, lock_id: LockId) -> TokenKey | None:
    """The key of an agent's fencing token for a lock; `None` if it does not hold the lock any more."""
    info = next((info for info in agent.lock_info() if info.lock_id == lock_id), None)
    if info is None or agent.ended is not None:
        return None
    nodes = tuple(sorted(info.nodes))
    confirmed = {"all": nodes, "all_alive": tuple(sorted(info.granted))}.get(info.require, ())
    return TokenKey(lock_id, nodes, info.mode, agent.id, confirmed, agent.unit(lock_id))


class ScriptedClient:
    """A client: carries out a script, begins again after an abort, and ends.

    Args:
        number: Its number, from 1. Its first agent is older than those of clients with larger
            numbers.
        script: Its script.
        nodes: The nodes.
        home: The node where it lives; by default the first one of `nodes`.
        clock: Returns the creation time of its next agent. Without it, agents of the same
            generation have the order of their clients.
        rule: The machine of its agents.
        unlinked: The nodes with which its own node is never connected.
        options: Options of its agents.

    Attributes:
        waiting: Whether it waits, and whether it may give up waiting.
        finished: Whether its script has ended, or it has died.
        failed: Whether it has ended because nodes were down.
        aborts: How many of its transactions were aborted.
        reports: The deadlocks of which its ended transactions were notified.
        tokens: The fencing tokens that it has got; the last one for each lock.
        fresh: The token that it has just got; its reader clears it.
        gone: The locks of whose loss it was just notified; their reader clears them.
    """

    def __init__(
        self,
        number: int,
        script: Script,
        nodes: Iterable[str],
        home: str | None = None,
        clock: Callable[[], int] | None = None,
        rule: Rule = OURS,
        unlinked: Collection[str] = (),
        **options: Any,
    ) -> None:
        self.number = number
        self.script = script
        self.nodes = tuple(nodes)
        self.home = home or self.nodes[0]
        self.alive = {node for node in self.nodes if node not in unlinked}  # as its node sees them
        self.clock = clock
        self.rule = rule
        self.options = options
        self.generation = -1
        self.aborts = 0
        self.reports: list[Deadlock] = []
        self.tokens: dict[TokenKey, int] = {}
        self.fresh: TokenKey | None = None
        self.gone: tuple[LockId, ...] = ()
        self.finished = False
        self.failed = False
        self.wants: LockId = ()
        self.first = 0
        self.host: Host
        self._begin()

    def _begin(self) -> None:
        """Begin a transaction: the one at `first` in the script."""
        self.generation += 1
        created = self.clock() if self.clock else (self.generation + 1) * SERIALS + self.number
        serial = self.number + SERIALS * self.generation
        if self.rule.thin is not None:  # the number has all, as in the product
            created = created << SERIAL_BITS | (self.number + SERIALS * (self.generation % 4))
            serial = created & SERIAL_MASK
        ref = AgentId(created, self.home, serial)
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
        """The locks of whose grants it was notified, by node and id."""
        return self.host.told

    @property
    def seen(self) -> ScriptedClient:
        """The client to be looked at, with what was left out."""
        return self

    def inflate(self) -> None:
        """Its agent takes in what was left out, before anything else happens; see `locks_lab.worlds.remote`."""

    # --- Events

    @property
    def ready(self) -> bool:
        """Whether it can take its next step."""
        return self.waiting == "no" and not self.finished

    @property
    def next_step(self) -> Step | None:
        """Its next step; `None` if the next step is to end."""
        return self.script[self.at] if self.at < len(self.script) else None

    def step(self) -> None:
        """Take the next step."""
        step = self.next_step
        if step is None:
            self._end()
            return
        self.at += 1
        try:
            self._take(step)
        except CannotServe:
            self._fail()

    def receive(self, message: AgentMessage) -> None:
        """Take in a message to its agent."""
        self.inflate()
        self.host.receive(message)

    def settle(self) -> None:
        """Its agent examines what it knows."""
        self.inflate()
        self.host.settle()

    def time_out(self) -> None:
        """Give up waiting."""
        self.inflate()
        self.waiting = "no"
        self.host.perform(self.agent.abandon_wait(self.number))

    def node_up(self, node: str) -> None:
        """Its node sees another one again."""
        self.inflate()
        self.alive.add(node)
        if not self.finished:
            self.host.node_up(node)

    def peer(self, node: str, there: bool) -> None:
        """Its node notices that a node without a lock server is up or down."""
        self.inflate()
        if not self.finished:
            (self.host.peer_up if there else self.host.peer_down)(node)

    def node_down(self, node: str) -> None:
        """Its node has lost another one."""
        self.inflate()
        self.alive.discard(node)
        if not self.finished:
            self.host.node_down(node)

    def die(self, fate: Fate) -> None:
        """It ends at once, or its agent crashes. Lock servers notice a crash, but nobody else does."""
        self.inflate()
        self._forget()
        if fate == "ends":
            self.host.perform(self.agent.end_transaction(TransactionEnded("died", agent=self.ref)))
        else:
            self.host.out += [(self.ref, node, Remove(self.ref)) for node in self.nodes]
        self.finished = True
        self.waiting = "no"

    def vanish(self) -> None:
        """Its node has crashed."""
        self._forget()
        self.host.out.clear()
        self.finished = True
        self.waiting = "no"

    # --- Steps

    def _take(self, step: Step) -> None:
        match step.kind:
            case "lock":
                self.waiting = "yes"
                self._ask(step, self.number)
            case "try":
                self.waiting = "for a while"
                self._ask(step, self.number)
            case "ask":
                self._ask(step)
            case "await":
                self._await()
            case "token":
                self._ask_token(step.lock_id)
            case "unlock":
                self._unlock(step.lock_id)
            case "surrender":
                self._surrender(step.lock_id)
            case "again":
                self._end()
                self.finished = False
                self.first = self.at
                self._begin()
            case _:
                assert_never(step.kind)

    def _ask(self, step: Step, wait: int | None = None) -> None:
        nodes = step.nodes or (self.home if self.home in self.nodes else self.nodes[0],)
        self.host.perform(self.agent.ask(step.lock_id, step.mode, nodes, step.require, wait))

    def _await(self) -> None:
        self.waiting = "yes"
        self.host.perform(self.agent.await_all(self.number))

    def _ask_token(self, lock_id: LockId) -> None:
        try:
            token = self.agent.token(lock_id)
        except (NotHeld, LockLost, InvalidOption):
            return  # it has none
        if token is not None:
            self._gets_token(lock_id, token)
        else:
            self.waiting = "yes"
            self.wants = lock_id
            self.host.perform(self.agent.establish_token(lock_id, self.number))

    def _unlock(self, lock_id: LockId) -> None:
        if self.agent.asks_for(lock_id):
            self.host.let_go(lock_id)
            self.host.perform(self.agent.unlock(lock_id))

    def _surrender(self, lock_id: LockId) -> None:
        for info in self.agent.lock_info():
            if info.lock_id == lock_id and set(info.granted) == set(info.nodes):
                self.host.perform(self.agent.surrender(lock_id, self.ref, info.nodes))
                self._await()

    def _end(self) -> None:
        self._forget()
        self.finished = True
        self.reports += self.agent.deadlocks
        self.host.perform(self.agent.end_transaction())

    def _fail(self) -> None:
        """Nodes that it needs are down, and it does not wait for them."""
        self.failed = True
        if not self.agent.ended:
            self._end()
        self._forget()
        self.finished = True

    def _forget(self) -> None:
        """Forget all its locks."""
        for kept in (self.told, self.host.had, self.host.lost):
            kept.clear()

    def _gets_token(self, lock_id: LockId, token: int) -> None:
        key = key_of(self.agent, lock_id)
        assert key is not None
        self.tokens[key] = token
        self.fresh = key

    # --- Effects of its agent

    def _effect(self, host: Host, effect: ClientEffect) -> None:
        match effect:
            case AnswerWait():
                self._answered(host, effect)
            case Ended():
                self._ended(effect.reason)
            case Lost():
                self.gone = effect.lock_ids
            case Notify():
                pass
            case _:
                assert_never(effect)

    def _answered(self, host: Host, answer: AnswerWait) -> None:
        if self.waiting == "no" or answer.wait != self.number:
            raise Violation(f"client {self.number} is answered, and does not wait")
        self.waiting = "no"
        if isinstance(answer.result, int):
            self._gets_token(self.wants, answer.result)
        elif not isinstance(answer.result, Exception):
            host.has_all()

    def _ended(self, reason: Exception | None) -> None:
        """Its agent has ended, perhaps without its wish."""
        if isinstance(reason, DeadlockAborted):
            self.reports += self.agent.deadlocks
            self.aborts += 1
            self._begin()
        elif isinstance(reason, (CannotServe, LockLost)):
            self.reports += self.agent.deadlocks
            self._fail()
