"""Who has a name: which of several connections with nodes of one name is kept.

A name that a stranger gives counts for nothing: it stops no attempt of ours, and ends no link. What is decided
is decided when both sides of a connection have proven that they know the cookie, and before the accepting side
says so.

*Both nodes dial each other.* The connection that was begun by the node with the larger name is kept, as in
Erlang. When a connection of the smaller one has proven itself first, it waits, for a moment: our own attempt may
lead to somebody else. The node with the smaller name gives its own attempt up when the other one's connection
has proven itself.

*The name is connected already.* The same incarnation (creation) that connects anew has lost its link, and knows it:
it is asked, as in Erlang (`alive`), and the new connection takes the place of the link. Another incarnation is
either the restarted program, or a second program that runs beside the first. So the link is asked for a sign of life:
anything that arrives will do. If one comes, the newcomer is refused, and told who has the name. If the link was
closed, or nothing comes in time, the old program is gone, and the newcomer takes its place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import gevent
from gevent.event import Event

from locks.otp.admission.handshake import Peer
from locks.otp.admission.strangers import Refused, Settled
from locks.otp.links.link import Link
from locks.otp.links.stream import Stream
from locks.otp.names.discovery import place
from locks.runtime.inline import Turn

__all__ = ["Attempt", "Rivals"]

PATIENCE = 1.0  # seconds that a proven connection waits for our own attempt
SIGNS = (1.0, 4.0)  # seconds that a sign of life is waited for, at least and at most
PART = 4  # and in between this part of net_ticktime: one in so many
LOOK = 0.05  # seconds between two looks whether one has come
ROUNDS = 10  # changes of who has the name, while one connection is judged


class Attempt:
    """A connection that was begun here.

    Attributes:
        given_up: Whether another connection is kept instead.
        over: Set when it has come to an end.
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
        """While a connection that was begun here does its handshake."""
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
        """Judge a connection that was begun by another node, and has proven itself; may wait.

        Args:
            peer: The node.
            known: The link that it was asked about, and is to be replaced as far as it is concerned.

        Returns:
            The link whose place it takes, if any; then it is to be admitted.

        Raises:
            Refused: It is not.
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
        # Looks are counted: a program that was held up itself reads before each what has arrived.
        for _ in range(round(min(longest, max(shortest, link.ticktime / PART)) / LOOK)):
            gevent.sleep(LOOK)
            gevent.sleep(0)  # in a round of the loop, timers come before what is to be read
            if link.closed is not None or link.heard != heard:
                break
        return link.closed is None and link.heard != heard

    def _doubt(self, link: Link) -> int:
        """Ask for a sign of life; return how often something has arrived before."""
        link.send(b"")  # some answer a tick
        self._ask(link)
        return link.heard


def taken(link: Link) -> str:
    """What a second program is told that comes with the name of another one."""
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(link.since))
    return (
        f"another program has been connected as {link.peer.name} since {since}, from {place(link.address)}; give each "
        "program a unique name"
    )
