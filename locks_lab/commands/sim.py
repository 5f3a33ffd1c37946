"""The simulator's command line: `python -m locks sim explore`, `run`, `replay`, `story` and `step`.

A command imports its modules when it runs, so that other commands start faster. The exit status is
0 if no violation was found, 1 if one was found, and 2 if an argument is wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from locks.core.messages import Surrender
from locks.core.steps import steps_of
from locks.errors import InvalidOption, nearest
from locks.model import REQUIREMENTS, Edge
from locks_lab.commands.arguments import at_least, share, skipped
from locks_lab.original.variants import ORIGINAL, VARIANTS
from locks_lab.worlds.rules import OURS, RULES

if TYPE_CHECKING:
    from locks_lab.cases.case import Case
    from locks_lab.schedules.plan import Plan
    from locks_lab.schedules.runs import FailedRun
    from locks_lab.worlds.events import Choice, Event
    from locks_lab.worlds.world import World

__all__ = ["add_command"]

POLICIES = ("any", "skewed", "oldest", "quiet")

RUN = """\
Missing options are drawn from each seed. The same seed and the same options always do the same.
The first run that fails is shrunk, told, and printed as a command that replays it.

  python -m locks sim run --runs 5000
  python -m locks sim run --agents 20 --locks 10 --nodes 3 --faults
  python -m locks sim run --nodes 3 --require majority --policy skewed
  python -m locks sim run --rule few --agents 4
"""

STORY = """\
  python -m locks sim story --client "write a; write b" --client "write b; write a"
  python -m locks sim story --client "read a; write a" --client "read a; write a" --format waits
  python -m locks sim story --model both --client "write a; write b" --client "write b; write a"

Steps are "write a", "read a/1", "try write a", "ask write a on n1,n2 majority", "token a",
"unlock a", "surrender a", "await" and "again"; a client releases the rest at its end.
The original has "write a", "read a", "ask write a", "await" and "again".
"""

REPLAY = """\
  python -m locks sim replay --client "write a" --client "write a" --schedule "1 2 2>n1 1>n1"
  python -m locks sim replay --client "write a on n2" --nodes 2 --schedule "1 cut:n1,n2"

Moves are:
  1            client 1 takes its next step
  1>n1  n1>1   a message of client 1's agent arrives at the lock server of n1, or the reverse
  1>2          a message of client 1's agent arrives at client 2's agent
  1.2>n1       the same, from the second agent of client 1, after a new begin
  s1           the agent of client 1 searches for deadlocks
  t1           client 1 times out
  d1  x1       client 1 dies: its agent ends, or crashes
  notice:n1,n2     n1 notices that its connection to n2 was lost, or established
  connect:n1,n2  cut:n1,n2  mend:n1,n2  crash:n1  restart:n1
An impossible move is skipped, and named. After the moves, everything runs until all clients have finished.
"""

STEP = """\
  python -m locks sim step --client "write a; write b" --client "write b; write a"
  python -m locks sim step --model original --client "write a" --client "write a"

Enter takes the move that comes next in the usual order, a number another one of the list, b goes back, ? shows the rest.
`locks play` shows the same in a browser.
"""

FORMATS = ("text", "sequence", "waits", "steps")
OF_THE_ORIGINAL = ("explore", "replay", "story", "step")  # commands for the model of the original


def add_command(commands: Any, about: str) -> None:
    """Add `sim` to the program's commands (the result of `add_subparsers`)."""
    parser = commands.add_parser(
        "sim",
        help=about,
        description="Run the machines of the algorithm in a simulated world, and check it.",
    )
    subcommands = parser.add_subparsers(dest="sim", required=True, metavar="COMMAND")
    _add_explore(subcommands)
    _add_run(subcommands)
    _add_replay(subcommands)
    _add_story(subcommands)
    _add_step(subcommands)


