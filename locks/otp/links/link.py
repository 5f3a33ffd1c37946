"""One connection to another node, after the handshake.

A link belongs to a node's turn: all its methods run in it, in any thread. Output is gathered, and
`flush` writes it when the turn ends, directly to the socket and without blocking. If the socket
does not take all of it, the rest is kept, up to a bound, and written later. So a peer that does not
read costs no more than that. Past the bound the link is lost, as with a busy distribution port of
Erlang.

Input is taken in for a short time, a *slice*, in a turn. If the link is lost in the middle of it, that is carried out
in the next turn, after all that was said before. If there is more input, the link enters a line
with the others that have input (`locks.otp.links.budgets.Pace`). Meanwhile it reads ahead, up to a
bound, to find urgent frames (`locks.otp.links.backlog`). A peer that floods this node delays only
itself, and TCP slows it down. A large frame may take several slices.

The hub of the node's executor only waits, by watchers for reading and writing. Each frame consists
of four bytes of length and a body; an empty frame is a tick. TLS does not wait, either
(`locks.net.tls`).
"""

from __future__ import annotations

import ssl
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from locks.net.hello import Peer
from locks.net.tls import Tls
from locks.otp.links.backlog import LARGE, Backlog
from locks.otp.links.budgets import LONG, SLICE, Pace, Traffic
from locks.otp.links.line import Line
from locks.runtime.clock import monotonic, wall
from locks.runtime.waiter import run_in_hub

if TYPE_CHECKING:
    import socket

    from gevent.hub import Hub

    from locks.net.addresses import HostAndPort
    from locks.runtime.inline import Turn

__all__ = ["FULL", "LOOKS", "GoOn", "Link"]

_LENGTH: Final = struct.Struct(">I")
_READ: Final = 65536
_READ_AHEAD: Final = 16384  # bytes to read at once while other frames wait
LONGEST_REASON: Final = 300  # characters of the reason for a loss, which may show data of the peer
SHORT: Final = 1024  # bytes; such input is usually one message
FEW: Final = 3  # frames that are taken in together, if these alone take no longer than a slice
FULL: Final = 4 * 2**20  # bytes of output from which callers that can wait do; see `Link.is_full`
TICK: Final = bytes(4)
LOOKS: Final = 4  # calls of `tick` without output, after which a tick is sent
MOST_AFTER: Final = 20.0  # the largest assumed ratio of the time of a turn to that of its frames
LITTLE: Final = 65536  # bytes of output that count as hardly any

GoOn = Callable[[], Any]  # continues with a frame; returns how to continue after that, or `None`
_FIRST: Final = (0,)


