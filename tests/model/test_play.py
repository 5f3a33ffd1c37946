"""Worlds that are played step by step: boards, situations, their commands, and the terminal."""

from __future__ import annotations

import io
import itertools
import json
import random
import subprocess
import sys
from typing import Any

import pytest

from locks.errors import InvalidOption
from locks_lab.play.board import play
from locks_lab.play.exercises import exercise
from locks_lab.play.requests import respond
from locks_lab.play.situations import (
    RING,
    SITUATIONS,
    Situation,
    command_of,
    from_command,
    game_of,
)
from locks_lab.play.stepping import HELP, HINT, step_through
from tests.helpers import ROOT, SEED

END = ["next"] * 1_000
OURS = Situation(clients=RING)


def look(situation: Situation, *moves: str) -> dict[str, Any]:
    """The board after some moves, as the page gets it."""
    data = {
        key: value for key, value in situation._asdict().items() if key not in ("name", "about")
    }
    request = {"what": "look", "situation": {**data, "moves": list(moves)}}
    found: dict[str, Any] = json.loads(json.dumps(respond(json.loads(json.dumps(request)))))
    return found


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name)
def test_each_situation_of_the_list_can_be_played(situation: Situation) -> None:
    """Its own moves are possible, and from there the usual ones lead to the end; each move has its place in the story.

    The original ends in what its situation says; ours never does. Of the rules that Arts weighs, one does not end.
    """
    begun = look(situation, *situation.moves)
    assert begun["moves"] == list(situation.moves)
    seen = look(situation, *situation.moves, *END)
    assert seen["over"] == (situation.rule != "mended+swap")
    assert len(seen["said"]) == len(seen["moves"]) + 1 or seen["wrong"]
    wrong = {
        "The original gets stuck": "stuck",
        "The original breaks exclusion": "broken exclusion",
        **dict.fromkeys(("smallest", "smaller", "back"), "stuck"),
    }
    key = situation.rule or situation.name
    assert wrong.get(key, "") in (seen["wrong"] or "")
    assert bool(seen["wrong"]) == (key in wrong)


def test_a_ring_of_three_to_its_end_and_back() -> None:
    """The youngest gives way, everybody ends; one move less is exactly the board that was there before."""
    end = look(OURS, *END)
    told = [line for said in end["said"] for line in said["lines"]]
    assert any("Client 3 yields, because the youngest" in line for line in told)
    assert [client["state"] for client in end["clients"]] == ["is done"] * 3
    boards = [look(OURS, *end["moves"][:count]) for count in range(len(end["moves"]) + 1)]
    for before, after in itertools.pairwise(boards):
        assert after["said"][: len(before["said"])] == before["said"]
        assert after["moves"][-1] in [option["move"] for option in before["options"]]
    assert boards[-1] == end
    waiting = max(boards, key=lambda board: len(board["waits"]))
    assert {(edge["from"], edge["to"]) for edge in waiting["waits"]} == {(1, 2), (2, 3), (3, 1)}


def test_what_a_client_knows_is_what_it_was_told() -> None:
    """A client sees only waits that are there, or were; the youngest sees the whole ring before it gives way."""
    end = look(OURS, *END)
    real: set[tuple[int, int]] = set()
    ring = {(1, 2), (2, 3), (3, 1)}
    saw = False
    for count in range(len(end["moves"]) + 1):
        seen = look(OURS, *end["moves"][:count])
        real |= {(edge["from"], edge["to"]) for edge in seen["waits"]}
        for client in seen["clients"]:
            edges = {(edge["from"], edge["to"]) for edge in client["sees"]}
            assert edges <= real
            assert client["knows"] or not edges
            saw |= client["number"] == 3 and edges >= ring
    assert saw


@pytest.mark.parametrize("situation", [s for s in SITUATIONS if not s.moves], ids=lambda s: s.name)
def test_any_move_of_the_list_can_be_played(situation: Situation) -> None:
    """Moves at random, faults included: each listed move is possible, has a sentence of its own, and nothing goes wrong but in the original."""
    chance = random.Random(SEED)
    print("seed", SEED)
    for _ in range(5):
        moves: list[str] = []
        for _ in range(60):
            seen = play(game_of(situation), moves)
            if not seen["options"]:
                break
            names = [option["move"] for option in seen["options"]]
            assert len({*names}) == len(names)
            assert all(option["text"] for option in seen["options"])
            moves.append(chance.choice(names))
        assert seen["wrong"] is None or situation.kind == "original"


