"""What may cross when leaders change: real participants in a played world (see `tests.leader.sessions`)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locks.errors import OperatingError
from locks.ownership.messages import Closed, Grant, GroupsReleased, Report, Revoke
from locks_leader.sharing import FromParticipant, FromSession
from tests.leader.sessions import GROUPS, Place, World

CHOICES = st.lists(st.integers(0, 1 << 16), max_size=150)


def play(choices: list[int], cuts: bool) -> None:
    """Let things happen, in an order that is chosen, and see that all is well."""
    world = World()
    for _ in range(3):
        world.join()
    world.elect("w0")
    for choice in choices:
        steps = world.steps(cuts)
        arriving = world.deliveries()
        among = arriving if choice % 2 and arriving else steps  # or too little would arrive
        among[choice // 2 % len(among)]()
        if not cuts:
            assert all(len(names) == 1 for names in world.at_hand().values()), world.at_hand()
    world.settle()
    if not cuts:
        world.diary.check()
    world.check_settled()


@given(CHOICES)
def test_never_two_at_once(choices: list[int]) -> None:
    """Leaders change, die, and go on for a while; workers come, leave and die: one owner at a time.

    In the end all groups are shared out evenly, and callbacks have come in turn with rising tokens.
    """
    play(choices, cuts=False)


@pytest.mark.slow
@given(CHOICES)
def test_tokens_tell_owners_apart(choices: list[int]) -> None:
    """With links that are cut as well, no two have a group with the same token.

    In the end each group has one owner, whose token is the largest that was ever used for it.
    """
    play(choices, cuts=True)


# --- One by one -----------------------------------------------------------------------------------


def arrive(world: World) -> None:
    """Let everything arrive that is on its way, and agreements come about."""
    while deliveries := world.deliveries():
        deliveries[0]()


def took_part(number: int) -> tuple[World, list[Place]]:
    """So many workers; the first one leads, and all groups are shared out."""
    world = World()
    for _ in range(number):
        world.join()
    world.elect("w0")
    arrive(world)
    world.check_settled()
    return world, list(world.places.values())


def own(place: Place, group: int, token: int) -> None:
    """Let a worker own a group, by whomever it was granted."""
    place.part.member.granted(group, token)


def test_nobody_goes_on_before_all_have_reported() -> None:
    """Two own the same group, as one was cut off: neither begins before it is known who must let go."""
    world = World()
    for _ in range(3):
        world.join()
    leader, old, new = world.places.values()
    own(old, 0, 50)
    own(new, 0, 60)
    world.elect("w0")
    world.deliver("w0", "w1")
    world.deliver("w1", "w0")
    assert old.part.task(0).begin() is None
    assert leader.agreements.wanted == []
    world.deliver("w0", "w2")
    assert new.part.task(0).begin() is None
    world.deliver("w2", "w0")
    arrive(world)
    assert old.part.task(0).begin() is None
    token = new.part.member.owned[0]
    assert token >= 100, "it was renewed"
    world.settle()
    world.check_settled()


def test_what_an_older_session_says_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """A grant, an order to let go, and a release that name a session which is over change nothing."""
    world, (first, second, _) = took_part(3)
    old = (1, "w0")
    world.elect("w2")
    arrive(world)
    before = world.owned()
    participant, election = second.participant, second.election
    owned = tuple(second.part.member.owned)
    for told in (Grant(second.name, (0, 1), 999), Revoke(second.name, owned), Closed(second.name)):
        participant.handle_cast(FromSession(old, 9, told), election)
    third = world.places["w2"]
    for said in (GroupsReleased(owned), Report({0: 999}, 9)):
        third.participant.handle_cast(FromParticipant(old, second.name, said), third.election)
    arrive(world)
    assert world.owned() == before
    assert not first.leads
    assert not caplog.records, "they are messages, but of another session"


def test_a_strange_message_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """Another node sends what nobody of ours would: nothing changes, and nobody ends; it is logged."""
    world, (leader, other, _) = took_part(3)
    before = world.owned()
    session = leader.term, leader.name
    for place, message in (
        (leader, FromParticipant(session, other.name, GroupsReleased((99,)))),
        (leader, FromParticipant(session, other.name, Report({0: 1 << 62}, 1))),
        (other, FromSession(session, 9, Grant(other.name, (-1,), 999))),
        (other, None),
    ):
        place.participant.handle_cast(message, place.election)
        assert "ignored a message" in caplog.records[-1].message
    arrive(world)
    assert world.owned() == before


@pytest.mark.parametrize("next_leader", ["w1", "w2"])
def test_a_leaver_tells_the_next_leader(next_leader: str) -> None:
    """It has a task at hand when its leader dies: its other groups need not wait for that task.

    So it is when the leaver itself is elected.
    """
    world, (_, leaver, other) = took_part(3)
    (group, *_) = leaver.part.member.owned
    assert world.begin("w1", group)
    leaver.part.stop(now=False)
    world.take_in(leaver)  # and tells the leader, which dies
    world.kill("w0")
    world.elect(next_leader)
    arrive(world)
    assert sorted(other.part.member.owned) == [g for g in range(GROUPS) if g != group]
    world.settle()
    world.check_settled()


def test_a_callback_of_the_leader_that_fails() -> None:
    """The others were told before it is called: what they are asked back does not depend on it."""
    world, (leader, _, _) = took_part(3)

    def fail(group: int) -> None:
        raise ValueError("as it was asked to")

    leader.part._on_lost = fail
    for name in (world.join(), world.join()):
        world.lead(leader, name)
        world.deliver("w0", name)
        world.deliver(name, "w0")
    world.agree(leader)
    with pytest.raises(ValueError, match="as it was asked to"):
        world.take_in(leader)
    sent = [
        message[1].message for other in ("w1", "w2") for message in world.on_the_way("w0", other)
    ]
    assert any(isinstance(each, Revoke) for each in sent)


def test_an_agreement_that_is_older_than_a_report() -> None:
    """A worker of another island reports a larger token meanwhile: the agreement is taken once more."""
    world, (first,) = took_part(1)
    for name in ("w1", "w2"):
        world.join()
        world.lead(first, name)
    newcomer = world.places["w2"]
    own(newcomer, 0, 5000)
    for name in ("w1", "w2"):
        world.deliver("w0", name)
        world.deliver(name, "w0")
    world.agree(first)  # which is wanted since the first one has reported
    world.take_in(first)
    assert first.agreements.wanted, "it is wanted anew"
    world.tokens = itertools.count(6000)
    arrive(world)
    world.check_settled()
    assert newcomer.part.member.owned[0] > 5000


def test_agreements_that_do_not_rise() -> None:
    """An agreement that is smaller though nothing was reported meanwhile is an error, and is raised."""
    world, (first,) = took_part(1)
    world.tokens = itertools.count(7)
    world.join()
    world.lead(first, "w1")
    with pytest.raises(OperatingError, match="has the number 7"):
        arrive(world)
    assert sorted(first.part.member.owned) == list(range(GROUPS))
