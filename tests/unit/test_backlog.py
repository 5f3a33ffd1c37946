"""What a link has received and was not taken in: nothing is lost or doubled, each sender keeps its order, what is urgent is first."""

from __future__ import annotations

import random
import struct

import pytest

from locks.otp.links.backlog import AHEAD, LARGE, NOBODY, Backlog, Kind

LIMIT = 100_000


def packed(*frames: bytes) -> bytes:
    """Frames as they come."""
    return b"".join(struct.pack(">I", len(frame)) + frame for frame in frames)


def kind_of(frame: bytes) -> Kind | None:
    """`u` at the beginning: urgent; then who has sent it: `-` for nobody, `!` for whom nothing is known."""
    sender = frame[1:2]
    if sender == b"!":
        return None
    return NOBODY if sender == b"-" else sender, frame[:1] == b"u"


def frames_of(seed: int, count: int, most: int = 300) -> list[bytes]:
    """Some frames, each another one."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        size = draw.choice([0, 5, most])
        head = draw.choice(b"uo").to_bytes(1, "big") + draw.choice(b"abc-!abcd").to_bytes(1, "big")
        made.append(head + b"%d " % number + draw.randbytes(size))
    return made


@pytest.mark.parametrize("seed", range(20))
def test_frames_come_out_as_they_came_in(seed: int) -> None:
    """However the bytes are cut, and whenever they are looked at: in order, each once, if nothing is urgent; ticks are left out at most."""
    draw = random.Random(seed)
    frames = frames_of(seed, 200, draw.choice([5, 3 * LARGE]))
    data = packed(*(each for frame in frames for each in ([b""] * draw.randrange(2) + [frame])))
    backlog = Backlog(LIMIT, lambda frame: None)
    found: list[bytes] = []
    while data or backlog.waits:
        if data and (backlog.room or not backlog.waits):
            size = draw.choice([1, 3, 100, 20_000])
            backlog.add(data[:size])
            data = data[size:]
        for _ in range(draw.randrange(3)):
            backlog.look_ahead()
        for _ in range(draw.randrange(20)):
            frame = backlog.next()
            if frame:
                found.append(frame)
    assert found == frames, f"seed {seed}"


@pytest.mark.parametrize("seed", range(50))
def test_each_sender_keeps_its_order(seed: int) -> None:
    """Urgent frames overtake those of others only, and nothing overtakes what has no known sender, nor is it overtaken by it."""
    draw = random.Random(seed)
    frames = frames_of(seed, 100)
    data = packed(*frames)
    backlog = Backlog(LIMIT, kind_of)
    found: list[bytes] = []
    while data or backlog.waits:
        if data and (backlog.room or not backlog.waits):
            size = draw.choice([10, 1000, 5000])
            backlog.add(data[:size])
            data = data[size:]
        while draw.random() < 0.7:
            backlog.look_ahead()
        for _ in range(draw.randrange(4)):
            frame = backlog.next()
            if frame:
                found.append(frame)
    assert sorted(found) == sorted(frames), f"seed {seed}"
    for sender in b"abcd":
        of_it = [each for each in frames if each[1] in (sender, ord("!"))]
        assert [each for each in found if each[1] in (sender, ord("!"))] == of_it, f"seed {seed}"
    place = {frame: at for at, frame in enumerate(found)}
    for at, frame in enumerate(frames):
        for later in frames[at + 1 :]:
            if not later.startswith(b"u"):  # only what is urgent overtakes anything
                assert place[frame] < place[later] or frame[1:2] != later[1:2] or frame[1:2] == b"-"


def test_a_release_overtakes_requests_of_others() -> None:
    """Of its own sender's it does not; and what is not urgent overtakes nothing, not even what stands ahead of all others."""
    requests = [b"oa", *(b"o-%d" % number for number in range(300))]
    backlog = Backlog(LIMIT, kind_of)
    backlog.add(packed(*requests, b"ua", b"ub", b"ob", b"uc", b"ub again"))
    assert backlog.next() == b"oa"
    while backlog.look_ahead():
        pass
    there = [backlog.next() for _ in range(len(requests) + 4)]
    assert there == [b"ua", b"ub", b"uc", *requests[1:], b"ob", b"ub again"]
    assert backlog.next() is None
    assert not backlog.waits


def test_what_is_large_is_not_urgent() -> None:
    """It is taken in in several parts, and nothing begins before it is done."""
    large = b"ua" + bytes(LARGE)
    backlog = Backlog(LIMIT, kind_of)
    backlog.add(packed(b"ob", large, b"uc"))
    backlog.look_ahead()
    assert [backlog.next() for _ in range(3)] == [b"uc", b"ob", large]


def test_only_so_much_is_read_ahead() -> None:
    """A peer that floods has as many bytes here as is allowed, small frames counted as what they take up."""
    backlog = Backlog(LIMIT, kind_of)
    size = 0
    while backlog.room:
        backlog.add(packed(*[b"oa"] * 100))
        assert not backlog.room  # not before all was looked at
        while backlog.look_ahead():
            pass
        size += 100
    assert size <= AHEAD / 100
    assert sum(1 for _ in iter(backlog.next, None)) == size


@pytest.mark.parametrize("piece", [1, 7, 10_000])
def test_a_frame_that_is_too_long_is_the_end(piece: int) -> None:
    """What comes before it is taken in, nothing behind it; and it is not gathered."""
    data = packed(b"oa", b"ob") + struct.pack(">I", LIMIT + 1) + packed(b"oc")
    backlog = Backlog(LIMIT, kind_of)
    found = []
    for at in range(0, len(data), piece):
        if backlog.too_long is None:
            backlog.add(data[at : at + piece])
        found += list(iter(backlog.next, None))
    assert found == [b"oa", b"ob"]
    assert backlog.too_long == f"it sent a frame of {LIMIT + 1} bytes; the limit is {LIMIT}"
    assert not backlog.waits
