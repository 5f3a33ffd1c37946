"""What is counted of other nodes."""

from __future__ import annotations

from locks.net.budgets import OverBudget, Tally


def test_a_tally_knows_what_is_gone() -> None:
    """Things may come and go for ever, as long as there are never too many at once."""
    there: set[int] = set()
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return len(there)

    tally = Tally(10, "things", count)
    for number in range(1000):
        tally.add()
        there.add(number)
        there.discard(number - 5)
    assert counted <= 1000 / 4
    assert len(there) == 5
    text = ""
    while not text:
        try:
            tally.add()
        except OverBudget as error:
            text = str(error)
        else:
            there.add(len(there) + 9000)
    assert "more than 10 things" in text
    assert 10 <= len(there) <= 11
