"""The cautionary tale: how drafts of a lock on an eventually consistent store fail.

Numbers of moves and states are those of the model in `examples/cautionary_tale/model.py`: they change
when it does. `LOCKS_EXPLORE=1` also proves what takes minutes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection
from pathlib import Path

import pytest

from examples.cautionary_tale.drafts import (
    DRAFTS,
    FIRST,
    FOURTH,
    FOURTH_BY_ID,
    SECOND,
    THIRD,
    Draft,
)
from examples.cautionary_tale.findings import (
    ANSWERS,
    OTHERS,
    RIGHT,
    TALES,
    WITH_OUTAGES,
    Question,
    actions,
    answer,
    follow,
    table,
)
from examples.cautionary_tale.majority import (
    MORE,
    NODES,
    PARTS,
    Part,
    at_random,
    cut_off,
    explore_part,
)
from examples.cautionary_tale.model import Setting, State, Tale
from examples.cautionary_tale.stories import story, tell
from locks.core.agent import requests as requests
from locks.model import Require
from locks_lab.explorer.shortest import shortest
from locks_lab.worlds.host import Violation
from tests.helpers import EXPLORE

PAGE = Path(__file__).parents[2] / "docs" / "cautionary_tale.md"

explored = pytest.mark.skipif(not EXPLORE, reason="takes minutes: set LOCKS_EXPLORE=1")

# Of each draft: which question fails, after how many moves, and how many states there are in the other.
FAILURES = {
    FIRST: ("safe", 14, "workers 1 and 2 process the data set at once", 1_401),
    SECOND: ("safe", 20, "workers 1 and 2 process the data set at once", 3_797),
    THIRD: ("live", 18, "nobody processes the data set", 1_258),
    FOURTH: ("safe", 20, "workers 1 and 2 process the data set at once", 2_995),
    FOURTH_BY_ID: ("safe", 20, "workers 1 and 2 process the data set at once", 1_814),
}

STORIES = {
    FIRST: """\
 1. Worker #1 reads the lock from A and B and sees none.
 2. Worker #2 reads the lock from A and B and sees none.
 3. Worker #2 writes its ID to the lock on A and B.
 4. Worker #2 starts processing the data set.
 5. Worker #1 writes its ID to the lock on A and B.
 6. Worker #1 starts processing the data set.""",
    FOURTH: """\
 1. Worker #1 reads the lock from A and B and sees none.
 2. Worker #1 begins to write its ID, with timestamp 1; the request is on its
    way.
 3. Worker #2 reads the lock from A and B and sees none.
 4. Worker #2 writes its ID and timestamp 2 to the lock on A and B.
 5. Worker #2 reads the lock again from A and B and sees its own ID.
 6. Worker #2 starts processing the data set.
 7. Worker #1's ID, with timestamp 1, arrives at A and C.
 8. Worker #1 reads the lock again from A and C and sees a conflict of 2, its
    own timestamp being the earliest.
 9. Worker #1 starts processing the data set.""",
}


def failing(draft: Draft) -> Question:
    """The question of a draft to which the answer is no."""
    (question,) = (each for each in ANSWERS[draft] if each.wanted == FAILURES[draft][0])
    return question


def name(value: object) -> str:
    """How a draft or a part is called in test ids."""
    return value.name if isinstance(value, Draft) else ""


# --- The drafts


@pytest.mark.parametrize("draft", DRAFTS, ids=name)
def test_each_draft_fails_as_the_tale_says_and_only_so(draft: Draft) -> None:
    """Drafts 1, 2 and 4 have two workers at once, draft 3 has none; the other property is proven."""
    wanted, moves, what, states = FAILURES[draft]
    for question in ANSWERS[draft]:
        found = answer(question)
        if question.wanted == wanted:
            assert (found.moves, str(found.found.violation)) == (moves, what)
        else:
            assert (found.moves, found.found.states) == (None, states)


@pytest.mark.parametrize("draft", DRAFTS, ids=name)
def test_the_tales_own_scenario_fails_in_the_same_way(draft: Draft) -> None:
    """It can happen in the model, the same goes wrong, and it is as short as the shortest."""
    question = failing(draft)
    tale = Tale(question.setting)
    moves, end = follow(tale, TALES[draft])
    check = tale.check_safe if question.wanted == "safe" else tale.check_live
    with pytest.raises(Violation, match=FAILURES[draft][2]):
        check(end, ())
    found = answer(question).found
    assert len(moves) == len(found.schedule)
    # Draft 2's scenario ends with "both process": it leaves open which of them begins earlier.
    process = 6 if draft is SECOND else None
    steps = [each for each in actions(tale, found.schedule) if each[1] != process]
    assert steps == [each for each in actions(tale, moves) if each[1] != process]


