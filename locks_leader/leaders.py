"""The command `locks leaders`: who leads what, since when, and who follows."""

from __future__ import annotations

import argparse
from typing import Any

from locks.cli.observing import NOTHING, add_looking, answer, known_at, table
from locks.facts.around import ELECTION_ID, ElectionFact, ElectionLock, elections, group_name
from locks.facts.data import as_json, member_as_data
from locks.facts.gather import look_around, own_servers, requests
from locks.facts.stories import duration, longest
from locks.model import show

__all__ = ["add_command"]

EXAMPLES = """\
  locks leaders
  locks leaders scheduler > /dev/null || alert "no leader of scheduler"     # as a probe
"""
SAYS = """The leaders: the term of each, and for how long it has led; below each one its followers, candidates first. A leader that does
not answer is shown without its term: it holds the lock, and leads if it is running."""
HEADS = ("ELECTION", "ROLE", "TERM", "FOR", "WHO", "PROGRAM", "PID", "NODE")


def add_command(commands: Any, about: str) -> None:
    """Add the command to the command line."""
    parser = add_looking(
        commands,
        "leaders",
        _run,
        what=about,
        says=SAYS,
        nothing="there is no leader of NAME",
        examples=EXAMPLES,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="only this election")


def _run(options: argparse.Namespace) -> int:
    locked = requests((ELECTION_ID,), timeout=options.timeout)
    around = look_around(timeout=options.timeout)
    found = elections(locked.facts, around.members, around.nodes, own_servers().needed)
    names = [group_name(each.resource) for each in found]
    if options.name is not None:  # as this command prints it, or as the others do
        typed = (
            group_name,
            lambda resource: str(ElectionLock(resource)),
            lambda resource: show((resource,)),
        )
        found = [each for each in found if options.name in [of(each.resource) for of in typed]]
    silent = dict([*locked.silent, *around.silent])
    data = {"elections": [_as_data(each) for each in found]}
    rows = [row for each in found for row in _as_rows(each)]
    there = f" {options.name!r}. There is: {', '.join(names)}" if options.name and names else ""
    text = table(HEADS, rows) if rows else f"There is no election{there}{known_at(silent)}."
    is_led = options.name is None or any(each.leader for each in found)
    return answer(options, data, text, silent.items(), 0 if is_led else NOTHING)


def _as_rows(fact: ElectionFact) -> list[tuple[str, ...]]:
    name = group_name(fact.resource)
    rows: list[tuple[str, ...]] = []
    if fact.leader:
        first = longest(fact.leader)
        term = "-" if fact.term is None else str(fact.term)
        who = (first.label, first.program or "-", str(first.pid or "-"), first.request.agent.node)
        rows.append((name, "leads", term, duration(fact.seconds), *who))
    else:
        rows.append((name, "no leader", *["-"] * 6))
    for role, instances in (("candidate", fact.candidates), ("worker", fact.workers)):
        for each in instances:
            rows.append((name, role, "-", "-", each.member, each.program, str(each.pid), each.node))
    return rows


def _as_data(fact: ElectionFact) -> dict[str, Any]:
    leader = None
    if fact.leader:
        first = longest(fact.leader)
        leader = {
            "agent": str(first.request.agent),
            "label": first.label,
            "program": first.program,
            "pid": first.pid,
            "node": first.request.agent.node,
            "address": first.address,
            "term": fact.term,
            "seconds": fact.seconds,
            "servers": sorted(each.request.node for each in fact.leader),
        }
    return {
        "election": as_json(fact.resource),
        "leader": leader,
        "candidates": [member_as_data(each) for each in fact.candidates],
        "workers": [member_as_data(each) for each in fact.workers],
    }
