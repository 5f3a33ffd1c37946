"""The external term format: what each term looks like, what survives, and what is refused."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from locks.errors import MisuseError, OperatingError
from locks.otp.bytes import etf, etf_decode
from locks.otp.bytes.etf import (
    DecodeError,
    EncodeError,
    Limits,
    decode,
    encode,
)
from locks.otp.bytes.terms import Atom, ImproperList, Pid, Reference, Term
from tests.otp.strategies import TERMS, exact

MANY = settings(max_examples=max(200, settings().max_examples))
NODE = b"w\x03a@h"
BIG = 1234567890123
REQUEST = (
    Atom("$gen_cast"),
    (
        Atom("request"),
        Pid(5 << 32 | 77, "b@127.0.0.1", 12345),
        "client-1",
        ["accounts", 17],
        Atom("write"),
        False,
        None,
    ),
)


def nested(depth: int, term: Any = 1) -> Any:
    """A term within so many lists."""
    for _ in range(depth):
        term = [term]
    return term


# --- What each term looks like ------------------------------------------------------------------

# Value and bytes, without the version byte: each way.
BOTH_WAYS = [
    (0, b"a\x00"),
    (255, b"a\xff"),
    (256, b"b\x00\x00\x01\x00"),
    (-1, b"b\xff\xff\xff\xff"),
    (2**31 - 1, b"b\x7f\xff\xff\xff"),
    (-(2**31), b"b\x80\x00\x00\x00"),
    (2**31, b"n\x04\x00\x00\x00\x00\x80"),
    (-(2**31) - 1, b"n\x04\x01\x01\x00\x00\x80"),
    (BIG, b"n\x06\x00" + BIG.to_bytes(6, "little")),
    (2**2040 - 1, b"n\xff\x00" + b"\xff" * 255),
    (2**2040, b"o\x00\x00\x01\x00\x00" + bytes(255) + b"\x01"),
    (-(2**2040), b"o\x00\x00\x01\x00\x01" + bytes(255) + b"\x01"),
    (1.5, b"F\x3f\xf8" + bytes(6)),
    (True, b"w\x04true"),
    (False, b"w\x05false"),
    (None, b"w\x09undefined"),
    (Atom("write"), b"w\x05write"),
    (Atom(""), b"w\x00"),
    (Atom("ö"), b"w\x02\xc3\xb6"),
    (Atom("ö" * 200), b"v\x01\x90" + b"\xc3\xb6" * 200),
    ("text", b"m\x00\x00\x00\x04text"),
    ("", b"m\x00\x00\x00\x00"),
    ("ö", b"m\x00\x00\x00\x02\xc3\xb6"),
    (b"text", b"M\x00\x00\x00\x04\x08text"),
    (b"", b"M\x00\x00\x00\x00\x00"),
    ((), b"h\x00"),
    ((1, 2), b"h\x02a\x01a\x02"),
    ((0,) * 256, b"i\x00\x00\x01\x00" + b"a\x00" * 256),
    ([], b"j"),
    ([1, 2], b"l\x00\x00\x00\x02a\x01a\x02j"),
    ({}, b"t\x00\x00\x00\x00"),
    ({"k": 1, 2: []}, b"t\x00\x00\x00\x02m\x00\x00\x00\x01ka\x01a\x02j"),
    (ImproperList((1,), 2), b"l\x00\x00\x00\x01a\x01a\x02"),
    (Pid(5 << 32 | 77, "a@h", 3), b"X" + NODE + b"\0\0\0\x4d\0\0\0\5\0\0\0\3"),
    (Reference("a@h", 3, (1, 2)), b"Z\0\2" + NODE + b"\0\0\0\3\0\0\0\1\0\0\0\2"),
    (Term(b"M\x00\x00\x00\x01\x03\x20"), b"M\x00\x00\x00\x01\x03\x20"),
]

# What is understood as well, and what it is: encoding makes something else of it.
UNDERSTOOD = [
    (b"d\x00\x05write", Atom("write")),
    (b"s\x05write", Atom("write")),
    (b"v\x00\x05write", Atom("write")),
    (b"d\x00\x01\xf6", Atom("ö")),
    (b"s\x01\xf6", Atom("ö")),
    (b"d\x00\x04true", True),
    (b"s\x09undefined", None),
    (b"v\x00\x05false", False),
    (b"m\x00\x00\x00\x01\xff", b"\xff"),
    (b"k\x00\x03abc", [97, 98, 99]),
    (b"k\x00\x00", []),
    (b"i\x00\x00\x00\x01j", ([],)),
    (b"n\x01\x00\x05", 5),
    (b"n\x00\x00", 0),
    (b"o\x00\x00\x00\x01\x01\x05", -5),
    (b"g" + NODE + b"\0\0\0\x4d\0\0\0\5\3", Pid(5 << 32 | 77, "a@h", 3)),
    (b"Xd\0\3a@h\0\0\0\x4d\0\0\0\5\0\0\0\3", Pid(5 << 32 | 77, "a@h", 3)),
    (b"r\0\1" + NODE + b"\3\0\0\0\7", Reference("a@h", 3, (7,))),
    (b"l\0\0\0\1a\1l\0\0\0\1a\2j", [1, 2]),
    (b"l\0\0\0\1a\1k\0\2ab", [1, 97, 98]),
    (b"l\0\0\0\1a\1l\0\0\0\1a\2a\3", ImproperList((1, 2), 3)),
    (b"l\0\0\0\0a\5", 5),
    (b"l\0\0\0\0j", []),
]

FUN = (
    *(b"\2", bytes(16), b"\0\0\0\1", b"\0\0\0\2", b"w\1m", b"a\1", b"b\0\1\0\0"),
    *(b"X" + NODE + bytes(12), b"a\7", b"l\0\0\0\1a\1j"),
)
# What Python has no value for.
KEPT = [
    b"qw\x05listsw\x03mapa\x02",
    b"p" + struct.pack(">I", 4 + sum(map(len, FUN))) + b"".join(FUN),
    b"f" + NODE + bytes(5),
    b"Y" + NODE + bytes(8),
    b"x" + NODE + bytes(12),
    b"M\0\0\0\2\1\xff\x80",
    b"t\0\0\0\2a\1j" + b"F\x3f\xf0" + bytes(6) + b"j",  # #{1 => [], 1.0 => []}
    b"t\0\0\0\2a\1jw\4truej",  # #{1 => [], true => []}
]


@pytest.mark.parametrize(("term", "data"), BOTH_WAYS)
def test_a_term_and_its_bytes(term: Any, data: bytes) -> None:
    """Each kind of term is encoded as documented, and comes back as it was."""
    assert encode(term) == b"\x83" + data
    assert exact(decode(b"\x83" + data)) == exact(term)


@pytest.mark.parametrize(("data", "term"), UNDERSTOOD)
def test_other_forms_are_understood(data: bytes, term: Any) -> None:
    """What Erlang may also send for a term is decoded to the same value."""
    assert exact(decode(b"\x83" + data)) == exact(term)


@pytest.mark.parametrize("data", KEPT)
def test_what_python_has_no_value_for_is_kept(data: bytes) -> None:
    """Functions, ports and the like come as a `Term`, and go back as they came."""
    assert decode(b"\x83" + data) == Term(data)
    assert decode(b"\x83h\2" + data + b"a\1") == (Term(data), 1)
    assert encode(Term(data)) == b"\x83" + data


@pytest.mark.slow
@MANY
@given(TERMS)
@example({(1, 2.0): [[]], "": b""})
def test_every_term_survives(term: Any) -> None:
    """Encoding and decoding gives the same values of the same types."""
    assert exact(decode(encode(term))) == exact(term)
    assert exact(slowly(encode(term))) == exact(term)


# --- What can't be sent -------------------------------------------------------------------------


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("term", "message"),
    [
        (float("nan"), "nan, which Erlang lacks"),
        (float("-inf"), "-inf, which Erlang lacks"),
        ("\ud800", "surrogates"),
        (object(), "can't send a object"),
        ({1, 2}, "can't send a set"),
        (Text("x"), "can't send a Text"),
        (bytearray(b"x"), "can't send a bytearray"),
        (1 << 8192, "an integer of 1025 bytes"),
        (Pid(-1, "a@h", 1), "a number of 64 bits"),
        (Pid(1 << 64, "a@h", 1), "a number of 64 bits"),
        (Pid(1, "a@h", 1 << 32), "a creation of 32"),
        (Pid(1, "", 1), "a node's name"),
        (Pid(1, "\ud800", 1), "surrogates"),
        (Pid(1, ["a@h"], 1), "a node's name"),  # type: ignore[arg-type]
        (Pid("1", "a@h", 1), "a number of 64 bits"),  # type: ignore[arg-type]
        (Reference("a@h", 1, ()), "1 to 5 words"),
        (Reference("a@h", 1, (1,) * 6), "1 to 5 words"),
        (Reference("a@h", 1, (1 << 32,)), "1 to 5 words"),
        (Reference("a@h", 1, [1]), "1 to 5 words"),  # type: ignore[arg-type]
        (ImproperList((), 1), "an improper list"),
        (ImproperList((1,), [2]), "an improper list"),
        (ImproperList((1,), ImproperList((2,), 3)), "an improper list"),
        (nested(65), "nested more than 64 deep"),
        ([0] * 100_000, "more than 100,000 parts"),
        ([[0] * 50_000] * 2, "more than 100,000 parts"),
        (b"x" * 2**24, "bytes, more than 16,711,680"),
        (["x" * 2**20] * 16, "bytes, more than 16,711,680"),
    ],
)
def test_what_cannot_be_sent_says_why(term: Any, message: str) -> None:
    """A value without a form as a term is a mistake of the caller, wherever it stands."""
    for wrong in (term, ("deeper", [term])):
        with pytest.raises(EncodeError, match=message) as caught:
            encode(wrong)
        assert isinstance(caught.value, MisuseError)


def test_a_term_within_itself_cannot_be_sent() -> None:
    """A list, a dict or a tuple that holds itself is refused; so is one that grows too fast."""
    cycle: list[Any] = [1]
    cycle += [cycle, cycle]
    around: dict[str, Any] = {}
    around["self"] = (around,)
    wide: Any = "x"
    for _ in range(60):
        wide = [wide] * 10
    for term in (cycle, around):
        with pytest.raises(EncodeError, match="within itself"):
            encode(term)
    with pytest.raises(EncodeError, match="more than 100,000 parts"):
        encode(wide)


# --- What is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cut off after 0 bytes"),
        (b"\x82a\1", "begins with the byte 131, not with 130"),
        (b"\x83", "cut off after 1 bytes"),
        (b"\x83a\1a", "1 bytes follow a term of 3 bytes"),
        (b"\x83P\0\0\0\1x", "a compressed term"),
        (b"\x83R\0", "atom cache"),
        (b"\x83c" + b"1" * 31, "a float as text"),
        (b"\x83y", "local to a node"),
        (b"\x83\x00", "unknown term tag 0"),
        (b"\x83F\x7f\xf8" + bytes(6), "nan is not a number in Erlang"),
        (b"\x83n\1\2\5", "sign of an integer"),
        (b"\x83w\1\xff", "not UTF-8"),
        (b"\x83v\1\0" + b"x" * 256, "256 characters"),
        (b"\x83M\0\0\0\1\x09\xff", "9 bits in its last"),
        (b"\x83M\0\0\0\1\0\xff", "0 bits in its last"),
        (b"\x83M\0\0\0\0\x08", "8 bits in its last"),
        (b"\x83X" + b"w\0" + bytes(12), "name of a node is empty"),
        (b"\x83Xa\1" + bytes(12), "expected an atom"),
        (b"\x83Z\0\6" + NODE + bytes(28), "1 to 5 words, not 6"),
        (b"\x83Z\0\0" + NODE + bytes(4), "1 to 5 words, not 0"),
        (b"\x83t\0\0\0\2a\1ja\1j", "same key twice"),
        (b"\x83t\0\0\0\2a\1jb\0\0\0\1j", "same key twice"),
        (b"\x83qa\1w\1fa\1", "an export must be"),
        (b"\x83qw\1mw\1fb\0\0\1\0", "an export must be"),
        (b"\x83p\0\0\0\0" + b"".join(FUN), "instead of its stated number"),
        (b"\x83p\0\0\0\0" + bytes(21) + b"\0\0\0\0" + b"a\1" * 4, "a function begins"),
    ],
)
def test_what_is_no_term_says_why(data: bytes, message: str) -> None:
    """Bytes that are no term, or one that no peer should send, are a failure of the peer."""
    with pytest.raises(DecodeError, match=message) as caught:
        decode(data)
    assert isinstance(caught.value, OperatingError)


@pytest.mark.parametrize(
    ("limits", "term"),
    [
        (Limits(depth=2), nested(2)),
        (Limits(elements=5), [1, (2, 3)]),
        (Limits(elements=4), {1: 2}),
        (Limits(elements=3), ImproperList((1,), 2)),
        (Limits(integer_bytes=8), 2**64 - 1),
    ],
)
def test_limits_of_a_decoded_term(limits: Limits, term: Any) -> None:
    """A term within the limits is decoded; a little more is refused."""
    assert decode(encode(term), limits) == term
    more = term << 8 if isinstance(term, int) else [term, Atom("b"), (1, 2, 3), [[nested(2)]]]
    with pytest.raises(DecodeError, match="more than"):
        decode(encode(more), limits)


def test_more_terms_than_bytes() -> None:
    """A container with more terms than there are bytes left is refused before any is read."""
    for data in (b"i\0\0\1\0", b"l\0\0\1\0", b"t\0\0\0\x80", KEPT[1][:26] + b"\0\0\1\0"):
        with pytest.raises(
            DecodeError, match=r"2\d\d terms can't fit into the remaining 200 bytes"
        ):
            decode(b"\x83" + data + b"j" * 200)


@pytest.mark.parametrize("tag", list(b"milotpMkdsvwqgrXZn"))
def test_a_length_that_lies_costs_nothing(tag: int) -> None:
    """A field that claims billions of bytes or terms fails before memory is taken for them."""
    data = bytes((131, tag)) + b"\xff" * 40
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decode(data)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@MANY
@given(st.binary(max_size=60))
@example(b"l\0\0\0\1j")
@example(b"t\0\0\0\1jj")
def test_garbage_is_refused_and_nothing_else(data: bytes) -> None:
    """Arbitrary bytes give a `DecodeError`, or a term that can be sent on."""
    check_decoding(b"\x83" + data)


@pytest.mark.slow
@MANY
@given(TERMS, st.data())
def test_damaged_terms_are_refused_and_nothing_else(term: Any, data: st.DataObject) -> None:
    """A term with bytes changed, lost or added gives a `DecodeError`, or another term."""
    encoded = bytearray(encode(term))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(encoded)))
        cut = data.draw(st.integers(0, 3))
        encoded[place : place + cut] = data.draw(st.binary(max_size=3))
    check_decoding(bytes(encoded))


def check_decoding(data: bytes) -> None:
    """Decode; what comes of it can be encoded, and is the same when it comes back, and if it is decoded slowly."""
    try:
        term = decode(data)
    except DecodeError:
        with pytest.raises(DecodeError):
            slowly(data)
        return
    assert exact(slowly(data)) == exact(term)
    assert exact(decode(encode(term))) == exact(term)


def slowly(data: bytes) -> Any:
    """Decode with a pause after each term."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(etf_decode, "STEP", 1)
        steps = etf_decode.decode_slowly(data, 0)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            term, at = end.value
    if at != len(data):
        raise DecodeError("too long")
    return term


