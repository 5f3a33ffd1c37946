"""All who share servers agree on them: which they are, and how many of them a lock needs.

Programs that ask different majorities of different servers would both get a lock. So each node that was
started with `servers` tells each of these which ones they are, and how many of them it asks for a
lock, by a call `{'$locks', servers, Names, Require}` of its lock server. It asks that lock server for nothing before
the answer. That is `ok`, or `{'$locks', servers, Names, Require}` with those of the other node. In that case it asks
again, as long as they are connected.

Servers that were found by a `Discovery` may be others tomorrow, and some programs know it before others do. So such a
server grants nothing until each of the others has said since that it is one of the same ones: it answers `{'$locks', waits,
Names}`, who has not, and is asked again soon. Why two majorities can't be then: decision 0034.

A lock server that was not told itself which ones it is one of takes that from the first one who says it, and
keeps it for as long as anybody who said so is connected. Nodes that say nothing name the nodes for each lock; that
is up to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from locks.model import Require
from locks.node.peers.greeting import to_node_name
from locks.node.ports import Scope
from locks.otp.bytes.fields import BadMessage, Form, Forms, brief
from locks.otp.bytes.terms import Atom
from locks.otp.links.link import Link
from locks.otp.options import MOST_SERVERS
from locks.ranges import Name, Size
from locks.runtime.waiter import run_in_hub
from locks.wire import LOCK_SERVER, OURS, is_ours

if TYPE_CHECKING:
    from locks.node.peers.local_node import LocalNode
    from locks.otp.process.processes import Processes
    from locks.runtime import Executor

__all__ = ["SERVERS", "Agreement", "Agreements", "pack_servers", "unpack_servers"]

SERVERS = Atom("servers")
WAITS = Atom("waits")
OK = Atom("ok")
AGAIN = 5.0  # seconds until a node that does not agree is asked again
SOON = 0.25  # seconds until one is asked again that waits for others
PATIENCE = 8  # times that it is asked, until that is a reason why it can't be used


class Agreement:
    """What the nodes that are connected with one say of their servers.

    Args:
        own: Its own servers; `None` if it was told none.
        awaited: The nodes that have to say so, too, before it grants anything.

    Attributes:
        awaited: Those of them that have not.
    """

    def __init__(self, own: Scope | None, awaited: Iterable[str] = ()) -> None:
        self._own = own
        self._said: dict[str, Scope] = {}
        self.awaited = frozenset(awaited)

    def take(self, name: str, said: Scope) -> Scope | None:
        """Another node says which servers it uses.

        Returns:
            `None` if that agrees with what was known; otherwise that.
        """
        others = (each for other, each in self._said.items() if other != name)
        known = self._own or next(others, said)
        if known != said:
            self._said.pop(name, None)
            return known
        self._said[name] = said
        self.awaited -= {name}
        return None

    def lost(self, name: str) -> None:
        """A node is gone."""
        self._said.pop(name, None)


class _Said(NamedTuple):
    """A `Scope`, as it is sent."""

    nodes: Annotated[tuple[Name, ...], Size(MOST_SERVERS)]
    require: Require


class _Waits(NamedTuple):
    """Who has not said yet that it is one of the same servers, as it is sent."""

    nodes: Annotated[tuple[Name, ...], Size(MOST_SERVERS)]


_FORMS = Forms({Name: Form(str, to_node_name)})
_FORM = _FORMS.message(_Said, OURS, SERVERS)
_WAITS_FORM = _FORMS.message(_Waits, OURS, WAITS)


def pack_servers(servers: Scope) -> tuple[Any, ...]:
    """What a node says of its servers, as a term."""
    term: tuple[Any, ...] = _FORM.pack(servers._replace(nodes=tuple(sorted(servers.nodes))))
    return term


def unpack_servers(term: tuple[Any, ...]) -> Scope:
    """What a node says of its servers.

    Raises:
        BadMessage: It is not of this form.
    """
    said = Scope(*_FORM.unpack(term))
    if not said.nodes or list(said.nodes) != sorted(set(said.nodes)):
        raise BadMessage(f"{brief(list(said.nodes))} should be one or more nodes, sorted")
    return said


class Agreements:
    """Says to the others which servers a node uses, and takes in what they say. All in the turn, or in the hub.

    Args:
        node: The node.
        executor: Where it waits before it asks again.
        processes: Who can be reached on other nodes.
        own: The node's servers; `None` if it was told none.
        found: Whether a `Discovery` has named them.
        on_agreed: Called with the name of a node that agrees, if it did not before.
    """

    def __init__(
        self,
        node: LocalNode,
        executor: Executor,
        processes: Processes,
        own: Scope | None,
        found: bool,
        on_agreed: Callable[[str], object],
    ) -> None:
        self._node = node
        self._executor = executor
        self._processes = processes
        self._own = own
        self._on_agreed = on_agreed
        is_server = found and own is not None and node.name in own.nodes
        self._others = Agreement(own, {*own.nodes} - {node.name} if own and is_server else ())
        self._agreed: set[str] = set()

    def connected(self, link: Link, times: int = 0) -> None:
        """A node is connected: if it is one of the servers, say which ones, before it is asked for anything."""
        own, name = self._own, link.peer.name
        if own is not None and name in own.nodes and link.closed is None:
            told = partial(self._answered, link, own, times)
            self._processes.call(name, LOCK_SERVER, pack_servers(own), told)

    def may_ask(self, name: str) -> bool:
        """Whether a node's lock server may be asked."""
        if self._own is None or name not in self._own.nodes:
            return True
        return name in self._agreed and not self._others.awaited

    def _answered(self, link: Link, own: Scope, times: int, answered: bool, answer: Any) -> None:
        name, refusals = link.peer.name, self._node.refusals
        if link.closed is not None:
            return
        if answered and is_ours(answer) and answer[1] == WAITS:
            (missing,) = _WAITS_FORM.unpack(answer)
            if times >= PATIENCE:
                refusals[name] = waiting(name, missing)
            self._again(SOON, link, times + 1)
            return
        if answered and is_ours(answer):
            refusals[name] = text = disagreement(name, unpack_servers(answer), self._node.name, own)
            self._node.notices.warn("servers", name, "%s", text)
        elif answered:  # one that does not know the question runs the original
            refusals.pop(name, None)
            self._agreed.add(name)
            self._on_agreed(name)
            return
        self._again(AGAIN, link, 0)

    def _again(self, pause: float, link: Link, times: int) -> None:
        hub, turn = self._executor.hub, self._node.turn
        run_in_hub(hub, self._executor.spawn_later, pause, turn.run, self.connected, link, times)

    def take(self, name: str, term: tuple[Any, ...]) -> Any:
        """Another node says which servers it uses.

        Returns:
            The answer.

        Raises:
            BadMessage: What it says is wrong.
        """
        said = unpack_servers(term)
        known = self._others.take(name, said)
        if known is not None:
            text = disagreement(self._node.name, known, name, said)
            self._node.notices.warn("servers", name, "%s", text)
            return pack_servers(known)
        missing = self._others.awaited
        if missing:
            return _WAITS_FORM.pack(_Waits(tuple(sorted(missing))))
        if self._own is not None and name in self._own.nodes:
            for other in sorted(self._agreed):  # nobody is waited for any more
                self._on_agreed(other)
        return OK

    def lost(self, name: str) -> None:
        """A node is gone."""
        self._agreed.discard(name)
        self._others.lost(name)


def disagreement(server: str, there: Scope, client: str, wanted: Scope) -> str:
    """Why a node can't use a lock server, in words."""
    return (
        f"{server} has the servers {_show(there)}, but {client} was started with {_show(wanted)}. "
        "Start all programs with the same servers: otherwise two programs could hold the same lock"
    )


def waiting(server: str, missing: Iterable[str]) -> str:
    """Why a server grants nothing yet, in words."""
    return (
        f"{server} grants no locks yet: it waits for {', '.join(missing)} to confirm "
        "the same set of servers. Start all servers, with the same set"
    )


def _show(servers: Scope) -> str:
    return f"{', '.join(servers.nodes)} (require={servers.require!r})"
