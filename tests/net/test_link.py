"""Links without sockets: two ends joined by bytes, which a test moves as it likes; and the order in which a hub serves links."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import gevent
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locks.net.frames import HEARTBEAT, frame
from locks.net.hello import Peer
from locks.net.link import FULL, LITTLE, READ, READ_MOST, Link, Traffic
from tests.helpers import eventually
from tests.torture.tracing import Tracer, trace

LIMIT = 100_000


class Interrupted(BaseException):
    """What comes up at any instruction."""


def _interrupt() -> None:
    raise Interrupted


class Watcher:
    """Stands for a hub's watcher."""

    def __init__(self) -> None:
        self.act: Callable[[], object] | None = None

    def start(self, act: Callable[..., object], *args: Any) -> None:
        self.act = partial(act, *args)

    def stop(self) -> None:
        self.act = None

    close = stop


class Hub:
    """Stands for a hub: a test calls what waits in it. `watchers` has those for reading and for writing."""

    def __init__(self) -> None:
        self.loop = self
        self.thread_ident = 0  # of no thread
        self.soon: list[Callable[[], object]] = []
        self.watchers: dict[int, Watcher] = {}

    def run_callback_threadsafe(self, function: Callable[..., object], *args: Any) -> None:
        self.soon.append(lambda: function(*args))

    def io(self, _: int, events: int) -> Watcher:
        self.watchers[events] = made = Watcher()
        return made

    def fire(self, events: int) -> bool:
        """Call what waits for reading (1), or for writing (2), if there is something."""
        while self.soon:
            self.soon.pop(0)()
        watcher = self.watchers.get(events)
        if watcher is None or watcher.act is None:
            return False
        watcher.act()
        while self.soon:
            self.soon.pop(0)()
        return True


class Turn:
    """Stands for a node's turn: what is posted comes at its end.

    Attributes:
        count: How many there were.
        then: Called at the end of each: the links' output is written there.
    """

    def __init__(self) -> None:
        self.count = 0
        self.then: Callable[[], object] = lambda: None
        self._posted: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._on = False

    def run(self, function: Callable[..., object], *args: Any) -> None:
        self.count += 1
        self._on = True
        try:
            function(*args)
            self.then()
        finally:
            self._on = False
        self._catch_up()

    run_surely = run

    def post(self, function: Callable[..., object], *args: Any) -> None:
        self._posted.append((function, args))
        if not self._on:
            self._catch_up()

    def _catch_up(self) -> None:
        while self._posted:
            function, args = self._posted.pop(0)
            function(*args)


class Socket:
    """Stands for a socket.

    Attributes:
        takes: How many bytes it takes, the next times; none after that. `None`: all, always.
        sent: What it has taken.
        input: What can be read, and whether the other side has closed.
        asked: How many bytes were to be read, each time.
    """

    def __init__(self) -> None:
        self.takes: list[int] | None = None
        self.sent = bytearray()
        self.input = bytearray()
        self.ended: type[Exception] | None = None
        self.asked: list[int] = []
        self.closed = False

    def fileno(self) -> int:
        return 7

    def send(self, data: bytearray) -> int:
        if self.takes is not None and not self.takes:
            raise BlockingIOError
        size = len(data) if self.takes is None else min(self.takes.pop(0), len(data))
        self.sent += data[:size]
        return size

    def recv(self, size: int) -> bytes:
        self.asked.append(size)
        if not self.input:
            if self.ended is None:
                raise BlockingIOError
            if self.ended is not EOFError:
                raise self.ended("gone")
        found = bytes(self.input[:size])
        del self.input[:size]
        return found

    def close(self) -> None:
        self.closed = True


class Reversing:
    """Stands for TLS: each byte the other way round."""

    def __init__(self) -> None:
        self._out = b""

    def encrypt(self, data: bytes | bytearray) -> None:
        self._out += bytes(255 - each for each in data)

    def outgoing(self) -> bytes:
        found, self._out = self._out, b""
        return found

    def decrypt(self, data: bytes) -> bytes:
        return bytes(255 - each for each in data)


