"""What the command line answers to whoever mistypes something, and to whoever waits."""

from __future__ import annotations

import pytest

from locks.__main__ import main


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
