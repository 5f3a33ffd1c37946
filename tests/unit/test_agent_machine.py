"""The agent's machine with several nodes: requirements, nodes that come and go, notifications.

The lock servers' machines answer at once, so these tests say what follows from what; all orders of
messages are in `tests/model`.
"""

from __future__ import annotations

from typing import Any

import pytest

import locks
from locks.core.agent.machine import AgentMachine
from locks.core.messages import Release
from locks.model import LockResult
from tests.unit.net import ALL, N1, N2, N3, A, B, Net


@pytest.mark.parametrize(
    ("require", "granted_on", "held"),
    [
        ("all", (N1, N2), False),
        ("all", (N1, N2, N3), True),
        ("any", (N3,), True),
        ("majority", (N1,), False),
        ("majority", (N1, N3), True),
        ("all_alive", (N1, N2), False),
        ("all_alive", (N1, N2, N3), True),
        ("majority_alive", (N1,), False),
        ("majority_alive", (N1, N3), True),
    ],
)
def test_requirement_says_how_many_nodes_are_needed(
    require: Any, granted_on: tuple[str, ...], held: bool
) -> None:
    """A lock over three nodes is held as soon as enough of them have granted it."""
    net = Net(*ALL)
    other, agent = net.agent(), net.agent()
    for node in ALL:
        if node not in granted_on:
            net.servers[node].table.request(other.id, "other", A, "write")
    net.do(agent, agent.ask(A, "write", ALL, require, "wait"))
    assert ("wait" in net.answers) is held
    assert agent.status() == ("have_all_locks" if held else "waiting")
    (info,) = agent.lock_info()
    assert set(info.granted) == set(granted_on)
    assert info.held is held


@pytest.mark.parametrize(
    ("require", "needs"),
    [("all", 3), ("majority", 2), ("any", 1), ("all_alive", 1), ("majority_alive", 1)],
)
@pytest.mark.parametrize("up", [1, 2, 3])
def test_too_few_nodes_are_refused_and_change_nothing(require: Any, needs: int, up: int) -> None:
    """A request that the nodes that are up can't serve is refused at the call; else it is held."""
    net = Net(*ALL[:up])
    agent = net.agent()
    if up >= needs:
        net.do(agent, agent.ask(A, "write", ALL, require, "wait"))
        assert net.answers["wait"].status == "have_all_locks"
    else:
        with pytest.raises(locks.CannotServe, match="await_nodes"):
            agent.ask(A, "write", ALL, require, "wait")
        assert agent.status() == "no_locks"
        assert not agent.lock_info()


def test_await_nodes_waits_and_asks_again() -> None:
    """With `await_nodes` the agent waits for the node, and asks again when it is back."""
    net = Net(N1)
    agent = net.agent(await_nodes=True, monitor_nodes=True)
    net.do(agent, agent.ask(A, "write", (N1, N2), "all", 1))
    assert agent.status() == "cannot_serve"
    assert 1 not in net.answers
    net.up(N2)
    assert net.answers[1] == LockResult("have_all_locks", ())
    net.down(N2)
    assert agent.status() == "cannot_serve"
    net.up(N2)
    assert agent.status() == "have_all_locks"
    kinds = [(n.kind, n.value) for n in net.told]
    assert kinds == [("nodeup", N2), ("nodedown", N2), ("nodeup", N2)]


def test_new_nodes_are_added_to_what_was_asked() -> None:
    """Asking again with more nodes asks the new ones only; another requirement is refused."""
    net = Net(*ALL)
    agent = net.agent()
    net.do(agent, agent.ask(A, "write", (N1,), "all", 1))
    net.do(agent, agent.ask(A, "write", (N1, N2), "all", 2))
    assert agent.lock_info()[0].granted == (N1, N2)
    before = agent.lock_info()
    with pytest.raises(locks.errors.ConflictingRequest, match="any"):
        agent.ask(A, "write", (N1, N2), "any")
    assert agent.lock_info() == before


