"""What must always be true in a world of elections, and what when nothing needs to happen any more.

Always:

* Who is elected has a larger term than all who were elected before it on one of its nodes, if it
  still has the lock there; and nobody ever has the term of another one with whom it has a node in
  common. So an observer that accepts a write only with a term that is not smaller than the largest
  that it has seen takes no writes of two leaders in turns.
* No two leaders have a node by the same grant.
* No instances wait for each other's state, or several in a circle.
* A call is carried out once at most.
* A call is answered once at most; when it was, it is neither passed on nor carried out where it was made.
* Only a leader broadcasts.
* `elected`, `stepped_down` and `surrendered` come in an order that makes sense; no candidate ever
  loses what it has (`locks_lab.leader.member`, `locks_lab.leader.application`).

When nothing needs to happen any more, each part in which all are connected with all has a leader if
its policy allows one, and only one. All in it follow this leader, have its term and the same
set, all calls are answered, and nobody has or wants the merge lock. Who was not sure any more is told
again, who has given up is answered. If nothing can have been lost, each cast was carried out.
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
        ref: Who was elected.
        nodes: The nodes of its ground.
    """

    term: int
    ref: MemberId
    nodes: frozenset[str]


class History:
    """What has happened so far.

    Attributes:
        elections: All elections.
        written: The calls that were carried out: by whom, with which term.
    """

    def __init__(self) -> None:
        self.elections: dict[WonElection, None] = {}
        self.written: dict[str, tuple[MemberId, int]] = {}

    def note(self, node: SimulatedNode, nodes: Mapping[str, SimulatedNode]) -> None:
        """Take in what has happened at a node, of all `nodes` that run."""
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
        for owner, entries in ((a.id, a.all()) for a in node.server.table.owners.values())
        if owner.node == ref.node
        for entry in entries
        if entry.slot.lock_id == CONTEST
    )


def check_polls(
    instances: Iterable[SimulatedInstance],
    seen: Mapping[tuple[str, str], Seen],
    nothing_on: Callable[[Link], bool],
) -> None:
    """No instances wait for each other; but one that is going to notice that it must not wait does no harm."""
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
    """No two leaders have a node by the same grant."""
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
    """When nothing needs to happen any more, each part has its leader, and all agree.

    Args:
        nodes: The nodes that run.
        seen: How each sees its connections.
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
            for owner in node.server.table.owners.values()
            for entry in owner.all()
            if entry.slot.lock_id == MERGE
        ]
        if wanted:
            raise Violation(f"the merge lock is left on {node.name}: {wanted}")


def check_casts(instances: Iterable[SimulatedInstance], history: History) -> None:
    """When nothing needs to happen any more, and nothing was lost: each cast was carried out."""
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
        if each.unsure:
            raise Violation(f"{each.ref} is not sure who leads, and is not told again")
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
