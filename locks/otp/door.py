"""A node's door: strangers are let in to prove themselves, in a bounded room.

Whoever connects is a stranger until it has proven that it knows the cookie. A stranger costs a place in the
room, a greenlet, and a little work; and it can get no more than that. Honest nodes must get in at the same
time, from the same address (all of a machine, or of a network behind one router), so counting per address
is not enough. What tells them apart is that they answer: an honest node keeps us waiting for as long as a
packet takes to it and back. So when the room is full, the one leaves it that has kept us waiting the longest,
and the newcomer comes in; of the host from which there are the most, so a crowd from one host pushes out
its own. Who waits for us, for its turn with TLS, is not among them.

TLS costs far more than the rest. Its steps are done one at a time, and the hub does everything else
between two of them; so links are served, and strangers accepted, while many strangers want TLS.

What a stranger calls itself does not count before it is proven: see `locks.otp.rivals`.
"""

from __future__ import annotations

import errno
import logging
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gevent
from gevent.lock import BoundedSemaphore

from locks.errors import LocksError
from locks.otp.handshake import (
    Established,
    Event,
    Failed,
    Handshake,
    Named,
    Proven,
    Send,
    Status,
)
from locks.otp.notices import Notices
from locks.otp.strangers import Refused, Settled, tls_words
from locks.otp.stream import Stream, abandon

__all__ = ["Door", "Guest", "talk", "tls_told"]

logger = logging.getLogger("locks")

ROOM = 256  # strangers at one time
HANDSHAKE_TIME = 5.0  # seconds, until a stranger must have proven itself
BATCH = 16  # strangers that come in before others have their turn
FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Guest:
    """A stranger in the room.

    Attributes:
        stream: Its connection.
        address: From where it has connected, host and port.
        limit: Ends its handshake.
        pushed_out: Whether it had to leave for others.
    """

    __slots__ = ("_door", "address", "limit", "pushed_out", "stream")

    def __init__(self, door: Door, stream: Stream, address: tuple[str, int]) -> None:
        self._door = door
        self.stream = stream
        self.address = address
        self.limit: Any = None
        self.pushed_out = False

    @property
    def host(self) -> str:
        """The host that it has connected from; of IPv6, the network, which has many addresses."""
        host = self.address[0]
        return host if host.count(":") < 4 else ":".join(host.split(":")[:4])

    def leave(self) -> None:
        """It is no stranger any more."""
        self._door.leave(self)

    def answers(self) -> None:
        """It has kept its part: from now on it waits for us."""
        self._door.forget(self)

    def is_asked(self) -> None:
        """It has got its answer: from now on we wait for it."""
        self._door.forget(self)
        self._door.waits_for(self)


