"""The frames of `locks top`: what is in them, and that they fit on the screen."""

from __future__ import annotations

import random
from typing import Any

import pytest

from locks.core.facts import DeadlockFact, RequestFact
from locks.core.statistics import Durations, TimesStatistics
from locks.facts.graph import waits_of
from locks.facts.live import frame, rates
from locks.facts.look import Look
from locks.model import AgentId, Deadlock, Edge, LockId
from tests.helpers import SEED
from tests.unit import told
from tests.unit.told import NOW, node


def fact(
    number: int, agent: int, lock_id: LockId, state: Any, seconds: float, label: str = ""
) -> RequestFact:
    """A request."""
    name = AgentId(agent << 12, f"n{agent}@x", agent)
    at = NOW - round(seconds * 1e6) - (1_000_000 if state == "granted" else 0)
    return told.fact(number, lock_id, name, state, at, NOW, label=label or f"c{agent}")


def look(*facts: RequestFact, **given: Any) -> Look:
    """What is seen."""
    return Look(NOW / 1e6, 3, 2, given.pop("nodes", (node("a@x"),)), waits_of(facts), **given)


HOT = look(
    fact(1, 1, ("a",), "granted", 9),
    fact(2, 2, ("a",), "waiting", 5),
    fact(3, 3, ("a",), "waiting", 4),
    fact(4, 4, ("b",), "granted", 70),
    fact(5, 5, ("b",), "waiting", 8),
    nodes=(node("a@x"), node("b@x")),
    silent=(("c@x", "it did not answer"),),
)


def test_what_is_in_a_frame() -> None:
    """Servers, silent ones too; the id with most waiters first; the longest wait and hold first; who waits behind whom."""
    text = "\n".join(frame(None, HOT, 200, 50))
    head, servers, hottest, waiting, held = text.split("\n\n")
    assert "2 of 3 lock servers, 2 needed; 2 held, 3 waiting behind 2 that are not waiting" in head
    assert "unknown" in head
    assert [line.split()[0] for line in servers.splitlines()] == ["SERVER", "a@x", "b@x", "c@x"]
    assert "silent" in servers
    assert [line.split() for line in hottest.splitlines()[1:]] == [
        ["2", "5.0", "s", "1", "a"],
        ["1", "8.0", "s", "1", "b"],
    ]
    rows = [line.split("  ") for line in waiting.splitlines()[1:]]
    assert [row[0] for row in rows] == ["8.0 s", "5.0 s", "4.0 s"]
    assert rows[0][-1].strip() == "c4"
    assert [line.split("  ")[0] for line in held.splitlines()[1:]] == ["1 min 10 s", "9.0 s"]


def test_too_few_servers() -> None:
    """That is said first of all."""
    first, *_ = frame(None, look(nodes=(node("a@x"),)), 100, 10)
    assert first == "1 of 3 lock servers, 2 needed: locks can NOT be taken; 0 held, 0 waiting"


def test_rates() -> None:
    """By each server's own clock; none of one that was not there, has begun anew, or whose clock was set back."""
    before = look(
        nodes=(
            node("a@x", NOW, requests=10, grants=10),
            node("b@x", NOW),
            node("c@x", NOW),
            node("d@x", NOW),
        )
    )
    times = TimesStatistics(Durations((1, 3), 10_000), Durations((), 0), Durations((2,), 6_000_000))
    counted = {"requests": 30, "grants": 20, "waits": 4, "aborted": 1, "surrendered": 1}
    after = look(
        nodes=(
            node("a@x", NOW + 2_000_000, times=times, **counted),
            node("b@x", NOW + 2_000_000, started=7, requests=5),
            node("c@x", NOW - 1),
            node("e@x", NOW),
        )
    )
    found = rates(before, after)
    assert {name: tuple(each) for name, each in found.items()} == {
        "a@x": (10, 5, 2, 1, 2, 0.005, 1, 3)
    }
    assert rates(None, after) == {}
    assert frame(before, after, 150, 20)[1] == (
        "per second: 10.0 requests, 5.0 grants, 2.0 waits, 1.0 deadlocks; average wait 2.5 ms; average hold 3.0 s"
    )


def test_deadlocks_as_they_come() -> None:
    """The newest comes first; one that was not there at the look before is marked, and at the first look none is."""
    one, other = (
        fact(number, number, (name,), "waiting", 1, label=f"{label} (x.py, pid 7)").request
        for number, name, label in ((1, "a", "salaries"), (2, "b", "audit"))
    )
    report = Deadlock(
        one.agent, ("a",), "a@x", "aborted", (Edge(one, other), Edge(other, one)), "the youngest"
    )
    old = DeadlockFact(1, NOW - 60_000_000, NOW, report)
    new = DeadlockFact(2, NOW - 1_000_000, NOW, report)
    before, after = look(deadlocks=(old,)), look(deadlocks=(new, old))
    told = [line.split() for line in frame(before, after, 100, 30)[-2:]]
    circle = ["aborted", "a", "salaries", ">", "audit", ">", "salaries"]
    assert told == [["1.0", "s", "ago", "new", *circle], ["1", "min", "0", "s", "ago", *circle]]
    assert "new" not in "\n".join(frame(None, after, 100, 30)).split()


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (20, 3), (1, 1), (40, 12), (500, 200)])
def test_a_frame_fits(columns: int, lines: int) -> None:
    """Whatever is seen: no line is longer, and there are no more, than there is room for; all is in it if that does."""
    rng = random.Random(SEED)
    for _ in range(20):
        facts = [
            fact(
                number,
                rng.randrange(1, 60),
                (rng.choice("abc"), rng.randrange(9)),
                rng.choice(("granted", "waiting")),
                rng.random() * 1000,
                label="\x1b[2J" * rng.randrange(2) + "ü" * rng.randrange(1, 90),
            )
            for number in range(1, rng.randrange(2, 60))
        ]
        shown = frame(None, look(*facts), columns, lines)
        assert len(shown) <= max(lines, 3)
        assert all(len(line) <= max(columns, 20) and line.isprintable() for line in shown)
        if lines == 200 and columns == 500:
            agents = {(each.label, each.request.lock_id, each.granted) for each in facts}
            assert len(shown) >= len(agents)


def test_sections_share_the_room() -> None:
    """Who needs few lines gets them; the others get the same."""
    facts = [fact(1, 1, ("a",), "granted", 9)]
    facts += [fact(n, n, ("a",), "waiting", n) for n in range(2, 40)]
    shown = frame(None, look(*facts), 100, 24)
    assert len(shown) == 24
    assert sum("wants" in line.lower() or line.startswith("HELD") for line in shown) == 2
    assert sum(" write a " in line for line in shown) > 8
