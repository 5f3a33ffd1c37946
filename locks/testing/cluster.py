"""A simulated node's relations with others: those of the product, over simulated connections.

Process groups, monitors, references and calls between nodes are the product's own, down to the
frames of the Erlang distribution protocol (`locks.otp.process`). Only the connections are simulated:
a frame is a message in the application's network. So it is lost with its connection, and it keeps its
place among the messages of its connection, those of agents and lock servers too.

Agents and lock servers need no frames: the application carries their messages.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

from locks.errors import MisuseError
from locks.model import LockId
from locks.node.peers.cluster import Cluster
from locks.node.peers.local_node import LocalNode
from locks.node.views.reader import ViewReader
from locks.otp.admission.rights import Right
from locks.otp.links.budgets import Traffic
from locks.otp.process.processes import NOCONNECTION, Local, Processes
from locks.otp.process.remote import Errors, Remotes
from locks.wire.forms import LOCK_SERVER
from locks.wire.refusals import pack_attributes, unpack_error
from locks_lab.applications.application import Application
from locks_lab.worlds.host import Violation

__all__ = ["SimulatedCluster"]


class _Node(LocalNode, Protocol):
    """The part of a simulated node that this module needs."""

    creation: int
    neighbours: Any

    @property
    def application(self) -> Application:
        """The application that runs on it."""

    @property
    def is_current(self) -> bool:
        """Whether it has not crashed, and been started again as another one."""


class _Options(NamedTuple):
    """How a simulated node takes part: as one of the servers."""

    servers: tuple[str, ...]
    hidden: bool = False
    discovery: None = None


class _Peer(NamedTuple):
    """The other node of a connection."""

    name: str
    creation: int
    hidden: bool = False
    right: Right = Right.BREAK


class _Connection:
    """A connection to another node, in the place of a `locks.otp.links.link.Link`."""

    is_full = False
    allowed = Right.BREAK

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


class _Distribution:
    """The connections of a simulated node, in the place of a `locks.otp.distribution.Distribution`."""

    may_have_slept = False
    address = None
    slowest = 0.0

    def __init__(self, node: _Node, servers: tuple[str, ...]) -> None:
        self.name = node.name
        self.creation = node.creation
        self.options = _Options(servers)
        self.notices = node.notices
        self.addresses: dict[str, None] = {}
        self.links: dict[str, _Connection] = {}
        self.traffic = Traffic()


class _NeverSilent:
    """In the place of `locks.otp.links.silence.Silence`: a node that is connected answers."""

    def doubt(self, name: str) -> None:
        """Find out whether a node is silent."""


class _NobodyWatches:
    """In the place of `locks.node.views.sender.ViewSender`: nodes watch no locks of others."""

    count = 0

    def watchers(self, lock_id: LockId) -> tuple[Any, ...]:
        """The processes that watch a lock id."""
        return ()


class _NobodyArrives:
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

    turnover = None

    def __init__(
        self,
        node: _Node,
        servers: tuple[str, ...],
        refusal: Callable[[], MisuseError],
    ) -> None:
        background: Any = node.executor
        self._simulated = node
        self._refusal = refusal
        self.node = node
        self.members = {}
        self.limited = {}
        self.distribution = cast(Any, _Distribution(node, servers))
        self.processes = Processes(
            self.distribution,
            node.turn,
            background,
            new_number=node.new_number,
            find=lambda number: None,
            number_of=lambda subject: None,
            on_spawn=lambda request: None,
            admits=lambda link, message: True,
        )
        errors = Errors(pack_attributes, unpack_error)
        self.remotes = Remotes(node.name, self.processes, node.turn, background, errors)
        self.silence = cast(Any, _NeverSilent())
        self.arrivals = cast(Any, _NobodyArrives())
        self.readers = cast(Any, _NobodyWatches())
        self.views = ViewReader(self)
        self._originals = None
        self.on_connected = []
        self.on_silence = {}
        self.processes.register(LOCK_SERVER, Local(self._to_server, node.server))
        for other in sorted(node.alive - {node.name}):
            self.connected(other)

    def __getattr__(self, name: str) -> Any:
        raise self._refusal()

    def connected(self, other: str) -> None:
        """The node sees another one."""
        nodes = self._simulated.neighbours
        peer = _Peer(other, nodes.by_name[other].creation)
        links: dict[str, Any] = self.distribution.links
        links[other] = _Connection(peer, partial(self._send, other), nodes.application.fail)
        self.members[other] = False
        for act in self.on_connected:
            act(other)

    def lost(self, other: str) -> None:
        """The node has noticed that another one is gone."""
        link: Any = self.distribution.links.pop(other, None)
        if link is not None:
            link.closed = NOCONNECTION
            del self.members[other]
            self.processes.lost(other)

    def receive(self, other: str, frame: bytes) -> None:
        """A frame of another node arrives."""
        self.processes.speaker = other
        reading: Any = self.processes.reading.receive(self.distribution.links[other], frame)
        while reading is not None:  # a large frame
            reading = reading()

    def _send(self, other: str, frame: bytes) -> None:
        if self._simulated.is_current:
            self._simulated.application.send(self._simulated.name, other, bytes(frame))
