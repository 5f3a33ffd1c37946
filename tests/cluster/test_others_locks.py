"""What a connected node can't do to the locks of others: it speaks for itself only."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from locks.core.facts import AskMark, Mark
from locks.core.messages import (
    Knowledge,
    Released,
    Remove,
    RequestStates,
    Resolved,
    Surrender,
    Surrendered,
)
from locks.model import AgentId, Deadlock, Edge, RequestRecord
from locks.net.messages import Call, Exit, Frame, Link, ToAgent, ToServer
from locks.ranges import replace
from tests.cluster.nodes import A, B, News, Nodes, Peer, Tx, link
from tests.helpers import eventually

BAD = "bad@127.0.0.1"
ID = ("held",)
MINE = AgentId(1 << 12, BAD, 0)
THEIRS = AgentId(1 << 12, A, 0)


def gone(agent: AgentId) -> RequestRecord:
    """A record by which its request would be gone."""
    return RequestRecord(A, 1, agent, "c", ID, "write", "gone", 1, 1, False, 1 << 40)


def report(agent: AgentId, node: str) -> Deadlock:
    """A report of a deadlock that a lock server has resolved."""
    return Deadlock(agent, ID, node, "surrendered", (), "it is forged")


ODD_NAME = "a\x1b[31m@127.0.0.1"
CYCLE = Edge(*[replace(gone(AgentId(1, ODD_NAME, 0)), node=B)] * 2)
FORGED: dict[str, Callable[[AgentId], Frame]] = {
    "exit": lambda agent: Exit(agent.created, b"\xa4kill"),
    "link": lambda agent: Link(agent.created, 1),
    "the lock server's word": lambda agent: ToAgent(agent.created, Released(A, ID, ())),
    "its records": lambda agent: ToAgent(agent.created, RequestStates(A, (gone(agent),))),
    "records of another server": lambda agent: ToAgent(
        agent.created, RequestStates(BAD, (gone(agent),))
    ),
    "what another server has released": lambda agent: ToAgent(
        agent.created, Released(BAD, ID, (gone(agent),))
    ),
    "a deadlock that another server has resolved": lambda agent: ToAgent(
        agent.created, Resolved(report(agent, A), ())
    ),
    "a deadlock at another server": lambda agent: ToServer(
        Surrender(MINE, ID, report=report(MINE, A))
    ),
    "a deadlock in which another agent yields": lambda agent: ToServer(
        Surrender(MINE, ID, report=report(agent, B))
    ),
    "a token beyond all clocks": lambda agent: ToAgent(
        agent.created, RequestStates(BAD, (replace(gone(agent), node=BAD, since=1 << 62),))
    ),
    "a name that gives orders to terminals": lambda agent: ToAgent(
        agent.created, Knowledge(MINE, (gone(AgentId(1, ODD_NAME, 0)),))
    ),
    "a report with such a name": lambda agent: ToServer(
        Surrender(MINE, ID, report=replace(report(MINE, B), cycle=(CYCLE,)))
    ),
    "an agent's word": lambda agent: ToAgent(agent.created, Knowledge(THEIRS, (), True)),
    "the answer to another's surrender": lambda agent: ToAgent(
        agent.created, Surrendered(BAD, Surrender(THEIRS, ID), True, (), 1)
    ),
    "an answer with a version beyond all clocks": lambda agent: ToAgent(
        agent.created, Surrendered(BAD, Surrender(agent, ID), True, (), 1 << 62)
    ),
    "a mark with a token beyond all clocks": lambda agent: Call(
        1, AskMark(MINE, ID, 1, 0, Mark(ID, 1 << 62, 1, 2, "c"))
    ),
    "the agent's message": lambda agent: ToServer(Remove(agent)),
}


@pytest.mark.parametrize("what", FORGED)
def test_nobody_takes_the_lock_of_another(nodes: Nodes, what: str) -> None:
    """What is said in another's name ends the connection of who says it, and nothing else."""
    a, b = nodes.meet(A, B)
    tx = Tx(b)
    agent = tx.agent.id
    tx.lock(("held",), [A])
    assert [each.agent for each in a.view(("held",)).holders] == [agent]
    bad = Peer(b.address, b.name, BAD)
    eventually(lambda: BAD in b.nodes())
    news = News(b)
    bad.say(FORGED[what](agent))
    assert bad.is_closed()
    (reason,) = eventually(news.reasons)
    assert "silent" not in reason
    assert link(a, B).closed is None
    assert [each.agent for each in a.view(("held",)).holders] == [agent]
    assert b.agents_by_id[agent].machine.ended is None
    tx.die()
