"""A plugin of pytest, for the process in which somebody else's suite runs: what became of each test, as JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

RANK = {"skipped": 0, "passed": 1, "failed": 2}
LIMIT = float(os.environ.get("LOCKS_OTHERS_LIMIT", "30"))  # seconds that a test may take
found: dict[str, tuple[str, str]] = {}


def name_of(nodeid: str) -> str:
    """The name of a test, wherever its file lies."""
    path, *names = nodeid.split("::")
    own = (Path(__file__).parent / path).exists()
    return "::".join(names if own else [Path(path).stem, *names])


class HangsError(Exception):
    """A test has taken longer than it may."""


def hangs(*_: object) -> NoReturn:
    """The time is over."""
    raise HangsError(f"it takes longer than {LIMIT:g} seconds")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """End a test that hangs, and after that each second what hangs in its end."""
    signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, LIMIT, 1)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Put down the worst of a test's phases, and the last line that tells why."""
    if report.when != "call" and report.passed:
        return
    if hasattr(report, "wasxfail"):  # as its authors expect it
        outcome, why = ("passed" if report.skipped else "failed"), report.wasxfail
    else:
        outcome, why = report.outcome, ""
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = (crash.message if crash else str(report.longrepr)).strip()
        elif report.skipped:
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
    name = name_of(report.nodeid)
    before = found.get(name)
    if before is None or RANK[before[0]] < RANK[outcome]:
        found[name] = (outcome, why)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """What can't be imported has failed."""
    if report.failed:
        found[f"{name_of(report.nodeid)}::(import)"] = ("failed", str(report.longrepr))


def pytest_sessionfinish(exitstatus: int) -> None:
    """Hand it over, unless pytest itself has failed, or found nothing."""
    if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return
    Path(os.environ["LOCKS_OTHERS_REPORT"]).write_text(json.dumps(found), encoding="utf-8")


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """What hangs in tests that have failed would be waited for by the interpreter's end."""
    sys.stdout.flush()
    os._exit(0)
