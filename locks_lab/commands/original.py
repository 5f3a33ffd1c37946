"""`python -m locks sim ... --model original`: stories, cases and failures of the model of the Erlang original."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from locks.errors import InvalidOption
from locks_lab.commands.arguments import skipped
from locks_lab.original.variants import variant_of

if TYPE_CHECKING:
    from locks_lab.original.world import World
    from locks_lab.worlds.script import Script

__all__ = ["explore", "replay", "story"]

NOT_MODELLED = ("unlinked", "crash", "restart", "cuts", "spokes", "extras")
MOST = 500_000  # limit of states of a world; they are larger than ours
ABORTS = "abort_on_deadlock"


def _world(
    options: argparse.Namespace,
    scripts: Sequence[str | Script],
    nodes: Sequence[str],
    homes: Sequence[str] = (),
    trace: bool = False,
) -> World:
    """Make the world of the original that the arguments describe.

    Raises:
        InvalidOption: The model lacks something in them.
    """
    from locks_lab.original.world import World

    for name in NOT_MODELLED:
        if getattr(options, name, None):
            flag = "with" if name == "extras" else name
            raise InvalidOption(
                f"--{flag} can't be used with the model of the original, which lacks it"
            )
    flags = options.options.split(",") if options.options else []
    if not set(flags) <= {ABORTS}:
        raise InvalidOption(
            f"unknown option {options.options!r} of the original; it has only {ABORTS}"
        )
    return World(
        scripts,
        nodes,
        homes,
        variant_of(options.rule),
        trace=trace,
        delays=getattr(options, "full", False),
        late=getattr(options, "full", False),
        abort_on_deadlock=ABORTS in flags,
    )


def _told(options: argparse.Namespace) -> World:
    """The world of a story or a case."""
    from locks_lab.cases.case import nodes_from

    homes = options.homes.split(",") if options.homes else ()
    return _world(options, options.client, nodes_from(options.nodes), homes, trace=True)


# --- story and replay ---------------------------------------------------------------------------


def story(options: argparse.Namespace) -> int:
    """Let clients take their steps in turn, and tell the story."""
    return _finish(_told(options), options.format)


def replay(options: argparse.Namespace) -> int:
    """Make the given moves, then run everything to its end; tell the story."""
    from locks_lab.cases.case import parse_move, possible
    from locks_lab.worlds.host import Violation

    world = _told(options)
    left_out: list[str] = []
    moves = options.schedule.split()
    for text in moves:
        choice = possible(cast(Any, world), parse_move(text))
        if choice is None:
            left_out.append(text)
            continue
        try:
            world.do(cast(Any, choice))
        except Violation as violation:
            return _tell(world, options.format, violation)
    if left_out:
        print(skipped(left_out, len(moves)), file=sys.stderr)
    return _finish(world, options.format)


def _finish(world: World, form: str) -> int:
    from locks_lab.original.story import finish
    from locks_lab.worlds.host import Violation

    try:
        finish(world)
    except Violation as violation:
        return _tell(world, form, violation)
    return _tell(world, form)


def _tell(world: World, form: str, violation: AssertionError | None = None) -> int:
    """Print the events; return the exit status."""
    from locks_lab.original import story as stories

    match form:
        case "sequence":
            print(stories.sequence(world))
        case "waits" | "steps":
            print(f"--format {form} is not for the original", file=sys.stderr)
            return 2
        case _:
            for line in stories.tell(world):
                print(line)
    if violation is None:
        return 0
    print(f"\n{violation}", file=sys.stdout if form == "text" else sys.stderr)
    return 1


# --- explore ------------------------------------------------------------------------------------


def explore(options: argparse.Namespace) -> int:
    """Search one world after the other for a shortest schedule that fails; print it."""
    from locks_lab.cases.case import listed, move_of
    from locks_lab.explorer.search import TooManyStates
    from locks_lab.original.explore import KINDS, shortest_failure
    from locks_lab.worlds.host import Violation
    from locks_lab.worlds.script import write_script

    wanted = listed("kind", options.find, list(KINDS)) or tuple(KINDS)
    limit = min(options.limit, MOST)
    began = time.perf_counter()
    states = worlds = 0
    for worlds, (scripts, nodes, homes) in enumerate(_wanted(options), 1):  # noqa: B007
        world = _world(options, scripts, nodes, homes)
        before = _hold(world) if options.held else []
        try:
            found = shortest_failure(world, wanted, limit)
        except TooManyStates as error:
            print(f"{error}\nin the world {' | '.join(map(write_script, scripts))}")
            return 1
        states += found.states
        if options.verbose:
            print(f"{found.states:,} states  {' | '.join(map(write_script, scripts))}", flush=True)
        if found.violation is not None:
            break
    else:
        print(f"worlds      {worlds:,}\nstates      {states:,}")
        print(f"time        {time.perf_counter() - began:.1f} s\nno violation")
        return 0
    moves = [*before, *found.schedule]
    told = _world(options, scripts, nodes, homes, trace=True)
    print(f"after {states:,} states, a schedule of {len(found.schedule)} events:\n")
    try:
        for move in moves:
            told.do(move)
        told.check_quiet()
    except Violation as violation:
        _tell(told, "text", violation)
    words = [f'--client "{write_script(script)}"' for script in scripts]
    words += [f"--nodes {len(nodes)}"] if len(nodes) > 1 else []
    words += [f"--homes {','.join(homes)}"] if homes else []
    words += [f"--options {options.options}"] if options.options else []
    words += [f"--rule {options.rule}"] if options.rule != "original" else []
    words += ["--full"] if options.full else []
    schedule = " ".join(str(move_of(cast(Any, move), {})) for move in moves)
    print("\nReplay it with:\n")
    print(f'python -m locks sim replay --model original {" ".join(words)} --schedule "{schedule}"')
    return 1


def _hold(world: World) -> list[Any]:
    """Let each client take its first step; return the events."""
    events = world.events
    world.events = []
    for client in world.clients:
        world.step(client.number)
        world.deliver()
    done, world.events = [event.choice for event in world.events], events
    return done


def _wanted(
    options: argparse.Namespace,
) -> Iterator[tuple[tuple[Script, ...], tuple[str, ...], tuple[str, ...]]]:
    from locks_lab.explorer.small_worlds import kind_from, small_worlds
    from locks_lab.schedules.plan import node_names
    from locks_lab.worlds.script import parse_script

    nodes = node_names(options.nodes)
    if options.client:
        scripts = tuple(map(parse_script, options.client))
        yield scripts, nodes, nodes if options.spread else ()
        return
    for plan in small_worlds(kind_from(options)):
        yield plan.scripts, plan.nodes, plan.homes
