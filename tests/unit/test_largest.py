"""The largest message of each kind is sent, and taken in.

Whatever is locked, and however much of it: what a node says of it has a term that fits into a frame and
keeps to the limits of who decodes it. docs/bounds.md has the table of what bounds each message.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator
from fractions import Fraction
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import pytest

from locks.core import messages
from locks.core.messages import AgentMessage, ServerMessage
from locks.core.parts import in_parts, shown_cycle
from locks.errors import LockLost
from locks.groups import wire as groups_wire
from locks.groups.table import Discover, Join, Leave, Message, Sync
from locks.lock_ids import DEEPEST, LARGEST, MOST_ELEMENTS, check_lock_id
from locks.model import (
    AgentId,
    Contender,
    Deadlock,
    Edge,
    LockId,
    Mode,
    RequestRecord,
    View,
)
from locks.otp.bytes import etf
from locks.otp.bytes.terms import Atom, Pid
from locks.otp.process.remote import Errors
from locks.ranges import (
    LONGEST_TEXT,
    MOST_IN_KNOT,
    NUMBER,
    PLACE_BITS,
    Name,
    Number,
    Size,
    Text,
    Version,
)
from locks.wire import pages
from locks.wire.messages import pack, unpack_to_agent, unpack_to_server
from locks.wire.refusals import pack_attributes, unpack_error
from locks.wire.values import (
    pack_view,
    unpack_view,
)

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
    "atoms": tuple([Atom(f"{n:03}" + "x" * 240) for n in range(MOST_ELEMENTS - 1)]),
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


KNOT = tuple((n, NOW) for n in range(NUMBER.most - MOST_IN_KNOT, NUMBER.most))


def report(kind: str) -> Deadlock:
    """The report of a cycle of 60 agents, of which 50 are shown."""
    edges = tuple(Edge(record(kind, n), record(kind, n + 1, ME)) for n in range(1, 60))
    return Deadlock(ME, id_of(kind, 1), THERE, "surrendered", shown_cycle(edges), "r" * 1000)


def largest(kind: Any, ids: str) -> Any:
    """The largest value of a type, or the message that has the largest value in each field: with hundreds of records."""
    known: dict[Any, Any] = {
        **{AgentId: OTHER, LockId: id_of(ids, 1), Mode | None: "write", Mode: "write", bool: True},
        **{Name: THERE, Text: CLIENT, Number: NUMBER.most, Version: NOW, Deadlock: report(ids)},
        Hashable: Pid((1 << 64) - 1, THERE, (1 << 32) - 1),
        messages.End: (1 << 62, NOW),
        messages.Ends: KNOT,
        messages.Records: tuple(record(ids, n, ME if n % 2 else OTHER) for n in range(1, 900)),
        Annotated[tuple[Number, ...], Size(MOST_IN_KNOT + 2)]: tuple(n for n, _ in KNOT),
    }
    if kind in known:
        return known[kind]
    if hasattr(kind, "_fields"):
        hints = get_type_hints(kind, include_extras=True)
        return kind(*[largest(hints[name], ids) for name in kind._fields])
    if get_origin(kind) is Literal:
        return get_args(kind)[0]
    return largest(next(each for each in get_args(kind) if each is not type(None)), ids)


def to_agent(kind: Any, ids: str) -> Any:
    """The largest message of a kind to an agent, as a machine emits it."""
    message = largest(kind, ids)
    if kind is messages.Released:
        return message._replace(records=message.records[:2])  # one for each mode
    if kind is messages.Surrendered:
        surrender = message.message._replace(agent=ME, waiter=(1, NOW), holder=(2, NOW))
        return message._replace(message=surrender)
    return message


def sent(term: Any) -> Any:
    """What a term is at its receiver."""
    encoded = etf.encode(term)
    assert len(encoded) <= etf.LARGEST
    return etf.decode(encoded)


@pytest.mark.parametrize("kind", IDS)
def test_lock_ids(kind: str) -> None:
    """They are what a program may lock."""
    assert check_lock_id(id_of(kind, 1)) == id_of(kind, 1)


@pytest.mark.parametrize("kind", get_args(ServerMessage))
@pytest.mark.parametrize("ids", IDS)
def test_messages_to_lock_servers(ids: str, kind: Any) -> None:
    """All of them, with the largest of each field."""
    message = largest(kind, ids)
    assert unpack_to_server(sent(pack(message)), THERE) == message


@pytest.mark.parametrize("kind", get_args(AgentMessage))
@pytest.mark.parametrize("ids", IDS)
def test_messages_to_agents(ids: str, kind: Any) -> None:
    """All of them, in parts; no part is larger than some megabytes."""
    for part in list(in_parts(to_agent(kind, ids), ME))[:3]:
        assert len(etf.encode(pack(part, ME))) < 8 * 2**20
        assert unpack_to_agent(sent(pack(part, ME)), ME, CLIENT) == part


@pytest.mark.parametrize("kind", IDS)
def test_views(kind: str) -> None:
    """A page has 100 requests at most, and is full at 16 KiB; a view that is one page is sent as it is."""
    contenders = [
        Contender(OTHER, CLIENT, id_of(kind, n), "write", True, NOW, n, PLACE)
        for n in range(100 if kind == "small" else 3)
    ]
    terms = []
    for contender in contenders:
        terms.append(pages.contender_term(contender))
        if sum(len(term.encoded) for term in terms) >= pages.LARGEST_PAGE:
            break
    gone = [(1 << 63) - 1 - n for n in range(pages.MOST_ITEMS)]
    content = pages.pack_content(NOW, True, False, gone, terms)
    page = pages.unpack_page(sent(pages.pack_page(1 << 62, 1 << 62, content)))
    assert page.content.requests == tuple(contenders[: len(terms)])
    assert pages.unpack_taken(sent(pages.pack_taken(page))) == (1 << 62, 1 << 62)
    view = View(id_of(kind, 1), THERE, tuple(contenders[: len(terms)]), NOW)
    assert unpack_view(sent(pack_view(view))) == view


@pytest.mark.parametrize("kind", IDS)
def test_errors(kind: str) -> None:
    """Of thousands of lost locks as many are told as fit."""
    lost = tuple(id_of(kind, n) for n in range(20_000 if kind == "small" else 60))
    errors = Errors(pack_attributes, unpack_error)
    error = LockLost("text " * 10_000, lock_ids=lost, nodes=(THERE,))
    again = errors.unraised(sent(errors.raised(error)))
    assert isinstance(again, LockLost)
    assert again.nodes == (THERE,)
    assert again.lock_ids == lost[: len(again.lock_ids)]
    assert bool(again.lock_ids) == (kind != "long")


def group_messages() -> Iterator[Message]:
    """The largest of each kind; `Sync` and `Leave` are cut, as they name any number of groups."""
    longest = groups_wire.Group(["x"] * 10_000)
    other = groups_wire.Group("x" * 65_000)
    members = tuple(range(2_500))
    yield Discover()
    yield Sync(((longest, members), (other, members)))
    yield Join(longest, members)
    yield Leave(members, (longest, other))


@pytest.mark.parametrize("message", list(group_messages()), ids=lambda each: type(each).__name__)
def test_messages_of_groups(message: Message) -> None:
    """In pieces."""
    for piece in groups_wire.pieces(message):
        me = Pid(1, HERE, 1)
        term = sent(groups_wire.pack(piece, me, lambda n: Pid(n, HERE, 1)))
        assert groups_wire.unpack(term)[0] == me
