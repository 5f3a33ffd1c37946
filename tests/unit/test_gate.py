"""Those who want a majority queue at one of its nodes first (decision 0040)."""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from typing import Any

import pytest

from locks.core.agent.machine import AgentMachine
from locks.core.messages import AnswerWait, Surrender, ToAgent, ToServer
from locks.core.server.machine import ServerMachine
from locks.model import AgentId
from tests.unit.net import ALL, N1, N2, N3, A, Net


def held_and_waiting(**options: bool) -> tuple[Net, AgentMachine, AgentMachine]:
    """One has A on all three nodes, another one waits for it."""
    net = Net(*ALL)
    holder, waiter = net.agent(**options), net.agent(**options)
    net.do(holder, holder.ask(A, "write", ALL, "majority", "holder"))
    net.do(waiter, waiter.ask(A, "write", ALL, "majority", "waiter"))
    return net, holder, waiter


def queue(net: Net, node: str) -> list[AgentId]:
    """Who has or wants A on a node."""
    return [request.agent for request in net.servers[node].view(A).requests]


def test_who_waits_stands_at_the_gate_alone() -> None:
    """The other nodes do not know of it, until the gate grants it; then it asks them again."""
    net, holder, waiter = held_and_waiting()
    assert [queue(net, node) for node in ALL] == [[holder.id, waiter.id], [holder.id], [holder.id]]
    net.do(holder, holder.end())
    assert [queue(net, node) for node in ALL] == [[waiter.id]] * 3
    assert net.answers["waiter"].status == "have_all_locks"


def test_nobody_overtakes_by_the_other_nodes() -> None:
    """A majority without the gate is not enough: the first in its queue is the next one."""
    net, holder, waiter = held_and_waiting()
    late = net.agent()
    gate, *others = late.ask(A, "write", ALL, "majority", "late")
    left = {effect.node: effect for effect in holder.end() if isinstance(effect, ToServer)}
    net.do(holder, [left[N2], left[N3]])
    net.do(late, others)
    assert [info.granted for info in late.lock_info()] == [(N2, N3)]
    assert "late" not in net.answers
    net.do(late, [gate])
    net.do(holder, [left[N1]])
    assert "waiter" in net.answers
    assert "late" not in net.answers
    net.do(waiter, waiter.end())
    assert "late" in net.answers
    assert not [each for each in net.sent if isinstance(each, Surrender)]


def test_the_next_node_is_the_gate_if_the_first_one_is_lost() -> None:
    """What is held stays so; who waits does so at the next node. The first one may come back."""
    net, holder, waiter = held_and_waiting()
    net.down(N1)
    assert holder.holds(A)
    assert queue(net, N2) == [holder.id, waiter.id]
    assert queue(net, N3) == [holder.id]
    net.up(N1)
    assert holder.holds(A)
    assert queue(net, N1) == [holder.id, waiter.id]
    net.do(holder, holder.end())
    assert net.answers["waiter"].status == "have_all_locks"


def test_who_does_not_want_to_wait_is_answered_by_the_gate() -> None:
    """Somebody who is about to give up a later node is no reason to give up oneself."""
    net = Net(*ALL)
    first, second = net.agent(), net.agent()
    asked = first.ask(A, "write", ALL, "majority", "first")
    gate, *others = second.ask(A, "write", ALL, "majority", "second")
    net.do(second, others)
    net.do(first, asked)
    assert "first" not in net.answers
    assert not first.is_answered("first"), "it has the gate, and waits at the others"
    net.do(second, [gate])
    assert second.is_answered("second"), "it waits at the gate"
    assert net.answers["first"].status == "have_all_locks"


def test_who_awaits_nodes_and_does_not_want_to_wait() -> None:
    """If too few nodes are up, what those that are up say is the answer."""
    net = Net(*ALL)
    net.down(N2)
    net.down(N3)
    agent = net.agent(await_nodes=True)
    net.do(agent, agent.ask(A, "write", ALL, "majority", "try"))
    assert agent.is_answered("try")


def test_a_token_rises_from_one_in_the_queue_to_the_next() -> None:
    """What was given up at the other nodes and asked for again does not count."""
    net, holder, waiter = held_and_waiting()
    net.do(holder, holder.establish_token(A, "old"))
    net.do(holder, holder.end())
    net.do(waiter, waiter.establish_token(A, "new"))
    assert net.answers["new"] > net.answers["old"]


class Contest:
    """Agents that want one id over three servers, again and again; messages come in random order.

    Args:
        number: How many want it at the same time.
        seed: Of the order.
    """

    def __init__(self, number: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.servers = {node: ServerMachine(node) for node in ALL}
        self.agents: dict[AgentId, AgentMachine] = {}
        self.links: dict[tuple[Any, Any], deque[Any]] = defaultdict(deque)
        self.sent: Counter[str] = Counter()
        self.held: list[AgentId] = []
        self.begun = self.done = 0
        for _ in range(number):
            self.begin()

    def begin(self) -> None:
        """One more wants it."""
        self.begun += 1
        agent = AgentMachine(AgentId(self.begun, f"c{self.begun}", self.begun), "c", ALL)
        self.agents[agent.id] = agent
        self.carry_out(agent.id, agent.ask(A, "write", ALL, "majority", agent.id))

    def carry_out(self, sender: Any, effects: list[Any]) -> None:
        """Send what is to be sent."""
        for effect in effects:
            if isinstance(effect, AnswerWait):
                self.held.append(sender)
                assert len(self.held) == 1, "two have it"
            elif isinstance(effect, (ToServer, ToAgent)):
                receiver = effect.node if isinstance(effect, ToServer) else effect.agent
                self.links[sender, receiver].append(effect.message)
                self.sent[type(effect.message).__name__] += 1

    def run(self, rounds: int) -> None:
        """Until all have had it; who has is followed by a new one, so many times."""
        more = rounds
        while self.agents:
            links = [link for link, messages in self.links.items() if messages]
            assert links or self.held, "nobody has it, and nothing is on its way"
            place = self.random.randrange(len(links) + len(self.held))
            if place >= len(links):
                holder = self.held.pop()
                self.carry_out(holder, self.agents.pop(holder).end())
                self.done += 1
                if more:
                    more -= 1
                    self.begin()
                continue
            sender, receiver = links[place]
            message = self.links[sender, receiver].popleft()
            if not self.links[sender, receiver]:
                del self.links[sender, receiver]
            if receiver in self.servers:
                self.carry_out(receiver, self.servers[receiver].handle(message))
            elif receiver in self.agents:
                agent = self.agents[receiver]
                self.carry_out(receiver, agent.receive(message))
                if not any(to == receiver for _, to in self.links):
                    self.carry_out(receiver, agent.settle())


@pytest.mark.parametrize("number", [2, 8, 32])
def test_messages_do_not_grow_with_those_who_wait(number: int) -> None:
    """However many want a lock of a majority, a transaction takes about as many messages."""
    seed = random.randrange(1_000_000)
    print("seed:", seed)
    contest = Contest(number, seed)
    contest.run(64)
    print(contest.sent)
    assert contest.done == 64 + number
    assert contest.sent.total() / contest.done < 40
    assert contest.sent["Surrender"] / contest.done < 0.2
