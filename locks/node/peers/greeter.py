"""Greets the lock servers of other nodes, and takes their greetings in.

On each new connection, the other lock server is greeted. The greeting names all nodes that this one
was connected with itself, if they can be dialled. Later greetings name newcomers only, each once,
after it has greeted this node. So a newcomer costs each node one short message to each other node,
and several newcomers within a short time go into one message. A node that has not answered yet is
informed later: only one greeting is on its way at a time.

A client node (`mesh=False`) dials only nodes that its program names, so no nodes are named to it.

A wrong greeting changes nothing, and ends the connection; one of a node whose clock differs is refused in words, so that its users know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from locks.errors import InvalidOption
from locks.model import check_node_name
from locks.net.link import Link
from locks.net.messages import MOST_NAMES, BadMessage, Done, Greeting, Limits, News, Refusal
from locks.net.versions import ClocksDiffer, check_version, taken_over
from locks.ranges import LONGEST_TEXT
from locks.runtime.clock import monotonic
from locks.runtime.waiter import run_in_hub

if TYPE_CHECKING:
    from locks.net.exchange import Exchange
    from locks.net.network import Network
    from locks.node.options import Options
    from locks.node.peers.local_node import LocalNode
    from locks.runtime.executor import Executor

__all__ = ["Greeter"]

AGAIN = 1.0  # seconds until a node that has refused is greeted again
MOMENT = 0.1  # seconds in which newcomers are gathered before others are told of them


class Greeter:
    """The greetings of one node. All in the turn, unless stated otherwise.

    Args:
        node: The node.
        executor: Does its background work.
        network: Its connections.
        exchange: Calls other nodes over them.
        options: The node's options.
        is_member: Whether the lock server of a node can be asked.
        on_greeted: Called with the connection of a node that has greeted this one, and its limits.
        on_answered: Called with a connection, whether the greeting on it was answered, and the
            answer or the reason why there is none.
    """

    def __init__(
        self,
        node: LocalNode,
        executor: Executor,
        network: Network,
        exchange: Exchange,
        options: Options,
        *,
        is_member: Callable[[str], bool],
        on_greeted: Callable[[Link, Limits], object],
        on_answered: Callable[[Link, bool, Any], object],
    ) -> None:
        self._node = node
        self._executor = executor
        self._network = network
        self._exchange = exchange
        self._options = options
        self._is_member = is_member
        self._on_greeted = on_greeted
        self._on_answered = on_answered
        self._unanswered: dict[str, Link] = {}  # whose answer to a greeting is awaited
        self._owed: dict[str, dict[str, None]] = {}  # the newcomers to name to each node
        self._telling = False  # only in the hub: newcomers are being gathered

    # --- Our greetings --------------------------------------------------------------------------

    def greet(self, link: Link) -> None:
        """Greet the node at the other end; to a client node no others are named."""
        if link.closed is None and link.peer.hidden:
            self._send(link, [])
        elif link.closed is None:
            name = link.peer.name
            news = self._network.book.news_for(monotonic(), name)
            own = self._own_address()
            self._owed[name] = {}
            self._send(link, news if own is None else [*news, own])

    def _own_address(self) -> News | None:
        """Where this node listens, for others."""
        address = self._network.address
        if address is None:
            return None
        name = self._node.name
        host, port = address
        wildcard = host in ("0.0.0.0", "::")
        return News(name, name.split("@")[1] if wildcard else host, port, 0.0)

    def _send(self, link: Link, known: list[News]) -> None:
        options = self._options
        greeting = Greeting(
            self._node.server.machine.version,
            tuple(known) if options.mesh else (),
            options.limits,
        )
        self._unanswered[link.peer.name] = link
        self._exchange.call(link.peer.name, greeting, partial(self._answered, link))

    def _answered(self, link: Link, answered: bool, answer: Any) -> None:
        """Take in the answer to a greeting."""
        name = link.peer.name
        if self._unanswered.get(name) is link:
            del self._unanswered[name]
        if self._owed.get(name):
            self._tell_soon()
        self._on_answered(link, answered, answer)

    def greet_again(self, link: Link) -> None:
        """Greet a node that has refused, in a while."""
        self._executor.run_later(AGAIN, self._node.turn.run, self.greet, link)

    def disconnected(self, name: str) -> None:
        """A connection is gone."""
        self._unanswered.pop(name, None)
        self._owed.pop(name, None)

    # --- The greetings of others ----------------------------------------------------------------

    def take_greeting(self, name: str, greeting: Greeting) -> Done | Refusal:
        """Take in the greeting of another node.

        Returns:
            The answer.

        Raises:
            BadMessage: The greeting is wrong; the caller closes the connection.
        """
        link = self._network.links[name]
        try:
            check_version(greeting.version)
            for news in greeting.known:
                check_node_name(news.name)
        except ClocksDiffer as error:
            return self._refuse(name, error.days)
        except InvalidOption as error:
            raise BadMessage(f"its greeting is invalid: {error}") from None
        self._take(link, greeting)
        return Done()

    def _refuse(self, name: str, days: float) -> Refusal:
        """The clocks differ; both sides say so. The other node greets again, and is taken when the clocks are right."""
        text = f"its clock and that of {self._node.name} differ by {days:.1f} days; correct them"
        self._node.refusals[name] = text
        self._node.notices.warn(
            "clock", name, "%s does not use %s: %s", self._node.name, name, text
        )
        why = f"its clock and that of {name} differ by {days:.1f} days; correct them"
        return Refusal(why[:LONGEST_TEXT])

    def _take(self, link: Link, greeting: Greeting) -> None:
        name = link.peer.name
        if self._options.mesh:
            self._hear(name, greeting.known)
            if any(news.name == name for news in greeting.known):
                self._came(name)
        self._node.server.raise_to(taken_over(greeting.version))
        self._on_greeted(link, greeting.limits)

    def _hear(self, source: str, known: Iterable[News]) -> None:
        """Another node names nodes."""
        allowed = []
        refused = None
        for news in known:
            try:
                self._options.check_address(news.address, "connects to")
                allowed.append(news)
            except InvalidOption as error:
                refused = (news.name, str(error))
        if refused is not None:
            text = "%s does not connect to %s, which was announced by %s: %s"
            self._node.notices.warn(
                "address", source, text, self._node.name, refused[0], source, refused[1]
            )
        dropped = self._network.hear(source, allowed)
        if dropped:
            text = "%s announced too many nodes that are not connected; left out: %s"
            self._node.notices.warn("names", source, text, source, dropped)

    # --- Telling others of newcomers ------------------------------------------------------------

    def _came(self, newcomer: str) -> None:
        """Note that a node can be dialled, to name it to the nodes that were greeted before."""
        for name, owed in self._owed.items():
            if name != newcomer and len(owed) < MOST_NAMES:
                owed[newcomer] = None
        self._tell_soon()

    def _tell_soon(self) -> None:
        run_in_hub(self._executor.hub, self._begin_moment)

    def _begin_moment(self) -> None:
        if not self._telling:
            self._telling = True
            self._executor.spawn_later(MOMENT, self._end_moment)

    def _end_moment(self) -> None:
        self._telling = False
        self._node.turn.run(self._tell)

    def _tell(self) -> None:
        """Name newcomers to the nodes that have answered the last greeting."""
        news_of = self._network.book.news_of
        for name, owed in self._owed.items():
            link = self._network.links.get(name)
            if owed and link is not None and name not in self._unanswered and self._is_member(name):
                there = [each for each in owed if each in self._network.links]
                news = [each for each in map(news_of, there) if each is not None]
                if news:
                    self._send(link, news)
                owed.clear()
