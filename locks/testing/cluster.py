"""A simulated node's relations with others: those of the product, over simulated connections.

Process groups, monitors, references, calls and views of other nodes are the product's own, down to the
frames (`locks.net.exchange`). Only the connections are simulated:
a frame is a message in the application's network. So it is lost with its connection, and it keeps its
place among the messages of its connection, those of agents and lock servers too.

Agents and lock servers need no frames: the application carries their messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, cast

from locks.errors import MisuseError
from locks.net.actors import Actors
from locks.net.book import Book
from locks.net.exchange import NOCONNECTION, Exchange
from locks.net.link import Traffic
from locks.net.messages import Limits
from locks.node.observing.inquiries import Inquiries
from locks.node.peers.cluster import Cluster, NodeDown, NodeUp
from locks.node.peers.guests import Guests
from locks.node.peers.local_node import LocalNode
from locks.node.views.reader import ViewReader
from locks.node.views.sender import ViewSender
from locks_lab.applications.application import Application
from locks_lab.worlds.host import Violation

__all__ = ["SimulatedCluster"]


class _Node(LocalNode, Protocol):
    """The part of a simulated node that this module needs."""

    neighbours: Any

    @property
    def application(self) -> Application:
        """The application that runs on it."""

    @property
    def is_current(self) -> bool:
        """Whether it has not crashed, and been started again as another one."""


Refusal = Callable[[], MisuseError]


class _Part:
    """Stands for a part of a node's relations with others. What it lacks is refused, with its name."""

    def __init__(self, refusal: Refusal) -> None:
        self._refusal = refusal

    def __getattr__(self, name: str) -> Any:
        raise self._refusal()


class _Options(_Part):
    """How a simulated node takes part: as one of the servers."""

    hidden = False
    locator = None

    def __init__(self, refusal: Refusal, servers: tuple[str, ...]) -> None:
        super().__init__(refusal)
        self.servers = servers


class _Peer(NamedTuple):
    """The other node of a connection."""

    name: str
    hidden: bool = False


class _Connection:
    """A connection to another node, in the place of a `locks.net.link.Link`."""

    is_full = False

    def __init__(
        self, peer: _Peer, send: Callable[[bytes], object], fail: Callable[[Exception], object]
    ) -> None:
        self.peer = peer
        self.send = send
        self.closed: str | None = None
        self._fail = fail

    def lose(self, reason: str) -> None:
        """A frame could not be taken in, which can't happen between nodes of one version."""
        self._fail(Violation(f"a message of {self.peer.name} could not be taken in: {reason}"))


class _Network(_Part):
    """The connections of a simulated node, in the place of a `locks.net.network.Network`."""

    may_have_slept = False
    address = None
    slowest = 0.0
    unsent = ()
    relayed: Mapping[str, _Connection] = MappingProxyType({})

    def __init__(self, node: _Node, refusal: Refusal) -> None:
        super().__init__(refusal)
        self.book = Book(node.name, (), {})
        self.links: dict[str, _Connection] = {}
        self.traffic = Traffic()

    def link_to(self, name: str) -> _Connection | None:
        """The connection to a node."""
        return self.links.get(name)

    def address_of(self, name: str) -> None:
        """Simulated nodes have no addresses."""


class _NeverSilent(_Part):
    """In the place of `locks.node.peers.silence.Silence`: a node that is connected answers, or is lost."""

    silent = frozenset[str]()

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal)
        self.told: dict[Callable[[str], object], None] = {}

    def doubt(self, name: str) -> None:
        """Find out whether a node is silent."""


class _NobodyArrives(_Part):
    """In the place of `locks.node.peers.arrivals.Arrivals`: servers that are missing are lost."""

    def await_servers(self, *_: object, **__: object) -> None:
        """Wait for servers that may have just been started."""


class SimulatedCluster(Cluster):
    """The relations of a simulated node with others. What it lacks of them is refused, with its name.

    Args:
        node: The node.
        servers: All nodes.
        refusal: Makes the error for what is not simulated.
    """

    def __init__(
        self,
        node: _Node,
        servers: tuple[str, ...],
        refusal: Refusal,
    ) -> None:
        background: Any = node.executor
        self._simulated = node
        self._refusal = refusal
        self.node = node
        self.executor = background
        self.members = set()
        self.limits = {}
        self.options = cast(Any, _Options(refusal, servers))
        self.network = cast(Any, _Network(node, refusal))
        links: Any = self.network.links
        self.exchange = Exchange(node.name, links.get, node.notices, self)
        self.actors = Actors(
            self.exchange,
            node.turn,
            background,
            new_number=node.new_number,
            find=lambda number: None,
            number_of=lambda subject: None,
        )
        self.silence = cast(Any, _NeverSilent(refusal))
        self.arrivals = cast(Any, _NobodyArrives(refusal))
        are_linked = self.network.links.__contains__
        self.guests = Guests(node.server, background, are_linked, Limits(), self._refuse)
        self.readers = ViewSender(self, partial(node.application.later, node.name))
        self.views = ViewReader(self)
        self.inquiries = Inquiries(self)
        self._monitors = {}
        self.on_connected = []
        self.on_silence = {}
        for other in sorted(node.alive - {node.name}):
            self.connected(other)

    def __getattr__(self, name: str) -> Any:
        raise self._refusal()

    def connected(self, other: str) -> None:
        """The node sees another one."""
        nodes = self._simulated.neighbours
        links: dict[str, Any] = self.network.links
        links[other] = _Connection(_Peer(other), partial(self._send, other), nodes.application.fail)
        self.members.add(other)
        self.limits[other] = Limits()
        for act in self.on_connected:
            act(other)
        self.views.joined(other)
        self._tell_monitors(NodeUp(other))

    def lost(self, other: str) -> None:
        """The node has noticed that another one is gone."""
        link: Any = self.network.links.pop(other, None)
        if link is not None:
            link.closed = NOCONNECTION
            self.members.discard(other)
            del self.limits[other]
            self.exchange.lost(other)
            self.actors.lost(other)
            self.guests.lost(other)
            self.readers.lost(other)
            self.views.lost(other)
            self._tell_monitors(NodeDown(other, NOCONNECTION))

    def receive(self, other: str, frame: bytes) -> None:
        """A frame of another node arrives."""
        self.exchange.take_in(self.network.links[other], frame)
        self.flush()

    def _send(self, other: str, frame: bytes) -> None:
        if self._simulated.is_current:
            self._simulated.application.send(self._simulated.name, other, bytes(frame))
