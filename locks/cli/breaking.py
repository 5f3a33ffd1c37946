"""`locks break`: end another client's transaction."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from locks.cli.observing import (
    NOTHING,
    add_looking,
    answer,
    find_agent,
    print_json,
)
from locks.facts.gather import break_transaction, waits
from locks.facts.stories import longest, who

__all__ = ["add_command"]

EXAMPLES = """\
  locks break agent-3@client-1@host --reason "has slept for an hour, ticket 17"
"""
SAYS = """End a transaction of another program. Its locks are granted to the transactions that wait for them. The program
gets the error TransactionBroken, with your reason and name; its node and the lock server log it. The program itself keeps
running: only fencing tokens can stop what it still writes."""


def add_command(commands: Any, about: str) -> None:
    """Add the command to the command line."""
    parser = add_looking(
        commands,
        "break",
        _run,
        what=about,
        says=SAYS,
        nothing="there is no such transaction",
        examples=EXAMPLES,
    )
    parser.add_argument("agent", metavar="AGENT", help="as shown by `locks ps` and `locks why`")
    parser.add_argument(
        "--reason",
        required=True,
        help="the reason; the transaction's program gets this text, and it is logged",
    )


def _run(options: argparse.Namespace) -> int:
    graph = waits(timeout=options.timeout)
    found = find_agent(graph.agents, options.agent)
    if not found:
        text = f"no such transaction: {options.agent} neither holds nor requests a lock; see `locks ps`"
        return answer(options, {}, f"locks break: {text}", graph.silent, NOTHING, sys.stderr)
    name = who(longest(graph.of(found[0])))
    break_transaction(found[0], reason=options.reason, timeout=options.timeout)
    if options.json:
        print_json({"agent": str(found[0]), "who": name, "reason": options.reason})
    else:
        print(f"The transaction {found[0]} of {name} was ended.")
    return 0
