"""Ownership among workers in processes: ends of all kinds, and parted networks, with a store that fences."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import EXPLORE, SEED, eventually
from tests.leader.harness import (
    Cluster,
    Member,
    check_files,
    counted,
    even,
    everybody,
    leading,
    overlaps,
    written,
)

STEPS = 300 if EXPLORE else 8


def majority(members: list[Member]) -> dict[str, Any]:
    """The policy of more than half of these."""
    return {"policy": "majority", "nodes": [member.name for member in members]}


def progress(members: list[Member]) -> None:
    """Wait until all have done some more."""
    before = counted(written(members)).get("written", 0)
    eventually(lambda: counted(written(members)).get("written", 0) > before + 20)


def test_a_killed_process(cluster: Cluster, tmp_path: Path) -> None:
    """SIGKILL of the leader's process: its groups are taken over at once, all others stay.

    A few agreements are enough, though each worker has several groups.
    """
    members = cluster.meet(3)
    cluster.hire(members, tmp_path, **majority(members))
    leader, others = leading(members)
    progress(members)
    agreements = max(everybody(others, "agreements"))
    before = even(members)
    moves = everybody(others, "moves")
    leader.kill()
    cluster.forget(leader)
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


@pytest.mark.slow
def test_a_stopped_process(cluster: Cluster, tmp_path: Path) -> None:
    """SIGSTOP in the middle of tasks: others take over; when it goes on, its writes are refused."""
    members = cluster.meet(3)
    cluster.hire(members, tmp_path, pause=0.02, **majority(members))
    progress(members)
    stopped, *others = members
    stopped.stop()
    even(others)
    before = counted(written(others))["written"]
    eventually(lambda: counted(written(others))["written"] > before + 20)
    stopped.go_on()
    eventually(lambda: counted(written([stopped])).get("refused", 0) > 0)
    cluster.forget(stopped)
    cluster.join(members)
    even(members)
    progress([stopped])
    done = written(members)
    everybody(members, "end_all")
    assert "refused" not in counted({n: d for n, d in done.items() if n in written(others)})
    assert set(counted(done)) <= {"written", "refused", "not owner"}
    check_files(tmp_path)


@pytest.mark.slow
def test_random_faults(cluster: Cluster, tmp_path: Path) -> None:
    """Splits, kills, pauses, workers that come and go, before all have settled: no write is lost."""
    chance = random.Random(SEED)
    members = cluster.meet(3)
    policy = majority(members)
    cluster.hire(members, tmp_path, **policy)
    for _ in range(STEPS):
        member = chance.choice(members)
        what = chance.choice(["part", "flap", "kill", "pause", "dismiss", "hire", "wait"])
        print(what, member.name, flush=True)
        others = [other for other in members if other is not member]
        if what == "part":
            cluster.part([member], others)
            if chance.random() < 0.5:
                even(others)
            cluster.join(members)
        elif what == "flap":
            cluster.flap([member], others)
            cluster.join(members)
        elif what == "kill":
            member.kill()
            cluster.forget(member)
            again = cluster.restart(member)
            members[members.index(member)] = again
            cluster.join(members)
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
