"""The hello: two ends that are joined, who gets in by it, and what it does with anything else."""

from __future__ import annotations

import contextlib
import hmac
import itertools
import os
import random
import socket
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from locks.net import hello as module
from locks.net.hello import (
    ACCEPTS,
    DIALS,
    LONGEST,
    VERSION,
    Hello,
    Peer,
    Proof,
    Refusal,
    Refused,
    Settled,
    first_words,
    pack,
    prove,
    read_hello,
    recognise,
    refusal,
)
from locks.net.secrets import MOST, Cookie
from locks.net.stream import Stream

A, B, C = "a@h", "b@h", "c@h"
ONE, TWO = Cookie("one-cookie-of-tests"), Cookie("two-cookies-of-tests")
FIRST = Hello(VERSION, A, B, 5, 15.0, "client", b"\1" * 32)
SECOND = Hello(VERSION, B, A, 2**63 - 1, 0.5, "node", b"\2" * 32)
DIALLED, ACCEPTED = pack(FIRST), pack(SECOND)
PROOF = prove(DIALS, DIALLED, ACCEPTED, [ONE])


def change(hello: Hello, **fields: Any) -> bytes:
    """A hello with another field."""
    return pack(msgspec.structs.replace(hello, **fields))


# --- Two ends -----------------------------------------------------------------------------------

Pass = Callable[[str, bytes], bytes]


def joined(dials: list[Cookie], accepts: list[Cookie], third: Pass = lambda _, body: body) -> bool:
    """Whether both ends of a connection find a secret; each body passes through the hands of a third party."""
    try:
        dialled = third("hello", DIALLED)
        read_hello(dialled, B)
        accepted = third("answer", ACCEPTED)
        read_hello(accepted, A, B)
        proof = third("proof", prove(DIALS, DIALLED, accepted, dials))
        found = recognise(proof, DIALS, dialled, ACCEPTED, accepts)
        if found is None:
            return False
        last = third("last", prove(ACCEPTS, dialled, ACCEPTED, [found]))
        return recognise(last, ACCEPTS, DIALLED, accepted, dials) == found
    except Refused:
        return False


@pytest.mark.parametrize(
    ("dials", "accepts", "meet"),
    [
        ([ONE], [ONE], True),
        ([ONE, TWO], [TWO], True),
        ([TWO], [ONE, TWO], True),
        ([ONE, TWO], [TWO, ONE], True),
        ([ONE], [TWO], False),
    ],
)
def test_which_secrets_meet(dials: list[Cookie], accepts: list[Cookie], meet: bool) -> None:
    """One that both know is enough, and nothing else is."""
    assert joined(dials, accepts) == meet


def test_each_end_knows_the_other() -> None:
    """Its name, its incarnation, what it is, and how long it waits."""
    assert read_hello(DIALLED, B) == Peer(A, 5, True, 15.0)
    assert read_hello(ACCEPTED, A, B) == Peer(B, 2**63 - 1, False, 0.5)


@pytest.mark.parametrize("what", ["hello", "answer", "proof", "last"])
def test_a_third_party_changes_nothing_unnoticed(what: str) -> None:
    """Whatever byte it changes, of whatever is said: the two do not get together."""
    at = 0
    reached = True

    def meddle(now: str, body: bytes) -> bytes:
        nonlocal reached
        if now != what:
            return body
        reached = at < len(body)
        changed = body[:at] + bytes([body[at] ^ 1 if reached else 0]) + body[at + 1 :]
        return changed if reached else body

    while reached:
        assert joined([ONE], [ONE], meddle) is not reached
        at += 1
    assert at > 30


def test_a_third_party_swaps_names() -> None:
    """It leads a to b, where a wants to c: each is told what it wants to hear, and no proof fits."""
    dialled = change(FIRST, to=C)  # what a says
    to_b = change(FIRST)
    answer = change(SECOND, name=C)  # what a hears
    assert read_hello(to_b, B).name == A
    assert read_hello(answer, A, C).name == C
    proof = prove(DIALS, dialled, answer, [ONE])
    assert recognise(proof, DIALS, to_b, ACCEPTED, [ONE]) is None


