"""Turns: taken one at a time, done whole or not at all, and never waited for by who has one.

How they stand whatever comes up at whatever instruction is shown in `tests/torture`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from locks.errors import MisuseError, ReentrantCall
from locks.runtime.inline import Turn, Work
from tests.helpers import eventually


class Book:
    """A journal of what was done: a list of entries, those of this turn in pencil."""

    def __init__(self) -> None:
        self.torn = False
        self.thin = False
        self.ink: list[Any] = []
        self.pencil: list[Any] = []
        self.news: list[Any] = []
        self.background: list[Callable[[], object]] = []
        self.broken = False  # nothing can be mended

    def write(self, entry: Any) -> Any:
        self.pencil.append(entry)
        return entry

    def inflate(self) -> None:
        self.write("inflated")
        self.conclude()
        self.thin = False

    def conclude(self, work: Work | None = None) -> None:
        if work is not None:
            work.done = True
        self.ink += self.pencil
        self.pencil.clear()
        self.torn = False

    def mend(self, error: BaseException | None = None) -> None:
        if self.broken:
            raise RecursionError
        self.pencil.clear()
        self.torn = False

    def refuses(self, error: BaseException) -> bool:
        return self.is_refusal(error)

    def is_refusal(self, error: BaseException) -> bool:
        return isinstance(error, MisuseError)

    def cannot_do(self, work: Work, error: BaseException) -> bool:
        return False

    def can_tell_past(self, question: Callable[..., Any]) -> bool:
        return question == self.count

    def tell_past(self, question: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return len(self.ink)

    def count(self) -> int:
        return len(self.ink) + len(self.pencil)

    def tell(self) -> None:
        pass


@pytest.fixture
def book() -> Book:
    """An empty journal."""
    return Book()


def make_thin(book: Book) -> None:
    """What a call of `Turn.thin` may do."""
    book.thin = True


@pytest.fixture
def turn(book: Book) -> Turn:
    """A turn that works on it."""
    return Turn(book, book.background.append)


def _fails(book: Book, error: BaseException) -> None:
    book.write("torn")
    raise error


def test_what_fails_is_undone(turn: Turn, book: Book) -> None:
    """The exception goes to the caller, and the next turn is as if nothing had been."""
    with pytest.raises(ZeroDivisionError):
        turn.run(_fails, book, ZeroDivisionError())
    assert turn.run(book.write, 1) == 1
    assert book.ink == [1]


def test_what_must_be_done_is_done_after_a_failure(turn: Turn, book: Book) -> None:
    """A function that was interrupted is called again at once; the exception goes to the caller."""
    calls = []

    def release() -> None:
        book.write("released")
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        turn.run_surely(release)
    assert book.ink == ["released"]


def test_a_journal_is_read_with_its_turn_held(turn: Turn, book: Book) -> None:
    """After a refusal, too: by then the turn may be another thread's."""
    asked: list[bool] = []

    def refuses(error: BaseException) -> bool:
        asked.append(turn.is_here())
        return True

    book.refuses = refuses  # type: ignore[method-assign]
    with pytest.raises(MisuseError):
        turn.run_surely(_fails, book, MisuseError("refused"))
    assert not turn._posted
    assert all(asked)


def test_what_is_refused_is_not_tried_again(turn: Turn, book: Book) -> None:
    """A refusal is an answer."""
    with pytest.raises(MisuseError):
        turn.run_surely(_fails, book, MisuseError("no"))
    assert not book.ink
    turn.run(book.write, 1)
    assert book.ink == [1]


def test_posted_work_is_not_left_lying_by_a_turn_that_fails(turn: Turn, book: Book) -> None:
    """What was posted while another thread had the turn is done, though that turn was refused."""
    inside, go = threading.Event(), threading.Event()

    def refused() -> None:
        inside.set()
        go.wait(60)
        raise MisuseError("no")

    def run() -> None:
        with pytest.raises(MisuseError):
            turn.run(refused)

    thread = threading.Thread(target=run)
    thread.start()
    assert inside.wait(60)
    turn.post(book.write, "posted")
    assert not book.ink
    go.set()
    thread.join(60)
    assert book.ink == ["posted"]


