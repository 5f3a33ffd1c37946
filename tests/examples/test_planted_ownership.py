"""The processes that ingest tasks as simulated clients: right as they are, and a bug that is planted into them is found."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from examples import ingest
from locks.ownership import Ownership
from locks.testing import Simulation, simulate


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few tasks, each of which takes longer than it takes to hand its group over."""
    for name, value in (("TASKS", 20), ("FIRST_TASKS", 20), ("GROUPS", 4), ("PAUSE", 0.05)):
        monkeypatch.setattr(ingest, name, value)


def ingesting(
    work: Callable[..., Any] = ingest.work, deaths: int = 0
) -> Callable[[Simulation], None]:
    """Three workers that come one after the other; who applies a task has been at its account for `PAUSE` seconds."""

    def scenario(simulation: Simulation) -> None:
        database = ingest.connect(":memory:")
        ingest.fill(database)

        def worker(number: int) -> Any:
            time.sleep(0.12 * number)
            return work(f"worker-{number}", database, Ownership("ingest", ingest.GROUPS))

        last: dict[str, tuple[str, float]] = {}

        def seen(_: object, name: str, number: int, account: str, *rest: Any) -> str:
            before, at = last.get(account, (name, 0.0))
            assert name == before or simulation.time - at >= ingest.PAUSE, "two at one account"
            last[account] = name, simulation.time
            return apply(database, name, number, account, *rest)

        for number in range(3):
            simulation.client(worker, number)
        apply = ingest.apply
        with mock.patch.object(ingest, "apply", seen):
            simulation.run(deaths=deaths)
        assert ingest.count_done(database) == ingest.TASKS
        sums = "SELECT account, sum(amount) FROM tasks GROUP BY account"
        applied = "SELECT name, balance FROM accounts WHERE balance"
        assert sorted(database.execute(sums)) == sorted(database.execute(applied))
        database.close()

    return scenario


def hasty_ingest(name: str, database: sqlite3.Connection, mine: Ownership) -> dict[str, int]:
    """Looks whether it owns the account, and does not hold it while it works."""
    outcomes: Counter[str] = Counter()
    with mine:
        while mine.joined and ingest.count_done(database) < ingest.TASKS:
            for group, token in mine.owned().items():
                for number, account, amount in ingest.to_do(database, group):
                    if not mine.owns(account):
                        break
                    time.sleep(ingest.PAUSE)
                    outcome = ingest.apply(database, name, number, account, amount, token)
                    outcomes[outcome] += 1
            time.sleep(0.001)
    return dict(outcomes)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("deaths", [0, 2])
def test_ingest(deaths: int) -> None:
    """The program as it is: never two workers at one account, and each task is applied once, whoever comes or dies."""
    simulate(ingesting(deaths=deaths), 40, patch=True)


@pytest.mark.explore
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("deaths", [0, 1, 2])
def test_ingest_under_many_schedules(deaths: int) -> None:
    """The same, for longer."""
    simulate(ingesting(deaths=deaths), 1000, patch=True)


@pytest.mark.usefixtures("small")
def test_ingest_that_does_not_hold() -> None:
    """A worker that looks and does not hold is found with the first seeds."""
    with pytest.raises(AssertionError, match="two at one account"):
        simulate(ingesting(hasty_ingest), 100, patch=True, shrink=False)
