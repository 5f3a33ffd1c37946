"""The lock table: in lockstep with the naive oracle, and by example."""

from __future__ import annotations

import itertools
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from locks.core.server import table as lock_table
from locks.core.server import tree as lock_tree
from locks.core.server.table import LockTable
from locks.core.server.tree import Entry, Requester, Slot
from locks.model import MODES, LockId, Mode
from locks.ranges import PLACE_BITS
from tests.helpers import EXPLORE
from tests.lockstep import Lockstep, agent, check_exclusion, key, walk, written

TIMES = 20 if EXPLORE else 1

WHO = st.integers(0, 5)
IDS = st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(tuple)
ANY_MODE: st.SearchStrategy[Mode] = st.sampled_from(MODES)
INDEX = st.integers(0, 10**6)


# --- In lockstep with the oracle ----------------------------------------------------------------


class TableAndOracle(RuleBasedStateMachine):
    """All that can be done to a table, done to the oracle as well (`Lockstep` compares)."""

    @initialize(agents=st.integers(2, 6), first_version=st.integers(0, 2**62))
    def begin(self, agents: int, first_version: int) -> None:
        self.agents = agents
        self.both = Lockstep(LockTable(first_version))

    @rule(who=WHO, lock_id=IDS, mode=ANY_MODE)
    def request(self, who: int, lock_id: LockId, mode: Mode) -> None:
        self.both.request(agent(who % self.agents), lock_id, mode)

    @rule(who=WHO, lock_id=IDS, mode=ANY_MODE)
    def request_again(self, who: int, lock_id: LockId, mode: Mode) -> None:
        """More requests than anything else, so that there is something to compare."""
        self.both.request(agent(who % self.agents), lock_id, mode)

    @precondition(lambda self: self.both.wishes)
    @rule(index=INDEX, mode=st.none() | ANY_MODE)
    def release(self, index: int, mode: Mode | None) -> None:
        """Of an id that somebody has or had."""
        wishes = list(self.both.wishes.values())
        wish = wishes[index % len(wishes)]
        self.both.release(wish.agent, wish.lock_id, mode)

    @rule(who=WHO)
    def remove(self, who: int) -> None:
        self.both.remove(agent(who % self.agents))

    @rule(who=WHO, lock_id=IDS)
    def surrender(self, who: int, lock_id: LockId) -> None:
        self.both.surrender(agent(who % self.agents), lock_id)

    @precondition(lambda self: self.both.edges)
    @rule(index=INDEX)
    def surrender_for_an_edge(self, index: int) -> None:
        edge = self.both.edges[index % len(self.both.edges)]
        assert self.both.surrender(edge[1][0].agent, edge[0][0].lock_id, edge)

    @precondition(lambda self: self.both.sightings)
    @rule(index=INDEX, other=INDEX, crossed=st.booleans())
    def surrender_for_what_was_seen(self, index: int, other: int, crossed: bool) -> None:
        """For an edge that was there once, or for the ends of two such edges."""
        seen = list(self.both.sightings)
        edge = seen[index % len(seen)]
        if crossed:
            original_peers = (edge[0], seen[other % len(seen)][1])
            self.both.sightings.setdefault(
                original_peers,
                (self.both.sightings[edge][0], self.both.sightings[seen[other % len(seen)]][1]),
            )
            edge = original_peers
        self.both.surrender(edge[1][0].agent, edge[0][0].lock_id, edge)

    @rule(by=st.integers(-5, 5))
    def raise_to(self, by: int) -> None:
        """Only the versions that come differ, and `Lockstep` sees that they rise."""
        before = self.both.table.version
        self.both.table.raise_to(before + by)
        assert self.both.table.version == max(before, before + by)

    def teardown(self) -> None:
        """Everybody is granted in the end, and nothing is left over."""
        if hasattr(self, "both") and self.both.sound:
            self.both.run_out()


