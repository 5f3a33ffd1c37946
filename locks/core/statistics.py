"""What a node counts, as values: for its own program, for observers elsewhere, for metrics.

One tree. The actors around the machines count (`locks.node.observing.statistics`, `locks.node.observing.times`), but for what the lock table
counts itself. Each field says by its annotation how large it may be, so all of it can be told to other nodes.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from locks.core.server.counters import TableStatistics
from locks.ranges import Name, Number, Size, Text

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
"""Upper bounds of the buckets of all histograms, in seconds; one more has what is above."""

MOST_BUCKETS = 100  # of a histogram; versions to come may have others
MOST_ELECTIONS = 1000  # that are told of
MOST_OWNERSHIPS = 1000  # likewise


class Durations(NamedTuple):
    """How often something took how long.

    Attributes:
        counts: How often, for each bucket of `BOUNDS`, and for what is above the last one.
        microseconds: The sum of all.
    """

    counts: Annotated[tuple[Number, ...], Size(MOST_BUCKETS)]
    microseconds: Number

    @property
    def total(self) -> int:
        """How often."""
        return sum(self.counts)

    @property
    def seconds(self) -> float:
        """The sum of all."""
        return self.microseconds / 1e6


class TimesStatistics(NamedTuple):
    """How long locks of one lock server were waited for and held, since it began.

    Attributes:
        waits: Waits that ended with the lock. What was granted at once did not wait.
        given_up: Waits that ended without it: by a timeout, an abort, an end.
        holds: How long locks were held that were given back, or surrendered.
    """

    waits: Durations
    given_up: Durations
    holds: Durations


class BrokenStatistics(NamedTuple):
    """Deadlocks that a lock server has broken, by what the agent did that yielded.

    Attributes:
        surrendered: It gave up its place for a lock.
        aborted: It gave up its transaction.
    """

    surrendered: Number
    aborted: Number


class Leading(NamedTuple):
    """An election in which instances of a node take part.

    Attributes:
        name: What it is about.
        leads: Whether one of them leads.
        term: Its term, or that of the last leader that is known.
    """

    name: Text
    leads: bool
    term: Number


class TrafficStatistics(NamedTuple):
    """What goes between a node and others.

    Attributes:
        connections: Nodes that are connected now.
        messages_sent: Messages of the protocol sent to them, since this node began; heartbeats don't count.
        messages_received: Likewise received.
        bytes_sent: How large these were, before TLS.
        bytes_received: Likewise.
    """

    connections: Number = 0
    messages_sent: Number = 0
    messages_received: Number = 0
    bytes_sent: Number = 0
    bytes_received: Number = 0


class Owning(NamedTuple):
    """An ownership in which a worker of a node takes part.

    Attributes:
        name: What is owned.
        groups: How many groups of resources there are.
        owned: How many of them are the worker's own.
        done: How many tasks it has done.
    """

    name: Text
    groups: Number
    owned: Number
    done: Number


class NodeStatistics(NamedTuple):
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
        times: How long locks of this node were waited for and held.
        timeouts: Waits of this node's clients that were given up because their time was over.
        lost: Locks that this node's clients were told they have, and that were lost.
        connections_lost: Connections with other nodes that were lost.
        leaders: The elections in which instances of this node take part, by name; the first 1,000.
        elected: How often one of these instances began to lead.
        traffic: What goes between this node and others.
        ownership: The ownerships in which workers of this node take part, one for each worker, by name; the first 1,000.
        watches: Lock ids of this node's lock server that are watched now, by whomever; once for each watcher.
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
    leaders: Annotated[tuple[Leading, ...], Size(MOST_ELECTIONS)]
    elected: Number = 0
    traffic: TrafficStatistics = TrafficStatistics()
    ownership: Annotated[tuple[Owning, ...], Size(MOST_OWNERSHIPS)] = ()
    watches: Number = 0
