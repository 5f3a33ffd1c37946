"""Elections over several nodes of one process: outcomes of `elected`, what is left, what is logged."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import locks
import locks_leader
from locks.runtime.logs import EVENTS
from locks_leader import (
    Behaviour,
    ElectionState,
    NewAndOld,
    OnlyNew,
    SurrenderTo,
)
from tests.cluster.nodes import Nodes
from tests.helpers import eventually
from tests.leader.gdict import GDict
from tests.leader.members import NAMES, Ref, agreed, have, join, part, start_member

# --- Outcomes of `elected` ----------------------------------------------------------------------


class Yields(GDict):
    """Gives the leadership to the candidate on the node that comes last."""

    def elected(self, election: ElectionState, newcomer: Ref | None) -> Any:
        outcome = super().elected(election, newcomer)
        nodes = {getattr(ref, "node", ""): ref for ref in election.candidates}
        heir = nodes.get(NAMES[2])
        return outcome if heir is None else SurrenderTo(heir)


def test_surrender_to(nodes: Nodes) -> None:
    """Whoever is elected hands over to the candidate that it names, which leads then."""
    members = [start_member(node, Yields) for node in nodes.meet(*NAMES[:3], mesh=False)]
    eventually(lambda: members[2].info.role == "leader")
    leader, _ = agreed(members)
    assert leader is members[2]
    members[0].store("a")
    have(members, a=1)
    for member in members:
        member.journal.check()


def test_surrender_to_somebody_who_is_no_candidate(nodes: Nodes) -> None:
    """That is an error of the callback: it ends the instance, and another one leads."""

    class Errs(GDict):
        def elected(self, election: ElectionState, newcomer: Ref | None) -> Any:
            return SurrenderTo(election.me)

    a, b = nodes.meet(*NAMES[:2], mesh=False)
    bad = start_member(a, Errs)
    eventually(lambda: not bad.ref.is_alive())
    eventually(lambda: isinstance(bad.journal.reason, locks.errors.InvalidOption))
    good = start_member(b)
    agreed([good])


class Tells(Behaviour):
    """Writes down what it is told; `outcome` makes what is said."""

    def init(self, told: list[Any], outcome: Any) -> None:
        self.told = told
        self.outcome = outcome

    def elected(self, election: ElectionState, newcomer: Ref | None) -> Any:
        return self.outcome

    def surrendered(self, message: Any, election: ElectionState) -> None:
        self.told.append(("surrendered", message))

    def from_leader(self, message: Any, election: ElectionState) -> None:
        self.told.append(("from_leader", message))


@pytest.mark.parametrize(
    ("outcome", "new", "old"),
    [
        ("all", "all", ["all"]),
        (NewAndOld("new", "old"), "new", ["old"]),
        (OnlyNew("new"), "new", []),
    ],
)
def test_what_followers_are_told(nodes: Nodes, outcome: Any, new: str, old: list[str]) -> None:
    """New followers get one message in `surrendered`, those that follow already another, or none."""
    a, b, c = nodes.meet(*NAMES[:3], mesh=False)
    told: list[list[Any]] = [[], [], []]
    refs = []
    for node, heard in zip((a, b, c), told, strict=True):
        refs.append(locks_leader.start(Tells, heard, outcome, resource="t", node=node))
        eventually(lambda: locks_leader.info(refs[-1]).role in ("leader", "following"))
        eventually(lambda: len({locks_leader.info(ref).term for ref in refs}) == 1)
    (leader,) = [i for i, ref in enumerate(refs) if locks_leader.info(ref).role == "leader"]
    assert leader == 0  # nobody who comes later takes its place
    assert told[0] == []
    eventually(lambda: told[1] == [("surrendered", new), *(("from_leader", each) for each in old)])
    assert told[2] == [("surrendered", new)]


# --- Several instances on a node ----------------------------------------------------------------


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_nothing_is_left_behind(nodes: Nodes, end: str) -> None:
    """When all have ended, after a split and a heal, there are no agents, locks, groups and names left."""
    made = nodes.meet(*NAMES[:3], mesh=False)
    members = [start_member(node) for node in made] + [
        start_member(node, role="worker") for node in made
    ]
    agreed(members)
    part([members[0], members[3]], [*members[1:3], *members[4:]])
    agreed([members[0], members[3]])
    join([members[0]], members[1:3])
    agreed(members)
    for member in members:
        if end == "stop":
            member.ref.stop()
        else:
            locks.actors.kill(member.ref)
    for node in made:
        eventually(lambda node=node: node.agents_by_id == {})  # type: ignore[misc]
        eventually(lambda node=node: node.statistics().table.entries == 0)  # type: ignore[misc]
        eventually(lambda node=node: locks.groups.which_groups(node=node) == [])  # type: ignore[misc]


def test_a_node_that_is_alone(nodes: Nodes) -> None:
    """An instance leads alone, and its node takes its end: calls to it fail, others are not needed."""
    node = nodes.start(NAMES[0])
    member = start_member(node)
    agreed([member])
    node.stop()
    eventually(lambda: not member.ref.is_alive() or member.info.role != "leader")


# --- Who leads, seen from outside -----------------------------------------------------------------


def test_who_leads_is_logged_and_counted(nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    """Elected, and stepped down, with their fields; the statistics of each node say who leads."""
    caplog.set_level(logging.INFO, "locks.leader")
    a, b = nodes.meet(*NAMES[:2])
    members = [start_member(a), start_member(b)]
    leader, (other,) = agreed(members)

    def leads(node: locks.node.Node) -> list[bool]:
        return [each.leads for each in node.statistics().leaders]

    def said(event: str) -> list[str]:
        found = [r for r in caplog.records if getattr(r, "event", None) == event]
        for record in found:
            assert EVENTS[event].fields.keys() <= vars(record).keys()
        return [vars(record)["node"] for record in found]

    by_member = dict(zip(members, (a, b), strict=True))
    first, second = by_member[leader], by_member[other]
    eventually(lambda: (leads(first), leads(second)) == ([True], [False]))
    eventually(lambda: first.name in said("elected"))
    leader.ref.stop()
    eventually(lambda: (leads(first), leads(second)) == ([], [True]))
    eventually(lambda: first.name in said("stepped_down"))
    eventually(lambda: second.name in said("elected"))
    assert [each.statistics().elected for each in (first, second)] == [1, 1]
