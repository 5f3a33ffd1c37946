"""How soon planted bugs are found, by `locks.testing` and by what else there is for Python: `python -m benchmarks.finding`.

The programs of `benchmarks.planted`, two of `benchmarks.strategies`, and the example store with a bug. Each is tried up to `RUNS` times, by

- `simulate` with its default strategy,
- pytest-repeat: a test that starts the clients as threads, again and again,
- Hypothesis' stateful tests, whose rules choose which client is called next; one call at a time, and in threads, which overlap.

Each program is tried by each tool in a process of its own, until the bug is found or the time is up. With `--write` the results are kept in
`benchmarks/measured/finding.json`; `tests.repo.test_generated` writes the tables of `docs/testing_others.md` from them. Needs pytest-repeat.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest import mock

from benchmarks.planted import PLANTED, Scenario
from benchmarks.strategies import shop, workers
from examples.kv_store import Store, Transaction
from locks.testing import Simulation, simulate

__all__ = ["counting", "describe", "main", "with_threads"]

RUNS = 300
PATIENCE = 60.0  # seconds for all runs of a program
STUCK = 10.0  # seconds after which threads are taken to be stuck
ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "benchmarks" / "measured" / "finding.json"


def counting(simulation: Simulation) -> None:
    """Three clients of the example store add to two keys, each to the sum of what it has read."""
    random.seed(simulation.seed)  # the pauses of `Store.run`
    with Store() as opened:
        opened.run(lambda tx: [tx.put(key, "0") for key in "ab"])

        def add(tx: Transaction) -> None:
            for key in "ab":
                tx.put(key, str(int(tx.get(key) or 0) + 1))

        for _ in range(3):
            simulation.client(opened.run, add)
        simulation.run()
        assert opened.run(lambda tx: tx.scan()) == [("a", "3"), ("b", "3")]


def store(simulation: Simulation) -> None:
    """The store moves a transaction up without looking whether what it has read has changed."""
    with mock.patch.object(Store, "changed", return_value=False):
        counting(simulation)


PROGRAMS = {each.__name__: each for each in (*PLANTED, shop, workers, store)}


class Found(NamedTuple):
    """How a bug was looked for.

    Attributes:
        runs: How many runs there were, with the one that found it.
        seconds: How long they took.
        how: What has found it; empty if nothing has.
    """

    runs: int
    seconds: float
    how: str


# --- Real threads ---------------------------------------------------------------------------------


class Threads:
    """Stands in for a `Simulation`: the clients are threads, which begin at once or as is planned.

    Args:
        plan: Numbers of clients, in the order in which they begin; any other number waits for those that have begun.
    """

    def __init__(self, plan: Sequence[int] = ()) -> None:
        self.seed = time.monotonic_ns()
        self.sleep: Callable[..., None] = lambda seconds=0: time.sleep(seconds)
        self._plan = plan
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    def client(self, function: Callable[..., object], *args: object, name: str = "") -> None:
        """Add a client."""

        def work() -> None:
            try:
                function(*args)
            except BaseException as error:
                self._errors.append(error)

        self._threads.append(threading.Thread(target=work, name=name or None, daemon=True))

    def run(self, deaths: int = 0) -> None:
        """Let all begin, and wait for them. Threads can't be killed, so there are no deaths."""
        end = time.monotonic() + STUCK
        for number in self._plan:
            if number < len(self._threads):
                self._begin(self._threads[number])
            else:
                self._wait(end)
        for each in self._threads:
            self._begin(each)
        self._wait(end)
        if self._errors:
            raise self._errors[0]

    def _begin(self, thread: threading.Thread) -> None:
        if thread.ident is None:
            thread.start()

    def _wait(self, end: float) -> None:
        begun = [thread for thread in self._threads if thread.ident is not None]
        for each in begun:
            each.join(max(0.0, end - time.monotonic()))
        if any(each.is_alive() for each in begun):
            raise AssertionError("threads are stuck")


def with_threads(program: Scenario, plan: Sequence[int] = ()) -> None:
    """Run a program once."""
    stand_in: Any = Threads(plan)
    program(stand_in)


# --- The tools ------------------------------------------------------------------------------------


