"""A board in a terminal, in words: `locks sim step`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from locks.errors import InvalidOption
from locks_lab.play.board import Seen, play
from locks_lab.play.exercises import exercise, judge
from locks_lab.play.situations import Situation, command_of, game_of
from locks_lab.stories.words import capital, listed

__all__ = ["HELP", "step_through"]

HINT = "Enter takes the move marked *, a number another one; b goes back, ? shows the rest, q ends."
ANSWERING = "To answer, type a and a word or a number; or a alone, if the moves are the answer."
HELP = """\
Enter  the move that comes next in the usual order (marked *)
2      move 2 of the list
1>n1   a move by its name
b      back
all    to the end, in the usual order
look   lock tables, clients and what they know
c      the command that replays these moves
a 2    answer an exercise: 2; a alone answers with the moves that were played
q      quit"""


def step_through(
    situation: Situation, answers: Iterable[str], say: Callable[[str], None], number: int = 0
) -> Seen:
    """Play a situation in a terminal.

    Args:
        situation: The situation; its moves are played first.
        answers: The lines that somebody types.
        say: Prints a line.
        number: The number of an exercise that is answered; 0 if there is none.

    Returns:
        The board at the end.

    Raises:
        InvalidOption: The situation, or one of its moves, is not possible.
    """
    moves = [*situation.moves]
    seen = play(game_of(situation), moves)
    asked = (f"Exercise {number}. {exercise(number).question}", ANSWERING) if number else ()
    for line in (HINT, *asked, *_told(seen, 0)):
        say(line)
    for answer in answers:
        wish = answer.strip()
        before = len(moves)
        match wish:
            case "q" | "quit":
                return seen
            case "?" | "h" | "help":
                say(HELP)
                continue
            case "look":
                for line in _looked(seen):
                    say(line)
                continue
            case "c":
                say(
                    command_of(situation._replace(moves=tuple(moves)))
                    or "An election has no command."
                )
                continue
            case _ if wish.split()[:1] == ["a"]:
                played = situation._replace(moves=tuple(moves))
                say(judge(number, wish[1:], played).text if number else "There is no exercise.")
                continue
            case "b":
                tried = moves[:-1]
            case "all":
                tried = [*moves, *["next"] * 1_000]
            case _:
                tried = [*moves, _move(seen, wish)]
        try:
            seen = play(game_of(situation), tried)
        except InvalidOption as error:
            say(str(error))
            continue
        moves = [*seen["moves"]]
        for line in _told(seen, min(before, len(moves) - 1) + 1 if wish != "b" else len(moves)):
            say(line)
    return seen


def _move(seen: Seen, wish: str) -> str:
    """The move that somebody means."""
    options = seen["options"]
    names = [option["move"] for option in options]
    if wish == "":
        return "next"
    if wish.isdigit() and 0 < int(wish) <= len(options):
        return str(names[int(wish) - 1])
    return wish


def _told(seen: Seen, since: int) -> Iterator[str]:
    """What is said of the moves from a number on, and the moves that are possible now."""
    for said in seen["said"][since:]:
        yield from said["lines"]
    for edge in seen["waits"]:
        yield f"    now: {edge['text']}"
    if seen["wrong"] is not None:
        yield f"WRONG: {seen['wrong']}"
        return
    if seen["over"]:
        yield "Nothing needs to happen any more: all is well."
    for number, option in enumerate(seen["options"], 1):
        mark = "*" if option["move"] == seen["usual"] else " "
        yield f"{mark}{number:3}  {option['text']}  [{option['move']}]"


def _looked(seen: Seen) -> Iterator[str]:
    """Lock tables, messages on their way, and clients."""
    for node in seen["nodes"]:
        yield f"{node['name']}{'' if node['up'] else ' is down'}:"
        for row in node["table"]:
            queue = listed(
                f"{each['who']} ({each['mode']}, {each['state']})" for each in row["queue"]
            )
            yield f"  {row['id']}: {queue}"
    for way in seen["flight"]:
        yield f"On the way from {way['from']} to {way['to']}: {'; then '.join(way['texts'])}"
    for client in seen["clients"]:
        has = [
            *(f"has {each}" for each in client["holds"]),
            *(f"wants {each}" for each in client["wants"]),
        ]
        yield f"{capital(client['name'])} {listed([client['state'], *has])}."
        yield from (f"  It knows: {fact}" for fact in client["knows"])
