"""The frames: each arrives as it was sent, in the bytes that it always had, and nothing else is one."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from locks.core.messages import Request
from locks.model import AgentId
from locks.net import messages
from locks.net.messages import (
    BadMessage,
    Call,
    Frame,
    StrangeMessage,
    StrangeQuestion,
    ToAgent,
    ToServer,
    decode,
    encode,
)
from locks.ranges import Message, replace
from tests.helpers import EXPLORE, SEED
from tests.net.made import Maker

GOLDEN = Path(__file__).parent / "golden.json"
TIMES = 1000 if EXPLORE else 40
BYTES = 10_000_000 if EXPLORE else 100_000
WITHIN = {ToServer: messages.FromAgent, ToAgent: messages.AgentMessage, Call: messages.AnyQuestion, messages.Reply: messages.AnyAnswer}  # fmt: skip


def every_kind(seed: int) -> list[Any]:
    """One frame of each kind; of those with a message of a union within, one with each."""
    made: list[Any] = []
    for kind in get_args(Frame):
        maker = Maker(seed)
        if kind not in WITHIN:
            made.append(maker.struct(kind))
            continue
        name = kind.__struct_fields__[-1]
        made += [
            maker.struct(kind, **{name: maker.struct(each)}) for each in get_args(WITHIN[kind])
        ]
    return made


def name_of(frame: Any) -> str:
    """The name of a frame, with that of the message in it."""
    last = getattr(frame, frame.__struct_fields__[-1]) if type(frame) in WITHIN else None
    return type(frame).__name__ + (f" {type(last).__name__}" if last is not None else "")


KINDS = [name_of(frame) for frame in every_kind(0)]


def test_each_kind_is_in_the_union() -> None:
    """What is told apart by its name has one of its own."""
    kinds = get_args(Frame)
    for names in (
        [each.__struct_config__.tag for each in kinds],
        [each.__name__ for each in kinds],
    ):
        assert len(set(names)) == len(kinds)


@pytest.mark.parametrize("at", range(len(KINDS)), ids=KINDS)
def test_a_frame_arrives_as_it_was_sent(at: int) -> None:
    """With whatever it has in its fields."""
    for seed in range(SEED, SEED + TIMES):
        frame = every_kind(seed)[at]
        assert decode(encode(frame)) == frame, seed


def test_the_bytes_of_each_kind() -> None:
    """They never change: programs of other versions read them. A new kind, or field at the end, is added to the file.

    To add one: delete the file, run this test, and look at what has changed.
    """
    now = {name_of(frame): encode(frame).hex() for frame in every_kind(7)}
    if not GOLDEN.exists():
        GOLDEN.write_text(json.dumps(now, indent=1) + "\n")
    known = json.loads(GOLDEN.read_text())
    assert [name for name in now | known if now.get(name) != known.get(name)] == []
    for frame in every_kind(7):
        assert decode(bytes.fromhex(known[name_of(frame)])) == frame


def _decoded(body: bytes) -> tuple[Frame | None, str]:
    """The frame in a body; or why there is none."""
    try:
        return decode(body), ""
    except BadMessage as error:
        return None, str(error)


def _wrong(value: Any, maker: Maker, path: list[int]) -> Any:
    """A decoded value in which one part is something else."""
    if type(value) is list and value and maker.random.random() < 0.8:
        at = maker.random.randrange(len(value))
        path.append(at)
        return [*value[:at], _wrong(value[at], maker, path), *value[at + 1 :]]
    wrongs = [
        None,
        True,
        -1,
        1.5,
        "x" * 2000,
        b"\xff",
        [],
        {},
        [[]],
        1 << 63,
        {"a": [1]},
        [1.5, {}],
    ]
    return maker.random.choice(wrongs)


@pytest.mark.parametrize("at", range(len(KINDS)), ids=KINDS)
def test_a_wrong_part_makes_it_no_frame_or_another_one(at: int) -> None:
    """It is refused in a few words, or is what is right, too; nothing else is raised, whatever is in it."""
    refused = 0
    for seed in range(SEED, SEED + TIMES):
        maker = Maker(seed)
        body = msgspec.msgpack.encode(
            _wrong(msgspec.msgpack.decode(encode(every_kind(seed)[at])), maker, [])
        )
        again, refusal = _decoded(body)
        if again is None:
            refused += 1
            assert len(refusal) < 1000
        else:
            assert decode(encode(again)) == again
    if every_kind(0)[at].__struct_fields__:
        assert refused


@pytest.mark.parametrize("at", range(len(KINDS)), ids=KINDS)
def test_fields_at_the_end_of_a_newer_program_are_ignored(at: int) -> None:
    """In the frame, and in what is in it."""
    frame = every_kind(3)[at]
    parts = msgspec.msgpack.decode(encode(frame))
    assert decode(msgspec.msgpack.encode([*parts, "new", 7])) == frame
    if type(frame) in WITHIN:
        assert decode(msgspec.msgpack.encode([*parts[:-1], [*parts[-1], {"new": 1}]])) == frame


def test_fields_that_an_older_program_lacks_have_their_defaults() -> None:
    """Whoever does not say that a request is spare asks for one that is not."""
    request = Request(AgentId(7, "a@x", 7), "ann", ("a",), "read")
    parts = msgspec.msgpack.decode(encode(ToServer(request)))
    assert decode(msgspec.msgpack.encode([parts[0], parts[1][:5]])) == ToServer(request)
    with pytest.raises(BadMessage):
        decode(msgspec.msgpack.encode([parts[0], parts[1][:4]]))


def test_what_is_of_an_unknown_kind_is_strange() -> None:
    """A frame, a message and a question; of the last one it is known which call it was."""
    strange: list[Any] = [
        ["new"],
        ["new", 1, {"a": [2]}],
        ["toserver", ["new", 7]],
        ["toagent", 7, ["new"]],
        ["reply", 7, ["new", 1, 2]],
    ]
    for frame in strange:
        with pytest.raises(StrangeMessage, match=r"there is no .*'new'"):
            decode(msgspec.msgpack.encode(frame))
    with pytest.raises(StrangeQuestion) as asked:
        decode(msgspec.msgpack.encode(["call", 7, ["new"]]))
    assert asked.value.number == 7


@pytest.mark.parametrize("body", [b"", b"\x90", b"\x91\x01", b"\xc1", b"\x91" * 100_000, b"p\x83", b"\xdd\xff\xff\xff\xff"])  # fmt: skip
def test_what_is_no_frame(body: bytes) -> None:
    """It is refused with a short reason, and is nothing strange."""
    with pytest.raises(BadMessage) as error:
        decode(body)
    assert not isinstance(error.value, StrangeMessage)
    assert len(str(error.value)) < 500


def test_random_bytes_are_refused() -> None:
    """Whatever arrives, and right frames with a byte that is another one: a frame, or `BadMessage`."""
    chance = random.Random(SEED)
    frames = [encode(frame) for frame in every_kind(5)]
    done = 0
    while done < BYTES:
        body = bytearray(chance.choice(frames))
        if chance.random() < 0.5:
            body = bytearray(chance.randbytes(chance.randrange(1, 60)))
        for _ in range(chance.randrange(1, 4)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        done += len(body)
        try:
            decode(bytes(body))
        except BadMessage:
            continue


IDS = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8) | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)  # fmt: skip


@given(st.lists(IDS, min_size=1, max_size=4).map(tuple))
def test_every_lock_id_arrives_as_it_is(lock_id: Any) -> None:
    """With the types of all its elements."""
    if lock_id[0] == "$held up":
        return
    frame = messages.Read(1, lock_id)
    again = decode(encode(frame))
    assert isinstance(again, messages.Read)
    assert repr(again.lock_id) == repr(lock_id)


@pytest.mark.parametrize(
    "lock_id",
    [[], "a", 7, None, [{}], [[[]], {"a": 1}], ["$held up", "a@x", 1, 2], ["$held up"], [["$units", 3]], [float("nan")], ["x" * 70_000], [1] * 300],
    ids=lambda each: repr(each)[:30],
)  # fmt: skip
def test_what_is_no_lock_id_is_refused(lock_id: Any) -> None:
    """What no program could lock; also what only stands for a wait."""
    with pytest.raises(BadMessage):
        decode(msgspec.msgpack.encode(["read", 1, lock_id]))


# --- Two programs of different versions ----------------------------------------------------------


class Newer(Request, frozen=True, tag="request"):
    """What a request may be in a later version."""

    patience: float = 1.0


class FromNewer(Message, frozen=True, tag="toserver"):
    """How it is sent there."""

    message: Newer


def test_a_newer_and_an_older_program_understand_each_other() -> None:
    """The same source, with a field more at the end of a message: each takes in what the other one says."""

    new = Newer(AgentId(7, "a@x", 7), "ann", ("a",), "read", spare=True, patience=2.5)
    old = decode(encode(FromNewer(new)))
    assert old == ToServer(Request(AgentId(7, "a@x", 7), "ann", ("a",), "read", spare=True))
    back = messages.decode_part(encode(old), FromNewer).message
    assert (back.spare, back.patience, back.client) == (True, 1.0, "ann")
    assert replace(back, patience=2.5) == new


FORGED = "x\n2026-11-26 03:00:00 WARNING locks.nodes forged \x1b[31m"
AGENT = AgentId(1 << 40, "a@x", 0)


@pytest.mark.parametrize(
    "frame",
    [
        ToServer(Request(AGENT, FORGED, ("a",), "write")),
        Call(1, messages.Refusal(FORGED)),  # type: ignore[arg-type]
    ],
)
def test_what_a_person_reads_arrives_in_one_line(frame: Any) -> None:
    """Whoever sends it gives no orders to terminals, and forges no lines of logs; what is asked for is as it was."""
    if isinstance(frame, ToServer):
        found = decode(encode(frame))
        assert isinstance(found, ToServer)
        assert isinstance(found.message, Request)
        text = found.message.client
    else:
        text = messages.decode_part(encode(frame.question), messages.Refusal).why
    assert text == "x\\n2026-11-26 03:00:00 WARNING locks.nodes forged \\x1b[31m"
    long = ToServer(Request(AGENT, "\x1b" * 1000, ("a",), "write"))
    assert decode(encode(decode(encode(long))))
    with pytest.raises(BadMessage, match="at most 1000 characters"):
        decode(encode(ToServer(Request(AGENT, "x" * 1001, ("a",), "write"))))


@pytest.mark.parametrize("kind", ["new", "toserver", "call"])
def test_what_is_of_an_unknown_kind_is_not_made(kind: str) -> None:
    """It might take far more memory than its bytes, and seconds."""
    rest = b"\xdd" + (10**6).to_bytes(4, "big") + b"\x90" * 10**6
    inner = b"\x92" + encode("newer") + rest
    fields = [*([b"\x07"] if kind == "call" else []), inner, b"\xc0"]
    body = bytes([0x91 + len(fields)]) + encode(kind) + b"".join(fields)
    tracemalloc.start()
    with pytest.raises(StrangeMessage):
        decode(body)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100_000
