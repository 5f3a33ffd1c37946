"""The command line."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest

from locks import __main__ as command_line
from tests.helpers import LIMIT
from tests.warm import run_program


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m locks` with some arguments."""
    command = [sys.executable, "-m", "locks", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def report() -> Any:
    """One run of the demo."""
    done = run("demo", "--json", "--seconds", "0.5", "--clients", "12", "--accounts", "4")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_demo_resolves_deadlocks_and_keeps_the_money(report: Any) -> None:
    """The bank makes transfers, runs into deadlocks, and its money is what it was."""
    assert report["money_conserved"]
    assert report["money_before"] == report["money_after"] == 400
    assert report["transfers"] > 0
    assert report["audits"] > 0
    assert report["wrong_audits"] == 0
    assert report["deadlocks"] == report["surrenders"] + report["aborts"] > 0
    assert 0 <= report["wait_median_ms"] <= report["wait_99th_percentile_ms"]


def test_demo_on_a_pipe_is_plain_text() -> None:
    """Without a terminal there are no control characters, and the summary is complete."""
    done = run("demo", "--seconds", "0.2", "--clients", "4", "--accounts", "4")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    for word in ("transfers", "audits", "surrenders", "median", "conserved", "slow motion"):
        assert word in done.stdout


@pytest.mark.parametrize("package", ["locks", "locks_leader"])
def test_a_demo_asks_no_servers(package: str) -> None:
    """A demo has a node of its own, also where programs share servers: it neither needs nor disturbs those."""
    options = ["--seconds", "0.1", "--clients", "2"] if package == "locks" else []
    done = run_program(
        [sys.executable, "-m", package, "demo", *options],
        env={**os.environ, "LOCKS_SERVERS": "a@127.0.0.1:1", "LOCKS_COOKIE_FILE": "/nowhere"},
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("web", [False, True])
def test_a_demo_that_is_interrupted(web: bool) -> None:
    """Ctrl-C ends the demo, also while its clients work: no traceback of theirs is shown. With a page it ends the bank first."""
    screen, theirs = pty.openpty()
    command = [sys.executable, "-m", "locks", "demo", "--seconds", "300"]
    process = subprocess.Popen(
        command + ["--web", "127.0.0.1:0"] * web, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = ""
    try:
        for sight in ("transfers  ", "slow motion")[: 1 + web]:
            while sight not in shown:
                shown += os.read(screen, 4096).decode()
            process.send_signal(signal.SIGINT)
        with suppress(OSError):  # all of it was read
            while more := os.read(screen, 4096):
                shown += more.decode()
        assert process.wait(timeout=LIMIT) == 130
    finally:
        process.kill()
        process.wait()
        os.close(screen)
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ("demo", "--clients", "0"),
        ("demo", "--accounts", "1"),
        ("demo", "--seconds", "-1"),
        ("demo", "--seconds", "nan"),
        ("demo", "--clients", "many"),
        (),
        ("dance",),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong argument is an error of usage (status 2) that names it, not a traceback."""
    with pytest.raises(SystemExit) as end:
        command_line.main(list(arguments))
    assert end.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_version() -> None:
    """`--version` prints the version."""
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("locks ")


@pytest.mark.parametrize(("package", "name"), [("locks", "config"), ("locks_leader", "demo")])
@pytest.mark.parametrize(("output", "status"), [("closed pipe", 141), ("/dev/full", 3)])
def test_what_can_not_be_printed(output: str, status: int, package: str, name: str) -> None:
    """A reader that has gone (`| head`) is no error of the command; a full disk is said in a sentence."""
    if output == "closed pipe":
        reader, out = os.pipe()
        os.close(reader)
    else:
        out = os.open(output, os.O_WRONLY)
    try:
        command = [sys.executable, "-m", package, name]
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, timeout=300)
    finally:
        os.close(out)
    assert done.returncode == status
    assert done.stderr.startswith(
        f"{package} {name}: can't write the output" if status == 3 else ""
    )
    assert done.stderr.count("\n") == (status == 3)


def test_what_is_said_without_a_standard_error() -> None:
    """Errors are not printed among the output, where a program reads it; the status is the same."""
    command = [sys.executable, "-m", "locks", "why", "--servers", "here", "a"]
    with_one = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert "no lock servers configured" in with_one.stderr
    without = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command]
    done = subprocess.run(without, stdout=subprocess.PIPE, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (with_one.returncode, "") == (2, "")
