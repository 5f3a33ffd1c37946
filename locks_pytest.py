"""The pytest plugin of `locks.testing`: the fixture `simulation`, options, and short reports.

It is a separate module that imports `locks` only when a test needs it: pytest loads it in every run, also for programs that
do not use locks.

Each seed is a test. Work that concerns all seeds of one test is done where all reports arrive (with pytest-xdist, in its
controller): it sums up what happened, fails if an expected event did not happen, reports one failure in full, and
keeps the failed seeds in pytest's cache.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from locks.testing import Simulation, Summary

PROPERTY = "locks"
CACHE = "locks/failed"
MOST_SHOWN = 20  # seeds in a line


class Setting(NamedTuple):
    """How to run a test: the parameter of the fixture."""

    seed: int
    nodes: tuple[str, ...] | int = 1
    strategy: str = "mixed"
    expect: tuple[str, ...] = ()
    patch: bool = False
    of: int = 1  # number of seeds


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("locks", "simulations (locks.testing)")
    group.addoption(
        "--locks-seed", type=int, metavar="SEED", help="run each simulated test with this seed only"
    )
    group.addoption(
        "--locks-seeds",
        type=int,
        metavar="NUMBER",
        help="number of seeds of each test with @seeds(number); also set by LOCKS_SEEDS in the environment",
    )
    group.addoption(
        "--locks-diagram",
        action="store_true",
        help="also show a failed simulation as a Mermaid diagram",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker that `locks.testing.seeds` sets."""
    config.addinivalue_line(
        "markers", "locks_seeds(seeds, nodes, strategy, expect): set by locks.testing.seeds"
    )
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Reports(config), "locks_reports")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test for each seed; seeds that failed last time come first."""
    marker = metafunc.definition.get_closest_marker("locks_seeds")
    only = metafunc.config.option.locks_seed
    if not _takes_ours(metafunc):
        if marker in metafunc.definition.own_markers:
            pytest.fail(
                f"@seeds on {metafunc.definition.name}, which does not take the fixture `simulation` of locks.testing: it "
                "would run once. Add the parameter `simulation`, and rename a fixture or parameter of your own with that name",
                pytrace=False,
            )
        return
    if marker is None and only is None:
        return
    options = {} if marker is None else marker.kwargs
    seeds = _seeds_for(metafunc.config, marker.args[0] if marker else [0])
    failed = _failed(metafunc.config).get(metafunc.definition.nodeid, []) if only is None else []
    if isinstance(marker and marker.args[0], list):
        failed = [seed for seed in failed if seed in seeds]
    ordered = list(dict.fromkeys([*failed, *seeds]))
    settings = [Setting(seed, **options, of=len(ordered)) for seed in ordered]
    metafunc.parametrize("simulation", settings, indirect=True, ids=[str(s.seed) for s in settings])


def _takes_ours(metafunc: pytest.Metafunc) -> bool:
    """Whether a test takes the fixture `simulation` of this plugin, and not one of its own or a parameter with that name."""
    for marker in metafunc.definition.iter_markers("parametrize"):
        names = marker.args[0] if marker.args else marker.kwargs["argnames"]
        if "simulation" in (re.split(r"[\s,]+", names) if isinstance(names, str) else names):
            return False
    known = metafunc.definition._fixtureinfo.name2fixturedefs.get("simulation", ())
    for fixture in reversed(known):
        if fixture.func.__module__ == __name__:
            return True
        if "simulation" not in fixture.argnames:
            break
    return False


def _seeds_for(config: pytest.Config, seeds: int | list[int]) -> list[int]:
    if config.option.locks_seed is not None:
        return [config.option.locks_seed]
    if not isinstance(seeds, int):
        return seeds
    number = config.option.locks_seeds or int(os.environ.get("LOCKS_SEEDS") or seeds)
    return list(range(number))


def _failed(config: pytest.Config) -> dict[str, list[int]]:
    cache = getattr(config, "cache", None)
    return {} if cache is None else cache.get(CACHE, {})


@pytest.fixture
def simulation(request: pytest.FixtureRequest) -> Iterator[Simulation]:
    """A `Simulation`, with a seed from `seeds`; a test that runs nothing fails."""
    from locks.testing import Simulation

    setting: Setting = getattr(request, "param", Setting(0))
    made = Simulation._one_of_many(setting.seed, nodes=setting.nodes, strategy=setting.strategy)
    with made.patched() if setting.patch else nullcontext():
        yield made
    summary = made.summary
    known = {name: getattr(summary, name) for name in vars(summary)}
    told = {"seed": setting.seed, "of": setting.of, "expect": setting.expect, "seen": known}
    request.node.user_properties.append((PROPERTY, told))
    made._check_ran()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Report how a failure happened; the first failure of each test is shortened as far as possible."""
    __tracebackhide__ = True
    simulation = pyfuncitem.funcargs.get("simulation")
    try:
        return (yield)
    except Exception as error:
        # Tests that don't use `locks` don't load it.
        loaded = sys.modules.get("locks.testing")
        if loaded is None or not isinstance(simulation, loaded.Simulation):
            raise
        from locks.testing.scenarios import explained

        # Other fixtures would not be new in each run.
        alone = pyfuncitem._fixtureinfo.argnames == ("simulation",)
        first = pyfuncitem.originalname not in _shrunk.setdefault(pyfuncitem.parent, set())
        _shrunk[pyfuncitem.parent].add(pyfuncitem.originalname)
        found = explained(pyfuncitem.obj, simulation, error, alone and first)
        if pyfuncitem.config.option.locks_diagram:
            pyfuncitem.add_report_section("call", "diagram", found.simulation.diagram())
        raise found.error from None


