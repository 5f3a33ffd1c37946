"""Elections of the original: scripts, and in which order real instances were called back.

`elections.txt` has what became of real ones; `python -m tests.erlang.elections` makes such lines. A line is a script
(`locks_lab.original.elections`), the nodes of the instances in turn, and the callbacks of each instance.
"""

from __future__ import annotations

from functools import cache
from itertools import permutations
from pathlib import Path

from locks_lab.original.elections import Elections, ends

RECORDED = Path(__file__).with_name("elections.txt")
ONE, TWO = "n1", "n1 n2"
SCRIPTS = (
    ("start 1", ONE),
    ("start 1; start 2", ONE),
    ("start 1, start 2", ONE),
    ("start 1; start 2; start 3", ONE),
    ("start 1; start 2; put 1 x; put 2 y", ONE),
    ("start 1; start 2; kill 1", ONE),
    ("start 1; start 2; kill 2; start 3", ONE),
    ("start 1; start 2; start 3; kill 1; put 3 x", ONE),
    ("start 1; start 2", TWO),
    ("start 1, start 2", TWO),
    ("start 1; start 2; put 2 x; kill 1", TWO),
)


@cache
def foreseen(script: str, homes: str) -> frozenset[str]:
    """The callbacks that the model allows; which of two nodes has the older agent is chance."""
    nodes = homes.split()
    numbers = sorted(
        {int(word) for word in script.replace(",", "").replace(";", "").split() if word.isdigit()}
    )
    ages = [*permutations(numbers)] if len(nodes) > 1 else [tuple(numbers)]
    worlds = [Elections(script, nodes, each, delays=len(nodes) == 1) for each in ages]
    return frozenset().union(*(ends(world, lambda w: w.callbacks) for world in worlds))


def recorded() -> list[tuple[str, str, str]]:
    """Script, nodes and callbacks of each recording."""
    lines = RECORDED.read_text(encoding="utf-8").splitlines()
    found = [tuple(line.split(" | ")) for line in lines if not line.startswith("#")]
    return [(script, nodes, calls) for script, nodes, calls in found]
