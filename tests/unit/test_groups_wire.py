"""The messages of process groups as terms: as OTP has them, and nothing else is let in."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locks.errors import InvalidOption
from locks.groups.table import AnyGroup, AnyMember, Discover, Join, Leave, Message, Sync
from locks.groups.wire import PIECE, Group, pack, pieces, to_group, unpack
from locks.otp.bytes.etf import decode, encode
from locks.otp.bytes.fields import BadMessage
from locks.otp.bytes.terms import Atom, ImproperList, Pid
from tests.otp.strategies import TERMS
from tests.unit.strategies import values

HERE, THERE = "a@127.0.0.1", "b@127.0.0.1"
ME = Pid(1 << 32 | 5, HERE, 7)
ONE, TWO = Pid(2, HERE, 7), Pid(3, HERE, 7)
G, H = Group(("g", 1)), Group(Atom("h"))

# What each message is on the wire.
SAME: list[tuple[Message, Any]] = [
    (Discover(), (Atom("discover"), ME)),
    (Sync(()), (Atom("$gen_cast"), (Atom("sync"), ME, []))),
    (
        Sync(((G, (ONE, ONE, TWO)), (H, (TWO,)))),
        (
            Atom("$gen_cast"),
            (Atom("sync"), ME, [(("g", 1), [ONE, ONE, TWO]), (Atom("h"), [TWO])]),
        ),
    ),
    (Join(G, (ONE,)), (Atom("join"), ME, ("g", 1), ONE)),
    (Join(H, (ONE, TWO)), (Atom("join"), ME, Atom("h"), [ONE, TWO])),
    (Leave((ONE,), (G, G, H)), (Atom("leave"), ME, ONE, [("g", 1), ("g", 1), Atom("h")])),
    (Leave((ONE, TWO), (G,)), (Atom("leave"), ME, [ONE, TWO], [("g", 1)])),
]


@pytest.mark.parametrize(("message", "term"), SAME, ids=[str(term[0]) for _, term in SAME])
def test_each_message_both_ways(message: Message, term: Any) -> None:
    """Each message is the term of `pg`, and comes back as it was."""
    assert pack(message, ME, lambda pid: pid) == term
    assert unpack(decode(encode(term))) == (ME, message)


MEMBERS = st.sampled_from([ONE, TWO])
MESSAGES = {
    kind: values(kind, {AnyGroup: st.sampled_from([G, H]), AnyMember: MEMBERS})
    for kind in get_args(Message)
}


@pytest.mark.parametrize("kind", MESSAGES)
@given(st.data())
def test_messages_with_any_fields(kind: Any, data: st.DataObject) -> None:
    """Each message comes back as it was, whatever is in it."""
    message = data.draw(MESSAGES[kind])
    assert unpack(decode(encode(pack(message, ME, lambda pid: pid)))) == (ME, message)


@given(st.sampled_from([term for _, term in SAME]), st.data())
def test_anything_in_any_place(term: Any, data: st.DataObject) -> None:
    """Whatever stands in whatever place: it is a message, or it is refused."""

    def changed(value: Any) -> Any:
        if not isinstance(value, tuple | list) or type(value) is Pid or data.draw(st.booleans()):
            return data.draw(TERMS)
        where = data.draw(st.integers(0, len(value)))
        kind = tuple if type(value) is tuple else list
        return kind([changed(v) if i == where else v for i, v in enumerate(value)])

    try:
        peer, message = unpack(changed(term))
    except BadMessage:
        return
    assert type(peer) is Pid
    assert isinstance(message, Message)


# --- Groups -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("text", b"text"),
        (("a", [b"b"]), ("a", ["b"])),
        ({1: 2, "k": b"v"}, {b"k": "v", 1: 2}),
        (True, Atom("true")),
        (None, Atom("undefined")),
        (ImproperList((b"a",), b"b"), ImproperList(("a",), "b")),
    ],
)
def test_the_same_group(one: Any, other: Any) -> None:
    """What is the same term for Erlang is the same group, whatever it looks like in Python."""
    assert to_group(one) == to_group(other)
    assert hash(to_group(one)) == hash(to_group(other))


def test_different_groups() -> None:
    """What Python takes for equal and Erlang does not are different groups."""
    values = [1, 1.0, True, "true", (1,), [1], (1.0,), b"\xff", "g", Atom("g"), {}, [], ()]
    assert len({to_group(value) for value in values}) == len(values)
    assert to_group("g") not in ("g", b"g")


@given(TERMS)
def test_groups_survive_the_wire(value: Any) -> None:
    """A group that has come from another node is the one that was sent."""
    group = to_group(value)
    assert to_group(decode(group)) == group
    assert to_group(group.value) == group


def deep(levels: int) -> Any:
    """Tuples within each other."""
    value: Any = ()
    for _ in range(levels):
        value = (value,)
    return value


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, (lambda: 0,), float("nan"), deep(70), "x" * 70_000, [0] * 70_000]
)
def test_what_can_not_be_a_group(value: Any) -> None:
    """What has no term, or does not fit into each message of the protocol, is refused."""
    with pytest.raises(InvalidOption, match="group"):
        to_group(value)


# --- Much at once -------------------------------------------------------------------------------


def test_pieces() -> None:
    """In pieces, a message says the same: a `Sync` is an empty one, and joins."""
    many = tuple([Pid(number, HERE, 7) for number in range(PIECE + 1)])
    assert list(pieces(Sync(((G, many), (H, (ONE,)))))) == [
        Sync(()),
        Join(G, many[:PIECE]),
        Join(G, many[PIECE:]),
        Join(H, (ONE,)),
    ]
    assert list(pieces(Leave(many, (G, H)))) == [
        Leave(many[:PIECE], (G,)),
        Leave(many[PIECE:], (G,)),
        Leave(many[:PIECE], (H,)),
        Leave(many[PIECE:], (H,)),
    ]
    assert list(pieces(Discover())) == [Discover()]
