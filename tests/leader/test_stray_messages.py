"""Messages that are none: an instance ignores them with a line in the log, on a node with peers and on one without."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import locks
import locks_leader
from locks.net.messages import Tell
from locks.net.values import Values, Where
from locks_leader.core.messages import Announce, Resign
from locks_leader.letters import CallLeader, CancelCall, FromInstance, outcome, outcome_for
from tests.cluster.nodes import Nodes, Peer
from tests.helpers import eventually
from tests.leader.members import NAMES, Member, agreed, start_member

NOBODY: Any = None
pytestmark = pytest.mark.usefixtures("here")


def strays(instance: Any) -> list[Any]:
    """Messages of elections with something wrong in them."""
    return [
        FromInstance(instance, Announce("not a version", None)),  # type: ignore[arg-type]
        FromInstance(instance, Announce((0, 0, 0), None)),  # type: ignore[arg-type]
        FromInstance(instance, Announce(1 << 62, None)),  # of another time
        FromInstance("not an instance", Announce(1, None)),  # type: ignore[arg-type]
        FromInstance(instance, "no message"),  # type: ignore[arg-type]
        CallLeader(17, None),  # type: ignore[arg-type]
        CancelCall("x" * 1000),
    ]


@pytest.mark.parametrize("alone", [True, False])
def test_stray_messages_are_ignored(alone: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The instance goes on leading, and says once that it has ignored something."""
    locks.stop()
    options: dict[str, Any] = {} if alone else {"cookie": "a-cookie-of-sixteen-or-more"}
    node = locks.start("stray@127.0.0.1", **options)
    instance = locks_leader.start(locks_leader.Behaviour, resource="strays", node=node)
    try:
        eventually(lambda: locks_leader.info(instance).leader == instance)
        with caplog.at_level(logging.WARNING):
            for stray in strays(instance):
                instance.tell(stray)
            assert locks_leader.info(instance).leader == instance
            eventually(lambda: "ignored a message" in caplog.text)
    finally:
        instance.stop()
        locks.stop()


def where(member: Member) -> Where:
    """Where other nodes find an instance."""
    assert member.node.cluster is not None
    return member.node.turn.run(member.node.cluster.actors.where, member.ref)


def test_nobody_speaks_for_the_leader(nodes: Nodes) -> None:
    """A letter in the name of an instance of another node ends the connection of who sends it, and nothing else."""
    members = [start_member(node) for node in nodes.meet(*NAMES[:2])]
    leader, (follower,) = agreed(members)
    bad = Peer(follower.node.address, follower.node.name)
    eventually(lambda: bad.name in follower.node.nodes())
    there, number = [where(each) for each in (leader, follower)]
    values = Values(lambda _: there, NOBODY)
    bad.say(Tell(number[1], values.pack(FromInstance(leader.ref, Resign(leader.info.term)))))
    assert bad.is_closed()
    assert follower.info.leader_node == leader.node.name
    assert agreed(members)[0] is leader


class Unspeakable(Exception):
    """It has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("error", [Unspeakable(), ValueError("\ud800"), ValueError("x" * 10**6)])
def test_every_exception_of_a_leader_can_be_told_elsewhere(error: Exception) -> None:
    """Whatever its text is."""
    values = Values(NOBODY, NOBODY)
    told = values.unpack(values.pack(outcome_for(error, is_here=False)), "peer@h")
    assert type(error).__name__ in str(outcome(told))
    assert len(str(outcome(told))) < 10_000
    assert outcome_for(error, is_here=True) is error
