"""Control messages: each one both ways, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locks.otp.bytes import control
from locks.otp.bytes.control import (
    DemonitorP,
    Exit,
    Exit2,
    Link,
    MonitorP,
    MonitorPExit,
    RegSend,
    Send,
    SendSender,
    UnlinkId,
    UnlinkIdAck,
    Unsupported,
    parse,
)
from locks.otp.bytes.etf import DecodeError, encode
from locks.otp.bytes.terms import Atom, Pid, Reference
from tests.otp.strategies import PIDS, REFERENCES, TERMS, exact

MANY = settings(max_examples=max(200, settings().max_examples))
A = Pid(5 << 32 | 77, "a@h", 1)
B = Pid(6 << 32 | 78, "b@h", 2)
REF = Reference("a@h", 1, (1, 2, 3))
NAME = Atom("locks_server")
TOKEN = (1, 2, 3, A, 4)  # of a trace
UNUSED = Atom("")

# The message, its control term, and what follows it.
FORMS: list[tuple[Any, tuple[Any, ...], list[Any]]] = [
    (Link(A, B), (1, A, B), []),
    (Send(B, [1]), (2, UNUSED, B), [[1]]),
    (Exit(A, B, Atom("normal")), (3, A, B, Atom("normal")), []),
    (RegSend(A, NAME, "x"), (6, A, UNUSED, NAME), ["x"]),
    (Exit2(A, B, ("why", 1)), (8, A, B, ("why", 1)), []),
    (MonitorP(A, B, REF), (19, A, B, REF), []),
    (MonitorP(A, NAME, REF), (19, A, NAME, REF), []),
    (DemonitorP(A, B, REF), (20, A, B, REF), []),
    (DemonitorP(A, NAME, REF), (20, A, NAME, REF), []),
    (MonitorPExit(A, B, REF, "why"), (21, A, B, REF, "why"), []),
    (MonitorPExit(NAME, B, REF, None), (21, NAME, B, REF, None), []),
    (SendSender(A, B, (1,)), (22, A, B), [(1,)]),
    (UnlinkId(2**64 - 1, A, B), (35, 2**64 - 1, A, B), []),
    (UnlinkIdAck(1, A, B), (36, 1, A, B), []),
]
# What is understood as well.
OTHER_FORMS: list[tuple[Any, tuple[Any, ...], list[Any]]] = [
    (Send(B, [1]), (2, 0, B), [[1]]),
    (Send(B, [1]), (12, UNUSED, B, TOKEN), [[1]]),
    (Exit(A, B, "why"), (13, A, B, TOKEN, "why"), []),
    (RegSend(A, NAME, "x"), (16, A, UNUSED, NAME, TOKEN), ["x"]),
    (RegSend(A, Atom("true"), "x"), (6, A, UNUSED, True), ["x"]),
    (Exit2(A, B, "why"), (18, A, B, TOKEN, "why"), []),
    (MonitorP(A, Atom("undefined"), REF), (19, A, None, REF), []),
    (SendSender(A, B, 1), (23, A, B, TOKEN), [1]),
    (Unsupported(7, (7, A, B)), (7, A, B), []),
    (Unsupported(33, (33, A, REF)), (33, A, REF), ["message"]),
    (Unsupported(24, (24, A, B)), (24, A, B), [Atom("reason")]),
    (Unsupported(-1, (-1,)), (-1,), []),
    (Unsupported(99, (99, {})), (99, {}), []),
]


def frame(term: Any, *more: Any) -> bytes:
    """A frame with any terms."""
    return b"p" + b"".join(map(encode, (term, *more)))


@pytest.mark.parametrize(("message", "term", "more"), FORMS)
def test_a_message_and_its_frame(message: Any, term: tuple[Any, ...], more: list[Any]) -> None:
    """Each message is packed as documented, and parsed to what it was."""
    assert message.pack() == frame(term, *more)
    assert exact(parse(message.pack())) == exact(message)


@pytest.mark.parametrize(("term", "more"), [(term, more) for _, term, more in FORMS])
def test_each_part_is_checked(term: tuple[Any, ...], more: list[Any]) -> None:
    """A part too few or too many, or of a type that can't be, is a fault of the peer."""
    with pytest.raises(DecodeError, match="too few or too many parts"):
        parse(frame(term[:-1], *more))
    with pytest.raises(DecodeError, match="too few or too many parts"):
        parse(frame((*term, A), *more))
    with pytest.raises(DecodeError, match=r"1 bytes follow|begins with the byte 131"):
        parse(frame(term, *more) + b"x")
    if more:
        with pytest.raises(DecodeError, match="cut off"):
            parse(frame(term))
    free = {2: {1}, 3: {3}, 6: {2}, 8: {3}, 21: {4}}.get(term[0], set())
    for place in set(range(1, len(term))) - free:
        wrong = (*term[:place], "text", *term[place + 1 :])
        with pytest.raises(DecodeError, match="wrong part"):
            parse(frame(wrong, *more))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "begins with b''"),
        (b"\x83h\0", "pass through"),
        (b"p", "cut off"),
        (frame(1), "must be a tuple with an operation"),
        (frame(()), "must be a tuple with an operation"),
        (frame((True, A, B)), "must be a tuple with an operation"),
        (frame(("1", A, B)), "must be a tuple with an operation"),
        (frame(A), "must be a tuple with an operation"),
        (frame((35, 0, A, B))[:-1], "cut off"),
        (frame((35, 1 << 64, A, B)), "wrong part"),
        (frame((36, 0, A, B)), "wrong part"),
        (frame((35, -1, A, B)), "wrong part"),
        (frame((99, A), 1, 2), "bytes follow"),
    ],
)
def test_what_is_no_control_message_says_why(data: bytes, message: str) -> None:
    """Whatever is wrong with a frame, the error says it."""
    with pytest.raises(DecodeError, match=message):
        parse(data)