class Link:
    """One connection to another node.

    Args:
        peer: The name of the node at its other end.
        sock: The connected socket, not blocking. The link closes it.
        address: Host and port of its other end.
        hub: The hub in which to wait for it.
        turn: The node's turn.
        tls: TLS, if it is used.
        frame_limit: The size of the largest allowed frame, in bytes.
        send_limit: How many bytes of output may wait.
        on_frame: Called with the link and the body of each frame, in the turn. Returns how to
            continue with it, or `None` if it is taken in.
        on_lost: Called with the link and the reason when it is lost, in the turn.
        unsent: The link adds itself to this list when `flush` is due.
        line: The line that it enters while it has input.
        traffic: Counts messages.

    Attributes:
        address: Host and port of its other end.
        since: When it was made, in seconds since 1970.
        closed: Why it was closed; `None` while it is open.
        ticktime: How long the peer may be silent, in seconds.
        wanted: How long this node may be silent, as demanded by the peer.
        tick_due: When the next tick is due.
        silent: For how many seconds checks have found no input.
        heard: How often input has arrived.
        drained: Callbacks for callers that wait because the link is full. Each is called once, in
            the turn, when hardly any output waits, or the link is lost.
        quiet: How many calls of `tick` in a row have found no output.
    """

    __slots__ = (
        *("_after", "_backlog", "_blocked", "_clock", "_encrypting", "_end"),
        *("_frames", "_go_on_with", "_hub", "_large_at", "_line", "_listens", "_on_frame"),
        *("_on_lost", "_out", "_pace", "_raw", "_reader", "_send_limit", "_sent"),
        *(
            "_share",
            "_socket",
            "_taken",
            "_takes",
            "_timer",
            "_tls",
            "_traffic",
            "_turn",
            "_unsent",
        ),
        *("_verdict", "_waits_to_flush", "_writer", "address"),
        *("closed", "drained", "heard"),
        *("peer", "quiet", "silent", "since", "tick_due", "ticktime", "wanted"),
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
        line: Line | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.peer = peer
        self.address = address
        self.since = wall()
        self.closed: str | None = None
        self.ticktime = ticktime
        self.wanted = peer.ticktime
        self.tick_due = 0.0
        self.silent = 0.0
        self.heard = 0
        self.quiet = 0
        self.drained: dict[Callable[[], object], None] = {}
        self._socket = sock
        self._hub = hub
        self._turn = turn
        self._tls = tls
        self._send_limit = send_limit
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._unsent = unsent
        self._line = Line(Pace()) if line is None else line
        self._pace = self._line.pace
        self._traffic = Traffic() if traffic is None else traffic
        self._share = self._pace.share(peer.name)
        self._out = bytearray()  # whole frames
        self._raw = bytearray()  # bytes for the socket, encrypted if TLS is used
        self._backlog = Backlog(frame_limit, self._line.kind_of)  # received frames
        self._end: str | None = None  # why the link is lost when these are taken in
        self._go_on_with: GoOn | None = None  # continues with a frame that is partly taken in
        self._takes = False  # whether frames are taken in now
        self._verdict: str | None = None  # why the link is lost after this turn
        self._clock = time.thread_time  # measures how long the next frames take
        self._taken = 0.0  # when the frames were taken in, by the same clock
        self._after = 1.0  # the ratio of the time of a whole turn to that of its frames
        self._sent: list[int] = []  # how many sent bytes were not cut off the output yet
        self._encrypting = False
        self._waits_to_flush = False
        self._blocked = False  # the socket takes no more; a watcher waits for it
        self._frames = 0  # taken in in this turn
        self._large_at = 0.0  # when the last step began, if it was for a large frame
        self._listens = False  # whether the reader is started
        self._reader: Any = None
        self._writer: Any = None
        self._timer: Any = None

    def __repr__(self) -> str:
        return f"<Link to {self.peer.name}{' closed' if self.closed else ''}>"

    # --- Sending, in the turn -------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether so much output waits that a caller should wait for `drained`, if it can."""
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

    def send_along(self, body: bytes) -> None:
        """Send a frame with the next one, or with the next tick: nobody waits for it."""
        if self.closed is None:
            self._out.extend(_LENGTH.pack(len(body)) + body)
            self._traffic.sent += 1
            self._traffic.bytes_sent += len(body)

    @property
    def waiting(self) -> int:
        """How many bytes of output wait."""
        return len(self._out) + len(self._raw)

    def tick(self) -> None:
        """Send an empty frame if nothing was sent during the last `LOOKS` calls."""
        self.quiet += 1
        if self.quiet >= LOOKS and not self._blocked and self.closed is None:
            self._out.extend(TICK)
            self.flush()
            self.quiet = 0

    def flush(self) -> None:
        """Write the output, as much as the socket takes."""
        if self.closed is None:
            try:
                waiting = self._out if self._tls is None else self._encrypted(self._tls)
                if self._sent:  # the last time was cut short
                    self._cut_sent(waiting)
                if waiting and not self._blocked:
                    # Send, and note how much, in one step that nothing interrupts.
                    self._sent.extend(map(self._socket.send, (waiting,)))
                    self._cut_sent(waiting)
            except BlockingIOError:
                pass
            except OSError as error:  # ssl.SSLError is one
                self._turn.post(self.lose, f"writing failed: {error}")
                return
            if len(waiting) > self._send_limit:
                text = f"the other node does not read: {len(waiting)} bytes are waiting to be sent"
                self._turn.post(self.lose, text)
            elif waiting and not self._blocked:
                self._blocked = True
                run_in_hub(self._hub, self._await_writable)
            if self.drained and len(waiting) <= LITTLE:
                self._turn.post(self._tell_drained)
        self._waits_to_flush = False

    def _cut_sent(self, waiting: bytearray) -> None:
        """Cut sent bytes off the output; C functions do it in one step that nothing interrupts."""
        list(map(waiting.__delitem__, map(slice, map(self._sent.pop, _FIRST))))

    def _encrypted(self, tls: Tls) -> bytearray:
        if self._encrypting:  # interrupted: it is unknown whether the data was encrypted
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

    @property
    def has_input(self) -> bool:
        """Whether there is input that was not taken in."""
        return self._go_on_with is not None or self._backlog.waits or self._end is not None

    def start(self, rest: bytes = b"") -> None:
        """Begin to take frames in, first from the data that came with the handshake. In the turn."""
        self._backlog.add(rest)
        run_in_hub(self._hub, self._await_readable)

    def _await_readable(self) -> None:
        if self.closed is None:
            self._reader = self._hub.loop.io(self._socket.fileno(), 1)
            self._await_more()

    def _readable(self) -> None:
        if self.closed is not None:
            return
        if self.has_input:
            self._read_ahead()
        elif self._pace.is_free:
            self._read()
        else:
            self._stand_in_line()

    def _read(self) -> None:
        """Read and take in input, while none waits."""
        try:
            data = self._socket.recv(_READ)
        except (BlockingIOError, InterruptedError):
            self._await_more()
        except OSError as error:
            self._turn.run_surely(self.lose, f"reading failed: {error}")
        else:
            self._serve(self._take, data)

    def _read_ahead(self) -> None:
        """Read input while other input waits, as it may be urgent."""
        try:
            data = self._socket.recv(_READ_AHEAD)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end = f"reading failed: {error}"
        else:
            begin = monotonic()
            self._in_turn(self._look, data)
            self._pace.served(self._share, min(monotonic() - begin, SLICE))
        self._listen()

    def _in_turn(self, take: Callable[[bytes], object], data: bytes) -> None:
        try:
            self._turn.run(take, data)
        except BaseException as error:
            # Input is lost, so the connection must be made again.
            self._turn.post(self.lose, f"handling a received message failed: {error!r}")
            raise

    def _serve(self, take: Callable[[bytes], object], data: bytes) -> None:
        """Take in some input; if there is more, or the link has to pause, the rest waits."""
        pace, share = self._pace, self._share
        self._frames = 0
        self._taken = self._large_at = 0.0
        elsewhere = pace.elsewhere
        if len(data) != 0 and len(data) <= SHORT:
            clock = self._clock
        else:
            clock = self._clock = time.thread_time
        begin = clock()
        self._in_turn(take, data)
        took = clock() - begin
        if self._taken > begin:
            after = min(took / (self._taken - begin), MOST_AFTER)
            self._after = max(after, 0.9 * self._after + 0.1 * after)
        own = max(0.0, took - (pace.elsewhere - elsewhere))
        more = self.has_input
        # A query for processor time takes microseconds. For short work, wall-clock time differs
        # little from it.
        self._clock = time.thread_time if more or took > SLICE else monotonic
        if clock is monotonic:
            own = min(own, SLICE)  # other threads may have run
        if self._large_at:
            pace.served(share, own, min(own, begin + took - self._large_at))
        else:
            # Long work for small frames is also caused by other nodes: all that wait for the same
            # lock.
            own = min(own, LONG * max(self._frames, 1))
            pace.served(share, own, 0.0, self._frames > 0)  # ticks do not count
        if more or share.left < 0 or not self._listens:
            self._await_more()

    def _await_more(self) -> None:
        """Continue when the link is next in the line, or when input arrives."""
        if self.closed is not None:
            return
        pause = self._pace.pause(self._share)
        if pause:
            self._is_heard()
            self._listen(False)
            self._timer = self._hub.loop.timer(min(pause, self.ticktime / 4))
            self._timer.start(self._end_pause)
        elif self.has_input:
            self._stand_in_line()
        else:
            self._listen()

    def _end_pause(self) -> None:
        self._stop_timer()
        self._await_more()

    def _stand_in_line(self) -> None:
        self._is_heard()
        self._listen(self.has_input)
        self._line.enter(self, self._share, self._go_on)

    def _go_on(self) -> None:
        """Take in waiting input, or read, because the link is next in the line."""
        if self.closed is not None:
            return
        if self.has_input:
            self._serve(self._go_on_taking, b"")
        else:
            self._read()

    def _listen(self, on: bool = True) -> None:
        """Start the reader, unless enough was read; or stop it."""
        on = on and self._end is None and (self._backlog.room or not self.has_input)
        if self._reader is not None and on != self._listens:
            self._listens = on
            if on:
                self._reader.start(self._readable)
            else:
                self._reader.stop()

    def _is_heard(self) -> None:
        self.silent = 0.0
        self.heard += 1

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None

    def _opened(self, data: bytes) -> bytes:
        """The received data, decrypted; empty at the end, with the reason in `_end`."""
        if not data:
            self._end = "the other node closed the connection"
        elif self._tls is not None:
            try:
                return self._tls.decrypt(data)
            except ssl.SSLError as error:
                self._end = f"TLS failed: {error}"
                return b""
        return data

    def _look(self, data: bytes) -> None:
        """Add input while other input waits, and look for urgent frames."""
        if self.closed is None:
            self._is_heard()
            self._backlog.add(self._opened(data))
            self._look_ahead()

    def _take(self, data: bytes) -> None:
        if self.closed is None:
            if self._tls is not None or not data:
                data = self._opened(data)
            begin = self._clock()
            if self._backlog.add(data):  # putting it together is part of the undivided work
                self._large_at = begin
            self._take_frames()

    def _look_ahead(self) -> None:
        """Look for urgent frames, for a slice at most."""
        backlog = self._backlog
        until = monotonic() + SLICE
        while backlog.look_ahead() and monotonic() < until:
            pass
        if backlog.too_long is not None:
            self._end = backlog.too_long

    def _go_on_taking(self, _: bytes) -> None:
        self._look_ahead()
        self._take_frames()

    def _take_frames(self) -> None:
        """Take in frames until the slice is over; the rest waits."""
        self._is_heard()
        backlog = self._backlog
        now = monotonic()
        slice_ = self._pace.slice(self._share)
        until = now + slice_ / self._after  # leaves time for the rest of the turn
        at_most = now + slice_
        frames = 0
        self._takes = True
        while self.closed is None and self._verdict is None:
            is_few = frames < FEW and self._go_on_with is None and now <= at_most
            if now > until and not is_few:
                break
            if self._go_on_with is not None:
                self._large_at = self._clock()
                self._go_on_with = self._go_on_with()
                frames += 1
            else:
                frame = backlog.next()
                if frame is None:
                    break
                if frame:
                    self._traffic.received += 1
                    self._traffic.bytes_received += len(frame)
                    if len(frame) <= LARGE:
                        self._large_at = 0.0
                    elif not self._large_at:
                        self._large_at = self._clock()
                    self._go_on_with = self._on_frame(self, frame)
                    frames += 1
            now = monotonic()
        self._frames = frames
        if frames > 1:
            self._taken = self._clock()
        if backlog.too_long is not None:
            self._end = backlog.too_long
        if self._end is not None and self._go_on_with is None and not backlog.waits:
            self.lose(self._end)
        self._takes = False

    # --- The end, in the turn -------------------------------------------------------------------

    def lose(self, reason: str) -> None:
        """Close the link and notify its owner, unless it is closed already.

        What the frames of this turn say is carried out at its end, and the loss comes after that. A lock server that
        forgot a node before it had its last request would keep this request for ever.
        """
        if self._takes:
            if self._verdict is None and self.closed is None:
                self._verdict = reason
                self._turn.post(self._lose, reason)
        else:
            self._lose(reason)

    def _lose(self, reason: str) -> None:
        if self.closed is None:
            self.closed = reason[:LONGEST_REASON]
            run_in_hub(self._hub, self.dispose)
            self._on_lost(self, self.closed)
            self._tell_drained()

    def leave_to_parent(self) -> None:
        """In a forked child: release the socket; the connection belongs to the parent."""
        self.closed = "it belongs to the parent process"
        self.dispose()

    def dispose(self) -> None:
        """Release the socket and its watchers, after the link is closed. In the hub."""
        for watcher in (self._reader, self._writer):
            if watcher is not None:
                watcher.stop()
                watcher.close()
        self._reader = self._writer = None
        self._stop_timer()
        self._line.leave(self)
        self._socket.close()
