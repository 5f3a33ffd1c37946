"""Rivals: which of several connections with nodes of one name is kept.

The name that a stranger gives has no effect by itself: it stops no attempt of this node, and ends
no link. The decision is made after both sides of a connection have proven that they know the
cookie, and before the accepting side sends its proof.

*Both nodes dial each other.* As in Erlang, the connection that was begun by the node with the
larger name is kept. If a connection from the node with the smaller name proves itself first, it
waits a short time: the attempt of the node with the larger name may lead to another program. The
node with the smaller name gives up its own attempt when the other node's connection has proven
itself.

*The name is connected already.* If the same incarnation (creation) connects again, it has lost its
link and knows this. It confirms so, as in Erlang (`alive`), and the new connection replaces the
link. Another incarnation is either the restarted program, or a second program that runs beside the
first. So this node requests a sign of life over the old link; any input counts. If one comes, the
newcomer is refused, and informed which program has the name. If the link was closed, or no sign
comes in time, the old program is gone, and the newcomer takes its place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import gevent
from gevent.event import Event

from locks.net.addresses import place
from locks.otp.admission.handshake import Peer
from locks.otp.admission.strangers import Refused, Settled
from locks.otp.links.link import Link
from locks.otp.links.stream import Stream
from locks.runtime.inline import Turn

__all__ = ["Attempt", "Rivals"]

PATIENCE = 1.0  # seconds that a proven connection waits for our own attempt
SIGNS = (1.0, 4.0)  # seconds to wait for a sign of life, at least and at most
PART = 4  # in between, a fourth of net_ticktime
LOOK = 0.05  # seconds between two looks for it
ROUNDS = 10  # changes of the name's connection while one newcomer is judged


class Attempt:
    """A connection that was begun here.

    Attributes:
        given_up: Whether another connection is kept instead.
        over: Set when the attempt has ended.
    """

    __slots__ = ("_stream", "given_up", "over")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.given_up = False
        self.over = Event()

    def give_up(self) -> None:
        """End it."""
        self.given_up = True
        self._stream.close()


class Rivals:
    """Decides which connection is kept. In the hub.

    Args:
        name: The node's name.
        turn: Its turn.
        links: Its links.
        ask: Asks a link for a sign of life; called in the turn.
    """

    def __init__(
        self, name: str, turn: Turn, links: dict[str, Link], ask: Callable[[Link], object]
    ) -> None:
        self._name = name
        self._turn = turn
        self._links = links
        self._ask = ask
        self._attempts: dict[str, Attempt] = {}
        self._judged: set[str] = set()  # the nodes of which a connection is being judged

    @contextmanager
    def attempt(self, name: str, stream: Stream) -> Iterator[Attempt]:
        """Register an attempt while it does its handshake."""
        made = self._attempts[name] = Attempt(stream)
        try:
            yield made
        except OSError as error:
            if made.given_up:
                raise Settled("another connection is kept") from error
            raise
        finally:
            del self._attempts[name]
            made.over.set()

    def judge(self, peer: Peer, known: Link | None) -> Link | None:
        """Judge a connection that another node has begun, and that has proven itself; may wait.

        Args:
            peer: The node.
            known: The link that the other node has agreed to replace, if it was asked.

        Returns:
            The link whose place it takes, if any. The connection is then admitted.

        Raises:
            Refused: The connection is not kept.
        """
        if peer.name in self._judged:
            raise Settled("another connection of this node is being checked")
        self._judged.add(peer.name)
        try:
            return self._judge(peer, known)
        finally:
            self._judged.discard(peer.name)

    def _judge(self, peer: Peer, known: Link | None) -> Link | None:
        for _ in range(ROUNDS):
            link = self._links.get(peer.name)
            attempt = self._attempts.get(peer.name)
            if link is not None and link.peer.creation == peer.creation:
                if link is known:
                    return link
                raise Settled("another connection is kept")
            if link is not None:
                if self._is_alive(link):
                    raise Refused(taken(link), cause="taken")
                if self._links.get(peer.name) is link:
                    return link
            elif attempt is None:
                return None
            elif peer.name > self._name or not attempt.over.wait(PATIENCE):
                attempt.give_up()
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
        link.send(b"")  # some nodes answer a tick
        self._ask(link)
        return link.heard


def taken(link: Link) -> str:
    """The refusal for a second program with the name of another one."""
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(link.since))
    return (
        f"another program has been connected as {link.peer.name} since {since}, from {place(link.address)}; give each "
        "program a unique name"
    )
