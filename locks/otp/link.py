"""One connection to another node, after the handshake.

A link belongs to a node's turn: all its methods run in it, in any thread. What is sent is gathered,
and written by `flush` when the turn ends, straight to the socket and without blocking. What the socket
does not take is kept, up to a bound, and written when it can be. A peer that does not read costs no
more than that: past the bound the link is lost, as with a busy distribution port of Erlang.

What is received is taken in for a moment, a *slice*, in a turn; if there is more, the other links are served
first (`locks.otp.budgets.Pace`), and nothing is read meanwhile. So a peer that floods this node waits for
itself, and TCP has it wait. A large frame may take several slices.

Only waiting is done in the hub of the node's executor: watchers for reading and writing. Each frame is
four bytes of length and a body; an empty frame is a tick. TLS does not wait, either (`ssl.SSLObject`):
bytes in, bytes out.
"""

from __future__ import annotations

import ssl
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from locks.otp.budgets import SLICE, Pace, Traffic
from locks.otp.handshake import Peer
from locks.runtime.waiter import run_in_hub

if TYPE_CHECKING:
    import socket

    from gevent.hub import Hub

    from locks.otp.discovery import HostAndPort
    from locks.runtime.inline import Turn

__all__ = ["FULL", "LOOKS", "GoOn", "Link", "Tls"]

_LENGTH: Final = struct.Struct(">I")
_READ: Final = 65536
_CIPHERTEXT: Final = 16384  # the most that one TLS record holds
LONGEST_REASON: Final = (
    300  # characters, of why a link was lost: it may show what the peer has sent
)
SHORT: Final = 1024  # bytes that are mostly one message
FULL: Final = 4 * 2**20  # bytes: if more wait to be sent, who can wait does; see `Link.is_full`
TICK: Final = bytes(4)
LOOKS: Final = 4  # after how many calls of `tick` that find nothing sent one is sent
MOST_AFTER: Final = 20.0  # times as long as its frames may a turn take, as far as that is foreseen
LITTLE: Final = 65536  # bytes that wait to be sent: hardly anything
GoOn = Callable[[], Any]  # goes on with a frame; returns how to go on after that, or `None`
_FIRST: Final = (0,)


class Tls:
    """TLS on a connection: what was received goes in, what is to be sent comes out.

    Args:
        context: What to accept, and this node's certificate.
        server: Whether this is the accepting side.
        hostname: The name that the other's certificate must have; on the connecting side.
    """

    __slots__ = ("_incoming", "_object", "_outgoing")

    def __init__(self, context: ssl.SSLContext, server: bool, hostname: str | None = None) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server, hostname)

    def handshake(self, data: bytes = b"") -> bool:
        """Go on with the handshake; return whether it is done. `outgoing` is to be sent."""
        if data:
            self._incoming.write(data)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    @property
    def certificate(self) -> dict[str, Any] | None:
        """What the other side's certificate says, once the handshake is done."""
        return self._object.getpeercert()

    def decrypt(self, data: bytes) -> bytes:
        """What the other side has written.

        Raises:
            ssl.SSLError: The data is not what TLS allows, or the other side has ended it.
        """
        self._incoming.write(data)
        found = []
        while True:
            try:
                part = self._object.read(_CIPHERTEXT)
            except ssl.SSLWantReadError:
                break
            if not part:
                raise ssl.SSLError("the other side has closed the connection")
            found.append(part)
        return b"".join(found)

    def encrypt(self, data: bytes | bytearray) -> None:
        """Write data, to be sent with `outgoing`."""
        if data:
            self._object.write(data)

    def outgoing(self) -> bytes:
        """What is to be sent now."""
        return self._outgoing.read()