def test_a_move_that_is_not_possible() -> None:
    """The error names the move, its number and the moves that are possible."""
    with pytest.raises(
        InvalidOption, match=r"move 2, 'n1>1', is not possible now; possible are: 1>n1, 2, 3, d1"
    ):
        look(OURS, "1", "n1>1")


@pytest.mark.parametrize(
    "situation", [s for s in SITUATIONS if s.kind != "elections"], ids=lambda s: s.name
)
def test_a_situation_is_a_command_and_a_command_a_situation(situation: Situation) -> None:
    """What `sim replay` can replay can be opened, and what is played can be replayed."""
    played = situation._replace(moves=tuple(look(situation, *END)["moves"][:5]), name="", about="")
    command = command_of(played)
    assert command.startswith("locks sim replay ")
    opened = from_command(command)
    assert (opened.clients, opened.moves, opened.kind) == (
        played.clients,
        played.moves,
        played.kind,
    )
    assert look(opened, *opened.moves) == look(played, *played.moves)
    assert respond({"what": "open", "text": f"python -m {command}"})["clients"] == played.clients


def test_elections_are_played_likewise() -> None:
    """A leader is elected, is called, its node crashes, and its successor has what it was told."""
    situation = SITUATIONS[-1]
    assert situation.kind == "elections"
    elected = look(situation, *END)
    (leader,) = [c for c in elected["clients"] if c["state"].startswith("leads")]
    other = next(c for c in elected["clients"] if c is not leader)
    called = look(situation, *elected["moves"], f"call:{other['node']}.1", *END)
    assert all(client["holds"] for client in called["clients"])
    crashed = look(situation, *called["moves"], f"crash:{leader['node']}", *END)
    (successor,) = [c for c in crashed["clients"] if c["state"].startswith("leads")]
    assert successor["node"] != leader["node"]
    assert successor["holds"] == leader["holds"] or successor["holds"]
    assert any("leads, term" in line for said in crashed["said"] for line in said["lines"])


def test_in_a_terminal() -> None:
    """Enter goes on, a number chooses, b goes back, and a wrong move is answered with a sentence."""
    said: list[str] = []
    answers = ["", "", "", "2", "nonsense", "b", "look", "c", "?", "all", "q", "never read"]
    seen = step_through(OURS, answers, said.append)
    assert said[0] == HINT
    text = "\n".join(said)
    assert "Client 1 asks for a." in said
    assert "move 5, 'nonsense', is not possible now" in text
    assert "  a: client 1 (write, has it)" in said
    assert 'locks sim replay --client "write a; write b"' in text
    assert HELP in text
    assert seen["over"]
    assert said[-1].endswith("[crash:n1]")
    assert "Nothing needs to happen any more: all is well." in said


def test_sim_step(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The command reads what is typed; it ends with its input, and says by its status whether anything was wrong."""
    from locks.__main__ import main

    monkeypatch.setattr(sys, "stdin", io.StringIO("all\n"))
    assert main(["sim", "step", "--client", "write a", "--client", "write a"]) == 0
    assert "all is well" in capsys.readouterr().out
    (wrong,) = [each for each in SITUATIONS if each.name == "The original breaks exclusion"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("all\n"))
    clients = [word for each in wrong.clients for word in ("--client", each)]
    status = main(
        ["sim", "step", "--model", "original", *clients, "--schedule", " ".join(wrong.moves)]
    )
    assert status == 1
    assert "WRONG: broken exclusion" in capsys.readouterr().out


def test_an_exercise_in_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question is told first; a answers, with a word or with the moves, and is answered."""
    from locks.__main__ import main

    for number, typed, said in (
        (1, "a 1\na client 2\n", ["Not so. Play it and look.", "Right. The youngest in the"]),
        (1, "a\n", ["Type an answer first."]),
        (9, "a\nall\na\n", ["It is not there yet", "Right. No order with fewer moves fails."]),
        (9, "d1\nall\na\n", ["Nothing may fail"]),
    ):
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        assert main(["play", "--exercise", str(number), "--terminal"]) == 0
        told = capsys.readouterr().out
        assert f"Exercise {number}. {exercise(number).question}" in told
        assert all(each in told for each in said)
    for words, message in (
        (["--exercise", "13"], "exercise 13: there are 1 to 12"),
        (["--terminal"], "--terminal needs --exercise"),
    ):
        assert main(["play", *words]) == 2
        assert message in capsys.readouterr().err


def test_playing_needs_neither_gevent_nor_pykka() -> None:
    """So the page of the documentation can run it in the browser."""
    code = "import sys; import locks_lab.play.requests; print({'gevent', 'pykka', 'greenlet'} & {*sys.modules})"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found.stdout == "set()\n"
