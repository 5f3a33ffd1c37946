"""What agents are told, in parts of bounded size.

What a lock server or an agent tells an agent grows with the number of rows and of agents. Between nodes
it goes in parts (`in_parts`), each a message by itself:

* Records are true one by one, each with its version, and an agent takes in each by itself. With a part
  of them it knows less than with all, as if the rest had not happened yet. Nothing in them takes a lock
  from it: that comes only with the answer to its own surrender. So it never thinks that it has more than
  it has.
* An agent keeps what concerns deadlocks from the moment on that it waits and is told of another agent. So
  the first part has a record of another agent, and one of an own request that waits, if there are.
* `Surrendered` is that answer. What the agent has lost by it is told before it, for until it has the
  answer it takes nothing for granted. With the answer come the two ends of the edge, because what is not
  in it is gone. What else matters follows, also what was told before: the agent may have forgotten it.
* `Resolved` comes first, because the agent forgets; then what still matters.

A cycle may have any number of agents. A report has its first edges (`shown_cycle`), and only the agents
of these are told of it. For the others nothing is lost: they go on knowing what they knew, and lock
servers tell them each change of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from locks.core.messages import (
    AgentMessage,
    Knowledge,
    Refused,
    Released,
    RequestStates,
    Resolved,
    Surrendered,
    VersionRaised,
)
from locks.errors import assert_never
from locks.lock_ids import size_of
from locks.model import AgentId, Deadlock, Edge, RequestRecord
from locks.ranges import MOST_EDGES

__all__ = ["FEW", "MOST_RECORDS", "in_parts", "newest", "pieces", "shown_cycle"]

FEW = 16  # records that fit into a message, whatever ids they have
MOST_RECORDS = 100  # in one part
LARGEST_PART = 64 * 1024  # by the size of lock ids
MOST_REPORTED = 200  # edges of all the reports that a client elsewhere is told at once


def in_parts(message: AgentMessage, receiver: AgentId) -> Sequence[AgentMessage]:
    """A message to an agent of another node, as messages that can be sent."""
    if len(getattr(message, "records", ())) <= FEW:  # as nearly always
        return (message,)
    match message:
        case RequestStates(node, records):
            return _states(node, _in_order(records, receiver))
        case Knowledge(sender, records, forgot):
            parts = list(pieces(records))
            return [Knowledge(sender, part, forgot and part is parts[0]) for part in parts]
        case Resolved(report, records):
            first, *rest = pieces(_in_order(records, receiver))
            node = records[0].node
            return [Resolved(report, first), *[RequestStates(node, part) for part in rest]]
        case Surrendered():
            return _surrendered(message)
        case Released() | Refused() | VersionRaised():
            return (message,)
        case _:
            return assert_never(message)


def _surrendered(message: Surrendered) -> list[AgentMessage]:
    """The answer to a surrender, with many records."""
    node, surrender, records = message.node, message.message, message.records
    me = surrender.agent
    own = [record for record in records if record.agent == me]
    ends = [end[0] for end in (surrender.waiter, surrender.holder) if end is not None]
    answer = message._replace(records=tuple(r for r in records if r.number in ends))
    return [*_states(node, own), answer, *_states(node, _in_order(records, me))]


def _states(node: str, records: Iterable[RequestRecord]) -> list[AgentMessage]:
    return [RequestStates(node, part) for part in pieces(records)]


def _in_order(records: Sequence[RequestRecord], me: AgentId) -> list[RequestRecord]:
    """The same records, such that the first part has what makes the receiver keep the others."""
    other = next((r for r in records if r.agent != me), None)
    waiting = next((r for r in records if r.agent == me and r.state == "waiting"), None)
    first = [record for record in (other, waiting) if record is not None]
    return [*first, *[r for r in records if r is not other and r is not waiting]]


def pieces(records: Iterable[RequestRecord]) -> Iterator[tuple[RequestRecord, ...]]:
    """Records in parts; none if there are none."""
    part: list[RequestRecord] = []
    size = 0
    for record in records:
        part.append(record)
        size += size_of(record.lock_id)
        if len(part) >= MOST_RECORDS or size >= LARGEST_PART:
            yield tuple(part)
            part, size = [], 0
    if part:
        yield tuple(part)


def shown_cycle(cycle: tuple[Edge, ...]) -> tuple[Edge, ...]:
    """As much of a cycle as a report has: its first edges, two at least."""
    size = 0
    for count, edge in enumerate(cycle):
        if count >= MOST_EDGES or (count >= 2 and size >= LARGEST_PART):
            return cycle[:count]
        size += size_of(edge.waiter.lock_id) + size_of(edge.holder.lock_id)
    return cycle


def newest(reports: Sequence[Deadlock]) -> tuple[Deadlock, ...]:
    """As many of the newest reports as are told a client elsewhere at once."""
    size = edges = 0
    for count, report in enumerate(reversed(reports)):
        edges += len(report.cycle)
        if count and (edges > MOST_REPORTED or size >= LARGEST_PART):
            return tuple(reports[len(reports) - count :])
        for edge in report.cycle:
            size += size_of(edge.waiter.lock_id) + size_of(edge.holder.lock_id)
    return tuple(reports)
