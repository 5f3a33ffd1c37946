"""A node's door, where strangers prove themselves in two bounded rooms.

Each peer that connects is a stranger until it has proven that it knows the cookie. A stranger costs a place, a greenlet, a few KB of
its words and a little work, and can cause no more. Meanwhile honest nodes must get in, perhaps from the same address (all nodes of a
machine, or of a network behind one router). So a limit per address is not enough. But honest nodes answer: the door waits for them
only as long as a packet takes there and back.

A stranger first enters the hall. After it has sent something, it moves to the room. If there is no place, one stranger must leave: of
the host with the most strangers that the door waits for, the one that it has waited for longest. So a crowd from one host pushes out
its own strangers. A stranger that waits for the door never has to leave, and a silent stranger does not push out strangers that have
sent something.

TLS costs far more than everything else. Its steps are done one at a time, and the hub does all other work between two of them. So
links are served and strangers accepted while many strangers do TLS. No step is computed for a stranger that has left.

What can fail:

* Accepting, because there are no more files: a fourth of the strangers that the door waits for leaves, and it tries again.
* Anything in the hello of a stranger, at any point, or its time is over (`HELLO_TIME`): the connection is closed; both sides log why.
* A stranger is pushed out: its greenlet finds its connection closed.
"""

from __future__ import annotations

import errno
import itertools
import logging
import resource
import socket
from bisect import insort
from collections import Counter
from collections.abc import Callable
from typing import Any

import gevent
from gevent.event import Event

from locks.errors import LocksError
from locks.net.addresses import HostAndPort, place
from locks.net.hello import Refused, Settled, tls_words
from locks.net.notices import Notices
from locks.net.stream import Stream, abandon

__all__ = ["Door", "Stranger"]

logger = logging.getLogger("locks.nodes")

ROOM = 512  # strangers at one time in each of the two rooms
FILES = 4  # each room may use a fourth of the files that the process may open
HELLO_TIME = 5.0  # seconds, until a stranger must have proven itself
HANDSHAKE_OF_TLS = b"\x16"  # the first byte of TLS
MANY_TURNS = 8  # with TLS: a stranger that needs more sends tiny pieces, and is served last
BATCH = 16  # strangers that are accepted before other greenlets run
FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Stranger:
    """A peer that has connected, and has proven nothing yet.

    Attributes:
        door: The door.
        stream: Its connection.
        address: The host and port from which it has connected.
        host: The host; with IPv6 the network, which has many addresses.
        limit: The timeout of its hello.
        pushed_out: Whether it had to leave for others.
    """

    __slots__ = ("address", "door", "host", "limit", "pushed_out", "stream")

    def __init__(self, door: Door, stream: Stream, address: HostAndPort) -> None:
        self.door = door
        self.stream = stream
        self.address = address
        host = address[0]
        self.host = host if host.count(":") < 4 else ":".join(host.split(":")[:4])
        self.limit: Any = None
        self.pushed_out = False

    def send(self, body: bytes) -> None:
        """Send a frame; now the door waits for the stranger."""
        self.stream.send(body)
        self.door.wait_for(self)

    def receive(self) -> bytes:
        """Wait for a frame; now the stranger waits for the door.

        Raises:
            OSError: The connection was closed, or has failed.
            Refused: There is no room, or it is no frame of a hello.
        """
        body = self.stream.receive()
        self.door.answered(self)
        return body


