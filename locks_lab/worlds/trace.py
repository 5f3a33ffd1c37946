"""Information from a trace: its parties, and the arrival times of messages."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator

from locks.core.agent.wait_graph import Exploration
from locks.errors import assert_never
from locks.model import AgentId
from locks_lab.worlds.events import Event
from locks_lab.worlds.host import Message
from locks_lab.worlds.network import Link, Party, home_of

__all__ = ["Post", "agents_of", "neighbours", "nodes_of"]


def agents_of(events: Iterable[Event]) -> list[AgentId]:
    """The agents that occur, the oldest first."""
    return sorted({party for party in _parties(events) if isinstance(party, AgentId)})


def nodes_of(events: Iterable[Event]) -> list[str]:
    """The nodes that occur."""
    found = {home_of(party) for party in _parties(events)}
    for event in events:
        match event.choice:
            case ("cut" | "mend" | "connect" | "notice", pair):
                found.update(pair)
            case ("crash" | "restart", node):
                found.add(node)
            case ("deliver", _) | ("settle" | "step" | "time out" | "die", _):
                pass  # its parties are at them
            case _:
                assert_never(event.choice)
    return sorted(found)


def neighbours(me: AgentId, found: Exploration) -> tuple[list[AgentId], list[AgentId]]:
    """The younger agents that wait for an agent, and those that it waits for, in its findings."""
    before = {edge.waiter.agent for edge in found.edges if edge.waiter.agent > me}
    behind = {edge.holder.agent for edge in found.edges if edge.holder.agent > me}
    return sorted(before), sorted(behind)


def _parties(events: Iterable[Event]) -> Iterator[Party]:
    for event in events:
        if event.party is not None:
            yield event.party
        for sender, receiver, _ in event.sent:
            yield sender
            yield receiver


class Post:
    """The messages on their way, as the events of a trace show them."""

    def __init__(self) -> None:
        self._links: dict[Link, deque[tuple[int, int, Message]]] = defaultdict(deque)
        self._sent = 0
        self._latest: dict[Party, int] = {}  # the last message that has arrived
        self._acted: dict[Party, int] = {}  # the event in which a party last did something

    def note(self, event: Event) -> tuple[int, bool] | None:
        """Take an event in, in their order.

        Returns:
            For the arrival of a message its number, counting all that were sent from 0, and
            whether it came later than one would think.
        """
        found = None
        choice = event.choice
        if choice[0] == "deliver":
            found = self._arrival(choice[1], event.message)
        elif event.party is not None and (event.sent or choice[0] == "step"):
            self._acted[event.party] = event.number
        for sender, receiver, message in event.sent:
            self._links[sender, receiver].append((self._sent, event.number, message))
            self._sent += 1
        return found

    def _arrival(self, link: Link, message: Message | None) -> tuple[int, bool] | None:
        queue = self._links[link]
        while queue:  # earlier messages were lost
            number, when, sent = queue.popleft()
            if sent == message:
                to, latest = link[1], self._latest.get(link[1], -1)
                late = number < latest or when < self._acted.get(to, 0)
                self._latest[to] = max(number, latest)
                return number, late
        return None
