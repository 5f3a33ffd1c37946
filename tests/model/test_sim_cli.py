"""The simulator's command line."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from locks.__main__ import main
from locks_lab.worlds import rules
from tests.model.test_run import SILENT

RING = ("--client", "write a; write b", "--client", "write b; write a")


@pytest.fixture
def mute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a rule under which deadlocks stay."""
    monkeypatch.setitem(rules.RULES, SILENT.name, SILENT)


def sim(*arguments: str) -> int:
    """Run a command."""
    return main(["sim", *arguments])


def test_run_sums_up(capsys: pytest.CaptureFixture[str]) -> None:
    """A run says how much was seen, and that all is well."""
    assert sim("run", "--runs", "40") == 0
    out = capsys.readouterr().out
    assert re.search(r"^worlds +40, \d+ of them with deadlocks", out, re.MULTILINE)
    for name in ("events", "deadlocks", "superfluous", "faults", "timeouts", "messages", "time"):
        assert re.search(rf"^{name} +\d", out, re.MULTILINE), name
    assert out.endswith("no violation\n")


def test_run_does_what_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Options say what worlds look like."""
    options = "--runs 30 --agents 3 --locks 2 --nodes 2 --depth 2 --steps 3 --reads 0.5"
    more = "--require any,majority --policy oldest --no-faults --surrender --seed 5"
    assert sim("run", *options.split(), *more.split()) == 0
    out = capsys.readouterr().out
    assert "30 with several nodes" in out
    assert "0 by an abort" in out
    assert "0 crashes of nodes, 0 cuts of connections, 0 deaths of clients" in out
    assert "by policy: oldest" in out


def test_run_says_how_to_replay_what_goes_wrong(
    capsys: pytest.CaptureFixture[str], mute: None
) -> None:
    """The command that is printed goes wrong in the same way; it is small."""
    assert sim("run", "--rule", "mute", "--agents", "6", "--nodes", "1") == 1
    out = capsys.readouterr().out
    assert "fails after" in out
    assert "stuck: clients [1, 2]" in out
    command = shlex.split(out.splitlines()[-1])
    assert command[:5] == ["python", "-m", "locks", "sim", "replay"]
    assert command.count("--client") == 2
    assert main(command[3:]) == 1
    again = capsys.readouterr()
    assert again.err.startswith("\nstuck: clients [1, 2]")
    assert again.out in out  # the story, which is told at once


def test_the_same_seed_prints_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """Only the time that it takes differs."""
    seen = []
    for _ in range(2):
        assert sim("run", "--runs", "20", "--faults", "--nodes", "3") == 0
        out = capsys.readouterr().out
        seen.append([line for line in out.splitlines() if not line.startswith("time ")])
    assert seen[0] == seen[1]


def test_replay_makes_moves_happen(capsys: pytest.CaptureFixture[str]) -> None:
    """A replay begins with the moves that are given."""
    assert sim("replay", *RING, "--schedule", "2 1 s1") == 0
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert lines[1].startswith("Client 2 asks")
    assert lines[2].startswith("Client 1 asks")
    assert told.err == "skipped 1 of 3 moves, which were not possible: s1\n"


@pytest.mark.parametrize("command", ["replay", "story"])
@pytest.mark.parametrize(
    ("form", "first", "more"),
    [
        ("text", "By age", "yields"),
        ("sequence", "sequenceDiagram", "participant"),
        ("waits", "flowchart", "A1 == "),
        ("steps", "1. client-", "This closes the cycle."),
    ],
)
def test_a_story_is_told_in_several_forms(
    command: str, form: str, first: str, more: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sentences, a sequence diagram, the wait-for graph with the deadlock in it, or the deadlock step by step."""
    assert sim(command, *RING, "--format", form) == 0
    out = capsys.readouterr().out
    assert out.startswith(first)
    assert more in out


def test_a_story_without_a_deadlock_shows_who_waits(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a surrender, the wait-for graph is the largest one."""
    assert sim("story", "--client", "write a", "--client", "write a", "--format", "waits") == 0
    out = capsys.readouterr().out
    assert re.search(r"A2 .*a.* A1", out)


def test_a_story_with_a_bad_end(capsys: pytest.CaptureFixture[str], mute: None) -> None:
    """A story is told up to where it is stuck; then it is said who is, and the status is 1."""
    assert sim("story", *RING, "--rule", "mute") == 1
    told = capsys.readouterr()
    assert "Client 2 asks" in told.out
    assert told.err.startswith("\nstuck: clients [1, 2]\n")


def test_options_for_agents_and_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    """Clients live where they are told to, and their agents do as they are told to."""
    more = ("--nodes", "2", "--homes", "n1,n2", "--options", "abort_on_deadlock,await_nodes")
    assert sim("story", *RING, *more) == 0
    assert "client 2 (on n2)" in capsys.readouterr().out
    steps = "write a on n2; write b on n2"
    back = "write b on n2; write a on n2"
    assert sim("story", "--client", steps, "--client", back, *more) == 0
    assert "abort" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("story", "--client", "fly a"), "step 'fly a' can't be read"),
        (("replay", *RING, "--schedule", "7"), "there is no client 7"),
        (("replay", *RING, "--homes", "n7"), "there is no node 'n7'"),
        (("explore", "--with", "fly"), "there is no step 'fly'"),
        (("explore", "--crash", "n7"), "there is no node 'n7'"),
    ],
)
def test_what_can_not_be_read_is_refused(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong argument is named, and the status is 2."""
    assert sim(*arguments) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--reads", "2"),
        ("run", "--require", "some"),
        ("run", "--agents", "0"),
        ("explore", "--agents", "0"),
        ("explore", "--cuts", "-1"),
        ("run", "--rule", "mine"),
        ("story",),
        (),
    ],
)
def test_usage_is_explained(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """The parser refuses the rest, and says why."""
    with pytest.raises(SystemExit) as exit_info:
        sim(*arguments)
    assert exit_info.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_other_commands_do_not_pay_for_it() -> None:
    """What only these commands need is not imported before one of them runs."""
    check = (
        "import sys, locks.__main__; print([m for m in sys.modules if m.startswith('locks_lab')])"
    )
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"
