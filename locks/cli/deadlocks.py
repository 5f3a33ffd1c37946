"""`locks deadlocks`: describe the last deadlocks."""

from __future__ import annotations

import argparse
from datetime import datetime, timezone
from typing import Any

from locks.cli.observing import add_looking, answer
from locks.core.facts import DeadlockFact
from locks.core.steps import steps_of
from locks.errors import InvalidOption
from locks.facts.data import deadlock_as_data
from locks.facts.gather import deadlocks
from locks.facts.stories import duration
from locks.model import show

__all__ = ["add_command"]

EXAMPLES = """\
  locks deadlocks              # all that the servers remember, newest first
  locks deadlocks --last 1
"""
SAYS = """The deadlocks that the servers have resolved, newest first, step by step: who waited for whom, who gave way, and by which
rule. Each server remembers its last 100."""


def add_command(commands: Any, about: str) -> None:
    """Add the command to the command line."""
    parser = add_looking(commands, "deadlocks", _run, what=about, says=SAYS, examples=EXAMPLES)
    parser.add_argument("--last", type=int, metavar="N", help="show at most N")


def _run(options: argparse.Namespace) -> int:
    if options.last is not None and options.last < 1:
        raise InvalidOption(f"--last {options.last} is not a number of deadlocks; use 1 or more")
    found = deadlocks(timeout=options.timeout)
    facts: tuple[DeadlockFact, ...] = found.facts[: options.last]
    data = {"deadlocks": [deadlock_as_data(fact) for fact in facts]}
    text = "\n\n".join(_told(fact) for fact in facts) or "The servers remember no deadlock."
    return answer(options, data, text, found.silent)


def _when(fact: DeadlockFact) -> datetime:
    return datetime.fromtimestamp(fact.at / 1e6, timezone.utc).astimezone()


def _told(fact: DeadlockFact) -> str:
    ago = duration(fact.seconds)
    where = f"broken by {fact.report.server}"
    steps = enumerate(steps_of(fact.report, lock=show).steps, 1)
    lines = [f"{_when(fact):%Y-%m-%d %H:%M:%S%z}, {ago} ago, {where}:"]
    return "\n".join([*lines, *(f"  {number}. {step}" for number, step in steps)])
