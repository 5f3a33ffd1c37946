"""What the observing commands share: they connect as clients of the servers, ask them, and print the answers.

Such a client joins no mesh and no election, grants no locks, and requests none.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TextIO

from locks.cli.joining import add_options, join
from locks.cli.printing import in_options, say
from locks.errors import LocksError, MisuseError
from locks.facts.gather import await_servers, own_servers
from locks.facts.stories import as_table
from locks.model import AgentId
from locks.program.default import stop

__all__ = [
    "FAILED",
    "MOMENT",
    "NOTHING",
    "PATIENCE",
    "add_looking",
    "answer",
    "find_agent",
    "joined",
    "known_at",
    "print_json",
    "refused",
    "say_silent",
    "table",
]

NOTHING, WRONG, FAILED = 1, 2, 3
PATIENCE = 5.0
MOMENT = 2.0  # seconds for the last of the servers to connect
STATUS = "Exit status: 0;{nothing} 2 wrong arguments; 3 no lock server answered, or another error at run time."


def add_looking(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    what: str,
    says: str,
    examples: str,
    nothing: str = "",
) -> argparse.ArgumentParser:
    """Add an observing command.

    Args:
        commands: The subparsers to add it to.
        name: Its name.
        run: Runs it when the program is connected; returns the exit status.
        what: Its help, in a few words.
        says: Its description, in sentences.
        examples: Examples of its use.
        nothing: When its exit status is 1, if that can happen.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=what,
        description=f"{says}\n\n{STATUS.format(nothing=f' 1 {nothing};' if nothing else '')}",
        epilog=f"Examples:\n{examples}",
    )
    add_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--timeout",
        type=float,
        default=PATIENCE,
        metavar="SECONDS",
        help="time limit of each answer, in seconds (default: %(default)s)",
    )

    def look(options: argparse.Namespace) -> int:
        await_servers(min(MOMENT, options.timeout))
        return run(options)

    parser.set_defaults(run=lambda options: joined(name, look, options))
    return parser


def joined(name: str, run: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """Run a command as a client of the lock servers; print an error as one sentence. Return the exit status."""
    try:
        join(options)
        return run(options)
    except LocksError as error:
        return refused(name, error, options)
    finally:
        stop()


def refused(name: str, error: LocksError, options: argparse.Namespace) -> int:
    """Print why a command fails, as one sentence; return the exit status."""
    if options.json:
        print_json({"error": in_options(str(error))})
    say(f"locks {name}", error)
    return WRONG if isinstance(error, MisuseError) else FAILED


def answer(
    options: argparse.Namespace,
    data: dict[str, Any],
    text: str,
    silent: Iterable[tuple[str, str]],
    status: int = 0,
    to: TextIO | None = None,
) -> int:
    """Print an answer, as JSON or as text, and the servers that did not answer; return the exit status.

    Args:
        options: The arguments of the command.
        data: The answer, for JSON.
        text: The same for people.
        silent: The servers that did not answer, and why.
        status: The exit status if at least one answered.
        to: Where the text is printed; standard output by default.
    """
    silent = list(silent)
    if _nobody_answers(silent):
        status, error = FAILED, "; ".join(_no_answer(silent))
    else:
        error = text
    if options.json:
        print_json(data | {"silent": dict(silent)} | ({"error": error} if status else {}))
    else:
        if status != FAILED:  # otherwise nothing is known
            print(text, file=to)
        say_silent(silent)
    return status


def known_at(silent: Collection[object]) -> str:
    """Where what was not found is not: nothing is known of servers that did not answer."""
    return " on the servers that answered" if silent else ""


def say_silent(silent: Sequence[tuple[str, str]]) -> None:
    """Print the servers that did not answer."""
    for line in _no_answer(silent):
        print(line, file=sys.stderr)


def _no_answer(silent: Iterable[tuple[str, str]]) -> list[str]:
    return [f"no answer from {server}: {reason}" for server, reason in silent]


def _nobody_answers(silent: Iterable[tuple[str, str]]) -> bool:
    """Whether no lock server answered. An empty answer counts as an answer."""
    return not set(own_servers().nodes) - dict(silent).keys()


def find_agent(agents: Iterable[AgentId], text: str) -> list[AgentId]:
    """The agents that match a typed name."""
    return [agent for agent in agents if str(agent) == text]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table of text."""
    return "\n".join(as_table(heads, rows))


def print_json(value: Any) -> None:
    """Print one JSON document."""
    print(json.dumps(value, indent=2))
