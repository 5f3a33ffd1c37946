"""How deadlocks are found and resolved: a test for each rule of `docs/algorithm.md`; and how one is told, step by step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from locks.core.agent import wait_graph
from locks.core.agent.deadlocks import Resolver
from locks.core.agent.machine import AgentMachine
from locks.core.agent.wait_graph import WaitGraph
from locks.core.messages import Inquire, Knowledge, Surrender, Surrendered, ToAgent, ToServer
from locks.core.server import notifier
from locks.core.steps import steps_of
from locks.model import AgentId, Deadlock, Edge, LockId, Mode, RequestRecord, State
from locks.ranges import replace
from locks.words import HELD_UP
from tests.helpers import lines_of
from tests.unit.net import N1, A, B, Net

C = ("c",)


def lock(net: Net, agent: AgentMachine, lock_id: Any, mode: Mode = "write") -> None:
    """Let an agent ask for a lock; its wait has the agent's number and the id as its name."""
    net.do(agent, agent.ask(lock_id, mode, (N1,), "all", (agent.id.serial, lock_id)))


def ring(net: Net, ages: Sequence[int]) -> list[AgentMachine]:
    """Each agent has one lock and then asks for the next one's; `ages` says who is how old."""
    agents = [net.agent() for _ in ages]
    around = [agents[age] for age in ages]
    for number, agent in enumerate(around):
        lock(net, agent, (number,))
    for number, agent in enumerate(around):
        lock(net, agent, ((number + 1) % len(around),))
    return around


def surrenders(net: Net) -> list[Surrender]:
    """All surrenders so far, in their order."""
    return [message for message in net.sent if isinstance(message, Surrender)]


# --- Records and resolvers made by hand


def ref(number: int) -> AgentId:
    """An agent; a larger number is a younger one."""
    return AgentId(number, N1, number)


def record(
    number: int, who: int, lock_id: Any, state: State, version: int = 1, **given: Any
) -> RequestRecord:
    """The request `number` of an agent; its place is its number."""
    mode = given.pop("mode", "write")
    name = f"c{who}"
    made = RequestRecord(N1, number, ref(who), name, lock_id, mode, state, number, 1, True, version)
    return replace(made, **given)


def chain(*agents: int) -> list[RequestRecord]:
    """Each of these agents waits for a lock that the next one has; all of them wait."""
    found = []
    for number, (waiter, holder) in enumerate(itertools.pairwise(agents)):
        found.append(record(10 * number + 1, holder, (number,), "granted"))
        found.append(record(10 * number + 2, waiter, (number,), "waiting"))
    return found


def resolver(me: int, records: Sequence[RequestRecord]) -> tuple[Resolver, list[Any]]:
    """An agent's part in finding deadlocks; it waits and knows this. And what it wants sent."""
    out: list[Any] = []
    made = Resolver(ref(me), out)
    made.begin_search()
    for each in records:
        made.learn(each)
    return made, out


def two_edges() -> list[RequestRecord]:
    """Agent 1 waits for a and b of agent 2, who waits for c of agent 1."""
    return [
        *(record(n, 2, lock_id, "granted") for n, lock_id in ((1, A), (2, B))),
        *(record(n, 1, lock_id, "waiting") for n, lock_id in ((3, A), (4, B))),
        record(5, 1, C, "granted"),
        record(6, 2, C, "waiting"),
    ]


def settle(made: Resolver, told: Callable[[Edge], bool] = lambda _: False) -> None:
    """Let it look; `told` says whether the client knows that it has what would be given up."""
    made.settle(told, True)


# --- The wait-for graph -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("holder", "waits"),
    [
        (record(1, 1, A, "granted"), True),
        (record(1, 1, A, "waiting"), True),  # it stands ahead
        (record(9, 1, A, "waiting"), False),  # it stands behind
        (record(9, 1, A, "granted"), True),
        (record(1, 1, A, "granted", mode="read"), False),  # both read
        (record(1, 1, (*A, 1), "granted"), True),
        (record(1, 1, B, "granted"), False),  # not related
        (record(1, 1, A, "granted", node="n2@h"), False),
        (record(1, 2, A, "granted"), False),  # the same agent
        (record(1, 1, A, "gone"), False),
    ],
)
def test_an_edge_of_the_wait_for_graph_follows_the_rule_of_the_lock_table(
    holder: RequestRecord, waits: bool
) -> None:
    """Agent 2 waits for agent 1 where a request of 1 conflicts and is granted or stands ahead."""
    graph = WaitGraph()
    mode: Mode = "read" if holder.mode == "read" else "write"
    waiter = record(5, 2, A, "waiting", mode=mode)
    for each in (holder, waiter):
        graph.learn(each)
    edges = [Edge(waiter, holder)] if waits else []
    assert list(graph.blockers(ref(2), ref(2))) == edges
    assert list(graph.waiters(ref(1))) == edges


