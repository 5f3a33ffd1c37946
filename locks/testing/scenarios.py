"""Many runs of a scenario: under many seeds, or under every schedule."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from locks.errors import InvalidOption, MisuseError
from locks.runtime.first_use import Unloaded
from locks.testing.schedules import Script
from locks.testing.shrinking import Found, Scenario, shortest
from locks.testing.simulation import Simulation, check_names
from locks.testing.story import Summary
from locks.testing.watchdog import Hang
from locks_lab.applications.agenda import State
from locks_lab.applications.strategies import Named, check_strategy

if TYPE_CHECKING:
    import pytest
else:
    pytest = Unloaded("pytest")

__all__ = ["Expected", "NothingHappened", "Summary", "check_expected", "seeds", "simulate"]

Expected = Literal[
    "deadlock", "abort", "wait", "timeout", "death", "cut", "crash", "loss", "election"
]
MOST = 20_000  # schedules
NOT_SHORTER = (
    "seed={}, not made shorter: its schedule did not fail in the same way again. Does the code use randomness without a seed, the order of a "
    "set, or what an earlier run has left?"
)


class NothingHappened(AssertionError):
    """An event that a test expects has happened under no schedule."""


def simulate(
    scenario: Scenario,
    seeds: int | Iterable[int] = 100,
    *,
    nodes: int | Sequence[str] = 1,
    strategy: Named | Literal["every"] = "mixed",
    expect: Sequence[Expected] | AbstractSet[Expected] = (),
    patch: bool = False,
    shrink: bool | None = None,
    limit: int = MOST,
) -> Summary:
    """Run a scenario under many seeds, until it fails.

    Args:
        scenario: Called with a new `Simulation`: adds clients, runs it, and checks the outcome. A
            test that takes the fixture `simulation` is one.
        seeds: The seeds, or their number. `LOCKS_SEEDS` in the environment says another number.
        nodes: As for `Simulation`.
        strategy: As for `Simulation`; or `"every"`: not by seeds, but under every schedule that
            there is.
        expect: What has to happen under one of them at least, such as `("deadlock", "abort")`.
        patch: Whether `time`, `threading` and `queue` are in virtual time; see
            `Simulation.patched`.
        shrink: Whether a failure is made shorter, by more runs. By default it is, but not within
            Hypothesis, which does so itself.
        limit: With `"every"`: the most schedules.

    Returns:
        What has happened.

    Raises:
        Exception: What the scenario has raised; a note says the seed, and what has happened.
        NothingHappened: What was expected has not happened.
        MisuseError: Nothing was run; or there are more schedules than `limit`.
    """
    __tracebackhide__ = True
    check_expected(expect)
    shrinks = not _is_in_hypothesis() if shrink is None else shrink
    if strategy == "every":
        summary = every(scenario, limit, patch, nodes)
    else:
        check_strategy(strategy)
        summary = Summary()
        for seed in _numbered(seeds):
            simulation = Simulation._one_of_many(seed, nodes=nodes, strategy=strategy)
            try:
                simulation._try(scenario, patch)
            except Exception as error:
                raise explained(scenario, simulation, error, shrinks, patch).error from None
            simulation._check_ran()
            summary += simulation.summary
        if not summary.schedules:
            raise MisuseError("there are no seeds, so nothing was tested")
    if missing := summary.missing(expect):
        raise NothingHappened(nothing(missing, summary))
    return summary


def nothing(missing: Sequence[str], summary: Summary) -> str:
    """The text for expected events that have not happened."""
    return f"no {' and no '.join(missing)} has happened: {summary}"


def explained(
    scenario: Scenario,
    simulation: Simulation,
    error: Exception,
    shrinks: bool,
    patch: bool = False,
) -> Found:
    """A failed run, or a shorter one that fails in the same way; its error contains its story."""
    if shrinks and simulation._has_run and not isinstance(error, Hang):
        found = shortest(scenario, simulation, error, patch)
        if found is not None:
            found.simulation._explain(found.error, found.words(simulation))
            return found
        simulation._explain(error, NOT_SHORTER.format(simulation.seed))
        return Found(simulation, error)
    simulation._explain(error)
    return Found(simulation, error)


def every(scenario: Scenario, limit: int, patch: bool, nodes: int | Sequence[str]) -> Summary:
    """Run each schedule, depth first.

    Args:
        scenario: Called with each simulation.
        limit: The most schedules.
        patch: As for `simulate`.
        nodes: As for `simulate`.
    """
    summary = Summary()
    states: list[State] = []
    while not summary.schedules or states:
        if summary.schedules == limit:
            raise MisuseError(
                f"there are more than {limit} schedules; add fewer clients, have them do less, or raise the limit"
            )
        script = str(Script([state.taken for state in states]))
        simulation = Simulation._one_of_many(nodes=nodes, schedule=script)
        try:
            simulation._try(scenario, patch)
        except Exception as error:
            number = summary.schedules + 1
            head = f'schedule="{simulation.schedule}", the {number}. of all that was tried'
            simulation._explain(error, head)
            raise
        simulation._check_ran()
        summary += simulation.summary
        _advance(states, simulation._states)
    return replace(summary, all=True)


def _advance(states: list[State], run: Sequence[State]) -> None:
    """The next schedule: the last step that has an untried alternative is changed."""
    states += run[len(states) :]
    while states:
        last = states[-1]
        left = last.options[last.options.index(last.taken) + 1 :]
        if left:
            last.taken = left[0]
            return
        states.pop()


def check_expected(expect: Any) -> None:
    """Refuse unknown names of expected events.

    Raises:
        InvalidOption: A name is unknown.
    """
    known = get_args(Expected)
    if isinstance(expect, str) or not set(expect) <= set(known):
        raise InvalidOption(
            f"expect={expect!r} is not known; it is a tuple of {', '.join(map(repr, known))}",
            value=repr(expect),
        )


def _numbered(seeds: int | Iterable[int]) -> Iterable[int]:
    if not isinstance(seeds, int):
        return seeds
    return range(int(os.environ.get("LOCKS_SEEDS") or seeds))


def _is_in_hypothesis() -> bool:
    hypothesis = sys.modules.get("hypothesis")
    return hypothesis is not None and hypothesis.currently_in_test_context()


def seeds(
    seeds: int | Iterable[int] = 100,
    *,
    nodes: int | Sequence[str] = 1,
    strategy: Named = "mixed",
    expect: Sequence[Expected] | AbstractSet[Expected] = (),
    patch: bool = False,
) -> pytest.MarkDecorator:
    """For pytest: run a test that takes the fixture `simulation` once with each seed.

    The seed is in the name of each test: `pytest "test_bank.py::test_transfers[17]"` runs one.

    Args:
        seeds: The seeds, or their number; `--locks-seeds` and `LOCKS_SEEDS` say another number.
        nodes: As for `Simulation`.
        strategy: As for `Simulation`.
        expect: What has to happen under one of them at least, such as `("deadlock", "abort")`.
        patch: As for `simulate`.
    """
    check_strategy(strategy)
    check_expected(expect)
    each = seeds if isinstance(seeds, int) else list(seeds)
    names = check_names(nodes)
    return pytest.mark.locks_seeds(
        each, nodes=names, strategy=strategy, expect=tuple(expect), patch=patch
    )
