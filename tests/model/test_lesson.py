"""The lesson: each situation of it can be played, and what its answers say is true."""

from __future__ import annotations

import re
from typing import Any

import pytest

from examples.exercises.slides import MOST_LINES, main, situation_of
from locks_lab.play.board import play
from locks_lab.play.situations import Situation, game_of
from tests.helpers import ROOT

LESSON = (ROOT / "docs" / "lesson.md").read_text(encoding="utf-8")
END = ["next"] * 1_000


def situations() -> list[Situation]:
    """Those that the page links to, in order."""
    return [situation_of(link) for link in re.findall(r"play/index\.html#([^)\s]+)\)", LESSON)]


def story(seen: dict[str, Any]) -> str:
    """What has happened, as text."""
    return "\n".join(line for said in seen["said"] for line in said["lines"])


STEPS = dict(zip((1, 2, 3, 4, 6, 7, 8, 9, 10), situations(), strict=True))  # 5 is 4 again


@pytest.mark.parametrize("step", STEPS)
def test_each_situation_ends_as_the_answer_says(step: int) -> None:
    """All end well, but for the wrong rule and the original, which get stuck."""
    situation = STEPS[step]
    seen = play(game_of(situation), [*situation.moves, *END])
    assert seen["over"]
    assert ("stuck" in (seen["wrong"] or "")) == (step in (7, 8))


def test_slides(capsys: pytest.CaptureFixture[str]) -> None:
    """Each step has its question, its story but for 5, and its answer; none has more lines than fit."""
    assert main() == 0
    slides = capsys.readouterr().out.split("\n\n---\n\n")
    for step in range(1, 11):
        mine = [each for each in slides if each.startswith(f"## {step}. ")]
        assert "**Predict:**" in mine[0]
        assert ("what happens" in mine[1]) == (step != 5)
        assert ": answer" in mine[-1]
        assert all(
            "Play it" not in each and len(each.splitlines()) <= MOST_LINES + 5 for each in mine
        )
    assert "Client 3 yields" in "".join(slides)


def test_a_late_message_only_delays() -> None:
    """Step 5: the message from client 1 to client 2 comes when nothing else can happen; until then nobody yields."""
    game = game_of(STEPS[4])
    held = "1>2"
    for _ in range(1_000):
        moves = {each.move: each for each in game.options() if each.group != "fault"}
        others = [move for move in moves if move != held]
        if not others:
            break
        assert "yields" not in "\n".join(line for said in game.said() for line in said.lines)
        usual = game.usual()
        moves[usual if usual in others else others[0]].do()
    assert held in moves
    moves[held].do()
    assert "Client 3 yields" in story(play_on(game))


def play_on(game: Any) -> dict[str, Any]:
    """Play a game that has begun to its end."""
    while (usual := game.usual()) is not None:
        next(each for each in game.options() if each.move == usual).do()
    return {"said": [said._asdict() for said in game.said()]}


def test_who_is_cut_off_loses_the_majority() -> None:
    """Step 10: client 1 is told so, and client 2 gets the lock."""
    situation = STEPS[10]
    begun = ["1", "1>n1", "n1>1", "1>n2", "n2>1", "1>n3", "n3>1"]
    game = game_of(situation)
    for move in begun:
        found = {each.move: each for each in game.options()}
        if move in found:
            found[move].do()
    for move in (
        "cut:n1,n2",
        "cut:n1,n3",
        "notice:n1,n2",
        "notice:n1,n3",
        "notice:n2,n1",
        "notice:n3,n1",
        "2",
    ):
        {each.move: each for each in game.options()}[move].do()
    for _ in range(30):
        usual = game.usual()
        if usual is None or usual == "1" or usual == "2":
            break
        {each.move: each for each in game.options()}[usual].do()
    told = "\n".join(line for said in game.said() for line in said.lines)
    assert "Client 1 is told that it has lost a" in told
    second = game.seen()["clients"][1]
    assert second["holds"] == ["write a"]