def test_newer_knowledge_wins_whatever_comes_last() -> None:
    """Of two records of a request the one with the larger version counts."""
    old, new = record(1, 1, A, "waiting", 5), record(1, 1, A, "granted", 6)
    for first, second in ((old, new), (new, old)):
        graph = WaitGraph()
        graph.learn(first)
        assert graph.learn(second) is (second is new)
        assert graph.get(new.key) == new
    assert not graph.learn(new)


def test_knowledge_that_a_request_is_gone_stays() -> None:
    """Numbers of requests are not used again, so what is gone is gone, whatever comes late."""
    graph = WaitGraph()
    graph.learn(record(1, 1, A, "gone", 3))
    assert not graph.learn(record(1, 1, A, "granted", 7))
    assert not list(graph.related(N1, A))


def test_a_cycle_is_found_by_its_largest_agent() -> None:
    """It looks over smaller agents only; each smaller one of the cycle does not see itself."""
    records = chain(1, 3, 2, 1)
    graph = WaitGraph()
    for each in records:
        graph.learn(each)
    found = graph.explore(ref(3))
    (closing,) = found.closing
    assert [edge.waiter.agent.serial for edge in found.cycle(closing)] == [1, 3, 2]
    for smaller in (1, 2):
        assert not graph.explore(ref(smaller)).closing


# --- Passing on ---------------------------------------------------------------------------------


def test_passing_on_tells_the_smaller_neighbour_of_the_larger() -> None:
    """Who is reached by one larger agent and reaches another tells the smaller of these two."""
    for around, told in (((3, 1, 2), 2), ((2, 1, 3), 2), ((5, 1, 4), 4)):
        records = chain(*around)
        made, out = resolver(1, records)
        settle(made)
        (sent,) = out
        assert sent.agent == ref(told)
        # What is its own it has from the lock server.
        assert set(sent.message.records) == {r for r in records if r.agent != ref(told)}


def test_passing_on_sends_nothing_twice() -> None:
    """When something new is learned only that is sent, and nothing if nothing new is found."""
    records = chain(3, 1, 2)
    made, out = resolver(1, records)
    settle(made)
    out.clear()
    news = record(50, 4, (0,), "waiting")  # one more that waits for agent 1
    made.learn(news)
    settle(made)
    assert out == [ToAgent(ref(2), Knowledge(ref(1), (news,)))]
    out.clear()
    made.learn(record(60, 7, ("elsewhere",), "waiting"))
    settle(made)
    assert out == []


def test_a_ring_is_found_with_one_message_less_than_it_has_agents() -> None:
    """In each order: of four agents at most three tell another one something before one yields."""
    for ages in itertools.permutations(range(4)):
        net = Net(N1)
        ring(net, ages)
        passed = [each for each in net.told_agents if isinstance(each.message, Knowledge)]
        (answer,) = [each for each in net.told_agents if isinstance(each.message, Surrendered)]
        before = net.told_agents[: net.told_agents.index(answer)]
        assert len([each for each in before if each in passed]) <= 3


def test_who_does_not_wait_keeps_no_knowledge_and_says_so_when_it_waits() -> None:
    """What it was told is of no interest; when it waits it lets those who told it know."""
    out: list[Any] = []
    made = Resolver(ref(2), out)
    made.learn_from(Knowledge(ref(1), tuple(chain(1, 3))))
    assert made.graph is None
    made.begin_search()
    assert out == [ToAgent(ref(1), Knowledge(ref(2), (), forgot=True))]
    settle(made)
    assert len(out) == 1


def test_knowledge_is_forgotten_when_a_deadlock_is_resolved() -> None:
    """Lock servers are asked what still matters, and nothing that served the deadlock is left."""
    made, out = resolver(1, chain(3, 1, 2))
    made.forget([N1])
    assert out == [ToServer(N1, Inquire(ref(1)))]
    made.unsettled = True
    settle(made)
    assert len(out) == 1


