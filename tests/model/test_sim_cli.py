"""The simulator's command line."""

from __future__ import annotations

import re
import shlex

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
    more = "--require any,majority --policy oldest --no-faults --seed 5"
    assert sim("run", *options.split(), *more.split()) == 0
    out = capsys.readouterr().out
    assert "30 with several nodes" in out
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


def test_a_story_with_a_bad_end(capsys: pytest.CaptureFixture[str], mute: None) -> None:
    """A story is told up to where it is stuck; then it is said who is, and the status is 1."""
    assert sim("story", *RING, "--rule", "mute") == 1
    told = capsys.readouterr()
    assert "Client 2 asks" in told.out
    assert told.err.startswith("\nstuck: clients [1, 2]\n")


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
