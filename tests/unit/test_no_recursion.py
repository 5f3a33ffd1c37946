"""Nothing in the pure cores recurses by what it is given: depth is no reason to fail."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from inspect import currentframe
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locks.core.server.machine import ServerMachine
from locks.core.server.table import LockTable
from locks.core.server.tree import Slot
from locks.groups.names import to_group
from locks.lock_ids import MOST_ELEMENTS
from locks.model import InvalidOption, LockId, Mode
from locks.net.values import Unsendable, Values
from locks.ownership.groups import stable_hash
from tests.lockstep import agent

IDS = st.lists(st.integers(0, 2), min_size=1, max_size=5).map(tuple)
STEPS = st.tuples(st.integers(1, 4), IDS, st.sampled_from(("read", "write")))


def recursive(slot: Slot, ranks: tuple[int, ...]) -> Iterator[Slot]:
    """What `Slot.subtree` was: the same, by recursion."""
    for rank in ranks:
        if slot.below[rank]:
            for child in slot.children.values():
                yield child
                yield from recursive(child, ranks)
            return


@given(st.lists(STEPS, max_size=25), st.lists(st.integers(1, 4), max_size=3))
def test_a_subtree_is_gone_through_as_by_recursion(steps: Any, removed: list[int]) -> None:
    """The same slots in the same order, from each slot, for all ranks and for one."""
    table = LockTable()
    for number, lock_id, mode in steps:
        table.request(agent(number), "c", lock_id, mode)
    for number in removed:
        table.remove(agent(number))
    for slot in (table.root, *recursive(table.root, (0, 1))):
        for ranks in ((0, 1), (0,), (1,), ()):
            assert list(slot.subtree(ranks)) == list(recursive(slot, ranks))


class _Shallow:
    """Within it there is room on the stack for a few calls within each other, however deep the ids."""

    def __enter__(self) -> None:
        depth, frame = 0, currentframe()
        while frame is not None:
            depth, frame = depth + 1, frame.f_back
        self.before = sys.getrecursionlimit()
        sys.setrecursionlimit(depth + 60)

    def __exit__(self, *_: object) -> None:
        sys.setrecursionlimit(self.before)


@pytest.mark.parametrize("mode", ["read", "write"])
def test_locks_above_and_below_the_deepest_id(mode: Mode) -> None:
    """A lock of the longest id, one on each id above, and a table lock over all: no deep stack."""
    deepest: LockId = tuple(range(MOST_ELEMENTS))
    server = ServerMachine("n@host")
    table = server.table
    with _Shallow():
        table.request(agent(1), "c", deepest, mode)
        for length in range(1, MOST_ELEMENTS):
            table.request(agent(2), "c", deepest[:length], "read")
        waits = table.request(agent(3), "c", deepest[:1], "write")[0]
        assert not waits.granted
        assert len(server.view(deepest[:1]).requests) == MOST_ELEMENTS + 1
        table.surrender(agent(1), deepest)
        table.remove(agent(1))
        table.remove(agent(2))
        assert waits.granted
        table.remove(agent(3))
    assert table.statistics().entries == 0
    assert not table.root.children


def _deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = (value,)
    return value


@pytest.mark.slow
def test_what_is_too_deep_to_be_sent_is_refused_by_a_clear_error() -> None:
    """Values, names of groups and resources have a greatest depth; a stack is not what limits them."""
    values = Values(lambda ref: ("a@x", 1), lambda node, target: None)
    with pytest.raises(Unsendable, match="deep"):
        values.pack(_deep(100_000))
    with pytest.raises(InvalidOption, match="deep"):
        to_group(_deep(100_000))
    with pytest.raises(InvalidOption, match="deep"):
        stable_hash(_deep(100_000))
