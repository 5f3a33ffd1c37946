"""Values that actors of different nodes say to each other: there and back, and what hostile ones may cost."""

from __future__ import annotations

import contextlib
import itertools
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import Ext

from locks.net import values
from locks.net.messages import BadMessage, encode
from locks.net.values import LARGE_INT, MAPPING, REFERENCE, TUPLE, Unsendable, Values

MODULUS = (1 << 61) - 1  # of Python's hashes of numbers
NOBODY: Any = None
PEER = "peer@h"
VALUES = Values(NOBODY, NOBODY)
REFERRING = Values(NOBODY, lambda node, target: (node, target))
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=9) | st.binary(max_size=9)
)  # fmt: skip
KEYS = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, max_size=4)
    return several | several.map(tuple) | st.dictionaries(KEYS, inner, max_size=4)


def exact(value: Any) -> Any:
    """Something that is equal for two values of the same types, and for no others."""
    if isinstance(value, dict):
        return (dict, [(exact(key), exact(each)) for key, each in value.items()])
    if isinstance(value, list | tuple):
        return (type(value), *map(exact, value))
    return (type(value), repr(value))


@given(st.recursive(SCALARS, _containers, max_leaves=25))
def test_there_and_back(value: Any) -> None:
    """What is packed is unpacked, with its types and the order of dictionaries."""
    assert exact(VALUES.unpack(VALUES.pack(value), PEER)) == exact(value)


def large(number: int) -> Ext:
    """A number of more than 64 bits."""
    return Ext(LARGE_INT, number.to_bytes(20, "big", signed=True))


ALIKE = {
    "numbers": [large(n * MODULUS) for n in range(1, 20_000)],
    "tuples": [
        Ext(TUPLE, encode([n * MODULUS for n in each]))
        for each in itertools.product(range(7), repeat=5)
    ],
}


@pytest.mark.parametrize("keys", ALIKE.values(), ids=list(ALIKE))
def test_keys_with_one_hash(keys: list[Ext]) -> None:
    """A dictionary of them would take long to make; it is refused at once, in either form."""
    begin = time.thread_time()
    pairs = [each for key in keys for each in (key, 1)]
    with pytest.raises(BadMessage, match="more than 100 keys of a map have the same hash"):
        VALUES.unpack(encode([Ext(MAPPING, encode(pairs))]), PEER)
    plain = b"\xdf" + len(keys).to_bytes(4, "big") + b"".join(encode(each) for each in pairs)
    with pytest.raises(BadMessage, match="hashable"):
        VALUES.unpack(plain, PEER)
    assert time.thread_time() - begin < 1


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    """They are a value, or refused."""
    for body in (data, encode(Ext(MAPPING, data)), encode(Ext(TUPLE, data))):
        with contextlib.suppress(BadMessage):
            VALUES.unpack(body, PEER)


def alike(part: bytes, parts: int, count: int) -> bytes:
    """A list with so many parts at least, of values that have `parts` each."""
    number = -(-(count - 1) // parts)
    return b"\xdd" + number.to_bytes(4, "big") + part * number


PARTS = {
    "lists": (b"\x90", 1),
    "maps": (b"\x80", 1),
    "small numbers": (b"\x01", 1),
    "numbers": (encode(1 << 62), 1),
    "large numbers": (encode(large(1)), 1),
    "floats": (encode(1.5), 1),
    "texts": (encode("x"), 1),
    "bytes": (encode(b"x"), 1),
    "tuples": (encode(Ext(TUPLE, b"\x90")), 2),
    "lists in maps": (encode({"x": []}), 3),
    "tuples of numbers": (encode(Ext(TUPLE, b"\x93\1\2\3")), 5),
}


@pytest.mark.parametrize(("part", "parts"), PARTS.values(), ids=list(PARTS))
def test_a_value_has_a_bounded_number_of_parts(
    monkeypatch: pytest.MonkeyPatch, part: bytes, parts: int
) -> None:
    """One that has more is refused before anything is made of it."""
    monkeypatch.setattr(values, "MOST_PARTS", 1000)
    VALUES.unpack(alike(part, parts, 1000 - parts), PEER)
    monkeypatch.setattr(values, "_decode", NOBODY)
    with pytest.raises(BadMessage, match="more than 1,000 parts"):
        VALUES.unpack(alike(part, parts, 1001), PEER)


def test_who_sends_too_many_parts_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """By an error, instead of the end of the connection."""
    monkeypatch.setattr(values, "MOST_PARTS", 1000)
    for value in ([[]] * 1000, ((),) * 500, dict.fromkeys(range(500)), [1 << 64] * 1000):
        with pytest.raises(Unsendable, match="more than 1,000 parts"):
            VALUES.pack(value)


@given(st.recursive(SCALARS, _containers, max_leaves=25), st.binary(max_size=50))
def test_parts_are_counted_exactly(value: Any, more: bytes) -> None:
    """A list of two such values has as many parts as both, and one more; what follows is never read beyond its end."""
    (one, two), both = (VALUES.pack(value), VALUES.pack([value])), VALUES.pack([value, value])
    count = [9999 - values.parts_left(memoryview(data), 9999) for data in (one, two, both)]
    assert count == [count[0], count[0] + 1, 2 * count[0] + 1]
    values.parts_left(memoryview(one + more), 9999)


def test_text_and_bytes_are_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long they are, and whatever is in them."""
    monkeypatch.setattr(values, "MOST_PARTS", 10)
    for value in (b"\x90" * 70_000, b"\x90" * 300, "x" * 70_000, "x" * 300, [b"\x90" * 70_000] * 9):
        assert VALUES.unpack(VALUES.pack(value), PEER) == value


def test_deep_nesting() -> None:
    """It is refused, in every form."""
    body = encode(1)
    for _ in range(2000):
        body = encode(Ext(TUPLE, b"\x91" + body))
    for each in (body, b"\x91" * 100_000 + b"\1"):
        with pytest.raises(BadMessage):
            VALUES.unpack(each, PEER)


def test_nested_extensions_are_not_copied() -> None:
    """A large value within many others takes no more memory than alone."""
    body = encode(bytes(2**20))
    for _ in range(80):
        body = encode(Ext(TUPLE, b"\x91" + body))
    tracemalloc.start()
    value = VALUES.unpack(body, PEER)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4 * 2**20
    for _ in range(80):
        (value,) = value
    assert value == bytes(2**20)


@pytest.mark.parametrize(
    "where",
    [
        ("a@x", -1), ("a@x", 1.5), ("a@x", True), ("a@x", "n" * 256), ("a" * 256, 1), (b"a@x", 1), ("a@x",),
        ("a@x", Ext(LARGE_INT, bytes([1] * 9))),
    ],
)  # fmt: skip
def test_a_reference_that_no_node_would_take_is_refused(where: Any) -> None:
    """Otherwise who passes it on, or sends something to it, would lose its connection to a third node."""
    with pytest.raises(BadMessage):
        REFERRING.unpack(encode(Ext(REFERENCE, encode(where))), PEER)


def test_references_arrive() -> None:
    """By the number of an actor, or by its name."""
    for where in (("a@x", 0), ("a@x", (1 << 64) - 1), ("n" * 255, "n" * 255)):
        assert REFERRING.unpack(encode(Ext(REFERENCE, encode(where))), PEER) == where
