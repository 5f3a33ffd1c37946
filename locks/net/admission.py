"""Hellos over connections, from either side, and which of several connections with nodes of one name is kept.

The name that a stranger gives has no effect by itself: it stops no attempt of this node, and ends no link. The decision is made after
the side that has dialled has proven itself, and before the side that accepts does.

*Both nodes dial each other.* The connection that was begun by the node with the larger name is kept. If one from the node with the
smaller name proves itself first, it waits a short time: the attempt of the node with the larger name may lead to another program. The
node with the smaller name gives up its own attempt when the other node's connection has proven itself.

*The name is connected already.* If the same incarnation connects again, it has lost its link and knows this: it does not prove itself
while it has one. If the link was there when its hello arrived, the new connection replaces it. Another incarnation is either the
restarted program, or a second program that runs beside the first. So this node requests a sign of life over the old link; any input
counts. If one comes, the newcomer is refused, and informed which program has the name. If the link was closed, or no sign comes in
time, the old program is gone, and the newcomer takes its place.

What can fail: anything, at any point, and the time may be over. Then the caller closes the connection. A side that refuses tells the
other one why, if it can.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from secrets import token_bytes
from typing import TYPE_CHECKING

import gevent
from gevent.event import Event

from locks.net.addresses import HostAndPort, place
from locks.net.door import Stranger
from locks.net.hello import (
    ACCEPTS,
    DIALS,
    Peer,
    Refused,
    Settled,
    prove,
    read_hello,
    recognise,
    refusal,
    say_hello,
    tls_words,
)
from locks.net.link import Link
from locks.net.stream import Stream
from locks.net.tls import Keys
from locks.runtime.first_use import Unloaded
from locks.runtime.inline import Turn

if TYPE_CHECKING:
    import ssl
else:
    ssl = Unloaded("ssl")

__all__ = ["Admission"]

HELLO_TIME = 7.0  # seconds for a hello, at the side that has dialled
TELL_TIME = 1.0  # seconds to tell the other side why it is refused
PATIENCE = 1.0  # seconds that a proven connection waits for our own attempt
SIGNS = (1.0, 4.0)  # seconds to wait for a sign of life, at least and at most
PART = 4  # in between, a fourth of net_ticktime
LOOK = 0.05  # seconds between two looks for it
ROUNDS = 10  # changes of the name's connection while one newcomer is judged


class _Attempt:
    """A connection that was begun here."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.given_up = False  # because another connection is kept
        self.over = Event()


