"""`locks.testing`: failures are short, and can be run again; planted bugs; strategies; pytest's part."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

import locks
from benchmarks.planted import PLANTED, Scenario
from benchmarks.strategies import between
from locks import aio
from locks.testing import Simulation, Violation, simulate
from locks.testing.schedules import Script, parse
from locks_pytest import _seeds_for
from tests.helpers import EXPLORE, ROOT, SEED
from tests.warm import run_program

A, B = ("a",), ("b",)


class Bank:
    """One that calculates with what it has read under a lock that it may have surrendered since."""

    def __init__(self, *names: str) -> None:
        self.balances = dict.fromkeys(names, 100)

    def transfer(self, source: str, target: str) -> None:
        with locks.transaction(on_deadlock="surrender") as tx:
            tx.write_lock(("bank", source))
            left = self.balances[source] - 10
            tx.write_lock(("bank", target))
            self.balances[source] = left
            self.balances[target] += 10

    def audit(self) -> None:
        with locks.transaction() as tx:
            tx.read_lock(("bank",))


def hasty(simulation: Simulation) -> None:
    """Two transfers that matter, among others that do not."""
    bank = Bank("ann", "bob", "cleo")
    simulation.client(bank.audit)
    simulation.client(bank.transfer, "ann", "bob", name="clerk-1")
    simulation.client(bank.transfer, "bob", "ann", name="clerk-2")
    simulation.client(bank.transfer, "cleo", "cleo")
    simulation.client(bank.audit)
    simulation.run()
    assert sum(bank.balances.values()) == 300


def failure_of(scenario: Any, *args: Any, **options: Any) -> tuple[BaseException, str]:
    """What a scenario fails with, and its story."""
    with pytest.raises(BaseException) as caught:  # noqa: PT011 it is looked at
        simulate(scenario, *args, **options)
    return caught.value, "\n".join(getattr(caught.value, "__notes__", []))


UNUSED = ("-p", "no:hypothesispytest", "-p", "no:anyio")
"""Plugins that take longer to load than such a run takes."""
needs_notes = pytest.mark.skipif(sys.version_info < (3, 11), reason="there are no notes")

# --- Failures ---------------------------------------------------------------------------------------


@needs_notes
@pytest.mark.parametrize("strategy", ["mixed", "uniform", "pct"])
def test_failures_are_shrunk(strategy: Any) -> None:
    """Clients and switches that do not matter are left out; the story has the deadlock, and the user's lines."""
    _, story = failure_of(hasty, strategy=strategy)
    lines = story.splitlines()
    assert "2 of 5 clients, 3 of " in lines[0]
    assert 'schedule="without 1,4,5: ' in lines[0]
    assert len(lines) < 20
    assert not any("audit" in line for line in lines)
    (at,) = (n for n, line in enumerate(lines) if "deadlock of clerk-" in line)
    assert all("test_testing_failures.py:" in line for line in lines[at + 1 : at + 3])
    assert {line.split()[1] for line in lines[at + 1 : at + 3]} == {"clerk-1", "clerk-2"}


def test_client_that_the_check_counts_is_not_left_out() -> None:
    """A scenario that fails for want of a client is not the failure that was found."""

    def scenario(simulation: Simulation) -> None:
        done: list[int] = []

        def work(number: int) -> None:
            seen = len(done)
            locks.holders(A)
            if len(done) == seen:
                done.append(number)

        for number in range(3):
            simulation.client(work, number)
        simulation.run()
        assert len(done) == 3

    with pytest.raises(AssertionError) as caught:
        simulate(scenario)
    if sys.version_info >= (3, 11):
        assert "3 of 3 clients" in caught.value.__notes__[0]


def test_traceback_has_the_users_lines_only() -> None:
    """Of what a client raises, none of the lines is ours; of an error that should never come up, all are there."""

    def abort(simulation: Simulation) -> None:
        def lock(*ids: tuple[str]) -> None:
            with locks.transaction() as tx:
                for lock_id in ids:
                    tx.write_lock(lock_id)

        simulation.client(lock, A, B)
        simulation.client(lock, B, A)
        simulation.run()

    error, _ = failure_of(abort)
    assert isinstance(error, locks.DeadlockAborted)
    assert _files(error).count("node.py") == _files(error).count("agent.py") == 0
    assert _files(error).count("test_testing_failures.py") >= 2

    def broken(simulation: Simulation) -> None:
        simulation.client(lambda: locks.holders(None))  # type: ignore[arg-type]
        simulation.run()

    assert isinstance(failure_of(broken)[0], locks.LocksError)


