"""No two majorities of servers that were found: what may happen to them, in all orders.

The servers are as `Agreement` has them. Each one runs with one set of servers, as long as it runs, and hears what the others say;
at any moment it may end, and start with any set that it is in: DNS may have named any of them to it. A majority of a set
grants locks if enough of the set's servers run with it, and wait for nobody.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import combinations

import pytest

from locks.node.peers.agreement import Agreement
from locks.node.ports import Servers
from tests.helpers import SEED

Sets = tuple[frozenset[str], ...]
State = tuple[tuple[frozenset[str], frozenset[str]] | None, ...]
"""Of each server, in their order: its set, and for whom it waits; `None` if it does not run."""


def sets(*texts: str) -> Sets:
    """Sets of servers with names of one letter."""
    return tuple(frozenset(text) for text in texts)


def scope(names: Iterable[str]) -> Servers:
    """The set, as servers say it."""
    return Servers(tuple(sorted(names)), "majority")


def after(names: str, each: Sets, state: State, waits: bool = True) -> Iterator[State]:
    """All states that may be next."""
    for place, name in enumerate(names):
        for own in each:
            if name in own:
                awaited = own - {name} if waits else frozenset[str]()
                yield (*state[:place], (own, awaited), *state[place + 1 :])
        here = state[place]
        if here is None:
            continue
        for other, there in zip(names, state, strict=True):
            if there is not None and name in there[0] and other != name:
                agreement = Agreement(scope(here[0]), here[1])
                agreement.take_scope(other, scope(there[0]))
                yield (*state[:place], (here[0], agreement.awaited), *state[place + 1 :])


def granting(each: Sets, state: State) -> list[frozenset[str]]:
    """The sets of which a majority grants locks."""
    return [own for own in each if state.count((own, frozenset())) >= len(own) // 2 + 1]


def explore(each: Sets, waits: bool = True) -> tuple[int, State | None]:
    """All states that can be: how many there are; one in which two sets grant, if there is one."""
    names = "".join(sorted(frozenset().union(*each)))
    start: State = (None,) * len(names)
    seen, todo = {start}, [start]
    while todo:
        for state in after(names, each, todo.pop(), waits):
            if state not in seen:
                if len(granting(each, state)) > 1:
                    return len(seen), state
                seen.add(state)
                todo.append(state)
    return len(seen), None


@pytest.mark.parametrize(
    "each",
    [
        sets("a"),
        sets("ab", "bc"),
        sets("abc", "bcd"),
        pytest.param(sets("abc", "abd", "acd", "bcd"), marks=pytest.mark.explore),
        pytest.param(sets("abcd", "bcde"), marks=pytest.mark.explore),
    ],
)
def test_sets_that_share_enough_never_grant_both(each: Sets) -> None:
    """Enough: so many that those that are left of one set are no majority of it."""
    for one, other in combinations(each, 2):
        assert len(one - other) < len(one) // 2 + 1
    count, both = explore(each)
    assert both is None
    assert count > len(each)


def test_it_is_the_waiting_that_does_it() -> None:
    """Without it, one server that is replaced is enough for two majorities."""
    assert explore(sets("abc", "bcd"), waits=False)[1] is not None


@pytest.mark.parametrize("each", [sets("a", "b"), sets("abc", "cde"), sets("abc", "def")])
def test_sets_that_share_too_little_may_grant_both(each: Sets) -> None:
    """When a majority was replaced, the old ones have to have ended: that is what they do when DNS names others."""
    assert explore(each)[1] is not None


@pytest.mark.explore
@pytest.mark.parametrize("each", [sets("abcd", "cdef"), sets("abcde", "cdefg")])
def test_larger_sets(each: Sets) -> None:
    """The same by chance: there are too many states."""
    chance = random.Random(SEED)
    names = "".join(sorted(frozenset().union(*each)))
    state: State = (None,) * len(names)
    granted = set()
    for _ in range(20_000):
        # To hear is much more frequent than to start again, or no set would ever be complete.
        nexts = list(after(names, each, state))
        heard = [new for new in nexts if sum(map(_waits, new)) < sum(map(_waits, state))]
        state = chance.choice(heard if heard and chance.random() < 0.9 else nexts)
        both = granting(each, state)
        granted.update(both)
        assert len(both) < 2
    assert granted == set(each)


def _waits(server: tuple[frozenset[str], frozenset[str]] | None) -> int:
    return 0 if server is None else len(server[1])
