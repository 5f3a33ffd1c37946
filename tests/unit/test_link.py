"""What a link sends: each byte once, in order, whatever the socket takes and whatever comes up meanwhile."""

from __future__ import annotations

import random
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from locks.otp.handshake import Peer
from locks.otp.link import Link
from tests.helpers import interpreted_only
from tests.torture.tracing import Tracer, trace

LIMIT = 100_000


class Sluggish:
    """A socket that takes as many bytes as it is told, each time something is sent.

    Attributes:
        taken: All that it has taken.
        takes: How many it takes, the next times; nothing more (`BlockingIOError`) after that.
    """

    def __init__(self, takes: list[int]) -> None:
        self.takes = takes
        self.taken = bytearray()

    def send(self, data: bytearray) -> int:
        """Take some."""
        if not self.takes:
            raise BlockingIOError
        size = min(self.takes.pop(0), len(data))
        self.taken += data[:size]
        return size


class Turns:
    """Stands for a node's turn: remembers what is posted."""

    def __init__(self) -> None:
        self.posted: list[tuple[Any, ...]] = []

    def post(self, *work: Any) -> None:
        """To be done later."""
        self.posted.append(work)


def _link(sock: Any, turn: Any) -> Link:
    return Link(
        Peer("other@host", 1, 0),
        sock,
        address=("127.0.0.1", 1),
        hub=SimpleNamespace(loop=None),
        turn=turn,
        tls=None,
        ticktime=60.0,
        frame_limit=LIMIT,
        send_limit=LIMIT,
        on_frame=lambda link, frame: None,
        on_lost=lambda link, reason: None,
        unsent=[],
    )


def _frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


@pytest.mark.parametrize("seed", range(20))
def test_whatever_part_the_socket_takes_each_byte_goes_out_once_and_in_order(seed: int) -> None:
    """Frames that come while others wait are sent after them; none is lost, and none is sent twice."""
    draw = random.Random(seed)
    sock = Sluggish([])
    turn = Turns()
    link = _link(sock, turn)
    sent = b""
    for _ in range(50):
        for _ in range(draw.randrange(3)):
            body = draw.randbytes(draw.randrange(1, 300))
            sent += _frame(body)
            link.send(body)
        sock.takes[:] = [draw.randrange(1, 400) for _ in range(draw.randrange(3))]
        link._unblock()  # what the watcher does that waits until the socket takes more
        assert link.waiting == len(sent) - len(sock.taken)
    while link.waiting:
        sock.takes[:] = [100]
        link._unblock()
    assert sock.taken == sent, f"seed {seed}"
    assert not turn.posted


@pytest.mark.parametrize("takes", [[1000], [5, 1000]], ids=["at once", "in parts"])
def test_what_is_cut_short_at_any_instruction_is_not_sent_twice(takes: list[int]) -> None:
    """An exception before any instruction of `flush` leaves the link such that the next `flush` sends the rest."""
    interpreted_only()
    struck = 0
    for at in range(1000):
        sock = Sluggish(list(takes))
        link = _link(sock, Turns())
        bodies = [b"one", b"two and more"]
        for body in bodies:
            link.send(body)
        tracer = Tracer(at, _interrupt)
        try:
            trace(tracer, link.flush)
        except Interrupted:
            struck += 1
        else:
            break
        sock.takes[:] = [1000, 1000]
        link.send(b"three")
        link._unblock()
        link._unblock()
        expected = b"".join(map(_frame, [*bodies, b"three"]))
        assert sock.taken == expected, tracer.struck and tracer.struck.where
        assert not link.waiting
    assert struck > 20  # else there was nothing to be seen


class Interrupted(BaseException):
    """What comes up."""


def _interrupt() -> None:
    raise Interrupted
