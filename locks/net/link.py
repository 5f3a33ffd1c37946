"""One connection to another node, after the hello.

A link belongs to its node's turn: all its methods run in it, in any thread. `send` gathers output,
and `flush` writes it when the turn ends, directly to the socket and without blocking. What the
socket does not take is kept, up to a bound, and written later.

The hub of the node's executor waits for input. Each time a link has some, it reads a bounded number
of bytes, and takes in the frames in them in one turn. Then the hub serves the next link that has
input. So each is served in turn, and what was not read waits in the other node's socket: a node that
floods this one delays itself, and costs others one such piece at a time.

What can fail:

* An interruption, before any instruction. Output: a frame is added whole or not at all, and what
  was sent is cut off by the same step of C. Input: bytes that were read may be lost with the turn,
  so the link is lost.
* The other side closes, resets, sends no TLS or too long a frame: the link is lost, after what it
  said before.
* The other side does not read: output waits. Callers that can wait do so from `FULL` bytes on
  (`is_full`, `drained`); beyond `send_limit` the link is lost.
* The program forks: the child leaves all links to its parent (`leave_to_parent`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from locks.net.frames import HEARTBEAT, Frames, frame
from locks.runtime.clock import wall
from locks.runtime.waiter import run_in_hub

if TYPE_CHECKING:
    import socket

    from gevent.hub import Hub

    from locks.net.addresses import HostAndPort
    from locks.net.hello import Peer
    from locks.net.tls import Tls
    from locks.runtime.inline import Turn

__all__ = ["FULL", "Link", "Traffic", "wake"]

READ: Final = 4096  # bytes that are read at once: some dozens of messages
READ_MOST: Final = (
    2**18
)  # bytes that are read at once of a long frame, of which nothing else can be done
FULL: Final = 4 * 2**20  # bytes of output from which callers that can wait do
LITTLE: Final = 65536  # bytes of output that count as hardly any
LONGEST_REASON: Final = 300  # characters of the reason for a loss, which may show data of the peer


def wake(drained: dict[Callable[[], object], None]) -> None:
    """Call the functions of callers that wait until a link is drained; an interruption leaves out none."""
    while drained:
        told = next(iter(drained))
        told()
        drained.pop(told, None)


class Traffic:
    """Counts the messages over all links of a node, and their bytes before TLS."""

    __slots__ = ("bytes_received", "bytes_sent", "received", "sent")

    def __init__(self) -> None:
        self.sent = self.received = self.bytes_sent = self.bytes_received = 0


class Link:
    """One connection to another node.

    Args:
        peer: The node at its other end.
        sock: The connected socket, not blocking. The link closes it.
        address: Host and port of its other end.
        hub: The hub in which to wait for it.
        turn: The node's turn.
        tls: TLS, if it is used.
        ticktime: How long the peer may be silent, in seconds.
        frame_limit: The size of the largest allowed frame, in bytes.
        send_limit: How many bytes of output may wait.
        on_frame: Called with the link and the body of each frame, in the turn.
        may_be_thin: Whether to try `on_thin`.
        on_thin: Called with the same before, in a turn for what is thin; returns whether it has taken the frame in.
        on_lost: Called with the link and the reason when it is lost, in the turn.
        unsent: The link adds itself when `flush` is due.
        traffic: Counts messages.

    Attributes:
        since: When it was made, in seconds since 1970.
        closed: Why it was closed; `None` while it is open.
        wanted: How long this node may be silent, as demanded by the peer.
        beat_due: When the next heartbeat is due.
        silent: For how many seconds checks have found no input.
        heard: How often input has arrived.
        drained: Callbacks for callers that wait because the link is full. Each is called once, in
            the turn, when hardly any output waits, or the link is lost.
    """

    __slots__ = (
        *("_blocked", "_encrypting", "_frames", "_hub", "_may_be_thin", "_on_frame", "_on_thin"),
        *("_on_lost", "_out", "_raw"),
        *("_reader", "_send_limit", "_socket", "_takes", "_tls", "_traffic", "_turn", "_unsent"),
        *("_verdict", "_writer", "address", "beat_due", "closed", "drained", "heard", "peer"),
        *("silent", "since", "ticktime", "wanted"),
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
        on_frame: Callable[[Link, bytes], object],
        may_be_thin: Callable[[], bool] = lambda: False,
        on_thin: Callable[[Link, bytes], bool] = lambda link, body: False,
        on_lost: Callable[[Link, str], object],
        unsent: dict[Link, None],
        traffic: Traffic,
    ) -> None:
        self.peer = peer
        self.address = address
        self.since = wall()
        self.closed: str | None = None
        self.ticktime = ticktime
        self.wanted = peer.ticktime
        self.beat_due = 0.0
        self.silent = 0.0
        self.heard = 0
        self.drained: dict[Callable[[], object], None] = {}
        self._socket = sock
        self._hub = hub
        self._turn = turn
        self._tls = tls
        self._send_limit = send_limit
        self._on_frame = on_frame
        self._may_be_thin = may_be_thin
        self._on_thin = on_thin
        self._on_lost = on_lost
        self._unsent = unsent
        self._traffic = traffic
        self._out = bytearray()  # whole frames; without TLS, the first one may be sent in part
        self._raw = bytearray()  # encrypted bytes
        self._encrypting = False
        self._blocked = False  # the socket takes no more; a watcher waits for it
        self._frames = Frames(frame_limit)
        self._takes = False  # whether frames are taken in now
        self._verdict: str | None = None  # why the link is lost after this turn
        self._reader: Any = None
        self._writer: Any = None

    def __repr__(self) -> str:
        return f"<Link to {self.peer.name}{' closed' if self.closed else ''}>"

    # --- Sending, in the turn -------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """How many bytes of output wait."""
        return len(self._out) + len(self._raw)

    @property
    def is_full(self) -> bool:
        """Whether so much output waits that a caller should wait for `drained`, if it can."""
        return self.waiting > FULL

    def send(self, body: bytes) -> None:
        """Send a frame when the turn ends."""
        if self.closed is None:
            self._unsent[self] = None
            self._out.extend(frame(body))  # a whole frame, or nothing
            self._traffic.sent += 1
            self._traffic.bytes_sent += len(body)

    def beat(self) -> None:
        """Send a heartbeat; not behind output that waits, which the peer does not read."""
        if not self._blocked and self.closed is None:
            self._out.extend(HEARTBEAT)
            self.flush()

    def flush(self) -> None:
        """Write the output, as much as the socket takes."""
        if self.closed is not None:
            return
        try:
            out = self._out if self._tls is None else self._encrypted(self._tls)
            if out and not self._blocked:
                # Send, and cut off as much, in one step that nothing interrupts.
                list(map(out.__delitem__, map(slice, map(self._socket.send, (out,)))))
        except BlockingIOError:
            pass
        except OSError as error:  # ssl.SSLError is one
            self._turn.post(self.lose, f"writing failed: {error}")
            return
        if len(out) > self._send_limit:
            text = f"the other node does not read: {len(out)} bytes are waiting to be sent"
            self._turn.post(self.lose, text)
        elif out and not self._blocked:
            self._blocked = True
            run_in_hub(self._hub, self._await_writable)
        if self.drained and len(out) <= LITTLE:
            self._turn.post(wake, self.drained)

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

    # --- Receiving, in the hub ------------------------------------------------------------------

    def start(self, rest: bytes = b"") -> None:
        """Begin to take frames in, first from the data that came with the hello. In the turn."""
        run_in_hub(self._hub, self._await_readable, rest)

    def _await_readable(self, rest: bytes) -> None:
        if self.closed is None:
            self._reader = self._hub.loop.io(self._socket.fileno(), 1)
            self._reader.start(self._serve, self._read)
            if rest:
                self._serve(lambda: rest)

    def _read(self) -> bytes:
        data = self._socket.recv(max(READ, min(self._frames.missing, READ_MOST)))
        if not data:
            raise EOFError
        return data if self._tls is None else self._tls.decrypt(data)

    def _serve(self, read: Callable[[], bytes]) -> None:
        """Read, and take in the frames that are complete now."""
        end: str | None = None
        bodies: list[bytes] = []
        try:
            try:
                bodies = self._frames.add(read())
                end = self._frames.too_long
            except BlockingIOError:
                return
            except EOFError:
                end = "the other node closed the connection"
            except OSError as error:  # ssl.SSLError is one
                end = f"reading failed: {error}"
            self.heard += 1
            self.silent = 0.0
            while bodies and self._may_be_thin():
                del bodies[: self._turn.thin(self._take_thin, bodies) or 0]
                if len(bodies) < 2:
                    break
                # When the others are carried out, the last one may be thin.
                self._turn.run(self._take, bodies[:-1], None)
                del bodies[:-1]
            if bodies or end is not None:
                self._turn.run(self._take, bodies, end)
        except BaseException as error:
            # Input may be lost, so the connection must be made again.
            self._turn.post(self.lose, f"handling a received message failed: {error!r}")
            raise

    def _take_thin(self, bodies: list[bytes]) -> int:
        """Take in the first frames, as far as they concern what is thin; returns how many. In a turn for that."""
        taken = 0
        if self.closed is None:
            for body in bodies:
                if not self._on_thin(self, body):
                    break
                taken += 1
        self._count(bodies[:taken])
        return taken

    def _count(self, bodies: list[bytes]) -> None:
        self._traffic.received += len(bodies)
        self._traffic.bytes_received += sum(map(len, bodies))

    def _take(self, bodies: list[bytes], end: str | None) -> None:
        """Take in frames, and then the end of the connection. In the turn."""
        if self.closed is not None:
            return
        self._count(bodies)
        self._takes = True
        for body in bodies:
            if self._verdict is not None:
                break
            self._on_frame(self, body)
        if end is not None:
            self.lose(end)
        self._takes = False

    # --- The end, in the turn -------------------------------------------------------------------

    def lose(self, reason: str) -> None:
        """Close the link and notify its owner, unless it is closed already.

        What the frames of this turn say is carried out at its end, and the loss comes after that. A
        lock server that forgot a node before it had its last request would keep this request for
        ever.
        """
        if not self._takes:
            self._lose(reason)
        elif self._verdict is None:
            self._verdict = reason
            self._turn.post(self._lose, reason)

    def _lose(self, reason: str) -> None:
        if self.closed is None:
            self.closed = reason[:LONGEST_REASON]
            run_in_hub(self._hub, self.dispose)
            self._on_lost(self, self.closed)
            wake(self.drained)

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
        self._socket.close()