class End:
    """One end: a link, and what comes of it.

    Attributes:
        events: The bodies that it took in, and then the reason of its loss.
        do: Called with each body.
    """

    def __init__(self, tls: bool = False, send_limit: int = LIMIT, hub: Any = None) -> None:
        self.hub = Hub() if hub is None else hub
        self.turn = Turn()
        self.socket: Any = Socket()
        self.events: list[bytes | str] = []
        self.do: Callable[[bytes], object] = lambda body: None
        self.traffic = Traffic()
        self.unsent: dict[Link, None] = {}
        self.link = self._new_link(Reversing() if tls else None, send_limit)
        self.turn.then = self.flush

    def _new_link(self, tls: Any, send_limit: int) -> Link:
        turn: Any = self.turn
        return Link(
            Peer("other@host", 1, 0),
            self.socket,
            address=("127.0.0.1", 1),
            hub=self.hub,
            turn=turn,
            tls=tls,
            ticktime=60.0,
            frame_limit=LIMIT,
            send_limit=send_limit,
            on_frame=self._take,
            on_lost=lambda link, reason: self.events.append(reason),
            unsent=self.unsent,
            traffic=self.traffic,
        )

    def _take(self, link: Link, body: bytes) -> None:
        self.events.append(body)
        self.do(body)

    def flush(self) -> None:
        """What a turn does at its end."""
        for link in list(self.unsent):
            link.flush()
            del self.unsent[link]

    def send(self, *bodies: bytes) -> None:
        """Send frames in a turn."""
        self.turn.run(lambda: list(map(self.link.send, bodies)))

    def read(self) -> None:
        """Read all that is there."""
        while self.socket.input and self.link.closed is None:
            assert self.hub.fire(1)


# --- What is sent ---------------------------------------------------------------------------------


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_whatever_part_the_socket_takes_each_byte_goes_out_once_and_in_order(
    seed: int, tls: bool
) -> None:
    """Frames that come while others wait are sent after them; none is lost, and none is sent twice."""
    draw = random.Random(seed)
    end = End(tls)
    sent = b""
    for _ in range(50):
        end.socket.takes = [draw.randrange(1, 400) for _ in range(draw.randrange(3))]
        end.hub.fire(2)
        bodies = [draw.randbytes(draw.randrange(1, 300)) for _ in range(draw.randrange(3))]
        sent += b"".join(map(frame, bodies))
        end.send(*bodies)
        assert end.link.waiting == len(sent) - len(end.socket.sent)
    while end.link.waiting:
        end.socket.takes = [100]
        assert end.hub.fire(2)
    assert not end.hub.fire(2), "nothing waits until the socket takes more"
    plain = bytes(255 - each for each in end.socket.sent) if tls else end.socket.sent
    assert plain == sent
    assert not end.events


@pytest.mark.parametrize("takes", [[1000], [5, 1000]], ids=["at once", "in parts"])
def test_what_is_cut_short_at_any_instruction_is_not_sent_twice(takes: list[int]) -> None:
    """An exception before any instruction of `send` and `flush`: a frame is there or not, and the rest is sent later."""

    def act(link: Link) -> None:
        link.send(b"two and more")
        link.flush()

    struck = 0
    for at in range(1000):
        end = End()
        end.socket.takes = list(takes)
        end.link.send(b"one")
        tracer = Tracer(at, _interrupt)
        try:
            trace(tracer, lambda end=end: act(end.link))  # type: ignore[misc]
        except Interrupted:
            struck += 1
        else:
            break
        end.link.send(b"three")
        for _ in range(3):
            end.socket.takes = [1000, 1000]
            end.link._unblock()
        expected = [[b"one", b"three"], [b"one", b"two and more", b"three"]]
        assert end.socket.sent in [b"".join(map(frame, each)) for each in expected], tracer.struck
        assert not end.link.waiting
    assert struck > 20  # else there was nothing to be seen


def test_interrupted_encryption_loses_the_link() -> None:
    """It is unknown what was encrypted, and the other side would not understand the rest."""
    end = End(tls=True)
    end.link.send(b"one")
    end.link._encrypting = True
    end.flush()
    assert end.events == ["writing failed: encryption was interrupted"]


def test_output_is_bounded() -> None:
    """Callers that can wait do from `FULL` bytes on, until hardly any are left; the rest may fill it to the limit, and no more."""
    end = End(send_limit=2 * FULL)
    end.socket.takes = []
    woken: list[str] = []
    end.send(bytes(FULL))
    assert end.link.is_full
    end.link.drained[lambda: woken.append("drained")] = None
    end.socket.takes = [FULL - LITTLE]
    end.hub.fire(2)
    assert not woken
    end.socket.takes = [4]
    end.hub.fire(2)
    assert woken == ["drained"]
    assert not end.link.is_full
    end.link.drained[lambda: woken.append("lost")] = None
    end.send(bytes(2 * FULL - end.link.waiting - 4))
    assert not end.events
    end.send(b"more")
    assert end.events == [
        f"the other node does not read: {2 * FULL + 8} bytes are waiting to be sent"
    ]
    assert woken == ["drained", "lost"]
    end.send(b"nothing is sent any more")
    assert end.link.waiting == 2 * FULL + 8


