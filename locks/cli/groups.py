"""`locks groups`: the process groups, and their members."""

from __future__ import annotations

import argparse
from typing import Any

from locks.cli.observing import add_looking, answer, known_at, table
from locks.core.facts import MemberFact
from locks.facts.around import group_name, groups
from locks.facts.data import as_json, member_as_data
from locks.facts.gather import members

__all__ = ["add_command"]

EXAMPLES = """\
  locks groups
  locks groups --json | jq '.groups[] | select(.group == "printers") | .members[].node'
"""
SAYS = """The process groups and their members, on the servers and on all programs that are connected with
them. Elections have groups, too: of their candidates, and of their workers."""
HEADS = ("SCOPE", "GROUP", "MEMBER", "PROGRAM", "PID", "NODE")


def add_command(commands: Any, about: str) -> None:
    """Add the command to the command line."""
    add_looking(commands, "groups", _run, what=about, says=SAYS, examples=EXAMPLES)


def _run(options: argparse.Namespace) -> int:
    found = members(timeout=options.timeout)
    by_group = groups(found.facts)
    data = {"groups": [_as_data(facts) for facts in by_group.values()]}
    rows = [_as_row(fact) for facts in by_group.values() for fact in facts]
    text = (
        table(HEADS, rows) if rows else f"There is no group with members{known_at(found.silent)}."
    )
    return answer(options, data, text, found.silent)


def _as_row(fact: MemberFact) -> tuple[str, ...]:
    return (
        fact.scope,
        group_name(fact.group),
        fact.member,
        fact.program,
        str(fact.pid),
        fact.node,
    )


def _as_data(facts: list[MemberFact]) -> dict[str, Any]:
    return {
        "scope": facts[0].scope,
        "group": as_json(facts[0].group),
        "members": [member_as_data(fact) for fact in facts],
    }
