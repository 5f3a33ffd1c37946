"""Messages to agents, in parts of bounded size.

A message to an agent grows with the number of rows and of agents. Between nodes it is sent in parts
(`in_parts`), each a message of its own:

* Each record is true by itself, with its own version, and an agent takes in each by itself. With
  some of the records, the agent knows less than with all, as if the rest had not happened yet.
  Records never take a lock from it: only the answer to its own surrender does. So the agent never
  assumes that it holds more than it does.
* An agent keeps records of others only after it waits and receives a record of another agent. So
  the first part contains a record of another agent, and one of the agent's own waiting requests, if
  there are such records.
* `Surrendered` is the answer to a surrender. Records of the requests that it changed come before
  it, because the agent relies on no grant until the answer arrives. The answer itself contains both
  ends of the edge, because an end that is missing in it is gone. All other records follow it, those
  of the first parts again: the agent may have forgotten them.
* `Resolved` comes first, because the agent then forgets its records. The records that still matter
  follow.

A cycle may have any number of agents. A report contains its first edges (`shown_cycle`), and only
their agents are notified of it. The other agents lose nothing: they keep their records, and lock
servers notify them of each change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from locks.core.messages import (
    AgentMessage,
    Knowledge,
    RequestStates,
    Resolved,
    Surrendered,
)
from locks.lock_ids import size_of
from locks.model import AgentId, Edge, RequestRecord
from locks.ranges import MOST_EDGES, replace

__all__ = ["FEW", "MOST_RECORDS", "in_parts", "pieces", "shown_cycle"]

FEW = 16  # records that fit into a message, whatever ids they have
MOST_RECORDS = 100  # in one part
LARGEST_PART = 64 * 1024  # by the size of lock ids


def in_parts(message: AgentMessage, receiver: AgentId) -> Sequence[AgentMessage]:
    """Split a message to an agent of another node into messages of bounded size."""
    if len(getattr(message, "records", ())) <= FEW:  # the usual case
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
        case _:
            return (message,)  # it has few records, whatever happens (`tests/unit/test_largest.py`)


def _surrendered(message: Surrendered) -> list[AgentMessage]:
    """The answer to a surrender, with many records."""
    node, surrender, records = message.node, message.message, message.records
    me = surrender.agent
    own = [record for record in records if record.agent == me]
    ends = [end[0] for end in (surrender.waiter, surrender.holder) if end is not None]
    answer = replace(message, records=tuple(r for r in records if r.number in ends))
    return [*_states(node, own), answer, *_states(node, _in_order(records, me))]


def _states(node: str, records: Iterable[RequestRecord]) -> list[AgentMessage]:
    return [RequestStates(node, part) for part in pieces(records)]


def _in_order(records: Sequence[RequestRecord], me: AgentId) -> list[RequestRecord]:
    """The same records, in an order in which the first part makes the receiver keep the others."""
    other = next((r for r in records if r.agent != me), None)
    waiting = next((r for r in records if r.agent == me and r.state == "waiting"), None)
    first = [record for record in (other, waiting) if record is not None]
    return [*first, *[r for r in records if r is not other and r is not waiting]]


def pieces(records: Iterable[RequestRecord]) -> Iterator[tuple[RequestRecord, ...]]:
    """Records in parts; no part if there are no records."""
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
    """The edges of a cycle that its report contains: the first ones, two at least."""
    size = 0
    for count, edge in enumerate(cycle):
        if count >= MOST_EDGES or (count >= 2 and size >= LARGEST_PART):
            return cycle[:count]
        size += size_of(edge.waiter.lock_id) + size_of(edge.holder.lock_id)
    return cycle
