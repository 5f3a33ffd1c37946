"""Elections over nodes that are processes: the original's cases, and ends of all kinds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.ledger import Ledger
from tests.helpers import eventually
from tests.leader.harness import (
    Cluster,
    Member,
    agreed,
    error_of,
    everybody,
    have,
    nobody_leads,
    store,
    the_leader,
)


def settle(cluster: Cluster, number: int, **options: Any) -> list[Member]:
    """So many members that agree on a leader."""
    members = cluster.meet(number)
    cluster.stand(members, **options)
    agreed(members)
    return members


# --- The original's cases -----------------------------------------------------------------------


@pytest.mark.parametrize("number", [2, 5])
def test_gdict_all_nodes(cluster: Cluster, number: int) -> None:
    """All nodes see what one of them has written."""
    members = cluster.meet(number)
    cluster.stand(members)
    store(members[0], "a")
    have(members, a=1)


@pytest.mark.parametrize("number", [3, 5])
def test_gdict_netsplit(cluster: Cluster, number: int) -> None:
    """Two nodes and the others begin apart, and write; when they meet, both writes are everywhere."""
    members = cluster.meet(number)
    two, rest = members[:2], members[2:]
    cluster.part(two, rest)
    cluster.stand(members)
    agreed(two)
    agreed(rest)
    store(two[0], "a", 1)
    store(rest[0], "b", 2)
    have(two, a=1)
    have(rest, b=2)
    cluster.join(members)
    agreed(members)
    have(members, a=1, b=2)


# --- Ends ---------------------------------------------------------------------------------------


def test_a_killed_process(cluster: Cluster) -> None:
    """SIGKILL of the leader's process: another one leads in a larger term, with the state."""
    members = settle(cluster, 3)
    store(members[0], "a")
    leader, others = the_leader(members)
    have(members, a=1)
    term = agreed(members)["term"]
    leader.kill()
    cluster.forget(leader)
    assert agreed(others)["term"] > term
    have(others, a=1)
    store(others[0], "b")
    have(others, a=1, b=1)


@pytest.mark.parametrize("end", ["crash", "kill", "end_instance", "stop_node"])
def test_the_end_of_a_leader(cluster: Cluster, end: str) -> None:
    """A callback raises, or the instance is killed or stopped, or its node: another one leads."""
    members = settle(cluster, 3)
    store(members[0], "a")
    leader, others = the_leader(members)
    have(members, a=1)
    leader.do(end)
    info = agreed(others)
    assert info["candidates"] == 1
    have(others, a=1)
    assert [journal["downs"] for journal in everybody(others, "journal")] == [1, 1]
    if end == "stop_node":
        leader.kill()
        cluster.forget(leader)


@pytest.mark.slow
def test_a_stopped_process(cluster: Cluster, tmp_path: Path) -> None:
    """SIGSTOP of a leader that needs a majority: the others elect; it steps down when it goes on. Terms fence what all leaders write."""
    members = cluster.meet(3)
    names = [member.name for member in members]
    cluster.stand(members, policy="majority", nodes=names)
    leader, others = the_leader(members)
    ledger = Ledger(path := tmp_path / "fence")
    everybody(members, "write", path=str(path))
    eventually(ledger.check)
    first = agreed(members)["term"]
    leader.stop()
    second = agreed(others)
    assert second["term"] > first
    own = f" {second['term']} {second['leader_node']}"
    eventually(lambda: path.read_text().rstrip().endswith(own))
    leader.go_on()
    agreed(members)  # they dial each other again
    journal = leader.do("journal")
    assert [what for _, what, _ in journal["events"]][-2:] == ["stepped_down", "surrendered"]
    everybody(members, "end_all")
    ledger.check()


# --- Workers ------------------------------------------------------------------------------------


def test_workers_follow_each_new_leader(cluster: Cluster) -> None:
    """Workers learn of each leader, get what it broadcasts, and never lead."""
    members = cluster.meet(4)
    stand, work = members[:2], members[2:]
    resource = cluster.stand(work, role="worker")
    nobody_leads(work)
    cluster.stand(stand, resource)
    agreed(members, workers=work)
    store(work[0], "a")
    have(members, a=1)
    leader, others = the_leader(members, workers=work)
    leader.do("kill")
    agreed(others, workers=work)
    store(work[1], "b")
    have(others, a=1, b=1)
    (last,) = [member for member in others if member not in work]
    last.do("end_instance")
    nobody_leads(work)
    assert [info["workers"] for info in everybody(work, "info")] == [1, 1]


# --- Calls --------------------------------------------------------------------------------------


