"""A node's door, where strangers prove themselves in two bounded rooms.

Each peer that connects is a stranger until it has proven that it knows the cookie. A stranger costs
a place, a greenlet and a little work, and can cause no more. Meanwhile honest nodes must get in,
perhaps from the same address (all nodes of a machine, or of a network behind one router). So a
limit per address is not enough. But honest nodes answer: the door waits for them only as long as a
packet takes there and back.

A stranger first enters the hall. After it has sent something, it moves to the room. If there is no
place, one stranger must leave: of the host with the most strangers that the door waits for, the one
that it has waited for longest. So a crowd from one host pushes out its own strangers. A stranger
that waits for the door never has to leave, and a silent stranger does not push out strangers that
have sent something.

TLS costs far more than everything else. Its steps are done one at a time, and the hub does all
other work between two of them. So links are served and strangers accepted while many strangers do
TLS. No step is computed for a stranger that has left.

The name that a stranger gives does not count before it is proven: see `locks.otp.admission.rivals`.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import resource
import socket
import ssl
from bisect import insort
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import gevent
from gevent.event import Event as GreenEvent

from locks.errors import InvalidOption, LocksError
from locks.otp.admission.handshake import (
    Established,
    Event,
    Failed,
    Handshake,
    Named,
    Proven,
    Send,
    Status,
    refusal,
)
from locks.otp.admission.strangers import Refused, Settled, tls_words
from locks.otp.links.stream import Stream, abandon, native_socket
from locks.otp.names.addresses import Address, HostAndPort, UnixAddress, place
from locks.otp.notices import Notices

__all__ = ["Door", "Stranger", "listen", "talk", "tls_told"]

logger = logging.getLogger("locks.nodes")

ROOM = 512  # strangers at one time in each of the two rooms
FILES = 4  # each room may use a fourth of the files that the process may open
HANDSHAKE_TIME = 5.0  # seconds, until a stranger must have proven itself
HANDSHAKE_OF_TLS = b"\x16"  # the first byte of TLS
UNFINISHED = "~"  # at the end of the path of a Unix domain socket, until it listens
BACKLOG = 1024  # connections that the system keeps until they are accepted
MANY_TURNS = 8  # with TLS: a stranger that needs more sends tiny pieces, and is served last
BATCH = 16  # strangers that are accepted before other greenlets run
FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def listen(address: Address) -> socket.socket:
    """Make a native socket that listens at an address.

    Raises:
        InvalidOption: The address can't be listened on.
    """
    if isinstance(address, UnixAddress):
        return _listen_unix(address.path)
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    listener = native_socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise InvalidOption(
            f"can't listen on {address[0]}:{address[1]}: {error.strerror or error}; choose another "
            "address, or port 0 for a free one",
            address=address,
        ) from error
    return listener


def _listen_unix(path: str) -> socket.socket:
    """Do the same at a path, in place of an existing file; the path appears only when it listens."""
    listener = native_socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = path + UNFINISHED
    try:
        with suppress(FileNotFoundError):
            os.unlink(before)
        listener.bind(before)
        listener.listen(BACKLOG)
        os.rename(before, path)
    except OSError as error:
        listener.close()
        raise InvalidOption(f"can't listen on {path}: {error}", address=path) from error
    return listener


class Stranger:
    """A peer that has connected, and has proven nothing yet.

    Attributes:
        stream: Its connection.
        address: The host and port from which it has connected.
        has_spoken: Whether it has sent anything.
        limit: The timeout of its handshake.
        pushed_out: Whether it had to leave for others.
        turns: How many steps of TLS it has done.
    """

    __slots__ = ("_door", "address", "has_spoken", "limit", "pushed_out", "stream", "turns")

    def __init__(self, door: Door, stream: Stream, address: HostAndPort) -> None:
        self._door = door
        self.stream = stream
        self.address = address
        self.has_spoken = False
        self.limit: Any = None
        self.pushed_out = False
        self.turns = 0

    @property
    def host(self) -> str:
        """The host from which it has connected; with IPv6 the network, which has many addresses."""
        host = self.address[0]
        return host if host.count(":") < 4 else ":".join(host.split(":")[:4])

    def leave(self) -> None:
        """Give up its place at the door."""
        self._door.leave(self)

    def answers(self) -> None:
        """Note that it has sent something, so that it waits for this node.

        Raises:
            Refused: There is no room.
        """
        self._door.answered(self)

    def is_asked(self) -> None:
        """Note that it was answered, so that this node waits for it."""
        self._door.wait_for(self)


class _Room:
    """A bounded number of strangers."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.strangers: set[Stranger] = set()
        # The strangers that the node waits for, by host; the one it has waited for longest comes
        # first.
        self._slow: dict[str, dict[Stranger, None]] = {}

    @property
    def is_full(self) -> bool:
        return len(self.strangers) >= self.size

    def wait_for(self, stranger: Stranger) -> None:
        """Note that the node waits for a stranger from now on."""
        self._forget(stranger)
        self.strangers.add(stranger)
        self._slow.setdefault(stranger.host, {})[stranger] = None

    def has_answered(self, stranger: Stranger) -> None:
        """Note that a stranger waits for the node."""
        self._forget(stranger)
        self.strangers.add(stranger)

    def leave(self, stranger: Stranger) -> None:
        """Remove a stranger."""
        self._forget(stranger)
        self.strangers.discard(stranger)

    def slowest(self) -> Stranger | None:
        """Of the host with the most strangers, the one that the node has waited for longest."""
        if not self._slow:
            return None
        crowd: dict[Stranger, None] = max(self._slow.values(), key=len)
        return next(iter(crowd))

    def _forget(self, stranger: Stranger) -> None:
        crowd = self._slow.get(stranger.host)
        if crowd is not None and stranger in crowd:
            del crowd[stranger]
            if not crowd:
                del self._slow[stranger.host]


