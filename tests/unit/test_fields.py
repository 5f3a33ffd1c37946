"""The table of forms: how the packers of a message are made from its fields."""

from __future__ import annotations

import inspect
from collections.abc import Hashable
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locks.core.messages import Release
from locks.otp.etf import decode, encode
from locks.otp.terms import Atom
from locks.wire import fields
from locks.wire.fields import BadMessage, Form, Forms, tag_of
from locks.wire.messages import TO_SERVERS
from tests.unit.strategies import replaced, values


class Part(NamedTuple):
    type: str  # names of fields may be those of functions
    len: int


class Nothing(NamedTuple):
    """A message without fields."""


class NewMessage(NamedTuple):
    """A field of each kind that needs no form of its own."""

    number: int
    text: str
    sure: bool
    word: Literal["red", "green"]
    maybe: int | None
    part: Part
    parts: tuple[Part, ...]
    pair: tuple[int, str]
    lists: tuple[tuple[int, ...], ...]
    perhaps: tuple[Part | None, ...] | None
    nothing: Nothing


KNOWN = {int: st.integers(), str: st.text()}
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
    with pytest.raises(BadMessage, match="should be a Part"):
        Forms({}).of(Part).unpack(("a", wrong))


@pytest.mark.parametrize("term", [("a",), ("a", 1, 1), ["a", 1], Part("a", 1), None])
def test_a_message_has_all_its_parts(term: Any) -> None:
    """A plain tuple with as many parts as there are fields, and nothing else."""
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


def test_what_a_message_begins_with() -> None:
    """The head of a message is put before its fields, and passed over."""
    form = Forms({}).message(Part, "head", 1)
    assert form.pack(Part("a", 2)) == ("head", 1, "a", 2)
    assert form.unpack(("other", 0, "a", 2)) == Part("a", 2)
    with pytest.raises(BadMessage):
        form.unpack(("a", 2))


def test_tags() -> None:
    """What a class is called on the wire is its name in Erlang's way."""
    assert [tag_of(kind) for kind in (Part, NewMessage)] == ["part", "new_message"]


def test_the_text_in_the_docstring() -> None:
    """The example on top of the module is what is made, but for line breaks and spaces."""
    form = TO_SERVERS.message(Release, Atom("$locks"), Atom("release"))
    shown = "".join(str(fields.__doc__).split())
    for function in (form.pack, form.unpack):
        text = "".join(inspect.getsource(function).split())
        assert text in shown, inspect.getsource(function)
