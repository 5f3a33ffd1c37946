"""What a link sends: each byte once, in order, whatever the socket takes and whatever comes up meanwhile. What it takes in, and in which order."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import gevent
import pytest

from locks.core.messages import Release, Remove, Request
from locks.core.server.machine import ServerMachine
from locks.model import AgentId, LockId
from locks.net.hello import Peer
from locks.otp.bytes import etf
from locks.otp.bytes.behaviours import CAST
from locks.otp.bytes.control import MonitorP
from locks.otp.bytes.frames import Reader as Frames
from locks.otp.bytes.frames import pack_reg_send
from locks.otp.bytes.terms import Atom, Pid, Reference
from locks.otp.links.backlog import LARGE
from locks.otp.links.budgets import SLICE, Pace
from locks.otp.links.line import Line
from locks.otp.links.link import GoOn, Link
from locks.wire.messages import pack, unpack_to_server
from locks.wire.urgency import kind_of
from tests.helpers import LIMIT as LIMIT_SECONDS
from tests.helpers import eventually
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


def _link(sock: Any, turn: Any, on_frame: Any = lambda link, frame: None) -> Link:
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
        on_frame=on_frame,
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


# --- What is received ---------------------------------------------------------------------------


class AtOnce:
    """Stands for a node's turn: does all at once; what is posted too.

    Attributes:
        posted: What was posted.
    """

    def __init__(self) -> None:
        self.posted: list[tuple[Any, ...]] = []

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Take the turn."""
        return function(*args)

    run_surely = run

    def post(self, function: Callable[..., Any], *args: Any) -> None:
        """Have something done."""
        self.posted.append((function, *args))
        function(*args)


class Reader:
    """A link of which each frame takes a slice, one end of a socket, and what is taken in of what comes to it.

    Args:
        line: Where it stands with others.
        name: Its node.
        parts: How many steps a large frame takes.
    """

    def __init__(
        self, line: Line, name: str = "other@host", parts: int = 20, tls: Any = None
    ) -> None:
        self.there, here = socket.socketpair()
        here.setblocking(False)
        self.there.settimeout(LIMIT_SECONDS)
        self.taken: list[bytes] = []
        self.lost: list[str] = []
        self.parts = parts
        self.begin: Callable[[], object] = lambda: None  # when a large frame is begun
        self.turn = AtOnce()
        self.do: Callable[[bytes], object] = lambda frame: None
        self.link = Link(
            Peer(name, 1, 0),
            here,
            address=("127.0.0.1", 1),
            hub=gevent.get_hub(),
            turn=self.turn,  # type: ignore[arg-type]
            tls=tls,
            ticktime=60.0,
            frame_limit=LIMIT,
            send_limit=LIMIT,
            on_frame=self._take,
            on_lost=lambda link, reason: self.lost.append(reason),
            unsent=[],
            line=line,
        )

    def _take(self, link: Link, frame: bytes) -> GoOn | None:
        if len(frame) <= LARGE:
            return self._step(frame, 1)
        self.begin()
        return self._step(frame, self.parts)

    def _step(self, frame: bytes, left: int) -> GoOn | None:
        until = time.perf_counter() + SLICE
        while time.perf_counter() < until:
            pass
        if left > 1:
            return partial(self._step, frame, left - 1)
        self.taken.append(frame)
        self.do(frame)
        return None

    def until(self, count: int) -> None:
        """Let the hub go on until so many frames were taken in."""
        eventually(lambda: len(self.taken) >= count)


@pytest.fixture
def line() -> Line:
    """A line of links."""
    return Line(Pace(), kind_of)


@pytest.fixture
def reader(line: Line) -> Iterator[Reader]:
    """A link that is read from."""
    made = Reader(line)
    yield made
    made.link.dispose()
    made.there.close()


def _cast(message: Any) -> bytes:
    """The frame of an agent's message to the lock server."""
    return pack_reg_send(Pid(1, "p@h", 7), Atom("locks_server"), etf.encode((CAST, pack(message))))


def _agent(number: int) -> AgentId:
    return AgentId(number << 12, "p@h", 0)


def _request(number: int, lock_id: LockId = ("hot",)) -> Request:
    return Request(_agent(number), "client", lock_id, "write")


@pytest.mark.parametrize("urgent", [Remove(_agent(1)), Release(_agent(1), ("hot",))])
def test_a_release_is_served_before_500_requests_that_are_not_read(
    reader: Reader, urgent: Any
) -> None:
    """At a real lock server: the holder's release or end comes behind 500 requests of its node, and the next one has the lock early."""
    server = ServerMachine("s@h")

    def take(frame: bytes) -> None:
        server.handle(unpack_to_server(Frames("s@h").parse(frame).message[1], "p@h"))  # type: ignore[union-attr]

    reader.do = take
    requests = [_request(number) for number in range(2, 502)]
    messages = [_request(1), *requests, urgent, _request(1, ("cold",))]
    sent = [_cast(message) for message in messages]
    reader.link.start()
    sender = gevent.get_hub().threadpool.spawn(reader.there.sendall, b"".join(map(_frame, sent)))
    reader.until(100)
    at = reader.taken.index(sent[501])
    assert 1 <= at < 250
    assert server.view(("hot",)).requests[0].granted
    assert server.view(("hot",)).requests[0].agent == _agent(2)
    reader.until(len(sent))
    sender.get()
    assert sorted(reader.taken) == sorted(sent)
    assert [frame for frame in reader.taken if frame != sent[501]] == sent[:501] + sent[502:]


