"""Each call of the public API is whole or not at all, at whatever instruction it is disturbed.

`systematic` has the faults, `cases` the calls. Here each call is disturbed at one position under each
fault, which one by `LOCKS_SEED`; `LOCKS_EXPLORE=1 make explore` tries all, or many.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.helpers import EXPLORE, ROOT, SEED
from tests.torture.cases import CASES
from tests.torture.systematic import Row, Trial


def swept(*arguments: str) -> list[Row]:
    """What the command found."""
    command = [sys.executable, "-m", "tests.torture.systematic", "--json", "--seed", str(SEED)]
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    rows = [Row(*json.loads(line)) for line in done.stdout.splitlines()]
    return [row._replace(failed=[Trial(*each) for each in row.failed]) for row in rows]


def judge(rows: list[Row]) -> None:
    """Fail with what went wrong."""
    print(f"{sum(row.trials for row in rows)} trials, outside {sum(row.outside for row in rows)}")
    bad = [trial for row in rows for trial in row.failed]
    lines = [
        f"{row.case} ({row.kind}): {trial.fault} at {trial.at} ({trial.where}): {'; '.join(trial.problems)}"
        for row in rows
        for trial in row.failed
    ]
    assert not bad, f"{len(bad)} of {sum(row.trials for row in rows)}:\n" + "\n".join(lines[:20])


@pytest.mark.slow
def test_a_disturbed_call_is_whole_or_not_at_all() -> None:
    """Each case under each fault, at one position: the ledger, all invariants, and who saw the exception."""
    rows = swept("--tries", "1", "--most", "2")
    assert {(row.case, row.kind) for row in rows} == {
        (name, kind) for name, case in CASES.items() for kind in case.kinds
    }
    judge(rows)


@pytest.mark.explore
@pytest.mark.skipif(not EXPLORE, reason="takes long: set LOCKS_EXPLORE=1")
@pytest.mark.parametrize("name", CASES)
def test_at_each_instruction(name: str) -> None:
    """Each fault at every position."""
    judge([row for row in swept("--case", name) if row.case == name])
