"""Loss: a client is told at once when what it was told it has can't be vouched for any more."""

from __future__ import annotations

from typing import Any

import pytest

import locks
from locks.core.agent.machine import AgentMachine
from locks.core.messages import AnswerWait, Ended, Lost, Notify, Surrendered, ToAgent, ToServer
from locks.model import LockId, Require
from locks_lab.worlds.study import study
from tests.unit.net import ALL, N1, N2, N3, A, B, Net


def holder(net: Net, nodes: tuple[str, ...], require: Require, **options: Any) -> AgentMachine:
    """An agent whose client was told that it has A."""
    agent = net.agent(**options)
    net.do(agent, agent.ask(A, "write", nodes, require, "first"))
    assert net.answers["first"].status == "have_all_locks"
    agent.ensure_held(A)
    agent.ensure_held(None)
    return agent


def lost(agent: AgentMachine, lock_id: LockId | None = A) -> locks.LockLost:
    """The error by which an agent says that a lock is lost."""
    with pytest.raises(locks.LockLost) as caught:
        agent.ensure_held(lock_id)
    return caught.value


def test_a_lost_lock_is_told_before_all_else() -> None:
    """`Lost` comes first, then the notifications, the waits, and the end with the same reason."""
    net = Net(*ALL)
    other = net.agent()
    net.do(other, other.ask(B, "write", (N1,), "all"))
    agent = holder(net, ALL, "all", notify=True, monitor_nodes=True)
    net.do(agent, agent.ask(B, "write", (N1,), "all", "second"))
    effects = agent.node_down(N3)
    first = effects[0]
    assert isinstance(first, Lost)
    assert first.lock_ids == first.error.lock_ids == (A,)
    assert first.error.nodes == (N3,)
    kinds = [e.notification.kind for e in effects if isinstance(e, Notify)]
    assert kinds == ["lost", "nodedown", "ended"]
    (answer,) = (e for e in effects if isinstance(e, AnswerWait))
    assert isinstance(answer.result, locks.LockLost)
    ended = effects[-1]
    assert isinstance(ended, Ended)
    assert isinstance(ended.reason, locks.LockLost)
    for call in (agent.check_alive, lambda: agent.ensure_held(A), lambda: agent.token(A)):
        with pytest.raises(
            locks.LockLost, match=r"lost the lock a: its server n3@h went down.*has ended"
        ) as caught:
            call()
        assert caught.value is not ended.reason
        assert caught.value.__cause__ is ended.reason
        assert caught.value.nodes == (N3,)


@pytest.mark.parametrize(
    ("require", "enough"),
    [
        ("all", ()),
        ("majority", (N3,)),
        ("any", (N3, N2)),
        ("all_alive", (N3, N2)),
        ("majority_alive", (N3, N2)),
    ],
)
def test_a_requirement_that_is_still_met_is_no_loss(
    require: Require, enough: tuple[str, ...]
) -> None:
    """So many nodes may go; the next one takes the lock, and that is told in the same event."""
    net = Net(*ALL)
    agent = holder(net, ALL, require, await_nodes=True)
    for node in enough:
        net.down(node)
        assert not net.lost
        agent.ensure_held(A)
    last = next(node for node in reversed(ALL) if node not in enough)
    net.down(last)
    (told,) = net.lost
    assert told.lock_ids == (A,)
    assert lost(agent).nodes == (last,)
    assert study(agent).lost == (A,)


@pytest.mark.parametrize("again", ["a wait", "the status", "a notification"])
def test_a_lost_lock_stays_lost_until_the_client_is_told_again(again: str) -> None:
    """It may be held again, but others may have had it since: only what tells the client counts."""
    net = Net(*ALL)
    agent = holder(net, (N1, N2), "all", await_nodes=True)
    net.down(N2)
    net.up(N2)
    assert agent.holds(A)
    assert lost(agent).lock_ids == lost(agent, None).lock_ids == (A,)
    with pytest.raises(locks.LockLost):
        agent.token(A)
    if again == "a wait":
        net.do(agent, agent.await_all("again"))
        assert net.answers["again"].status == "have_all_locks"
    elif again == "the status":
        assert agent.status() == "have_all_locks"
        net.do(agent, agent.told_status())
    else:
        net.do(agent, agent.set_flag("notify", True))
    agent.ensure_held(A)
    agent.ensure_held(None)
    assert study(agent).lost == ()


