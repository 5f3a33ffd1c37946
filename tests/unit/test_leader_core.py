"""What an instance of an election takes when, what it looks at before, and whom a leader may ask: the core, event by event."""

from __future__ import annotations

from typing import Any

import pytest

from locks_leader.core.contenders import Contenders
from locks_leader.core.contest import NO_GRANTS
from locks_leader.core.events import (
    Answer,
    AskToken,
    BeginContest,
    BeginMerge,
    CallBack,
    Called,
    CastLost,
    CastMade,
    ContestStanding,
    Effect,
    Elect,
    Elected,
    EndContest,
    EndMerge,
    Grants,
    HandOver,
    LeaderCalled,
    Look,
    Looked,
    MemberDown,
    MemberJoined,
    MergeTold,
    Noticed,
    NotSent,
    Origin,
    Received,
    Reply,
    SendToMember,
    Started,
    TokenTold,
)
from locks_leader.core.instance_core import InstanceCore
from locks_leader.core.machine import Machine
from locks_leader.core.messages import Announce, Forward, ForwardAnswer, LeaderCast
from locks_leader.policy import Policy, quorum

A, B = "a@h", "b@h"
HELD = ContestStanding(frozenset({(A, 3)}), held=True)
LOST = ContestStanding(NO_GRANTS, held=False)
ELECTED = Elected(HandOver("state", "state"), merged=True)


def core(*alive: str, policy: Policy | None = None) -> InstanceCore:
    """A candidate that has not begun."""
    return InstanceCore(Machine("me", "candidate", policy or Policy(), alive or (A,)))


class World:
    """What surrounds a core: it answers what the core asks now, and keeps what else is to be done.

    Attributes:
        alive: The nodes that are up.
        standing: How the contest stands.
        elects: Whether `elected` returns at once.
        done: What was to be done, but for what was answered.
    """

    def __init__(self, core: InstanceCore) -> None:
        self.core = core
        self.alive = frozenset({A})
        self.standing: ContestStanding | None = LOST
        self.elects = True
        self.done: list[Effect] = []

    def feed(self, *events: Any) -> list[Effect]:
        """Let events come in; returns what was to be done."""
        self.done = []
        for event in events:
            self.core.feed(event, self.do)
        return self.done

    def answer(self, answer: Answer) -> list[Effect]:
        """Answer an effect, and go on."""
        self.done = []
        self.core.carry_out(self.core.answer(answer), self.do)
        self.core.drive(self.do)
        return self.done

    def do(self, effect: Effect) -> Answer | None:
        """Answer it, or note it."""
        if isinstance(effect, Look):
            return Looked(self.alive, effect.round, self.standing)
        self.done.append(effect)
        return ELECTED if isinstance(effect, Elect) and self.elects else None


def leader() -> World:
    """One that leads node A."""
    world = World(core())
    world.standing = HELD
    world.feed(Started(), Noticed(), MergeTold(1, held=True), TokenTold(1, 3))
    assert world.core.machine.role == "leader"
    return world


def follower() -> World:
    """One that follows `boss`."""
    world = World(core())
    world.feed(Started(), Received("boss", B, Announce(5, "state")))
    assert world.core.machine.leader == "boss"
    return world


# --- The mailbox --------------------------------------------------------------------------------


def test_the_whole_way_to_leading() -> None:
    """It begins, looks when there is news, takes what it needs, is elected, and gives back the merge lock."""
    world = World(core())
    assert world.feed(Started()) == [BeginContest(1, frozenset({A}))]
    world.standing = HELD
    assert world.feed(Noticed()) == [BeginMerge(1, frozenset({A})), AskToken(1)]
    assert world.feed(MergeTold(1, held=True)) == []
    assert world.feed(TokenTold(1, 3)) == [Elect(None), EndMerge(1)]


def test_while_elected_runs_nothing_is_taken() -> None:
    """What comes in meanwhile waits, and is taken in its order when `elected` has returned."""
    world = World(core())
    world.standing = HELD
    world.elects = False
    world.feed(Started(), Noticed(), MergeTold(1, held=True))
    assert world.feed(TokenTold(1, 3), MemberJoined("x", A, "worker"), CastMade("c")) == [
        Elect(None)
    ]
    assert not world.core.ready
    assert world.feed(LeaderCalled("call", "r")) == []
    assert world.answer(ELECTED) == [
        EndMerge(1),
        BeginMerge(2, frozenset({A})),
        CallBack("handle_leader_cast", ("c",)),
        CallBack("handle_leader_call", ("r", Origin(None, "call"))),
    ]


def test_what_follows_from_an_answer_comes_first() -> None:
    """Before the rest of what is to be done; and a thousand answers in a row take no stack."""
    it = core()
    it.machine.start()
    order: list[Any] = []

    def do(effect: Effect) -> Answer | None:
        order.append(type(effect))
        alive = frozenset({A, B} if len(order) == 1 else {A})
        return Looked(alive, 1, HELD) if len(order) < 3000 and type(effect) is Look else None

    it.carry_out([Look(1), CastLost("c", ValueError())], do)
    assert order == [Look, Look, Look, BeginMerge, AskToken, CastLost]

    class Again(InstanceCore):
        """Asks again and again."""

        def answer(self, answer: Answer) -> list[Effect]:
            return [Look(1)]

    order.clear()
    Again(it.machine).carry_out([Look(1)], do)
    assert len(order) == 3000


