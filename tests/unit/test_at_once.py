"""A request is made by a call of the own lock server, or by a message; all is the same.

`AgentMachine.asks_alone` says when a call may be made; `ServerMachine.request` takes it in, as it does with a message, and
`AgentMachine.ask_told` takes in what was told. Two worlds do the same, one by calls wherever they can be made, the other by messages alone.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locks.core.agent.machine import AgentMachine
from locks.core.messages import Refused, Request, ToAgent, ToServer, Watch
from locks.core.server.machine import ServerMachine
from locks.errors import LocksError
from locks.model import AgentId
from locks_lab.explorer.freezing import UNORDERED, freeze

HERE, THERE = "a@h", "b@h"
IDS = [("a",), ("a", "b"), ("a", "c"), ("d",), ("e", ("$units", 2))]

agents = st.integers(0, 2)
ids = st.sampled_from(IDS)
modes = st.sampled_from(["read", "write"])
nodes = st.sampled_from([(HERE,), (HERE,), (HERE,), (THERE,), (HERE, THERE)])
steps = st.one_of(
    st.tuples(st.just("ask"), agents, ids, modes, nodes),
    st.tuples(st.just("ask"), agents, ids, modes, st.just((HERE,))),
    st.tuples(st.just("ask_nowait"), agents, ids, modes, nodes),
    st.tuples(st.just("unlock"), agents, ids),
    st.tuples(st.just("abandon"), agents),
    st.tuples(st.just("notify"), agents),
    st.tuples(st.just("watch"), ids),
    st.tuples(st.just("end_transaction"), agents),
    st.tuples(st.just("peer"), agents, st.sampled_from(["node_up", "node_down"])),
)


class World:
    """Two lock servers, and agents of the first one's node; what is sent arrives at once, in order."""

    def __init__(self, by_calls: bool) -> None:
        self.by_calls = by_calls
        self.used: Counter[str] = Counter()  # how often a call was made, by the state of the record
        self.servers = {node: ServerMachine(node) for node in (HERE, THERE)}
        self.agents: list[AgentMachine] = []
        self.said: list[Any] = []  # what clients and watchers are told
        self.calls: list[str] = ["", "", ""]
        self.number = 0
        self._queue: deque[Any] = deque()
        for i in range(3):
            self.agents.append(self._begin(i))

    def _begin(self, i: int) -> AgentMachine:
        self.number += 1
        agent = AgentId(self.number, HERE, self.number)
        return AgentMachine(agent, f"client {i}", (HERE, THERE), bool(i % 2))

    def do(self, step: tuple[Any, ...]) -> None:
        """Carry a step out, and all that follows from it."""
        what, *args = step
        if what == "watch":
            self._perform(self.servers[HERE].handle(Watch("watcher", args[0])))
        else:
            i = args[0]
            if self.agents[i].ended is not None:
                self.agents[i] = self._begin(i)
            try:
                self._perform(self._event(self.agents[i], i, what, args[1:]))
            except LocksError as error:
                self.said.append(str(error))
        self._deliver()

    def _event(self, agent: AgentMachine, i: int, what: str, args: list[Any]) -> list[Any]:
        if what in ("ask", "ask_nowait"):
            objects = [(*args, "all")]
            if what == "ask_nowait":
                return agent.ask_all(objects)
            self.number += 1
            self.calls[i] = f"call {self.number}"
            return self._ask(agent, objects, self.calls[i])
        if what == "abandon":
            return agent.abandon_wait(self.calls[i])
        if what == "notify":
            return agent.set_flag("notify", not agent.notify)
        if what == "peer":
            return list(getattr(agent, args[0])(THERE))
        return list(getattr(agent, what)(*args))

    def _ask(self, agent: AgentMachine, objects: list[Any], call: str) -> list[Any]:
        alone = agent.asks_alone(objects)
        lock_id, mode = objects[0][:2]
        if self.by_calls and alone:
            server = self.servers[HERE]
            told, others = server.request(agent.id, agent.client, lock_id, mode)
            assert not isinstance(told, Refused)
            state = told[0].state
            self.used[state if len(told) == 1 else f"{state} in a circle"] += 1
            effects = agent.ask_told(objects[0], told, call)
            self._perform(others)
            return effects
        effects = agent.ask_all(objects, call)
        if alone:
            request = Request(agent.id, agent.client, lock_id, mode, False, False)
            assert effects == [ToServer(HERE, request)]
        return effects

    def _perform(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, (ToServer, ToAgent)):
                self._queue.append(effect)
            else:
                self.said.append(effect)

    def _deliver(self) -> None:
        while True:
            while self._queue:
                effect = self._queue.popleft()
                if isinstance(effect, ToServer):
                    self._perform(self.servers[effect.node].handle(effect.message))
                for agent in self.agents:
                    if isinstance(effect, ToAgent) and agent.id == effect.agent:
                        self._perform(agent.receive(effect.message))
            unsettled = [agent for agent in self.agents if agent.unsettled]
            if not unsettled:
                return
            self._perform(unsettled[0].settle())

    def state(self) -> Any:
        """All that may matter later."""
        last = [agent._waits._answered for agent in self.agents]
        return (
            [repr(a.ended) if a.ended else freeze(a, UNORDERED, {}) for a in self.agents],
            [each and (each[0], list(each[1])) for each in last],
            [server.view(lock_id) for server in self.servers.values() for lock_id in IDS],
            [server.statistics() for server in self.servers.values()],
        )


@pytest.mark.slow
@settings(max_examples=150)
@given(st.lists(steps, max_size=25))
def test_a_call_leads_to_the_same_place_as_messages(script: list[Any]) -> None:
    """After each step all machines are the same, and clients and watchers were told the same."""
    messages, calls = World(by_calls=False), World(by_calls=True)
    for step in script:
        messages.do(step)
        calls.do(step)
        assert calls.state() == messages.state()
        assert sorted(map(repr, calls.said)) == sorted(map(repr, messages.said))


def test_when_a_call_is_made() -> None:
    """For one lock of the own node, whoever has it, by an agent that waits for nothing; not while anything else is under way."""
    world = World(by_calls=True)

    def ask(agent: int, lock_id: Any, node: str = HERE, mode: str = "read") -> str | None:
        before = world.used.copy()
        world.do(("ask", agent, lock_id, mode, (node,)))
        return next(iter(world.used - before), None)

    assert ask(0, ("a", "b")) == "granted"
    assert ask(0, ("d",)) == "granted"
    assert ask(1, ("a", "b")) == "granted"  # both read
    assert ask(1, ("a", "c")) == "granted"
    assert ask(1, ("a",)) == "granted"
    assert not ask(0, ("e", ("$units", 2)))
    assert not ask(2, ("d",), THERE)
    assert not ask(2, ("f",))
    world.do(("end_transaction", 2))
    assert ask(2, ("f",)) == "granted"
    assert ask(2, ("d",), mode="write") == "waiting"
    assert not ask(2, ("g",))
