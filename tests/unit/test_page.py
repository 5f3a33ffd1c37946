"""The live page without a network: what it shows, what changes between two pictures, and whom it answers."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locks.core.facts import DeadlockFact, MemberFact, NodeFact, RequestFact
from locks.core.statistics import Leading
from locks.facts import gather
from locks.facts.around import Around
from locks.facts.graph import waits_of
from locks.facts.look import Look
from locks.model import AgentId, Deadlock, Edge, LockId, show
from locks.node.observing.elections import ELECTION_ID
from locks.node.ports import Servers
from locks.ranges import replace
from locks.web import picture as pictures
from locks.web.changes import (
    Changes,
    applied,
    changes,
    parts,
)
from locks.web.picture import TABLES, Picture, key_of, picture_of
from locks.web.rules import Rules, refusal
from tests.unit import told
from tests.unit.told import node

HOLDER, NEXT, LAST = (AgentId((1 << 40) + (n << 12), f"{n}@x", 0) for n in (1, 2, 3))
SECOND = 1_000_000


def fact(
    number: int,
    lock_id: LockId,
    agent: AgentId,
    state: Any = "granted",
    node: str = "a@x",
    asked: int = 10 * SECOND,
    now: int = 20 * SECOND,
) -> RequestFact:
    """A request as a lock server tells it."""
    return told.fact(number, lock_id, agent, state, asked, now, node)


def look(*facts: RequestFact, **more: Any) -> Look:
    """What is seen, when these requests are there."""
    nodes = more.pop("nodes", (node("a@x", 20 * SECOND, SECOND),))
    return Look(20.0, 1, 1, 1, nodes, waits_of(facts))._replace(**more)


def deadlock(at: int, server: str, number: int = 1) -> DeadlockFact:
    """A deadlock of two, as one lock server has broken it."""
    first, second = fact(1, ("x",), HOLDER, node=server), fact(2, ("y",), NEXT, node=server)
    edge = Edge(first.request, second.request)
    report = Deadlock(
        NEXT, ("x",), server, "aborted", (edge, Edge(second.request, first.request)), "rule"
    )
    return DeadlockFact(number, at, at, report)


# --- What is shown --------------------------------------------------------------------------------


def test_a_lock_on_several_servers_is_one_row() -> None:
    """It names the servers, and the one that has had it longest says since when."""
    later = fact(8, ("a", 1), HOLDER, node="b@x", asked=11 * SECOND)
    picture = picture_of(look(fact(1, ("a", 1), HOLDER), later))
    (row,) = picture["locks"].values()
    assert row["servers"] == ["a@x", "b@x"]
    assert (row["clock"], row["since"]) == ("a@x", 11.0)
    assert (row["id"], row["typed"], row["held"]) == (["a", 1], "a/1", True)
    assert picture["agents"][row["agent"]]["label"] == "ann"


def test_time_that_passes_changes_nothing() -> None:
    """A row says since when: a second later, and with nothing else, no row differs."""
    first = look(fact(1, ("a",), HOLDER), fact(2, ("a",), NEXT, "waiting"))
    later = look(
        fact(1, ("a",), HOLDER, now=21 * SECOND),
        fact(2, ("a",), NEXT, "waiting", now=21 * SECOND),
        nodes=(node("a@x", 21 * SECOND, SECOND),),
        at=21.0,
    )
    assert changes(picture_of(first), picture_of(later)) == Changes({}, {})


def test_a_deadlock_that_two_servers_have_broken_is_one_card() -> None:
    """Within a second they tell of the same one; much later it is another one."""
    found = (
        deadlock(SECOND, "a@x"),
        deadlock(SECOND + 5, "b@x"),
        deadlock(90 * SECOND, "a@x", 2),
    )
    cards = list(picture_of(look(deadlocks=found))["deadlocks"].values())
    assert [card["servers"] for card in cards] == [["a@x", "b@x"], ["a@x"]]


def test_a_large_table_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waiting come first, and how many are left out is said."""
    most = 20
    monkeypatch.setattr(pictures, "MOST_LOCKS", most)
    many = [fact(n, ("k", n), HOLDER) for n in range(1, most + 2)]
    seen = picture_of(look(*many, fact(most + 9, ("k", 1), NEXT, "waiting")))
    assert len(seen["locks"]) == most
    assert f"{most + 9} a@x" in seen["locks"]
    assert seen["state"]["cluster"]["left_out"] == 2


def test_who_does_not_answer_is_a_row() -> None:
    """With why; and whether the others are enough."""
    seen = picture_of(look(silent=(("b@x", "it can't be reached"),), known=3, needed=2, required=2))
    assert seen["servers"]["b@x"] == {"silent": "it can't be reached"}
    assert not seen["state"]["cluster"]["enough"]
    failed = picture_of(Look(20.0), "no node")["state"]["cluster"]
    assert (failed["enough"], failed["error"]) == (False, "no node")


def chief(on: AgentId, term: int) -> tuple[RequestFact, NodeFact]:
    """An election that an agent has won: its lock, and what its node says."""
    held = fact(5, (ELECTION_ID, "chief"), on)
    said = node(on.node)
    leading = (Leading(show(("chief",)), True, term),)
    return held, replace(said, statistics=replace(said.statistics, leaders=leading))


def member(group: Any, on: str) -> MemberFact:
    """A member of a group."""
    return MemberFact("locks_pg", group, "Actor-1", on, "a.py", 7)


