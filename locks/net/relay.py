"""Links between nodes that are not connected, through a lock server that both are connected with.

1. A node that needs such a link sends `Open` to a few of its servers, which pass it on to the other
   node, or to their other servers, one of which may be connected with it.
2. The other node answers the first `Open` that arrives, and the answer returns the way that it came.
3. The servers on this way remember it, and from then on pass on pieces of frames (`Relay`) in the
   order of their links; at most `WINDOW` bytes are on their way before `Took` reports them as taken in.
4. If an end, a server or a connection on the way is lost, or there is no room, `NoWay` ends the link
   at both ends, as the loss of a connection ends a connection.
5. An end that still needs the link opens another one, and a link that its opener does not need is closed.

What can fail, and what then:

* An `Open` or its answer is lost, or late: the node tries again. Sessions are numbered by time. Of two
  between the same nodes, the larger is kept. So nothing old replaces anything, and both may begin.
* A server on the way is silent: the end that notices it avoids it, and opens another link, which
  replaces the old one at the other end.
* A node speaks in the name of another one: only servers are believed about others. A server takes
  what belongs to a link only from the two connections on which the answer came and went.
* An end does not read: a window of each of its links waits at the server, and up to `LARGEST` bytes at
  each sender. A connection that is full ends the links for which something comes.
* A turn is interrupted: the connection whose input it took in is lost, and the links over it, too.

Everything is in the turn.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from locks.errors import assert_never
from locks.net.hello import Peer
from locks.net.link import Link, wake
from locks.net.messages import (
    CHUNK,
    LARGEST_FRAME,
    WINDOW,
    BadMessage,
    NoWay,
    Open,
    Relay,
    Relaying,
    Took,
    encode,
)
from locks.ranges import LONGEST_TEXT, replace
from locks.runtime.clock import monotonic, wall

if TYPE_CHECKING:
    from locks.net.book import Book
    from locks.net.notices import Notices
    from locks.runtime.executor import Executor
    from locks.runtime.inline import Turn

__all__ = ["AnyLink", "RelayedLink", "Relays", "Switch"]

LARGEST = LARGEST_FRAME  # bytes, also of what waits
MOST = 512  # links through a server over one connection
MOST_IN_ALL = 16_384  # links through a server
TRIED = 3  # servers to which an `Open` is sent at once
PERIOD = 1.0  # seconds between two looks, and until the second attempt
LONGEST = 5.0  # seconds between two attempts, at most
WARNED = 5  # failed attempts in a row, until this is logged
LINGER = 10.0  # seconds until a link that is not needed is closed


class _Way(Struct):
    """One direction of a link at a server: where it leads, and the bytes that are on their way."""

    to: str
    on_way: int = 0


class Switch:
    """What one server passes on.

    Args:
        name: The server.
        links: Its connections, by node.
        servers: Returns the servers that it is connected with.

    Attributes:
        servers: The same.
    """

    def __init__(
        self, name: str, links: Mapping[str, Link], servers: Callable[[], list[str]]
    ) -> None:
        self._name = name
        self._links = links
        self.servers = servers
        self._ways: defaultdict[str, dict[int, _Way]] = defaultdict(dict)

    def __len__(self) -> int:
        return sum(map(len, self._ways.values())) // 2

    def take(self, hop: str, message: Relaying, frame: bytes) -> None:
        """Pass on a message that has come over a connection, as `frame`.

        Raises:
            BadMessage: The other node must not send it.
        """
        way = self._ways[hop].get(message.session)
        if isinstance(message, Open):
            self._open(hop, message)
        elif way is not None:  # else it has ended meanwhile
            if isinstance(message, Relay):
                way.on_way += len(message.body)
                if way.on_way > WINDOW:
                    raise BadMessage(f"it is {way.on_way} bytes ahead; the limit is {WINDOW}")
            elif isinstance(message, Took):
                self._ways[way.to][message.session].on_way -= message.size
            if isinstance(message, NoWay):
                self._end(message.session, message.why, hop, way.to)
            elif self._links[way.to].is_full:
                self._end(message.session, f"{way.to} does not read", hop, way.to)
            else:
                self._links[way.to].send(frame)

    def _open(self, hop: str, message: Open) -> None:
        via = message.via
        if self._links[hop].peer.hidden and (
            message.sender != hop or (via and not message.answers)
        ):
            raise BadMessage(f"it opens a link in the name of {message.sender}")
        if message.answers:
            to = via[-1] if via else message.to
            if self._remember(hop, to, message.session):
                self.say(to, replace(message, via=via[:-1]))
            else:
                self.say(hop, NoWay(message.session, f"{self._name} has no way to {to}"))
        elif len(via) < 2:
            ways = [message.to] if message.to in self._links else [] if via else self.servers()
            for to in ways:
                if to != hop:
                    self.say(to, replace(message, via=(*via, self._name)))

    def _remember(self, one: str, other: str, session: int) -> bool:
        """Remember a link; return whether there is a way, and room."""
        if one == other or other not in self._links or len(self) >= MOST_IN_ALL:
            return False
        if any(session in self._ways[n] or len(self._ways[n]) >= MOST for n in (one, other)):
            return False
        self._ways[one][session], self._ways[other][session] = _Way(other), _Way(one)
        return True

    def lost(self, hop: str) -> None:
        """End the links over a connection that is lost."""
        for session, way in self._ways.pop(hop, {}).items():
            self._end(session, f"{self._name} lost its connection to {hop}", way.to)

    def _end(self, session: int, why: str, *hops: str) -> None:
        for hop in hops:
            del self._ways[hop][session]
            self.say(hop, NoWay(session, why))

    def say(self, to: str, message: Relaying) -> None:
        """Send a message over a connection, if there is one."""
        if to in self._links:
            self._links[to].send(encode(message))


class RelayedLink:
    """One end of a link through a server; for the rest of the node it is like a connection.

    Args:
        relays: The links of its node.
        peer: The node at the other end.
        server: The server.
        session: Its number.
        is_own: Whether this node has opened it.
    """

    def __init__(self, relays: Relays, peer: Peer, server: str, session: int, is_own: bool) -> None:
        self.peer = peer
        self.server = server
        self.session = session
        self.is_own = is_own
        self.since = self.needed = monotonic()
        self.closed: str | None = None
        self.drained: dict[Callable[[], object], None] = {}
        self.waiting = 0
        self._relays = relays
        self._out: deque[Relay] = deque()
        self._room = WINDOW
        self._arrived = bytearray()
        self._taken = 0

    @property
    def is_full(self) -> bool:
        """Whether a caller that can wait should wait for `drained`."""
        return self.waiting > WINDOW

    def send(self, body: bytes) -> None:
        """Send a frame, as the other end takes it in."""
        if self.closed is None:
            for at in range(0, len(body), CHUNK):
                more = at + CHUNK < len(body)
                self._out.append(Relay(self.session, body[at : at + CHUNK], more))
            self.waiting += len(body)
            self._flush()
            if self.waiting > LARGEST:
                why = f"{self.peer.name} does not read: {self.waiting} bytes wait for it"
                self._relays.turn.post(self.lose, why)

    def _flush(self) -> None:
        while self._out and len(self._out[0].body) <= self._room:
            piece = self._out.popleft()
            self._room -= len(piece.body)
            self.waiting -= len(piece.body)
            self._relays.switch.say(self.server, piece)

    def take(self, message: Relay | Took | NoWay) -> None:
        """Take in a message of the server."""
        match message:
            case Relay():
                self._arrived += message.body
                self._taken += len(message.body)
                if self._taken >= WINDOW // 4:
                    self._relays.switch.say(self.server, Took(self.session, self._taken))
                    self._taken = 0
                if len(self._arrived) > LARGEST:
                    self.lose(f"{self.peer.name} sent a frame of more than {LARGEST} bytes")
                elif not message.more:
                    frame = bytes(self._arrived)
                    self._arrived.clear()
                    self._relays.on_frame(self, frame)
            case Took():
                self._room = min(WINDOW, self._room + message.size)
                self._flush()
                if not self.is_full:
                    wake(self.drained)
            case NoWay():
                self.lose(message.why)
            case _:
                assert_never(message)

    def lose(self, reason: str) -> None:
        """End it, unless it has ended; the other end is told."""
        if self.closed is None:
            self.closed = reason[:LONGEST_TEXT]
            self._relays.switch.say(self.server, NoWay(self.session, self.closed))
            self._relays.ended(self)


AnyLink = Link | RelayedLink


class Home(Protocol):
    """What links through servers need of a node's connections (`locks.net.network`)."""

    name: str
    incarnation: int
    links: dict[str, Link]
    relayed: dict[str, RelayedLink]
    named: set[str]
    refusals: dict[str, str]
    book: Book
    is_client: bool
    notices: Notices
    is_running: bool

    def may_meet(self, name: str) -> bool:
        """Whether a node that is not connected may be in touch with this one."""
        ...  # pragma: no cover