def test_a_restart_is_a_loss() -> None:
    """A node that is there again at once, under the same name, has forgotten what it had granted."""
    net = Net(N1, N2)
    holder(net, (N2,), "all", await_nodes=True)
    net.down(N2)
    net.up(N2)
    assert [told.lock_ids for told in net.lost] == [(A,)]
    assert net.servers[N2].view(A).holders


def test_other_nodes_make_up_for_a_lost_one() -> None:
    """With spare nodes the transaction goes on without `await_nodes`, and gets the lock again."""
    net = Net(*ALL)
    other = net.agent()
    net.do(other, other.ask(A, "write", (N3,), "all"))
    agent = holder(net, ALL, "majority")
    net.down(N2)
    assert [told.lock_ids for told in net.lost] == [(A,)]
    assert agent.ended is None
    assert agent.status() == "waiting"
    net.do(other, other.end_transaction())
    assert agent.status() == "have_all_locks"
    lost(agent)


def test_what_was_never_held_or_told_is_not_held() -> None:
    """`ensure_held` refuses an id that was not asked for, and one that is still waited for."""
    net = Net(N1)
    other, agent = net.agent(), net.agent()
    net.do(other, other.ask(A, "write", (N1,), "all"))
    net.do(agent, agent.ask(A, "write", (N1,), "all"))
    for lock_id in (A, B):
        with pytest.raises(locks.errors.NotHeld):
            agent.ensure_held(lock_id)
    agent.ensure_held(None)


# --- Surrenders ---------------------------------------------------------------------------------


def test_a_surrendered_lock_is_lost_until_the_client_is_told() -> None:
    """From when the surrender is sent until the client has heard that it has the lock again.

    It is no `Lost`: the deadlock is reported as ever. Until it is answered, the agent can't know.
    """
    net = Net(N1)
    older = net.agent()
    net.do(older, older.ask(B, "write", (N1,), "all", "older b"))
    agent = holder(net, (N1,), "all")
    net.do(older, older.ask(A, "write", (N1,), "all", "older a"))
    (request,) = agent.ask(B, "write", (N1,), "all", "second")
    assert isinstance(request, ToServer)
    for effect in net.servers[N1].handle(request.message):
        assert isinstance(effect, ToAgent)
        net.agents[effect.agent].receive(effect.message)
    (surrender,) = (e for e in agent.settle() if isinstance(e, ToServer))
    assert lost(agent).nodes == ()
    effects = net.servers[N1].handle(surrender.message)
    assert any(isinstance(e, ToAgent) and isinstance(e.message, Surrendered) for e in effects)
    net.do(older, list(effects))
    assert net.answers["older a"].status == "have_all_locks"
    assert "surrendered" in str(lost(agent))
    with pytest.raises(locks.errors.NotHeld):
        agent.token(A)
    net.do(older, older.end_transaction())
    agent.ensure_held(A)  # the wait for b was answered, and names the deadlock
    assert net.answers["second"].deadlocks
    assert not net.lost


def test_a_surrender_that_is_refused_takes_nothing() -> None:
    """When its edge was gone, the lock is vouched for again, though nobody told the client."""
    net = Net(N1)
    older = net.agent()
    net.do(older, older.ask(B, "write", (N1,), "all"))
    agent = holder(net, (N1,), "all")
    net.do(older, older.ask(A, "write", (N1,), "all", "older a"))
    (request,) = agent.ask(B, "write", (N1,), "all", "second")
    assert isinstance(request, ToServer)
    for effect in net.servers[N1].handle(request.message):
        assert isinstance(effect, ToAgent)
        net.agents[effect.agent].receive(effect.message)
    (surrender,) = (e for e in agent.settle() if isinstance(e, ToServer))
    lost(agent)
    net.do(older, older.abandon_wait("older a"))
    net.do(agent, [surrender])
    agent.ensure_held(A)


def test_an_upgrade_that_is_withdrawn_takes_nothing() -> None:
    """Whoever gives up an upgrade after it was granted, and asks for it again, has the weaker lock all the while."""
    net = Net(N1)
    agent, other = net.agent(), net.agent()
    for mode in ("read", "write"):
        net.do(agent, agent.ask(A, mode, (N1,), "all", mode))
    net.do(agent, agent.abandon_wait("write"))
    net.do(other, other.ask(A, "read", (N1,), "all", "other"))
    assert net.answers["other"].status == "have_all_locks"
    net.do(agent, agent.ask(A, "write", (N1,), "all", "again"))
    assert "again" not in net.answers
    agent.ensure_held(A)
    agent.ensure_held(None)
    net.do(other, other.end_transaction())
    assert net.answers["again"].status == "have_all_locks"
