"""Which servers have the locks of an id, if each id is on some of them (`copies`)."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from locks.errors import InvalidOption
from locks.lock_ids import counted
from locks.node.ports import Scope, Servers
from tests.helpers import SEED

NAMES = tuple(f"{letter}@10.0.0.1" for letter in "abcdefgh")
THREE = Servers(NAMES, "majority", 3)
LEADER, MERGE = "$election", "$election merge"


def on(*lock_id: Any, servers: Servers = THREE) -> str:
    """The letters of the servers that have an id."""
    return "".join(name[0] for name in servers.at(lock_id).nodes)


def test_where_an_id_is_never_changes() -> None:
    """Programs of all versions must agree: another answer than this one would give a lock two holders."""
    ids: tuple[tuple[Any, ...], ...] = (
        *(("accounts",), ("accounts", "ann", 17), ("",), ("ä",), (b"accounts",), (b"",)),
        *((0,), (17,), (-1,), (1 << 60,), (1.5,), (None,), (("a", 1),), (1e300,)),
    )
    assert [on(*each) for each in ids] == [
        *("adg", "adg", "cde", "bdf", "ace", "adg"),
        *("efg", "efg", "ceg", "fgh", "acg", "ade", "acd", "bde"),
    ]
    assert on("accounts", servers=THREE._replace(copies=1)) == "a"
    assert on("accounts", servers=THREE._replace(copies=5)) == "abdgh"


def test_the_first_element_decides() -> None:
    """Related ids are together, and so are the units of a semaphore."""
    rng = random.Random(SEED)
    for number in range(200):
        below = [rng.choice(("x", 1, b"y", None)) for _ in range(rng.randrange(4))]
        assert THREE.at((number, *below)) == THREE.at((number,))
        assert THREE.at(counted((number, *below), 3)) == THREE.at((number,))


def test_the_name_decides_of_elections() -> None:
    """Their ids begin with one element, and would all be together."""
    for name in range(100):
        assert on(LEADER, name) == on(MERGE, name) == on(name)
    assert len({on(LEADER, name) for name in range(100)}) > 20


@pytest.mark.parametrize("lock_id", [(LEADER,), (MERGE,)])
def test_an_id_above_ids_on_different_servers_is_refused(lock_id: tuple[Any, ...]) -> None:
    """No server could grant it; to look at it is to look at all servers. Without copies it is an id as any other."""
    with pytest.raises(InvalidOption, match="it covers ids that are on different servers"):
        THREE.at(lock_id)
    assert THREE.around(lock_id) == NAMES
    assert Servers(NAMES, "majority").at(lock_id) == Scope(NAMES, "majority")


def test_elements_that_are_one_in_a_lock_table_are_together() -> None:
    """Equal ones."""
    alike: list[list[Any]] = [
        [1, 1.0, True],
        [0, 0.0, -0.0, False],
        [float(1 << 62), 1 << 62],
        [("a", 1, (2.0,)), ("a", True, (2,))],
    ]
    for each in alike:
        assert len({on(element) for element in each}) == 1, each


def test_ids_are_spread_evenly_and_stay_where_they_are() -> None:
    """Each server has its share. Whatever the order of the list; and another server takes over its own share only."""
    shares = Counter(name for number in range(4000) for name in THREE.at((number,)).nodes)
    assert all(0.85 < shares[name] / (4000 * 3 / 8) < 1.15 for name in NAMES)
    shuffled = list(NAMES)
    random.Random(SEED).shuffle(shuffled)
    more = THREE._replace(nodes=(*shuffled, "i@10.0.0.1"))
    moved = 0
    for number in range(4000):
        before, after = set(THREE.at((number,)).nodes), set(more.at((number,)).nodes)
        assert after == before or after - before == {"i@10.0.0.1"}
        moved += after != before
    assert 0.8 < moved / (4000 * 3 / 9) < 1.2


@pytest.mark.parametrize(
    ("servers", "needed", "enough"),
    [
        (Servers(NAMES, "majority"), 5, 5),
        (Servers(NAMES, "all"), 8, 8),
        (Servers(NAMES, "majority", 1), 1, 8),
        (THREE, 2, 7),
        (Servers(NAMES, "all", 3), 3, 8),
        (Servers(NAMES, "majority", 5), 3, 6),
    ],
)
def test_how_many_servers_must_be_up(servers: Servers, needed: int, enough: int) -> None:
    """For one lock, and for all: any `copies` of the servers may have an id, so few may be missing."""
    assert (servers.needed, servers.enough) == (needed, enough)
    assert servers.at(("a",)).needed == needed
