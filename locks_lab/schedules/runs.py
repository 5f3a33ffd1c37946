"""Running the worlds of many seeds, with statistics."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from locks_lab.schedules.plan import ANY, Plan, Shape, plan
from locks_lab.schedules.schedule import POLICIES, run
from locks_lab.worlds.events import Choice
from locks_lab.worlds.rules import OURS, Rule
from locks_lab.worlds.world import World

__all__ = ["FailedRun", "Tally", "run_plan", "run_seeds"]


class FailedRun(NamedTuple):
    """A failed run.

    Attributes:
        seed: Its seed.
        plan: Its world.
        schedule: Its events up to the failure.
        error: The failure.
    """

    seed: int
    plan: Plan
    schedule: list[Choice]
    error: Exception


class Tally:
    """Statistics of many worlds.

    Attributes:
        seen: The numbers of worlds, events, deadlocks and so on, by name.
        events: The number of events, by kind.
        messages: The number of messages, by kind.
    """

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.messages: Counter[str] = Counter()

    def add(self, plan: Plan, world: World, schedule: list[Choice]) -> None:
        """Add the statistics of a world that has run."""
        kinds = Counter(kind for kind, _ in schedule)
        self.events.update(kinds)
        self.messages.update(world.sent)
        deadlocks, superfluous = len(world.carried_out), len(world.superfluous)
        self.seen.update(
            {
                "worlds": 1,
                "events": len(schedule),
                "deadlocks": deadlocks,
                "aborts": world.aborts,
                "superfluous": superfluous,
                "outdated": len(world.outdated),
                "failed": sum(client.failed for client in world.clients),
                "tokens": world.tokens,
                "losses": world.losses,
                f"deadlocks {plan.policy}": deadlocks,
                f"superfluous {plan.policy}": superfluous,
                "worlds with several nodes": len(plan.nodes) > 1,
                "worlds with client nodes": not {*plan.homes} <= {*plan.nodes},
                "worlds with faults": bool(kinds["cut"] or kinds["crash"]),
                "worlds with deadlocks": deadlocks > 0,
            }
        )

    def lines(self) -> list[str]:
        """The statistics as lines of text."""
        seen, events = self.seen, self.events
        by_policy = ", ".join(
            f"{policy} {share(seen[f'superfluous {policy}'], seen[f'deadlocks {policy}'])}"
            for policy in POLICIES
            if seen[f"deadlocks {policy}"]
        )
        faults = ", ".join(
            f"{events[kind]:,} {name}"
            for kind, name in (
                ("crash", "crashes of nodes"),
                ("cut", "cuts of connections"),
                ("die", "deaths of clients"),
            )
        )
        return [
            f"worlds       {seen['worlds']:,}, {seen['worlds with deadlocks']:,} of them with "
            f"deadlocks, {seen['worlds with several nodes']:,} with several nodes, "
            f"{seen['worlds with client nodes']:,} with client nodes",
            f"events       {seen['events']:,}",
            f"deadlocks    {seen['deadlocks']:,} resolved, {seen['aborts']:,} by an abort",
            f"superfluous  {seen['superfluous']:,} of them "
            f"({share(seen['superfluous'], seen['deadlocks'])})"
            + (f"; by policy: {by_policy}" if by_policy else ""),
            f"faults       {faults}, in {seen['worlds with faults']:,} worlds; "
            f"{seen['failed']:,} clients failed because nodes were down, {seen['losses']:,} lost locks",
            f"tokens       {seen['tokens']:,}",
            f"timeouts     {events['time out']:,}",
            f"messages     {self.messages.total():,}: "
            + ", ".join(f"{n:,} {kind}" for kind, n in self.messages.most_common()),
        ]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def share(part: int, whole: int) -> str:
    """A share in percent."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def run_plan(seed: int, plan: Plan, tally: Tally | None = None) -> FailedRun | None:
    """Run one world under the schedule of a seed; return the failure, if there was one."""
    world = plan.world()
    schedule: list[Choice] = []
    failure = None
    try:
        run(world, random.Random(seed), plan.policy, plan.limit, schedule=schedule)
    except Exception as error:
        failure = FailedRun(seed, plan, schedule, error)
    if tally is not None:
        tally.add(plan, world, schedule)
    return failure


def run_seeds(
    seeds: Iterable[int], shape: Shape = ANY, rule: Rule = OURS, tally: Tally | None = None
) -> FailedRun | None:
    """Run the worlds of many seeds up to the first failure.

    Args:
        seeds: The seeds.
        shape: The parameters of the worlds.
        rule: The machines of the worlds.
        tally: Collects the statistics.

    Returns:
        The failed run, if there was one.
    """
    for seed in seeds:
        failure = run_plan(seed, plan(seed, shape, rule), tally)
        if failure is not None:
            return failure
    return None
