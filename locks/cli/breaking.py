"""`locks break`: end somebody's transaction."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from locks.cli.observing import (
    FAILED,
    NOTHING,
    add_looking,
    find_agent,
    nobody_answers,
    print_json,
    say_silent,
)
from locks.facts.gather import break_transaction, waits
from locks.facts.stories import longest, who

__all__ = ["add_command"]

EXAMPLES = """\
  locks break agent-3@client-1@host --reason "has slept for an hour, ticket 17"
"""
SAYS = """End somebody's transaction: its locks go to those that wait for them. Its program gets the error
TransactionBroken, with the reason and who did it; its node and the lock server log it. This does not stop what the program
does under its locks: only fencing tokens keep out what it writes."""


def add_command(commands: Any) -> None:
    """Add the command to the command line."""
    parser = add_looking(
        commands,
        "break",
        _run,
        what="end somebody's transaction",
        says=SAYS,
        nothing="there is no such transaction",
        examples=EXAMPLES,
    )
    parser.add_argument("agent", metavar="AGENT", help="as `locks ps` and `locks why` name it")
    parser.add_argument(
        "--reason", required=True, help="why; its owner gets this text, and it is logged"
    )


def _run(options: argparse.Namespace) -> int:
    graph = waits(timeout=options.timeout)
    found = find_agent(graph.agents, options.agent)
    if not found:
        text = f"{options.agent} holds and wants nothing"
        if options.json:
            print_json({"error": text, "silent": dict(graph.silent)})
        print(f"locks break: {text}", file=sys.stderr)
        say_silent(graph.silent)
        return FAILED if nobody_answers(graph.silent) else NOTHING
    name = who(longest(graph.of(found[0])))
    break_transaction(found[0], reason=options.reason, timeout=options.timeout)
    if options.json:
        print_json({"agent": str(found[0]), "who": name, "reason": options.reason})
    else:
        print(f"The transaction {found[0]} of {name} was ended.")
    return 0
