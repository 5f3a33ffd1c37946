"""Twelve exercises to fill in: pytest examples/exercises

Look at an exercise with `locks play --exercise 3`; its question is there, too, and the page checks your answer. Here
the answers are kept, and four of the exercises go on with a program of yours.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest

from examples.cautionary_tale.drafts import DRAFTS
from examples.cautionary_tale.findings import Scene, follow
from examples.cautionary_tale.model import Setting, Tale
from examples.exercises.scores import score, score_central, table
from locks_lab.explorer.explore import explore
from locks_lab.explorer.shortest import shortest_schedule
from locks_lab.play.exercises import EXERCISES, exercise, judge
from locks_lab.schedules.plan import Plan
from locks_lab.worlds.host import Violation
from locks_lab.worlds.rules import OURS, RULES, Rule
from locks_lab.worlds.script import parse_script

# --- Fill in ------------------------------------------------------------------------------------

# What you would type on the page.
TYPED = {1: "", 2: "", 3: "", 4: "", 10: "", 11: ""}

# The moves that you have played: what *As a command* on the page has behind --schedule.
MOVES = {5: "", 6: "", 7: "", 8: "", 9: "", 11: "", 12: ""}

# 9 goes on: break a rule of your own. `locks_lab/worlds/rules.py` has wrong ones to look at. Give a world in which it
# fails, and ours does not, and the number of moves of the shortest schedule that fails.
BROKEN: Rule = OURS
BROKEN_WORLD = ["write a; write b", "write b; write a"]
BROKEN_MOVES = 0

# 10 goes on: a rule that sends fewer messages than ours, and is right. Look at `locks/core/server/notifier.py`.
FEWER: Rule = OURS


# 11 goes on: a bank whose clients name their fencing token with each write.
class Bank:
    """It has one account."""

    balance = 100

    def put(self, token: int, balance: int) -> bool:
        """Write the balance; return whether it was accepted."""
        self.balance = balance
        return True


# 12 goes on: four drafts of a lock on a replicated store (`docs/cautionary_tale.md`). Give, for each, who does which step
# of it, in order: (1, 3) for step 3 of worker 1. At the end of drafts 1, 2 and 4 both workers process the data set; at
# the end of draft 3 nobody does. (1, 3, "begins") if a write is still on its way.
FAILURES: dict[str, Sequence[Scene]] = {"1": (), "2": (), "3": (), "4": ()}


# --- The checks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(1, len(EXERCISES) + 1))
def test_answers(number: int) -> None:
    """Your answer is what the page calls right."""
    asked = exercise(number)
    moves = MOVES.get(number, "").split()
    verdict = judge(number, TYPED.get(number, ""), asked.situation._replace(moves=(*moves,)))
    assert verdict.right, f"{asked.question}\n{verdict.text}"


def test_9_a_rule_of_your_own_fails() -> None:
    """It is not one of ours, fails in your world, and in no schedule with fewer moves than you say."""
    assert BROKEN.name not in RULES, "give your rule a name of its own"
    scripts = tuple(map(parse_script, BROKEN_WORLD))
    explore(Plan(scripts).world())
    found = shortest_schedule(Plan(scripts, rule=BROKEN).world())
    assert found.violation is not None, "no schedule fails"
    assert len(found.schedule) == BROKEN_MOVES, "another schedule is shorter, or yours is too short"


def test_10_a_rule_sends_fewer_messages() -> None:
    """It is right, and in all it sends fewer messages than ours; run pytest with -s to see the table."""
    assert FEWER.name not in RULES, "give your rule a name of its own"
    ours, yours = score(OURS), score(FEWER)
    print(table([ours, yours, score_central()]))
    assert not yours.wrong
    assert yours.total < ours.total


def test_11_a_token_saves_the_bank() -> None:
    """Whoever writes late writes nothing, whatever the order is in which the writes arrive."""
    writes = [(1, 150), (1, 160), (2, 250), (2, 260)]  # of two holders, the second one has token 2
    for order in permutations(writes):
        bank = Bank()
        largest = 0
        for token, balance in order:
            before, largest = bank.balance, max(largest, token)
            accepted = bank.put(token, balance)
            assert accepted == (token == largest), f"token {token} after {largest}"
            assert bank.balance == (balance if accepted else before)


@pytest.mark.parametrize(
    "draft", [each for each in DRAFTS if each.name in FAILURES], ids=lambda each: each.name
)
def test_12_a_draft_fails(draft: object) -> None:
    """Your schedule is possible, and ends as it must not."""
    (found,) = [each for each in DRAFTS if each == draft]
    tale = Tale(Setting(found))
    _, state = follow(tale, FAILURES[found.name])
    with pytest.raises(Violation):
        (tale.check_live if found.name == "3" else tale.check_safe)(state, tale.moves(state))
