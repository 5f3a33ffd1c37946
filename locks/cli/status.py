"""`locks status`: which lock servers answer, and whether they are enough."""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection
from typing import Any

from locks.cli.observing import MOMENT, NOTHING, add_looking, print_json, say_silent, table
from locks.cli.restart import BREATH, before_restart
from locks.core.facts import NodeFact
from locks.errors import InvalidOption, are_needed, causes
from locks.facts.around import ELECTION_ID, standing
from locks.facts.data import tree_as_data
from locks.facts.gather import can_do_once, lock_servers, memories, own_servers, requests
from locks.facts.stories import duration
from locks.program.default import default_node
from locks.runtime.clock import monotonic, wall

__all__ = ["add_command"]

EXAMPLES = """\
  locks status
  locks status --timeout 1 > /dev/null || alert "locks: no majority"     # as a probe
  locks status --before-restart locks@10.0.0.7 && ssh 10.0.0.7 systemctl restart locks
  locks status --with locks@10.0.0.7                                     # as a probe of one server
"""
SAYS = """Which lock servers answer, and whether a program with these settings can take a lock, do something once and be elected. CLOCK: how far the server's clock is
ahead of the clock of this machine, as far as the network delay allows to tell. WAITING: without candidates of elections that
wait while another one leads."""
HEADS = (
    *("SERVER", "VERSION", "UP FOR", "CLOCK", "SEES", "CLIENTS", "LOCKS", "WAITING"),
    *("TRANSACTIONS", "DEADLOCKS", "PROGRAM"),
)


def add_command(commands: Any, about: str) -> None:
    """Add the command to the command line."""
    parser = add_looking(
        commands,
        "status",
        _run,
        what=about,
        says=SAYS,
        nothing="too few lock servers answer and serve this program to take a lock, or to do something once, or the server in --with "
        "does not answer, or the one in --before-restart should not be restarted now",
        examples=EXAMPLES,
    )
    parser.add_argument(
        "--before-restart",
        metavar="NAME",
        help="say whether this server can be restarted, or which locks that would cost",
    )
    parser.add_argument("--with", dest="among", metavar="NAME", help="this server must answer, too")


def _run(options: argparse.Namespace) -> int:
    known = own_servers()
    servers, needed = len(known.nodes), known.enough
    begun = wall()
    found = lock_servers(timeout=options.timeout)
    clock = (begun + wall()) / 2  # assumes that all have answered in the middle
    facts: list[NodeFact] = sorted(found.facts, key=lambda fact: fact.node)
    missing = options.among not in (None, *(fact.node for fact in facts))
    node = default_node()
    refusing = {
        fact.node: node.refusals[fact.node]
        for fact in facts
        if fact.node in node.refusals and fact.node not in node.alive
    }
    enough = len(facts) - len(refusing) >= needed
    once, why = _await_once(refusing.keys(), options.timeout) if enough else (False, "")
    pages = memories(timeout=options.timeout) if facts else {}
    forgot = [name for name, page in pages.items() if not page.complete]
    keeping = [name for name, page in pages.items() if page.keeps]
    troubles = {name: page.trouble for name, page in pages.items() if page.trouble}
    candidates = standing(requests((ELECTION_ID,), timeout=options.timeout).facts if facts else ())
    locks = "locks can" if enough else "some locks can NOT" if known.copies else "locks can NOT"
    apart = f", because each lock is on {known.copies} of them" if known.copies else ""
    answer = "answers" if len(facts) == 1 else "answer"
    lacks = f", but {len(refusing)} of these will not serve this program" if refusing else ""
    text = f"{len(facts)} of {servers} lock servers {answer}{lacks}; {are_needed(needed)}{apart}: {locks} be taken."
    wrong = [] if enough else [text]
    wrong += [f"{causes(refusing)}."] if refusing else []
    if enough and not once:
        wrong.append(f"Nothing can be done once (locks.once): {why or 'too few servers answer'}.")
    if missing:
        wrong.append(f"{options.among} does not answer.")
    name = options.before_restart
    restart = None
    if name is not None:
        if name not in known.nodes:
            raise InvalidOption(
                f"--before-restart {name}: there is no such lock server; the servers are {', '.join(known.nodes)}"
            )
        up = [fact.node for fact in facts if fact.node not in forgot and fact.node not in refusing]
        absent = [each for each in known.nodes if each not in (name, *up)]
        restart = before_restart(name, known.needed, absent, options.timeout)
        wrong += [] if restart.is_safe else restart.lines()[:1]
    if options.json:
        print_json(
            {
                "enough": enough,
                "once": once,
                "servers": servers,
                "answered": len(facts),
                "needed": needed,
                **({"copies": known.copies} if known.copies else {}),
                **({"missing": options.among} if missing else {}),
                "nodes": [_as_data(fact, clock, candidates[fact.node]) for fact in facts],
                "refusing": refusing,
                "forgetful": forgot,
                "keeping": keeping,
                "not_writing": troubles,
                **({"restart": restart.as_data()} if restart else {}),
                "silent": dict(found.silent),
                **({"error": " ".join(wrong)} if wrong else {}),
            }
        )
    else:
        if facts:
            print(
                table(
                    HEADS,
                    [_as_row(fact, clock, known.nodes, candidates[fact.node]) for fact in facts],
                )
            )
        lines = restart.lines() if restart else []
        print("\n".join(dict.fromkeys([text, *wrong, *lines])))
        if forgot and once:
            print(
                f"{', '.join(forgot)}: begun without a memory of what is done once; waiting for the other servers to tell it."
            )
        if keeping:
            print(f"{', '.join(keeping)}: what is done once is kept in a file.")
        for name, why in troubles.items():
            print(
                f"{name} can't write its state file, so it remembers nothing that is done once from now on: {why}"
            )
        say_silent(found.silent)
    return NOTHING if wrong else 0


def _await_once(refusing: Collection[str], timeout: float) -> tuple[bool, str]:
    """Whether something can be done once, or why not; servers that were just started tell each other what is done first."""
    deadline = monotonic() + min(MOMENT, timeout)
    while True:
        can, why = can_do_once(refusing, timeout=timeout)
        if can or monotonic() >= deadline:
            return can, why
        time.sleep(BREATH)


def _as_row(
    fact: NodeFact, clock: float, servers: tuple[str, ...], candidates: int
) -> tuple[str, ...]:
    counted = fact.statistics.table
    return (
        fact.node,
        fact.version,
        duration(fact.uptime),
        f"{fact.ahead_of(clock):+.1f} s",
        f"{len({*fact.servers} & {*servers})} of {len(servers)}",
        str(fact.clients),
        str(counted.entries),
        str(max(0, counted.waiting - candidates)),  # of two answers
        str(counted.agents),
        str(fact.statistics.broken.total),
        fact.program,
    )


def _as_data(fact: NodeFact, clock: float, candidates: int) -> dict[str, Any]:
    return {
        "node": fact.node,
        "version": fact.version,
        "program": fact.program,
        "started": fact.started / 1e6,
        "uptime": fact.uptime,
        "clock_ahead": fact.ahead_of(clock),
        "sees": list(fact.servers),
        "clients": fact.clients,
        "candidates": candidates,
        "statistics": tree_as_data(fact.statistics),
    }
