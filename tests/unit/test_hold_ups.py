"""One client with many transactions: what its wait in one of them means for the others."""

from __future__ import annotations

from typing import Any

import pytest

from locks.core.agent.machine import AgentMachine
from locks.errors import DeadlockAborted, InvalidLockId
from locks.model import HELD_UP, Deadlock, LockResult, check_lock_id
from locks_lab.worlds.study import study
from tests.unit.net import N1, A, B, Net


class Clients(Net):
    """Clients with several transactions each; what one of them waits for holds the others up."""

    def lock(self, agent: AgentMachine, *wanted: Any, mode: str = "write", node: str = N1) -> None:
        """Ask for locks, in one call that waits for them."""
        wait = (agent.id.serial, *wanted)
        objects = [(lock_id, mode, (node,), "all") for lock_id in wanted]
        self.do(agent, agent.ask_all(objects, wait))

    def block(self, agent: AgentMachine, *wanted: Any, others: Any, node: str = N1) -> Any:
        """The same, and the client has these other transactions; returns what stands for the call."""
        self.lock(agent, *wanted, node=node)
        wait = (agent.id.serial, *wanted)
        self.do(agent, agent.hold_up(wait))
        for other in others:
            if agent.hold_up_id(wait) is not None:
                self.do(other, other.held_up(agent.hold_up_id(wait)))
        return wait

    def hidden(self, node: str = N1) -> list[tuple[Any, bool]]:
        """The requests that stand for waits: the agent's serial number, and whether it is granted."""
        table = self.servers[node].table
        found = [
            e for o in table.requesters.values() for e in o.all() if e.slot.lock_id[0] == HELD_UP
        ]
        return sorted((entry.requester.id.serial, entry.granted) for entry in found)

    def aborted(self, wait: Any) -> Deadlock:
        """The report with which a wait was answered."""
        answer = self.answers[wait]
        assert isinstance(answer, DeadlockAborted), answer
        report = answer.deadlock
        assert isinstance(report, Deadlock)
        return report


def crossing(net: Clients, ages: str, **options: Any) -> dict[str, AgentMachine]:
    """Two clients, each with an outer transaction that holds a lock, and an inner one.

    Args:
        net: The world.
        ages: The agents from the oldest to the youngest: `p` and `q` are the outer ones, `P` and `Q` the
            inner ones of the same clients.
        options: For the outer agents.
    """
    agents = {name: net.agent(**(options if name in "pq" else {})) for name in ages}
    net.lock(agents["p"], A)
    net.lock(agents["q"], B)
    net.block(agents["P"], B, others=[agents["p"]])
    return agents


def test_held_up_by_the_clients_wait() -> None:
    """While a client waits in one transaction its others wait for that one, and no longer."""
    net = Clients(N1)
    outer, inner, stranger = net.agent(), net.agent(), net.agent()
    net.lock(outer, A)
    net.lock(stranger, B)
    net.block(inner, B, others=[outer])
    assert net.hidden() == [(1, False), (2, True)]
    net.do(stranger, stranger.end_transaction())
    assert net.answers[2, B] == LockResult("have_all_locks", ())
    assert net.hidden() == []


@pytest.mark.parametrize("how", ["abandon", "end", "end the other"])
def test_held_up_until_the_wait_is_given_up(how: str) -> None:
    """A wait that is given up holds nobody up, nor does an agent that has ended."""
    net = Clients(N1)
    outer, inner, stranger = net.agent(), net.agent(), net.agent()
    net.lock(outer, A)
    net.lock(stranger, B)
    wait = net.block(inner, B, others=[outer])
    match how:
        case "abandon":
            net.do(inner, inner.abandon_wait(wait))
        case "end":
            net.do(inner, inner.end_transaction())
        case _:
            net.do(outer, outer.end_transaction())
            assert net.hidden() == [(2, True)]
            net.do(inner, inner.abandon_wait(wait))
    assert net.hidden() == []
    for agent in (outer, inner, stranger):
        net.do(agent, agent.end_transaction())
        assert study(agent).remains == []
    assert net.servers[N1].table.requesters == {}


