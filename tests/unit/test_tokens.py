"""Fencing tokens: versions that others have given, and tokens of locks on several nodes."""

from __future__ import annotations

from typing import Any

import pytest

import locks
from locks.core.agent.machine import AgentMachine
from locks.core.messages import AnswerWait, RaiseVersion, ToAgent, ToServer, VersionRaised
from locks.core.server.machine import ServerMachine
from locks.core.server.table import LockTable
from locks.model import AgentId, Require
from tests.unit.net import ALL, N1, N2, A, B, Net

ME, OTHER = AgentId(1, N1, 1), AgentId(2, N1, 2)


# --- Versions -----------------------------------------------------------------------------------


def test_versions_are_raised_and_never_lowered() -> None:
    """All that a table gives after it was raised is larger; a smaller number changes nothing."""
    table = LockTable(10)
    (first,) = table.request(ME, "me", A, "write")
    table.raise_to(1000)
    table.raise_to(5)
    (second,) = table.request(OTHER, "other", A, "write")
    assert first.since == 11
    assert second.number == 1001
    table.raise_to(2000)
    gone, granted = table.remove(ME)
    assert gone is first
    assert granted is second
    assert 2000 < second.since == table.version


@pytest.mark.parametrize(
    ("agent", "lock_id", "since", "done"),
    [(ME, A, 1, True), (ME, A, 2, False), (ME, B, 1, False), (OTHER, A, 2, False)],
)
def test_only_a_grant_that_stands_raises(
    agent: AgentId, lock_id: tuple[str], since: int, done: bool
) -> None:
    """A version is confirmed for exactly the grant that it is said to be for."""
    server = ServerMachine(N1)
    server.table.request(ME, "me", A, "write")
    server.table.request(OTHER, "other", A, "write")
    before = server.version
    (answer,) = server.handle(RaiseVersion(agent, lock_id, since, 99))
    assert answer == ToAgent(agent, VersionRaised(N1, lock_id, since, 99, done))
    assert server.version == (99 if done else before)


# --- Tokens over several nodes ------------------------------------------------------------------


def spread(net: Net, *versions: int) -> None:
    """Let the lock servers' versions differ."""
    for node, version in zip(ALL, versions, strict=False):
        net.servers[node].raise_to(version)


def held(net: Net, nodes: tuple[str, ...] = ALL, require: Require = "majority") -> AgentMachine:
    """An agent that has A, and has told its client so."""
    agent = net.agent(await_nodes=True)
    net.do(agent, agent.ask(A, "write", nodes, require, "lock"))
    assert net.answers["lock"].status == "have_all_locks"
    return agent


def raises(net: Net) -> list[RaiseVersion]:
    """Which confirmations were asked for so far."""
    return [message for message in net.sent if isinstance(message, RaiseVersion)]


def asking(agent: AgentMachine) -> list[Any]:
    """Have a token established; what is to be sent for it is not sent yet."""
    effects = agent.establish_token(A, "token")
    assert effects
    assert all(isinstance(e, ToServer) and isinstance(e.message, RaiseVersion) for e in effects)
    return effects


def test_on_one_node_a_token_needs_no_message() -> None:
    """It is the version of the grant, with whatever requirement, and is there at once."""
    net = Net(N1)
    agent = held(net, (N1,), "any")
    token = agent.token(A)
    assert token == net.servers[N1].view(A).requests[0].version
    assert agent.establish_token(A, "token") == [AnswerWait("token", token)]
    assert not raises(net)


def test_a_token_is_confirmed_by_the_others() -> None:
    """The largest version of the grants becomes the token; who has given it need not be asked."""
    net = Net(*ALL)
    spread(net, 10, 70, 30)
    agent = held(net, ALL, "all")
    assert agent.token(A) is None
    net.do(agent, agent.establish_token(A, "token"))
    assert net.answers["token"] == agent.token(A) == 71
    assert [message.since for message in raises(net)] == [11, 31]
    assert all(server.version >= 71 for server in net.servers.values())
    net.do(agent, agent.establish_token(A, "again"))
    assert net.answers["again"] == 71
    assert len(raises(net)) == 2


