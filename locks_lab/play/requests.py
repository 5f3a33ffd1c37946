"""Answers the page: each request has all that it needs, so nothing is kept between two.

`respond` is the whole of it, from values of JSON to values of JSON. `locks play` serves it over HTTP; in the pages of
the documentation, Python in the browser calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from locks.errors import InvalidOption
from locks_lab.play.board import alike, play
from locks_lab.play.exercises import EXERCISES, judge
from locks_lab.play.situations import (
    KINDS,
    SITUATIONS,
    Situation,
    command_of,
    from_command,
    game_of,
    situation_from,
)

__all__ = ["respond"]

QUESTIONS = ("list", "look", "alike", "command", "open", "exercises", "answer")


def respond(request: Mapping[str, Any]) -> Any:
    """Answer a request of the page.

    Args:
        request: `what` is asked; for most a `situation` with its moves.

            - `list`: the situations to begin with.
            - `look`: the board after the moves (`locks_lab.play.board.play`).
            - `alike`: the situation in which clients of another `kind` of machines ask in the same order.
            - `command`: the command that replays it.
            - `open`: the situation of such a command, the `text`.
            - `exercises`: each with its title, question and situation, and whether the answer is `typed`.
            - `answer`: what is said of an answer to the exercise of a `number`: the `text`, or the moves.

    Returns:
        Values for JSON.

    Raises:
        InvalidOption: The request can't be carried out.
    """
    match request.get("what"):
        case "list":
            return [each._asdict() for each in SITUATIONS]
        case "exercises":
            return [
                {
                    "title": each.title,
                    "question": each.question,
                    "typed": each.typed,
                    "situation": each.situation._asdict(),
                }
                for each in EXERCISES
            ]
        case "answer":
            text = str(request.get("text", ""))
            return judge(request.get("number"), text, _situation(request))._asdict()
        case "open":
            return from_command(str(request.get("text", "")))._asdict()
        case "look":
            situation = _situation(request)
            return play(game_of(situation), situation.moves)
        case "command":
            return command_of(_situation(request))
        case "alike":
            situation = _situation(request)
            kind = request.get("kind")
            if kind not in KINDS or "elections" in (kind, situation.kind):
                raise InvalidOption(f"{situation.kind} can't be compared with {kind!r}", kind=kind)
            other = situation._replace(kind=kind, rule="", options="", moves=())
            return other._replace(moves=tuple(alike(game_of(other), situation.moves)))._asdict()
        case what:
            raise InvalidOption(f"what {what!r} is none of {', '.join(QUESTIONS)}", what=what)


def _situation(request: Mapping[str, Any]) -> Situation:
    data = request.get("situation")
    if not isinstance(data, Mapping):
        raise InvalidOption(f"situation must be an object, not {data!r}", situation=data)
    return situation_from(data)
