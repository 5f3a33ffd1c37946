"""The invariants of a world of elections, and the checks when nothing needs to happen any more.

Always:

* A new leader has a larger term than all leaders that were elected before it on one of its nodes,
  if it still holds the lock there. Two leaders with a node in common never have the same term. So
  consider an observer that accepts a write only if its term is not smaller than the largest one
  seen so far: it never accepts writes of two leaders alternately.
* No two leaders have a node by the same grant.
* No instances wait for each other's state, neither two nor several in a cycle.
* A call is carried out at most once.
* A call is answered at most once. After the answer it is neither passed on, nor carried out at the
  instance where it was made.
* Only a leader broadcasts.
* `elected`, `stepped_down` and `surrendered` come in a sensible order; no candidate ever loses keys
  (`locks_lab.leader.member`, `locks_lab.leader.application`).

When nothing needs to happen any more, consider each part in which all nodes are connected with each
other. It has exactly one leader if its policy allows one. All instances in it follow this leader,
have its term and the same set. All calls are answered, and no instance holds or wants the merge
lock. A caller that gave up was answered. If no message can have been lost, each cast was carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from typing import Any, NamedTuple

from locks_lab.leader.member import CONTEST, MERGE, SimulatedInstance
from locks_lab.leader.node import SimulatedNode
from locks_lab.leader.parties import MemberId
from locks_lab.worlds.host import Violation
from locks_lab.worlds.network import Link, Seen
from locks_leader.core.contest import nodes_of
from locks_leader.core.events import Grants
from locks_leader.policy import Policy

__all__ = [
    "History",
    "WonElection",
    "check_casts",
    "check_grounds",
    "check_polls",
    "check_quiet",
    "parts",
]


class WonElection(NamedTuple):
    """An election.

    Attributes:
        term: The term.
        ref: The leader.
        nodes: The nodes of its ground.
    """

    term: int
    ref: MemberId
    nodes: frozenset[str]


class History:
    """The history of a world.

    Attributes:
        elections: All elections.
        written: The calls that were carried out: the leader, and its term.
    """

    def __init__(self) -> None:
        self.elections: dict[WonElection, None] = {}
        self.written: dict[str, tuple[MemberId, int]] = {}

    def note(self, node: SimulatedNode, nodes: Mapping[str, SimulatedNode]) -> None:
        """Add the events of a node; `nodes` are all running nodes."""
        if node.elections or node.written:
            self.take_in(node.elections, node.written, nodes)
            node.elections.clear()
            node.written.clear()

    def take_in(
        self,
        elections: Iterable[tuple[Any, ...]],
        written: Iterable[tuple[str, MemberId, int]],
        nodes: Mapping[str, SimulatedNode],
    ) -> None:
        """Take in elections and writes, as a node notes them."""
        for ref, term, ground, _ in elections:
            self._elected(WonElection(term, ref, nodes_of(ground)), ground, nodes)
        for key, ref, term in written:
            if key in self.written:
                raise Violation(f"the call for {key} is carried out twice: by {ref}, too")
            self.written[key] = (ref, term)

    def copy(self) -> History:
        """The same, to be changed."""
        new = History()
        new.elections = self.elections.copy()
        new.written = self.written.copy()
        return new

    @property
    def key(self) -> tuple[frozenset[Any], frozenset[Any]]:
        """Equal for equal histories."""
        return frozenset(self.elections), frozenset(self.written.items())

    def _elected(
        self, new: WonElection, ground: Grants, nodes: Mapping[str, SimulatedNode]
    ) -> None:
        if new in self.elections:
            return
        stands = all(_has(nodes.get(node), new.ref, since) for node, since in ground)
        for old in self.elections:
            if old.ref != new.ref and old.nodes & new.nodes:
                if old.term == new.term:
                    raise Violation(f"two leaders with the same term: {old} and {new}")
                if stands and old.term > new.term:
                    raise Violation(f"terms fall: {new} comes after {old}")
        self.elections[new] = None


def _has(node: SimulatedNode | None, ref: MemberId, since: int) -> bool:
    """Whether an instance has the lock on a node, by the grant of this version."""
    if node is None:
        return False
    return any(
        entry.granted and entry.since == since and owner.serial == ref.serial
        for owner, entries in ((a.id, a.all()) for a in node.server.table.requesters.values())
        if owner.node == ref.node
        for entry in entries
        if entry.slot.lock_id == CONTEST
    )


def check_polls(
    instances: Iterable[SimulatedInstance],
    seen: Mapping[tuple[str, str], Seen],
    nothing_on: Callable[[Link], bool],
) -> None:
    """Check that no instances wait for each other, unless one of them will soon notice that."""
    polling = {each.ref: each for each in instances if each.poll is not None}
    if len(polling) < 2:
        return

    def are_up(one: str, other: str) -> bool:
        return one == other or seen[one, other] == seen[other, one] == "up"

    def may(each: SimulatedInstance, node: str) -> bool:
        merged = each.merged
        there = {other for other in merged if are_up(each.ref.node, other)}
        wait = each.machine.policy.may_ask
        return wait(node, there) or not wait(node, merged)

    waits = {
        ref: [
            other
            for other in (() if each.poll is None else each.poll.waits)
            if other in polling
            and nothing_on((other, ref))
            and are_up(ref.node, other.node)
            and may(each, other.node)
        ]
        for ref, each in polling.items()
    }
    while waits:
        free = [ref for ref, others in waits.items() if not any(o in waits for o in others)]
        if not free:
            raise Violation(f"these wait for each other's state: {sorted(waits)}")
        for ref in free:
            del waits[ref]


def check_grounds(instances: Iterable[SimulatedInstance]) -> None:
    """Check that no two leaders have a node by the same grant."""
    leaders = [each for each in instances if each.machine.role == "leader"]
    for one, other in combinations(leaders, 2):
        both = one.machine.ground & other.machine.ground
        if both:
            raise Violation(f"{one.ref} and {other.ref} both lead by {sorted(both)}")


# --- When nothing needs to happen any more ------------------------------------------------------


Sight = Mapping[tuple[str, str], Seen]


def parts(nodes: Iterable[str], seen: Sight) -> list[frozenset[str]]:
    """The parts of the network in which all nodes are connected with all, and with no others."""
    near = {
        name: frozenset(
            other
            for other in nodes
            if other == name or (seen[name, other] == seen[other, name] == "up")
        )
        for name in nodes
    }
    return list(
        dict.fromkeys(part for part in near.values() if all(near[name] == part for name in part))
    )


def check_quiet(nodes: Mapping[str, SimulatedNode], seen: Sight, policy: Policy) -> None:
    """Check that each part has its leader, and that all agree, when nothing needs to happen any more.

    Args:
        nodes: The running nodes.
        seen: How each node sees its connections.
        policy: The election's policy.
    """
    for part in parts(nodes, seen):
        instances = [each for name in sorted(part) for each in nodes[name].instances.values()]
        _check_part(part, instances, policy)
    for node in nodes.values():
        for each in node.instances.values():
            unheard = each.cancelled.keys() - each.answers.keys()
            if unheard:
                raise Violation(f"callers of {each.ref} have given up in vain: {sorted(unheard)}")
        wanted = [
            str(owner.id)
            for owner in node.server.table.requesters.values()
            for entry in owner.all()
            if entry.slot.lock_id == MERGE
        ]
        if wanted:
            raise Violation(f"the merge lock is left on {node.name}: {wanted}")


def check_casts(instances: Iterable[SimulatedInstance], history: History) -> None:
    """Check at the end of a run without lost messages that each cast was carried out."""
    for each in instances:
        lost = {key for key in each.casts if key[0] == "c"} - history.written.keys()
        if lost and each.machine.leader is not None:
            raise Violation(f"casts through {each.ref} are lost: {sorted(lost)}")


def _check_part(part: frozenset[str], instances: list[SimulatedInstance], policy: Policy) -> None:
    leaders = [each for each in instances if each.machine.role == "leader"]
    may = policy.enough(policy.asked(part))
    expected = int(may and any(each.machine.kind == "candidate" for each in instances))
    where = "+".join(sorted(part))
    if len(leaders) != expected:
        states = ", ".join(f"{each.ref} {_state(each)}" for each in instances)
        raise Violation(
            f"{len(leaders)} leaders in {where} when all is quiet, not {expected}: {states}"
        )
    leader = leaders[0] if leaders else None
    for each in instances:
        machine = each.machine
        if machine.leader != (None if leader is None else leader.ref):
            raise Violation(f"{each.ref} follows {machine.leader}, not the leader of {where}")
        if leader is None:
            continue
        if machine.term != leader.machine.term:
            raise Violation(f"{each.ref} has term {machine.term}, its leader {leader.machine.term}")
        if each is not leader and machine.role != "following":
            raise Violation(f"{each.ref} is led by {leader.ref}, and is {machine.role}")
        if each.app.keys != leader.app.keys:
            differ = sorted(each.app.keys ^ leader.app.keys)
            raise Violation(f"{each.ref} and its leader {leader.ref} differ in {differ}")
        unanswered = each.calls.keys() - each.answers.keys()
        if unanswered:
            raise Violation(f"calls through {each.ref} are not answered: {sorted(unanswered)}")


def _state(instance: SimulatedInstance) -> Any:
    machine = instance.machine
    contest = "none"
    if instance.contest is not None:
        infos = instance.contest.lock_info()
        contest = f"{instance.contest.status()} on {[*infos[0].granted] if infos else []}"
    merge = "none" if instance.merge is None else instance.merge.status()
    return f"({machine.role}, led by {machine.leader}, contest {contest}, merge {merge})"
