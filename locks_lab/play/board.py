"""A board: a simulated world after some moves, as a page or a terminal shows it.

What the page needs of a world of any kind is a `Game`: the moves that are possible now, each with its text and a
sentence, and what there is to see. `look` plays the moves of a request, and answers with plain values for JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple, Protocol

from locks.errors import InvalidOption
from locks_lab.worlds.host import Violation

__all__ = ["MOST_MOVES", "Game", "MoveGroup", "Option", "Said", "Seen", "alike", "play"]

MOST_MOVES = 5_000
FEW = 12  # moves that an error names

MoveGroup = Literal["message", "client", "fault"]
Seen = dict[str, Any]


class Option(NamedTuple):
    """A move that is possible now.

    Attributes:
        move: The move as text; see `locks_lab.cases.case`.
        text: What happens, in a sentence.
        group: What kind of move it is.
        do: Makes it happen.
    """

    move: str
    text: str
    group: MoveGroup
    do: Callable[[], None]


class Said(NamedTuple):
    """What is said of one move.

    Attributes:
        lines: What has happened, and why.
        rule: The part of the algorithm that decided it: its title, and its place in the pages. Empty if none did.
    """

    lines: tuple[str, ...]
    rule: tuple[str, str] | tuple[()] = ()


class Game(Protocol):
    """A world that can be played."""

    def options(self) -> Iterator[Option]:
        """The moves that are possible now."""

    def usual(self) -> str | None:
        """The move that comes next in the usual order; `None` if nothing needs to happen any more."""

    def check_end(self) -> None:
        """Nothing needs to happen any more: raise a `Violation` if somebody is stuck."""

    def said(self) -> list[Said]:
        """What is said of the beginning, and of each move so far."""

    def seen(self) -> Seen:
        """What there is to see: nodes, clients, messages on their way, and who waits for whom."""


def play(game: Game, moves: Sequence[str]) -> Seen:
    """Make moves, and look at the board.

    Args:
        game: The game, at its beginning.
        moves: The moves, as text. `next` is the usual one.

    Returns:
        Values for JSON: `moves` that were made, `options`, `usual`, `said`, `wrong` (what the checks of the world
        have found; no move is possible after that) or `None`, `over` (nothing needs to happen any more), and what
        `Game.seen` has.

    Raises:
        InvalidOption: A move is not possible.
    """
    if len(moves) > MOST_MOVES:
        raise InvalidOption(f"{len(moves):,} moves are too many; {MOST_MOVES:,} are possible")
    made: list[str] = []
    wrong = None
    try:
        for move in moves:
            option = _chosen(game, move, len(made) + 1)
            if option is None:
                break
            made.append(option.move)
            option.do()
        usual = game.usual()
        if usual is None:
            game.check_end()
    except Violation as violation:
        usual, wrong = None, str(violation)
    options = () if wrong is not None else tuple(game.options())
    return {
        "moves": made,
        "options": [{"move": o.move, "text": o.text, "group": o.group} for o in options],
        "usual": usual,
        "said": [each._asdict() for each in game.said()],
        "wrong": wrong,
        "over": usual is None,
        **game.seen(),
    }


def alike(game: Game, steps: Sequence[str]) -> list[str]:
    """Let clients take their steps in the same order as in another game, and find out what happens.

    All else happens in the usual order; a step that is not possible yet is left out.

    Args:
        game: The game, at its beginning.
        steps: Moves of another game; only those of clients matter.

    Returns:
        The moves of this game, to its end.
    """
    made: list[str] = []
    wanted = [move for move in steps if move.isdigit()]
    with suppress(Violation):
        while len(made) < MOST_MOVES and (move := game.usual()) is not None:
            option = _option(game, wanted.pop(0) if move.isdigit() and wanted else move)
            if option is not None:
                made.append(option.move)
                option.do()
    return made


def _option(game: Game, move: str) -> Option | None:
    """A move that is possible now, by its text; `None` if it is not."""
    return next((each for each in game.options() if each.move == move), None)


def _chosen(game: Game, move: str, number: int) -> Option | None:
    """The option that a move means; `None` if it is `next`, and nothing needs to happen any more."""
    wanted = game.usual() if move == "next" else move
    if wanted is None:
        return None
    found = _option(game, wanted)
    if found is None:
        there = [each.move for each in game.options()]
        more = f" and {len(there) - FEW} more" if len(there) > FEW else ""
        raise InvalidOption(
            f"move {number}, {move!r}, is not possible now; possible are: {', '.join(there[:FEW]) or 'none'}{more}",
            move=move,
        )
    return found
