"""`locks servers`: show the list of lock servers, or change it while programs run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from locks.cli.observing import MOMENT, add_asking, joined, print_json, table
from locks.core.rosters import Roster
from locks.errors import InvalidOption
from locks.facts.gather import await_servers
from locks.program.changing import added, change, known, removed, replaced
from locks.program.default import default_node

__all__ = ["add_command"]

TIMEOUT = 60.0
SAYS = """Show the list of lock servers, or change it while programs run: add PLACE, remove NAME, replace NAME PLACE.
PLACE is name@host:port of a new server, which was started with the present list and --state FILE. Programs continue, and keep
their locks. Meanwhile a lock needs a majority of the old and the new servers together. A server is added when all locks have been
released that were taken before; after --timeout seconds the change is undone. A change that was interrupted is finished, or undone, first.

Exit status: 0; 2 wrong arguments, or the change is not possible; 3 it was not carried out, or too few servers answer."""
EXAMPLES = """\
  locks servers
  locks servers add d@10.0.0.4:9100
  locks servers replace c@10.0.0.3 d@10.0.0.4:9100
"""


def add_command(commands: Any, about: str) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "servers", help=about, description=SAYS, epilog=f"Examples:\n{EXAMPLES}"
    )
    parser.add_argument("action", nargs="?", choices=("add", "remove", "replace"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="the servers of the action")
    add_asking(parser, TIMEOUT, "transactions that were begun before the change")
    parser.set_defaults(run=lambda options: joined("servers", _run, options))


def _wish(options: argparse.Namespace) -> Callable[[Roster], tuple[str, ...]]:
    match options.action, *options.names:
        case "add", place:
            return added(place)
        case "remove", name:
            return removed(name)
        case "replace", name, place:
            return replaced(name, place)
    usage = {"add": "add PLACE", "remove": "remove NAME", "replace": "replace NAME PLACE"}
    raise InvalidOption(f"wrong number of servers; use: locks servers {usage[options.action]}")


def _run(options: argparse.Namespace) -> int:
    wish = None if options.action is None else _wish(options)
    await_servers(MOMENT)
    node = default_node()
    if wish is None:
        return _show(options)

    def say(text: str) -> None:
        if not options.json:
            print(text, flush=True)

    roster = change(node, wish, options.timeout, say)
    names = sorted(roster.servers)
    if options.json:
        print_json({"number": roster.number, "servers": names})
    else:
        print(
            f"The servers are {', '.join(names)}. Start programs and servers with this list from now on."
        )
    return 0


def _show(options: argparse.Namespace) -> int:
    found = known(default_node())
    roster = found.roster
    rows = []
    for place in roster.places:
        fact = found.facts.get(place)
        if fact is None:
            said = f"no answer: {found.silent.get(place, 'it runs an older version')}"
        else:
            said = fact.why or ("ready" if fact.roster == roster or not roster.number else "behind")
        lists = "both"
        if roster.is_changing and place not in roster.wanted:
            lists = "old"
        elif roster.is_changing and place not in roster.servers:
            lists = "new"
        rows.append((place, lists if roster.is_changing else "", said))
    missing = sorted({name for fact in found.facts.values() for name in fact.missing})
    if options.json:
        print_json(
            {
                "number": roster.number,
                "changing": roster.is_changing,
                "servers": [
                    dict(zip(("server", "list", "state"), row, strict=True)) for row in rows
                ],
                "missing": missing,
            }
        )
        return 0
    print(table(("SERVER", "LIST", "STATE"), rows))
    if roster.is_changing:
        print("The list is being changed.")
    if missing:
        print(f"Programs with locks or requests by an earlier list: {', '.join(missing)}")
    return 0
