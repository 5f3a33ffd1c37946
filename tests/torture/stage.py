"""The stage of one trial: the client under test, others beside it, and what the program believes.

`Stage.me` is the calling thread or greenlet: in it the call under test is made, and disturbed. `other` is one
more client, a thread or a greenlet of its own. All lock ids begin with "t", so one question, `held`, shows
all that anybody has, as the lock table says: `{("me", "a"): "write"}`. A case says what that must be.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import gevent

import locks
from locks.program.default import default_node
from tests.api.clients import KINDS, AnswerWait, Client
from tests.helpers import eventually
from tests.torture.invariants import broken, broken_when_empty

__all__ = ["ROOT_ID", "Held", "Stage", "name_id"]

Held = Mapping[tuple[str, str], str]
ROOT_ID = ("t",)
LIMIT = 5.0
"""Seconds for what should come at once."""


def name_id(name: str) -> tuple[str, ...]:
    """The lock id that a case calls `a`."""
    return (*ROOT_ID, name)


class Stage:
    """What one trial plays on.

    Args:
        kind: What kind of client the others are.

    Attributes:
        agents: The agents that the program under test knows that it has: those that a call returned.
        begun: What the call under test has returned, until then; it takes no memory to put it down here.
        over: Whether the call under test has ended.
        problems: What went wrong, in words.
        keep: What a case wants to find again.
        names: What a case calls a client whose name is not its own choice.
    """

    def __init__(self, kind: str = "threads") -> None:
        self.node = locks.start()
        self.node.thin.pause = 0  # each trial can have thin locks
        self.kind = kind
        self.agents: list[locks.actors.Agent] = []
        self.begun: locks.actors.Agent | None = None
        self.over = False
        self.problems: list[str] = []
        self.keep: dict[str, Any] = {}
        self.names: dict[str, str] = {}
        self._others: dict[str, Client] = {}
        self._polls: list[AnswerWait] = []
        self._waits: list[tuple[AnswerWait, tuple[type[Exception], ...]]] = []
        _name_caller("me")

    def ended(self) -> None:
        """The call under test has ended."""
        self.over = True
        if self.begun is not None:
            self.agents.append(self.begun)

    # --- For the cases --------------------------------------------------------------------------

    def begin(self, *ids: str, mode: str = "write", **options: Any) -> locks.actors.Agent:
        """A transaction of the client under test, that holds some ids."""
        agent = locks.original.spawn_agent(**options)
        self.agents.append(agent)
        for name in ids:
            locks.original.lock(agent, name_id(name), mode, timeout=LIMIT)  # type: ignore[arg-type]
        return agent

    def other(self, *ids: str, name: str = "other", mode: str = "write", **options: Any) -> Client:
        """Another client, with a transaction that holds some ids."""
        client = self._others[name] = KINDS[self.kind](name)
        client.begin(**options)
        for each in ids:
            client.lock(name_id(each), mode).get(LIMIT)
        return client

    def later(self, job: Callable[[], object], name: str = "other") -> None:
        """Another client does this as soon as the client under test waits, or its call is over."""

        def wait_and_do() -> None:
            eventually(lambda: self.over or self._i_wait(), LIMIT)
            job()

        self._polls.append(self._others[name].do(wait_and_do))

    def waiting(
        self, lock_id: str, *expected: type[Exception], name: str = "other", mode: str = "write"
    ) -> None:
        """Another client asks for a lock, and waits; it gets it in the end, or one of these errors."""
        client = self._others[name]
        answer = client.lock(name_id(lock_id), mode)
        self._waits.append((answer, expected))
        eventually(lambda: client.waits(name_id(lock_id)), LIMIT)

    def client(self, name: str = "other") -> Client:
        """One of the others."""
        return self._others[name]

    def forget(self, name: str = "other") -> Client:
        """One of the others, which is not there any more."""
        return self._others.pop(name)

    @property
    def alone(self) -> bool:
        """Whether there are no others."""
        return not self._others

    def _i_wait(self) -> bool:
        waiting = default_node().view(ROOT_ID).waiting
        return any(each.client == "me" for each in waiting)

    # --- What is so -----------------------------------------------------------------------------

    def held(self) -> Held:
        """Who holds what, as the lock table says."""
        found: dict[tuple[str, str], str] = {}
        for holder in locks.holders(ROOT_ID):
            who = self.names.get(holder.client, holder.client)
            key = (who, "/".join(map(str, holder.lock_id[1:])))
            if found.get(key) != "write":
                found[key] = holder.mode
        return found

    def expect(self, what: str, *allowed: Held) -> None:
        """Note a problem unless the table is as the program believes, in one of these ways."""
        eventually(lambda: all(poll.ready for poll in self._polls), LIMIT)
        for poll in self._polls:
            self._collect(poll, ())
        self._polls.clear()
        held = self.held()
        if held not in allowed:
            wanted = " or ".join(map(_show, allowed))
            self.problems.append(f"{what}: held is {_show(held)}, not {wanted}")
        self._add("after it", broken(self.node))
        known = {agent.id for agent in self.agents}
        known |= {client.agent.id for client in self._others.values()}
        known |= {agent.id for agent in self.node.holders.values()}
        if "agent" in self.keep:
            known.add(self.keep["agent"].id)
        if "transaction" in self.keep:
            known.add(self.keep["transaction"].agent.id)
        strangers = [str(ref) for ref in self.node.agents_by_id if ref not in known]
        if strangers:
            self.problems.append(f"{what}: {len(strangers)} transactions that nobody knows of")

    # --- The end --------------------------------------------------------------------------------

    def close(self, finish: Callable[[], object]) -> None:
        """Let everybody do what programs do at the end; then nothing is left, and all goes on."""
        finish()
        for agent in self.agents:
            if agent.is_alive():
                locks.original.end_transaction(agent)
        for answer, expected in self._waits:
            self._collect(answer, expected)
        for client in self._others.values():
            with suppress(locks.TransactionEnded):  # aborted, for a deadlock
                client.call(
                    lambda client=client: client.agent.is_alive() and client.agent.end_transaction()
                )
            client.stop()
        with suppress(AssertionError):  # told below
            eventually(lambda: not self.node.agents_by_id, 1.0)
        self._add("in the end", broken_when_empty(self.node))
        if not self.problems:
            self._use()

    def _use(self) -> None:
        """The node serves on: a transaction on everything, here and elsewhere."""
        with locks.transaction(timeout=LIMIT) as tx:
            tx.lock(ROOT_ID)
        done: list[int] = []

        def use() -> None:
            with locks.transaction(timeout=LIMIT) as tx:
                done.append(tx.lock(ROOT_ID))

        thread = gevent.monkey.get_original("threading", "Thread")(target=use)
        thread.start()
        eventually(lambda: done, LIMIT)
        thread.join()

    def _collect(self, answer: AnswerWait, expected: tuple[type[Exception], ...]) -> None:
        try:
            answer.get(LIMIT)
        except expected:
            pass
        except BaseException as error:
            self.problems.append(f"another client saw {type(error).__name__}: {error}"[:200])

    def _add(self, when: str, problems: list[str]) -> None:
        self.problems += [f"{when}: {problem}" for problem in problems]


def _name_caller(name: str) -> None:
    current = gevent.getcurrent()
    if isinstance(current, gevent.Greenlet):
        current.name = name
    else:
        threading.current_thread().name = name


def _show(held: Held) -> str:
    return ", ".join(f"{who} {mode} {i}" for (who, i), mode in sorted(held.items())) or "nothing"
