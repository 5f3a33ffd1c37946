"""Workers in processes that share out groups, and what tests wait for.

`python -m tests.leader.crew` prints how long groups are without an owner after a leave, a SIGKILL, and
the SIGKILL of the leader's process.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.cluster.harness import World
from tests.cluster.ledger import Ledger
from tests.helpers import LIMIT, eventually
from tests.leader.harness import Cluster, Member, everybody

__all__ = ["GROUPS", "Crew", "Employer", "even", "overlaps", "the_leader"]

GROUPS = 12


class Employer(Member):
    """A process with a node and workers."""

    program = "tests.leader.owner"


class Crew(Cluster):
    """Processes with workers, which can be connected and parted."""

    kind = Employer

    def hire(self, members: Sequence[Member], folder: Path, **options: Any) -> None:
        """Two workers on each, which have shared out all groups when this returns."""
        for answer in [m.ask("hire", path=str(folder), **options) for m in members]:
            answer.get()
        even(members, 2 * len(members))


def even(
    members: Iterable[Member], workers: int | None = None, limit: float = LIMIT
) -> dict[str, dict[str, int]]:
    """Wait until the workers of these, so many, own all groups evenly; returns who owns what."""
    members = list(members)
    found: dict[str, dict[str, int]] = {}

    def shared() -> bool:
        found.clear()
        for each in everybody(members, "owned"):
            found.update(each)
        groups = sorted(int(group) for owned in found.values() for group in owned)
        counts = [len(owned) for owned in found.values()]
        return (
            groups == list(range(GROUPS))
            and max(counts) - min(counts) <= 1
            and workers in (None, len(found))
        )

    try:
        eventually(shared, limit)
    except AssertionError:
        raise AssertionError(f"not even within {limit} s: {found}") from None
    return found


def the_leader(members: Sequence[Member]) -> tuple[Member, list[Member]]:
    """The process in which the leader is, and the others."""

    def find() -> Member | None:
        leads = everybody(members, "leads")
        return members[leads.index(True)] if leads.count(True) == 1 else None

    leader = eventually(find)
    assert leader is not None
    return leader, [member for member in members if member is not leader]


def written(members: Sequence[Member]) -> dict[str, Any]:
    """What all workers of these processes have done."""
    return {name: done for each in everybody(members, "done") for name, done in each.items()}


def counted(done: dict[str, Any]) -> dict[str, int]:
    """How writes went, all in all."""
    found: dict[str, int] = {}
    for _, counts in done.values():
        for what, number in counts.items():
            found[what] = found.get(what, 0) + number
    return found


def overlaps(done: dict[str, Any]) -> list[tuple[str, str, int]]:
    """Pairs of workers that had a task of the same group at hand at the same time."""
    tasks = sorted(
        (begun, ended, group, name)
        for name, (own, _) in done.items()
        for begun, ended, group in own
    )
    found = []
    last: dict[int, tuple[float, str]] = {}
    for begun, ended, group, name in tasks:
        until, other = last.get(group, (0.0, name))
        if begun < until and other != name:
            found.append((other, name, group))
        if ended >= until:
            last[group] = (ended, name)
    return found


def check_files(folder: Path) -> int:
    """No write was lost, and tokens rise; returns how many writes there were."""
    return sum(Ledger(folder / str(group)).check() for group in range(GROUPS))


def take_over(crew: Crew, folder: Path, how: str) -> float:
    """Seconds from a leave, or a SIGKILL, until the last group has an owner again."""
    members = crew.meet(3)
    crew.hire(members, folder, policy="majority", nodes=[member.name for member in members])
    leader, others = the_leader(members)
    if how == "leave":
        name = sorted(others[0].do("owned"))[0]
        at = others[0].do("dismiss", name=name)
        even(members)
        return float(max(everybody(members, "last_gain")) - at)
    victim = leader if how == "leader" else others[0]
    left = [member for member in members if member is not victim]
    at = victim.kill()
    crew.forget(victim)
    even(left)
    return float(max(everybody(left, "last_gain")) - at)


def main() -> None:
    """Print figures."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with World() as world:
        crew = Crew(world)
        for how in ("leave", "kill", "leader"):
            found = []
            for _ in range(times):
                with tempfile.TemporaryDirectory() as folder:
                    found.append(take_over(crew, Path(folder), how))
                    everybody(crew.meet(3), "end_all")
            milliseconds = [1000 * each for each in found]
            print(
                f"{how}: median {statistics.median(milliseconds):.0f} ms, "
                f"at most {max(milliseconds):.0f} ms"
            )


if __name__ == "__main__":
    main()
