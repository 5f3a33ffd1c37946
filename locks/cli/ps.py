"""`locks ps`: all locks that are held and requested."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from locks.cli.ids import ID_HELP, parse_id
from locks.cli.observing import add_looking, answer, table
from locks.core.facts import RequestFact
from locks.facts.data import fact_as_data
from locks.facts.gather import requests
from locks.facts.graph import Waits, grouped, waits_of
from locks.facts.stories import duration, longest
from locks.model import AgentId, show

__all__ = ["add_command"]

EXAMPLES = """\
  locks ps                      # everything, longest first
  locks ps accounts             # accounts and everything below it
  locks ps --json | jq '.locks[] | select(.state == "waiting")'
"""
SAYS = """All locks that are held and requested, on all servers; the longest first. Each line is one lock id that one
transaction holds or requests. FOR: how long it has held it, or waited for it. BEHIND: the transactions that it waits for."""
HEADS = (
    "FOR",
    "STATE",
    "MODE",
    "ID",
    "WHO",
    "PROGRAM",
    "PID",
    "FROM",
    "SERVERS",
    "AGENT",
    "BEHIND",
)


def add_command(commands: Any, about: str) -> None:
    """Add the command to the command line."""
    parser = add_looking(commands, "ps", _run, what=about, says=SAYS, examples=EXAMPLES)
    parser.add_argument("prefix", nargs="?", metavar="PREFIX", help=ID_HELP)


def _run(options: argparse.Namespace) -> int:
    prefix = None if options.prefix is None else parse_id(options.prefix)
    found = requests(prefix, timeout=options.timeout)
    waits = waits_of(found.facts, found.silent)
    rows = list(grouped(waits))
    data = {"locks": [_as_data(waits, row) for row in rows]}
    text = table(HEADS, [_as_row(waits, row) for row in rows])
    return answer(options, data, text, waits.silent)


def _behind(waits: Waits, facts: Sequence[RequestFact]) -> list[AgentId]:
    if facts[0].granted:
        return []
    numbers = {fact.request.key for fact in facts}
    edges = waits.blockers(facts[0].request.agent)
    found = [e.holder.request.agent for e in edges if e.waiter.request.key in numbers]
    return list(dict.fromkeys(found))


def _as_row(waits: Waits, facts: Sequence[RequestFact]) -> tuple[str, ...]:
    fact = facts[0]
    return (
        duration(longest(facts).seconds),
        "held" if fact.granted else "waits",
        fact.request.mode,
        show(fact.request.lock_id),
        fact.label,
        fact.program or "-",
        str(fact.pid or "-"),
        next((each.address for each in facts if each.address), "-"),
        str(len(facts)),
        str(fact.request.agent),
        ", ".join(str(agent) for agent in _behind(waits, facts)) or "-",
    )


def _as_data(waits: Waits, facts: Sequence[RequestFact]) -> dict[str, Any]:
    data = fact_as_data(facts[0])
    for name in ("server", "number"):
        del data[name]
    data["seconds"] = longest(facts).seconds
    data["servers"] = sorted(fact.request.node for fact in facts)
    data["behind"] = [str(agent) for agent in _behind(waits, facts)]
    return data