@pytest.mark.parametrize("draft", STORIES, ids=name)
def test_failures_are_told_as_stories(draft: Draft) -> None:
    """A sentence for each thing that a worker does, and what the others see of it."""
    found = answer(failing(draft)).found
    assert story(tell(Tale(Setting(draft)), found.schedule)) == STORIES[draft]


def test_every_schedule_can_be_told() -> None:
    """At random, with outages: whole sentences, and each of what servers do in the order it was done."""
    print("seeds 0 to 299")
    told: list[str] = []
    for seed in range(300):
        rng = random.Random(seed)
        tale = Tale(Setting(rng.choice(DRAFTS), outages=2, forget="each", refuses=seed % 2 == 0))
        state, schedule = tale.start(), []
        while moves := tale.moves(state):
            schedule.append(rng.choice(moves))
            state = tale.after(state, schedule[-1])
        sentences = list(tell(tale, schedule))
        assert all(each[0].isupper() and each.endswith(".") for each in sentences), f"seed {seed}"
        backs = [each.split()[1] for each in sentences if each.endswith("is back.")]
        assert backs == ["ABC"[s] for kind, _, s in schedule if kind == "up"], f"seed {seed}"
        told += sentences
    for words in (
        "is refused",
        "begins to read",
        "goes on",
        "gives up",
        "the read fails",
        "arrives at",
    ):
        assert any(words in each for each in told), words


@pytest.mark.slow
@pytest.mark.parametrize(
    "which",
    [pytest.param(which, marks=() if which == "3, safe" else explored) for which in WITH_OUTAGES],
)
def test_with_one_outage_the_other_property_still_holds(which: str) -> None:
    """Proven with one server that becomes unreachable at any moment, and is back at any later one."""
    found = answer(WITH_OUTAGES[which])
    assert found.moves is None
    assert (
        found.found.states
        == {
            "1, live": 38_963,
            "2, live": 115_843,
            "3, safe": 40_452,
            "4, live": 93_925,
            "4 by ID, live": 61_546,
        }[which]
    )


@explored
@pytest.mark.parametrize(
    ("setting", "states"),
    [(Setting(THIRD, 3), 171_933), (Setting(THIRD, outages=2), 451_343)],
    ids=["three workers", "two outages"],
)
def test_draft_three_is_safe_in_larger_settings(setting: Setting, states: int) -> None:
    """What it gains by giving way to everybody holds there, too."""
    found = answer(Question("", setting, "safe"))
    assert (found.moves, found.found.states) == (None, states)


# --- What else goes wrong


@pytest.mark.parametrize(
    ("which", "moves", "what"),
    [
        ("unclean write", 14, "nobody processes the data set"),
        ("unclean write, shorter", 12, "nobody processes the data set"),
        ("refused, lost", 12, "nobody processes the data set"),
        ("resurrected lock", 18, "a lock stays that nobody holds"),
        ("resurrected by handoff", 19, "a lock stays that nobody holds"),
    ],
)
def test_locks_that_nobody_holds_are_found(which: str, moves: int, what: str) -> None:
    """After a write that failed for its worker, and after a deletion: the next worker moves on."""
    found = answer(OTHERS[which])
    assert (found.moves, str(found.found.violation)) == (moves, what)
    last = found.found.path[-1]
    assert last.workers[1].doing == "moved on"
    assert last.workers[0].doing == ("done" if "resurrected" in which else "gave up")


@pytest.mark.parametrize(("which", "states"), [("refused", 8_030), ("kept tombstones", 1_764)])
def test_what_mends_them_is_not_accused(which: str, states: int) -> None:
    """A write that is refused is not written; a tombstone that is kept keeps the lock away."""
    found = answer(OTHERS[which])
    assert (found.moves, found.found.states) == (None, states)