# --- Yielding -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_youngest_yields_and_only_that_one(size: int) -> None:
    """In rings in every order: one surrender, by the youngest, and all are told who and why."""
    for ages in itertools.permutations(range(size)):
        net = Net(N1)
        agents = ring(net, ages)
        youngest = max(agents, key=lambda agent: agent.id)
        (message,) = surrenders(net)
        assert message.agent == youngest.id
        for agent in agents:
            (report,) = agent.deadlocks
            assert report.agent == youngest.id
            assert report.rule == "the youngest transaction of the cycle gives way"
            assert set(report.agents) == {each.id for each in agents}


def test_yielding_gives_up_the_lock_for_which_the_neighbour_waits() -> None:
    """Of its locks the youngest surrenders the one that is in the way, and keeps the others."""
    net = Net(N1)
    older, youngest = net.agent(), net.agent()
    lock(net, older, A)
    for lock_id in (B, C, A):
        lock(net, youngest, lock_id)
    lock(net, older, B)
    assert [message.lock_id for message in surrenders(net)] == [B]
    assert older.holds(B)
    assert (youngest.holds(B), youngest.holds(C)) == (False, True)


@pytest.mark.parametrize("known", [A, B])
def test_yielding_prefers_a_lock_of_which_the_client_was_not_told(known: Any) -> None:
    """If there is a choice; if there is none, the transaction aborts where it is to."""
    made, out = resolver(2, two_edges())
    settle(made, lambda edge: edge.waiter.lock_id == known)
    (sent,) = out
    assert sent.message.lock_id == (B if known == A else A)
    assert sent.message.report.action == "surrendered"
    made, out = resolver(2, two_edges())
    settle(made, lambda _: True)
    (sent,) = out
    assert sent.message.report.action == "aborted"


def test_a_surrender_is_answered_before_there_is_another_one() -> None:
    """Until the lock server has answered, nothing more is surrendered, whatever is learned."""
    made, out = resolver(2, two_edges())
    settle(made)
    (sent,) = out
    made.learn(record(7, 1, ("d",), "waiting"))
    settle(made)
    assert out == [sent]
    assert made.giving_up
    done = Surrendered(N1, sent.message, False, tuple(two_edges()[:4]), 9)
    assert made.is_answered(done)
    assert not made.is_answered(done), "it is answered once"
    made.surrendered(done)
    settle(made)
    assert [each.message.waiter for each in out] == [sent.message.waiter] * 2


def test_a_surrender_that_is_refused_removes_the_outdated_edge() -> None:
    """The answer says how both requests stand; what is not in it is gone. So there is no next one."""
    records = chain(2, 1, 2)
    made, out = resolver(2, records)
    settle(made)
    (sent,) = out
    (closing,) = [r for r in records if (r.number, r.since) == sent.message.waiter]
    assert closing.agent == ref(1)
    made.surrendered(Surrendered(N1, sent.message, False, (), 9))
    settle(made)
    assert out == [sent]


# --- Why it ends --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_no_livelock_for_the_oldest_never_yields(seed: int) -> None:
    """Six agents take three of five locks in any order: the oldest never yields, and all finish."""
    chance = Random(seed)
    net = Net(N1)
    agents = [net.agent() for _ in range(6)]
    todo = {agent.id: chance.sample(range(5), 3) for agent in agents}
    for _ in range(6 * 4):
        ready = [each for each in agents if each.ended is None and each.status() != "waiting"]
        agent = chance.choice(ready)
        before = len(surrenders(net))
        if todo[agent.id]:
            lock(net, agent, (todo[agent.id].pop(),))
        else:
            net.do(agent, agent.end_transaction())
        for message in surrenders(net)[before:]:
            assert message.report is not None
            assert message.agent == max(message.report.agents) > min(message.report.agents)
            assert message.agent > min(each.id for each in agents)
    assert all(agent.ended for agent in agents)
    assert not net.servers[N1].view(()).requests


def test_references_are_ordered_by_creation_and_then_by_node() -> None:
    """So each node has the same order, and the youngest is the same one everywhere."""
    ordered = [
        AgentId(1, "b@h", 9),
        AgentId(2, "a@h", 2),
        AgentId(2, "b@h", 1),
        AgentId(2, "b@h", 2),
        AgentId(3, "a@h", 0),
    ]
    for shuffled in itertools.permutations(ordered):
        assert sorted(shuffled) == ordered


# --- Who is told what ---------------------------------------------------------------------------