@pytest.mark.parametrize("seed", range(5))
def test_all_frames_are_taken_in_once_and_each_agents_in_order(reader: Reader, seed: int) -> None:
    """Small and large ones, cut anywhere, while others were not read; then the end of the connection, after all of them."""
    draw = random.Random(seed)
    sent = []
    for number in range(150):
        agent = _agent(draw.randrange(1, 6))
        lock_id = ("id", number, *(["x" * 5000] if draw.random() < 0.05 else []))
        kinds = [Request(agent, "c", lock_id, "read"), Release(agent, lock_id), Remove(agent)]
        sent.append(_cast(draw.choice(kinds)) if draw.random() < 0.9 else _monitor(number))
    data = b"".join(map(_frame, sent))
    reader.link.start(data[: (cut := draw.randrange(len(data)))])
    while cut < len(data):
        gevent.sleep(0)
        size = draw.choice([1, 100, 10_000])
        reader.there.send(data[cut : cut + size])
        cut += size
    reader.there.close()
    reader.until(len(sent))
    eventually(lambda: reader.lost)
    assert reader.lost == ["the other node closed the connection"]
    assert sorted(reader.taken) == sorted(sent), f"seed {seed}"
    for sender in {kind_of(frame) and kind_of(frame)[0] for frame in sent}:  # type: ignore[index]

        def of_it(frame: bytes, sender: bytes | None = sender) -> bool:
            kind = kind_of(frame)
            return kind is None or kind[0] == sender

        assert list(filter(of_it, reader.taken)) == list(filter(of_it, sent)), f"seed {seed}"


def _monitor(number: int) -> bytes:
    return MonitorP(
        Pid(number, "p@h", 7), Atom("locks_server"), Reference("p@h", 7, (number, 0, 0))
    ).pack()


class Reversing:
    """Stands for TLS: each byte the other way round, and nothing of a piece before it is whole."""

    def decrypt(self, data: bytes) -> bytes:
        """What was encrypted."""
        return bytes(255 - each for each in data)


def test_tls_is_no_different(line: Line) -> None:
    """What comes over TLS is looked at, and overtakes, in the same way."""
    reader = Reader(line, tls=Reversing())
    sent = [_cast(_request(number)) for number in range(1, 300)]
    remove = _cast(Remove(_agent(1000)))
    reader.link.start()
    data = b"".join(map(_frame, [*sent, remove]))
    reader.there.sendall(bytes(255 - each for each in data))
    reader.until(300)
    assert reader.taken.index(remove) <= 50
    assert [frame for frame in reader.taken if frame != remove] == sent
    reader.link.dispose()


def test_a_turn_that_fails_loses_the_link(reader: Reader) -> None:
    """What was read with it is lost, so nothing behind it may be taken in."""

    def fail(frame: bytes) -> None:
        if frame == b"two":
            raise Interrupted

    reader.do = fail
    hub = gevent.get_hub()
    told, hub.print_exception = hub.print_exception, lambda *_: None  # type: ignore[method-assign]
    errors, hub.handle_error = hub.handle_error, lambda *_: None  # type: ignore[method-assign]
    try:
        reader.link.start(b"".join(map(_frame, [b"one", b"two", b"three"])))
        eventually(lambda: reader.lost)
    finally:
        hub.print_exception, hub.handle_error = told, errors  # type: ignore[method-assign]
    assert reader.taken == [b"one", b"two"]
    assert reader.lost == ["handling a received message failed: Interrupted()"]


def test_links_that_have_input_are_served_in_turns(line: Line) -> None:
    """None is idle while it has input, none is served twice while another one waits, and who comes with little is served at once."""
    order: list[str] = []
    readers = {name: Reader(line, name) for name in ("a@h", "b@h", "little@h")}
    for name, each in readers.items():
        each.do = lambda frame, name=name: order.append(name)  # type: ignore[misc]
        each.link.start()
    for name in ("a@h", "b@h"):
        readers[name].there.sendall(_frame(b"x" * 100) * 200)
    readers["a@h"].until(20)
    readers["little@h"].there.sendall(_frame(b"y"))
    begun = len(order)
    readers["little@h"].until(1)
    assert len(order) - begun <= 6
    for name in ("a@h", "b@h"):
        readers[name].until(200)
    both = [name for name in order if name != "little@h"]
    ahead = [both[:at].count("a@h") - both[:at].count("b@h") for at in range(100, 300)]
    assert (
        max(ahead) - min(ahead) <= 60
    )  # as the machine's own noise has it: a slice takes as long as it takes
    for each in readers.values():
        each.link.dispose()
        each.there.close()