def _files(error: BaseException) -> list[str]:
    found, trace = [], error.__traceback__
    while trace is not None:
        found.append(Path(trace.tb_frame.f_code.co_filename).name)
        trace = trace.tb_next
    return found


def test_diagram() -> None:
    """A run as a Mermaid sequence diagram: a column for each client, and the deadlock over all."""
    seed = next(n for n in range(100) if _of_two(n).deadlocks)
    made = _of_two(seed)
    lines = made.diagram().splitlines()
    assert lines[0] == "sequenceDiagram"
    assert lines[1:3] == ["    participant C1 as transfer-1", "    participant C2 as transfer-2"]
    assert any(line.startswith("    Note over C1,C2: deadlock of transfer-") for line in lines)


def _of_two(seed: int) -> Simulation:
    made = Simulation(seed)
    bank = Bank("ann", "bob")
    made.client(bank.transfer, "ann", "bob")
    made.client(bank.transfer, "bob", "ann")
    made.run()
    return made


@given(st.lists(st.integers(-3, 5).filter(bool)), st.sets(st.integers(1, 9)))
def test_schedules_are_read_as_they_are_written(steps: list[int], without: set[int]) -> None:
    """Each schedule comes back from its text."""
    script = Script(steps, tuple(sorted(without)))
    assert parse(str(script)) == script


# --- Strategies -------------------------------------------------------------------------------------


def test_every_schedule() -> None:
    """Each order of the steps of two clients is tried once, and no other; the summary says that these are all."""
    orders: list[str] = []

    def scenario(simulation: Simulation) -> None:
        steps: list[str] = []

        def work(name: str) -> None:
            for _ in range(2):
                locks.holders(A)
                steps.append(name)

        simulation.client(work, "a")
        simulation.client(work, "b")
        simulation.run()
        orders.append("".join(steps))

    summary = simulate(scenario, strategy="every")
    assert summary.all
    assert (
        str(summary) == "all 20 schedules, nobody ever waited"
    )  # three steps each: 6! / (3! * 3!)
    assert len(orders) == 20
    assert set(orders) == {"aabb", "abab", "abba", "baab", "baba", "bbaa"}


def test_too_many_schedules_are_refused() -> None:
    """It does not say that all were tried if they were not."""
    with pytest.raises(locks.MisuseError, match="there are more than 10 schedules"):
        simulate(_steps, strategy="every", limit=10)


def _steps(simulation: Simulation) -> None:
    for _ in range(3):
        simulation.client(lambda: [locks.holders(A) for _ in range(3)])
    simulation.run()


@pytest.mark.parametrize("number", [1, 4, 8])
def test_what_needs_many_steps_of_another_client_is_found(number: int) -> None:
    """What needs N transactions of others between two of one's own is found within 1,000 seeds."""
    with pytest.raises(AssertionError):
        simulate(between(number), 1000, shrink=False)


def test_strategies_take_turns() -> None:
    """The seed says which strategy it is, and a strategy that is named is used."""
    assert trace_of(1, "mixed") == trace_of(1, "uniform") != trace_of(1, "pct")
    assert trace_of(3, "mixed") == trace_of(3, "pct") != trace_of(3, "uniform")


def trace_of(seed: int, strategy: Any) -> list[str]:
    """What has happened."""
    made = Simulation(seed, strategy=strategy)
    bank = Bank("ann", "bob")
    made.client(bank.transfer, "ann", "bob")
    made.client(bank.transfer, "bob", "ann")
    made.run()
    return made.trace


# --- pytest -----------------------------------------------------------------------------------------

TESTS = """
import locks
from locks.testing import seeds

def use(count):
    with locks.transaction() as tx:
        tx.write_lock(("a",))
        before = count[0]
        tx.unlock(("a",))
        tx.write_lock(("a",))
        count[0] = before + 1

@seeds(6, expect=("wait",))
def test_lost(simulation):
    count = [0]
    simulation.client(use, count)
    simulation.client(use, count)
    simulation.run()
    assert count == [2]

@seeds(6, expect=("deadlock", "wait"))
def test_alone(simulation):
    simulation.client(use, [0])
    simulation.run()

def test_nothing(simulation):
    pass
"""


