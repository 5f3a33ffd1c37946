"""The messages between lock servers and agents, and the effects of their machines.

Messages and effects are immutable values in closed unions. `ServerMessage` and `AgentMessage` are
what the two machines take in; `ServerEffect` and `AgentEffect` are what they return.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from locks.errors import LockLost
from locks.model import (
    AgentId,
    Contender,
    Deadlock,
    LockId,
    LockResult,
    Mode,
    Notification,
    RequestRecord,
    View,
)
from locks.ranges import MOST_IN_KNOT, MOST_RECORDS, Message, Name, Number, Text, Version

__all__ = [
    "AgentMessage",
    "Inquire",
    "Knowledge",
    "RaiseVersion",
    "Refused",
    "Release",
    "Released",
    "Remove",
    "Request",
    "RequestStates",
    "Resolved",
    "ServerMessage",
    "StandingElsewhere",
    "Surrender",
    "Surrendered",
    "Unwatch",
    "VersionRaised",
    "Watch",
]

Records = Annotated[tuple[RequestRecord, ...], Meta(max_length=MOST_RECORDS)]
End = tuple[Number, Version]
"""One end of an edge: a request's number, and its `since`."""
Ends = Annotated[tuple[End, ...], Meta(max_length=MOST_IN_KNOT)]

# --- Messages between agents --------------------------------------------------------------------


class Knowledge(Message, frozen=True):
    """An agent passes on request records.

    Attributes:
        sender: The agent that passes them on.
        records: Request records, each new to the receiver as far as the sender knows.
        forgot: Whether the sender has forgotten all records that it received before, because it did
            not wait for a while. Then the receiver must send them again.
    """

    sender: AgentId
    records: Records
    forgot: bool = False


# --- Messages to a lock server ------------------------------------------------------------------


class Request(Message, frozen=True):
    """Request a lock; contains the agent's standing at other nodes (see `StandingElsewhere`).

    A *spare* request is put ahead of all that wait. Its agent does not wait for it: it holds the
    lock by the grants of other nodes.
    """

    agent: AgentId
    client: Text
    lock_id: LockId
    mode: Mode
    requests_elsewhere: bool = False
    waits_elsewhere: bool = False
    spare: bool = False


class Release(Message, frozen=True):
    """Take out the agent's requests on exactly this id, granted or waiting, in one mode or all."""

    agent: AgentId
    lock_id: LockId
    mode: Mode | None = None


class Surrender(Message, frozen=True):
    """Give up a lock id for one edge; refused if that edge no longer exists.

    With an edge and without a report, the edge is of a spare request, whose agent holds the lock.

    Attributes:
        agent: The agent that surrenders.
        lock_id: All requests of the agent related to this id lose their grant and move to the end.
        waiter: Number and `since` of the waiting request, or `None` to surrender without an edge
            (at the client's wish).
        holder: Number and `since` of the agent's own request that it waits for, likewise.
        report: The deadlock to be resolved; it is reported to the agents of the cycle. If its
            action is `"aborted"`, all requests of the agent are taken out instead.
        knot: If counted locks are part of the deadlock, its requests at this lock server (1,000 at
            most), in the same form. The surrender is also refused if one of them has changed, or
            its agent no longer waits.
    """

    agent: AgentId
    lock_id: LockId
    waiter: End | None = None
    holder: End | None = None
    report: Deadlock | None = None
    knot: Ends = ()

    @property
    def aborts(self) -> bool:
        """Whether the whole transaction is given up."""
        return self.report is not None and self.report.action == "aborted"


class Remove(Message, frozen=True):
    """Take out all requests of an agent that has ended or is lost."""

    agent: AgentId


class StandingElsewhere(Message, frozen=True):
    """An agent's standing at other nodes changed: whether it has requests there, and waits there."""

    agent: AgentId
    requests_elsewhere: bool
    waits_elsewhere: bool


class Inquire(Message, frozen=True):
    """The agent has forgotten the records of others; send those again that still matter."""

    agent: AgentId


class RaiseVersion(Message, frozen=True):
    """Assign only larger versions than this one from now on, if the agent still has this grant.

    So the next agent that is granted the lock here gets a larger fencing token
    (`locks.core.agent.fencing`).

    Attributes:
        agent: The agent that has the grant.
        lock_id: The id of the grant.
        since: The version of the grant.
        version: The version to confirm.
    """

    agent: AgentId
    lock_id: LockId
    since: Version
    version: Version


