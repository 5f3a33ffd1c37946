"""What the tests of this folder rely on can fail."""

from __future__ import annotations

from typing import Any

import pytest

from tests.leader.gdict import Journal
from tests.leader.harness import leader_of


class Named:
    """Stands for a member."""

    def __init__(self, name: str) -> None:
        self.name = name


def infos(*given: tuple[str, str | None, int]) -> list[dict[str, Any]]:
    """What members say: role, leader's node and term."""
    return [{"role": role, "leader_node": node, "term": term} for role, node, term in given]


@pytest.mark.parametrize(
    "said",
    [
        [("leader", "a", 1), ("leader", "b", 1)],
        [("leader", "a", 1), ("following", "a", 2)],
        [("leader", "a", 1), ("following", "b", 1)],
        [("leader", "a", 1), ("candidate", None, 1)],
        [("leader", "a", 1), ("syncing", "a", 1)],
        [("leader", "b", 1), ("following", "b", 1)],
        [("following", "a", 1), ("following", "a", 1)],
        [("candidate", None, 0), ("candidate", None, 0)],
    ],
)
def test_no_agreement(said: list[tuple[str, str | None, int]]) -> None:
    """Two leaders, none, or different opinions on who it is or on its term are no agreement."""
    members: list[Any] = [Named("a"), Named("b")]
    assert leader_of(members, infos(*said)) is None
    assert leader_of(members, infos(("leader", "a", 1), ("following", "a", 1))) is not None


@pytest.mark.parametrize(
    "wrong",
    [
        ["elected", "elected"],
        ["elected", "surrendered"],
        ["surrendered", "stepped_down"],
        ["stepped_down"],
        ["led another"],
        ["elected", "stepped_down", "stepped_down"],
    ],
)
def test_wrong_orders_of_callbacks(wrong: list[str]) -> None:
    """A journal in which callbacks come in an order in which they may not is refused."""
    right = Journal()
    for what in ("surrendered", "surrendered", "elected", "led another", "stepped_down", "elected"):
        right.add(what, 1)
    right.check()
    journal = Journal()
    for what in wrong:
        journal.add(what, 1)
    with pytest.raises(AssertionError):
        journal.check()
