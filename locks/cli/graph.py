"""`locks graph`: the wait-for graph."""

from __future__ import annotations

import argparse
from typing import Any

from locks.cli.observing import add_looking, answer
from locks.facts.data import fact_as_data
from locks.facts.gather import waits
from locks.facts.pictures import FORMATS

__all__ = ["add_command"]

EXAMPLES = """\
  locks graph                                       # below each transaction, those that wait for it
  locks graph --format svg > waits.svg              # for a browser
  locks graph --format dot | dot -Tpng > waits.png  # with Graphviz
  locks graph --format mermaid
"""
SAYS = """The wait-for graph of all servers. A root is a transaction that others wait for and that itself is not waiting: it blocks all of them."""


def add_command(commands: Any, about: str) -> None:
    """Add the command to the command line."""
    parser = add_looking(commands, "graph", _run, what=about, says=SAYS, examples=EXAMPLES)
    parser.add_argument("--format", choices=FORMATS, default="text", help="(default: %(default)s)")


def _run(options: argparse.Namespace) -> int:
    graph = waits(timeout=options.timeout)
    edges = [[fact_as_data(each) for each in edge] for edge in graph.edges]
    data = {
        "edges": [{"waiter": waiter, "holder": holder} for waiter, holder in edges],
        "roots": [str(agent) for agent in graph.roots],
    }
    text = FORMATS[options.format](graph) or "No transaction is waiting."
    return answer(options, data, text, graph.silent)
