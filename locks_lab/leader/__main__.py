"""`python -m locks_lab.leader`: run the worlds of many seeds."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from locks_lab.leader.rules import RULES
from locks_lab.leader.runs import Failure, run_seed, storm
from locks_lab.worlds.host import Violation

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status: 1 if a run failed."""
    parser = argparse.ArgumentParser(
        prog="python -m locks_lab.leader",
        description="Run simulated elections under random schedules, and check them.",
    )
    parser.add_argument("kind", choices=("run", "storm"), help="random worlds, or ten-node storms")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--runs", type=int, default=100, help="how many seeds (default 100)")
    parser.add_argument("--rule", choices=sorted(RULES), default="ours", help="which machines")
    given = parser.parse_args(arguments)
    begun = time.perf_counter()
    events = messages = 0
    for seed in range(given.seed, given.seed + given.runs):
        if given.kind == "run":
            found = run_seed(seed, rule=given.rule)
            if isinstance(found, Failure):
                print(found)
                return 1
        else:
            try:
                found = storm(seed, rule=given.rule)
            except Violation as violation:
                print(violation)
                return 1
        events += found.events
        messages += found.sent.total()
    seconds = time.perf_counter() - begun
    print(f"{given.runs} worlds, {events:,} events, {messages:,} messages, {seconds:.1f} s")
    print("no violation")
    return 0


if __name__ == "__main__":
    sys.exit(main())
