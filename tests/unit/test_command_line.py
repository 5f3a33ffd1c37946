"""What the command line answers to whoever mistypes something, and to whoever waits."""

from __future__ import annotations

import io

import pytest

from locks.__main__ import main
from locks.cli.printing import Progress


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["stauts"], "did you mean status?"),
        (["sim", "explor"], "did you mean explore?"),
        (["ps", "--jsn"], "locks ps: error: unrecognized arguments: --jsn; did you mean --json?"),
        (["sim", "run", "--rule", "larer"], "did you mean larger?"),
        (["sim", "story", "--client", "write a", "--rule", "larer"], "did you mean larger?"),
        (
            ["sim", "story", "--client", "write a", "--model", "original", "--rule", "mirrr"],
            "did you mean mirror?",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistyped_word(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the nearest word, and status is 2; an unknown option shows the usage of its own command."""
    try:
        status = main(arguments)
    except SystemExit as ended:
        status = ended.code  # type: ignore[assignment]
    assert status == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", ["explore", "replay", "story", "run"])
def test_help_says_what_the_rules_are(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each rule has its line; those of the original where there is a model of it."""
    with pytest.raises(SystemExit):
        main(["sim", command, "--help"])
    shown = capsys.readouterr().out
    assert "  hasty      fencing tokens are not confirmed by lock servers\n" in shown
    assert ("Rules of the original:" in shown) is (command != "run")


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        """It is one."""
        return True


def test_progress_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that is written again and again, and gone in the end; what is under way is counted, too."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("locks.cli.printing.OFTEN", 0.0)
    with Progress() as progress:
        progress.show(states=10_000)
        progress.add(worlds=1, states=12_345)
        progress.show(states=10_000)
    first, second, third, last = terminal.getvalue().split("\r")[1:]
    assert first.startswith("10,000 states in 0 s")
    assert second.startswith("1 worlds, 12,345 states")
    assert third.startswith("1 worlds, 22,345 states")
    assert last == "\x1b[K"
