"""The election's machine, event by event: what it wants done, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest

from locks.errors import InvalidOption
from locks_leader import LeaderDied, NotLeader
from locks_leader.core.events import (
    NOTHING,
    AskToken,
    BeginContest,
    BeginMerge,
    CallBack,
    ContestStanding,
    Elect,
    EndContest,
    EndMerge,
    HandOver,
    IncludeNodes,
    MonitorMember,
    Reply,
    SendToMember,
    SurrenderLeadership,
)
from locks_leader.core.machine import TRANSITIONS, Machine
from locks_leader.core.messages import (
    Affirm,
    Announce,
    Forward,
    ForwardAnswer,
    FromLeader,
    LeaderCast,
    NotTheLeader,
    Resign,
    YieldTo,
)
from locks_leader.policy import Policy, policy_of

A, B, C = "a@h", "b@h", "c@h"


def grants(**versions: int) -> frozenset[tuple[str, int]]:
    """Grants on nodes a, b, c, by their versions."""
    return frozenset((f"{node}@h", version) for node, version in versions.items())


def machine(*alive: str, kind: Any = "candidate", policy: Policy | None = None) -> Machine:
    """A machine that has not begun, on some nodes that are up."""
    return Machine("me", kind, policy or Policy(), alive or (A,))


def win(m: Machine, token: int = 10, **versions: int) -> list[Any]:
    """Let a machine win the contest by these grants, and be asked for the outcome of `elected`."""
    m.start()
    m.contest(1, ContestStanding(grants(**versions), held=True))
    m.contest(1, ContestStanding(grants(**versions), held=True))
    m.merge(1, held=True)
    return m.token(1, token)


def leader(*alive: str, policy: Policy | None = None, **versions: int) -> Machine:
    """A machine that leads."""
    m = machine(*alive, policy=policy)
    win(m, **(versions or {"a": 3}))
    m.elected(HandOver("state", "state"))
    assert m.role == "leader"
    return m


# --- Being elected ------------------------------------------------------------------------------


def test_a_lone_candidate_is_elected() -> None:
    """It asks for the lock, then for merge lock and term, and with both it is elected."""
    m = machine(A)
    assert m.start() == [BeginContest(1, frozenset({A}))]
    assert m.role == "candidate"
    held = m.contest(1, ContestStanding(grants(a=3), held=True))
    assert held == [BeginMerge(1, frozenset({A})), AskToken(1)]
    assert m.role == "syncing"
    assert m.token(1, 3) == []
    assert m.merge(1, held=True) == [Elect(None)]
    assert (m.leader, m.term) == ("me", 3)
    assert m.elected(HandOver("state")) == [EndMerge(1)]
    assert m.role == "leader"


def test_the_lock_is_asked_for_at_one_gate_first() -> None:
    """The first node by name is the gate; who has the lock there asks for it on all others."""
    m = machine(C, A, B)
    assert m.start() == [BeginContest(1, frozenset({A}))]
    assert m.contest(1, ContestStanding(grants(a=3), held=True)) == [
        IncludeNodes(1, frozenset({B, C}))
    ]
    assert m.role == "candidate", "it has not won yet"
    assert m.contest(1, ContestStanding(grants(a=3, b=1), held=False)) == []
    won = m.contest(1, ContestStanding(grants(a=3, b=1, c=1), held=True))
    assert won == [BeginMerge(1, frozenset({A, B, C})), AskToken(1)]


def test_what_is_lost_while_it_is_elected() -> None:
    """A node lost and found again during `elected` was perhaps not asked: nobody is told; it steps down."""
    m = machine(A, B)
    m.joined("x", B, "candidate")
    win(m, a=3, b=4)
    m.contest(1, ContestStanding(grants(a=3), held=True))
    m.leader_call("call", "request")
    effects = m.elected(HandOver("state"))
    assert [effect for effect in effects if isinstance(effect, SendToMember)] == []
    assert CallBack("stepped_down") in effects
    assert not any(type(e) is CallBack and e.name == "handle_leader_call" for e in effects)
    assert (m.role, m.leader) == ("candidate", None)


@pytest.mark.parametrize("newcomer", [False, True])
def test_the_merge_lock_is_lost_while_it_is_elected(newcomer: bool) -> None:
    """Nobody was waited for any more, so some were perhaps not heard: nobody is told; it steps down.

    Else it would hand over a state that lacks what they have.
    """
    m = leader(A, B, a=3, b=4) if newcomer else machine(A, B)
    m.joined("x", B, "candidate")
    if newcomer:
        assert m.merge(2, held=True) == [Elect("x")]
    else:
        win(m, a=3, b=4)
    m.leader_call("call", "request")
    effects = m.elected(HandOver("state", "state"), merged=False)
    assert [effect for effect in effects if isinstance(effect, SendToMember)] == []
    assert CallBack("stepped_down") in effects
    assert BeginContest(2, frozenset({A})) in effects
    assert (m.role, m.leader) == ("candidate", None)
    assert m.merge(2 if newcomer else 1, held=False) == [], (
        "it is told late that its agent has ended"
    )


# --- Newcomers, and losing ----------------------------------------------------------------------


def test_a_newcomer_is_led_under_the_merge_lock() -> None:
    """It gets the message for new followers; who follows already gets the other one."""
    m = leader(A)
    assert m.joined("x", A, "candidate") == [BeginMerge(2, frozenset({A}))]
    assert m.merge(2, held=True) == [Elect("x")]
    assert m.elected(HandOver("new", "old")) == [
        SendToMember("x", Announce(10, "new")),
        EndMerge(2),
    ]
    m.joined("y", A, "worker")
    m.merge(3, held=True)
    assert m.elected(HandOver("new", "old")) == [
        SendToMember("x", FromLeader(10, "old")),
        SendToMember("y", Announce(10, "new")),
        EndMerge(3),
    ]


def test_a_newcomer_on_a_new_node_waits_until_the_leader_has_the_lock_there() -> None:
    """Before, another one may lead it. The term rises if it must; who follows is told."""
    m = leader(A)
    m.joined("x", A, "candidate")
    m.merge(2, held=True)
    m.elected(HandOver("new", NOTHING))
    m.nodes([A, B])
    assert m.joined("y", B, "candidate") == []
    granted = m.contest(1, ContestStanding(grants(a=3, b=20), held=True))
    assert granted == [BeginMerge(3, frozenset({A, B})), AskToken(1)]
    m.merge(3, held=True)
    assert m.token(1, 21) == [SendToMember("x", Affirm(21)), Elect("y")]
    assert m.term == 21


def test_a_leader_that_loses_the_lock_on_a_node_steps_down() -> None:
    """It tells its followers, then its application, and stands last with a new agent."""
    m = leader(A)
    m.joined("x", A, "candidate")
    m.merge(2, held=True)
    m.elected(HandOver("new", NOTHING))
    assert m.contest(1, ContestStanding(grants(), held=False)) == [
        SendToMember("x", Resign(10)),
        CallBack("stepped_down"),
        EndContest(1),
        BeginContest(2, frozenset({A})),
    ]
    assert (m.role, m.leader, m.term) == ("candidate", None, 10)


def test_without_a_quorum_a_leader_steps_down_before_it_gives_up_the_lock() -> None:
    """And it does not contend until there are enough nodes again."""
    majority = policy_of("majority", [A, B, C])
    m = leader(A, B, policy=majority, a=3, b=4)
    assert m.nodes([A]) == [CallBack("stepped_down"), EndContest(1)]
    assert m.nodes([A, C]) == [BeginContest(2, frozenset({A}))]


def test_surrender_to_another_candidate() -> None:
    """All others stand last, with new agents, and so does who surrenders."""
    m = leader(A)
    m.joined("x", A, "candidate")
    m.joined("y", A, "candidate")
    m.merge(2, held=True)
    assert m.elected(SurrenderLeadership("y")) == [
        SendToMember("x", YieldTo(10, "y")),
        SendToMember("y", YieldTo(10, "y")),
        EndMerge(2),
        CallBack("stepped_down"),
        EndContest(1),
    ]
    other = leader(A)
    other.joined("w", A, "worker")
    other.merge(2, held=True)
    with pytest.raises(InvalidOption, match="not a candidate"):
        other.elected(SurrenderLeadership("w"))


# --- Following ----------------------------------------------------------------------------------


def test_following_the_larger_term() -> None:
    """An announcement counts if its term is larger than what was known; a smaller one is stale."""
    m = machine(A, kind="worker")
    assert m.start() == []
    assert m.receive("x", B, Announce(5, "s")) == [
        MonitorMember("x"),
        CallBack("surrendered", ("s",)),
    ]
    assert m.receive("old", B, Announce(4, "t")) == []
    assert (m.role, m.leader, m.term) == ("following", "x", 5)
    assert m.receive("y", B, Announce(6, "u")) == [
        MonitorMember("y"),
        CallBack("surrendered", ("u",)),
    ]
    assert m.receive("x", B, FromLeader(5, "v")) == [], "not the leader any more"
    assert m.receive("y", B, FromLeader(6, "v")) == [CallBack("from_leader", ("v",))]


# --- Calls --------------------------------------------------------------------------------------


def test_a_call_waits_for_a_leader() -> None:
    """Those that wait are passed on in their order."""
    m = machine(A, kind="worker")
    m.start()
    assert m.leader_call("c1", "first") == []
    assert m.leader_cast("second") == []
    effects = m.receive("x", B, Announce(5, "s"))
    assert effects[2:] == [
        SendToMember("x", Forward(1, "first")),
        SendToMember("x", LeaderCast("second")),
    ]
    assert m.receive("x", B, ForwardAnswer(1, "done")) == [Reply("c1", "done")]
    assert m.receive("x", B, ForwardAnswer(1, "done")) == [], "it was answered"


def test_a_call_that_was_not_carried_out_waits_for_the_next_leader() -> None:
    """Who does not lead says so; so nothing is carried out twice."""
    m = machine(A, kind="worker")
    m.start()
    m.receive("x", B, Announce(5, "s"))
    m.leader_call("c1", "r")
    other = machine(A)
    other.start()
    assert other.receive("w", A, Forward(1, "r")) == [SendToMember("w", NotTheLeader(1))]
    assert m.receive("x", B, NotTheLeader(1)) == []
    assert m.receive("y", B, Announce(6, "s"))[-1] == SendToMember("y", Forward(2, "r"))


def test_the_leader_dies_before_it_answers() -> None:
    """The caller is told; one that waits for a leader goes on waiting."""
    m = machine(A, kind="worker")
    m.start()
    m.receive("x", B, Announce(5, "s"))
    m.leader_call("c1", "r")
    reply, down = m.down("x")
    assert isinstance(reply, Reply)
    assert reply.call == "c1"
    assert isinstance(reply.value, LeaderDied)
    assert down == CallBack("handle_down", ("x",))
    assert m.leader_call("c2", "r") == []


def test_only_a_leader_broadcasts() -> None:
    """To all that follow, or to some of them."""
    m = leader(A)
    for number, each in enumerate(("x", "y"), 2):
        m.joined(each, A, "candidate")
        m.merge(number, held=True)
        m.elected(HandOver("s", NOTHING))
    assert [s.member for s in m.broadcast("b")] == ["x", "y"]  # type: ignore[union-attr]
    assert m.broadcast("b", ["y", "unknown"]) == [SendToMember("y", FromLeader(10, "b"))]
    with pytest.raises(NotLeader, match="only the leader"):
        machine(A).broadcast("b")


def test_every_role_can_be_left_and_reached() -> None:
    """The table of transitions has no dead end, and nothing that can't be reached."""
    roles = {role for role, _ in TRANSITIONS}
    assert roles == {"candidate", "following", "syncing", "leader"} == set(TRANSITIONS.values())
