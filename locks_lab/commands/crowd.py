"""`python -m locks sim crowd`: the virtual time until all clients of a crowd have had their locks."""

from __future__ import annotations

import argparse
from typing import Any, get_args

from locks.errors import InvalidOption
from locks.model import REQUIREMENTS
from locks_lab.commands.arguments import at_least, share
from locks_lab.crowd.crowd import run_crowd
from locks_lab.crowd.rules import CROWD, CROWD_RULES
from locks_lab.crowd.shape import FAULTS, ORDERS, Fault, FaultKind, Learn, Shape

__all__ = ["CROWD_ABOUT", "CROWD_EPILOG", "add_arguments", "run_command"]

CROWD_ABOUT = "run a crowd of clients in virtual time, and measure it"
CROWD_EPILOG = """\
Servers and programs have processors that do one thing at a time, and links that are first-in-first-out queues.
The same seed and the same options always give the same figures. The exit status is 1 if a property is violated.

  python -m locks sim crowd --clients 1000
  python -m locks sim crowd --clients 600 --locks 6 --rule former
  python -m locks sim crowd --clients 40 --locks 2 --pick 2 --order opposite --learn one-by-one
  python -m locks sim crowd --clients 100 --fault silent:n1:0.05:0.2 --fault slow:n2:0:1:5

Rules:
""" + "".join(f"  {rule.name:<11}{rule.about}\n" for rule in CROWD_RULES.values())
DEFAULTS = Shape()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe a crowd; `run_command` reads them."""
    number: dict[str, Any] = {"type": at_least(1), "metavar": "N"}
    seconds: dict[str, Any] = {"type": _seconds, "metavar": "S"}

    def add(name: str, about: str, **options: Any) -> None:
        default = getattr(DEFAULTS, name)
        said = f" (default {default})" if default != 0 else ""
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, default=default, help=about + said, **options)

    parser.add_argument("--seed", type=int, default=0, metavar="N", help="first seed (default 0)")
    parser.add_argument("--runs", **number, default=1, help="number of seeds (default 1)")
    parser.add_argument(
        "--rule", choices=list(CROWD_RULES), default=CROWD.name, metavar="RULE", help="the rules"
    )
    add("clients", "number of clients", **number)
    add("servers", "number of lock servers", **number)
    add("programs", "number of programs", **number)
    parser.add_argument(
        "--processors", **number, default=0, help="processors of all servers (default one each)"
    )
    add("locks", "number of lock ids", **number)
    add("pick", "number of lock ids that each transaction locks", **number)
    add("order", "the order in which it locks them", choices=ORDERS)
    add("reads", "share of clients that read, 0 to 1", type=share, metavar="SHARE")
    add("rounds", "transactions of each client", **number)
    add("hold", "work of a transaction that holds all its locks", **seconds)
    add("between", "work between one lock and the next", **seconds)
    add("think", "pause between two transactions", **seconds)
    add("arrive", "time over which the clients start", **seconds)
    add("require", "how many servers a lock needs", choices=REQUIREMENTS)
    add("on_deadlock", "what a transaction that must give way does", choices=("abort", "surrender"))
    add(
        "learn",
        "what a transaction locks first after it was aborted",
        choices=get_args(Learn),
    )
    add("delay", "travel time of a message", **seconds)
    parser.add_argument(
        "--fault",
        type=_fault,
        action="append",
        default=[],
        metavar="KIND:NODE:AT:LASTS[:FACTOR]",
        help=f"a server in trouble: {', '.join(FAULTS)}; may be given several times",
    )


def run_command(options: argparse.Namespace) -> int:
    """Run a crowd for each seed; return the exit status."""
    names = [name for name in Shape._fields if name not in ("faults", "jitter")]
    shape = Shape(**{name: getattr(options, name) for name in names}, faults=tuple(options.fault))
    for fault in shape.faults:
        if fault.node not in shape.nodes:
            raise InvalidOption(
                f"--fault has the unknown node {fault.node!r}; the nodes are {', '.join(shape.nodes)}",
                node=fault.node,
            )
    violated = False
    for seed in range(options.seed, options.seed + options.runs):
        report = run_crowd(shape, seed, CROWD_RULES[options.rule])
        if options.runs > 1:
            print(f"seed {seed}")
        print(report)
        for each in report.violations():
            violated = True
            print(f"violated      {each}")
        if options.runs > 1:
            print()
    return int(violated)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds")
    return value


def _fault(text: str) -> Fault:
    parts = text.split(":")
    kinds: dict[str, FaultKind] = {kind: kind for kind in FAULTS}
    if len(parts) not in (4, 5) or parts[0] not in kinds:
        raise argparse.ArgumentTypeError(
            f"{text!r} has the wrong form; write it like silent:n1:0.05:0.2"
        )
    times = [_seconds(each) for each in parts[2:]]
    return Fault(kinds[parts[0]], parts[1], *times)