def test_the_next_holder_has_a_larger_token_on_another_quorum() -> None:
    """The largest version was given by a node that is not among those of the next holder.

    The former holder died without a word: the lock servers that are left have removed it.
    """
    net = Net(*ALL)
    spread(net, 70, 10, 10)
    first = held(net)
    net.do(first, first.establish_token(A, "first"))
    net.down(N1)
    net.do(first, first.end_transaction())
    second = held(net)
    net.do(second, second.establish_token(A, "second"))
    assert net.answers["first"] < net.answers["second"]


@pytest.mark.parametrize("require", ["any", "majority_alive"])
def test_no_token_where_two_may_have_the_lock(require: Require) -> None:
    """Two quorums need not have a node in common: the refusal says why, and what to do."""
    net = Net(*ALL)
    agent = held(net, ALL, require)
    for call in (lambda: agent.token(A), lambda: agent.establish_token(A, "token")):
        with pytest.raises(
            locks.errors.InvalidOption, match=rf"3 nodes with require='{require}'.*Request it"
        ):
            call()
    net.do(agent, agent.end_transaction())
    assert "token" not in net.answers


def test_a_slow_node_is_not_waited_for() -> None:
    """As many confirmations as the lock needs are enough."""
    net = Net(*ALL)
    spread(net, 10, 20, 30)
    agent = held(net)
    asked = asking(agent)
    assert [effect.node for effect in asked] == [N1, N2]
    net.do(agent, asked[1:])
    assert net.answers["token"] == 31


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("unlock", locks.errors.NotHeld),
        ("end", locks.TransactionEnded),
        ("surrender", locks.errors.NotHeld),
        ("abandon", None),
    ],
)
def test_who_waits_for_a_token_is_answered_whatever_happens(how: str, error: Any) -> None:
    """The lock is unlocked or surrendered, or the transaction ends, before it is confirmed."""
    net = Net(N1, N2)
    spread(net, 50, 10)
    agent = held(net, (N1, N2), "all")
    other = net.agent()
    net.do(other, other.ask(A, "write", (N1, N2), "all"))
    asked = asking(agent)
    if how == "unlock":
        net.do(agent, agent.unlock(A))
    elif how == "end":
        net.do(agent, agent.end_transaction())
    elif how == "surrender":
        net.do(agent, agent.surrender(A, other.id, (N1, N2)))
    else:
        net.do(agent, agent.abandon_wait("token"))
    net.do(agent, asked)  # what is confirmed now does nothing
    if error is None:
        assert "token" not in net.answers
    else:
        assert isinstance(net.answers["token"], error)


def test_a_holders_token_never_falls() -> None:
    """The node that gave the largest version is lost, and the lock is still held on the others."""
    net = Net(*ALL)
    spread(net, 70, 10, 10)
    agent = held(net)
    net.do(agent, agent.establish_token(A, "first"))
    net.down(N1)
    agent.ensure_held(A)
    net.do(agent, agent.establish_token(A, "second"))
    assert net.answers["first"] <= net.answers["second"]


def test_after_an_upgrade_the_token_is_that_of_the_write_lock() -> None:
    """Readers may share a token; the writer's is larger than that of each reader before."""
    net = Net(N1, N2)
    reader, agent = net.agent(), net.agent()
    for each, name in ((agent, "mine"), (reader, "its")):
        net.do(each, each.ask(A, "read", (N1, N2), "all", name))
        net.do(each, each.establish_token(A, f"{name} token"))
    net.do(agent, agent.ask(A, "write", (N1, N2), "all", "write"))
    net.do(reader, reader.end_transaction())
    net.do(agent, agent.establish_token(A, "written"))
    assert net.answers["written"] > max(net.answers["mine token"], net.answers["its token"])