def test_a_call_from_within_a_turn_is_refused_and_a_release_is_done_at_its_end(
    turn: Turn, book: Book
) -> None:
    """Nothing waits for itself, and the error says who has called."""

    def finaliser() -> None:
        turn.run_surely(book.write, "released")
        turn.post(book.write, "posted")
        turn.run(book.write, "asked")

    def step() -> None:
        book.write("step")
        with pytest.raises(ReentrantCall, match=r"\(.*\.py:\d+\) interrupted a step of locks"):
            finaliser()
        assert book.ink == []

    turn.run(step)
    assert book.ink == ["step", "released", "posted"]


def test_a_question_from_within_a_turn_is_about_what_was_before(turn: Turn, book: Book) -> None:
    """If the journal can tell; other questions are refused."""
    turn.run(book.write, 1)

    def step() -> None:
        book.write(2)
        assert turn.ask(book.count) == 1
        with pytest.raises(ReentrantCall):
            turn.ask(len, book.ink)

    turn.run(step)
    assert turn.ask(book.count) == 2


def test_a_question_between_two_pieces_of_work_is_answered(turn: Turn, book: Book) -> None:
    """Work that a question does at its end is in a turn as well: who asks within it does not take the turn away."""
    seen: list[int] = []

    def work() -> None:
        book.write("work")
        seen.append(turn.ask(book.count))

    turn.ask(lambda: turn.post(work))
    assert (seen, book.ink) == ([0], ["work"])
    assert not turn.is_here()


def test_what_can_not_be_mended_is_left_to_others(turn: Turn, book: Book) -> None:
    """At the end of the stack nothing works: the background, or the next turn, mends first."""
    book.broken = True
    with pytest.raises(RecursionError):
        turn.run(_fails, book, RecursionError())
    assert book.torn
    assert book.background == [turn.catch_up]
    book.broken = False
    turn.run(book.write, 1)
    assert book.ink == [1]
    turn.catch_up()
    assert book.ink == [1]


def test_work_that_fails_in_a_foreign_thread_is_left_to_the_background(
    turn: Turn, book: Book
) -> None:
    """Whoever does others' work is not told of an error that is the work's own."""
    fails = [True]

    def work() -> None:
        if fails:
            raise ValueError("its own")
        book.write("done")

    inside, go = threading.Event(), threading.Event()

    def hold() -> None:
        inside.set()
        go.wait(60)
        book.write("held")

    thread = threading.Thread(target=turn.run, args=(hold,))
    thread.start()
    assert inside.wait(60)
    turn.post(work)
    go.set()
    thread.join(60)
    assert not thread.is_alive()
    assert book.ink == ["held"]
    assert book.background
    fails.clear()
    turn.catch_up()
    assert book.ink == ["held", "done"]


def test_turns_are_taken_one_at_a_time(turn: Turn, book: Book) -> None:
    """Each of many threads finds the journal as the one before has left it."""

    def step() -> None:
        assert not book.pencil
        book.write(threading.get_ident())

    def work() -> None:
        for _ in range(200):
            turn.run(step)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    eventually(lambda: len(book.ink) == 800)


@pytest.mark.parametrize("call", ["run", "ask", "run_surely", "post"])
def test_what_is_thin_is_inflated_before_the_next_turn(book: Book, turn: Turn, call: str) -> None:
    """It stays thin in turns that are for that; any other one inflates it first, once, as a turn of its own."""
    turn.thin(make_thin, book)
    turn.thin(make_thin, book)
    assert not book.ink
    for _ in range(2):
        getattr(turn, call)(book.write, 1)
    assert book.ink[0] == "inflated"
    assert book.ink.count("inflated") == 1
    assert not book.thin


def test_a_turn_for_what_is_thin_mends_a_torn_one(book: Book, turn: Turn) -> None:
    """Nothing is decided by a table that was left half-changed."""
    book.pencil.append("half")
    book.torn = True
    assert turn.thin(lambda: list(book.pencil)) == []
    assert not book.torn
