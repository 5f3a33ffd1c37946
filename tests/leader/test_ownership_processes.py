"""Ownership among workers in processes: ends of all kinds, and parted networks, with a store that fences."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.harness import World
from tests.helpers import EXPLORE, SEED, eventually
from tests.leader.crew import (
    Crew,
    check_files,
    counted,
    even,
    overlaps,
    take_over,
    the_leader,
    written,
)
from tests.leader.harness import Member, everybody
from tests.leader.kills import kill_one_by_one

STEPS = 300 if EXPLORE else 8


@pytest.fixture(scope="module")
def processes() -> Iterator[Crew]:
    """A pool of processes."""
    with World() as world:
        yield Crew(world)


@pytest.fixture
def crew(processes: Crew) -> Crew:
    """The pool; how a test has left it does not matter."""
    return processes


def majority(members: list[Member]) -> dict[str, Any]:
    """The policy of more than half of these."""
    return {"policy": "majority", "nodes": [member.name for member in members]}


def progress(members: list[Member]) -> None:
    """Wait until all have done some more."""
    before = counted(written(members)).get("written", 0)
    eventually(lambda: counted(written(members)).get("written", 0) > before + 20)


def tasks(members: list[Member]) -> dict[str, int]:
    """How many tasks each worker has begun and ended."""
    return {name: len(own) for name, (own, _) in written(members).items()}


def test_workers_that_come_and_go(crew: Crew, tmp_path: Path) -> None:
    """Two workers on each of three nodes share twelve groups; one leaves, and two come.

    No two have a task of a group at hand at the same time, and no write is refused.
    """
    members = crew.meet(3)
    crew.hire(members, tmp_path, **majority(members))
    owned = even(members)
    assert [len(each) for each in owned.values()] == [2] * 6
    progress(members)
    members[0].do("dismiss", name=sorted(members[0].do("owned"))[0])
    even(members, 5)
    members[1].do("hire", path=str(tmp_path), **majority(members))
    even(members, 7)
    progress(members)
    done = written(members)
    everybody(members, "end_all")
    assert overlaps(done) == []
    assert set(counted(done)) <= {"written", "not owner"}
    check_files(tmp_path)


def test_a_killed_process(crew: Crew, tmp_path: Path) -> None:
    """SIGKILL of the leader's process: its groups are taken over at once, all others stay.

    A few agreements are enough, though each worker has several groups.
    """
    members = crew.meet(3)
    crew.hire(members, tmp_path, **majority(members))
    leader, others = the_leader(members)
    progress(members)
    agreements = max(everybody(others, "agreements"))
    before = even(members)
    moves = everybody(others, "moves")
    leader.kill()
    crew.forget(leader)
    after = even(others, 4)
    assert all(before[name].keys() <= after[name].keys() for name in after)
    now = everybody(others, "moves")
    assert sum(gained for gained, _ in now) == sum(gained for gained, _ in moves) + 4
    assert sum(lost for _, lost in now) == sum(lost for _, lost in moves)
    for name, owned in after.items():
        for group, token in owned.items():
            assert token > max(each.get(group, 0) for each in before.values()), name
    assert max(everybody(others, "agreements")) <= agreements + 3
    progress(others)
    done = written(others)
    everybody(others, "end_all")
    assert overlaps(done) == []
    assert "refused" not in counted(done)
    check_files(tmp_path)


@pytest.mark.parametrize("how", ["leave", "kill", "leader"])
def test_groups_are_taken_over(crew: Crew, tmp_path: Path, how: str) -> None:
    """After a leave, a SIGKILL, and the SIGKILL of the leader each group has an owner again.

    How long it takes is printed by `python -m tests.leader.crew`.
    """
    take_over(crew, tmp_path, how)


@pytest.mark.slow
def test_a_stopped_process(crew: Crew, tmp_path: Path) -> None:
    """SIGSTOP in the middle of tasks: others take over; when it goes on, its writes are refused."""
    members = crew.meet(3)
    crew.hire(members, tmp_path, pause=0.02, **majority(members))
    progress(members)
    stopped, *others = members
    stopped.stop()
    even(others)
    before = counted(written(others))["written"]
    eventually(lambda: counted(written(others))["written"] > before + 20)
    stopped.go_on()
    eventually(lambda: counted(written([stopped])).get("refused", 0) > 0)
    crew.forget(stopped)
    crew.join(members)
    even(members)
    progress([stopped])
    done = written(members)
    everybody(members, "end_all")
    assert "refused" not in counted({n: d for n, d in done.items() if n in written(others)})
    assert set(counted(done)) <= {"written", "refused", "not owner"}
    check_files(tmp_path)


def test_a_majority_goes_on_alone(crew: Crew, tmp_path: Path) -> None:
    """A part of one of three begins nothing, the other two do all; after the heal all share again."""
    members = crew.meet(3)
    crew.hire(members, tmp_path, **majority(members))
    leader, others = the_leader(members)
    crew.part([leader], others)
    even(others)
    eventually(lambda: not any(leader.do("owned").values()) and not leader.do("at_hand"))
    begun = tasks([leader])
    progress(others)
    assert tasks([leader]) == begun
    crew.join(members)
    even(members, 6)
    progress([leader])
    done = written(members)
    everybody(members, "end_all")
    assert set(counted(done)) <= {"written", "refused", "not owner"}
    check_files(tmp_path)


def test_islands(crew: Crew, tmp_path: Path) -> None:
    """Under "island" each part owns all groups; after the heal each has one owner, a larger token."""
    members = crew.meet(3)
    crew.hire(members, tmp_path)
    parts = [members[:1], members[1:]]
    crew.part(*parts)
    apart = [even(part) for part in parts]
    crew.join(members)
    newest = max(token for part in apart for owned in part.values() for token in owned.values())
    eventually(
        lambda: all(t > newest for owned in even(members, 6).values() for t in owned.values())
    )
    everybody(members, "end_all")


@pytest.mark.slow
def test_random_faults(crew: Crew, tmp_path: Path) -> None:
    """Splits, kills, pauses, workers that come and go, before all have settled: no write is lost."""
    chance = random.Random(SEED)
    members = crew.meet(3)
    policy = majority(members)
    crew.hire(members, tmp_path, **policy)
    for _ in range(STEPS):
        member = chance.choice(members)
        what = chance.choice(["part", "flap", "kill", "pause", "dismiss", "hire", "wait"])
        print(what, member.name, flush=True)
        others = [other for other in members if other is not member]
        if what == "part":
            crew.part([member], others)
            if chance.random() < 0.5:
                even(others)
            crew.join(members)
        elif what == "flap":
            crew.flap([member], others)
            crew.join(members)
        elif what == "kill":
            member.kill()
            crew.forget(member)
            again = crew.restart(member)
            members[members.index(member)] = again
            crew.join(members)
            again.do("hire", path=str(tmp_path), **policy)
        elif what == "pause":
            member.stop()
            time.sleep(chance.random() * 0.3)  # too short to be taken for dead
            member.go_on()
        elif what == "dismiss":
            mine = sorted(member.do("owned"))
            if len(mine) > 1:
                member.do("dismiss", name=mine[0])
        elif what == "hire" and len(member.do("owned")) < 3:
            member.do("hire", path=str(tmp_path), count=1, **policy)
        elif what == "wait":
            even(members)
    even(members)
    progress(members)
    done = written(members)
    everybody(members, "end_all")
    assert set(counted(done)) <= {"written", "refused", "not owner"}, counted(done)
    assert check_files(tmp_path) > 0


@pytest.mark.explore
def test_one_after_the_other_is_killed(crew: Crew, tmp_path: Path) -> None:
    """In the middle of tasks, and before all has settled: no two at a group at once, and no write is lost or refused."""
    found = kill_one_by_one(crew, tmp_path, 100 if STEPS > 100 else 15, SEED)
    assert not found["problems"], found
    assert found["writes"] > 100
