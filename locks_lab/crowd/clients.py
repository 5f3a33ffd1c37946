"""The clients of a crowd: they run one transaction after the other, with real agents."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from locks.core.agent.machine import AgentMachine
from locks.core.messages import (
    AgentEffect,
    AnswerWait,
    Ended,
    Lost,
    Notify,
    Surrender,
    ToAgent,
    ToServer,
)
from locks.errors import DeadlockAborted, assert_never
from locks.model import AgentId, LockId, Mode
from locks_lab.crowd.links import Mail
from locks_lab.crowd.machines import Program, Send, Time
from locks_lab.crowd.measures import Measures
from locks_lab.crowd.rules import CrowdRule
from locks_lab.crowd.shape import Shape

__all__ = ["ATTEMPTS", "Client"]

SERIALS = 1 << 12  # of agents made within a microsecond
ATTEMPTS = 2  # as in `locks.retries`, which the simulator does not import


class Step(NamedTuple):
    """One request of a transaction.

    Attributes:
        ids: The locks that it is for.
        work: How long the client works when it holds them, in seconds.
        tries: Whether it is withdrawn if it has to wait.
    """

    ids: tuple[LockId, ...]
    work: float = 0.0
    tries: bool = False


class Client:
    """A client of a program.

    Args:
        number: Its number, from 1.
        shape: The parameters of the crowd.
        program: The program to which it belongs.
        rule: The machine of its agents.
        time: The clock.
        send: Sends a message.
        measures: Records its actions.
        chance: Draws its locks.

    Attributes:
        finished: Whether it has run all its transactions.
    """

    def __init__(
        self,
        number: int,
        shape: Shape,
        program: Program,
        rule: CrowdRule,
        time: Time,
        send: Send,
        measures: Measures,
        chance: random.Random,
    ) -> None:
        self.number = number
        self.program = program
        self.finished = False
        self._shape = shape
        self._rule = rule
        self._time = time
        self._send = send
        self._measures = measures
        self._random = chance
        place = (number - 1) // shape.programs  # among the clients of its program
        of_program = -(-shape.clients // shape.programs)
        self._mode: Mode = "read" if place < shape.reads * of_program else "write"
        self._round = 0
        self._made = 0
        self._created = 0
        self._learned: tuple[LockId, ...] = ()
        self._attempts = 0  # left to take all that it has learned together
        self._steps: list[Step] = []
        self._at = 0
        self._waits = False
        self._wait = 0  # the number of its last wait
        self._agent: AgentMachine

    @property
    def home(self) -> str:
        """The name of its program."""
        return self.program.name

    def begin(self) -> None:
        """Begin the next transaction."""
        self._round += 1
        self._created = int(self._time.now * 1e6) * SERIALS
        self._learned = ()
        self._plan = self._draw()
        self._run()

    def _draw(self) -> Sequence[tuple[LockId, ...]]:
        """The lock requests of a transaction."""
        shape = self._shape
        names = [(f"lock{number}",) for number in range(1, shape.locks + 1)]
        picked: list[LockId] = sorted(self._random.sample(names, min(shape.pick, shape.locks)))
        match shape.order:
            case "sorted":
                pass
            case "opposite":
                if self.number % 2 == 0:
                    picked.reverse()
            case "random":
                self._random.shuffle(picked)
            case "together":
                return [tuple(picked)]
            case _:
                assert_never(shape.order)
        return [(each,) for each in picked]

    def _run(self) -> None:
        """Run the transaction, for the first time or again."""
        self._made += 1
        serial = (self.number + self._made * self._shape.clients) % SERIALS
        ref = AgentId(self._created, self.program.name, serial)
        aborts = self._shape.on_deadlock == "abort"
        self._agent = self._rule.machines.agent(
            ref,
            f"client-{self.number}",
            self.program.alive,
            abort_on_deadlock=aborts,
            await_nodes=True,
        )
        self.program.members[ref] = self
        shape = self._shape
        self._steps = [Step(each, shape.between) for each in self._plan]
        self._attempts = ATTEMPTS
        if self._learned and shape.learn == "free":
            self._steps.insert(0, Step(self._learned, tries=True))
        else:
            self._steps[:0] = [Step((each,)) for each in self._learned]
        self._at = 0
        self._ask()

    def _ask(self) -> None:
        shape = self._shape
        ids = self._steps[self._at].ids
        self._measures.asks(self, ids)
        self._waits = True
        wanted = [(each, self._mode, shape.nodes, shape.require) for each in ids]
        queued: tuple[LockId, ...] = ()
        if self._rule.lines:
            queued = self.program.lines.join_lines(self._agent, wanted)
            if self._steps[self._at].tries:
                queued = ids
        self._wait += 1
        self._perform(self._agent.ask_all(wanted, self._wait, queued))

    def _go_on(self, at: int, made: int) -> None:
        """Continue after the work that follows a lock, unless the transaction was aborted meanwhile."""
        if made != self._made or at != self._at:
            return
        if at < len(self._steps):
            self._ask()
            return
        self._measures.ends(self)
        self._perform(self._agent.end_transaction())

    def _missed(self) -> None:
        """An attempt to take all that it has learned has failed: wait for a lock that is not free.

        This is the rule of `locks.retries.Learned`.
        """
        agent, at = self._agent, self._at
        free = self._learned[0]  # if all are held, but a surrender is not answered yet
        missing = next((each for each in self._learned if not agent.holds(each)), free)
        waited = self._steps[at - 1].ids if at else ()
        self._waits = False
        left = [each for each in self._learned if each != missing or not self._attempts]
        self._measures.misses(self, agent.id, tuple(left))
        attempt = self._wait
        if self._attempts:
            self._wait += 1
            wanted = ((missing, self._mode, self._shape.nodes, self._shape.require),)
            self._perform(agent.ask_all(wanted, self._wait))
        self._perform(agent.abandon_wait(attempt))
        for each in waited:
            if each != missing or not self._attempts:
                self._perform(agent.unlock(each))
        self._at = 0
        if self._attempts:
            self._attempts -= 1
            self._steps[: at + 1] = [Step((missing,)), Step(self._learned, tries=True)]
            self._measures.asks(self, (missing,))
            self._waits = True
        else:
            self._steps[: at + 1] = [Step((each,)) for each in self._learned]
            self._ask()

    def _granted(self) -> None:
        work = self._steps[self._at].work
        self._waits = False
        self._at += 1
        so_far = dict.fromkeys(each for step in self._steps[: self._at] for each in step.ids)
        self._measures.has(self, self._agent.id, tuple(so_far), self._mode)
        if self._at == len(self._steps):
            work = self._shape.hold
        at, made = self._at, self._made
        self._time.at(self._time.now + work, self.program.call, lambda: self._go_on(at, made))

    # --- Events and effects of its agent

    def receive(self, message: Any) -> bool:
        """Its agent handles a message; returns whether `settle` must follow."""
        self._perform(self._agent.receive(message))
        return self._agent.unsettled

    def settle(self) -> None:
        """Its agent examines what it knows."""
        self._perform(self._agent.settle())

    def sees(self, node: str, up: bool) -> None:
        """Its program notices that a lock server is up or down."""
        agent = self._agent
        self._perform(agent.node_up(node) if up else agent.node_down(node))

    def _perform(self, effects: Iterable[AgentEffect]) -> None:
        home = self.home
        agent = self._agent.id
        for effect in effects:
            if isinstance(effect, ToServer):
                if isinstance(effect.message, Surrender):
                    self._measures.gives_up(self, effect.message)
                self._send(home, effect.node, Mail(agent, effect.message))
            elif isinstance(effect, ToAgent):
                self._send(home, effect.agent.node, Mail(effect.agent, effect.message))
            elif isinstance(effect, AnswerWait):
                if not isinstance(effect.result, Exception):
                    self._granted()
            elif isinstance(effect, Ended):
                self._ended(effect.reason)
            elif isinstance(effect, Lost):
                self._measures.loses(self, effect.lock_ids)
            elif isinstance(effect, Notify):
                pass
            else:
                assert_never(effect)
        if (
            self._waits
            and self._steps[self._at].tries
            and self._agent.id == agent
            and self._agent.is_answered(self._wait)
        ):
            self._missed()

    def _ended(self, reason: Exception | None) -> None:
        """Its transaction is over, or has to run again."""
        self.program.members.pop(self._agent.id, None)
        self.program.lines.leave_lines(self._agent.id)
        if reason is None:
            if self._round < self._shape.rounds:
                self._time.at(self._time.now + self._shape.think, self.program.call, self.begin)
            else:
                self.finished = True
            return
        self._waits = False
        self._measures.aborts(self, self._agent.id, isinstance(reason, DeadlockAborted))
        self._made += 1  # work that is under way is of no use
        if self._shape.learn != "no":
            wanted = {each for step in self._steps[: self._at + 1] for each in step.ids}
            self._learned = tuple(sorted({*self._learned, *wanted}))
        self.program.call(self._run)