def test_who_leads_and_who_is_in_which_group() -> None:
    """Who leads is shown at once; when the programs were asked, the term and the followers, too. Elections are no groups."""
    held, leader = chief(HOLDER, 3)
    members = [member(("$election", "chief"), agent.node) for agent in (HOLDER, NEXT, LAST)]
    members += [member(("$election workers", "chief"), "w@x")]
    members += [member("printers", name) for name in ("p@x", "p@x", "q@x")]
    around = Around((leader,), tuple(members), (("s@x", "it is stopped"),))
    (row,) = picture_of(look(held))["locks"].values()
    assert (row["typed"], row["election"]) == ('election "chief"', "chief")
    (first,) = picture_of(look(held))["elections"].values()
    assert (first["leader"], first["term"], first["candidates"]) == (key_of(HOLDER), None, 0)
    seen = picture_of(look(held, around=around))
    assert list(seen["elections"].values()) == [
        {
            "name": "chief",
            "leader": key_of(HOLDER),
            "term": 3,
            "since": 11.0,
            "clock": "a@x",
            "candidates": 2,
            "workers": 1,
            "followers": [
                *(
                    {
                        "role": "candidate",
                        "member": "Actor-1",
                        "program": "a.py",
                        "pid": 7,
                        "node": on,
                    }
                    for on in (NEXT.node, LAST.node)
                ),
                {"role": "worker", "member": "Actor-1", "program": "a.py", "pid": 7, "node": "w@x"},
            ],
        }
    ]
    assert list(seen["groups"].values()) == [
        {"scope": "locks_pg", "name": "printers", "members": 3, "nodes": 2}
    ]
    state = seen["state"]["cluster"]
    assert (state["elections"], state["groups"], state["unheard"]) == (1, 1, 1)
    (nobody,) = picture_of(look(around=around))["elections"].values()
    assert (nobody["leader"], nobody["term"], nobody["candidates"]) == ("", None, 3)


# --- What changes ---------------------------------------------------------------------------------

ROWS = st.dictionaries(
    st.sampled_from("abcdefgh"), st.fixed_dictionaries({"x": st.integers(0, 2)}), max_size=8
)
PICTURES = st.fixed_dictionaries(dict.fromkeys(TABLES, ROWS))


@given(PICTURES, PICTURES, st.integers(1, 5))
def test_changes_lead_from_one_picture_to_the_other(old: Picture, new: Picture, size: int) -> None:
    """Whole, and in parts of any size, none of which has more rows; and over JSON."""
    change = changes(old, new)
    assert applied(old, change) == new
    assert (change == Changes({}, {})) == (old == new)
    shown = old
    for part in parts(change, size):
        rows = [*part.put.values(), *part.gone.values()]
        assert sum(len(each) for each in rows) <= size
        shown = applied(shown, Changes(**json.loads(json.dumps(part._asdict()))))
    assert shown == new


# --- When it looks ---------------------------------------------------------------------------------


def test_only_what_has_changed_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The requests, if a lock server has counted something at its table or begun anew; the deadlocks, if it has broken
    one; and all of it, while one does not answer."""
    monkeypatch.setattr(gather, "own_servers", lambda: Servers(("a@x",), "all"))
    nothing = gather.Gathered((), ())
    asked = {name: Mock(return_value=nothing) for name in ("requests", "deadlocks")}
    for name, mock in asked.items():
        monkeypatch.setattr(gather, name, mock)
    silent = (("b@x", "it can't be reached"),)
    before: Look | None = None
    for facts, unheard, again in (
        ([node("a@x", 1)], (), ["requests", "deadlocks"]),
        ([node("a@x", 2)], (), []),
        ([node("a@x", 3, requests=1)], (), ["requests"]),
        ([node("a@x", 4, requests=1, aborted=1)], (), ["deadlocks"]),
        ([node("a@x", 5, 4, requests=1, aborted=1)], (), ["requests", "deadlocks"]),
        ([node("a@x", 6, 4, requests=1, aborted=1)], silent, ["requests", "deadlocks"]),
        ([node("a@x", 7, 4, requests=1, aborted=1)], (), ["requests", "deadlocks"]),
        ([node("a@x", 8, 4, requests=1, aborted=1)], (), []),
    ):
        found = gather.Gathered(tuple(facts), unheard)
        monkeypatch.setattr(gather, "lock_servers", Mock(return_value=found))
        before = gather.look(before)
        assert [name for name, mock in asked.items() if mock.called] == again
        assert (before.nodes, before.silent) == (found.facts, unheard)
        for mock in asked.values():
            mock.reset_mock()


# --- Whom it answers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "answered"),
    [
        ("127.0.0.1:8420", True),
        ("localhost", True),
        ("LOCALHOST:1", True),
        ("[::1]:8420", True),
        ("10.0.0.7", True),
        ("locks.example.org", True),
        ("locks.example.org.:443", True),
        ("evil.example.org:8420", False),
        ("127.0.0.1.evil.example.org", False),
        ("localhost.evil.example.org", False),
        ("", False),
    ],
)
def test_names_of_the_page(host: str, answered: bool) -> None:
    """Addresses and allowed names; a page of somebody else has a name."""
    refused = refusal(Rules(("locks.example.org",)), host=host)
    assert (refused is None) == answered


@pytest.mark.parametrize(
    ("given", "site", "status"),
    [
        ("secret", "same-origin", ""),
        ("secret", "", ""),
        ("", "same-origin", "401"),
        ("other", "", "401"),
        ("secret ", "", "401"),
        ("gehéim", "", "401"),
        ("secret", "cross-site", "403"),
        ("secret", "same-site", "403"),
    ],
)
def test_what_is_secret_takes_the_token(given: str, site: str, status: str) -> None:
    """And nobody else's page can ask for it."""
    rules = Rules(token="secret")
    refused = refusal(rules, host="localhost", site=site, token=given, secret=True)
    assert (refused.status[:3] if refused else "") == status