# --- Looking ------------------------------------------------------------------------------------


def test_it_looks_before_it_takes_in_a_token() -> None:
    """The token is good for what is granted now: here the lock is lost, which is not noticed yet."""
    world = World(core())
    world.standing = HELD
    world.feed(Started(), Noticed(), MergeTold(1, held=True))
    world.standing = LOST
    assert world.feed(TokenTold(1, 3)) == [
        EndMerge(1),
        EndContest(1),
        BeginContest(2, frozenset({A})),
    ]
    assert world.core.machine.role == "candidate"


def test_a_leader_looks_before_it_answers_a_call() -> None:
    """Who has lost the lock steps down before it answers: it might answer its successor."""
    world = leader()
    assert world.feed(Called("q", "caller")) == [CallBack("handle_call", ("q", "caller"))]
    world.standing = LOST
    stepped_down, *_, answer = world.feed(Called("q", "caller"))
    assert stepped_down == CallBack("stepped_down")
    assert answer == CallBack("handle_call", ("q", "caller"))


def test_a_call_waits_for_an_election_that_looking_leads_to() -> None:
    """A leader waits for a token before it leads a newcomer; the node for which it needs that is lost.

    When it looks, it finds that it needs no token any more. So it is elected first, and answers then.
    """
    world = leader()
    world.elects = False
    world.feed(MemberJoined("x", A, "candidate"))
    world.alive = frozenset({A, B})
    world.feed(Noticed())
    grown = ContestStanding(frozenset({(A, 3), (B, 4)}), held=True)
    world.standing = grown
    world.feed(Noticed(), MergeTold(3, held=True))
    world.standing = HELD
    world.alive = frozenset({A})
    assert world.feed(Called("q", "caller"))[-1] == Elect("x")
    assert world.answer(ELECTED)[-1] == CallBack("handle_call", ("q", "caller"))


def test_it_looks_when_elected_has_returned() -> None:
    """What was lost meanwhile is not led: here all of it."""
    world = World(core())
    world.standing = HELD
    world.elects = False
    world.feed(
        Started(),
        MemberJoined("x", A, "worker"),
        Noticed(),
        MergeTold(1, held=True),
        TokenTold(1, 3),
    )
    world.standing = LOST
    done = world.answer(ELECTED)
    assert CallBack("stepped_down") in done
    assert not [effect for effect in done if isinstance(effect, SendToMember)]


# --- What can't be sent -------------------------------------------------------------------------


def test_a_call_that_cannot_be_sent_is_answered_by_the_error() -> None:
    """Once; it is not kept for the next leader."""
    world = follower()
    (forward,) = world.feed(LeaderCalled("call", "r"))
    assert forward == SendToMember("boss", Forward(1, "r"))
    error = ValueError("no term")
    assert world.answer(NotSent("boss", Forward(1, "r"), error)) == [Reply("call", error)]
    assert world.feed(MemberDown("boss")) == [CallBack("handle_down", ("boss",))]


def test_an_answer_that_cannot_be_sent_becomes_the_error() -> None:
    """The caller gets that; a message that can't be passed on is lost, and said so."""
    world, error = leader(), ValueError("no term")
    assert world.answer(NotSent("x", ForwardAnswer(4, object()), error)) == [
        SendToMember("x", ForwardAnswer(4, error))
    ]
    assert world.answer(NotSent("x", LeaderCast("c"), error)) == [CastLost("c", error)]


# --- Calls, followers ---------------------------------------------------------------------------


# --- Whether one may rely on its leading --------------------------------------------------------


@pytest.mark.parametrize(
    ("grants", "why"),
    [
        (frozenset({(A, 3)}), None),
        (frozenset({(A, 3), (B, 9)}), None),
        (frozenset({(A, 4)}), "lost and regained"),
        (NO_GRANTS, "only 0"),
        (None, "does not take part"),
        (ValueError("agent ended"), "agent ended"),
    ],
)
def test_objections(grants: Grants | Exception | None, why: str | None) -> None:
    """The agent knows of a loss before the machine is told."""
    found = leader().core.objection(grants)
    assert found is None if why is None else why in str(found)


# --- Whom an instance on a client node is to be connected with, and whom a leader may ask. ---


SERVERS = frozenset({"a@x", "b@x", "c@x"})


def test_all_that_any_server_sees_are_wanted() -> None:
    """Except the own node and the servers; what a server has seen counts until it says otherwise, or is gone."""
    made = Contenders("me@x", SERVERS)
    assert made.viewed("a@x", ["me@x", "one@x", "b@x"]) == {"one@x"}
    assert made.viewed("b@x", ["two@x", "one@x", "two@x"]) == {"one@x", "two@x"}
    assert made.viewed("a@x", []) == {"one@x", "two@x"}
    assert made.lost("b@x") == frozenset()
    assert made.lost("b@x") == frozenset()


def test_who_may_be_asked() -> None:
    """On a node that counts, under the merge lock there; on others, under that of as many as it takes to lead."""
    policy = Policy(2, SERVERS)
    assert policy.may_ask("a@x", {"a@x"})
    assert not policy.may_ask("a@x", {"b@x", "c@x"})
    assert policy.may_ask("one@x", {"b@x", "c@x"})
    assert not policy.may_ask("one@x", {"b@x"})
    assert not quorum(1).may_ask("one@x", {"b@x"})
    assert not Policy().may_ask("one@x", {"b@x"})