def test_a_large_term_is_decoded_in_parts() -> None:
    """Each takes a small part of the time, however the term is nested."""
    for term in ([[]] * 90_000, list(range(90_000)), [[[[each]]] for each in range(20_000)]):
        data = encode(term)
        steps = etf_decode.decode_slowly(data, 0)
        parts = sum(1 for _ in steps)
        assert parts >= len(data) // etf_decode.STEP - 1


# --- Caches -------------------------------------------------------------------------------------


def test_caches_are_bounded() -> None:
    """More texts, atoms and pids than the caches hold: they don't grow, and all is still right."""
    for number in range(10_000):
        term = (Atom(f"atom {number}"), f"text {number}", Pid(number, "a@h", 1), True)
        assert decode(encode(term)) == term
    caches: list[dict[Any, Any]] = [
        etf._texts,
        etf._pids,
        etf_decode._atoms,
        etf_decode._known_pids,
    ]
    assert max(len(cache) for cache in caches) <= etf.CACHED
    long = "x" * 1000
    encode(long)
    assert long not in etf._texts


def test_equal_values_of_other_types_are_not_mixed_up() -> None:
    """What was encoded before has no influence: 1, True and 1.0 are equal, and three terms."""
    for term in (True, 1, 1.0, Pid(1, "a@h", 1), (1, "a@h", 1), REQUEST):
        assert exact(decode(encode(term))) == exact(term)
        assert exact(decode(encode([term, "x", term]))) == exact([term, "x", term])


MODULUS = (1 << 61) - 1  # of Python's hashes of integers
SAME_HASH = {
    "integers": [number * MODULUS for number in range(1, 45_000)],
    "in tuples": [(number * MODULUS, 1) for number in range(1, 20_000)],
}


@pytest.mark.parametrize("keys", SAME_HASH.values(), ids=list(SAME_HASH))
def test_keys_with_the_same_hash_take_no_time(keys: list[Any]) -> None:
    """A map of thousands is refused before a dictionary is made of it: that would take seconds, or minutes."""
    pairs = b"".join(encode(key)[1:] + b"a\1" for key in keys)
    with pytest.raises(DecodeError, match="more than 100 keys of a map have the same hash"):
        decode(b"\x83t" + len(keys).to_bytes(4, "big") + pairs)