def test_a_heartbeat_goes_out_at_once_and_not_behind_what_waits() -> None:
    """What waits is a sign of life when it is read."""
    end = End()
    end.link.beat()
    assert end.socket.sent == HEARTBEAT
    assert end.traffic.sent == 0
    end.socket.takes = []
    end.send(b"two")
    end.link.beat()
    assert end.link.waiting == len(frame(b"two"))


# --- Two ends that are joined -----------------------------------------------------------------------

pieces = st.lists(st.integers(1, 200), max_size=30)
talk = st.lists(
    st.one_of(st.lists(st.binary(min_size=1, max_size=300), max_size=4), st.just("beat")),
    max_size=12,
)


@given(talk, talk, pieces, pieces, st.booleans())
@settings(max_examples=60)
def test_all_arrives_in_order(
    one: list[Any], other: list[Any], sizes: list[int], takes: list[int], tls: bool
) -> None:
    """Whatever the pieces in which bytes are taken and come, over TLS as well; heartbeats are heard, and nothing else."""
    ends = End(tls), End(tls)
    for end in ends:
        end.link.start()
        end.socket.takes = list(takes)
    for end, says in zip(ends, (one, other), strict=True):
        for each in says:
            end.link.beat() if each == "beat" else end.send(*each)
        while end.link.waiting:
            end.socket.takes = [50]
            end.hub.fire(2)
    for end, from_, says in ((ends[0], ends[1], other), (ends[1], ends[0], one)):
        data, heard = bytes(from_.socket.sent), 0
        for size in [*sizes, len(data)]:
            end.socket.input += data[:size]
            heard += size > 0 and bool(data)
            data = data[size:]
            end.read()
        assert end.events == [body for each in says if each != "beat" for body in each]
        assert end.link.heard >= heard
        assert end.traffic.received == len(end.events) == from_.traffic.sent
        assert end.traffic.bytes_received == from_.traffic.bytes_sent


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (EOFError, "the other node closed the connection"),
        (ConnectionResetError, "reading failed: gone"),
    ],
)
def test_a_connection_that_ends_at_any_byte(ended: type[Exception], said: str) -> None:
    """Whole frames or nothing, and the loss is told once, behind them."""
    bodies = [b"one", b"two", b"x" * 20]
    data = b"".join(map(frame, bodies))
    for cut in range(len(data) + 1):
        end = End()
        end.link.start()
        end.socket.input += data[:cut]
        end.read()
        end.socket.ended = ended
        end.hub.fire(1)
        whole = [
            body
            for at, body in enumerate(bodies, 1)
            if len(b"".join(map(frame, bodies[:at]))) <= cut
        ]
        assert end.events == [*whole, said]
        assert end.socket.closed
        assert not end.hub.fire(1)


def test_what_comes_with_the_hello_is_first() -> None:
    """It may be any part of frames."""
    data = b"".join(map(frame, [b"one", b"two", b"three"]))
    for cut in range(len(data) + 1):
        end = End(tls=True)
        end.link.start(data[:cut])
        end.socket.input += bytes(255 - each for each in data[cut:])
        end.hub.fire(1)
        assert end.events == [b"one", b"two", b"three"]


def test_frames_that_come_together_are_taken_in_in_one_turn() -> None:
    """Heartbeats, and parts of frames, need none."""
    end = End()
    end.link.start()
    for data, turns in (
        (frame(b"one") + frame(b"two") + frame(b"three")[:3], 1),
        (frame(b"three")[3:-1], 0),
        (frame(b"three")[-1:] + HEARTBEAT, 1),
        (HEARTBEAT, 0),
    ):
        before, heard = end.turn.count, end.link.heard
        end.link.silent = 5.0
        end.socket.input += data
        end.hub.fire(1)
        assert end.turn.count == before + turns
        assert end.link.heard == heard + 1
        assert end.link.silent == 0.0
    assert end.events == [b"one", b"two", b"three"]


def test_no_more_is_read_at_once_than_some_messages() -> None:
    """More only of a long frame, as its other parts can't be taken in before the last one."""
    end = End()
    end.link.start()
    end.socket.input += frame(b"x" * 100) * 1000 + frame(b"y" * 60_000) + frame(b"z" * 100) * 1000
    end.read()
    assert len(end.events) == 2001
    assert set(end.socket.asked[:20]) == {READ}
    assert sum(size > READ for size in end.socket.asked) == 1
    assert max(end.socket.asked) <= 60_000
    assert max(end.socket.asked) <= READ_MOST


