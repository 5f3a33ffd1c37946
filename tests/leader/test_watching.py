"""Whom instances watch, and for how long."""

from __future__ import annotations

import locks_leader
from locks.runtime.actor import Inbox
from locks_leader import Behaviour
from tests.cluster.nodes import Nodes
from tests.helpers import eventually


def test_who_has_ended_watches_nobody_any_more(nodes: Nodes) -> None:
    """Candidates that come and go are not kept in memory by one that stays, here and elsewhere."""
    here, there = nodes.meet("m0@127.0.0.1", "m1@127.0.0.1")
    stays = locks_leader.start(Behaviour, resource="r", node=here)
    inbox = stays.actor_inbox
    assert isinstance(inbox, Inbox)
    eventually(lambda: locks_leader.info(stays).role == "leader")
    before = len(inbox.watch.monitors)
    for node in (here, there) * 3:
        goes = locks_leader.start(Behaviour, resource="r", node=node)
        eventually(lambda: locks_leader.info(stays).candidates)
        eventually(lambda ref=goes: locks_leader.info(ref).leader is not None)  # type: ignore[misc]
        goes.stop()
        eventually(lambda: not locks_leader.info(stays).candidates)
    # One more is what has given it a pid, for the other node.
    eventually(lambda: len(inbox.watch.monitors) <= before + 1)
