"""A lock that is free is granted without messages, and who has no other waits without: all is as it would be with them.

`AgentMachine.asks_for_one` with `ServerMachine.is_free` or `told_alone` say when; `ServerMachine.grant` or `take_in`, and `AgentMachine.ask_answered`,
do it. Two worlds do the same, one with the short way wherever it can be had, the other with messages alone.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from locks.core.agent.machine import AgentMachine
from locks.core.agent.requests import Undo
from locks.core.messages import Request, ToAgent, ToServer, Watch
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
    st.tuples(st.just("end"), agents),
    st.tuples(st.just("peer"), agents, st.sampled_from(["node_up", "node_down"])),
)


class World:
    """Two lock servers, and agents of the first one's node; what is sent arrives at once, in order."""

    def __init__(self, short: bool) -> None:
        self.short = short
        self.used: Counter[str] = (
            Counter()
        )  # how often the short way was taken, by the state of the record
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
            return agent.abandon(self.calls[i])
        if what == "notify":
            return agent.set_flag("notify", not agent.notify)
        if what == "peer":
            return list(getattr(agent, args[0])(THERE))
        return list(getattr(agent, what)(*args))

    def _ask(self, agent: AgentMachine, objects: list[Any], call: str) -> list[Any]:
        server = self.servers[HERE]
        alone = agent.asks_for_one(objects)
        lock_id, mode = objects[0][:2]
        free = alone and server.is_free(lock_id)
        if self.short and (free or (alone and server.told_alone(agent.id))):
            take_in = server.grant if free else server.take_in
            record, others = take_in(agent.id, agent.client, lock_id, mode)
            self.used[record.state] += 1
            self._perform(others)
            return agent.ask_answered(objects[0], record, call)
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
            [
                each and (each[0], [*each[1], *([] if each[2] is None else [Undo(each[2])])])
                for each in last
            ],
            [server.view(lock_id) for server in self.servers.values() for lock_id in IDS],
            [server.statistics() for server in self.servers.values()],
        )


@settings(max_examples=150)
@given(st.lists(steps, max_size=25))
def test_the_short_way_leads_to_the_same_place(script: list[Any]) -> None:
    """After each step all machines are the same, and clients and watchers were told the same."""
    long, short = World(short=False), World(short=True)
    for step in script:
        long.do(step)
        short.do(step)
        assert short.state() == long.state()
        assert sorted(map(repr, short.said)) == sorted(map(repr, long.said))


def test_the_short_way_is_taken() -> None:
    """Of a lock that is free, or of an agent that has no other; not while anything else is under way."""
    world = World(short=True)

    def ask(agent: int, lock_id: Any, node: str = HERE, mode: str = "read") -> str | None:
        before = world.used.copy()
        world.do(("ask", agent, lock_id, mode, (node,)))
        return next(iter(world.used - before), None)

    assert ask(0, ("a", "b")) == "granted"
    assert ask(0, ("d",)) == "granted"
    assert ask(1, ("a", "b")) == "granted"  # both read
    assert ask(1, ("a", "c")) == "granted"
    assert not ask(1, ("a",))  # it is not free, and whoever has other locks may close a circle
    assert not ask(0, ("e", ("$units", 2)))
    assert not ask(2, ("d",), THERE)
    assert not ask(2, ("f",))
    world.do(("end", 2))
    assert ask(2, ("f",)) == "granted"
    world.do(("end", 2))
    assert ask(2, ("d",), mode="write") == "waiting"
    assert not ask(2, ("f",))


def test_what_was_granted_at_once_is_withdrawn_like_all_else() -> None:
    """Who was interrupted before it knew the answer gives it up."""
    world = World(short=True)
    world.do(("ask", 0, ("a",), "write", (HERE,)))
    assert world.used == {"granted": 1}
    world.do(("abandon", 0))
    assert not world.agents[0].asks_for(("a",))
    assert not world.servers[HERE].numbers(())


def test_what_is_not_one_lock_alone() -> None:
    """Several locks, or one that was asked for before, have to be asked for as ever."""
    agent = AgentMachine(AgentId(1, HERE, 1), "client", (HERE,))
    one: Any = (("a",), "read", (HERE,), "all")
    assert agent.asks_for_one([one])
    assert not agent.asks_for_one([one, one])
    agent.ask_all([one])
    assert not agent.asks_for_one([one])
