"""The elections of the original, as a model: against recordings of real ones, small worlds explored whole, and what goes wrong.

Where there is an Erlang, `tests/erlang/test_elections_of_the_original.py` looks at real ones again.
"""

from __future__ import annotations

import pytest

from locks.errors import InvalidOption
from locks_lab.explorer.search import visit_all
from locks_lab.original.elections import Elections, ends, failure, tell
from locks_lab.worlds.host import Violation
from tests.original.elections import SCRIPTS, foreseen, recorded

TWO = ("n1", "n2")


@pytest.mark.parametrize(("script", "homes", "calls"), recorded())
def test_recordings(script: str, homes: str, calls: str) -> None:
    """What real instances were told is one of what the model allows."""
    assert calls in foreseen(script, homes)


def test_all_scripts_are_recorded() -> None:
    """Each one at least once."""
    assert {(script, homes) for script, homes, _ in recorded()} == {*SCRIPTS}


def test_a_candidate_that_is_killed_with_the_merge_lock_leaves_it_behind() -> None:
    """Its helper keeps the lock for 60 s, and nobody leads: a shortest schedule."""
    world = Elections("start 1, start 2, kill 1")
    found = failure(world)
    assert str(found.violation) == "nobody leads"
    assert [*tell(world, found.schedule)] == [
        "start 1", "  1 is syncing", "start 2", "kill 1", "  2: handle_DOWN 1", "  2 is syncing", "nobody leads"
    ]  # fmt: skip


def test_a_leader_may_announce_itself_to_a_newcomer_for_ever() -> None:
    """As long as the newcomer's agent is not notified of the queue: each doubts, and tells the other."""
    with pytest.raises(Violation, match="this can go on for ever"):
        visit_all(Elections("start 1; start 2", delays=True), lambda state, moves: None)


def test_a_worker_crashes_when_a_leader_announces_itself() -> None:
    """It has no agent to compare the announcement with."""
    world = Elections("start 1; start 2; start 3", workers=(2,))
    assert str(failure(world).violation) == "crashed: [2]"


def test_what_a_script_can_not_have() -> None:
    """It is refused when it is reached."""
    with pytest.raises(InvalidOption, match="there is start, put and kill"):
        ends(Elections("start 1; stop 1"), Elections.verdict)


FINE = (
    "start 1, start 2",
    "start 1; start 2, kill 1",
    "start 1; start 2; put 2 x, kill 1",
    "start 1; start 2; kill 1, start 3",
)


@pytest.mark.parametrize("nodes", [TWO[:1], TWO])
@pytest.mark.parametrize("script", FINE)
@pytest.mark.explore
def test_what_goes_well_however_slow_lock_servers_are(script: str, nodes: tuple[str, ...]) -> None:
    """One leads, all follow it, and no fact is lost, whichever agent is older."""
    for ages in ((1, 2, 3), (3, 2, 1)) if "3" in script else ((1, 2), (2, 1)):
        found = failure(Elections(script, nodes, ages, delays=True))
        assert found.violation is None
