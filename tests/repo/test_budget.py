"""Each room keeps its budget, and each module that is shipped is in a room."""

from __future__ import annotations

from tests.repo.budget import ROOMS, Room, budgets, lines_of
from tests.repo.lines import ROOT


def test_each_room_keeps_its_budget() -> None:
    """More needs a line in the table of `budget.py` that says what for, and what went instead."""
    over = [
        f"{name} has {has:,}, and may have {most:,}"
        for name, (has, most) in budgets().items()
        if has > most
    ]
    assert not over, "\n".join(over)


def test_each_module_is_in_one_room() -> None:
    """Or lines would count nowhere, or twice."""
    places = [ROOT / place for room in ROOMS.values() for place in room.places]
    packages = ("locks", "locks_leader", "locks_lab")
    modules = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    wrong = [
        str(path.relative_to(ROOT))
        for path in (*modules, ROOT / "locks_pytest.py")
        if sum(place == path or place in path.parents for place in places) != 1
    ]
    assert not wrong
    assert all(place.exists() for place in places)


def test_a_room_that_is_too_large_is_noticed() -> None:
    """The check can fail."""
    assert lines_of(Room(("tests/repo/budget.py",), 0)) > 0
