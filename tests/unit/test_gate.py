"""Those who want a majority queue at one of its nodes first (decision 0014)."""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from typing import Any

import pytest

from locks.core.agent.machine import AgentMachine
from locks.core.messages import AnswerWait, Surrender, ToAgent, ToServer
from locks.core.server.machine import ServerMachine
from locks.model import AgentId
from tests.helpers import SEED
from tests.unit.net import ALL, N1, N2, N3, A, B, Net

BOUND = 16  # 11 if all goes as expected; some more as messages meet


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
    net.do(holder, holder.end_transaction())
    assert [queue(net, node) for node in ALL] == [[waiter.id]] * 3
    assert net.answers["waiter"].status == "have_all_locks"


def test_nobody_overtakes_by_the_other_nodes() -> None:
    """Nobody asks the other nodes before the gate has granted: the first in its queue is the next one."""
    net, holder, waiter = held_and_waiting()
    late = net.agent()
    net.do(late, late.ask(A, "write", ALL, "majority", "late"))
    left = {
        effect.node: effect for effect in holder.end_transaction() if isinstance(effect, ToServer)
    }
    net.do(holder, [left[N2], left[N3]])
    assert [info.granted for info in late.lock_info()] == [()]
    assert "late" not in net.answers
    net.do(holder, [left[N1]])
    assert "waiter" in net.answers
    assert "late" not in net.answers
    net.do(waiter, waiter.end_transaction())
    assert "late" in net.answers
    assert not [each for each in net.sent if isinstance(each, Surrender)]


def test_what_is_given_up_at_the_gate_is_given_up_everywhere() -> None:
    """One surrender resolves the deadlock, and the waiting agent has the lock on all nodes; the client has lost it."""
    net = Net(*ALL)
    older, younger = net.agent(), net.agent()
    net.do(older, older.ask(B, "write", ALL, "majority", "older has B"))
    net.do(younger, younger.ask(A, "write", ALL, "majority", "younger has A"))
    net.do(older, older.ask(A, "write", ALL, "majority", "older"))
    net.do(younger, younger.ask(B, "write", ALL, "majority", "younger"))
    assert len([each for each in net.sent if isinstance(each, Surrender)]) == 1
    assert net.answers["older"].status == "have_all_locks"
    assert [queue(net, node) for node in ALL] == [[older.id]] * 3, (
        "the younger one waits for B first"
    )
    assert younger.lost() == (A,)
    net.do(older, older.end_transaction())
    assert net.answers["younger"].status == "have_all_locks"
    assert [queue(net, node) for node in ALL] == [[younger.id]] * 3
    assert younger.lost() == ()


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
    net.do(holder, holder.end_transaction())
    assert net.answers["waiter"].status == "have_all_locks"


# --- What is held stands on all nodes that are up -----------------------------------------------


def granted(net: Net, agent: AgentMachine) -> list[str]:
    """The nodes that have granted A to an agent, as they know."""
    return [
        node
        for node, server in net.servers.items()
        if any(entry.granted for entry in server.table.own(agent.id, A))
    ]


def test_a_lock_stands_on_the_third_node_when_that_is_free() -> None:
    """A waits for P, P waits for R, and P ends as soon as it has its lock: A has all three nodes, and may lose any."""
    net = Net(*ALL)
    r, p, a = net.agent(), net.agent(), net.agent()
    net.do(r, r.ask(B, "write", (N1,), "all"))
    net.do(p, p.ask(A, "write", (N3,), "all"))
    net.do(a, a.ask(A, "write", ALL, "majority", "a"))
    net.do(p, p.ask(B, "write", (N1,), "all"))
    assert granted(net, a) == [N1, N2]
    net.do(r, r.end_transaction())
    net.do(p, p.end_transaction())
    assert granted(net, a) == [N1, N2, N3]
    net.down(N1)
    assert a.holds(A)
    assert not net.lost


@pytest.mark.parametrize("waiters", [1, 5])
@pytest.mark.parametrize("restarted", ALL)
def test_who_queues_gives_way_to_who_holds(restarted: str, waiters: int) -> None:
    """A restarted server grants its lock to who comes first. Who queues can't have it before it is released."""
    net = Net(*ALL)
    queuing = [net.agent(await_nodes=True) for _ in range(waiters)]
    holder = net.agent(await_nodes=True)  # hears last of the server
    net.do(holder, holder.ask(A, "write", ALL, "majority", "holder"))
    for each in queuing:
        net.do(each, each.ask(A, "write", ALL, "majority", each.id))
    net.down(restarted)
    net.sent.clear()
    net.up(restarted)
    assert granted(net, holder) == sorted(ALL, key=list(net.servers).index)
    surrenders = [each for each in net.sent if isinstance(each, Surrender)]
    assert len(surrenders) == (restarted == N1), "only one was granted anything, only at the gate"
    for each in queuing:
        assert each.id not in net.answers
    end_all(net, holder, *queuing)


def end_all(net: Net, holder: AgentMachine, *queuing: AgentMachine) -> None:
    """Each one ends as soon as it has its lock, until all have ended."""
    net.do(holder, holder.end_transaction())
    left = list(queuing)
    while left:
        has = next(each for each in left if each.id in net.answers)
        assert net.answers[has.id].status == "have_all_locks"
        net.do(has, has.end_transaction())
        left.remove(has)


def test_a_rolling_restart_takes_nothing() -> None:
    """One server after the other is restarted: who holds the lock, to read or to write, keeps it, whoever waits."""
    for mode, readers in (("write", 1), ("read", 3)):
        net = Net(*ALL)
        others = [net.agent(await_nodes=True) for _ in range(4)]
        holders = [net.agent(await_nodes=True) for _ in range(readers)]
        for each in holders:
            net.do(each, each.ask(A, mode, ALL, "majority", each.id))
        for each in others:
            net.do(each, each.ask(A, "write", ALL, "majority", each.id))
        for node in ALL:
            net.down(node)
            net.up(node)
            for each in holders:
                assert sorted(granted(net, each)) == list(ALL), (mode, node)
        assert not net.lost
        end_all(net, *holders, *others)


# --- A crowd ------------------------------------------------------------------------------------


class Contest:
    """Agents that want one id over three servers, again and again; messages come in random order.

    Whenever nothing is on its way, who holds it has it on all servers.

    Args:
        number: How many want it at the same time.
        seed: Of the order.
        patient: Whether who has it keeps it until nothing is on its way.
    """

    def __init__(self, number: int, seed: int, patient: bool = False) -> None:
        self.patient = patient
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
            if not links:
                for node, server in self.servers.items():
                    assert server.table.own(self.held[0], A)[0].granted, node
            ends = 0 if self.patient and links else len(self.held)
            place = self.random.randrange(len(links) + ends)
            if place >= len(links):
                holder = self.held.pop()
                self.carry_out(holder, self.agents.pop(holder).end_transaction())
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


@pytest.mark.parametrize("patient", [False, True])
@pytest.mark.parametrize("number", [2, 8, 32, 200])
def test_messages_do_not_grow_with_those_who_wait(number: int, patient: bool) -> None:
    """However many want a lock of a majority, a transaction takes about as many messages.

    A request, an answer and a farewell for each server; the gate says twice how it stands, and is told of the others.
    """
    contest = Contest(number, SEED, patient=patient)
    contest.run(64)
    print(contest.sent, contest.sent.total() / contest.done)
    assert contest.done == 64 + number
    assert contest.sent.total() / contest.done < BOUND
    assert not contest.sent["Surrender"]
