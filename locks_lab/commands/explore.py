"""`python -m locks sim explore`: every interleaving of all small worlds of a kind, or of one world."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from locks.model import REQUIREMENTS
from locks_lab.commands.arguments import at_least
from locks_lab.worlds.rules import RULES
from locks_lab.worlds.script import write_script

if TYPE_CHECKING:
    from locks_lab.explorer.explore import Explored
    from locks_lab.explorer.small_worlds import Kind
    from locks_lab.schedules.plan import Plan
    from locks_lab.worlds.events import Choice

__all__ = ["EXPLORE", "Search", "Total", "add_arguments", "explore_all", "searches"]

EXPLORE = """\
All ways to give each client a script are explored, except for renamed locks; or only the world that
--client describes. Every state is checked: no client was given a lock that another one holds, no client
waits without a reason, only a release, surrender or abort ends a grant, the youngest of a cycle
gives way, no client is stuck, nothing is left at the end, and every schedule comes to an end.

  python -m locks sim explore --agents 3 --locks 2
  python -m locks sim explore --locks 1 --modes rw --depth 2
  python -m locks sim explore --agents 4 --locks 4 --ring --held
  python -m locks sim explore --locks 1 --steps 1 --nodes 2 --require majority --crash n2
  python -m locks sim explore --client "write a; write b" --client "write b; try write a"
  python -m locks sim explore --rule few --agents 3 --locks 3 --ring
  python -m locks sim explore --rule thin --locks 1
  python -m locks sim explore --rule thin --spokes
  python -m locks sim explore --model original --agents 3 --locks 3 --ring --held

For the original, the first world that fails is told, with a shortest schedule.
"""


class Search(NamedTuple):
    """One world to explore.

    Attributes:
        plan: The world.
        held: Whether each client has taken its first step.
        limit: The limit of states.
        full: Whether no order of events is omitted.
    """

    plan: Plan
    held: bool = False
    limit: int = 5_000_000
    full: bool = False

    def __str__(self) -> str:
        return " | ".join(write_script(script) for script in self.plan.scripts)


class SearchResult(NamedTuple):
    """The result of a search: an outcome, or a violation with the schedule that leads there."""

    outcome: Explored | None
    wrong: str = ""
    schedule: tuple[Choice, ...] = ()


class Total:
    """The sum of the results of many searches."""

    def __init__(self) -> None:
        self.worlds = self.states = self.transitions = self.terminal = 0
        self.largest = self.superfluous = self.with_superfluous = self.outdated = 0
        self.least, self.most = 1 << 30, 0

    def add(self, outcome: Explored) -> None:
        """Add one result."""
        self.worlds += 1
        self.states += outcome.states
        self.transitions += outcome.transitions
        self.terminal += outcome.terminal
        self.largest = max(self.largest, outcome.states)
        self.least = min(self.least, outcome.surrenders[0])
        self.most = max(self.most, outcome.surrenders[1])
        self.superfluous = max(self.superfluous, outcome.superfluous)
        self.with_superfluous += outcome.superfluous > 0
        self.outdated = max(self.outdated, outcome.outdated)

    def __str__(self) -> str:
        if not self.worlds:
            return "worlds      none to the end"
        return (
            f"worlds      {self.worlds:,}\n"
            f"states      {self.states:,} (the largest world {self.largest:,})\n"
            f"transitions {self.transitions:,}\n"
            f"ends        {self.terminal:,}\n"
            f"surrenders  {self.least} to {self.most} in a run\n"
            f"superfluous at most {self.superfluous} in a run, in {self.with_superfluous:,} worlds\n"
            f"outdated    at most {self.outdated} reports in a run"
        )


# --- Searching ----------------------------------------------------------------------------------


def searches(
    kind: Kind, rule: str = "ours", limit: int = 5_000_000, full: bool = False
) -> Iterator[Search]:
    """The worlds of a kind."""
    from locks_lab.explorer.small_worlds import small_worlds

    for plan in small_worlds(kind, RULES[rule]):
        yield Search(plan, kind.held, limit, full)


def search(wanted: Search) -> tuple[Search, SearchResult]:
    """Explore one world."""
    from locks_lab.explorer.explore import TooManyStates, explore
    from locks_lab.explorer.small_worlds import start
    from locks_lab.worlds.host import Violation

    world = start(wanted.plan, wanted.held)
    try:
        return wanted, SearchResult(explore(world, wanted.limit, reduce=not wanted.full))
    except TooManyStates as error:
        return wanted, SearchResult(None, str(error))
    except Violation as violation:
        return wanted, SearchResult(None, str(violation), tuple(violation.schedule))


def explore_all(
    wanted: Iterable[Search],
    jobs: int = 1,
    see: Callable[[Search, SearchResult], None] = lambda search, found: None,
) -> tuple[Total, tuple[Search, SearchResult] | None]:
    """Explore worlds, until a violation is found.

    Args:
        wanted: The worlds.
        jobs: Number of worlds that are explored at the same time, each in a separate process.
        see: Called with the result of each world.

    Returns:
        The total, and the violation, if there is one.
    """
    import multiprocessing  # not needed by commands with one process

    total = Total()
    if jobs == 1:
        return total, _first_wrong(map(search, wanted), total, see)
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=50) as pool:
        return total, _first_wrong(pool.imap(search, wanted), total, see)


def _first_wrong(
    results: Iterable[tuple[Search, SearchResult]],
    total: Total,
    see: Callable[[Search, SearchResult], None],
) -> tuple[Search, SearchResult] | None:
    for wanted, found in results:
        see(wanted, found)
        if found.outcome is None:
            return wanted, found
        total.add(found.outcome)
    return None


# --- The command --------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `explore`."""
    number: dict[str, Any] = {"type": at_least(1), "metavar": "N"}
    parser.add_argument(
        "--client",
        action="append",
        metavar="STEPS",
        help="explore one world: the script of a client",
    )
    parser.add_argument("--agents", **number, default=2, help="clients (default 2)")
    parser.add_argument("--locks", **number, default=2, help="lock ids, or trees (default 2)")
    parser.add_argument("--modes", choices=("w", "r", "rw"), default="w", help="default w")
    parser.add_argument(
        "--depth", **number, default=1, help="longest lock id, in elements (default 1)"
    )
    parser.add_argument("--steps", **number, default=2, help="steps of each client (default 2)")
    parser.add_argument("--with", dest="extras", default="", metavar="try,unlock,ask,again,token",
                        help="steps other than requests and waits")  # fmt: skip
    parser.add_argument(
        "--nodes",
        **number,
        default=1,
        help="number of nodes; each lock is requested on all of them",
    )
    parser.add_argument("--require", choices=REQUIREMENTS, default="all", help="default all")
    parser.add_argument(
        "--spread", action="store_true", help="distribute the clients over the nodes"
    )
    parser.add_argument(
        "--apart", action="store_true", help="each lock is on only one of the nodes"
    )
    parser.add_argument(
        "--spokes",
        action="store_true",
        help="clients are on c1, c2, ..., which are connected to the nodes only",
    )
    parser.add_argument(
        "--unlinked", default="", metavar="PAIRS", help="never connected: c1-n2,n1-n3"
    )
    parser.add_argument(
        "--crash", default="", metavar="NODES", help="one of these nodes may crash, once"
    )
    parser.add_argument("--restart", action="store_true", help="and the crashed node may restart")
    parser.add_argument(
        "--cuts", type=at_least(0), metavar="N", default=0, help="how often a connection may be cut"
    )
    parser.add_argument(
        "--options", default="", help="options of the agents: abort_on_deadlock, await_nodes"
    )
    parser.add_argument(
        "--held", action="store_true", help="each client already holds its first lock"
    )
    parser.add_argument("--ring", action="store_true", help="only where the clients form a ring")
    parser.add_argument(
        "--find", default="", metavar="KINDS", help="for the original: stuck, exclusion, crash"
    )
    parser.add_argument("--full", action="store_true", help="omit no order of events")
    parser.add_argument(
        "--limit",
        **number,
        default=5_000_000,
        help="limit of states of a world; at most 500,000 for the original",
    )
    parser.add_argument("--jobs", **number, default=1, help="number of processes (default 1)")
    parser.add_argument("-v", "--verbose", action="store_true", help="print a line for each world")