@pytest.mark.parametrize("draft", DRAFTS, ids=name)
def test_with_two_outages_no_draft_is_live(draft: Draft) -> None:
    """An unclean write stops each of them, and is found after as many moves."""
    found = answer(Question("", Setting(draft, outages=2, in_turn=True), "live"))
    assert (found.moves, str(found.found.violation)) == (12, "nobody processes the data set")


# --- The model itself


@pytest.mark.parametrize("wanted", RIGHT)
def test_a_store_that_looks_and_writes_in_one_step_is_not_accused(wanted: str) -> None:
    """With a register on one server, three workers are safe, live, and leave no lock."""
    found = answer(RIGHT[wanted])
    assert (found.moves, found.found.states) == (None, 1_660)


@pytest.mark.parametrize("draft", [FIRST, THIRD], ids=name)
def test_servers_are_equal(draft: Draft) -> None:
    """To count states that differ in servers' names once changes the number of states alone."""
    tale = Tale(Setting(draft))
    question = failing(draft)
    check = tale.check_safe if question.wanted == "safe" else tale.check_live
    all_names = shortest(tale, check)
    once = answer(question).found
    assert len(all_names.schedule) == len(once.schedule)
    assert all_names.states > 3 * once.states


@pytest.mark.slow
def test_random_schedules_end_in_states_that_were_visited() -> None:
    """Whatever the model does when led at random, the search knows, with its outages and deletions."""
    tale = Tale(Setting(FIRST, outages=1, in_turn=True, forget="each"))
    seen: set[object] = set()

    def check(state: State, moves: object) -> None:
        seen.add(tale.key(state))

    shortest(tale, check, key=tale.key)
    print("seeds 0 to 99")
    for seed in range(100):
        rng, state = random.Random(seed), tale.start()
        while moves := tale.moves(state):
            assert tale.key(state) in seen, f"seed {seed}"
            state = tale.after(state, rng.choice(moves))
        assert all(worker.doing in ("moved on", "gave up", "done") for worker in state.workers)


# --- The same with locks

LONG = "worker 1 has the lock; n3 may crash"


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    [
        *(part for part in PARTS if part.about != LONG),
        *(pytest.param(part, marks=pytest.mark.explore) for part in PARTS if part.about == LONG),
        *(pytest.param(part, marks=pytest.mark.explore) for part in MORE),
    ],
    ids=lambda part: part.about,
)
def test_a_majority_lock_has_no_failing_schedule(part: Part) -> None:
    """Every order of messages: nobody has what another one has, and each worker finishes."""
    found = explore_part(part)
    print(f"\n{part.about:48} {found}", end="")
    assert found.ends == {(True, True)}
    page = PAGE.read_text(encoding="utf-8")
    assert f"| {part.about} | {found.states:,} |" in page, "the page says so"


@pytest.mark.slow
def test_random_schedules_with_cuts_and_crashes_go_well() -> None:
    """Two workers on three nodes, with tokens: nothing is wrong in what the parts leave out."""
    print("seeds 0 to 199")
    tally, failure = at_random(200)
    assert failure is None
    assert tally.events["cut"] > 50
    assert tally.events["crash"] > 50
    assert tally.seen["tokens"] > 300


def test_random_schedules_find_a_lock_that_less_than_a_majority_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a rule that takes one node of three for enough, two workers have the lock: so all three count."""
    right = requests.needed

    def half(require: Require, nodes: Collection[str], alive: Collection[str]) -> int:
        return len(nodes) // 2 if len(nodes) == 3 else right(require, nodes, alive)

    monkeypatch.setattr(requests, "needed", half)
    _, failure = at_random(200)
    assert failure is not None
    assert {step.nodes for script in failure.plan.scripts for step in script} <= {(), NODES}


def test_whoever_is_cut_off_with_the_lock_has_the_smaller_token() -> None:
    """The others go on without it, and a resource can tell whom to refuse."""
    tokens = re.findall(r"Client (\d) has the fencing token (\d+)", "\n".join(cut_off()))
    assert [client for client, _ in tokens] == ["1", "2"]
    assert int(tokens[0][1]) < int(tokens[1][1])


# --- The program


@pytest.mark.slow
def test_the_table_says_it_all() -> None:
    """A line for each draft, no wider than 80 columns."""
    lines = table().splitlines()
    assert len(lines) == 2 + len(DRAFTS)
    assert max(map(len, lines)) <= 80
    assert [line.split()[-1] for line in lines[2:]] == ["once", "once", "nobody", "once", "once"]
