"""Clients whose transaction is thin at the lock server of another node, by the product's rule (`locks.core.thin.Remote`).

A world with several nodes has them under the rule `thin`. A client takes steps without its agent as `locks.node.client.thin` does: locks
on one other node, the token of one, and the end. A grant of what it has requested is taken in likewise. Before anything else happens to
it, it is *inflated*: its agent takes in what was left out.
"""

from __future__ import annotations

import copy
from typing import Any

from locks.core.agent.machine import Object
from locks.core.messages import AgentMessage, AnswerWait
from locks.core.thin import Remote
from locks_lab.worlds.client import ScriptedClient, TokenKey
from locks_lab.worlds.host import Had, Host, Violation
from locks_lab.worlds.script import Step
from locks_lab.worlds.thin import Holder

__all__ = ["RemoteClient"]


class RemoteClient(ScriptedClient):
    """A client with thin transactions.

    Attributes:
        whole: Whether its present transaction is not thin, and never will be.
        remote: What it has at a lock server while it is thin; `None` if it has requested nothing.
        undo: Set if it may be interrupted before it receives the answer to its last wait: what its agent would withdraw then.
    """

    def _begin(self) -> None:
        super()._begin()
        self.whole = bool(self.options)
        self.remote: Remote | None = None
        self.undo: Any = None

    # --- Inflation

    @property
    def seen(self) -> ScriptedClient:
        """The same client as if it had never been thin, to be looked at."""
        if self.whole or self.finished:
            return self
        found = copy.copy(self)
        found.host = Host(self.rule.agent(self.ref, self.agent.client, self.alive), found._effect)
        found.host.told, found.host.had = dict(self.told), dict(self.host.had)
        found.inflate()
        return found

    def inflate(self, sent: bool = True) -> None:
        """Its agent takes in what was left out.

        Args:
            sent: Whether the request that is not answered was surely sent.
        """
        remote, self.remote, self.whole = self.remote, None, True
        told, waiting, undo = self.told, self.waiting, self.undo
        for event, args in () if remote is None else remote.steps(self.agent, sent):
            self.waiting = "yes"
            self.host.perform(event(*args))
        self.waiting = waiting
        self.undo = undo and self._last_undo()
        if self.told != told:
            raise Violation(f"{self.agent.client} had {told}, and has {self.told}")

    # --- Events

    @property
    def may_be_interrupted(self) -> bool:
        """Whether its next step may be interrupted, so that it does not know whether its request was sent."""
        step = self.next_step
        return self.ready and step is not None and self._asked_by(step) is not None

    def interrupted(self, sent: bool) -> None:
        """Take the next step, which is interrupted before or after its request is sent; then it is sent for sure."""
        self.step()
        if not sent:
            self.host.out.pop()
        self.inflate(sent=False)

    def step(self) -> None:
        """Take the next step, thin if it may."""
        self.undo = None
        if self.whole or not self._step():
            self.inflate()
            super().step()

    def _step(self) -> bool:
        """Take the next step without the agent; returns whether it has."""
        step, remote = self.next_step, self.remote
        if step is None or step.kind == "again":
            if remote is not None:
                message = remote.end(self.ref)
                if message is None:
                    return False
                self.host.out.append((self.ref, remote.node, message))
            super().step()
            return True
        if step.kind == "token":
            return self._token(step)
        wanted = self._asked_by(step)
        if wanted is None:
            return False
        self.at += 1
        self.waiting = "yes" if step.kind == "lock" else "for a while"
        remote = remote or self.rule.remote(wanted[2][0])  # type: ignore[misc]
        self.remote, request = remote.ask(Holder(self), wanted, self.number)
        self.host.out.append((self.ref, remote.node, request))
        return True

    def _asked_by(self, step: Step) -> Object | None:
        """What a step requests, if it may do so without the agent."""
        nodes = step.nodes or (self.home if self.home in self.nodes else self.nodes[0],)
        wanted = (step.lock_id, step.mode, nodes, step.require)
        if self.whole or step.kind not in ("lock", "try") or type(step.lock_id[-1]) is tuple:
            return None
        if len(nodes) != 1 or nodes == (self.home,) or nodes[0] not in self.alive:
            return None
        return wanted if self.remote is None or self.remote.may_ask(wanted) else None

    def _token(self, step: Step) -> bool:
        """It was told the token with the grant."""
        for (lock_id, mode, nodes, _), record, _ in () if self.remote is None else self.remote.held:
            if lock_id == step.lock_id:
                self.at += 1
                self.fresh = TokenKey(lock_id, nodes, mode, self.ref, nodes)
                self.tokens[self.fresh] = record.since
                return True
        return False

    def receive(self, message: AgentMessage) -> None:
        """Take in a message to its agent, thin if that only grants what is requested."""
        if self.remote is not None:
            speaker = getattr(message, "node", "")
            after = self.remote.granted(speaker, self.ref, message)
            if after is not None:
                self._granted(self.remote, after)
                return
        super().receive(message)

    def _granted(self, before: Remote, after: Remote) -> None:
        """It has what it asked for."""
        assert before.asked is not None
        lock_id, mode, nodes, require = before.asked[0]
        self.remote, self.undo = after, self.waiting == "for a while" or None
        self.waiting = "no"
        self.host.had[lock_id] = Had(mode, nodes, require)
        self.host.told = {**self.told, (nodes[0], lock_id): mode}

    def withdraw(self) -> None:
        """Give up its last wait, whose answer it did not receive."""
        self.inflate()
        self.undo = None
        self.host.perform(self.agent.abandon_wait(self.number))
        self.host.withdrawn()

    def _answered(self, host: Host, answer: AnswerWait) -> None:
        may_give_up = self.waiting == "for a while"
        super()._answered(host, answer)
        self.undo = self._last_undo() if may_give_up else None

    def _last_undo(self) -> Any:
        answered = self.agent._waits._answered
        return answered and tuple(answered[1])