def run_pytest(folder: Path, *args: str, **environment: str) -> str:
    """What pytest says, with the plugin by its entry point; on CI its last lines would repeat each failure in full."""
    given = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = run_program(
        [sys.executable, "-m", "pytest", *UNUSED, "-q", "-rf", *args],
        cwd=folder,
        env={name: value for name, value in given.items() if name not in {"CI", "BUILD_NUMBER"}},
    )
    return done.stdout + done.stderr


@pytest.mark.slow
@needs_notes
def test_reports(tmp_path: Path) -> None:
    """One failure in full, others as seeds; a summary of each test; what was expected fails; the cache; options."""
    (tmp_path / "test_it.py").write_text(TESTS)
    out = run_pytest(tmp_path)
    seeds = [n for n in range(6) if f"test_it.py::test_lost[{n}]" in out]
    assert len(seeds) > 1
    assert out.count("in a simulation with seed=") == 1
    assert out.count("asks for write a  [test_it.py:") < 10
    assert "locks/testing" not in out
    assert f"fails with seed {', '.join(map(str, seeds))}; --locks-seed=... runs one" in out
    assert "test_it.py::test_lost: 6 schedules, " in out
    assert "no deadlock and no wait has happened: 6 schedules, nobody ever waited" in out
    assert "FAILED test_it.py::test_alone" in out
    assert "the simulation was given no client, so nothing was tested" in out

    again = run_pytest(tmp_path, "-x", "-k", "lost", "--locks-diagram")
    assert f"test_lost[{seeds[0]}]" in again
    assert "1 failed" in again
    assert "passed" not in again  # it is the first one
    assert "sequenceDiagram" in again


@pytest.mark.slow
def test_seeds_without_the_fixture_are_refused(tmp_path: Path) -> None:
    """It would run once: with a fixture or parameter of the project's own with that name, or without any. Marked classes may have other tests."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\nfrom locks.testing import seeds\n"
        "@seeds(3)\ndef test_none(): pass\n"
        "@seeds(3)\n@pytest.mark.parametrize('simulation', [1])\ndef test_own(simulation): pass\n"
    )
    out = run_pytest(tmp_path)
    assert "@seeds on test_none, which does not take the fixture `simulation`" in out
    assert "passed" not in out
    (tmp_path / "test_it.py").write_text(
        "from locks.testing import seeds\n@seeds(3)\nclass TestAll:\n    def test_none(self): pass\n"
        "    def test_each(self, simulation):\n        simulation.client(print)\n        simulation.run()\n"
    )
    assert "4 passed" in run_pytest(tmp_path)


@pytest.mark.parametrize(
    ("options", "environment", "given", "seeds"),
    [
        ({}, "", 3, [0, 1, 2]),
        ({"locks_seeds": 2}, "4", 3, [0, 1]),
        ({}, "4", 3, [0, 1, 2, 3]),
        ({"locks_seeds": 2}, "4", [7, 9], [7, 9]),
        ({"locks_seed": 17}, "4", [7, 9], [17]),
    ],
)
def test_numbers_of_seeds(
    options: dict[str, int], environment: str, given: Any, seeds: list[int], monkeypatch: Any
) -> None:
    """`--locks-seed` says the seed; `--locks-seeds`, and after it `LOCKS_SEEDS`, how many, but not for those that are listed."""
    monkeypatch.setenv("LOCKS_SEEDS", environment)
    asked = SimpleNamespace(**{"locks_seed": None, "locks_seeds": None, **options})
    assert _seeds_for(SimpleNamespace(option=asked), given) == seeds  # type: ignore[arg-type]


# --- Hypothesis -------------------------------------------------------------------------------------


def transfers(pairs: list[tuple[str, str]]) -> Any:
    """A scenario with a client for each pair."""

    def scenario(simulation: Simulation) -> None:
        bank = Bank("ann", "bob", "cleo")
        for source, target in pairs:
            simulation.client(bank.transfer, source, target)
        simulation.run()
        assert sum(bank.balances.values()) == 300

    return scenario


names = st.sampled_from(["ann", "bob"])


def test_hypothesis_makes_steps_of_clients() -> None:
    """A state machine whose rules are steps of clients, which are run in the end."""

    class Transfers(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.steps: dict[str, list[tuple[str, str]]] = {}

        @rule(client=st.sampled_from(["c1", "c2"]), source=names, to=names)
        def transfer(self, client: str, source: str, to: str) -> None:
            self.steps.setdefault(client, []).append((source, to))

        def teardown(self) -> None:
            if self.steps:
                simulate(self.scenario, 3)

        def scenario(self, simulation: Simulation) -> None:
            bank = Bank("ann", "bob", "cleo")

            def work(pairs: list[tuple[str, str]]) -> None:
                for source, target in pairs:
                    bank.transfer(source, target)

            for name, pairs in self.steps.items():
                simulation.client(work, pairs, name=name)
            simulation.run()
            assert sum(bank.balances.values()) == 300

    machine = Transfers.TestCase
    machine.settings = settings(
        max_examples=100,
        stateful_step_count=4,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
    )
    with pytest.raises(AssertionError):
        machine("runTest").runTest()


# --- Realistic programs with a planted bug each: found within 100 seeds, made again by the schedule, made short to the same violation. ---


SEEDS, FEW = 100, 20


def kind_of(error: BaseException) -> tuple[str, int]:
    """The type and the line of an error."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    assert last.lineno is not None
    return type(error).__name__, last.lineno