class Admission:
    """Makes links of connections. In the hub.

    Args:
        own: What this node is, as others see it.
        links: Its links.
        turn: Its turn.
        keys: Returns what it proves itself with now.
        object_to: Raises `Refused` if no node of this name may connect now.
        ask: Asks a link for a sign of life; called in the turn.
        establish: Makes a link: of a stream, to a peer at an address, in the place of another link.

    Attributes:
        streams: The connections in a hello.
    """

    def __init__(
        self,
        own: Peer,
        links: Mapping[str, Link],
        turn: Turn,
        *,
        keys: Callable[[], Keys],
        object_to: Callable[[str], None],
        ask: Callable[[Link], object],
        establish: Callable[[Stream, Peer, HostAndPort, Link | None], object],
    ) -> None:
        self._own = own
        self._links = links
        self._turn = turn
        self._keys = keys
        self._object_to = object_to
        self._ask = ask
        self._establish = establish
        self.streams: set[Stream] = set()
        self._attempts: dict[str, _Attempt] = {}
        self._judged: set[str] = set()  # the nodes of which a proven connection is being judged

    # --- Hellos ---------------------------------------------------------------------------------

    def dial(self, name: str, stream: Stream) -> None:
        """Say hello to a node over a connection that was begun here, and make a link of it.

        Raises:
            OSError: The connection is lost.
            Refused: One of the two refuses the other.
        """
        keys = self._keys()
        with self._attempt(name, stream), self._hello(stream, keys):
            address = stream.address
            self._check_is_needed(name)
            if keys.contexts is not None:
                stream.begin_tls(keys.contexts[0], False, name.split("@")[1])
                stream.check_host(keys.tls, name)
            dialled = say_hello(self._own, name, token_bytes(32))
            stream.send(dialled)
            accepted = stream.receive()
            peer = read_hello(accepted, self._own.name, name)
            self._check_is_needed(name)
            stream.send(prove(DIALS, dialled, accepted, keys.cookies.each))
            if recognise(stream.receive(), ACCEPTS, dialled, accepted, keys.cookies.each) is None:
                raise self._other_cookie(name)
            self._establish(stream, peer, address, None)

    def accept(self, stranger: Stranger) -> None:
        """Answer the hello of a stranger, and make a link of its connection.

        Raises:
            OSError: The connection is lost.
            Refused: One of the two refuses the other.
        """
        keys, stream = self._keys(), stranger.stream
        stream.check_user()
        with self._hello(stream, keys):
            if keys.contexts is not None:
                stranger.door.begin_tls(stranger, keys.contexts[1])
            dialled = stranger.receive()
            peer = read_hello(dialled, self._own.name)
            known = self._links.get(peer.name)
            self._object_to(peer.name)
            stream.check_host(keys.tls, peer.name)
            accepted = say_hello(self._own, peer.name, token_bytes(32))
            stranger.send(accepted)
            proof = stranger.receive()
            cookie = recognise(proof, DIALS, dialled, accepted, keys.cookies.each)
            if cookie is None:
                raise self._other_cookie(peer.name)
            stranger.door.leave(stranger)
            if peer.name in self._judged:
                raise Settled("another connection of this node is being checked")
            self._judged.add(peer.name)
            try:
                replaced = self._judge(peer, known)
                stream.send(prove(ACCEPTS, dialled, accepted, (cookie,)))
                self._establish(stream, peer, stranger.address, replaced)
            finally:
                self._judged.discard(peer.name)

    @contextmanager
    def _hello(self, stream: Stream, keys: Keys) -> Iterator[None]:
        """Remember the stream for the end of the node; tell the other side why it is refused."""
        self.streams.add(stream)
        try:
            try:
                yield
            except OSError as error:
                if keys.contexts is None or not isinstance(error, ssl.SSLError):
                    raise
                raise tls_words(error.reason, str(error)) from error
        except Refused as error:
            with suppress(OSError), gevent.Timeout(TELL_TIME, OSError):
                stream.send(refusal(error))
            raise
        finally:
            self.streams.discard(stream)

    @contextmanager
    def _attempt(self, name: str, stream: Stream) -> Iterator[None]:
        """Note that this node dials another one, for a limited time."""
        late = Refused(
            f"the hello timed out after {HELLO_TIME:g} s; the node is stopped or busy, or another program listens on its port",
            cause="silent",
        )
        made = self._attempts[name] = _Attempt(stream)
        try:
            with gevent.Timeout(HELLO_TIME, late):
                yield
        except BaseException as error:
            stream.close()
            if made.given_up and isinstance(error, OSError):
                raise Settled("another connection is kept") from error
            raise
        finally:
            del self._attempts[name]
            made.over.set()

    def _check_is_needed(self, name: str) -> None:
        if name in self._links or name in self._judged:
            raise Settled("another connection is kept")

    def _other_cookie(self, name: str) -> Refused:
        said = "has another cookie; all nodes need the same one"
        return Refused(f"{name} {said}", cause="cookie", told=f"{self._own.name} {said}")

    # --- Rivals ---------------------------------------------------------------------------------

    def _judge(self, peer: Peer, known: Link | None) -> Link | None:
        """Judge a proven connection that another node has begun; may wait.

        Args:
            peer: The node.
            known: The link to it when its hello arrived.

        Returns:
            The link whose place it takes, if any.

        Raises:
            Refused: The connection is not kept.
        """
        for _ in range(ROUNDS):
            link = self._links.get(peer.name)
            attempt = self._attempts.get(peer.name)
            if link is not None and link.peer.incarnation == peer.incarnation:
                if link is known:
                    return link
                raise Settled("another connection is kept")
            if link is not None:
                if self._is_alive(link):
                    raise Refused(_taken(link), cause="taken")
                if self._links.get(peer.name) is link:
                    return link
            elif attempt is None:
                return None
            elif peer.name > self._own.name or not attempt.over.wait(PATIENCE):
                attempt.given_up = True
                attempt.stream.close()
                attempt.over.wait(PATIENCE)
        raise Settled("other connections of this node kept changing")

    def _is_alive(self, link: Link) -> bool:
        """Whether the program at the other end gives a sign of life."""
        heard = self._turn.run(self._doubt, link)
        shortest, longest = SIGNS
        # Count looks, not time: a program that was held up itself reads its input before each look.
        for _ in range(round(min(longest, max(shortest, link.ticktime / PART)) / LOOK)):
            gevent.sleep(LOOK)
            gevent.sleep(0)  # in a round of the loop, timers come before input
            if link.closed is not None or link.heard != heard:
                break
        return link.closed is None and link.heard != heard

    def _doubt(self, link: Link) -> int:
        """Request a sign of life; return how often input had arrived before."""
        self._ask(link)
        return link.heard


def _taken(link: Link) -> str:
    """The refusal for a second program with the name of another one."""
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(link.since))
    return (
        f"another program has been connected as {link.peer.name} since {since}, from {place(link.address)}; give each "
        "program a unique name"
    )
