"""Ownership of processes that are killed: no two have a task of a group at hand at once, and no write is lost.

    python -m tests.leader.kills --kills 57 --seed 17

Three processes with two workers each share twelve groups; one after the other gets SIGKILL in the middle of its tasks, the leader's as
well, sometimes before all has settled, and another one takes its place. Prints what has happened, as JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.cluster.harness import World
from tests.helpers import eventually
from tests.leader.crew import Crew, check_files, counted, even, overlaps, the_leader, written
from tests.leader.harness import Member, everybody

__all__ = ["kill_one_by_one"]


def kill_one_by_one(crew: Crew, folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """Kill processes and replace them.

    Args:
        crew: The processes.
        folder: Where their files are.
        kills: How often.
        seed: Which ones.

    Returns:
        How many tasks were done and writes taken, and what is wrong.
    """
    chance = random.Random(seed)
    members = crew.meet(3)
    policy: dict[str, Any] = {"policy": "majority", "nodes": [member.name for member in members]}
    crew.hire(members, folder, pause=0.001, **policy)
    done: dict[str, Any] = {}  # what the dead have told before
    for number in range(kills):
        if chance.random() < 0.5:
            _progress(members)
        leader, others = the_leader(members)
        victim = leader if chance.random() < 0.5 else chance.choice(others)
        done |= {f"{name} {number}": told for name, told in victim.do("done").items()}
        victim.kill()
        crew.forget(victim)
        again = crew.restart(victim)
        members[members.index(victim)] = again
        crew.join(members)
        again.do("hire", path=str(folder), pause=0.001, **policy)
        if chance.random() < 0.5:
            even(members, 6)
    even(members, 6)
    _progress(members)
    done |= written(members)
    everybody(members, "end_all")
    counts = counted(done)
    wrong: list[Any] = [what for what in counts if what not in ("written", "not owner")]
    return {
        "kills": kills,
        "tasks": sum(len(own) for own, _ in done.values()),
        "writes": check_files(folder),
        "problems": [*wrong, *overlaps(done)],
    }


def _progress(members: Sequence[Member]) -> None:
    """Wait until all have done some more."""
    before = counted(written(members)).get("written", 0)
    eventually(lambda: counted(written(members)).get("written", 0) > before + 20)


def main() -> int:
    """Run it; 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.leader.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, World() as world:
        found = kill_one_by_one(Crew(world), Path(folder), options.kills, options.seed)
    print(json.dumps({"seed": options.seed, **found}))
    return 1 if found["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