def failure_of_planted(scenario: Scenario, **how: Any) -> tuple[tuple[Any, ...] | None, Simulation]:
    """How a run fails: type, line and text."""
    simulation = Simulation(**how)
    with simulation.patched():
        try:
            scenario(simulation)
        except Exception as error:
            return (*kind_of(error), re.sub("0x[0-9a-f]+", "", str(error))), simulation
    return None, simulation


@pytest.mark.parametrize("scenario", PLANTED)
def test_planted_bug_is_found_played_again_and_made_short(scenario: Scenario) -> None:
    """Each failing seed's own schedule fails in the same way; the first one is made short to the same error at the same line."""
    found = set()
    for seed in range(SEEDS if EXPLORE else FEW):
        first, drawn = failure_of_planted(scenario, seed=seed)
        if first is not None:
            found.add(first[:2])
            assert failure_of_planted(scenario, schedule=drawn.schedule)[0] == first, f"seed {seed}"
    with pytest.raises((AssertionError, Violation)) as short:
        simulate(scenario, SEEDS, patch=True)
    note = "\n".join(getattr(short.value, "__notes__", ["the shortest way"]))
    assert "the shortest way" in note
    assert not found or kind_of(short.value) in found


@pytest.mark.explore
def test_hash_seeds_change_nothing() -> None:
    """Each planted bug fails under the same seeds, with the same schedules, whatever the order of sets is."""
    found = {_outcomes(str(seed)) for seed in (0, 1, 2, 3)}
    assert len(found) == 1


def _outcomes(hash_seed: str) -> str:
    program = """if True:
        from tests.api.test_testing_failures import PLANTED, failure_of_planted
        for each in PLANTED:
            for seed in range(10):
                end, run = failure_of_planted(each, seed=seed)
                print(each.__name__, seed, end, run.schedule)
    """
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = run_program([sys.executable, "-c", program], env=environment, check=True)
    return done.stdout


# --- The schedule of any drawn run brings the same run about again: every step, at the same time, to the same end. ---


RUNS = 200 if EXPLORE else 30
Made = Callable[[Simulation], list[Any]]


def bank(simulation: Simulation) -> list[Any]:
    """Transfers in a ring: deadlocks, and runs that begin again."""
    seen: list[Any] = []

    def move(source: str, target: str) -> None:
        for _ in range(2):

            def body(tx: locks.Transaction) -> None:
                tx.write_lock((source,))
                tx.write_lock((target,))
                seen.append((source, target))

            locks.run_transaction(body)

    for source, target in ("ab", "bc", "ca"):
        simulation.client(move, source, target, name=source)
    return seen


def sleep_under_a_lock(simulation: Simulation) -> list[Any]:
    """Timers of several clients, of different lengths."""
    seen: list[Any] = []

    def work(number: int) -> None:
        with locks.Lock(("x",)):
            seen.append(number)
            time.sleep(0.5)
        time.sleep(0.1 * number)
        with locks.Lock(("x",)):
            seen.append(number)

    for number in range(3):
        simulation.client(work, number)
    return seen


