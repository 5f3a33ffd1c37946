"""What pages, stories and situations say of a transaction's age is played."""

from __future__ import annotations

import re
import threading

import locks
from locks.model import AgentId
from locks_lab.play.board import play
from locks_lab.play.situations import SITUATIONS, game_of
from tests.helpers import LIMIT, ROOT
from tests.model.test_lesson import END, STEPS, story

SPEAKS = re.compile(
    r"keeps?\s+(?:its|the)\s+age|youngest\s+of\s+all|so\s+the\s+youngest", re.IGNORECASE
)
KEEPS = {  # each says that a transaction that `run_transaction` runs again keeps its age
    "docs/algorithm.md",
    "docs/deadlocks.md",
    "docs/differences.md",
    "docs/lesson.md",
    "docs/tutorial.md",
    "locks/aio/transactions.py",
    "locks/transactions.py",
    "locks_lab/commands/demo.py",
}
BEGINS = {  # each says that a new transaction is the youngest
    "locks_lab/original/story.py",
    "locks_lab/play/exercises.py",  # played in test_play.py
    "locks_lab/play/situations.py",
    "locks_lab/stories/story.py",
}


def test_no_other_text_speaks_of_it() -> None:
    """Whoever writes one adds it here, below the test that plays it."""
    texts = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    texts += [each for package in ("locks", "locks_lab") for each in (ROOT / package).rglob("*.py")]
    found = {
        str(each.relative_to(ROOT)) for each in texts if SPEAKS.search(each.read_text("utf-8"))
    }
    assert found == KEEPS | BEGINS


def test_run_transaction_keeps_the_age_of_the_first_run() -> None:
    """It is older than a transaction that began between its runs."""
    runs: list[AgentId] = []
    between: list[AgentId] = []
    begun, both = threading.Event(), threading.Barrier(2)

    def older() -> None:
        with locks.transaction(timeout=LIMIT) as tx:
            tx.write_lock(("age", "a"))
            begun.set()
            both.wait(LIMIT)
            tx.write_lock(("age", "b"))

    def younger(tx: locks.Transaction) -> None:
        tx.write_lock(("age", "b"))
        runs.append(tx.agent.id)
        if len(runs) == 1:
            both.wait(LIMIT)
            with locks.transaction() as newcomer:
                newcomer.write_lock(("age", "c"))
                between.append(newcomer.agent.id)
        tx.write_lock(("age", "a"))

    thread = threading.Thread(target=older)
    thread.start()
    assert begun.wait(LIMIT)
    locks.run_transaction(younger, timeout=LIMIT)
    thread.join(LIMIT)
    first, second = runs
    assert first < second < between[0]


def test_without_it_a_transaction_that_begins_again_is_the_youngest() -> None:
    """Step 6 of the lesson, and the situations: an aborted client's next transaction is younger, and it gives way again if it meets the same."""
    told = story(play(game_of(STEPS[6]), END))
    again = "begins again, as client 2 (2nd try): a new transaction, so the youngest. (run_transaction keeps its age instead.)"
    assert "Client 2 yields" in told
    assert again in told
    named = {each.name: each for each in SITUATIONS}
    assert again in story(play(game_of(named["Abort instead of surrender"]), END))
    two = named["Two transactions of one client"]
    told = story(play(game_of(two), [*"12", *END]))
    assert (
        "Client 1 begins again, as client 1 (2nd try): a new transaction, so the youngest." in told
    )
    assert "run_transaction" not in told  # it was not aborted