class TestTableAndOracle(TableAndOracle.TestCase):  # type: ignore[valid-type,misc]
    settings = settings(max_examples=60 * TIMES, stateful_step_count=40)


@pytest.mark.parametrize("seed", range(8 * TIMES))
def test_long_lives_agree_with_the_oracle(seed: int) -> None:
    """Table and oracle agree over lives that are longer than those that Hypothesis tries."""
    walk(Lockstep(), Random(seed), 150)


def _walks(number: int) -> None:
    for seed in range(number):
        walk(Lockstep(), Random(seed), 100)


def _nothing(*_: Any) -> None:
    return None


def _last(table: LockTable, entry: Entry, _: Entry | None = None) -> None:
    table.last_place += 1
    entry.place = table.last_place


BREAKS: dict[str, tuple[Any, str, Any]] = {
    "no conversion": (lock_table, "first_waiting_for", _nothing),
    "nobody stands ahead": (lock_table, "last_ahead", _nothing),
    "nothing below counts": (lock_table, "counts_against", lambda *_: False),
    "any edge will do": (LockTable, "edge_stands", lambda *_: True),
    "no edge will do": (LockTable, "edge_stands", lambda *_: False),
    "new entries are not counted above": (LockTable, "_count_in", _nothing),
    "nobody is granted later": (LockTable, "_consider", _nothing),
    "empty slots stay": (LockTable, "_prune", _nothing),
    "conversions stand last": (LockTable, "_place", _last),
    "changes in any order": (lock_table, "version_of", lambda entry: -entry.version),
    "everything is granted": (LockTable, "_look", lambda s, e, *_: s._grant(e)),
    "room is never used up": (lock_table, "WHOLE", lock_tree.WHOLE * 10),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_lockstep_notices_a_broken_table(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: it finds each of these mistakes in the table."""
    monkeypatch.setattr(*BREAKS[broken])
    with pytest.raises((AssertionError, KeyError, ValueError)):
        _walks(200)


# --- Waiting and being granted ------------------------------------------------------------------

RELATED = [("a", "a"), ("a", "a/1"), ("a/1", "a"), ("a/1/x", "a")]
UNRELATED = [("a", "b"), ("a/1", "a/2"), ("a/1", "b/1"), ("a", "ab")]


@pytest.mark.parametrize(("one", "other"), RELATED + UNRELATED)
def test_requests_conflict_by_agent_id_and_mode(one: str, other: str) -> None:
    """Of two agents, on related ids, not both reads. Else both are granted."""
    for first, second in itertools.product(["read", "write"], repeat=2):
        conflict = (one, other) in RELATED and (first, second) != ("read", "read")
        both = Lockstep()
        both.play(f"1 {first} {one}", f"2 {second} {other}")
        assert both.waits == ({(2, 1)} if conflict else set())
        both.play("2 end", f"1 {second} {other}")
        assert both.waiting == []


def test_granted_is_a_request_that_no_conflicting_one_stands_ahead_of() -> None:
    """A granted one and a waiting one are alike in the way; who stands behind is not."""
    both = Lockstep()
    both.play("1 read a", "2 write a", "3 read a", "4 read b")
    assert both.held == {"1 read a", "4 read b"}
    assert both.waits == {(2, 1), (3, 2)}
    both.play("1 end")
    assert both.held == {"2 write a", "4 read b"}


def test_a_new_request_stands_last() -> None:
    """Behind all that conflict with it, in the order in which they came."""
    both = Lockstep()
    both.play("1 write a", "3 write a/1", "2 read a", "4 write a")
    assert both.waiting == ["3 write a/1", "2 read a", "4 write a"]
    assert both.waits == {(3, 1), (2, 1), (2, 3), (4, 1), (4, 2), (4, 3)}


def test_a_reader_does_not_overtake_a_writer() -> None:
    """A read that comes after a waiting write waits: readers can't starve a writer."""
    both = Lockstep()
    both.play("1 read a", "2 write a", "3 read a")
    assert both.waiting == ["2 write a", "3 read a"]
    assert both.waits == {(2, 1), (3, 2)}


# --- Cover --------------------------------------------------------------------------------------


def test_a_row_that_an_own_table_covers_is_granted_with_it() -> None:
    """Although others already wait for the table."""
    both = Lockstep()
    both.play("1 write a", "2 write a/1", "3 write a", "1 write a/1", "1 read a/1/x")
    assert both.held == {"1 write a", "1 write a/1", "1 read a/1/x"}


# --- Conversion ---------------------------------------------------------------------------------


def test_conversion_an_upgrade_does_not_wait_for_who_waits_for_it() -> None:
    """From read to write: a waiting writer and the readers behind it stand behind the upgrade."""
    both = Lockstep()
    both.play("1 read a", "2 write a", "3 read a", "1 write a")
    assert both.held == {"1 read a", "1 write a"}
    assert both.waits == {(2, 1), (3, 1), (3, 2)}


@given(st.lists(st.one_of(st.none(), INDEX), max_size=40))
def test_places_keep_the_order_of_a_line(line: list[int | None]) -> None:
    """Put last, or directly ahead of whichever entry, all places together are in that order."""
    table = LockTable()
    standing: list[Entry] = []
    for number, index in enumerate(line):
        entry = Entry(number, Requester(agent(number), "c"), Slot(("a",), None), "write")
        if index is None or not standing:
            table._place(entry)
            standing.append(entry)
        else:
            at = index % len(standing)
            table._place(entry, standing[at])
            standing.insert(at, entry)
    places = [entry.place for entry in standing]
    assert places == sorted(set(places))


# --- Surrender ----------------------------------------------------------------------------------


def test_surrender_gives_up_what_is_related_and_nothing_else() -> None:
    """Of a row: the row, what is below and the table above; the sibling row stays."""
    both = Lockstep()
    both.play("1 write a/1/x", "1 write a/2", "1 write a", "1 write b", "2 write a/1")
    changed = both.play("1 surrender a/1")
    assert [(e.requester.id.serial, e.slot.lock_id) for e in changed if not e.granted] == [
        (1, ("a", "1", "x")),
        (1, ("a",)),
    ]
    assert both.held == {"1 write a/2", "1 write b", "2 write a/1"}
    both.play("2 end")
    assert both.held == {"1 write a/1/x", "1 write a", "1 write a/2", "1 write b"}


def test_surrender_of_a_table_gives_up_all_rows_in_their_order() -> None:
    """Both rows for which a table waits are given up at once; they stand last, as they stood."""
    both = Lockstep()
    both.play("1 write a/1", "1 write a/2", "2 write a", "3 write a/1")
    both.play("1 surrender a")
    assert both.held == {"2 write a"}
    assert both.waiting == ["3 write a/1", "1 write a/1", "1 write a/2"]


def test_newcomers_do_not_void_a_surrender() -> None:
    """The edge is still there, whoever else has come to the lock meanwhile."""
    both = Lockstep()
    both.play("1 write a", "2 write a")
    edge = both.edge("2 write a", "1 write a")
    both.play("3 write a", "4 read a", "5 write a/1", "4 end")
    assert both.surrender(agent(1), ("a",), edge)
    assert both.held == {"2 write a"}


OUTDATED = {
    "the waiter has gone": (["2 end"], 1),
    "the waiter has released it": (["2 release a"], 1),
    "the waiter has asked anew": (["2 end", "2 write a"], 1),
    "the waiter has surrendered": (["2 surrender a"], 1),
    "the holder has gone": (["1 end"], 1),
    "the holder has surrendered": (["1 surrender a"], 1),
    "the holder has asked anew": (["1 end", "2 end", "1 write a", "2 write a"], 1),
    "another agent surrenders": ([], 3),
    "the waiter itself surrenders": ([], 2),
    "an unknown agent surrenders": ([], 7),
}


@pytest.mark.parametrize("why", OUTDATED)
def test_an_outdated_surrender_changes_nothing(why: str) -> None:
    """The edge for which it is made is no longer there, or is not one of the agent's."""
    lines, who = OUTDATED[why]
    both = Lockstep()
    both.play("1 write a", "2 write a", "3 write a")
    edge = both.edge("2 write a", "1 write a")
    both.play(*lines)
    held, waiting = both.held, both.waiting
    version = both.table.version
    assert both.surrender(agent(who), ("a",), edge) == []
    assert (both.held, both.waiting, both.table.version) == (held, waiting, version)
    assert both.table.statistics().refused_surrenders == 1


@pytest.mark.parametrize(
    ("waiter", "holder"),
    [
        ("2 read a", "1 read a"),  # not in conflict
        ("2 write a/1", "1 read b"),  # not related
        ("1 write a", "1 read a"),  # the same agent
        ("1 read a", "2 write a/1"),  # does not wait
    ],
)
def test_what_is_no_edge_is_refused(waiter: str, holder: str) -> None:
    """Two requests that are there as they are named, but of which the one never waits so."""
    both = Lockstep()
    both.play("1 read a", "2 read a", "1 read b", "2 write a/1", "1 write a")
    ends = {written(key(entry)): entry for entry in both.table.view(())}
    w, h = ends[waiter], ends[holder]
    for who in (1, 2):
        edge = ((w.number, w.since), (h.number, h.since))
        assert both.table.surrender(agent(who), w.slot.lock_id, *edge) == []


# --- Release, removal, questions ----------------------------------------------------------------


def test_release_takes_out_exactly_this_id_and_mode() -> None:
    """Not what is below or above it, and only the mode that is named."""
    both = Lockstep()
    both.play("1 read a", "1 write a", "1 write a/1", "1 write a/1/x", "1 release a write")
    assert both.held == {"1 read a", "1 write a/1", "1 write a/1/x"}
    both.play("1 release a/1")
    assert both.held == {"1 read a", "1 write a/1/x"}
    assert both.play("1 release a write") == []
    assert both.play("1 release a/1/x/y") == []
    assert both.play("2 release a") == []


def test_removal_takes_out_everything_of_an_agent() -> None:
    """Granted and waiting, on any id; a second removal finds nothing."""
    both = Lockstep()
    both.play("1 write a", "1 write b/1", "2 write c", "1 write c", "3 write c", "2 write a/1")
    changed = both.play("1 end")
    assert [entry.gone for entry in changed] == [True, True, True, False]
    assert both.held == {"2 write c", "2 write a/1"}
    assert both.play("1 end") == []


def test_an_empty_table_has_nothing_left() -> None:
    """Neither slots, nor agents, nor entries; its version goes on from where it was."""
    both = Lockstep()
    both.play("1 write a/b/c/d", "2 read a", "3 write a/b", "2 surrender a")
    version = both.table.version
    both.play("1 end", "2 end", "3 end")
    root = both.table.find(())
    assert root is not None
    assert (root.children, sum(root.below)) == ({}, 0)
    assert both.table.requesters == {}
    assert both.table.find(("a",)) is None
    assert both.table.ids() == []
    assert both.request(agent(4), ("a",), "write").since > version


@pytest.mark.parametrize("seed", range(10))
def test_a_granted_lock_is_never_lost_silently(seed: int) -> None:
    """Whatever is asked for, by others or by itself: only release, removal and surrender take it."""
    chance = Random(seed)
    table = LockTable()
    held: dict[int, Entry] = {}
    for _ in range(200):
        who = agent(chance.randrange(4))
        lock_id = tuple(chance.choices("ab", k=chance.randint(1, 3)))
        own = {n for n, entry in held.items() if entry.requester.id == who}
        what = chance.choice(["request"] * 8 + ["release", "remove", "surrender"])
        if what == "request":
            changed = table.request(who, "c", lock_id, chance.choice(["read", "write"]))
            own = set()
        elif what == "release":
            changed = table.release(who, lock_id)
            own = {n for n in own if held[n].slot.lock_id == lock_id}
        elif what == "remove":
            changed = table.remove(who)
        else:
            changed = table.surrender(who, lock_id)
        lost = {n for n, entry in held.items() if entry.gone or not entry.granted}
        assert lost <= own, f"{what} of {lock_id} by {who}"
        assert lost <= {entry.number for entry in changed}, "it is not said"
        held = {e.number: e for e in table.view(()) if e.granted}


def test_versions_rise_with_each_change() -> None:
    """Whatever changes gets a version larger than all before it, also in the node's next table."""
    last = 0
    for _ in range(2):
        both = Lockstep(LockTable(first_version=last))
        for line in (
            "1 write a",
            "2 write a",
            "3 read a/1",
            "1 surrender a",
            "2 release a",
            "3 end",
        ):
            versions = [entry.version for entry in both.play(line)]
            assert versions == sorted(set(versions))
            assert versions[0] > last
            last = versions[-1]


def test_fencing_tokens_rise_from_grant_to_grant() -> None:
    """The version of a grant is larger than that of each grant before it, in a new table as well."""
    tokens = []
    table = LockTable()
    for number in range(3):
        for who in (1, 2):
            table.request(agent(who), "c", ("a",), "write")
        for who in (1, 2):
            (entry,) = [e for e in table.view(("a",)) if e.granted]
            tokens.append(entry.since)
            table.remove(agent(who))
        if number == 1:
            table = LockTable(first_version=table.version)
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 6


def test_versions_start_where_the_table_is_told() -> None:
    """A later table of the node goes on above all versions of an earlier one."""
    table = LockTable(first_version=2**40)
    (entry,) = table.request(agent(1), "c", ("a",), "write")
    assert entry.number == entry.since == entry.version == 2**40 + 1


def test_views_and_ids() -> None:
    """A view has the id's ancestors and descendants in their order, and no siblings."""
    both = Lockstep()
    both.play("1 read a", "2 write a/1", "3 write b", "4 read a/1/x", "5 read a/2", "1 write a/1")
    view = both.table.view(("a", "1"))
    assert [(e.requester.id.serial, e.mode) for e in view] == [
        (1, "read"),
        (1, "write"),
        (2, "write"),
        (4, "read"),
    ]
    assert both.table.view(("a", "9", "9")) == view[:1]
    assert both.table.view(("nobody",)) == []
    assert set(both.table.ids()) == {("a",), ("a", "1"), ("a", "1", "x"), ("a", "2"), ("b",)}
    assert both.table.entry(view[0].number) is view[0]
    assert both.table.entry(view[0].number - 1) is None


def test_conflicting_grants_would_be_noticed() -> None:
    """The check for exclusion, which stands on the records alone, can fail."""
    table = LockTable()
    (first,) = table.request(agent(1), "c", ("a",), "write")
    (second,) = table.request(agent(2), "c", ("a", 1), "read")
    second.granted = True
    with pytest.raises(AssertionError, match="both are granted"):
        check_exclusion([first.record("n"), second.record("n")])


def test_places_are_bounded() -> None:
    """Of requests that go ahead of each other without end, the last ones stand last: a place can be sent."""
    table = LockTable()
    readers = 400
    for number in range(1, readers + 1):
        table.request(agent(number), "c", ("a",), "read")
    bits = []
    for number in range(1, readers + 1):
        (entry,) = table.request(agent(number), "c", ("a",), "write")
        place = Fraction(entry.place)
        bits.append(max(place.numerator.bit_length(), place.denominator.bit_length()))
    assert max(bits) <= PLACE_BITS
    assert len({entry.place for entry in table.view(("a",))}) == 2 * readers