@pytest.mark.parametrize("come_back", [False, True], ids=["asks for more", "a node comes back"])
def test_what_the_client_was_told_is_not_surrendered_but_aborted(come_back: bool) -> None:
    """It stays so when the same lock is asked for on a further node, or a further node counts."""
    net = Net(N1) if come_back else Net(N1, N2)
    require: Any = "all_alive" if come_back else "all"
    older, younger = net.agent(abort_on_deadlock=True), net.agent(abort_on_deadlock=True)
    first = (N1, N2) if come_back else (N1,)
    net.do(younger, younger.ask(A, "write", first, require, "first"))
    assert net.answers["first"].status == "have_all_locks"
    net.do(older, older.ask(A, "write", (N1, N2), require, "older"))
    if come_back:
        net.up(N2)  # the older one asks there first
    else:
        net.do(younger, younger.ask(A, "write", (N1, N2), require, "second"))
    assert younger.ended is not None
    assert isinstance(younger.ended.reason, locks.DeadlockAborted)
    assert net.answers["older"].status == "have_all_locks"


def test_notify_tells_status_and_lock_infos() -> None:
    """A client with `notify` is told each change; switching it on tells the present status."""
    net = Net(N1)
    holder, agent = net.agent(), net.agent(notify=True)
    net.do(holder, holder.ask(A, "write", (N1,), "all"))
    net.do(agent, agent.ask(A, "write", (N1,), "all"))
    net.do(holder, holder.end_transaction())
    kinds = [n.kind for n in net.told]
    assert kinds == ["waiting", "lock_info", "lock_info", "have_all_locks"]
    net.do(agent, agent.set_flag("notify", False))
    net.told.clear()
    net.do(agent, agent.set_flag("notify", True))
    assert [(n.kind, n.value) for n in net.told] == [("have_all_locks", ())]


def test_notify_tells_an_abort() -> None:
    """The one who yields is told that it was aborted, with the report, and nothing after it."""
    net = Net(N1)
    older, younger = (net.agent(notify=True, abort_on_deadlock=True) for _ in range(2))
    net.do(older, older.ask(A, "write", (N1,), "all"))
    net.do(younger, younger.ask(B, "write", (N1,), "all"))
    net.do(older, older.ask(B, "write", (N1,), "all"))
    net.do(younger, younger.ask(A, "write", (N1,), "all"))
    last = [news for news in net.told if news.agent == younger.id][-1]
    assert last.kind == "aborted"
    assert last.value == younger.deadlocks[0]
    assert last.value.agent == younger.id


# --- Requests that are not needed ---------------------------------------------------------------


def releases(net: Net, *agents: AgentMachine) -> list[Release]:
    """What these agents have released so far."""
    ids = [agent.id for agent in agents or net.agents.values()]
    return [
        message for message in net.sent if isinstance(message, Release) and message.agent in ids
    ]


def split(net: Net, require: Any, **options: bool) -> tuple[Any, Any]:
    """An older agent has A on n3 and waits for the rest of it, which a younger one has.

    The younger one has all that it needs, and waits for the older one where it does not need to.
    """
    older, younger = net.agent(**options), net.agent(**options)
    net.do(older, older.ask(A, "write", (N3,), require, "first"))
    net.do(younger, younger.ask(A, "write", ALL, require, "younger"))
    assert net.answers["younger"].status == "have_all_locks"
    assert [entry.spare for entry in net.servers[N3].table.own(younger.id, A)] == [True]
    assert not releases(net, older)
    net.do(older, older.ask(B, "write", (N3,), "all"))
    net.do(older, older.ask(A, "write", ALL, require, "older"))
    return older, younger


@pytest.mark.parametrize("require", ["majority", "majority_alive"])
def test_nobody_yields_for_what_is_not_needed(require: Any) -> None:
    """One has a majority, the other one only asked for the third node: that is no deadlock.

    The first one needs nothing of the third node, and so it waits for nobody. The other one holds its lock there by an earlier
    request for that node alone, and keeps it.
    """
    net = Net(*ALL)
    older, younger = split(net, require, abort_on_deadlock=True)
    assert not releases(net, older)
    assert "older" not in net.answers
    assert [info.granted for info in younger.lock_info()] == [(N1, N2)]
    net.do(younger, younger.end_transaction())
    assert net.answers["older"] == LockResult("have_all_locks", ())
    assert older.lock_info()[0].granted == (N3, N1, N2)


def test_what_is_needed_again_is_asked_for_again() -> None:
    """When a node is lost, spare requests are needed again."""
    net = Net(*ALL)
    older, younger = split(net, "majority", await_nodes=True)
    assert not releases(net, older)
    net.down(N2)
    assert older.holds(A), "the younger one needs n3 again, and so it yields"
    net.do(older, older.end_transaction())
    assert younger.holds(A)
    assert younger.lock_info()[0].granted == (N1, N3)