_shrunk: dict[Any, set[str]] = {}


class _Reports:
    """Collects all reports."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.seen: dict[str, list[dict[str, Any]]] = {}
        self.failed: dict[str, list[int]] = {}
        self.told: dict[str, str] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the report of a test's phase."""
        base, _, seed = report.nodeid.rpartition("[")
        if (
            report.when == "call"
            and report.failed
            and "in a simulation with seed=" in _text(report)
        ):
            number = seed.partition("]")[0]
            if not number.removeprefix("-").isdecimal():
                return
            self.failed.setdefault(base, []).append(int(number))
            if self.told.setdefault(base, number) != number:
                report.longrepr = f"also fails: run with --locks-seed={number} to see how"
                report.sections = []
        for name, told in report.user_properties if report.when == "teardown" else ():
            if name == PROPERTY and isinstance(told, dict):
                self.seen.setdefault(base or report.nodeid, []).append(told)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Report expected events that did not happen, and keep the failed seeds."""
        from_cache = _failed(self.config)
        for base, each in self.seen.items():
            expected, summary = each[0]["expect"], _summed_up(each)
            missing = summary.missing(expected)
            alone = self.config.option.locks_seed is not None  # a failure that is run again
            all_ran = len(each) == each[0]["of"] and not alone
            if missing and all_ran and base not in self.failed:
                self._fail(session, base, missing, summary)
            tried = {told["seed"] for told in each}
            left = [seed for seed in from_cache.get(base, []) if seed not in tried]
            from_cache[base] = sorted({*left, *self.failed.get(base, [])})
        cache = getattr(self.config, "cache", None)
        if cache is not None and self.seen:
            cache.set(CACHE, {base: seeds for base, seeds in from_cache.items() if seeds})

    def _fail(
        self, session: pytest.Session, base: str, missing: Sequence[str], summary: Summary
    ) -> None:
        from locks.testing.scenarios import nothing

        path, _, name = base.partition("::")
        text = nothing(missing, summary)
        report = pytest.TestReport(
            base, (path, None, name), {}, "failed", f"{base}: {text}", "call"
        )
        self.config.hook.pytest_runtest_logreport(report=report)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Sum up the simulations of each test that has several seeds."""
        several = {base: each for base, each in self.seen.items() if each[0]["of"] > 1}
        if not several:
            return
        terminalreporter.section("simulations")
        for base, each in sorted(several.items()):
            terminalreporter.line(f"{base}: {_summed_up(each)}")
            if seeds := self.failed.get(base):
                shown = ", ".join(map(str, seeds[:MOST_SHOWN]))
                more = f" and {len(seeds) - MOST_SHOWN} more" if len(seeds) > MOST_SHOWN else ""
                terminalreporter.line(
                    f"    fails with seed {shown}{more}; --locks-seed=... runs one"
                )


def _summed_up(each: Sequence[dict[str, Any]]) -> Summary:
    from locks.testing import Summary

    summary = Summary()
    for told in each:
        summary += Summary(**told["seen"])
    return summary


def _text(report: pytest.TestReport) -> str:
    return report.longreprtext