# --- How it ends ------------------------------------------------------------------------------------


def test_who_loses_it_while_frames_are_taken_in_takes_in_no_more() -> None:
    """The loss comes after all that these frames say."""
    end = End()
    end.do = lambda body: end.link.lose("it sent nonsense") if body == b"two" else None
    end.turn.then = lambda: end.events.append("the end of the turn")
    end.link.start()
    end.socket.input += b"".join(map(frame, [b"one", b"two", b"three"]))
    end.hub.fire(1)
    assert end.events == [b"one", b"two", "the end of the turn", "it sent nonsense"]
    end.link.lose("again")
    assert len(end.events) == 4


def test_a_frame_that_is_too_long() -> None:
    """What was before it is taken in."""
    end = End()
    end.link.start()
    end.socket.input += frame(b"one") + bytes([1, 0, 0, 0]) + b"rest"
    end.hub.fire(1)
    assert end.events == [b"one", f"it sent a frame of {2**24} bytes; the limit is {LIMIT}"]


def test_a_turn_that_fails_loses_the_link() -> None:
    """What was read with it is lost, so nothing behind it may be taken in."""
    end = End()
    end.do = lambda body: _interrupt() if body == b"two" else None
    end.link.start()
    end.socket.input += b"".join(map(frame, [b"one", b"two", b"three"]))
    with pytest.raises(Interrupted):
        end.hub.fire(1)
    said = "handling a received message failed: Interrupted()"
    assert end.events == [b"one", b"two", said]


def test_what_is_cut_short_at_any_instruction_while_it_reads() -> None:
    """Each frame is taken in once and in order, or the link is lost."""
    struck = lost = 0
    bodies: list[bytes | str] = [b"one", b"two", b"three"]
    for at in range(1000):
        end = End()
        end.link.start()
        end.socket.input += frame(b"one")
        end.hub.fire(1)
        end.socket.input += frame(b"two")
        tracer = Tracer(at, _interrupt)
        try:
            trace(tracer, lambda end=end: end.link._serve(end.link._read))  # type: ignore[misc]
        except Interrupted:
            struck += 1
        else:
            break
        end.turn._on = False  # the real one mends itself
        end.turn._catch_up()
        end.socket.input += frame(b"three")
        if end.link.closed is None:
            end.read()
            assert end.events == bodies, tracer.struck
        else:
            lost += 1
            assert end.events[:-1] in ([b"one"], [b"one", b"two"]), tracer.struck
    assert struck > 20
    assert lost > 10


def test_a_child_leaves_it_to_its_parent() -> None:
    """It closes its own descriptor, and tells nobody."""
    end = End()
    end.link.start()
    end.hub.fire(1)
    end.link.leave_to_parent()
    assert end.socket.closed
    assert not end.events
    assert not end.hub.fire(1)


# --- The hub serves links in turn -------------------------------------------------------------------


class Real(End):
    """An end at a real hub, with a socket; `there` is the other one."""

    def __init__(self, name: str, order: list[str]) -> None:
        super().__init__(hub=gevent.get_hub())
        self.there, self.socket = socket.socketpair()
        self.there.setblocking(False)
        self.socket.setblocking(False)
        self.link = self._new_link(None, LIMIT)
        self.turn.then = lambda: order.append(name)
        self.link.start()

    def close(self) -> None:
        self.link.dispose()
        self.there.close()


def test_links_that_have_input_are_served_in_turn() -> None:
    """None is served twice while another one waits, and who comes with little is served with the next round."""
    order: list[str] = []
    ends = {name: Real(name, order) for name in ("a", "b", "c", "little")}
    gevent.sleep(0)
    for name in ("a", "b", "c"):
        ends[name].there.send(frame(b"x" * 100) * 800)
    eventually(lambda: len(order) >= 9)
    ends["little"].there.send(frame(b"y"))
    at = len(order)
    eventually(lambda: "little" in order)
    assert order.index("little") - at <= 2 * 3
    eventually(lambda: all(len(ends[name].events) == 800 for name in ("a", "b", "c")))
    flood = [name for name in order if name != "little"]
    for end in range(3, len(flood) - 3):
        counts = [flood[:end].count(name) for name in ("a", "b", "c")]
        assert max(counts) - min(counts) <= 2
    for each in ends.values():
        each.close()


def test_a_link_has_a_name() -> None:
    """For those who look at it."""
    end = End()
    assert repr(end.link) == "<Link to other@host>"
    end.link.lose("why not")
    assert repr(end.link) == "<Link to other@host closed>"
    assert end.link.closed == "why not"
