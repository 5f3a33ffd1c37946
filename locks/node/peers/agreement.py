"""Agreement of all programs that share servers: on the set of servers, on how many of them a lock needs, and where each id is.

If two programs used majorities of different sets of servers, both could get a lock. So each node
that was started with `servers` reports them to each of these servers, with the number that a lock
needs and the number of copies, by a call `{'$locks', servers, Names, Require, Copies}` of the lock
server. It sends that lock server no requests before the answer. The answer is `ok`, or such a term
with the other node's set. In the second case it calls again, as long as they are connected.

A lock server that was started without a set takes it from the first node that reports one, and
keeps it as long as a node that reported it is connected. Nodes that report nothing name the nodes
for each lock themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from locks.model import Require
from locks.net.link import Link
from locks.node.peers.greeting import to_node_name
from locks.node.ports import Servers
from locks.otp.bytes.fields import BadMessage, Form, Forms, brief
from locks.otp.bytes.terms import Atom
from locks.otp.options import MOST_SERVERS
from locks.ranges import Name, Number, Size
from locks.wire.forms import LOCK_SERVER, OURS, is_ours

if TYPE_CHECKING:
    from locks.node.peers.local_node import LocalNode
    from locks.otp.process.processes import Processes
    from locks.runtime.executor import Executor

__all__ = ["SERVERS", "Agreement", "Agreements", "pack_servers", "unpack_servers"]

SERVERS = Atom("servers")
OK = Atom("ok")
AGAIN = 5.0  # seconds until a node that does not agree is called again


class Agreement:
    """The sets of servers that connected nodes have reported.

    Args:
        own: Its own servers; `None` if it was started without a set.
    """

    def __init__(self, own: Servers | None) -> None:
        self._own = own
        self._said: dict[str, Servers] = {}

    def take_scope(self, name: str, said: Servers) -> Servers | None:
        """Take in another node's set of servers.

        Args:
            name: The node.
            said: Its set.

        Returns:
            `None` if it agrees with the known set; otherwise the known set.
        """
        others = (each for other, each in self._said.items() if other != name)
        agreed = self._own or next(others, said)
        if agreed != said:
            self._said.pop(name, None)
            return agreed
        self._said[name] = said
        return None

    def lost(self, name: str) -> None:
        """A node is gone."""
        self._said.pop(name, None)


class _Said(NamedTuple):
    """A set of servers, as it is sent."""

    nodes: Annotated[tuple[Name, ...], Size(MOST_SERVERS)]
    require: Require
    copies: Number


_FORM = Forms({Name: Form(str, to_node_name)}).message(_Said, OURS, SERVERS)


def pack_servers(servers: Servers) -> tuple[Any, ...]:
    """A node's set of servers as a term."""
    term: tuple[Any, ...] = _FORM.pack(servers._replace(nodes=tuple(sorted(servers.nodes))))
    return term


def unpack_servers(term: tuple[Any, ...]) -> Servers:
    """A node's set of servers from a term.

    Raises:
        BadMessage: It is not of this form.
    """
    said = Servers(*_FORM.unpack(term))
    if not said.nodes or list(said.nodes) != sorted(set(said.nodes)):
        raise BadMessage(f"{brief(list(said.nodes))} should be one or more nodes, sorted")
    if not said.copies < len(said.nodes):
        raise BadMessage(f"{said.copies} is not a number of copies, with {len(said.nodes)} servers")
    return said


class Agreements:
    """Reports a node's set of servers to the others, and takes in theirs. All in the turn, or in the hub.

    Args:
        node: The node.
        executor: Its hub waits before another call.
        processes: Calls the other nodes.
        own: The node's servers; `None` if it was started without a set.
        on_agreed: Called with the name of a node that agrees, if it did not before.
    """

    def __init__(
        self,
        node: LocalNode,
        executor: Executor,
        processes: Processes,
        own: Servers | None,
        on_agreed: Callable[[str], object],
    ) -> None:
        self._node = node
        self._executor = executor
        self._processes = processes
        self._own = own
        self._on_agreed = on_agreed
        self._others = Agreement(own)
        self._agreed: set[str] = set()

    def connected(self, link: Link) -> None:
        """Report the set to a connected node, if it is one of the servers, before any request."""
        own, name = self._own, link.peer.name
        if own is not None and name in own.nodes and link.closed is None:
            told = partial(self._answered, link, own)
            self._processes.call(name, LOCK_SERVER, pack_servers(own), told)

    def may_ask(self, name: str) -> bool:
        """Whether requests may be sent to a node's lock server."""
        if self._own is None or name not in self._own.nodes:
            return True
        return name in self._agreed

    def _answered(self, link: Link, own: Servers, answered: bool, answer: Any) -> None:
        name, refusals = link.peer.name, self._node.refusals
        if link.closed is not None:
            return
        if answered and is_ours(answer):
            refusals[name] = text = disagreement(name, unpack_servers(answer), self._node.name, own)
            self._node.notices.warn("servers", name, "%s", text)
        elif answered:
            refusals.pop(name, None)
            self._agreed.add(name)
            self._on_agreed(name)
            return
        self._executor.run_later(AGAIN, self._node.turn.run, self.connected, link)

    def take_servers(self, name: str, term: tuple[Any, ...]) -> Any:
        """Take in another node's set of servers.

        Returns:
            The answer.

        Raises:
            BadMessage: The set is malformed.
        """
        said = unpack_servers(term)
        agreed = self._others.take_scope(name, said)
        if agreed is not None:
            text = disagreement(self._node.name, agreed, name, said)
            self._node.notices.warn("servers", name, "%s", text)
            return pack_servers(agreed)
        return OK

    def lost(self, name: str) -> None:
        """A node is gone."""
        self._agreed.discard(name)
        self._others.lost(name)


def disagreement(server: str, there: Servers, client: str, wanted: Servers) -> str:
    """Why a node can't use a lock server, in words: it names what differs."""
    pairs = list(zip(_shown(there), _shown(wanted), strict=True))
    # A faulty server may refuse what is the same.
    differs = [pair for pair in pairs if pair[0] != pair[1]] or pairs
    has, wants = (" and ".join(parts) for parts in zip(*differs, strict=True))
    return (
        f"{server} has {has}, but {client} was started with {wants}. "
        "Start all programs with the same: otherwise two programs could hold the same lock"
    )


def _shown(servers: Servers) -> tuple[str, str, str]:
    return (
        f"the servers {', '.join(sorted(servers.nodes))}",
        f"require={servers.require!r}",
        f"copies={servers.copies}" if servers.copies else "no copies",
    )
