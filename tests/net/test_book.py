"""The address book: what is told, what is forgotten and when, who is dialled how often."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from locks.net.book import GONE, HEARSAY, LARGEST, LONGEST, LONGEST_ASKED, SHORTEST, Book
from locks.net.messages import FORGET, News
from locks.net.messages import MOST_NAMES as NAMES

ME, A, B, C = "me@h", "a@h", "b@h", "c@h"
HERE, THERE = ("h", 1), ("h", 2)


class Room(Book):
    """A book whose connections the test makes, with pauses of their middle length."""

    def __init__(self, own: str = ME) -> None:
        self.linked: set[str] = set()
        super().__init__(own, self.linked, {}, chance=lambda: 0.5)

    def meet(self, name: str, now: float, *, says: bool = True) -> None:
        """Be connected with a node, which says where it is."""
        self.linked.add(name)
        self.connected(name, now)
        if says:
            self.hear(name, [News(name, *HERE, 0.0)], now)

    def part(self, name: str, now: float) -> None:
        """Lose the connection."""
        self.linked.discard(name)
        self.lost(name, now)

    def dial(self, now: float, room: int = 10**6) -> list[str]:
        """Take all that is due."""
        return self.take_due(now, room)[0]


def dials(book: Room, name: str, begin: float, end: float) -> list[float]:
    """The moments at which a node is dialled, in steps of 10 ms."""
    steps = (begin + step / 100 for step in range(int((end - begin) * 100)))
    return [now for now in steps if name in book.dial(now)]


# --- What is told -------------------------------------------------------------------------------


def test_hearsay_is_not_passed_on() -> None:
    """A node tells of those that it was connected with itself, and of nobody else."""
    book = Room()
    book.meet(A, 0)
    book.hear(A, [News(B, *THERE, 0.0)], 0)
    book.ask_for(C, THERE, 0)
    assert book.news_for(1, "new@h") == [News(A, *HERE, 0.0)]
    book.meet(B, 2)
    assert sorted(book.news_for(3, "new@h"), key=lambda news: news.name) == [
        News(A, *HERE, 0.0),
        News(B, *HERE, 0.0),
    ]
    assert book.news_for(3, A) == [News(B, *HERE, 0.0)]  # not of itself


def test_too_many_are_not_told() -> None:
    """One greeting names no more nodes than it may, and of those that are gone the last ones seen."""
    book = Room()
    for number in range(NAMES):
        book.meet(f"gone{number}@h", number / 10)
        book.part(f"gone{number}@h", number / 10)
    for number in range(NAMES):
        book.meet(f"there{number}@h", 100)
    told = book.news_for(200, A)
    assert len(told) < NAMES  # the teller comes on top
    gone = [f"gone{NAMES - 1 - place}@h" for place in range(GONE)]
    assert [news.name for news in told[-GONE:]] == gone
    assert all(news.age == 0 for news in told[:-GONE])


# --- What is forgotten --------------------------------------------------------------------------


def test_what_nobody_has_seen_is_forgotten() -> None:
    """A name goes when nobody was connected with it for the stated time; one asked for stays."""
    book = Room()
    book.ask_for(C, THERE, 0)
    book.meet(A, 0)
    book.hear(A, [News(B, *THERE, 100.0)], 0)
    book.part(A, 50)
    book.dial(FORGET - 101, 0)
    assert set(book.known) == {A, B, C}
    book.dial(FORGET - 99, 0)
    assert set(book.known) == {A, C}
    book.dial(FORGET + 51, 0)
    assert set(book.known) == {C}


def test_hearsay_renews_nothing() -> None:
    """However often nodes tell each other of one that is gone, it is not younger for that."""
    chance = random.Random(1)
    books = {name: Room(name) for name in (A, B, C)}
    for name, book in books.items():
        for other in books:
            if other != name:
                book.meet(other, 0)
        book.meet("dead@h", 0)
        book.part("dead@h", 0)
    now = 0.0
    for number in range(305):  # newcomers all the time, and everybody tells everybody
        now += 2.0
        newcomer = f"n{number}@h"
        books[newcomer] = Room(newcomer)
        for _ in range(6):
            teller, hearer = chance.sample(sorted(books), 2)
            books[hearer].hear(teller, books[teller].news_for(now, hearer), now + 0.3)
        for book in books.values():
            book.dial(now, 0)
    assert all("dead@h" not in book.known for book in books.values())


# --- One who says too much ----------------------------------------------------------------------


def test_a_budget_of_names() -> None:
    """One node brings in so many names that nobody has met; more replace its own oldest ones alone."""
    book = Room()
    book.meet(A, 0)
    book.meet(C, 0)
    book.hear(B, [News("honest@h", *HERE, 5.0)], 0)
    dropped = 0
    for number in range(20):
        names = [f"lie{number}-{each}@h" for each in range(NAMES)]
        dropped += book.hear("liar@h", [News(name, *HERE, 0.0) for name in names], number)
        assert len(book.known) <= NAMES + 3
    assert dropped == 19 * NAMES
    assert {A, C, "honest@h"} <= set(book.known)
    assert all(name.startswith("lie19") for name in set(book.known) - {A, C, "honest@h"})


def test_many_who_say_too_much() -> None:
    """The book has an end; those that were met, are connected or asked for stay longest."""
    book = Room()
    book.ask_for(C, THERE, 0)
    book.meet(A, 0)
    book.meet(B, 0)
    book.part(B, 1)
    for number in range(15):
        names = [f"lie{number}-{each}@h" for each in range(NAMES)]
        book.hear(f"liar{number}@h", [News(name, *HERE, 0.0) for name in names], number)
    assert len(book.known) <= LARGEST + 3
    assert {A, B, C} <= set(book.known)


# --- Dials --------------------------------------------------------------------------------------


def test_a_node_that_was_asked_for() -> None:
    """It is dialled at once, again soon, and at least about once a second for ever."""
    book = Room()
    book.ask_for(A, HERE, 0)
    made = dials(book, A, 0, 60)
    pauses = [after - before for before, after in itertools.pairwise(made)]
    assert made[0] == 0
    assert pauses[0] == pytest.approx(SHORTEST, abs=0.02)
    assert max(pauses) < LONGEST_ASKED + 0.02
    book.meet(A, 60)
    assert book.dial(100) == []
    book.part(A, 1000)
    assert dials(book, A, 1000, 1001)[0] == pytest.approx(1000 + SHORTEST, abs=0.02)
    assert dials(book, A, 9000, 9003)


def test_the_longer_it_is_gone_the_seldomer() -> None:
    """One that was only heard of is dialled at once, then after half of the time that it is gone."""
    book = Room()
    book.hear(A, [News(B, *HERE, 0.0)], 0)
    made = dials(book, B, 0, FORGET - 1)
    pauses = [after - before for before, after in itertools.pairwise(made)]
    assert made[0] == 0
    assert len(made) < 25
    assert min(pauses) > HEARSAY - 0.02
    assert all(
        pause <= max(before / 2, HEARSAY) + 0.02
        for before, pause in zip(made, pauses, strict=False)
    )
    assert max(pauses) == pytest.approx(LONGEST, abs=0.02)


def test_the_next_look() -> None:
    """The book says when there is something to be done: a dial, or a name to be forgotten."""
    book = Room()
    assert book.take_due(0, 1) == ([], math.inf)
    book.meet(A, 0)
    assert book.take_due(0, 1) == ([], math.inf)
    book.part(A, 10)
    assert book.take_due(10, 1) == ([], pytest.approx(SHORTEST))
    due, pause = book.take_due(9 + FORGET, 1)
    assert due == [A]
    assert pause == pytest.approx(1)  # it is forgotten then
    assert book.take_due(10 + FORGET, 1) == ([], math.inf)
    assert not book.known


def test_no_room() -> None:
    """Who was met is dialled first, then who waits the longest; the others stay due. Who was asked for needs no room."""
    book = Room()
    book.hear(C, [News(A, *HERE, 0.0), News(B, *HERE, 0.0)], 0)
    book.meet(C, 0)
    book.part(C, 1)
    book.ask_for("asked@h", HERE, 1)
    assert book.take_due(5, 0) == (["asked@h"], 0.0)
    assert book.take_due(5, 1) == ([C], 0.0)
    assert sorted(book.take_due(5, 9)[0]) == [A, B]


def test_a_failure_counts_until_it_is_connected() -> None:
    """The same reason in a row is counted; a refusal is kept, until another reason or a connection."""
    book = Room()
    assert book.failed(A, "unknown", True) == 0
    book.ask_for(A, HERE, 0)
    assert [book.failed(A, "refused", True) for _ in range(2)] == [1, 2]
    assert book.failed(A, "absent", False) == 1
    assert book.has_failed(A)
    book.meet(A, 1)
    assert not book.has_failed(A)
    assert book.failed(A, "late", False) == 0  # of a dial that was under way
    assert not book.has_failed(A)