class _Room:
    """A bounded number of strangers. Those that the door waits for are ordered: it has waited longest for the first one."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.strangers: dict[Stranger, bool] = {}  # and whether the door waits for them

    def put(self, stranger: Stranger, wait: bool) -> None:
        """Add a stranger, or move it to the end."""
        self.strangers.pop(stranger, None)
        self.strangers[stranger] = wait

    def slowest(self) -> Stranger | None:
        """Of the host with the most strangers that the door waits for, the one that it has waited for longest."""
        waits = [stranger for stranger, wait in self.strangers.items() if wait]
        if not waits:
            return None
        crowd, _ = Counter(stranger.host for stranger in waits).most_common(1)[0]
        return next(stranger for stranger in waits if stranger.host == crowd)


class Door:
    """Accepts strangers. Everything happens in the hub.

    Args:
        name: The node's name.
        listener: A gevent socket that listens.
        receive: Does the hello with a stranger, in its own greenlet; raises `OSError` or
            `LocksError` if it fails. It calls `leave` when the stranger has proven itself.
        notices: Logs refusals.
        spawn: Starts a function in a new greenlet.
    """

    def __init__(
        self,
        name: str,
        listener: Any,
        receive: Callable[[Stranger], object],
        notices: Notices,
        spawn: Callable[[Callable[[Stranger], object], Stranger], object],
    ) -> None:
        self._name = name
        self._spawn = spawn
        self._listener = listener
        self._receive = receive
        self._notices = notices
        self._open = True
        size = min(ROOM, max(8, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // FILES))
        self._hall, self._room = _Room(size), _Room(size)
        self._numbers = itertools.count()
        self._waiting: list[tuple[int, int, Event]] = []  # for a turn; the last one is the next
        self._gives_turns = False

    @property
    def strangers(self) -> int:
        """The number of strangers."""
        return len(self._hall.strangers) + len(self._room.strangers)

    def keep(self) -> None:
        """Accept strangers until the door is closed."""
        since_pause = 0
        while self._open:
            try:
                sock, address = self._listener.accept()
                stream = Stream(sock)
                if sock.family == socket.AF_UNIX:
                    address = stream.address
            except OSError as error:
                if self._open:
                    self._cannot_accept(error)
                    gevent.sleep(0.05)
                continue
            stranger = Stranger(self, stream, address[:2])
            self._make_room(self._hall)
            self._hall.put(stranger, True)
            self._spawn(self._admit, stranger)
            since_pause += 1
            if since_pause >= BATCH:
                since_pause = 0
                gevent.sleep(0)

    def close(self) -> None:
        """Stop accepting strangers."""
        self._open = False
        self._listener.close()

    def leave_to_parent(self) -> None:
        """In a forked child: release the socket, which belongs to the parent."""
        self._open = False
        abandon(self._listener)

    # --- Strangers ------------------------------------------------------------------------------

    def _admit(self, stranger: Stranger) -> None:
        late = Refused(
            f"it did not authenticate within {HELLO_TIME:g} s; it is not a node, or is slow",
            cause="silent",
        )
        try:
            with gevent.Timeout(HELLO_TIME, late) as stranger.limit:
                self._receive(stranger)
        except (OSError, LocksError) as error:
            stranger.stream.close()
            if not stranger.pushed_out and self._open:
                self._tell(stranger, error)
        except BaseException:
            stranger.stream.close()
            raise
        finally:
            self.leave(stranger)

    def _tell(self, stranger: Stranger, error: Exception) -> None:
        where = place(stranger.address)
        text = "%s refused a connection from %s: %s"
        cause = error.cause if isinstance(error, Refused) else type(error).__name__
        if cause in ("settled", "ending") or isinstance(error, ConnectionError):
            logger.debug(text, self._name, where, error)
        else:
            self._notices.warn(cause, stranger.host, text, self._name, where, error)

    def leave(self, stranger: Stranger) -> None:
        """Remove a stranger that has proven itself, or is gone."""
        if stranger.limit is not None:
            stranger.limit.close()
        self._hall.strangers.pop(stranger, None)
        self._room.strangers.pop(stranger, None)

    def answered(self, stranger: Stranger) -> None:
        """Note that a stranger has sent something, so that it waits for the door.

        Raises:
            Refused: There is no room.
        """
        if stranger.pushed_out:
            raise Settled("its place was needed for other connections")
        if self._hall.strangers.pop(stranger, False) and not self._make_room(self._room):
            raise Refused("too many connections are waiting for authentication", cause="crowd")
        self._room.put(stranger, False)

    def wait_for(self, stranger: Stranger) -> None:
        """Note that a stranger was answered, so that the door waits for it."""
        if stranger in self._room.strangers:
            self._room.put(stranger, True)

    # --- TLS ------------------------------------------------------------------------------------

    def begin_tls(self, stranger: Stranger, context: Any) -> None:
        """Do the accepting side of TLS with a stranger, in steps; one stranger does a step at a time."""
        turns = itertools.count(1)

        def step(act: Callable[[bytes], bool], data: bytes) -> bool:
            if not data:
                return act(data)  # there is nothing to compute yet
            self.answered(stranger)
            turn = next(turns)
            self._await_turn(0 if turn == 1 else 1 if turn <= MANY_TURNS else -1)
            if stranger.stream.is_closed():
                raise ConnectionError("it disconnected while it was waiting for TLS")
            done = act(data)
            self.wait_for(stranger)
            return done

        first = stranger.stream.first_byte()  # before this, TLS uses no memory
        if first not in (b"", HANDSHAKE_OF_TLS):
            raise tls_words("WRONG_VERSION_NUMBER", "")
        stranger.stream.begin_tls(context, True, step=step)

    def _await_turn(self, rank: int) -> None:
        """Wait for a turn. The highest rank has the next one, and within a rank the last one that came.

        So a newcomer need not wait for a crowd that came before it, and a stranger that continues after an answer is served at once.
        """
        turn = (rank, next(self._numbers), Event())
        insort(self._waiting, turn)
        if not self._gives_turns:
            self._gives_turns = True
            gevent.spawn(self._give_turns)
        try:
            turn[2].wait()
        except BaseException:  # its time is over
            self._waiting = [each for each in self._waiting if each is not turn]
            raise

    def _give_turns(self) -> None:
        """Give one turn after the other."""
        while self._waiting:
            self._waiting.pop()[2].set()
            gevent.sleep(0)
        self._gives_turns = False

    # --- Making room ----------------------------------------------------------------------------

    def _make_room(self, room: _Room) -> bool:
        """Push a stranger out if a room is full; return whether there is a place."""
        if len(room.strangers) >= room.size:
            self._push_out(room.slowest())
        return len(room.strangers) < room.size

    def _push_out(self, stranger: Stranger | None) -> None:
        if stranger is None:
            return
        stranger.pushed_out = True
        stranger.stream.close()
        self.leave(stranger)
        self._notices.warn(
            "crowd",
            stranger.host,
            "%s closed a connection from %s, which had not authenticated: there are new connections, and the "
            "number of unauthenticated ones is limited",
            self._name,
            stranger.address[0],
        )

    def _cannot_accept(self, error: OSError) -> None:
        text = "%s can't accept connections: %s"
        self._notices.warn("accept", "", text, self._name, error, level=logging.ERROR)
        if error.errno in FULL:
            for room in (self._hall, self._room):
                for _ in range(len(room.strangers) // 4 + 1):
                    self._push_out(room.slowest())