def test_a_proof_counts_once() -> None:
    """Not on another connection, where the numbers differ, and not the other way round."""
    assert recognise(PROOF, DIALS, DIALLED, ACCEPTED, [ONE]) == ONE
    later = change(SECOND, nonce=b"\3" * 32)
    assert recognise(PROOF, DIALS, DIALLED, later, [ONE]) is None
    assert recognise(PROOF, ACCEPTS, DIALLED, ACCEPTED, [ONE]) is None
    assert recognise(PROOF, DIALS, ACCEPTED, DIALLED, [ONE]) is None
    assert recognise(PROOF, ACCEPTS, ACCEPTED, DIALLED, [ONE]) is None


def test_where_one_hello_ends_is_proven() -> None:
    """The same bytes, divided otherwise, are another proof."""
    moved = prove(DIALS, DIALLED + ACCEPTED[:1], ACCEPTED[1:], [ONE])
    assert recognise(moved, DIALS, DIALLED, ACCEPTED, [ONE]) is None


def test_proofs_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the function that is made for it, each whole."""
    compared: list[tuple[bytes, bytes]] = []

    def noted(code: bytes, own: bytes) -> bool:
        compared.append((code, own))
        return False

    monkeypatch.setattr(module, "compare_digest", noted)
    assert recognise(PROOF, DIALS, DIALLED, ACCEPTED, [ONE, TWO]) is None
    assert [(len(code), len(own)) for code, own in compared] == [(32, 32)] * 2
    assert compared[0][0] == compared[0][1]


# --- The bytes ----------------------------------------------------------------------------------

GOLDEN = {
    "hello": "98a568656c6c6f01a3614068a362406805cb402e000000000000a6636c69656e74c420" + "01" * 32,
    "proof": "92a570726f6f6691c420"
    + "cbf0ed5fa5be8ab3d42a3228aa84446914e2bd5d9b581b3b99d37367e35f0b08",
    "refusal": "93a7726566757361" + "6ca6636f6f6b6965a56e6f206e6f",
}


def test_golden_bytes() -> None:
    """What is sent, byte for byte: programs in other languages and of other versions rely on it."""
    assert DIALLED.hex() == GOLDEN["hello"]
    assert PROOF.hex() == GOLDEN["proof"]
    said = b"locks 1 dials\0\0\0\x43" + DIALLED + len(ACCEPTED).to_bytes(4, "big") + ACCEPTED
    assert PROOF[-32:] == hmac.new(b"one-cookie-of-tests", said, "sha256").digest()
    assert refusal(Refused("no no", cause="cookie")).hex() == GOLDEN["refusal"]


def test_a_newer_program_says_more() -> None:
    """Fields at the end that are unknown here are ignored; the proof covers them, too."""
    more = msgspec.msgpack.encode([*msgspec.msgpack.decode(DIALLED), {"new": [1, None]}, 2.5])
    assert read_hello(more, B) == read_hello(DIALLED, B)
    proof = prove(DIALS, more, ACCEPTED, [ONE])
    assert recognise(proof, DIALS, more, ACCEPTED, [ONE]) == ONE
    assert recognise(proof, DIALS, DIALLED, ACCEPTED, [ONE]) is None


@pytest.mark.parametrize("version", [0, 2, 2**40, "two", None])
def test_another_version_is_named(version: Any) -> None:
    """Both versions are said, whatever else is in such a hello."""
    body = msgspec.msgpack.encode(["hello", version, {"x": 1}])
    with pytest.raises(Refused, match="install the same version of locks on both") as refused:
        read_hello(body, B)
    assert refused.value.cause == "version"
    assert "versions 1 and " in str(refused.value)


WRONG: dict[str, list[Any]] = {
    "name": ["", "a", "a@", "@h", "a@h@h", "a h@h", "a\n@h", "x" * 250 + "@hostx", 5, None, b"a@h"],
    "to": ["", "x" * 256, 5, None],
    "incarnation": [0, -1, 2**63, 2**64 - 1, 1.0, "1", None, True],
    "ticktime": [0.0, 0.09, -1.0, 86_401.0, float("inf"), float("nan"), "15", None, True],
    "kind": ["", "server", "Client", 0, None],
    "nonce": [b"", bytes(31), bytes(33), "x" * 32, None],
}


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in WRONG.items() for value in values]
)
def test_each_field_has_a_type_and_bounds(field: str, value: Any) -> None:
    """What is out of them is refused, in few words."""
    with pytest.raises(Refused) as refused:
        read_hello(change(FIRST, **{field: value}), B)
    assert len(str(refused.value)) < 400


def test_whose_hello_is_refused() -> None:
    """One by our own name, and by one that was not dialled; both sides are told in words that are right there."""
    with pytest.raises(Refused, match="two programs have the name a@h"):
        read_hello(DIALLED, A)
    with pytest.raises(Refused, match="found b@h there instead of c@h") as refused:
        read_hello(ACCEPTED, A, C)
    assert refused.value.told == "it expects c@h, but this is b@h; its address is wrong"
    with pytest.raises(Refused, match="it expects c@h, but this is a@h"):
        read_hello(change(SECOND, to=C), A, B)
    with pytest.raises(Refused, match="it expects c@h, but this is b@h") as refused:
        read_hello(change(FIRST, to=C), B)
    assert "found b@h there instead of c@h" in refused.value.told


def test_a_wrong_order_is_refused() -> None:
    """A proof is no hello, a hello is no proof."""
    with pytest.raises(Refused, match="a Hello was expected"):
        read_hello(PROOF, B)
    with pytest.raises(Refused, match="a Proof was expected"):
        recognise(DIALLED, DIALS, DIALLED, ACCEPTED, [ONE])


@pytest.mark.parametrize("codes", [[], [bytes(31)], [bytes(32)] * (MOST + 1), [None], bytes(32)])
def test_how_many_proofs_there_may_be(codes: Any) -> None:
    """One for each secret that a node may know, and each as long as it must be."""
    with pytest.raises(Refused):
        recognise(pack(Proof(codes)), DIALS, DIALLED, ACCEPTED, [ONE])


def test_all_that_is_right_fits() -> None:
    """The longest messages are within the limit of frames."""
    longest = Hello(VERSION, "é" * 125 + "@hhhh", "ü" * 253 + "@h", 2**63 - 1, 0.3, "client", b"\xff" * 32)  # fmt: skip
    assert len(pack(longest)) < LONGEST
    assert len(prove(DIALS, DIALLED, ACCEPTED, [ONE] * MOST)) < LONGEST
    assert len(refusal(Refused("\U0001f512" * 1000))) < LONGEST


# --- Refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cause", "found"), [("cookie", "cookie"), ("ending", "ending"), ("of tomorrow", "of tomorrow")]
)
def test_a_refusal_says_why(cause: Any, found: str) -> None:
    """In place of any answer; a cause that is unknown here is one, too."""
    body = pack(Refusal(cause, "words"))
    for read in (
        lambda: read_hello(body, A, B),
        lambda: recognise(body, ACCEPTS, DIALLED, ACCEPTED, [ONE]),
    ):
        with pytest.raises(Refused, match="it refused the connection: words") as refused:
            read()
        assert refused.value.cause == found
        assert not isinstance(refused.value, Settled)


def test_a_connection_that_is_not_needed_is_no_fault() -> None:
    """The other side keeps another one."""
    with pytest.raises(Settled, match="another connection is kept"):
        read_hello(refusal(Settled("another connection is kept")), A, B)


def test_words_of_others_obey() -> None:
    """They are cut, and what can't be printed is escaped."""
    with pytest.raises(Refused) as refused:
        read_hello(pack(Refusal("name", "\x1b[2J\n" * 60)), A, B)
    assert str(refused.value).isprintable()
    with pytest.raises(Refused, match="is not a node's hello"):
        read_hello(pack(Refusal("name", "x" * 301)), A, B)