class Search:
    """Counts runs, until one fails or the time is up."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()
        self.found = Found(0, 0.0, "")

    @property
    def is_over(self) -> bool:
        """Whether no more runs are needed."""
        runs, seconds, how = self.found
        return bool(how) or runs >= RUNS or seconds > PATIENCE

    def ended(self, how: str = "") -> None:
        """A run has ended, and `how` if the bug was found."""
        self.found = Found(self.found.runs + 1, time.perf_counter() - self.begun, how)


def by_simulation(program: Scenario) -> Found:
    """`locks.testing`, by its default strategy."""
    search = Search()
    while not search.is_over:
        try:
            simulate(program, [search.found.runs], patch=True, shrink=False)
            search.ended()
        except Exception as error:
            search.ended(type(error).__name__)
    return search.found


def by_repetition(program: Scenario) -> Found:
    """pytest-repeat, with threads."""
    import pytest

    search = Search()

    class Counting:
        def pytest_collection_finish(self) -> None:
            search.begun = time.perf_counter()

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.when == "call":
                search.ended("a failed test" if report.failed else "")

        def pytest_runtest_teardown(self, item: pytest.Item) -> None:
            if search.is_over:
                item.session.shouldstop = "the time is up"

    test = (
        "from benchmarks.finding import PROGRAMS, with_threads\n"
        f"def test_{program.__name__}():\n    with_threads(PROGRAMS[{program.__name__!r}])\n"
    )
    with TemporaryDirectory() as folder:
        file = Path(folder, f"test_{program.__name__}.py")
        file.write_text(test, encoding="utf-8")
        options = ["-x", "-q", f"--count={RUNS}", f"--rootdir={folder}", "-p", "no:cacheprovider"]
        pytest.main([str(file), *options], plugins=[Counting()])
    return search.found


def by_hypothesis(program: Scenario, overlap: bool) -> Found:
    """Hypothesis' stateful tests, with calls one at a time, or in threads."""
    from hypothesis import HealthCheck, Phase, settings
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

    number, search = number_of_clients(program), Search()
    steps = st.integers(0, number if overlap else number - 1)

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.plan: list[int] = []

        @rule(client=steps)
        def call(self, client: int) -> None:
            self.plan += [client] if overlap else [client, number]

        def teardown(self) -> None:
            if search.is_over:
                return
            rest = [] if overlap else [each for n in range(number) for each in (n, number)]
            try:
                with_threads(program, [*self.plan, *rest])
                search.ended()
            except Exception as error:
                search.ended(type(error).__name__)
                raise

    try:
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=RUNS, deadline=None, database=None, derandomize=True,
                stateful_step_count=2 * number + 1, phases=[Phase.generate], suppress_health_check=list(HealthCheck),
            ),
        )  # fmt: skip
    except Exception:
        if not search.found.how:
            raise
    return search.found


class Counted(Exception):
    """The clients have been counted."""


def number_of_clients(program: Scenario) -> int:
    """How many clients a program has."""
    counting: Any = Threads()

    def stop(**_: object) -> None:
        raise Counted

    counting.run = stop
    with suppress(Counted):
        program(counting)
    return len(counting._threads)


TOOLS: dict[str, Callable[[Scenario], Found]] = {
    "locks.testing": by_simulation,
    "pytest-repeat, threads": by_repetition,
    "Hypothesis, one call at a time": lambda program: by_hypothesis(program, overlap=False),
    "Hypothesis, threads": lambda program: by_hypothesis(program, overlap=True),
}


# --- All of them ----------------------------------------------------------------------------------


def measure(tool: str, program: str) -> Found:
    """Try one program by one tool, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.finding", "--worker", tool, program]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, timeout=5 * PATIENCE, check=True, cwd=ROOT, text=True
    )
    return Found(*json.loads(done.stdout.splitlines()[-1]))


def about() -> dict[str, str]:
    """With what it was measured."""
    packages = ("hypothesis", "pytest", "pytest-repeat")
    return {"Python": platform.python_version()} | {name: version(name) for name in packages}


def describe() -> str:
    """The results as a table, with the versions."""
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    found: dict[str, dict[str, list[Any]]] = measured["found"]
    lines = [f"| Planted bug | {' | '.join(TOOLS)} |", f"| --- |{' ---: |' * len(TOOLS)}"]
    for program in PROGRAMS:
        cells = [words(Found(*found[tool][program])) for tool in TOOLS]
        lines.append(f"| {program} | {' | '.join(cells)} |")
    numbers = [
        sum(bool(Found(*found[tool][program]).how) for program in PROGRAMS) for tool in TOOLS
    ]
    lines.append(f"| **found** | {' | '.join(f'{n} of {len(PROGRAMS)}' for n in numbers)} |")
    versions = ", ".join(f"{name} {number}" for name, number in measured["about"].items())
    return "\n".join([*lines, f"| *{versions}* |{' |' * len(TOOLS)}"])


def words(found: Found) -> str:
    """A cell: in which run, and after how long."""
    if not found.how:
        return f"none of {found.runs}"
    return f"{found.runs} ({found.seconds:.2g} s)"


def main() -> int:
    """Measure, and print the table or keep the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.finding", description=__doc__)
    parser.add_argument("--write", action="store_true", help="keep the results")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        tool, program = arguments.worker
        logging.disable()  # long waits are no news here
        print(f"\n{json.dumps(TOOLS[tool](PROGRAMS[program]))}", flush=True)
        os._exit(0)  # threads may be stuck
    found: dict[str, dict[str, Found]] = {tool: {} for tool in TOOLS}
    for tool in TOOLS:
        for program in PROGRAMS:
            found[tool][program] = measure(tool, program)
            print(f"{tool:<32}{program:<24}{words(found[tool][program])}", flush=True)
    if arguments.write:
        text = json.dumps({"about": about(), "found": found}, indent=2)
        MEASURED.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