def _add(
    subcommands: Any, name: str, run: Callable[[argparse.Namespace], int], about: str, epilog: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subcommands.add_parser(
        name,
        help=about,
        description=about[0].upper() + about[1:] + ".",
        epilog=epilog + _rules(name),
    )
    parser.set_defaults(run=lambda options: _guarded(run, options))
    parser.add_argument(
        "--rule",
        choices=None if name in OF_THE_ORIGINAL else list(RULES),
        metavar="RULE",
        help="the rules, which are listed below (default ours)",
    )
    if name in OF_THE_ORIGINAL:
        both = ("both",) if name == "story" else ()
        parser.add_argument(
            "--model",
            choices=("ours", "original", *both),
            default="ours",
            help="what to simulate: our machines, or a model of the original's",
        )
    return parser


def _rules(name: str) -> str:
    """A list of the rules for a command."""
    known = {"Rules": {rule.name: rule.about for rule in RULES.values()}}
    if name in OF_THE_ORIGINAL:
        known["Rules of the original"] = {rule.name: rule.about for rule in VARIANTS.values()}
    return "".join(
        f"\n{title}:\n" + "".join(f"  {rule:<11}{about}\n" for rule, about in rules.items())
        for title, rules in known.items()
    )


def _guarded(run: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    model = getattr(options, "model", "ours")
    try:
        if options.rule is None:
            options.rule = (ORIGINAL if model == "original" else OURS).name
        elif model == "both":
            raise InvalidOption(
                "--rule can't be combined with --model both: each model has its own rules",
                rule=options.rule,
            )
        elif model == "ours" and options.rule not in RULES:
            raise InvalidOption(
                f"unknown rule {options.rule!r}; the rules are {', '.join(RULES)}{nearest(options.rule, RULES)}",
                rule=options.rule,
            )
        return run(options)
    except InvalidOption as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


# --- explore ------------------------------------------------------------------------------------


def _add_explore(subcommands: Any) -> None:
    from locks_lab.commands import explore as sim_explore

    about = "visit every interleaving of small worlds"
    sim_explore.add_arguments(_add(subcommands, "explore", _explore, about, sim_explore.EXPLORE))


def _explore(options: argparse.Namespace) -> int:
    from locks_lab.commands import explore as sim_explore
    from locks_lab.commands import original as sim_original

    if options.model == "original":
        return sim_original.explore(options)
    if options.find:
        raise InvalidOption("--find needs --model original", find=options.find)
    return sim_explore.run_command(options, _show)


def _show(plan: Plan, schedule: Sequence[Choice]) -> None:
    """Print what leads to a violation in this world, in as few moves as possible."""
    from locks_lab.cases.case import case_of, kind_of, replay
    from locks_lab.cases.shrink import shrink

    case = case_of(plan, schedule)
    found = replay(case)
    if found.error is None:
        print("(only exploring shows it: in a state, or in a transition between states)")
    else:
        case = shrink(case, kind_of(found.error), world=False)
    _print_case(case)


# --- run ----------------------------------------------------------------------------------------


def _add_run(subcommands: Any) -> None:
    parser = _add(subcommands, "run", _run, "run random worlds under random schedules", RUN)
    number: dict[str, Any] = {"type": at_least(1), "metavar": "N"}
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="first seed (default 0)")
    parser.add_argument("--runs", **number, default=2000, help="number of seeds (default 2000)")
    parser.add_argument("--agents", **number, help="clients, each with an agent")
    parser.add_argument("--locks", **number, help="lock ids, or trees of them with --depth")
    parser.add_argument("--nodes", **number, help="nodes")
    parser.add_argument("--depth", **number, help="longest lock id, in elements")
    parser.add_argument("--steps", **number, help="steps of each client")
    parser.add_argument("--reads", type=share, metavar="SHARE", help="share of reads, 0 to 1")
    parser.add_argument(
        "--require",
        type=_requirements,
        metavar="R[,R]",
        help=f"how many nodes a lock needs: {', '.join(REQUIREMENTS)}; several values are mixed",
    )
    parser.add_argument(
        "--tokens",
        type=share,
        metavar="SHARE",
        help="share of locks whose tokens are requested, 0 to 1",
    )
    parser.add_argument("--policy", choices=POLICIES, help="how schedules are chosen")
    parser.add_argument(
        "--faults",
        action=argparse.BooleanOptionalAction,
        help="let nodes crash, connections break and clients die; or nothing of this",
    )
    parser.add_argument(
        "--spokes",
        action=argparse.BooleanOptionalAction,
        help="each client has its own node, connected to lock servers only; or none has",
    )


def _run(options: argparse.Namespace) -> int:
    from locks_lab.schedules.plan import Shape
    from locks_lab.schedules.runs import Tally, run_seeds

    given = vars(options)
    shape = Shape(**{name: given[name] for name in Shape._fields if name in given})
    seeds = range(options.seed, options.seed + options.runs)
    tally = Tally()
    began = time.perf_counter()
    failure = run_seeds(seeds, shape, RULES[options.rule], tally)
    took = time.perf_counter() - began
    print(tally)
    print(
        f"time         {took:.1f} s, {tally.seen['worlds'] / took:,.0f} worlds/s, "
        f"{tally.seen['events'] / took:,.0f} events/s"
    )
    if failure is None:
        print("no violation")
        return 0
    _explain(failure)
    return 1


def _explain(failure: FailedRun) -> None:
    """Print a failed run, made as small as possible."""
    from locks_lab.cases.case import case_of, kind_of
    from locks_lab.cases.shrink import shrink

    print(f"\nseed {failure.seed} fails after {len(failure.schedule):,} events:")
    print(_what(failure.error))
    print("\nThe same, made smaller:")
    _print_case(shrink(case_of(failure.plan, failure.schedule), kind_of(failure.error)))


def _print_case(case: Case) -> None:
    """Print a case as a story, and the command that replays it."""
    from locks_lab.cases.case import replay

    print()
    found = replay(case, trace=True)
    _tell(case, found.world, "text")
    if found.error is not None:
        print(f"\n{_what(found.error)}")
    print(f"\nReplay it with:\n\npython -m locks sim replay {case}")


# --- replay and story ---------------------------------------------------------------------------


def add_case(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that describe a world, and the form of its story; `case_from` reads them."""
    add_world(parser)
    parser.add_argument(
        "--unlinked", default="", metavar="PAIRS", help="never connected: c1-n2,n1-n3"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help=(
            "sentences (default), a Mermaid sequence diagram, the wait-for graph in Mermaid at the "
            "moment of the first surrender, or the steps of each deadlock, as `locks deadlocks` shows them"
        ),
    )


def add_world(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that describe a world whose nodes can all be connected."""
    parser.add_argument(
        "--client", action="append", required=True, metavar="STEPS", help="once for each client"
    )
    parser.add_argument(
        "--nodes", default="1", help="number of nodes, or their names: n1,n2 (default 1)"
    )
    parser.add_argument(
        "--homes",
        default="",
        metavar="NODES",
        help="the clients' nodes (default: first node); c1, c2, ... have no lock server, and are "
        "connected to the nodes that have one",
    )
    parser.add_argument(
        "--options", default="", help="options of the agents: abort_on_deadlock, await_nodes"
    )


def case_from(options: argparse.Namespace) -> Case:
    """Make the case that the arguments describe.

    Raises:
        InvalidOption: An argument is wrong, or something in it does not exist.
    """
    from locks_lab.cases.case import parse_case

    return parse_case(
        options.client,
        options.nodes,
        options.homes,
        options.options,
        options.rule,
        getattr(options, "schedule", ""),
        options.unlinked,
    )


def _add_replay(subcommands: Any) -> None:
    parser = _add(subcommands, "replay", _replay, "replay one case, and tell what happens", REPLAY)
    add_case(parser)
    parser.add_argument("--schedule", default="", metavar="MOVES", help="the first moves")
    parser.add_argument(
        "--full",
        action="store_true",
        help="for the original: messages to lock servers take time, too",
    )


def _replay(options: argparse.Namespace) -> int:
    from locks_lab.cases.case import replay
    from locks_lab.commands import original as sim_original

    if options.model == "original":
        return sim_original.replay(options)
    if options.full:
        raise InvalidOption("--full needs --model original: ours omits nothing here")
    case = case_from(options)
    found = replay(case, trace=True)
    _tell(case, found.world, options.format)
    if found.left_out and found.error is None:
        print(skipped(found.left_out, len(case.moves)), file=sys.stderr)
    return _verdict(found.error)


def _add_story(subcommands: Any) -> None:
    about = "let clients take their steps in turn, and tell the story"
    add_case(_add(subcommands, "story", _story, about, STORY))


def _story(options: argparse.Namespace) -> int:
    from locks_lab.commands import original as sim_original

    if options.model == "ours":
        return _our_story(options)
    if options.model == "original":
        return sim_original.story(options)
    print("The original:\n", flush=True)
    options.rule = ORIGINAL.name
    status = sim_original.story(options)
    print("\nOurs:\n", flush=True)
    options.rule = OURS.name
    return max(status, _our_story(options))


def _our_story(options: argparse.Namespace) -> int:
    from locks_lab.stories import story

    case = case_from(options)
    flags: dict[str, Any] = dict.fromkeys(case.options, True)
    violation = None
    try:
        world = story.act(
            case.scripts, case.nodes, case.homes, case.rule, unlinked=case.unlinked, **flags
        )
    except story.Unfinished as unfinished:
        violation, world = unfinished, unfinished.world
    _tell(case, world, options.format)
    return _verdict(violation)


def _add_step(subcommands: Any) -> None:
    about = "play a situation step by step, forward and back"
    parser = _add(subcommands, "step", _step, about, STEP)
    add_world(parser)
    parser.add_argument("--schedule", default="", metavar="MOVES", help="the first moves")


def _step(options: argparse.Namespace) -> int:
    from locks_lab.play.situations import Situation
    from locks_lab.play.stepping import step_through

    situation = Situation(
        options.model,
        tuple(options.client),
        options.nodes,
        options.homes,
        options.options,
        options.rule,
        tuple(options.schedule.split()),
    )
    seen = step_through(situation, sys.stdin, partial(print, flush=True))
    return 1 if seen["wrong"] is not None else 0


def _tell(case: Case, world: World, form: str) -> None:
    """Print the events in the world of a case."""
    from locks_lab.stories import diagrams, story

    events = world.events or []
    if form == "sequence":
        print(diagrams.sequence_diagram(events))
    elif form == "waits":
        print(diagrams.wait_for_graph(_decisive(events, case.world())))
    elif form == "steps":
        for report in world.carried_out:
            for number, step in enumerate(steps_of(report).steps, 1):
                print(f"{number}. {step}")
    else:
        for line in story.tell(events):
            print(line)


def _decisive(events: list[Event], world: World) -> list[Edge]:
    """The wait-for graph when the first surrender arrives, or else when it is largest.

    Args:
        events: The events in a world.
        world: The same world, before any event.
    """
    largest: list[Edge] = []
    for event in events:
        edges = world.edges()
        if len(edges) > len(largest):
            largest = edges
        if isinstance(event.party, str) and isinstance(event.message, Surrender):
            return edges
        world.do(event.choice)
    return largest


def _verdict(error: Exception | None) -> int:
    """Print an error, if there is one; return the exit status."""
    if error is None:
        return 0
    print(f"\n{_what(error)}", file=sys.stderr)
    return 1


def _what(error: Exception) -> str:
    return str(error) if isinstance(error, AssertionError) else repr(error)


# --- Arguments ----------------------------------------------------------------------------------


def _requirements(text: str) -> tuple[str, ...]:
    found = tuple(text.split(","))
    for each in found:
        if each not in REQUIREMENTS:
            raise argparse.ArgumentTypeError(f"{each!r} is not one of {', '.join(REQUIREMENTS)}")
    return found
