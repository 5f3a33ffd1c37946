"""The table of forms: how the packers of a message are made from its fields."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locks.otp.bytes.etf import decode, encode
from locks.otp.bytes.fields import BadMessage, Form, Forms
from locks.otp.bytes.terms import Atom
from locks.ranges import LONGEST_TEXT, Name, Number, Range, Size, Text
from tests.unit.strategies import replaced, values


class Part(NamedTuple):
    type: Annotated[str, Size(30)]  # names of fields may be those of functions
    len: Annotated[int, Range(-5, 1 << 70)]


class Nothing(NamedTuple):
    """A message without fields."""


class NewMessage(NamedTuple):
    """A field of each kind that needs no form of its own."""

    number: Number
    text: Text
    sure: bool
    word: Literal["red", "green"]
    maybe: Number | None
    part: Part
    parts: Annotated[tuple[Part, ...], Size(5)]
    pair: tuple[Number, Text]
    lists: Annotated[tuple[Annotated[tuple[Number, ...], Size(3)], ...], Size(4)]
    perhaps: Annotated[tuple[Part | None, ...], Size(5)] | None
    nothing: Nothing


KNOWN: dict[Any, Any] = {}
FORM = Forms({}).of(NewMessage)


@given(values(NewMessage, KNOWN))
def test_a_new_message_needs_nothing_but_its_fields(message: NewMessage) -> None:
    """A message of a class that no code knows comes back as it was."""
    assert FORM.unpack(decode(encode(FORM.pack(message)))) == message


@given(values(NewMessage, KNOWN), st.data())
def test_all_of_it_is_checked(message: NewMessage, data: st.DataObject) -> None:
    """With any part replaced by something of another type, it is refused."""
    foreign = st.sampled_from([1.5, b"", {}, Atom("blue"), {1}])
    with pytest.raises(BadMessage):
        FORM.unpack(replaced(FORM.pack(message), data, foreign))


@pytest.mark.parametrize("wrong", [True, 1.0, "1", None])
def test_types_are_exact(wrong: Any) -> None:
    """`True` and `1.0` do not stand for `1`, although they are equal to it."""
    with pytest.raises(BadMessage, match=r"should be an int from -5 to \d+ \(len of a Part\)"):
        Forms({}).of(Part).unpack(("a", wrong))


GOOD = NewMessage(1, "a", True, "red", 2, Part("b", 3), (), (4, "c"), ((5,),), None, Nothing())
OUT_OF_BOUNDS = [
    (
        {"number": -1},
        r"-1 should be an int from 0 to 9223372036854775807 \(number of a NewMessage\)",
    ),
    ({"number": 1 << 63}, "should be an int from 0 to"),
    ({"number": 1 << 5000}, "should be an int from 0 to"),
    ({"text": "x" * 1001}, "should be a str of at most 1000 characters"),
    ({"maybe": -1}, "should be an int"),
    ({"part": ("x" * 31, 0)}, r"at most 30 characters \(type of a Part\)"),
    ({"part": ("x", -6)}, "should be an int from -5"),
    ({"parts": [("a", 1)] * 6}, "should be a list of at most 5 elements"),
    ({"pair": (1, "x" * 1001)}, "at most 1000 characters"),
    ({"lists": [[1], [1, 2, 3, 4]]}, "should be a list of at most 3 elements"),
    ({"lists": [[], [], [], [], []]}, "should be a list of at most 4 elements"),
    ({"lists": [[-1]]}, "should be an int"),
    ({"perhaps": [("a", 1), ("a", -6)]}, "should be an int"),
]


@pytest.mark.parametrize(("change", "complaint"), OUT_OF_BOUNDS, ids=repr)
def test_each_number_has_a_range_and_all_else_a_size(change: Any, complaint: str) -> None:
    """What is out of them is refused; the refusal says which field, and is short whatever was sent."""
    term = FORM.pack(GOOD)
    assert FORM.unpack(term) == GOOD
    parts = dict(zip(NewMessage._fields, term, strict=True))
    with pytest.raises(BadMessage, match=complaint) as raised:
        FORM.unpack(tuple({**parts, **change}.values()))
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("kind", [int, str, tuple[bool, ...], Annotated[int, Size(3)]])
def test_a_field_without_a_bound_has_no_form(kind: Any) -> None:
    """A new message can't be made ready for the wire before each of its fields has a bound."""
    unbound = NamedTuple("unbound", [("field", kind)])  # noqa: UP014
    with pytest.raises(TypeError, match="or no bound"):
        Forms({}).of(unbound)


@pytest.mark.parametrize("term", [("a",), ("a", 1, True), ["a", 1], Part("a", 1), None])
def test_a_message_has_all_its_parts(term: Any) -> None:
    """It is a plain tuple, and no field is missing or added."""
    with pytest.raises(BadMessage, match="should be a Part"):
        Forms({}).of(Part).unpack(term)


class Call(NamedTuple):
    caller: Hashable
    part: Part


def test_a_type_without_a_form_is_named() -> None:
    """A message with a field of a type that is not in the table can't be made ready for the wire."""
    with pytest.raises(TypeError, match=r"Call.* has a field of the type .*Hashable"):
        Forms({}).of(Call)


def test_forms_can_be_given_and_replaced() -> None:
    """A table says how a type goes; a table made from it may say something else for some types."""
    table = Forms({Hashable: Form(str, int)})
    assert table.of(Call).pack(Call(7, Part("a", 1))) == ("7", ("a", 1))
    assert table.of(Call).unpack(("7", ("a", 1))) == Call(7, Part("a", 1))
    other = table.but({Part: Form(lambda part, say: say, lambda term, say: Part(say, term), True)})
    assert other.of(Call).pack(Call(7, Part("a", 1)), "said") == ("7", "said")
    assert other.of(Call).unpack(("7", 5), "said") == Call(7, Part("said", 5))
    assert table.of(Call).pack(Call(7, Part("a", 1))) == ("7", ("a", 1))


class Said(NamedTuple):
    """A message with a text for people."""

    who: Text
    node: Name


FORGED = "x\n2026-11-25 WARNING forged \x1b[31m\u2028"


def test_text_for_people_is_cleaned_as_it_arrives() -> None:
    """Whoever sends it: it has one line, and no orders for a terminal. It still fits into a message."""
    form = Forms({}).of(Said)
    (said, node) = form.unpack((FORGED, "a@h"))
    assert (said, node) == ("x\\n2026-11-25 WARNING forged \\x1b[31m\\u2028", "a@h")
    assert form.unpack((said, node)) == (said, node)
    assert len(Forms({}).of(Text).unpack("\0" * LONGEST_TEXT)) == LONGEST_TEXT