def run_command(
    options: argparse.Namespace, explain: Callable[[Plan, tuple[Choice, ...]], None]
) -> int:
    """Explore; print the results.

    Args:
        options: The arguments.
        explain: Prints what leads to a violation.
    """
    from locks_lab.explorer.small_worlds import start

    began = time.perf_counter()

    def see(wanted: Search, found: SearchResult) -> None:
        if options.verbose:
            print(f"{found.outcome or found.wrong}  {wanted}", flush=True)

    total, wrong = explore_all(_wanted(options), options.jobs, see)
    print(total)
    print(f"time        {time.perf_counter() - began:.1f} s")
    if wrong is None:
        print("no violation")
        return 0
    search, found = wrong
    print(f"\nin the world {search}:\n{found.wrong}")
    world = start(search.plan, search.held, trace=True)
    if search.plan.rule.thin is not None:
        print("turns: " + ", ".join(_shown(*each) for each in found.schedule))
    elif found.schedule:
        before = world.events or []
        explain(search.plan, (*(event.choice for event in before), *found.schedule))
    return 1


def _shown(kind: str, who: Any) -> str:
    """An event of a world with thin locks, which can't be replayed."""
    from locks_lab.worlds.client import SERIALS

    if not isinstance(who, tuple):
        return f"{kind} {who or ''}".strip()
    parties = [each if isinstance(each, str) else str(each.serial % SERIALS) for each in who]
    return f"{kind} {'>'.join(parties)}"


def _wanted(options: argparse.Namespace) -> Iterator[Search]:
    from locks_lab.cases.case import OPTIONS, listed, pairs_from
    from locks_lab.explorer.small_worlds import Extra, kind_from
    from locks_lab.schedules.plan import Plan, client_names, node_names
    from locks_lab.worlds.script import parse_script
    from locks_lab.worlds.world import Faults

    nodes = node_names(options.nodes)
    extras = listed("step", options.extras, get_args(Extra))
    clients = client_names(len(options.client or ()) or options.agents) if options.spokes else ()
    crash = listed("node", options.crash, (*nodes, *clients))
    unlinked = pairs_from(options.unlinked, (*nodes, *clients))
    flags = listed("option", options.options, OPTIONS)
    faults = Faults((), options.cuts, 1 if crash else 0, crash, options.restart)
    if options.client:
        scripts = tuple(map(parse_script, options.client))
        homes = clients or (nodes if options.spread else ())
        rule = RULES[options.rule]
        plan = Plan(scripts, nodes, homes, faults, flags, rule=rule, unlinked=unlinked)
        yield Search(plan, options.held, options.limit, options.full)
        return
    kind = kind_from(
        options,
        extras=extras,
        faults=faults,
        options=flags,
        held=options.held,
        spokes=options.spokes,
        unlinked=unlinked,
    )
    yield from searches(kind, options.rule, options.limit, options.full)