# Mostly of a kind that stands in control messages.
PARTS = st.one_of(PIDS, REFERENCES, st.integers(-1, 40), st.just(NAME), TERMS)


@pytest.mark.slow
@MANY
@given(st.sampled_from([term for _, term, _ in FORMS + OTHER_FORMS]), st.data())
def test_parts_of_any_type_are_refused_or_right(term: tuple[Any, ...], data: st.DataObject) -> None:
    """With parts of any type there is a `DecodeError`, or a message that is packed to the same."""
    parts = [data.draw(PARTS) if data.draw(st.booleans()) else part for part in term[1:]]
    more = data.draw(st.lists(PARTS, max_size=2))
    check_parsing(frame((term[0], *parts), *more))


@MANY
@given(st.sampled_from([frame(term, *more) for _, term, more in FORMS]), st.data())
def test_damaged_frames_are_refused_and_nothing_else(good: bytes, data: st.DataObject) -> None:
    """A frame with bytes changed, lost or added gives a `DecodeError`, or another message."""
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(damaged)))
        cut = data.draw(st.integers(0, 3))
        damaged[place : place + cut] = data.draw(st.binary(max_size=3))
    check_parsing(bytes(damaged))


def check_parsing(data: bytes) -> None:
    """Parse; a message that comes of it can be packed, and is the same when it is parsed again."""
    try:
        message = parse(data)
    except DecodeError:
        return
    if isinstance(message, Unsupported):
        assert message.operation not in {term[0] for _, term, _ in FORMS}
    else:
        assert exact(parse(message.pack())) == exact(message)


HERE, THERE, ELSEWHERE = "a@h", "b@h", "c@h"
MINE, THEIRS, OTHERS = (Pid(1, node, 1) for node in (HERE, THERE, ELSEWHERE))
REF = Reference(THERE, 1, (1,))
IN_ANOTHERS_NAME = [
    control.RegSend(OTHERS, Atom("name"), 1),
    control.SendSender(OTHERS, MINE, 1),
    control.SendSender(THEIRS, OTHERS, 1),
    control.Send(OTHERS, 1),
    control.Link(OTHERS, MINE),
    control.Exit(OTHERS, MINE, "killed"),
    control.Exit2(OTHERS, MINE, "killed"),
    control.Exit2(MINE, MINE, "killed"),
    control.UnlinkId(1, OTHERS, MINE),
    control.MonitorP(OTHERS, MINE, REF),
    control.MonitorP(THEIRS, OTHERS, REF),
    control.DemonitorP(OTHERS, Atom("name"), REF),
    control.MonitorPExit(OTHERS, MINE, REF, "noproc"),
    control.MonitorPExit(THEIRS, OTHERS, REF, "noproc"),
]


@pytest.mark.parametrize("message", IN_ANOTHERS_NAME, ids=lambda m: type(m).__name__)
def test_a_node_speaks_for_itself(message: Any) -> None:
    """What comes from a process of another node than the one that sends it, or is for one, is refused."""
    with pytest.raises(
        control.BadMessage, match=r"b@h sent a message of a process of|was sent to a@h"
    ):
        control.check_ends(message, THERE, HERE)
    own = [
        THEIRS if name == "sender" else MINE if type(part) is Pid else part
        for name, part in zip(message._fields, message, strict=True)
    ]
    control.check_ends(type(message)(*own), THERE, HERE)
