"""The marks of a lock server, and what the answers of several mean (`locks.core.done`); all orders are in `model/test_done.py`."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from locks.core.done import MOST_MARKS, Marks, Recovery, Told, read, shifted
from locks.core.facts import AskMark, Mark, MarkFact
from locks.model import majority
from locks.ranges import MOST_NUMBER, replace
from locks.words import AgentId
from tests.helpers import SEED

ME = AgentId(1 << 40, "x@x", 0)
NAMES = ("a", "b", "c")


def mark(key: int, token: int = 1, until: int = 100) -> Mark:
    """A mark."""
    return Mark((key,), token, 0, until, "ann")


def test_a_mark_by_any_clock_can_be_told() -> None:
    """Its times are in the range of what is sent, however wrong the clock of who has set it."""
    for then in (0, 50, MOST_NUMBER):
        for until in (0, MOST_NUMBER):
            found = shifted(mark(1, until=until), then, MOST_NUMBER // 2)
            assert 0 <= found.at <= MOST_NUMBER
            assert 0 <= found.until <= MOST_NUMBER


def test_what_was_forgotten_costs_a_page_nothing() -> None:
    """Only the marks that are there are looked at."""
    marks = Marks()
    marks.number = 10**12
    marks.add(mark(1), 0)
    assert marks.page(0, 0) == ((mark(1),), 0)


def test_a_mark_ends_with_its_time() -> None:
    """It is found until then; what is over is forgotten, and may be done again with any token."""
    marks = Marks()
    marks.add(mark(1, token=5, until=10), 0)
    assert marks.find((1,), 9) == mark(1, token=5, until=10)
    assert marks.find((1,), 10) is None
    assert marks.find((2,), 0) is None
    marks.add(mark(2), 10)
    assert [each.lock_id for each in marks] == [(2,)]
    marks.add(mark(1, token=3), 10)
    assert marks.find((1,), 10) == mark(1, token=3)
    marks.add(mark(3, until=10), 10)
    assert marks.find((3,), 10) is None


def test_the_larger_token_wins() -> None:
    """In any order."""
    for tokens in ((1, 2, 2), (2, 1), (2, 2, 1)):
        marks = Marks()
        for token in tokens:
            marks.add(mark(1, token), 0)
        found = marks.find((1,), 0)
        assert found is not None
        assert found.token == 2
        assert len(marks) == 1


def test_pages_have_all_marks_that_there_are() -> None:
    """Whatever is added, replaced and forgotten between two pages; and a page has no more than it may."""
    rng = random.Random(SEED)
    for _ in range(20):
        marks, now = Marks(), 0
        for key in range(350):
            marks.add(mark(key, until=rng.randint(1, 100)), now)
        there = {each.lock_id for each in marks if each.until > 50}
        found: set[object] = set()
        after = 0
        while True:
            page, after = marks.page(after, now)
            assert len(page) <= MOST_MARKS
            found |= {each.lock_id for each in page}
            now = min(50, now + 10)
            marks.add(mark(rng.randrange(400), token=rng.randint(1, 9)), now)
            if not after:
                break
        assert found >= there
    assert Marks().page(0, 0) == ((), 0)


@pytest.mark.parametrize(("since", "is_set"), [(7, True), (8, False), (0, False)])
def test_a_mark_is_accepted_under_the_same_grant_only(since: int, is_set: bool) -> None:
    """Under another one, or none, the server answers what it has."""
    marks = Marks()
    question = AskMark(ME, (1,), 1_000, 7, mark(1, until=1_100))
    fact = marks.answer(question, since, True, NAMES, 50)
    assert fact == MarkFact(
        shifted(mark(1, until=1_100), 1_000, 50) if is_set else None, False, since, True, NAMES, 50
    )
    again = marks.answer(question, since, True, NAMES, 60)
    assert again.had is is_set
    assert again.mark == fact.mark  # its time is that of the first answer


def fact(since: int = 1, token: int = 0, had: bool = False, complete: bool = True) -> MarkFact:
    """An answer."""
    return MarkFact(mark(1, token) if token else None, had, since, complete, NAMES, 0)


def test_what_a_majority_of_answers_means() -> None:
    """Only servers that grant the lock, are complete, and share their marks with the same servers count."""
    assert read(NAMES, {"a": fact()}) is None
    for bad in (fact(since=0), fact(complete=False), replace(fact(), servers=("a",))):
        assert read(NAMES, {"a": fact(), "b": bad}) is None
        assert read(NAMES, {"a": fact(), "b": bad, "c": fact(4)}) == ({"a": 1, "c": 4}, None)
    found = read(NAMES, {"a": fact(token=2), "b": fact(token=3), "c": fact()})
    assert found is not None
    assert found.mark == mark(1, 3)


def test_how_many_must_tell_a_server_that_has_forgotten() -> None:
    """So many that a mark on a majority is among theirs, however many servers there are."""
    for number in range(2, 8):
        names = [str(each) for each in range(number)]
        needed = next(
            count
            for count in range(number)
            if _recovered(names, {name: Told(1, True) for name in names[1 : count + 1]})
        )
        assert needed + majority(len(names)) == number + 1
    assert Recovery("a", 1, ["a"]).complete


def test_how_many_must_tell_it_if_each_id_is_on_some_of_the_servers() -> None:
    """Whichever servers have an id: so many of them that a mark on a majority of them is among theirs."""
    for number in range(3, 8):
        names = [str(each) for each in range(number)]
        for copies in range(2, number):
            for missing in range(number - 1):
                told = {name: Told(1, True) for name in names[1 : number - missing]}
                gone = set(names[number - missing :])
                enough = all(
                    len(set(others) - gone) + majority(copies) > copies
                    for others in combinations(names[1:], copies - 1)
                )
                assert _recovered(names, told, copies) is enough, (number, copies, missing)
        assert Recovery(names[0], 1, names, 1).complete


def _recovered(names: list[str], told: dict[str, Told], copies: int = 0) -> bool:
    recovery = Recovery(names[0], 1, names, copies)
    recovery.round_over(told)
    return recovery.complete


def test_all_begin_anew() -> None:
    """Not after one round, nor if one of them was restarted between two; and who is later hears of it."""
    recovery = Recovery("a", 1, NAMES)
    told = {"b": Told(2, False), "c": Told(3, False)}
    recovery.round_over(told)
    recovery.round_over({**told, "c": Told(4, False)})
    assert not recovery.complete
    recovery.round_over({**told, "c": Told(4, False)})
    assert recovery.complete
    assert recovery.anew == (("a", 1), ("b", 2), ("c", 4))
    for started, complete in ((4, True), (5, False)):
        later = Recovery("c", started, NAMES)
        later.round_over({"a": Told(1, True, recovery.anew)})
        assert later.complete is complete
