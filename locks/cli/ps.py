"""`locks ps`: all locks that are held and requested."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from locks.cli.ids import ID_HELP, parse_id
from locks.cli.observing import add_looking, answer, table
from locks.cli.times import parse_time
from locks.core.facts import RequestFact
from locks.errors import InvalidOption
from locks.facts.data import lock_as_data
from locks.facts.gather import requests
from locks.facts.graph import WaitReport, grouped, waits_of
from locks.facts.stories import duration, longest
from locks.model import AgentId, show

__all__ = ["add_command"]

EXAMPLES = """\
  locks ps                      # everything, longest first
  locks ps accounts             # accounts and everything below it
  locks ps --waiting --older 10s
  locks ps --program 'report*.py' --limit 20
  locks ps --json | jq '.locks[] | select(.state == "waiting")'
"""
SAYS = """All locks that are held and requested, on all servers; the longest first. Each line is one lock id that one
transaction holds or requests. FOR: how long it has held it, or waited for it. BEHIND: the transactions that it waits for.
A terminal that is too narrow for all columns shows the first ones; FROM, SERVERS, BEHIND and AGENT are left out, in this order."""
HEADS = (
    *("FOR", "STATE", "MODE", "ID", "WHO", "PROGRAM"),
    *("PID", "FROM", "SERVERS", "AGENT", "BEHIND"),
)
LEFT_OUT = ("FROM", "SERVERS", "BEHIND", "AGENT")  # of a narrow terminal, in this order


def add_command(commands: Any, about: str) -> None:
    """Add the command to the command line."""
    parser = add_looking(commands, "ps", _run, what=about, says=SAYS, examples=EXAMPLES)
    parser.add_argument("prefix", nargs="?", metavar="PREFIX", help=ID_HELP)
    parser.add_argument(
        "--program", metavar="PATTERN", help="only of this program; * and ? stand for any text"
    )
    parser.add_argument(
        "--label", metavar="PATTERN", help="only of clients that WHO shows like this"
    )
    state = parser.add_mutually_exclusive_group()
    state.add_argument("--waiting", action="store_true", help="only requests that wait")
    state.add_argument("--held", action="store_true", help="only locks that are held")
    parser.add_argument(
        "--older", metavar="TIME", help="only what lasts for this long: a number, and s, m, h or d"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="show at most N lines")


def _run(options: argparse.Namespace) -> int:
    if options.limit is not None and options.limit < 1:
        raise InvalidOption(f"--limit {options.limit} is not a number of lines; use 1 or more")
    older = 0.0 if options.older is None else parse_time("--older", options.older)
    prefix = None if options.prefix is None else parse_id(options.prefix)
    found = requests(prefix, timeout=options.timeout)
    waits = waits_of(found.facts, found.silent)
    rows = [row for row in grouped(waits) if _is_wanted(options, older, row)]
    shown = rows[: options.limit]
    left_out = len(rows) - len(shown)
    data = {"locks": [_as_data(waits, row) for row in shown], "left_out": left_out}
    text = _fitting([_as_row(waits, row) for row in shown])
    if left_out:
        text += f"\n{left_out} more {'is' if left_out == 1 else 'are'} not shown."
    return answer(options, data, text, waits.silent)


def _is_wanted(options: argparse.Namespace, older: float, facts: Sequence[RequestFact]) -> bool:
    fact = facts[0]
    return (
        longest(facts).seconds >= older
        and not (options.waiting and fact.granted)
        and not (options.held and not fact.granted)
        and fnmatchcase(fact.program, options.program or "*")
        and fnmatchcase(fact.label, options.label or "*")
    )


def _fitting(rows: Sequence[tuple[str, ...]]) -> str:
    """The table; in a terminal, without the columns for which it has no room."""
    heads = list(HEADS)
    text = table(heads, rows)
    if not sys.stdout.isatty():
        return text
    columns = shutil.get_terminal_size().columns
    for each in LEFT_OUT:
        if all(len(line) <= columns for line in text.splitlines()):
            break
        heads.remove(each)
        at = [HEADS.index(head) for head in heads]
        text = table(heads, [[row[index] for index in at] for row in rows])
    return "\n".join(line[:columns] for line in text.splitlines())


def _behind(waits: WaitReport, facts: Sequence[RequestFact]) -> list[AgentId]:
    if facts[0].granted:
        return []
    numbers = {fact.request.key for fact in facts}
    edges = waits.blockers(facts[0].request.agent)
    found = [e.holder.request.agent for e in edges if e.waiter.request.key in numbers]
    return list(dict.fromkeys(found))


def _as_row(waits: WaitReport, facts: Sequence[RequestFact]) -> tuple[str, ...]:
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


def _as_data(waits: WaitReport, facts: Sequence[RequestFact]) -> dict[str, Any]:
    data = lock_as_data(facts)
    data["behind"] = [str(agent) for agent in _behind(waits, facts)]
    return data