class _Outside:
    """The type of `OUTSIDE`, its only instance."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "OUTSIDE"


OUTSIDE = _Outside()
"""Stands for all watchers on other nodes, which read the changed parts of the lock table."""


class Watch(NamedTuple):
    """Subscribe `watcher` to the views of a lock id; or `OUTSIDE` to `TableChange`s, by the id `()`."""

    watcher: Hashable
    lock_id: LockId


class Unwatch(NamedTuple):
    """End a subscription."""

    watcher: Hashable
    lock_id: LockId


ServerMessage = (
    Request
    | Release
    | Surrender
    | Remove
    | StandingElsewhere
    | Inquire
    | RaiseVersion
    | Watch
    | Unwatch
)

# --- Messages to an agent -----------------------------------------------------------------------


class RequestStates(Message, frozen=True):
    """A lock server notifies an agent of the present states of requests.

    These are all of the agent's own requests that have changed, and requests of others that may be
    part of a deadlock.
    """

    node: Name
    records: Records


class Released(Message, frozen=True):
    """A lock server's answer to `Release`.

    Attributes:
        node: The server's node.
        lock_id: The id that was released.
        records: The agent's requests on exactly this id that are still in the table.
    """

    node: Name
    lock_id: LockId
    records: Records


class Refused(Message, frozen=True):
    """A lock server refuses a `Request`: a counted id has another number of units, or its program is at a limit.

    Attributes:
        node: The server's node.
        lock_id: The requested id.
        units: The number of units in use.
        mode: The requested mode.
        what: Which of both; what is limited.
        limit: How many each program may have at the lock server.
        present: How many the agent's program has there.
    """

    node: Name
    lock_id: LockId
    units: Number
    mode: Mode = "write"
    what: Literal["units", "requests", "waits", "transactions"] = "units"
    limit: Number = 0
    present: Number = 0


class VersionRaised(Message, frozen=True):
    """A lock server's answer to `RaiseVersion`.

    Attributes:
        node: The server's node.
        lock_id: The id of the grant.
        since: The version of the grant.
        version: The version to confirm.
        done: Whether it is confirmed: the grant still existed, and all later versions are larger.
    """

    node: Name
    lock_id: LockId
    since: Version
    version: Version
    done: bool


class Surrendered(Message, frozen=True):
    """A lock server's answer to `Surrender`, always with the present state of both requests.

    Attributes:
        node: The server's node.
        message: The surrender.
        done: Whether it was carried out.
        records: Request records as in `RequestStates`; both requests of the edge are included if
            they are still in the table.
        version: The table's version; a request of the edge that is not in `records` is gone.
        gone: If the surrender is refused, the numbers of requests of the knot that are gone. Those
            that have changed are in `records`.
    """

    node: Name
    message: Surrender
    done: bool
    records: Records
    version: Version
    gone: Annotated[tuple[Number, ...], Meta(max_length=MOST_IN_KNOT + 2)] = ()


class Resolved(Message, frozen=True):
    """A lock server notifies the other agents of a cycle that it was broken, and how.

    An agent that receives this forgets the records of this deadlock. So the server adds the records
    that still matter at its node.

    Attributes:
        report: The deadlock.
        records: Request records as in `RequestStates`.
    """

    report: Deadlock
    records: Records


AgentMessage = (
    RequestStates | Released | Refused | VersionRaised | Surrendered | Resolved | Knowledge
)

# --- Effects of the machines --------------------------------------------------------------------


class ToServer(NamedTuple):
    """Send a message to the lock server of a node."""

    node: str
    message: ServerMessage


class ToAgent(NamedTuple):
    """Send a message to an agent."""

    agent: AgentId
    message: AgentMessage


class ViewChange(NamedTuple):
    """The change of one lock id's view by one step of the lock table.

    Attributes:
        lock_id: The lock id.
        node: The node of the lock table.
        gone: The numbers of requests that were taken out.
        requests: The requests that are new, or have another state or place.
        version: The lock table's version after the step.
    """

    lock_id: LockId
    node: str
    gone: tuple[int, ...]
    requests: tuple[Contender, ...]
    version: int


class TableChange(NamedTuple):
    """The requests of a lock table that one step has changed, in any view.

    Attributes:
        changed: Their numbers and lock ids.
    """

    changed: tuple[tuple[int, LockId], ...]


class ToWatcher(NamedTuple):
    """Notify a watcher of a lock id: first of the present view, then of each change."""

    watcher: Hashable
    news: View | ViewChange | TableChange


class AnswerWait(NamedTuple):
    """Answer a client's wait: with a result, a fencing token, or an exception to raise."""

    wait: Hashable
    result: LockResult | int | Exception


class Notify(NamedTuple):
    """Notify the client of something that it subscribed to (options notify and monitor_nodes)."""

    notification: Notification


class Lost(NamedTuple):
    """Acknowledged locks were lost with a node; this comes before all other effects.

    Attributes:
        lock_ids: Which locks.
        error: The error to raise where the client relies on them.
    """

    lock_ids: tuple[LockId, ...]
    error: LockLost


class Ended(NamedTuple):
    """The agent has ended; the reason is `None` for a normal end."""

    reason: Exception | None


ServerEffect = ToAgent | ToWatcher
AgentEffect = ToServer | ToAgent | AnswerWait | Lost | Notify | Ended