class Link:
    """One connection to another node.

    Args:
        peer: The name of the node at its other end.
        sock: The connected socket, not blocking. The link closes it.
        address: Host and port of its other end.
        relay: The node that relays, if it is a tunnel: it needs no ticks then, and can't be silent for too long.
        hub: Where to wait for it.
        turn: The node's turn.
        tls: TLS, if it is used.
        frame_limit: The largest frame that is taken in, in bytes.
        send_limit: How many bytes may wait to be sent.
        on_frame: Called with the link and the body of each frame, in the turn. Returns how to go on with
            it, or `None` if it is taken in.
        on_lost: Called with the link and the reason when it is lost, in the turn.
        unsent: Where the link puts itself when `flush` is due.
        pace: How the links of the node take turns.
        traffic: What counts messages.

    Attributes:
        address: Host and port of its other end.
        relay: The node that relays, if it is a tunnel.
        since: When it was made, as `time.time()`.
        closed: Why it was closed; `None` while it is open.
        ticktime: How long the peer may be silent, in seconds.
        wanted: How long this node may be silent, as the peer demands.
        tick_due: When it is to tick next.
        silent: For how many seconds nothing has arrived, as checks have found.
        heard: Whether something has arrived since this was last taken back.
        drained: What to call, once, when hardly anything waits to be sent any more, or it is lost; in the turn.
            It is for those who have found that much waits.
        quiet: How many calls of `tick` have found that nothing had been sent.
    """

    __slots__ = (
        *("_after", "_blocked", "_clock", "_encrypting", "_frame_limit", "_frames"),
        *("_go_on_with", "_hub", "_on_frame", "_on_lost", "_out", "_pace", "_partial", "_raw"),
        *("_reader", "_send_limit", "_sent", "_share", "_socket", "_taken", "_timer", "_tls"),
        *("_traffic", "_turn", "_unsent", "_waiting", "_waits_to_flush", "_writer", "address"),
        *("closed", "drained", "heard", "peer", "quiet", "relay", "silent", "since", "tick_due"),
        *("ticktime", "wanted"),
    )

    def __init__(
        self,
        peer: Peer,
        sock: socket.socket,
        *,
        address: HostAndPort,
        hub: Hub,
        turn: Turn,
        tls: Tls | None,
        ticktime: float,
        frame_limit: int,
        send_limit: int,
        on_frame: Callable[[Link, bytes], GoOn | None],
        on_lost: Callable[[Link, str], object],
        unsent: list[Link],
        pace: Pace | None = None,
        traffic: Traffic | None = None,
        relay: str | None = None,
    ) -> None:
        self.peer = peer
        self.address = address
        self.relay = relay
        self.since = time.time()
        self.closed: str | None = None
        self.ticktime = ticktime
        self.wanted = ticktime
        self.tick_due = 0.0
        self.silent = 0.0
        self.heard = False
        self.quiet = 0
        self.drained: dict[Callable[[], object], None] = {}
        self._socket = sock
        self._hub = hub
        self._turn = turn
        self._tls = tls
        self._frame_limit = frame_limit
        self._send_limit = send_limit
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._unsent = unsent
        self._pace = Pace() if pace is None else pace
        self._traffic = Traffic() if traffic is None else traffic
        self._share = self._pace.share(peer.name)
        self._out = bytearray()  # whole frames
        self._raw = bytearray()  # bytes for the socket: the same, or encrypted
        self._partial = bytearray()  # the beginning of a frame
        self._waiting = b""  # frames that have come and are to be taken in
        self._go_on_with: GoOn | None = None  # a frame that is not taken in to its end
        self._clock = time.thread_time  # what measures how long the next ones take
        self._taken = 0.0  # when they were taken in, by the same clock
        self._after = 1.0  # how many times as long as the frames the whole turn takes
        self._sent: list[int] = []  # how many bytes of what waits were sent, if that is still there
        self._encrypting = False
        self._waits_to_flush = False
        self._blocked = False  # the socket takes no more; a watcher waits for it
        self._reader: Any = None
        self._writer: Any = None
        self._timer: Any = None

    def __repr__(self) -> str:
        return f"<Link to {self.peer.name}{' closed' if self.closed else ''}>"

    # --- Sending, in the turn -------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether so much waits to be sent that who can wait should, with `drained`."""
        return self.waiting > FULL

    def send(self, body: bytes) -> None:
        """Send a frame when the turn ends."""
        if self.closed is None:
            self._out.extend(_LENGTH.pack(len(body)) + body)  # a whole frame, or nothing
            self.quiet = 0
            self._traffic.sent += 1
            self._traffic.bytes_sent += len(body)
            if not self._waits_to_flush:
                self._waits_to_flush = True
                self._unsent.append(self)

    @property
    def waiting(self) -> int:
        """How many bytes wait to be sent."""
        return len(self._out) + len(self._raw)

    def tick(self) -> None:
        """Send an empty frame, if nothing was sent since the call `LOOKS` calls ago."""
        self.quiet += 1
        if self.quiet >= LOOKS and not self._blocked and self.closed is None:
            self._out.extend(TICK)
            self.flush()
            self.quiet = 0

    def flush(self) -> None:
        """Write what is to be sent, as much as the socket takes."""
        if self.closed is None:
            try:
                waiting = self._out if self._tls is None else self._encrypted(self._tls)
                if self._sent:  # the last time was cut short
                    self._cut_sent(waiting)
                if waiting and not self._blocked:
                    # Sent, and put down how much: one step, whatever interrupts it.
                    self._sent.extend(map(self._socket.send, (waiting,)))
                    self._cut_sent(waiting)
            except BlockingIOError:
                pass
            except OSError as error:  # ssl.SSLError is one
                self._turn.post(self.lose, f"can't be written to: {error}")
                return
            if len(waiting) > self._send_limit:
                text = f"{len(waiting)} bytes wait to be sent; the other node does not read them"
                self._turn.post(self.lose, text)
            elif waiting and not self._blocked:
                self._blocked = True
                run_in_hub(self._hub, self._await_writable)
            if self.drained and len(waiting) <= LITTLE:
                self._turn.post(self._tell_drained)
        self._waits_to_flush = False

    def _cut_sent(self, waiting: bytearray) -> None:
        """Take out what was sent; one step, too: functions of C call each other."""
        list(map(waiting.__delitem__, map(slice, map(self._sent.pop, _FIRST))))

    def _encrypted(self, tls: Tls) -> bytearray:
        if self._encrypting:  # cut short: nobody knows whether it was encrypted
            raise OSError("encryption was interrupted")
        if self._out:
            self._encrypting = True
            tls.encrypt(self._out)
            self._out.clear()
            self._raw += tls.outgoing()
            self._encrypting = False
        return self._raw

    def _await_writable(self) -> None:
        if self.closed is None:
            self._writer = self._hub.loop.io(self._socket.fileno(), 2)
            self._writer.start(self._writable)

    def _writable(self) -> None:
        self._writer.stop()
        self._writer.close()
        self._writer = None
        self._turn.run_surely(self._unblock)

    def _unblock(self) -> None:
        self._blocked = False
        self.flush()

    def _tell_drained(self) -> None:
        while self.drained:
            told = next(iter(self.drained))
            told()
            self.drained.pop(told, None)

    # --- Receiving ------------------------------------------------------------------------------

    def start(self, rest: bytes = b"") -> None:
        """Begin to take frames in, first from what came along with the handshake. In the turn."""
        self._waiting = rest
        run_in_hub(self._hub, self._await_readable)

    def _await_readable(self) -> None:
        if self.closed is None:
            self._reader = self._hub.loop.io(self._socket.fileno(), 1)
            self._go_on()

    def _readable(self) -> None:
        if self.closed is not None:
            return
        try:
            data = self._socket.recv(_READ)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._turn.run_surely(self.lose, f"can't be read from: {error}")
            return
        self._serve(self._take, data)

    def _serve(self, take: Callable[[bytes], object], data: bytes) -> None:
        """Take in some of what has come; if there is more, or it has used up its share, the rest has to wait."""
        pace, share = self._pace, self._share
        self._frames = 0
        self._taken = 0.0
        elsewhere = pace.elsewhere
        clock = self._clock = time.thread_time if len(data) > SHORT else self._clock
        begin = clock()
        try:
            self._turn.run(take, data)
        except BaseException as error:
            # What it has brought is lost: the connection has to begin anew.
            self._turn.post(self.lose, f"what was read could not be taken in: {error!r}")
            raise
        took = clock() - begin
        if self._taken > begin:
            after = min(took / (self._taken - begin), MOST_AFTER)
            self._after = max(after, 0.9 * self._after + 0.1 * after)
        own = max(0.0, took - (pace.elsewhere - elsewhere))
        own = min(own, SLICE) if clock is time.perf_counter else own  # others may have run, too
        more = self._waiting or self._go_on_with is not None
        # To ask for processor time takes microseconds, and differs little where hardly any is used.
        self._clock = time.thread_time if took > SLICE or more else time.perf_counter
        pace.served(share, own, self._frames > 0)  # and not only ticks
        if more or share.left < 0:
            self._wait(pace.pause(share))

    def _wait(self, pause: float) -> None:
        """Read nothing until others were served."""
        if self.closed is None:
            self.silent = 0.0  # nobody listens
            self.heard = True
            if self._reader is not None:
                self._reader.stop()
            self._timer = self._hub.loop.timer(min(pause, self.ticktime / 4))
            self._timer.start(self._go_on)

    def _go_on(self) -> None:
        """Take in what has waited, then what comes."""
        self._stop_timer()
        pause = self._pace.pause(self._share)
        if pause:
            self._wait(pause)
        elif self.closed is None:
            if self._reader is not None:
                self._reader.start(self._readable)
            if self._waiting or self._go_on_with is not None:
                self._serve(self._take_frames, b"")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None

    def _take(self, data: bytes) -> None:
        if self.closed is not None:
            return
        if not data:
            self.lose("the other node has closed the connection")
            return
        if self._tls is not None:
            try:
                data = self._tls.decrypt(data)
            except ssl.SSLError as error:
                self.lose(f"TLS failed: {error}")
                return
        self._take_frames(data)

    def _take_frames(self, data: bytes) -> None:
        """Take in what has come, until the slice is over; the rest is put into `_waiting`."""
        self.silent = 0.0
        self.heard = True
        if self._waiting:
            data, self._waiting = self._waiting + data, b""
        if self._partial:
            data = self._complete(data)
        at, end = 0, len(data)
        now = time.perf_counter()
        until = now + self._share.moment / self._after
        frames = 0
        while now <= until and self.closed is None:
            if self._go_on_with is not None:
                self._go_on_with = self._go_on_with()
                frames += 1
            elif at + 4 > end:
                break
            else:
                (length,) = _LENGTH.unpack_from(data, at)
                if length > end - at - 4 or length > self._frame_limit:
                    self._allows(length)
                    break
                at += 4 + length
                if length:
                    self._traffic.received += 1
                    self._traffic.bytes_received += length
                    self._go_on_with = self._on_frame(self, data[at - length : at])
                    frames += 1
            now = time.perf_counter()
        else:
            self._waiting, at = data[at:], end
        self._partial += data[at:]
        self._frames = frames
        if frames > 1:
            self._taken = self._clock()

    def _complete(self, data: bytes) -> bytes:
        """Put together a frame that came in parts; return what follows it."""
        whole = self._partial
        whole += data
        if len(whole) < 4:
            return b""
        end = 4 + _LENGTH.unpack_from(whole)[0]
        if not self._allows(end - 4) or len(whole) < end:
            return b""
        with memoryview(whole) as view, view[4:end] as frame, view[end:] as rest:
            self._traffic.received += 1
            self._traffic.bytes_received += len(frame)
            self._go_on_with = partial(self._on_frame, self, bytes(frame))
            data = bytes(rest)
        whole.clear()
        return data

    def _allows(self, length: int) -> bool:
        """Whether a frame may have this length; if not, the link is lost."""
        if length > self._frame_limit:
            self.lose(f"a frame of {length} bytes; at most {self._frame_limit} are taken in")
        return length <= self._frame_limit

    # --- The end, in the turn -------------------------------------------------------------------

    def lose(self, reason: str) -> None:
        """Close the link and tell its owner, unless it is closed already."""
        if self.closed is None:
            self.closed = reason[:LONGEST_REASON]
            run_in_hub(self._hub, self.dispose)
            self._on_lost(self, self.closed)
            self._tell_drained()

    def abandon(self) -> None:
        """In a forked child: let go of the socket; the connection belongs to the parent."""
        self.closed = "it belongs to the parent process"
        self.dispose()

    def dispose(self) -> None:
        """Give the socket and its watchers back, once it is closed. In the hub."""
        for watcher in (self._reader, self._writer):
            if watcher is not None:
                watcher.stop()
                watcher.close()
        self._reader = self._writer = None
        self._stop_timer()
        self._socket.close()