def test_leader_call_through_any_instance(cluster: Cluster) -> None:
    """Whoever is asked, the leader answers: a value, an exception, or something later."""
    members = settle(cluster, 3)
    leader, others = the_leader(members)
    for number, member in enumerate(members):
        store(member, f"k{number}")
    have(members, k0=1, k1=1, k2=1)
    for member in members:
        answer = member.ask("leader_call", request=["fail"])
        kind = "ValueError" if member is leader else "RemoteError"
        assert "as it was asked to" in error_of(answer, kind)
    later = [m.ask("leader_call", client="waits", request=["hold", m.name]) for m in members]
    eventually(lambda: executed(leader, *(m.name for m in members)) == [1, 1, 1])
    others[0].do("leader_cast", message=["release", 17])
    assert [answer.get() for answer in later] == [17, 17, 17]


def executed(member: Member, *keys: str) -> list[int]:
    """How often requests were carried out on a member."""
    counts = member.do("journal", client="looks")["executed"]
    return [counts.get(key, 0) for key in keys]


def test_the_leader_dies_in_the_middle_of_a_call(cluster: Cluster) -> None:
    """Callers get `LeaderDied`, wherever they are, and the call is not carried out again."""
    members = settle(cluster, 3)
    leader, others = the_leader(members)
    calls = [m.ask("leader_call", client="waits", request=["hold", m.name]) for m in members]
    eventually(lambda: executed(leader, *(m.name for m in members)) == [1, 1, 1])
    leader.do("kill")
    for member, answer in zip(members, calls, strict=True):
        assert "it is unknown whether" in error_of(answer, "LeaderDied"), member.name
    agreed(others)
    store(others[0], "a")
    have(others, a=1)
    for member in others:
        assert executed(member, *(m.name for m in members)) == [0, 0, 0]


def test_a_call_waits_for_a_leader(cluster: Cluster) -> None:
    """Without a leader a call waits; it is carried out once, by the one that comes."""
    members = cluster.meet(3)
    names = [member.name for member in members]
    cluster.part(members[:1], members[1:2], members[2:])
    cluster.stand(members, policy="majority", nodes=names)
    calls = [m.ask("leader_call", client="waits", request=["store", m.name, 1]) for m in members]
    nobody_leads(members)
    assert not any(answer.ready for answer in calls)
    cluster.join(members)
    assert [answer.get() for answer in calls] == ["ok"] * 3
    have(members, **dict.fromkeys(names, 1))
    assert counted(members, names) == [1, 1, 1]


def counted(members: Sequence[Member], keys: Sequence[str]) -> list[int]:
    """How often requests were carried out, on all members together."""
    return [sum(each) for each in zip(*(executed(m, *keys) for m in members), strict=True)]


def test_a_call_that_timed_out_is_not_carried_out(cluster: Cluster) -> None:
    """A call that waits for a leader in vain raises `LeaderTimeout`, and is withdrawn."""
    members = cluster.meet(2)
    names = [member.name for member in members]
    cluster.part(members[:1], members[1:])
    cluster.stand(members, policy="majority", nodes=names)
    answer = members[0].ask("leader_call", request=["store", "late", 1], timeout=0.1)
    error_of(answer, "LeaderTimeout")
    cluster.join(members)
    agreed(members)
    for number, member in itertools.product(range(2), members):
        store(member, f"{number} {member.name}")
    assert counted(members, ["late"]) == [0]
    assert "late" not in members[0].do("content")


def test_a_call_that_the_leader_has_in_hand_times_out(cluster: Cluster) -> None:
    """The leader may have it in hand: `LeaderTimeout` says so, and its late answer disturbs nobody."""
    members = settle(cluster, 2)
    leader, (other,) = the_leader(members)
    answer = other.ask("leader_call", request=["hold", "x"], timeout=1)
    assert "still be working on it" in error_of(answer, "LeaderTimeout")
    leader.do("leader_cast", message=["release", 17])
    store(other, "a")
    assert executed(leader, "x") == [1]


def test_calls_while_leaders_die(cluster: Cluster) -> None:
    """Calls go on while one leader after the other is killed: none is carried out twice, none lost.

    A call that was answered has been carried out exactly once on those that are left or were left
    behind; one that got `LeaderDied` once at most.
    """
    members = settle(cluster, 3)
    everywhere = list(members)
    answers = {}
    for number in range(30):
        key = f"k{number}"
        member = members[number % len(members)]
        answers[key] = member.ask("leader_call", client="calls", request=["store", key, 1])
        if number in (9, 19):
            leader, members = the_leader(members)
            leader.do("kill")
    counts = counted(everywhere, list(answers))
    eventually(lambda: all(answer.ready for answer in answers.values()))
    counts = counted(everywhere, list(answers))
    done = set()
    for (key, answer), count in zip(answers.items(), counts, strict=True):
        message = answer.message()
        if "result" in message:
            assert count == 1, key
            done.add(key)
        else:
            assert message["error"][0] in ("LeaderDied", "ActorDeadError")
            assert count <= 1, key
    (last,) = members
    assert done <= last.do("content").keys()
