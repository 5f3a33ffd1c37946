"""What callbacks see of an election, how calls are answered, and misuse."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import locks
import locks_leader
from locks_leader import (
    NO_REPLY,
    ElectionState,
    NotLeader,
    quorum,
)
from tests.cluster.nodes import Nodes
from tests.helpers import eventually
from tests.leader.gdict import Crash, GDict, Journal
from tests.leader.members import NAMES, Member, Ref, agreed, start_member

# --- What callbacks see -------------------------------------------------------------------------


class Sees(GDict):
    """Writes down what the election looks like in `elected`."""

    def elected(self, election: ElectionState, newcomer: Ref | None) -> Any:
        seen = (
            election.role,
            election.leader == election.me,
            election.leader_node,
            len(election.candidates),
            len(election.new_candidates),
            len(election.workers),
            len(election.alive),
            election.term > 0,
        )
        self.journal.seen.append(seen)
        return super().elected(election, newcomer)

    def handle_call(self, request: Any, caller: Any, election: ElectionState) -> Any:
        if request == "broadcast":
            election.broadcast("x")
        if request == "ask":
            election.ask_candidates(("content",))
        if request == "stop":
            election.stop()
            return "stopping"
        return super().handle_call(request, caller, election)


def monitored(by: locks.node.Node, member: Member) -> bool:
    """Whether a node monitors an instance of another one."""
    assert by.cluster is not None
    there = [node for node, _ in list(by.cluster.actors._monitors.values())]
    return there.count(member.node.name) > 1  # one is of the process groups


def test_process_groups_report_the_ends_of_instances(nodes: Nodes) -> None:
    """So an election leaves no monitors between its nodes, and the end of an instance is noticed."""
    a, b = nodes.meet(*NAMES[:2])
    leader, (other,) = agreed([start_member(a), start_member(b)])
    eventually(lambda: not monitored(leader.node, other))  # it was while the leader asked it
    assert not monitored(other.node, leader)
    other.ref.stop()
    eventually(lambda: not leader.info.candidates)


def test_what_elected_sees(nodes: Nodes) -> None:
    """When elected it is syncing, and leads itself already; whoever was not told that yet is new."""
    a, b = nodes.meet(*NAMES[:2], mesh=False)
    start_member(b, role="worker")
    first = start_member(a, Sees)
    agreed([first])
    eventually(lambda: first.info.workers)
    second = start_member(b)
    agreed([first, second])
    for seen in first.journal.seen:
        assert seen[1:3] == (True, a.name)
        assert seen[-1] is True  # there is a term
    assert first.journal.seen[0][0] == "syncing"
    role, _, _, candidates, new, workers, followers, _ = first.journal.seen[-1]
    assert (role, candidates, new, workers) == ("leader", 1, 1, 1)
    assert followers == 1  # the worker; the newcomer is not told yet
    assert first.info.new_candidates == []


class LosesTheMergeLock(GDict):
    """Somebody stops the agent of its merge lock while it is elected for the first time."""

    def elected(self, election: ElectionState, newcomer: Ref | None) -> Any:
        if not self.journal.brief:
            agent = election._instance.transactions._merge  # type: ignore[attr-defined]
            assert agent is not None
            agent.stop()
        return super().elected(election, newcomer)


def test_the_merge_lock_is_lost_within_elected(nodes: Nodes) -> None:
    """Candidates that it asks may not be waited for then, so it does not hand anything over: it steps down."""
    member = start_member(nodes.start(NAMES[0]), LosesTheMergeLock)
    eventually(lambda: len(member.journal.brief) > 1)
    agreed([member])
    assert member.journal.brief == ["elected", "stepped_down", "elected"]
    member.journal.check()


def test_misuse_within_callbacks(nodes: Nodes) -> None:
    """Only the leader broadcasts; candidates are asked in `elected` only. Nothing else happens."""
    made = nodes.meet(*NAMES[:2], mesh=False)
    members = [start_member(node, Sees) for node in made]
    leader, (follower,) = agreed(members)
    with pytest.raises(NotLeader):
        locks_leader.call(follower.ref, "broadcast")
    for member in members:
        with pytest.raises(locks.MisuseError, match="only in elected"):
            locks_leader.call(member.ref, "ask")
    assert agreed(members)[0] is leader
    assert locks_leader.call(leader.ref, "stop") == "stopping"
    agreed([follower])
    eventually(lambda: leader.journal.reason == "normal")


def test_a_callback_that_raises(nodes: Nodes) -> None:
    """It ends the instance, after `terminate`; a call that raises goes to the caller only."""
    member = start_member(nodes.start(NAMES[0]))
    agreed([member])
    for call in (locks_leader.call, locks_leader.leader_call):
        with pytest.raises(ValueError, match="as it was asked to"):
            call(member.ref, ("fail",))
    assert member.ref.is_alive()
    locks_leader.cast(member.ref, "crash")
    eventually(lambda: not member.ref.is_alive())
    eventually(lambda: isinstance(member.journal.reason, Crash))


def test_answers_from_another_thread(nodes: Nodes) -> None:
    """A call is answered later, by whoever has its caller; the first answer counts."""
    callers = []

    class Later(GDict):
        def handle_leader_call(self, request: Any, caller: Any, election: ElectionState) -> Any:
            callers.append(caller)
            return NO_REPLY

    made = nodes.meet(*NAMES[:2], mesh=False)
    members = [start_member(node, Later) for node in made]
    leader, (follower,) = agreed(members)

    def answer() -> None:
        eventually(lambda: len(callers) == 2)
        for caller in callers:
            locks_leader.leader_reply(caller, 17)
            locks_leader.leader_reply(caller, 18)

    def ask(ref: Ref, answers: list[Any]) -> None:
        answers.append(locks_leader.leader_call(ref, ("x",)))

    answers: list[Any] = []
    threads = [threading.Thread(target=answer)]
    threads += [threading.Thread(target=ask, args=(m.ref, answers)) for m in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert answers == [17, 17]
    assert leader.info.role == "leader"
    assert follower.info.role == "following"


# --- Misuse of `start` --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "options", "says"),
    [
        (object, {}, "subclass"),
        (GDict(), {}, "subclass"),
        (GDict, {"role": "boss"}, "role='boss'"),
        (GDict, {"policy": "anarchy"}, "anarchy"),
        (GDict, {"policy": "majority"}, "needs nodes"),
        (GDict, {"nodes": "a@b"}, "nodes='a@b'"),
        (GDict, {"nodes": []}, r"nodes=\[\]"),
        (GDict, {"nodes": 5}, "nodes=5"),
        (GDict, {"nodes": [["a@b"]]}, r"nodes=\[\['a@b'\]\]"),
        (GDict, {"node": "a@b"}, "node='a@b' is not a node"),
        (GDict, {"policy": quorum(3), "nodes": ["a@b"]}, "is not a quorum"),
        (GDict, {"resource": object()}, "resource=<object"),
        (GDict, {"resource": ["r"]}, "resource="),
    ],
)
def test_options_that_are_wrong(
    nodes: Nodes, behaviour: Any, options: dict[str, Any], says: str
) -> None:
    """`start` says what is wrong with which value, and starts nothing."""
    node = nodes.start(NAMES[0])
    with pytest.raises(locks.LocksError, match=says):
        locks_leader.start(behaviour, Journal(), **{"node": node, **options})
    assert node.agents_by_id == {}


@pytest.mark.parametrize("number", [0, -1, 1.5, True, "2"])
def test_a_quorum_that_is_none(number: Any) -> None:
    """A quorum is a positive number."""
    with pytest.raises(locks.errors.InvalidOption, match="1 or more"):
        quorum(number)


def test_an_init_that_raises(nodes: Nodes) -> None:
    """`start` raises it, and nothing is left."""

    class Fails(GDict):
        def init(self, journal: Journal, pause: float = 0) -> None:
            raise Crash("in init")

    node = nodes.start(NAMES[0])
    with pytest.raises(Crash, match="in init"):
        start_member(node, Fails)
    eventually(lambda: node.agents_by_id == {})
    other = start_member(node)
    assert agreed([other])[0].info.candidates == []


def test_a_name(nodes: Nodes) -> None:
    """Other nodes reach an instance by its name; a name that is taken is refused, and nothing left."""
    a, b = nodes.meet(*NAMES[:2], mesh=False)
    member = start_member(a, name="dict")
    agreed([member])
    with pytest.raises(locks.MisuseError, match=r"can't use the name 'dict': .* has it"):
        start_member(a, name="dict")
    eventually(lambda: member.info.candidates == [])
    remote = b.remote("dict", a.name)
    assert locks_leader.leader_call(remote, ("store", "a", 1)) == "ok"
    assert locks_leader.call(remote, ("content",)) == {"a": 1}
    assert locks_leader.info(remote).role == "leader"
