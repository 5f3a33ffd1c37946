"""Frames: whatever the pieces in which bytes come, the bodies are those that were sent."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locks.net import frames as module
from locks.net.frames import HEARTBEAT, Frames, frame
from tests.helpers import lines_of

LIMIT = 300
bodies = st.lists(st.binary(max_size=LIMIT), max_size=8)


def _fed(data: bytes, cuts: list[int]) -> tuple[list[bytes], Frames]:
    """The bodies in some bytes, cut at these places."""
    frames, found = Frames(LIMIT), []
    places = [0, *sorted(cuts), len(data)]
    for begin, end in itertools.pairwise(places):
        assert end == len(data) or frames.missing > 0
        found += frames.add(data[begin:end])
    return found, frames


@given(bodies, st.lists(st.integers(0, 3000), max_size=20))
def test_cut_anywhere_and_joined_anywhere(sent: list[bytes], cuts: list[int]) -> None:
    """Each body once, in order; heartbeats are left out."""
    data = b"".join(map(frame, sent))
    found, frames = _fed(data, [cut % (len(data) + 1) for cut in cuts])
    assert found == [body for body in sent if body]
    assert frames.missing == 4
    assert frames.too_long is None


@given(bodies)
@settings(max_examples=30)
def test_byte_by_byte(sent: list[bytes]) -> None:
    """A frame is there with its last byte and not before; until then what it lacks is known."""
    frames = Frames(LIMIT)
    for body in sent:
        whole = frame(body)
        for number, byte in enumerate(whole[:-1], 1):
            assert frames.add(bytes([byte])) == []
            assert frames.missing == (len(whole) if number >= 4 else 4) - number
        assert frames.add(whole[-1:]) == ([body] if body else [])


def test_cut_once_at_each_byte() -> None:
    """Two pieces, of every size."""
    sent = [b"one", b"", b"x" * LIMIT, b"y"]
    data = b"".join(map(frame, sent))
    for cut in range(len(data) + 1):
        assert _fed(data, [cut])[0] == [body for body in sent if body], cut


@given(bodies, st.integers(LIMIT + 1, 2**32 - 1), st.binary(), st.lists(st.integers(0, 3000)))
def test_nothing_behind_a_frame_that_is_too_long(
    sent: list[bytes], size: int, more: bytes, cuts: list[int]
) -> None:
    """All before it is there; the error names its size, as soon as that is known; nothing is kept."""
    data = b"".join(map(frame, sent)) + struct.pack(">I", size)
    found, frames = _fed(data, [cut % (len(data) + 1) for cut in cuts])
    assert found == [body for body in sent if body]
    assert frames.too_long == f"it sent a frame of {size} bytes; the limit is {LIMIT}"
    assert frames.add(more) == []
    assert not frames._begun


@given(st.lists(st.binary(max_size=100), max_size=50))
def test_any_bytes(pieces: list[bytes]) -> None:
    """Never an exception, and no more is kept than one frame."""
    frames = Frames(LIMIT)
    for piece in pieces:
        for body in frames.add(piece):
            assert 0 < len(body) <= LIMIT
        assert len(frames._begun) <= LIMIT + 4


def test_a_long_frame_in_small_pieces_costs_no_more_for_each() -> None:
    """Not what came before, again and again."""
    costs = []
    for size in (1000, 100_000):
        frames = Frames(size)
        frames.add(struct.pack(">I", size) + bytes(size - 20))
        costs.append(lines_of(lambda frames=frames: frames.add(b"x"), module))  # type: ignore[misc]
    assert costs[0] == costs[1]


@pytest.mark.parametrize("body", [b"", b"x", b"x" * 70_000])
def test_a_frame_is_the_length_and_the_body(body: bytes) -> None:
    """An empty one is a heartbeat."""
    assert frame(body) == struct.pack(">I", len(body)) + body
    assert (frame(body) == HEARTBEAT) == (not body)
