"""The largest message of each kind is sent, and taken in.

Whatever is locked, and however much of it: what a node says of it has a term that fits into a frame and
keeps to the limits of who decodes it. docs/bounds.md has the table of what bounds each message.
"""

from __future__ import annotations

import time
from fractions import Fraction
from typing import Any, get_args

import pytest

from locks.core import messages
from locks.core.messages import AgentMessage
from locks.core.parts import in_parts, shown_cycle
from locks.errors import LockLost
from locks.lock_ids import DEEPEST, LARGEST, MOST_ELEMENTS, check_lock_id
from locks.model import AgentId, Contender, Deadlock, Edge, LockId, RequestRecord, View
from locks.net.messages import (
    MOST_ITEMS,
    Frame,
    FromAgent,
    Page,
    Raised,
    Reply,
    Seen,
    ToAgent,
    ToServer,
    decode,
    encode,
)
from locks.net.network import FRAME_LIMIT
from locks.net.raised import about, error_in
from locks.ranges import LONGEST_TEXT, MOST_IN_KNOT, MOST_NUMBER, PLACE_BITS, replace
from tests.net.made import Maker

HERE, THERE = "h" * 127 + "@" + "a" * 127, "t" * 127 + "@" + "b" * 127
NOW = time.time_ns() // 1000
ME = AgentId((1 << 64) - 1, HERE, 4095)
OTHER = AgentId((1 << 64) - 2, THERE, 4094)
CLIENT = "\U0001f512" * LONGEST_TEXT
PLACE = Fraction((1 << PLACE_BITS) - 1, (1 << PLACE_BITS) - 2)


def deep() -> LockId:
    """The deepest id."""
    inner: Any = "x"
    for _ in range(DEEPEST - 1):
        inner = (inner,)
    return (inner,)


IDS: dict[str, LockId] = {
    "long": ("\U0001f512" * (LARGEST - 8),),
    "many": ("",) * MOST_ELEMENTS,
    "texts": tuple([f"{n:03}" + "x" * 240 for n in range(MOST_ELEMENTS - 1)]),
    "deep": deep(),
    "small": ("t",),
}


def id_of(kind: str, number: int) -> LockId:
    """An id; a small one is another one for each number."""
    return (*IDS[kind], number) if kind == "small" else IDS[kind]


def record(kind: str, number: int, agent: AgentId = OTHER, state: Any = "waiting") -> RequestRecord:
    """The largest record with such an id."""
    lock_id = id_of(kind, number)
    return RequestRecord(
        THERE, number, agent, CLIENT, lock_id, "write", state, PLACE, NOW, True, NOW
    )


KNOT = tuple((n, NOW) for n in range(MOST_NUMBER - MOST_IN_KNOT, MOST_NUMBER))


def report(kind: str) -> Deadlock:
    """The report of a cycle of 60 agents, of which 50 are shown."""
    edges = tuple(Edge(record(kind, n), record(kind, n + 1, ME)) for n in range(1, 60))
    return Deadlock(ME, id_of(kind, 1), THERE, "surrendered", shown_cycle(edges), "r" * 1000)


def largest(kind: Any, ids: str) -> Any:
    """The message that has the largest value in each field: with hundreds of records."""
    known = {
        "agent": OTHER,
        "sender": OTHER,
        "lock_id": id_of(ids, 1),
        "client": CLIENT,
        "mode": "write",
        "node": THERE,
        "records": tuple(record(ids, n, ME if n % 2 else OTHER) for n in range(1, 900)),
        "report": report(ids),
        "knot": KNOT,
        "waiter": (1 << 62, NOW),
        "holder": (1 << 62, NOW),
        "gone": tuple(n for n, _ in KNOT),
        "version": NOW,
        "since": NOW,
    }
    given = {name: known[name] for name in kind.__struct_fields__ if name in known}
    if kind is messages.Surrendered:
        surrender = largest(messages.Surrender, ids)
        given["message"] = replace(surrender, agent=ME, waiter=(1, NOW), holder=(2, NOW))
    if kind is messages.Released:
        given["records"] = given["records"][:2]  # one for each mode
    return Maker(1).struct(kind, **given)


def arrives(frame: Frame) -> None:
    """Check that a frame can be sent, and is the same at its receiver."""
    body = encode(frame)
    assert len(body) <= FRAME_LIMIT
    assert decode(body) == frame


@pytest.mark.parametrize("kind", IDS)
def test_lock_ids(kind: str) -> None:
    """They are what a program may lock."""
    assert check_lock_id(id_of(kind, 1)) == id_of(kind, 1)


@pytest.mark.parametrize("kind", get_args(FromAgent))
@pytest.mark.parametrize("ids", IDS)
def test_messages_to_lock_servers(ids: str, kind: Any) -> None:
    """All of them, with the largest of each field."""
    arrives(ToServer(largest(kind, ids)))


@pytest.mark.parametrize("kind", get_args(AgentMessage))
@pytest.mark.parametrize("ids", IDS)
def test_messages_to_agents(ids: str, kind: Any) -> None:
    """All of them, in parts; no part is larger than some megabytes."""
    for part in list(in_parts(largest(kind, ids), ME))[:3]:
        frame = ToAgent(ME.created, part)
        assert len(encode(frame)) < 8 * 2**20
        arrives(frame)


@pytest.mark.parametrize("kind", IDS)
def test_views(kind: str) -> None:
    """A page has 100 requests at most; a view that is one page is sent as it is."""
    contenders = tuple(
        Contender(OTHER, CLIENT, id_of(kind, n), "write", True, NOW, n, PLACE)
        for n in range(100 if kind == "small" else 3)
    )
    gone = tuple((1 << 63) - 1 - n for n in range(MOST_ITEMS))
    arrives(Page(1 << 62, 1 << 62, NOW, True, False, gone, contenders))
    arrives(Reply(1, Seen(View(id_of(kind, 1), THERE, contenders, NOW))))


@pytest.mark.parametrize("kind", IDS)
def test_errors(kind: str) -> None:
    """Of thousands of lost locks as many are told as fit."""
    lost = tuple(id_of(kind, n) for n in range(20_000 if kind == "small" else 60))
    error = LockLost("text " * 100, lock_ids=lost, nodes=(THERE,))
    frame = decode(encode(Raised(1, "LockLost", str(error), about(error))))
    assert isinstance(frame, Raised)
    again = error_in(frame)
    assert isinstance(again, LockLost)
    assert again.nodes == (THERE,)
    assert again.lock_ids == lost[: len(again.lock_ids)]
    assert bool(again.lock_ids) == (kind != "long")
