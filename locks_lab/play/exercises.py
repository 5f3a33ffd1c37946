"""Exercises: a situation, a question, and the check of an answer.

Some are answered by a text: what somebody predicts is compared with what the world of the situation does. The others
are answered by the moves that were played: the board that they lead to is looked at. No answer is written here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

from locks.errors import InvalidOption
from locks.model import show
from locks_lab.play.board import Game, Seen, play
from locks_lab.play.ours import OurGame, number_of
from locks_lab.play.situations import RING, Situation, game_of

__all__ = ["EXERCISES", "Exercise", "Verdict", "exercise", "judge"]

END = ("next",) * 1_000
OTHER_WAY = ("write a; write c", "write b; write a", "write c; write b")
FOUR = ("write a; write b", "write b; write c", "write c; write d", "write d; write a")


class Exercise(NamedTuple):
    """An exercise.

    Attributes:
        title: Its title.
        question: What is asked.
        situation: Where it begins.
        check: Finds out what is wrong with an answer: the text, the game and the board after the moves of the answer.
            Empty if it is right.
        says: What there is to learn from it; told with a right answer.
        typed: Whether the answer is a text, and not only the moves.
    """

    title: str
    question: str
    situation: Situation
    check: Callable[[str, Game, Seen], str]
    says: str
    typed: bool = False


class Verdict(NamedTuple):
    """What is said of an answer."""

    right: bool
    text: str


def exercise(number: object) -> Exercise:
    """An exercise by its number, from 1.

    Raises:
        InvalidOption: There is none.
    """
    if type(number) is not int or not 0 < number <= len(EXERCISES):
        raise InvalidOption(f"exercise {number!r}: there are 1 to {len(EXERCISES)}")
    return EXERCISES[number - 1]


def judge(number: object, text: str, situation: Situation) -> Verdict:
    """Check an answer.

    Args:
        number: The number of the exercise.
        text: What was typed; empty if the answer is the board.
        situation: The situation with the moves that were played.

    Raises:
        InvalidOption: There is no such exercise, or a move is not possible.
    """
    asked = exercise(number)
    if _bare(situation) != _bare(asked.situation):
        return Verdict(False, "This is another situation: open the exercise again.")
    if asked.typed and not text.strip():
        return Verdict(False, "Type an answer first.")
    game = game_of(situation)
    wrong = asked.check(text, game, play(game, situation.moves))
    return Verdict(False, wrong) if wrong else Verdict(True, f"Right. {asked.says}")


def _bare(situation: Situation) -> Situation:
    """A situation without its moves, and what is said of it."""
    return situation._replace(name="", about="", moves=())


# --- Checks -------------------------------------------------------------------------------------


def _prediction(
    title: str, question: str, situation: Situation, truth: Callable[[OurGame], str], says: str
) -> Exercise:
    """An exercise whose answer is what the world does in the usual order, whatever was played."""

    def check(text: str, game: Game, seen: Seen) -> str:
        fresh = cast(OurGame, game_of(situation))
        play(fresh, (*situation.moves, *END))
        said = text.lower().replace("client", " ").replace(",", " ").split()
        return "" if said == truth(fresh).split() else "Not so. Play it and look."

    return Exercise(title, question, situation, check, says, typed=True)


def _yields(game: OurGame) -> str:
    return " ".join(str(number_of(report.agent)) for report in game.world.carried_out)


def _yields_what(game: OurGame) -> str:
    return " ".join(
        f"{number_of(report.agent)} {show(report.lock_id)}" for report in game.world.carried_out
    )


def _told_until_found(game: OurGame) -> str:
    before = game.world.before_surrender
    return "0" if before is None else str(before["Knowledge"])


def _no_deadlock(text: str, game: Game, seen: Seen) -> str:
    if not seen["over"] or any(client["state"] != "is done" for client in seen["clients"]):
        return "Play until both clients are done."
    return "A client had to give way: try another order." if _yields(cast(OurGame, game)) else ""


def _first_is_last(text: str, game: Game, seen: Seen) -> str:
    moves = seen["moves"]
    asked = [move for move in moves if move.isdigit()]
    came = [moves.index(f"{number}>n1") for number in (1, 2, 3) if f"{number}>n1" in moves]
    if asked[:1] != ["1"]:
        return "Client 1 must ask first."
    if len(came) < 3:
        return "Play until all three requests have arrived."
    return "" if came[0] == max(came) else "Client 1's request did not arrive last."


def _ends_as(begin: str, most: int | None = None) -> Callable[[str, Game, Seen], str]:
    """The board says that something is wrong, in a schedule in which nothing fails, and perhaps in a shortest one."""

    def check(text: str, game: Game, seen: Seen) -> str:
        if any(move[0] in "dx" or ":" in move for move in seen["moves"]):
            return "Nothing may fail: no client dies, no node crashes."
        if not (seen["wrong"] or "").startswith(begin):
            return "It is not there yet, or this order goes well."
        if most is not None and len(seen["moves"]) > most:
            return f"It fails, in {len(seen['moves'])} moves. It can be done in fewer."
        return ""

    return check


def _oldest_token(text: str, game: Game, seen: Seen) -> str:
    if "n1>1" not in seen["moves"] or not {"d1", "x1"} & {*seen["moves"]}:
        return "Let client 1 get the lock, and then die."
    for row in seen["nodes"][0]["table"]:
        for each in row["queue"]:
            if each["number"] == 2 and each["token"] is not None:
                token = each["token"]
                return "" if text.split() == [str(token)] else "Not so: a smaller one is too old."
    return "Play until client 2 has the lock."


def _both_have_it(text: str, game: Game, seen: Seen) -> str:
    holds = [client["holds"] for client in seen["clients"]]
    return "" if holds == [["write a"]] * 2 else "They do not both have it now."


# --- The exercises ------------------------------------------------------------------------------

SHORTEST = 15  # moves until the rule `few` has failed; a test searches for it
EXERCISES = (
    _prediction(
        "Who gives way?",
        "Each client has a lock and then wants the other one's. Which client gives way? Predict it before you play.",
        Situation(clients=("write a; write b", "write b; write a")),
        _yields,
        "The youngest in the circle gives way.",
    ),
    _prediction(
        "Which lock?",
        "Three clients in a circle. Which client gives way, and which lock does it surrender? Type both, such as: 1 a",
        Situation(clients=OTHER_WAY),
        _yields_what,
        "It surrenders the lock that its neighbour in the circle waits for.",
    ),
    _prediction(
        "The youngest of all?",
        "Client 4 is the youngest, and waits, too. Which client gives way?",
        Situation(clients=(*RING, "write d; write a")),
        _yields,
        "Client 4 waits for the circle, but nobody in it waits for client 4.",
    ),
    _prediction(
        "A second transaction",
        "Client 1 has ended a transaction and begun another one. Go to the end of the moves that are played here. "
        "Both clients have a lock now. Which one will give way?",
        Situation(
            clients=("write x; again; write a; write b", "write b; write a"),
            moves=("1", "1>n1", "n1>1", "2", "2>n1", "n1>2", "1", "1>n1", "1", "1.2>n1", "n1>1.2"),
        ),
        _yields,
        "Age is that of the transaction: the second one is younger than all that there are.",
    ),
    Exercise(
        "No deadlock at all",
        "The same two clients as in exercise 1. Find an order in which both are done and nobody has to give way.",
        Situation(clients=("write a; write b", "write b; write a")),
        _no_deadlock,
        "A deadlock needs an unlucky order: so tests rarely meet it.",
    ),
    Exercise(
        "First come, last served",
        "Three clients want one lock. Client 1 asks first, and gets it last. Find such an order.",
        Situation(clients=("write a",) * 3),
        _first_is_last,
        "What counts is the order of arrival at the lock server.",
    ),
    Exercise(
        "The original gets stuck",
        "These are the rules of the Erlang application. Find an order in which all three clients wait for ever.",
        Situation(kind="original", clients=RING),
        _ends_as("stuck"),
        "Client 2 saw a circle in which another one must give way, forgot it, and told nobody.",
    ),
    Exercise(
        "The original breaks exclusion",
        "Find an order in which two clients are told that they have b. Somebody must surrender b while two others queue "
        "for it.",
        Situation(kind="original", clients=("write a; write b", "write b; write a", "write b")),
        _ends_as("broken exclusion"),
        "What was granted once counts as granted, even after a surrender.",
    ),
    Exercise(
        "A rule that is wrong",
        "Here lock servers tell an edge only to the client that waits. Find a shortest order in which the clients are stuck.",
        Situation(clients=("write a; write b", "write b; write a"), rule="few"),
        _ends_as("stuck", SHORTEST),
        "No order with fewer moves fails. A shortest counter-example is the easiest to read.",
    ),
    _prediction(
        "Count the messages",
        "A ring of four, in which each client tells all that it knows to every larger one. How many messages do clients "
        "send each other until client 4 gives way, in the usual order? (With our own rule it is 3.)",
        Situation(clients=FOUR, rule="larger"),
        _told_until_found,
        "Of a larger client that waits and a larger one that is waited for, ours tells only the smaller one.",
    ),
    Exercise(
        "A token that saves a bank",
        "Each client writes to a bank while it has the lock, and names its token. Client 1 gets the lock and dies, but a "
        "write of it is still on the way to the bank. Play until client 2 has the lock. "
        "What is the smallest token that the bank may accept now?",
        Situation(clients=("write a", "write a")),
        _oldest_token,
        "The late write names a smaller token, so the bank refuses it.",
        typed=True,
    ),
    Exercise(
        "A draft of a lock",
        "Somebody wants a lock that works while one of two lock servers is down, and asks any of them. "
        "Find an order in which both clients have the lock at once.",
        Situation(
            clients=("write a on n1,n2 any", "write a on n1,n2 any"), nodes="2", homes="n1,n2"
        ),
        _both_have_it,
        "Two majorities of three share a server; two servers of any kind need not.",
    ),
)