# --- Anything else ------------------------------------------------------------------------------


def take(body: bytes) -> None:
    """Take something in as every message; only `Refused` may be raised."""
    for read in (
        lambda: read_hello(body, B),
        lambda: recognise(body, DIALS, DIALLED, ACCEPTED, [ONE]),
    ):
        with contextlib.suppress(Refused):
            read()


@given(st.binary(max_size=LONGEST))
def test_any_bytes(body: bytes) -> None:
    """They are refused in words."""
    take(body)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=9)
    | st.binary(max_size=40) | st.sampled_from(["hello", "proof", "refusal", A, B, bytes(32)]),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=20,
)  # fmt: skip


@given(st.sampled_from(["hello", "proof", "refusal", "bye"]), st.lists(VALUES, max_size=9))
def test_any_values(tag: str, fields: list[Any]) -> None:
    """A message of anything: likewise."""
    take(msgspec.msgpack.encode([tag, *fields]))


@pytest.mark.parametrize("depth", [100, LONGEST - 20])
def test_deep_nesting(depth: int) -> None:
    """In a place that is ignored, too."""
    take(b"\x91" * depth)
    take(b"\x99" + DIALLED[1:] + b"\x91" * depth)
    take(b"\x92\xa5hello" + b"\x91" * depth)


@pytest.mark.parametrize("count", [100_000, pytest.param(10_000_000, marks=pytest.mark.explore)])
def test_random_bytes(count: int) -> None:
    """Pure chance, and messages of which chance has changed a few bytes."""
    chance = random.Random(int(os.environ.get("LOCKS_SEED", "1")))
    while count > 0:
        if chance.random() < 0.5:
            body = bytearray(chance.randbytes(chance.randrange(1, 200)))
        else:
            body = bytearray(chance.choice([DIALLED, ACCEPTED, PROOF, pack(Refusal("name", "x"))]))
            for _ in range(chance.randrange(1, 4)):
                body[chance.randrange(len(body))] = chance.randrange(256)
            del body[chance.randrange(len(body), len(body) + 40) % (2 * len(body)) :]
        take(bytes(body))
        count -= len(body)