class _Attempt(Struct):
    """Attempts to open a link: the last session, how many failed, and when the next one is due."""

    session: int = 0
    failures: int = 0
    due: float = 0.0


class Relays:
    """The links of one node through servers.

    Args:
        network: Its connections.
        turn: Its turn.
        executor: Calls something later.
        servers: Returns the servers that it is connected with.
        needed: Returns nodes to which links are needed.
        on_up: Called with each new link.
        on_down: Called with each link that is gone.
        on_frame: Called with a link and the body of each frame.

    Attributes:
        links: The links, by node.
        switch: What it passes on for others, if it is a server.
    """

    def __init__(
        self,
        network: Home,
        turn: Turn,
        executor: Executor,
        *,
        servers: Callable[[], list[str]],
        needed: Callable[[], Collection[str]],
        on_up: Callable[[RelayedLink], object],
        on_down: Callable[[RelayedLink], object],
        on_frame: Callable[[RelayedLink, bytes], object],
    ) -> None:
        self.links = network.relayed
        self.switch = Switch(network.name, network.links, servers)
        self.turn = turn
        self.on_frame = on_frame
        self._network = network
        self._executor = executor
        self._needed = needed
        self._on_up = on_up
        self._on_down = on_down
        self._name = network.name
        self._sessions: dict[int, RelayedLink] = {}
        self._attempts: dict[str, _Attempt] = {}
        self._wishes: dict[Hashable, Collection[str]] = {}
        self._looks = False

    # --- Opening --------------------------------------------------------------------------------

    def wish(self, wisher: Hashable, names: Collection[str]) -> None:
        """Set the nodes to which `wisher` needs links from now on."""
        self._wishes[wisher] = names
        if not names:
            del self._wishes[wisher]
        self.look()

    def want(self, name: str) -> None:
        """Open a link, because there is something to send; unless this was begun."""
        if name not in self._attempts and name not in self.links:
            self._try(name)

    def look(self, at_once: bool = False) -> None:
        """Open the links that are needed and due, or all of them, and close those that are not needed."""
        now, network = monotonic(), self._network
        if not network.is_running:
            return
        wished = network.named.union(*self._wishes.values()) - network.book.known.keys()
        needed = {*self._needed(), *wished} - {self._name} - network.links.keys()
        for name in self._attempts.keys() - needed:
            del self._attempts[name]
        for name in needed - self.links.keys():
            if at_once or name not in self._attempts or now >= self._attempts[name].due:
                self._try(name)
        for name, link in list(self.links.items()):
            if name in needed:
                link.needed = now
            elif link.is_own and now - link.needed > LINGER:
                link.lose("it is not needed any more")
        if self._attempts or any(link.is_own for link in self.links.values()):
            self._look_later()

    def _look_later(self) -> None:
        if not self._looks:
            self._looks = True
            self._executor.run_later(PERIOD, self.turn.run, self._look_again)

    def _look_again(self) -> None:
        self._looks = False
        self.look()

    def _try(self, name: str) -> None:
        attempt = self._attempts.setdefault(name, _Attempt())
        attempt.due = monotonic() + min(LONGEST, PERIOD * 2 ** min(attempt.failures, WARNED))
        if attempt.failures and name in self._network.named:
            self._network.refusals[name] = "no server of this node leads to it"
        attempt.failures += 1
        if attempt.failures == WARNED:
            text = "no server leads from %s to %s; let both use the same servers, or deadlocks may not be found"
            self._network.notices.warn("relay", name, text, self._name, name)
        by_time = (int(wall() * 1000) << 20) + random.getrandbits(20)
        attempt.session = min(max(by_time, attempt.session + 1), 2**63 - 1)
        servers = self.switch.servers()
        for server in random.sample(servers, min(TRIED, len(servers))):
            self.switch.say(server, self._open(attempt.session, name))
        self._look_later()

    def _open(self, session: int, to: str, **answer: Any) -> Open:
        return Open(session, self._name, to, self._network.incarnation, **answer)

    # --- Input ----------------------------------------------------------------------------------

    def take(self, hop: Link, message: Relaying, frame: bytes) -> None:
        """Take in a frame of a connection: for a link that ends here, or to be passed on.

        Raises:
            BadMessage: The other node must not send it.
        """
        link = self._sessions.get(message.session)
        if isinstance(message, Open) and message.to == self._name:
            self._opened(hop, message, link)
        elif not isinstance(message, Open) and link is not None and link.server == hop.peer.name:
            link.take(message)
        elif not self._network.is_client:
            self.switch.take(hop.peer.name, message, frame)

    def _opened(self, hop: Link, message: Open, known: RelayedLink | None) -> None:
        """Take in a request for a link, or an answer."""
        name, session, server = message.sender, message.session, hop.peer.name
        attempt, link = self._attempts.get(name), self.links.get(name)
        if hop.peer.hidden or known is not None:
            return
        last = max(attempt.session if attempt else -1, link.session if link else -1)
        fits = session == last if message.answers else session > last
        if not fits or not self._network.may_meet(name):
            why = f"{self._name} has another link, or takes none"
            self.switch.say(server, NoWay(session, why))
            return
        if link is not None:
            link.lose(f"{name} has opened another one")
        if not message.answers:
            self.switch.say(server, self._open(session, name, via=message.via[:-1], answers=True))
        peer = Peer(name, message.incarnation, hidden=True)  # it has no lock server for this one
        link = RelayedLink(self, peer, server, session, message.answers)
        self.links[name] = self._sessions[session] = link
        self._network.refusals.pop(name, None)
        self._on_up(link)

    # --- The end --------------------------------------------------------------------------------

    def lost(self, name: str) -> None:
        """A connection is lost, and all links over it."""
        self.switch.lost(name)
        self.avoid(name, f"lost the connection to {name}")

    def avoid(self, server: str, why: str) -> None:
        """End the links over a server that is lost or silent."""
        for link in [each for each in self.links.values() if each.server == server]:
            link.lose(why)

    def ended(self, link: RelayedLink) -> None:
        """Forget a link that has ended; if it is needed, open another one."""
        name = link.peer.name
        del self.links[name], self._sessions[link.session]
        attempt = self._attempts.setdefault(name, _Attempt())
        attempt.session = max(attempt.session, link.session)
        if monotonic() - link.since > PERIOD:  # it worked, so try again at once
            attempt.failures, attempt.due = 0, 0.0
        self._on_down(link)
        wake(link.drained)
        self.turn.post(self.look)
