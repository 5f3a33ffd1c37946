"""Agreement of all programs that share servers: on the set of servers, on how many of them a lock needs, and where each id is.

If two programs used majorities of different sets of servers, both could get a lock. So each node
that was started with `servers` reports them to each of these servers, with the number that a lock
needs and the number of copies, by the question `Agree`. It sends that lock server no requests before the answer. The answer is `Done`, or an
`Agree` with the other node's set. In the second case it calls again, as long as they are connected.

A lock server that was started without a set takes it from the first node that reports one, and
keeps it as long as a node that reported it is connected. Nodes that report nothing name the nodes
for each lock themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from locks.errors import InvalidOption
from locks.model import check_node_name
from locks.net.link import Link
from locks.net.messages import Agree, BadMessage, Done, brief
from locks.node.ports import Servers

if TYPE_CHECKING:
    from locks.net.exchange import Exchange
    from locks.node.peers.local_node import LocalNode
    from locks.runtime.executor import Executor

__all__ = ["Agreement", "Agreements"]

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


def _question(servers: Servers) -> Agree:
    return Agree(tuple(sorted(servers.nodes)), servers.require, servers.copies)


def _servers(said: Agree) -> Servers:
    """The set of servers in a question or an answer.

    Raises:
        BadMessage: There can't be such a set.
    """
    try:
        for name in said.nodes:
            check_node_name(name)
    except InvalidOption as error:
        raise BadMessage(str(error)) from None
    if list(said.nodes) != sorted(set(said.nodes)):
        raise BadMessage(f"{brief(list(said.nodes))} should be nodes, sorted")
    if not said.copies < len(said.nodes):
        raise BadMessage(f"{said.copies} is not a number of copies, with {len(said.nodes)} servers")
    return Servers(said.nodes, said.require, said.copies)


class Agreements:
    """Reports a node's set of servers to the others, and takes in theirs. All in the turn, or in the hub.

    Args:
        node: The node.
        executor: Its hub waits before another call.
        exchange: Calls the other nodes.
        own: The node's servers; `None` if it was started without a set.
        on_agreed: Called with the name of a node that agrees, if it did not before.
    """

    def __init__(
        self,
        node: LocalNode,
        executor: Executor,
        exchange: Exchange,
        own: Servers | None,
        on_agreed: Callable[[str], object],
    ) -> None:
        self._node = node
        self._executor = executor
        self._exchange = exchange
        self._own = own
        self._on_agreed = on_agreed
        self._others = Agreement(own)
        self._agreed: set[str] = set()

    def connected(self, link: Link) -> None:
        """Report the set to a connected node, if it is one of the servers, before any request."""
        own, name = self._own, link.peer.name
        if own is not None and name in own.nodes and link.closed is None:
            told = partial(self._answered, link, own)
            self._exchange.call(name, _question(own), told)

    def may_ask(self, name: str) -> bool:
        """Whether requests may be sent to a node's lock server."""
        if self._own is None or name not in self._own.nodes:
            return True
        return name in self._agreed

    def _answered(self, link: Link, own: Servers, answered: bool, answer: Any) -> None:
        name, refusals = link.peer.name, self._node.refusals
        if link.closed is not None:
            return
        if answered and isinstance(answer, Agree):
            refusals[name] = text = disagreement(name, _servers(answer), self._node.name, own)
            self._node.notices.warn("servers", name, "%s", text)
        elif answered and isinstance(answer, Done):
            refusals.pop(name, None)
            self._agreed.add(name)
            self._on_agreed(name)
            return
        self._executor.run_later(AGAIN, self._node.turn.run, self.connected, link)

    def take_servers(self, name: str, question: Agree) -> Agree | Done:
        """Take in another node's set of servers.

        Returns:
            The answer.

        Raises:
            BadMessage: The set is malformed.
        """
        said = _servers(question)
        agreed = self._others.take_scope(name, said)
        if agreed is not None:
            text = disagreement(self._node.name, agreed, name, said)
            self._node.notices.warn("servers", name, "%s", text)
            return _question(agreed)
        return Done()

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