class _Turnstile:
    """Lets one stranger through at a time: by rank, and within a rank the last one that came.

    So a newcomer need not wait for a crowd that came before it, and a stranger that continues after
    an answer is served at once.
    """

    def __init__(self) -> None:
        self._busy = False
        self._numbers = itertools.count()
        self._waiting: list[tuple[int, int, GreenEvent]] = []  # sorted; the last one is the next

    @contextmanager
    def through(self, rank: int) -> Iterator[None]:
        """Wait for the caller's turn."""
        if self._busy:
            place = (rank, next(self._numbers), GreenEvent())
            insort(self._waiting, place)
            try:
                place[2].wait()
            except BaseException:  # its handshake timed out
                if place in self._waiting:
                    self._waiting.remove(place)
                else:
                    self._pass_on()
                raise
        self._busy = True
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        if self._waiting:
            self._waiting.pop()[2].set()
        else:
            self._busy = False


class Door:
    """Accepts strangers. Everything happens in the hub.

    Args:
        name: The node's name.
        listener: A gevent socket that listens.
        receive: Does the handshake with a stranger, in its own greenlet; raises `OSError` or
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
        self._tls = _Turnstile()

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
            self._enter(stream, address[:2])
            since_pause += 1
            if since_pause >= BATCH:
                since_pause = 0
                gevent.sleep(0)

    def _enter(self, stream: Stream, address: HostAndPort) -> None:
        """Take in a stranger that has connected."""
        if not self._open:
            stream.close()
            return
        stranger = Stranger(self, stream, address)
        self._make_room(self._hall)
        self._hall.wait_for(stranger)
        self._spawn(self._admit, stranger)

    def close(self) -> None:
        """Stop accepting strangers."""
        self._open = False
        self._listener.close()

    def leave_to_parent(self) -> None:
        """In a forked child: release the socket, which belongs to the parent."""
        self._open = False
        abandon(self._listener)

    # --- Strangers ---------------------------------------------------------------------------------

    def begin_tls(self, stranger: Stranger, context: Any) -> None:
        """Do the accepting side of TLS with a stranger, in steps; one stranger does a step at a time."""

        def step(act: Callable[[bytes], bool], data: bytes) -> bool:
            if not data:
                return act(data)  # there is nothing to compute yet
            stranger.answers()
            stranger.turns += 1
            first, last = stranger.turns == 1, stranger.turns > MANY_TURNS
            with self._tls.through(0 if first else -1 if last else 1):
                if stranger.stream.is_closed():
                    raise ConnectionError("it disconnected while it was waiting for TLS")
                done = act(data)
                gevent.sleep(0)
            stranger.is_asked()
            return done

        first = stranger.stream.await_words()  # before this, TLS uses no memory
        if first not in (b"", HANDSHAKE_OF_TLS):
            stranger.stream.send(refusal("this node uses TLS; set tls= on both, or on neither"))
            reason, cause = tls_words("WRONG_VERSION_NUMBER", "")
            raise Refused(reason, cause=cause)
        stranger.stream.begin_tls(context, True, step=step)

    def leave(self, stranger: Stranger) -> None:
        """Remove a stranger that has proven itself, or is gone."""
        if stranger.limit is not None:
            stranger.limit.close()
        self._hall.leave(stranger)
        self._room.leave(stranger)

    def answered(self, stranger: Stranger) -> None:
        """Note that a stranger has sent something."""
        if stranger.pushed_out:
            raise Settled("its place was needed for other connections")
        if not stranger.has_spoken:
            self._hall.leave(stranger)
            stranger.has_spoken = True
            if not self._make_room(self._room):
                raise Refused("too many connections are waiting for authentication", cause="crowd")
        self._room.has_answered(stranger)

    def wait_for(self, stranger: Stranger) -> None:
        """Note that a stranger was answered."""
        if stranger in self._room.strangers:
            self._room.wait_for(stranger)

    def _admit(self, stranger: Stranger) -> None:
        late = Refused(
            f"it did not authenticate within {HANDSHAKE_TIME:g} s; it is not a node, or is slow",
            cause="silent",
        )
        try:
            with gevent.Timeout(HANDSHAKE_TIME, late) as stranger.limit:
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
        if isinstance(error, (Settled, ConnectionError)):
            logger.debug(text, self._name, where, error)
        else:
            cause = error.cause if isinstance(error, Refused) else type(error).__name__
            self._notices.warn(cause, stranger.host, text, self._name, where, error)

    def _make_room(self, room: _Room) -> bool:
        """Push a stranger out if a room is full; return whether there is a place."""
        slowest = room.slowest() if room.is_full else None
        if slowest is not None:
            self._push_out(slowest)
        return not room.is_full

    def _push_out(self, stranger: Stranger) -> None:
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
        self._notices.warn(
            "accept",
            "",
            "%s can't accept connections: %s",
            self._name,
            error,
            level=logging.ERROR,
        )
        if error.errno in FULL:
            for room in (self._hall, self._room):
                for _ in range(len(room.strangers) // 4 + 1):
                    slowest = room.slowest()
                    if slowest is not None:
                        self._push_out(slowest)


# --- Handshakes, from either side ---------------------------------------------------------------


def talk(
    stream: Stream, shake: Handshake, events: list[Event], stranger: Stranger | None = None
) -> Iterator[Named | Status | Proven | Established]:
    """Do a handshake: carry out its sends, and yield the events that the caller must handle.

    Args:
        stream: The connection.
        shake: The handshake.
        events: The first events; the caller appends those that follow from its decisions.
        stranger: The stranger, if the connection was accepted.

    Raises:
        OSError: The connection is lost.
        Refused: The handshake has failed.
    """
    while True:
        for event in events:  # it gets longer
            if isinstance(event, Send):
                stream.send(event.data)
                if stranger is not None:
                    stranger.is_asked()
            elif isinstance(event, Failed):
                kind = Settled if event.cause == "settled" else Refused
                raise kind(event.reason, cause=event.cause)
            else:
                yield event
        events[:] = shake.receive(stream.receive())
        if stranger is not None and events:
            stranger.answers()


@contextmanager
def tls_told() -> Iterator[None]:
    """Turn an error of TLS into a `Refused` with a plain reason."""
    try:
        yield
    except ssl.SSLError as error:
        reason, cause = tls_words(error.reason, str(error))
        raise Refused(reason, cause=cause) from error