def time_limits(simulation: Simulation) -> list[Any]:
    """A limit runs out at about the time at which the lock is free."""
    seen: list[Any] = []

    def work(number: int) -> None:
        for _ in range(2):
            try:
                with locks.Lock(("x",), timeout=0.3):
                    seen.append(("got", number))
                    time.sleep(0.2)
            except locks.LockTimeout:
                seen.append(("timed out", number, time.monotonic()))

    for number in range(3):
        simulation.client(work, number)
    return seen


def a_task_dies(simulation: Simulation) -> list[Any]:
    """A task of asyncio is cancelled, or not, while it waits or holds."""
    seen: list[Any] = []

    async def inner(number: int) -> None:
        async with aio.Lock(("x",)):
            seen.append(("in", number))
            await asyncio.sleep(0.2)
            seen.append(("out", number))

    async def work(number: int) -> None:
        task = asyncio.create_task(inner(number))
        await asyncio.sleep(0.1)
        if number == 0:
            task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            seen.append(("cancelled", number))

    for number in range(3):
        simulation.client(work, number)
    return seen


def majorities(simulation: Simulation) -> list[Any]:
    """Clients on three nodes, with locks of a majority."""
    seen: list[Any] = []

    def work(number: int) -> None:
        for _ in range(2):
            try:
                with locks.transaction(timeout=5) as tx:
                    tx.write_lock(("x",), nodes=["n1", "n2", "n3"], require="majority")
                    seen.append(("in", number))
                    simulation.sleep(0.05)
            except locks.LocksError as error:
                seen.append((type(error).__name__, number))

    for number in range(3):
        simulation.client(work, number, node=f"n{number + 1}")
    return seen


CASES: dict[str, tuple[Made, int, dict[str, int]]] = {
    "bank": (bank, 1, {}),
    "bank with deaths": (bank, 1, {"deaths": 2}),
    "sleep under a lock": (sleep_under_a_lock, 1, {}),
    "time limits": (time_limits, 1, {}),
    "time limits and deaths": (time_limits, 1, {"deaths": 1}),
    "a task dies": (a_task_dies, 1, {}),
    "majorities": (majorities, 3, {}),
    "majorities with faults": (majorities, 3, {"cuts": 2, "crashes": 1, "deaths": 1}),
}


def run(make: Made, nodes: int, faults: dict[str, int], **how: Any) -> tuple[Any, Simulation]:
    """A run: how it ended, and what was seen of it."""
    simulation = Simulation(nodes=nodes, **how) if nodes > 1 else Simulation(**how)
    seen = make(simulation)
    end = None
    with simulation.patched():
        try:
            simulation.run(**faults)
        except Exception as error:
            end = type(error), str(error)
    return (end, seen, simulation.trace), simulation


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_schedule_brings_its_run_about_again(name: str) -> None:
    """All of it: the end, the clients' own notes with their times, and each line of the trace."""
    make, nodes, faults = CASES[name]
    for seed in range(SEED, SEED + RUNS):
        first, drawn = run(make, nodes, faults, seed=seed)
        again, replayed = run(make, nodes, faults, schedule=drawn.schedule)
        assert again == first, f"seed {seed}: {drawn.schedule}"
        assert replayed.schedule == drawn.schedule, f"seed {seed}"


def test_a_failure_that_needs_its_times_is_made_short(caplog: pytest.LogCaptureFixture) -> None:
    """A limit of time is compared by the client itself: no plain schedule fails, the exact one does."""

    def scenario(simulation: Simulation) -> None:
        late = []

        def work() -> None:
            begun = time.monotonic()
            with locks.Lock(("x",)):
                simulation.sleep(0)
            late.append(time.monotonic() - begun)

        for _ in range(3):
            simulation.client(work)
        simulation.run()
        assert max(late) < 0.004

    with pytest.raises(AssertionError) as error:
        simulate(scenario, seeds=100, patch=True)
    told = getattr(error.value, "__notes__", [caplog.text])  # Python 3.10 has none
    (note,) = [each for each in told if "the shortest way" in each]
    text = note.partition('schedule="')[2].partition('"')[0]
    assert text.startswith("exact")
    simulation = Simulation(schedule=text)
    with simulation.patched(), pytest.raises(AssertionError):
        scenario(simulation)
