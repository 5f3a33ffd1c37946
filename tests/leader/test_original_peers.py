"""One of the original's candidates in an election of ours, played by an actor: the shell around the bridge.

With a real Erlang node the same is tested in `tests/erlang`.
"""

from __future__ import annotations

from typing import Any

import pykka
import pytest

import locks_leader
from locks import groups
from locks.actors import GeventActor
from locks.values import Atom
from tests.cluster.nodes import Nodes
from tests.helpers import eventually
from tests.leader.members import NAMES

LEADER = Atom("locks_leader")
AFFIRM, AM_LEADER, FROM_LEADER = map(Atom, ("affirm_leader", "am_leader", "from_leader"))


class Original(GeventActor):
    """Says what the original's candidates say, and keeps what it is told."""

    def __init__(self, told: list[tuple[Any, ...]]) -> None:
        super().__init__()
        self.told = told

    def on_receive(self, message: Any) -> Any:
        if callable(message):
            return message(self.actor_ref)
        self.told.append(message)
        if message[:2] == (LEADER, AFFIRM):
            _, _, leader, ref = message
            leader.tell((LEADER, Atom("ensure_sync"), self.actor_ref, Atom("candidate"), ref))
        return None


class Says(locks_leader.Behaviour):
    """Hands over its state, and broadcasts what it is told."""

    def elected(self, election: locks_leader.ElectionState, newcomer: Any) -> Any:
        return locks_leader.OnlyNew("state")

    def handle_leader_cast(self, message: Any, election: locks_leader.ElectionState) -> None:
        election.broadcast(message)


def test_a_candidate_of_the_original(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is affirmed, announced to when it asks, broadcast to, announced to again when it is unsure.

    When it ends, it is forgotten; and what only looks like a message of an election does no harm.
    """
    ours, theirs = nodes.meet(*NAMES[:2], mesh=False)
    monkeypatch.setattr(ours, "runs_original", lambda name: name == theirs.name)
    told: list[tuple[Any, ...]] = []
    original: pykka.ActorRef[Any] = theirs.executor.call(Original.start, told)
    groups.join((LEADER, [LEADER, "r"]), original, node=theirs)
    instance = locks_leader.start(Says, resource="r", node=ours)

    def heard(*kinds: Atom) -> None:
        eventually(lambda: tuple(term[1] for term in told) == kinds)

    heard(AFFIRM, AM_LEADER)
    assert told[1][4] == "state"
    assert len(locks_leader.info(instance).candidates) == 1
    locks_leader.leader_cast(instance, "news")
    heard(AFFIRM, AM_LEADER, FROM_LEADER)

    leader = told[0][2]
    original.ask(lambda me: leader.tell((LEADER, Atom("nonsense"), 1)))
    original.ask(lambda me: leader.tell((LEADER, Atom("leader_uncertain"), me, [], [])))
    heard(AFFIRM, AM_LEADER, FROM_LEADER, AFFIRM, AM_LEADER)
    assert told[3][3] != told[0][3], "the election is known by another reference"

    original.stop()
    eventually(lambda: locks_leader.info(instance).candidates == [])
    assert locks_leader.info(instance).role == "leader"
    instance.stop()
    eventually(lambda: not ours.agents_by_id)
