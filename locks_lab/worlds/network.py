"""The simulated network: links between parties, and connections between nodes.

A *party* is a lock server, named by its node, or an agent. Messages from one party to another keep
their order. Messages on different links may arrive in any order. Parties on one node are always
connected. Two nodes have a connection, and each of them has its own view of it:

    up        --cut or crash-->  breaking   new messages are lost; messages in flight may arrive
    breaking  --notice-->        down       the messages in flight are lost
    down      --connect-->       healing    both saw the other one as down: a new connection
    healing   --notice-->        up         messages that the other one sent meanwhile arrive now

Two client nodes are connected through one or two lock servers (`locks.net.relay`). Such a
connection is lost as soon as one of its ends loses any lock server, because it may go through this
server. They are connected again if there is a path.

A connection of the Erlang distribution protocol behaves in this way, and the algorithm relies on
it: messages keep their order, and if a message is lost, the connection is lost, which both sides
notice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import Any, Literal

from locks.errors import assert_never
from locks.model import AgentId

__all__ = [
    "Change",
    "Link",
    "Network",
    "NodeChange",
    "Pair",
    "PairChange",
    "Party",
    "Seen",
    "home_of",
]

Party = str | AgentId
Link = tuple[Party, Party]
Seen = Literal["up", "breaking", "down", "healing"]
Pair = tuple[str, str]
PairChange = Literal["notice", "connect", "cut", "mend"]
NodeChange = Literal["crash", "restart"]
Change = tuple[PairChange, Pair] | tuple[NodeChange, str]


def home_of(party: Party) -> str:
    """The node of a party."""
    return party if isinstance(party, str) else party.node


class Network:
    """The messages in flight, and the connections between nodes.

    Args:
        nodes: The nodes, all of them connected except for some pairs.
        never: The pairs that are never connected.
        spokes: The client nodes.

    Attributes:
        spokes_break: Whether connections of client nodes break with the connections that they go
            through.
        links: The messages in flight from one party to another: the number of each among all
            that were sent, and the message.
        seen: How a node sees its connection to another one, if they are ever connected.
        crashed: The nodes that do not run.
        apart: Pairs of nodes that cannot be connected at present.
        steady: Whether all nodes see each other.
        sent: The number of messages sent.
        lost: The number of messages lost.
    """

    def __init__(
        self,
        nodes: Iterable[str],
        never: Collection[frozenset[str]] = (),
        spokes: frozenset[str] = frozenset(),
    ) -> None:
        self.nodes = tuple(nodes)
        self.spokes = spokes
        self.spokes_break = True
        self.links: dict[Link, deque[tuple[int, Any]]] = {}
        self.seen: dict[Pair, Seen] = {
            (a, b): "up"
            for a in self.nodes
            for b in self.nodes
            if a != b and frozenset((a, b)) not in never
        }
        self.crashed: set[str] = set()
        self.apart: set[frozenset[str]] = set()
        self.steady = True
        self.sent = 0
        self.lost = 0

    # --- Messages

    def send(self, sender: Party, receiver: Party, message: Any) -> None:
        """Put a message on its way, unless its sender's connection is not up."""
        a, b = home_of(sender), home_of(receiver)
        self.sent += 1
        if a != b and self.seen.get((a, b)) != "up":
            self.lost += 1
            return
        queue = self.links.get((sender, receiver))
        if queue is None:
            queue = self.links[sender, receiver] = deque()
        queue.append((self.sent, message))

    def deliverable(self) -> list[Link]:
        """The links whose first message may arrive."""
        if self.steady:
            return list(self.links)
        return [link for link in self.links if self.may_arrive(link)]

    def oldest(self, links: Iterable[Link]) -> Link:
        """The link whose first message was sent first."""
        return min(links, key=lambda link: self.links[link][0][0])

    def may_arrive(self, link: Link) -> bool:
        """Whether the receiver's node accepts messages of a link."""
        a, b = home_of(link[0]), home_of(link[1])
        return a == b or self.is_connected(b, a)

    def is_connected(self, me: str, other: str) -> bool:
        """Whether a node takes itself to be connected with another one."""
        return self.seen.get((me, other)) in ("up", "breaking")

    def take(self, link: Link) -> Any:
        """Take the first message off a link."""
        queue = self.links[link]
        _, message = queue.popleft()
        if not queue:
            del self.links[link]
        return message

    def drop(self, party: Party) -> None:
        """A party has ended: the messages in flight to it are lost."""
        for link in [link for link in self.links if link[1] == party]:
            self.lost += len(self.links.pop(link))

    # --- Connections

    def notices(self) -> list[Pair]:
        """Pairs of a node and another one, whose change it has not noticed yet."""
        return [pair for pair, seen in self.seen.items() if seen in ("breaking", "healing")]

    def breaks(self, cuts: bool) -> list[Change]:
        """The connections that can be cut, if `cuts` is set, and those that can be mended."""
        apart = self.apart
        pairs = [(a, b) for a, b in self.seen if a < b and frozenset((a, b)) not in apart]
        found: list[Change] = [("cut", pair) for pair in pairs] if cuts else []
        together = [sorted(pair) for pair in sorted(apart, key=sorted)]
        return found + [("mend", (a, b)) for a, b in together]

    def connectable(self) -> list[Pair]:
        """The pairs of running nodes that can be connected again."""
        return [
            (a, b)
            for (a, b), seen in self.seen.items()
            if a < b
            and seen == self.seen[b, a] == "down"
            and frozenset((a, b)) not in self.apart
            and not {a, b} & self.crashed
            and (not {a, b} <= self.spokes or self._has_way(a, b))
        ]

    def make(self, change: Change) -> bool:
        """Make a change happen; returns whether it is a connection that is seen as up now."""
        match change:
            case ("notice", pair):
                return self.notice(pair)
            case ("connect", pair):
                self.connect(pair)
            case ("cut", pair):
                self.cut(pair)
            case ("mend", pair):
                self.mend(pair)
            case ("crash", node):
                self.crash(node)
            case ("restart", node):
                self.restart(node)
            case _:
                assert_never(change)
        return False

    def notice(self, pair: Pair) -> bool:
        """A node notices a change of its connection; returns whether it is up now."""
        me, other = pair
        if self.seen[pair] == "healing":
            self.seen[pair] = "up"
            self.steady = self.whole
            return True
        self._lose(other, me)
        return False

    def connect(self, pair: Pair) -> None:
        """Two nodes that see each other as down are connected again."""
        for each in (pair, pair[::-1]):
            self.seen[each] = "healing"

    def cut(self, pair: Pair) -> None:
        """The connection of two nodes breaks, until `mend`."""
        self.steady = False
        self.apart.add(frozenset(pair))
        self._break(*pair)
        self._break(*pair[::-1])
        self._break_relayed(pair)

    def mend(self, pair: Pair) -> None:
        """Two nodes can be connected again."""
        self.apart.discard(frozenset(pair))

    def crash(self, node: str) -> None:
        """A node ends: all that is on its way to it is lost, and the others will notice."""
        self.crashed.add(node)
        self.steady = False
        for other in self.nodes:
            if (node, other) in self.seen:
                self._lose(other, node)
                self._break(other, node)
        if self.spokes and node not in self.spokes:
            lost = [other for other in self.spokes if (other, node) in self.seen]
            self._break_relayed((node, *lost))
        for link in [link for link in self.links if home_of(link[1]) == node]:
            self.lost += len(self.links.pop(link))

    def restart(self, node: str) -> None:
        """A node is restarted; it sees no other node yet."""
        self.crashed.discard(node)

    def vouches(self, node: str, home: str) -> bool:
        """Whether the grants of a node to the clients of another one still count.

        They do not count from the moment when the granting node sees the connection as lost. The
        clients notice this later.
        """
        return node == home or self.seen.get((node, home)) == "up"

    @property
    def whole(self) -> bool:
        """Whether all nodes run and see each other."""
        return not self.crashed and all(seen == "up" for seen in self.seen.values())

    def _has_way(self, a: str, b: str) -> bool:
        """Whether two client nodes can be connected through one lock server, or two."""
        there = [
            {n for n in self.nodes if n not in self.spokes and self._is_up(n, end)}
            for end in (a, b)
        ]
        return any(
            one == other or self._is_up(one, other) for one in there[0] for other in there[1]
        )

    def _is_up(self, a: str, b: str) -> bool:
        return self.seen.get((a, b)) == self.seen.get((b, a)) == "up"

    def _break_relayed(self, ends: Collection[str]) -> None:
        """Nodes have lost a connection: break the client nodes' connections that may go through it."""
        if not self.spokes_break:
            return
        for a, b in self.seen:
            if {a, b} <= self.spokes and (a in ends or b in ends or not self._has_way(a, b)):
                self._break(a, b)

    def _break(self, me: str, other: str) -> None:
        if self.seen[me, other] == "up":
            self.seen[me, other] = "breaking"
        elif self.seen[me, other] == "healing":
            self._lose(other, me)

    def _lose(self, sender: str, receiver: str) -> None:
        """`receiver` sees `sender` as down; no more messages arrive from there."""
        self.seen[receiver, sender] = "down"
        for link in [
            link
            for link in self.links
            if home_of(link[0]) == sender and home_of(link[1]) == receiver
        ]:
            self.lost += len(self.links.pop(link))