class Door:
    """Accepts strangers. All of it is in the hub.

    Args:
        name: The node's name.
        listener: A gevent socket that listens.
        receive: Does the handshake with a guest, in a greenlet of its own; raises `OSError` or
            `LocksError` if it fails. It calls `leave` when the guest has proven itself.
        notices: Where refusals are logged.
    """

    def __init__(
        self,
        name: str,
        listener: Any,
        receive: Callable[[Guest], object],
        notices: Notices,
    ) -> None:
        self._name = name
        self._listener = listener
        self._receive = receive
        self._notices = notices
        self._open = True
        self._guests: set[Guest] = set()
        # Those that we wait for, by host; who has kept us waiting the longest comes first.
        self._slow: dict[str, dict[Guest, None]] = {}
        self._tls = BoundedSemaphore(1)

    def __len__(self) -> int:
        return len(self._guests)

    def keep(self) -> None:
        """Accept strangers until the door is closed."""
        since_pause = 0
        while self._open:
            try:
                sock, address = self._listener.accept()
            except OSError as error:
                if self._open:
                    self._cannot_accept(error)
                    gevent.sleep(0.05)
                continue
            if len(self._guests) >= ROOM:
                self._make_room()
            guest = Guest(self, Stream(sock), address[:2])
            if len(self._guests) >= ROOM:
                guest.stream.close()
            else:
                self._guests.add(guest)
                self.waits_for(guest)
                gevent.spawn(self._admit, guest)
            since_pause += 1
            if since_pause >= BATCH:
                since_pause = 0
                gevent.sleep(0)

    def close(self) -> None:
        """Accept nobody any more."""
        self._open = False
        self._listener.close()

    def abandon(self) -> None:
        """In a forked child: let go of the socket; it belongs to the parent."""
        self._open = False
        abandon(self._listener)

    # --- Guests ---------------------------------------------------------------------------------

    def begin_tls(self, guest: Guest, context: Any) -> None:
        """Do the accepting side of TLS with a guest; one step of one guest at a time."""

        def step(act: Callable[[bytes], bool], data: bytes) -> bool:
            guest.answers()
            with self._tls:
                done = act(data)
                gevent.sleep(0)
            guest.is_asked()
            return done

        guest.stream.begin_tls(context, True, step=step)

    def leave(self, guest: Guest) -> None:
        """A guest is none any more: it has proven itself, or is gone."""
        if guest.limit is not None:
            guest.limit.close()
        self.forget(guest)
        self._guests.discard(guest)

    def waits_for(self, guest: Guest) -> None:
        """From now on a guest keeps us waiting."""
        if guest in self._guests:
            self._slow.setdefault(guest.host, {})[guest] = None

    def forget(self, guest: Guest) -> None:
        """A guest does not keep us waiting any more."""
        crowd = self._slow.get(guest.host)
        if crowd is not None and crowd.pop(guest, guest) is None and not crowd:
            del self._slow[guest.host]

    def _admit(self, guest: Guest) -> None:
        late = Refused(
            f"it has not proven itself within {HANDSHAKE_TIME:g} s; no node, or a slow one",
            cause="silent",
        )
        try:
            with gevent.Timeout(HANDSHAKE_TIME, late) as guest.limit:
                self._receive(guest)
        except (OSError, LocksError) as error:
            guest.stream.close()
            if not guest.pushed_out and self._open:
                self._tell(guest, error)
        except BaseException:
            guest.stream.close()
            raise
        finally:
            self.leave(guest)

    def _tell(self, guest: Guest, error: Exception) -> None:
        host, port = guest.address
        text = "%s refused a connection from %s:%s: %s"
        if isinstance(error, (Settled, ConnectionError)):
            logger.debug(text, self._name, host, port, error)
        else:
            cause = error.cause if isinstance(error, Refused) else type(error).__name__
            self._notices.warn(cause, guest.host, text, self._name, host, port, error)

    def _make_room(self) -> None:
        """Push out the guest that has kept us waiting the longest, of the largest crowd."""
        if self._slow:
            crowd = max(self._slow.values(), key=len)
            self._push_out(next(iter(crowd)))

    def _push_out(self, guest: Guest) -> None:
        guest.pushed_out = True
        guest.stream.close()
        self.leave(guest)
        self._notices.warn(
            "crowd",
            guest.host,
            "%s has closed a connection from %s, which has not proven itself: others come in, and the "
            "room for strangers is full",
            self._name,
            guest.address[0],
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
            for _ in range(len(self._guests) // 4 + 1):
                self._make_room()


# --- Handshakes, from either side ---------------------------------------------------------------


def talk(
    stream: Stream, shake: Handshake, events: list[Event], guest: Guest | None = None
) -> Iterator[Named | Status | Proven | Established]:
    """Do a handshake: send what is to be sent, and yield what the caller has to see to.

    Args:
        stream: The connection.
        shake: The handshake.
        events: What it begins with; what follows from the caller's decisions is added to it.
        guest: Whose connection it is, if it was accepted.

    Raises:
        OSError: The connection is lost.
        Refused: It has failed.
    """
    while True:
        for event in events:  # it gets longer
            if isinstance(event, Send):
                stream.send(event.data)
                if guest is not None:
                    guest.is_asked()
            elif isinstance(event, Failed):
                kind = Settled if event.cause == "settled" else Refused
                raise kind(event.reason, cause=event.cause)
            else:
                yield event
        events[:] = shake.receive(stream.receive())


@contextmanager
def tls_told() -> Iterator[None]:
    """Say in words why TLS has failed."""
    try:
        yield
    except ssl.SSLError as error:
        reason, cause = tls_words(error.reason, str(error))
        raise Refused(reason, cause=cause) from error
