"""Programs as users write them, by two type checkers: what is right passes, and each line with `# E` is an error.

`events.py` is no user's: it proves that inside the library a function and its arguments are checked where they are passed on.

mypy and pyright differ in what they accept, and users have either. Pyright comes with a Node.js from a wheel
(`pyright[nodejs]`), so it needs nothing but the package index.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import needs
from tests.warm import run_program

needs("mypy", "pyright")

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"

Lines = dict[tuple[str, int], str]  # with errors, each by file and number: what is said


def expected() -> set[tuple[str, int]]:
    """The lines that are marked."""
    return {
        (path.name, number)
        for path in PROGRAMS.glob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.endswith("# E")
    }


OF_UNTYPED_LIBRARIES = {  # their base classes are Celery's and Django's, which have no types
    "locks.engines.celery.Scheduler",
    "locks.engines.django.LockedCommand",
    "locks.engines.django.LocksConfig",
}


def run(*command: object) -> str:
    """Run a checker; return what it prints."""
    bin = Path(
        sys.executable
    ).parent  # pyright takes the first Python of the path, and its packages
    path = os.pathsep.join((str(bin), os.environ.get("PATH", "")))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
    done = run_program([sys.executable, "-m", *map(str, command)], env=environment)
    assert not done.stderr, done.stderr
    return done.stdout


def by_mypy() -> Lines:
    """What mypy finds; strictly, and without this project's own settings."""
    found = run("mypy", "--strict", "--config-file=", PROGRAMS)
    lines = re.findall(r"(\w+\.py):(\d+): error: (.*)", found)
    assert lines, found
    return {(name, int(number)): text for name, number, text in lines}


def pyright(*arguments: object) -> Any:
    """What pyright says."""
    return json.loads(run("pyright", "--outputjson", *arguments))


def by_pyright() -> Lines:
    """What pyright finds, with its own defaults."""
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1): each["message"]
        for each in pyright(PROGRAMS)["generalDiagnostics"]
    }


@pytest.mark.slow
@pytest.mark.parametrize("check", [by_mypy, pytest.param(by_pyright, marks=pytest.mark.explore)])
def test_programs_of_users(check: Any) -> None:
    """Each program: where, and only where, it is marked, there is an error."""
    found: Lines = check()
    marked = expected()
    assert {line: text for line, text in found.items() if line not in marked} == {}
    assert marked - set(found) == set()


@pytest.mark.explore
@pytest.mark.parametrize("package", ["locks", "locks_leader", "locks_lab"])
def test_no_public_type_is_unknown(package: str) -> None:
    """For a type checker that takes annotations alone, as editors do."""
    found = pyright("--verifytypes", package, "--ignoreexternal")["typeCompleteness"]
    counts = found["exportedSymbolCounts"]
    print(f"{package}: {found['completenessScore']:.3f}", counts)
    assert counts["withKnownType"] > 700
    unknown = {
        each["name"]
        for each in found["symbols"]
        if each["isExported"] and not each["isTypeKnown"] and not each["isTypeAmbiguous"]
    }
    assert unknown - OF_UNTYPED_LIBRARIES == set()
    assert counts["withUnknownType"] == len(unknown)
