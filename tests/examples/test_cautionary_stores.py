"""The cautionary tale in other stores, with wrong clocks, and with more than one data set."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

from examples.cautionary_tale.drafts import (
    DRAFTS,
    FOURTH,
    FOURTH_BY_ID,
    SECOND,
    THIRD,
    Draft,
    Process,
    Read,
    Remove,
    Write,
)
from examples.cautionary_tale.findings import QUORUMS, STORES, Question, answer, quorums
from examples.cautionary_tale.model import Setting
from examples.cautionary_tale.several import Several, tell_several
from locks.errors import InvalidOption


def moves(setting: Setting, wanted: str) -> int | None:
    """After how many moves something goes wrong."""
    return answer(Question("", setting, wanted), told=False).moves  # type: ignore[arg-type]


# --- Quorums


@pytest.mark.parametrize(("pr", "pw"), [(1, 1), (1, 3), (3, 1), (2, 2), (3, 3)])
def test_draft_three_is_safe_where_a_read_meets_each_write(pr: int, pw: int) -> None:
    """With `pr + pw > n_val`, and only then; it is never live."""
    setting = Setting(THIRD, pr=pr, pw=pw)
    assert (moves(setting, "safe") is None) == (pr + pw > 3)
    assert moves(setting, "live") is not None


@pytest.mark.parametrize("draft", [d for d in DRAFTS if d is not THIRD], ids=lambda d: d.name)
def test_no_quorum_makes_another_draft_safe(draft: Draft) -> None:
    """Also where all primaries have to answer: it takes more moves, and goes wrong all the same."""
    some, every = moves(Setting(draft), "safe"), moves(Setting(draft, pr=3, pw=3), "safe")
    assert some is not None
    assert every is not None
    assert some < every


@pytest.mark.explore
def test_the_table_of_stores_says_it_all() -> None:
    """A line for each store, readable at 80 columns; "never" is what was proven."""
    lines = quorums().splitlines()
    assert len(lines) == 3 + len(QUORUMS)
    assert max(map(len, lines)) <= 80
    never = [line.split()[5] == "never" for line in lines[3:]]
    assert never == [pr + pw > servers for servers, pr, pw in QUORUMS]


# --- Clocks


def test_draft_four_holds_only_if_clocks_are_right_and_no_write_is_late() -> None:
    """Each of both is needed: proven with both, and a shortest failure without either."""
    proven = answer(STORES["right clocks"])
    assert (proven.moves, proven.found.states) == (None, 2_003)
    assert moves(Setting(FOURTH), "safe") == 20
    found = answer(STORES["wrong clocks"])
    assert found.moves == 20
    story = str(found)
    assert story.index("Worker #2 writes its ID and timestamp 2") < story.index(
        "Worker #1 writes its ID and timestamp 1"
    )
    assert "way." not in story, "no write is late"


def test_by_id_clocks_do_not_matter() -> None:
    """Draft 4 by ID has no timestamps: the same states, the same failure, also where no write is late."""
    assert moves(Setting(FOURTH_BY_ID, in_time=True), "safe") == 20
    right, wrong = (
        answer(Question("", Setting(FOURTH_BY_ID, wrong_clocks=each), "safe"))
        for each in (False, True)
    )
    assert (right.moves, right.found.states) == (wrong.moves, wrong.found.states)


@pytest.mark.explore
def test_a_removal_that_seems_to_be_older_brings_the_lost_write_back() -> None:
    """Without siblings the store trusts clocks; with right ones draft 2 leaves no lock."""
    found = answer(STORES["deleted too early"])
    assert (found.moves, str(found.found.violation)) == (25, "a lock stays that nobody holds")
    assert [w.doing for w in found.found.path[-1].workers] == ["moved on", "done"]
    assert "removes the lock, with timestamp 1, from" in str(found)
    assert moves(Setting(SECOND), "free") is None


# --- Data sets


@pytest.mark.slow
def test_both_workers_of_draft_three_move_on_from_each_data_set() -> None:
    """As often as there are data sets: none is processed. Without another worker in the way, all are."""
    found = answer(STORES["two data sets"])
    assert (found.moves, found.found.states) == (24, 1_157)
    assert str(found.found.violation) == "nobody processes any of the 2 data sets"
    assert moves(Setting(THIRD, servers=1, data_sets=3), "some") == 36
    assert moves(Setting(THIRD, workers=1, servers=1, data_sets=3), "live") is None


def test_a_schedule_of_several_data_sets_is_told_whole() -> None:
    """At random: each sentence says where, and what is told of a data set is what happens there."""
    print("seeds 0 to 99")
    for seed in range(100):
        rng = random.Random(seed)
        setting = Setting(rng.choice(DRAFTS), data_sets=2, spread=seed % 2 == 0)
        several = Several(setting)
        states, schedule = several.start(), []
        while choice := several.moves(states):
            schedule.append(rng.choice(choice))
            states = several.after(states, schedule[-1])
        told = list(tell_several(several, schedule))
        assert all(each.startswith("At data set ") and each.endswith(".") for each in told)
        for number, state in enumerate(states, 1):
            here = [each for each in told if each.startswith(f"At data set {number},")]
            for w, worker in enumerate(state.workers, 1):
                begins = any(f"worker #{w} starts processing" in each for each in here)
                assert begins == (worker.doing == "done"), f"seed {seed}"


# --- What makes no sense


# --- Drafts that can't be searched


def asked(program: Callable[[int], Any], wanted: str = "live") -> int | None:
    """What is said of a draft of one's own."""
    draft = Draft("mine", program, True, "")
    return answer(Question("", Setting(draft), wanted), told=False).moves  # type: ignore[arg-type]


def test_a_draft_that_depends_on_chance_is_refused() -> None:
    """Two runs with the same answers differ: no verdict, but where they do."""
    rng = random.Random(4711)

    def at_random(me: int) -> Any:
        lock = yield Read(1)
        if lock.exists and rng.random() < 0.5:
            return 2
        yield Write(3)
        yield Process(4)
        yield Remove(5)
        return None

    with pytest.raises(
        InvalidOption, match=r"'mine' is not deterministic: after the answers \(Lock"
    ):
        asked(at_random)


def test_a_draft_that_does_not_end_is_refused() -> None:
    """It yields for ever, or never: that is said, and what to do. What goes wrong before that is found."""

    def spinning(me: int) -> Any:
        while (yield Read(1)).exists:
            pass
        yield Write(3)
        yield Process(4)
        return None

    def waiting(me: int) -> Any:
        yield Read(1)
        while True:
            pass

    def reading(me: int) -> Any:
        while True:
            yield Read(1)

    assert asked(spinning, "safe") == 14
    for program in (spinning, reading):
        with pytest.raises(InvalidOption, match="does not end, or takes too long") as caught:
            asked(program)
        assert "Give each loop of its program a number of turns" in str(caught.value)
    before = sys.gettrace()
    with pytest.raises(InvalidOption, match=r"does not end: worker #\d has run 100,000 lines"):
        asked(waiting)
    assert sys.gettrace() is before


# --- The program
