"""Endurance: storm after storm in one process, and nothing grows.

`python -m tests.torture.endurance --minutes 10` plays rounds, each a storm of another kind (`storm`), and prints a
line after each: transactions so far, memory, and how many objects of each type there are when nothing is going
on. Between rounds all invariants hold and nothing is left. Caches and histories come and go; but what was never as
small in the end as it was in the beginning has grown, and nothing may.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import os
import resource
import sys
import time
from collections import Counter
from typing import NamedTuple

from tests.torture.storm import SCENARIOS
from tests.torture.weather import Storm

__all__ = ["Round", "growing"]

ROUNDS = ("sigalrm", "async", "timeout", "kill", "handler", "sigint", "collector")
OURS = ("locks.", "pykka.", "gevent.", "greenlet", "gevent", "tests.", "threading")
HANG = 60.0
SLACK = 8
"""So many objects of a type more or less mean nothing: threads of the storm itself that just end."""


class Round(NamedTuple):
    """What there was after one round."""

    scenario: str
    steps: int
    resident: int
    objects: dict[str, int]
    problems: list[str]


def growing(rounds: list[Round]) -> list[str]:
    """What was never as small in the last third as it ever was in the first half, in words."""
    if len(rounds) < 6:
        return ["too few rounds to tell"]
    early, late = rounds[: len(rounds) // 2], rounds[-(len(rounds) // 3) :]
    found = []
    for kind in late[-1].objects:
        most = max(each.objects.get(kind, 0) for each in early)
        least = min(each.objects.get(kind, 0) for each in late)
        if least > most + SLACK:
            found.append(f"{kind}: {most} at most, then {least} at least")
    most = max(each.resident for each in early)
    least = min(each.resident for each in late)
    if least > most * 1.05 + 4 * 2**20:
        found.append(f"memory: {most >> 20} MiB at most, then {least >> 20} MiB at least")
    return found


def look() -> tuple[int, dict[str, int]]:
    """Memory in bytes, and the numbers of objects of our types and those we stand on."""
    for _ in range(3):
        gc.collect()
    counts = Counter(
        f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects()
    )
    ours = {name: count for name, count in counts.items() if name.startswith(OURS)}
    for name in ("builtins.dict", "builtins.list", "builtins.function", "builtins.weakref"):
        ours[name] = counts[name] // 50  # large numbers, with some noise
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * resource.getpagesize()
    return resident, ours


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.endurance")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each round")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=ROUNDS, help="kinds of storms")
    options = parser.parse_args()
    rounds = options.only or ROUNDS
    sys.setswitchinterval(0.0005)
    end = time.monotonic() + 60 * options.minutes
    steps = number = 0
    while time.monotonic() < end:
        faulthandler.dump_traceback_later(options.seconds + HANG, exit=True)
        scenario = rounds[number % len(rounds)]
        storm = Storm(options.seed + number, options.seconds)
        storm.play(SCENARIOS[scenario])
        steps += storm.book.steps
        number += 1
        problems = storm.problems
        del storm
        print(json.dumps(Round(scenario, steps, *look(), problems)), flush=True)
        if problems:
            os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