def test_held_up_is_hidden_from_the_client() -> None:
    """Nobody sees what stands for a wait: infos, status, notifications, waits, views, sizes."""
    net = Clients(N1)
    outer, inner, stranger = net.agent(notify=True), net.agent(notify=True), net.agent()
    net.lock(outer, A)
    net.lock(stranger, B)
    table = net.servers[N1].table
    net.lock(inner, B)
    before = table.statistics(), [*net.told]
    infos = outer.lock_info(), inner.lock_info(), outer.result()
    net.do(inner, inner.hold_up((2, B)))
    net.do(outer, outer.held_up(inner.hold_up_id((2, B))))
    after = table.statistics()
    size = ("entries", "waiting", "agents")
    assert [getattr(after, name) for name in size] == [getattr(before[0], name) for name in size]
    assert net.told == before[1]
    assert (outer.lock_info(), inner.lock_info(), outer.result()) == infos
    net.do(outer, outer.await_all("all"))
    assert net.answers["all"].status == "have_all_locks"
    net.do(outer, outer.unlock(A))
    assert outer.empty
    assert outer.status() == "no_locks"
    with pytest.raises(InvalidLockId, match="which is reserved"):
        check_lock_id([HELD_UP, 1])


def test_cycle_through_two_transactions_of_each_client() -> None:
    """The smallest case: each has one lock and waits with another transaction for the other's."""
    net = Clients(N1)
    agents = crossing(net, "pqPQ")
    net.block(agents["Q"], A, others=[agents["q"]])
    report = net.aborted((4, A))
    assert (report.agent, report.lock_id, report.action) == (agents["Q"].id, A, "aborted")
    assert set(report.agents) == {agent.id for agent in agents.values()}
    assert report.run_again == agents["q"].id
    assert all(report in agent.deadlocks for agent in agents.values())
    assert net.servers[N1].table.statistics().surrenders == 0
    # The client leaves both, and the other one goes on.
    net.do(agents["q"], agents["q"].end_transaction())
    assert net.answers[3, B].status == "have_all_locks"
    assert net.hidden() == []


def test_held_up_agent_is_aborted() -> None:
    """If one that is held up is the youngest it aborts, and the call that holds it up is told."""
    net = Clients(N1)
    agents = crossing(net, "pPQq", abort_on_deadlock=True)
    net.block(agents["Q"], A, others=[agents["q"]])
    q = agents["q"]
    assert q.ended is not None
    reason = q.ended.reason
    assert isinstance(reason, DeadlockAborted)
    assert reason.deadlock.agent == reason.deadlock.run_again == q.id
    assert agents["Q"].awaited
    net.do(agents["Q"], agents["Q"].interrupt(reason))  # the shell does so
    assert net.answers[3, A] is reason
    assert agents["Q"].empty
    assert not agents["Q"].awaited
    assert net.answers[2, B].status == "have_all_locks"
    assert net.hidden() == []


def test_held_up_agent_surrenders() -> None:
    """The same in surrender mode: it loses the lock, and the client waits on."""
    net = Clients(N1)
    agents = crossing(net, "pPQq")
    net.block(agents["Q"], A, others=[agents["q"]])
    q = agents["q"]
    (report,) = q.deadlocks
    assert (report.agent, report.action, report.lock_id) == (q.id, "surrendered", B)
    assert q.lost() == (B,)
    assert not q.ended
    assert net.answers[2, B].status == "have_all_locks"
    for agent in (agents["P"], agents["p"]):
        net.do(agent, agent.end_transaction())
    assert net.answers[3, A].status == "have_all_locks"
    assert q.holds(B)
    assert net.hidden() == []


def test_hold_ups_of_a_machine_that_is_made_anew() -> None:
    """A machine that goes back to a state in which its client waits knows what that wait holds up."""
    net = Clients(N1)
    outer, inner, stranger = net.agent(), net.agent(), net.agent()
    net.lock(outer, A)
    net.lock(stranger, B)
    wait = net.block(inner, B, others=[outer])
    saved = [(agent, agent.save()) for agent in (outer, inner)]
    inner.abandon_wait(wait)  # and what it wants done is forgotten, with all else
    outer.end_transaction()
    for agent, state in saved:
        agent.load(state)
    assert inner.hold_up_id(wait) is not None
    net.do(stranger, stranger.end_transaction())
    assert net.answers[wait].status == "have_all_locks"
    assert net.hidden() == []
    assert outer.holds(A)
    for agent in (outer, inner):
        net.do(agent, agent.end_transaction())
    assert net.servers[N1].table.requesters == {}
