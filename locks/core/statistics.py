"""A node's counters as values: for its own program, for observers on other nodes, and for metrics.

All counters form one tree. The lock table counts its own operations. The actors around the machines
count everything else (`locks.node.observing.statistics`, `locks.node.observing.times`). Each
field's annotation is its bound, so all counters can be sent to other nodes.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from locks.core.server.table import TableStatistics
from locks.ranges import Name, Number, Text, Value

__all__ = [
    "BOUNDS",
    "MOST_ELECTIONS",
    "MOST_OWNERSHIPS",
    "BrokenStatistics",
    "Durations",
    "Leading",
    "NodeStatistics",
    "Owning",
    "TimesStatistics",
    "TrafficStatistics",
]

BOUNDS = (
    *(0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1),
    *(0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 3600.0),
)
"""Upper bounds of the buckets of all histograms, in seconds; one more bucket has all larger values."""

MOST_BUCKETS = 100  # of a histogram; later versions may have other buckets
MOST_ELECTIONS = 1000  # that are reported
MOST_OWNERSHIPS = 1000  # likewise


class Durations(Value, frozen=True):
    """A histogram of durations.

    Attributes:
        counts: The count of each bucket of `BOUNDS`, and of all larger values.
        microseconds: The sum of all durations.
    """

    counts: Annotated[tuple[Number, ...], Meta(max_length=MOST_BUCKETS)]
    microseconds: Number

    @property
    def total(self) -> int:
        """The number of durations."""
        return sum(self.counts)

    @property
    def seconds(self) -> float:
        """The sum of all durations, in seconds."""
        return self.microseconds / 1e6


class TimesStatistics(Value, frozen=True):
    """How long clients waited for and held the locks of one lock server, since it began.

    Attributes:
        waits: Waits that ended with the lock. A request that is granted at once does not count.
        given_up: Waits that ended without it: by a timeout, an abort, or the end of the
            transaction.
        holds: How long locks were held, up to their release or surrender.
    """

    waits: Durations
    given_up: Durations
    holds: Durations


class BrokenStatistics(Value, frozen=True):
    """Deadlocks that a lock server has broken, by the action of the agent that yielded.

    Attributes:
        surrendered: The agent surrendered a lock.
        aborted: The agent aborted its transaction.
    """

    surrendered: Number
    aborted: Number

    @property
    def total(self) -> int:
        """The number of deadlocks."""
        return self.surrendered + self.aborted


class Leading(Value, frozen=True):
    """An election in which instances of a node take part.

    Attributes:
        name: The name of the election.
        leads: Whether one of these instances leads.
        term: Its term, or else that of the last known leader.
    """

    name: Text
    leads: bool
    term: Number


class TrafficStatistics(Value, frozen=True):
    """Traffic between a node and others.

    Attributes:
        connections: Nodes that are connected now.
        messages_sent: Messages sent since this node began, without heartbeats.
        messages_received: Likewise, messages received.
        bytes_sent: The size of the messages sent, before TLS.
        bytes_received: Likewise, of the messages received.
    """

    connections: Number = 0
    messages_sent: Number = 0
    messages_received: Number = 0
    bytes_sent: Number = 0
    bytes_received: Number = 0


class Owning(Value, frozen=True):
    """An ownership in which a worker of a node takes part.

    Attributes:
        name: The name of the ownership.
        groups: How many groups of resources there are.
        owned: How many of them the worker owns.
        done: How many tasks the worker has done.
    """

    name: Text
    groups: Number
    owned: Number
    done: Number


class NodeStatistics(Value, frozen=True):
    """Counters of a node since it was started, and its size now.

    Attributes:
        name: The node's name.
        transactions: Transactions begun.
        aborted: Transactions that were aborted to resolve a deadlock.
        deadlocks: Deadlocks in which an agent of this node yielded, by surrender or abort.
        agents: Agents alive now.
        knowledge: Messages by which agents passed knowledge on.
        table: Counters of the lock table.
        broken: Deadlocks that this node's lock server has broken; the agents may be of other nodes.
        times: How long clients waited for and held locks of this node.
        timeouts: Waits of this node's clients that timed out.
        lost: Locks of this node's clients that were acknowledged, and then lost.
        connections_lost: Connections with other nodes that were lost.
        leaders: The elections in which instances of this node take part, by name; the first 1,000.
        elected: How often one of these instances began to lead.
        traffic: Traffic between this node and others.
        ownership: The ownerships in which workers of this node take part, one for each worker, by
            name; the first 1,000.
        watches: How many lock ids of this node's lock server are watched now; an id counts once for
            each watcher.
        clients_lost: How many client nodes were lost while they held locks of this node's lock server.
        handed_on: How many locks of elections this node's lock server has granted to candidates that waited.
        refused: How many requests this node's lock server has refused because their program was at a limit.
        fullest: The largest share of a limit that a program uses at this node's lock server now, in percent.
    """

    name: Name
    transactions: Number
    aborted: Number
    deadlocks: Number
    agents: Number
    knowledge: Number
    table: TableStatistics
    broken: BrokenStatistics
    times: TimesStatistics
    timeouts: Number
    lost: Number
    connections_lost: Number
    leaders: Annotated[tuple[Leading, ...], Meta(max_length=MOST_ELECTIONS)]
    elected: Number = 0
    traffic: TrafficStatistics = TrafficStatistics()
    ownership: Annotated[tuple[Owning, ...], Meta(max_length=MOST_OWNERSHIPS)] = ()
    watches: Number = 0
    clients_lost: Number = 0
    handed_on: Number = 0
    refused: Number = 0
    fullest: Number = 0