# --- Frames -------------------------------------------------------------------------------------


class _Socket:
    """A socket that gives what it has in pieces."""

    family = socket.AF_UNIX

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.pieces = pieces
        self.sent = b""

    def recv(self, most: int) -> bytes:
        return next(self.pieces, b"")

    def sendall(self, data: bytes) -> None:
        self.sent += data


def sent(*bodies: bytes) -> bytes:
    """The bytes of frames."""
    sock = _Socket(iter(()))
    for body in bodies:
        Stream(sock).send(body)
    return sock.sent


BODIES = [DIALLED, b"", PROOF]
DATA = sent(*BODIES) + b"\0\0\0"


@given(st.lists(st.integers(1, len(DATA) - 1), max_size=9))
def test_frames_however_they_are_cut(cuts: list[int]) -> None:
    """Each body comes out whole, and what follows is there."""
    places = [0, *sorted(set(cuts)), len(DATA)]
    pieces = [DATA[a:b] for a, b in itertools.pairwise(places)]
    stream = Stream(_Socket(iter(pieces)))
    assert [stream.receive() for _ in BODIES] == BODIES
    with pytest.raises(ConnectionError):
        stream.receive()
    assert stream._arrived == b"\0\0\0"


def test_frames_cut_at_each_byte() -> None:
    """And byte by byte."""
    for at in range(1, len(DATA)):
        stream = Stream(_Socket(iter([DATA[:at], DATA[at:]])))
        assert [stream.receive() for _ in BODIES] == BODIES
    stream = Stream(_Socket(bytes([byte]) for byte in DATA))
    assert [stream.receive() for _ in BODIES] == BODIES


def test_a_frame_that_is_too_long_is_refused_at_its_first_bytes() -> None:
    """Nothing of it is kept."""
    stream = Stream(_Socket(iter([(LONGEST + 1).to_bytes(4, "big")])))
    with pytest.raises(Refused, match="is not a node's hello"):
        stream.receive()
    assert Stream(_Socket(iter([sent(bytes(LONGEST))]))).receive() == bytes(LONGEST)


@pytest.mark.parametrize(
    ("data", "said", "cause"),
    [
        (b"GET / HTTP/1.1\r\n", "it uses another protocol, b'GET /", "bad words"),
        (b"\x16\x03\x01\x02", "it uses TLS, but this node does not", "tls"),
        (b"\x15\x03\x03\x00", "it uses TLS, but this node does not", "tls"),
        (b"\xff\xff\xff\xff", "that is not a node's hello", "bad words"),
        (b"\x00\x0bN\x00", "that is not a node's hello", "bad words"),
    ],
)
def test_what_something_else_seems_to_be(data: bytes, said: str, cause: str) -> None:
    """Other protocols begin with more than a hello may have."""
    assert int.from_bytes(data[:4], "big") > LONGEST
    refused = first_words(data)
    assert said in str(refused)
    assert refused.cause == cause