def others(net: Net) -> list[tuple[AgentId, RequestRecord]]:
    """What agents were told by lock servers of requests that are not their own."""
    return [
        (each.agent, told)
        for each in net.told_agents
        if not isinstance(each.message, Knowledge)
        for told in getattr(each.message, "records", ())
        if told.agent != each.agent
    ]


def test_nothing_is_told_of_others_without_a_deadlock() -> None:
    """A lock that many want is handed on with one message for each, to the next one alone."""
    net = Net(N1)
    agents = [net.agent() for _ in range(20)]
    for agent in agents:
        lock(net, agent, A)
    for agent in agents:
        before = len(net.told_agents)
        net.do(agent, agent.end_transaction())
        assert len(net.told_agents) - before == (agent is not agents[-1])
    assert others(net) == []


def test_a_long_cycle_is_told_to_its_largest_agent_alone() -> None:
    """Of a ring of eight each one gets to know its neighbours; of a ring of nine one knows all, and the others none."""
    for size, expected in ((8, [2] * 8), (9, [0] * 8 + [8])):
        net = Net(N1)
        around = [agent.id for agent in ring(net, range(size))]
        (answer,) = [each for each in net.told_agents if isinstance(each.message, Surrendered)]
        del net.told_agents[net.told_agents.index(answer) :]
        known = {agent: {told.agent for to, told in others(net) if to == agent} for agent in around}
        assert [len(known[agent]) for agent in sorted(around)] == expected


def test_a_long_ring_costs_in_proportion_to_its_agents() -> None:
    """To find it, to resolve it, and to see that nobody of it is in another one."""

    def work(size: int) -> int:
        return lines_of(lambda: ring(Net(N1), range(size)), notifier, wait_graph)

    assert work(80) < 4.5 * work(20)


def test_an_edge_on_a_cycle_is_told_to_the_agents_at_its_ends() -> None:
    """Of a ring of four each one gets to know its two neighbours, and nothing of the fourth."""
    net = Net(N1)
    around = [agent.id for agent in ring(net, (0, 1, 2, 3))]
    (answer,) = [each for each in net.told_agents if isinstance(each.message, Surrendered)]
    del net.told_agents[net.told_agents.index(answer) :]
    for number, agent in enumerate(around):
        known = {told.agent for to, told in others(net) if to == agent}
        assert known == {around[number - 1], around[(number + 1) % 4]}


# --- A deadlock, told step by step. ---


ANN, BEN = AgentId(1, "a@x", 1), AgentId(2, "a@x", 2)
RULE = "the youngest yields"


def record_of_steps(
    agent: AgentId, client: str, lock_id: LockId, state: Any = "granted"
) -> RequestRecord:
    """A request."""
    return RequestRecord("a@x", 1, agent, client, lock_id, "write", state, 1, 1, True, 1)


def report(action: Any = "surrendered", *edges: Edge) -> Deadlock:
    """A deadlock of two; Ben yields a lock for which Ann waits."""
    broken = Edge(
        record_of_steps(ANN, "Ann", ("b",), "waiting"), record_of_steps(BEN, "Ben", ("b",))
    )
    closing = Edge(
        record_of_steps(BEN, "Ben", ("a", 1), "waiting"), record_of_steps(ANN, "Ann", ("a",))
    )
    return Deadlock(BEN, ("b",), "a@x", action, edges or (broken, closing), RULE)


def test_the_edge_that_was_broken_closes_the_circle() -> None:
    """And then somebody yields."""
    told = steps_of(report())
    assert told.yields == "Ben"
    assert told.steps == (
        "Ben waits for write a/1: Ann holds write a.",
        "Ann waits for write b: Ben holds write b. This closes the cycle.",
        "Ben gives up b and queues for it again: the youngest yields. The others continue.",
    )
    assert steps_of(report("aborted")).steps[-1].startswith("Ben is aborted: ")


def test_who_stands_in_line_and_who_waits_elsewhere() -> None:
    """Neither holds what somebody waits for."""
    ahead = Edge(
        record_of_steps(ANN, "Ann", ("b",), "waiting"),
        record_of_steps(BEN, "Ben", ("b",), "waiting"),
    )
    own = (HELD_UP, "x")
    held_up = Edge(record_of_steps(BEN, "Ben", own, "waiting"), record_of_steps(ANN, "Ben", own))
    steps = steps_of(report("surrendered", held_up, ahead)).steps
    assert steps[0] == "Ann waits for write b: Ben is queued for write b."
    assert steps[1].startswith(f"Ben waits with {ANN} and cannot continue with {BEN} meanwhile.")
