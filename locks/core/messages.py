"""What lock servers and agents say to each other, and what they want done.

Messages and effects are immutable values. `ServerMessage` and `AgentMessage` are all that the two
machines take in, `ServerEffect` and `AgentEffect` all that they may ask for; both are closed.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, NamedTuple

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
from locks.ranges import MOST_IN_KNOT, MOST_RECORDS, Name, Number, Size, Text, Version

Records = Annotated[tuple[RequestRecord, ...], Size(MOST_RECORDS)]
End = tuple[Number, Version]
"""Of an edge: a request's number, and its `since`."""
Ends = Annotated[tuple[End, ...], Size(MOST_IN_KNOT)]

# --- What agents tell each other ----------------------------------------------------------------


class Knowledge(NamedTuple):
    """An agent passes on what it knows.

    Attributes:
        sender: The agent that passes it on.
        records: Request records, each new to the receiver as far as the sender knows.
        forgot: The sender has forgotten what it was told before, because it did not wait for a
            while; it must be told again.
    """

    sender: AgentId
    records: Records
    forgot: bool = False


# --- Messages to a lock server ------------------------------------------------------------------


class Request(NamedTuple):
    """Ask for a lock; with what the agent does at other nodes (see `StandingElsewhere`).

    A *spare* request stands in the queue and is granted in its turn, but its agent does not wait for it: it holds the
    lock by what other nodes have granted. To ask for the same id again makes requests there spare, or needed again.
    """

    agent: AgentId
    client: Text
    lock_id: LockId
    mode: Mode
    requests_elsewhere: bool = False
    waits_elsewhere: bool = False
    spare: bool = False


class Release(NamedTuple):
    """Take the agent's requests on exactly this id out, granted or waiting; of one mode, or all."""

    agent: AgentId
    lock_id: LockId
    mode: Mode | None = None


class Surrender(NamedTuple):
    """Give up a lock id for one edge; ignored when that edge is no longer there.

    With an edge and no report, the agent *gives way* to a spare request: that one is put ahead of what the agent has
    there, and the agent keeps its place otherwise.

    Attributes:
        agent: The agent that surrenders.
        lock_id: All of the agent's requests related to this id lose their grant and stand last.
        waiter: Key number and `since` of the request that waits, or `None` to surrender whatever
            waits (the client itself wants to surrender).
        holder: Key number and `since` of the own request that it waits for, likewise.
        report: The deadlock for which it is done; reported to the agents of the cycle. When its
            action is `"aborted"`, all of the agent's requests are taken out instead.
        knot: Where counted locks are part of the deadlock: the requests of it at this lock server (1,000 at most), the
            same way. It is ignored when any of them is not as it was, too, or its agent waits no more.
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


class Remove(NamedTuple):
    """Take all requests of an agent out: it ended, or is lost."""

    agent: AgentId


class StandingElsewhere(NamedTuple):
    """What an agent does at other nodes has changed: whether it has requests, and waits there."""

    agent: AgentId
    requests_elsewhere: bool
    waits_elsewhere: bool


class Inquire(NamedTuple):
    """The agent has forgotten what it was notified of; notify it again of what still matters."""

    agent: AgentId


class RaiseVersion(NamedTuple):
    """Give no version from now on that is not larger, if the agent still has this grant.

    So the agent that is granted the lock here next gets a larger fencing token
    (`locks.core.agent.fencing`).

    Attributes:
        agent: The agent that has the grant.
        lock_id: On exactly this id.
        since: The version of the grant.
        version: The version to be raised to.
    """

    agent: AgentId
    lock_id: LockId
    since: Version
    version: Version


class _Outside:
    """There is one of it: `OUTSIDE`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "OUTSIDE"


OUTSIDE = _Outside()
"""Stands for all watchers on other nodes: they read the lock table by parts, of what has changed."""


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


class RequestStates(NamedTuple):
    """A lock server notifies an agent of the present states of requests.

    Those of its own that have changed are always among them; others, as far as they may be part of
    a deadlock.
    """

    node: Name
    records: Records


class Released(NamedTuple):
    """A lock server's answer to `Release`.

    Attributes:
        node: The server's node.
        lock_id: The id that was released.
        records: The agent's requests on exactly this id that are still in the table.
    """

    node: Name
    lock_id: LockId
    records: Records


class Refused(NamedTuple):
    """A lock server's answer to a `Request` for a counted id: others use that id with another number of units.

    Attributes:
        node: The server's node.
        lock_id: What was asked for.
        units: How many units there are; 0 if the lock server knows no counted locks.
    """

    node: Name
    lock_id: LockId
    units: Number


class VersionRaised(NamedTuple):
    """A lock server's answer to `RaiseVersion`.

    Attributes:
        node: The server's node.
        lock_id: The id of the grant.
        since: The version of the grant.
        version: The version that was asked for.
        done: Whether the grant was still there, and all later versions are larger.
    """

    node: Name
    lock_id: LockId
    since: Version
    version: Version
    done: bool


class Surrendered(NamedTuple):
    """A lock server's answer to `Surrender`, always with the present state of both requests.

    Attributes:
        node: The server's node.
        message: The message that is answered.
        done: Whether it was carried out.
        records: What the agent is to know now, as in `RequestStates`; the requests of its edge are among
            them if they are still in the table.
        version: The table's version; a request of the edge that is not in `records` is gone.
        gone: The numbers of requests of the knot that are gone, if it is refused. Those of it that have
            changed are in `records`.
    """

    node: Name
    message: Surrender
    done: bool
    records: Records
    version: Version
    gone: Annotated[tuple[Number, ...], Size(MOST_IN_KNOT + 2)] = ()


class Resolved(NamedTuple):
    """A lock server notifies the other agents of a cycle that it was broken, and how.

    An agent that learns so forgets what served this deadlock. The server knows that, and says with it
    what still matters at its node.

    Attributes:
        report: The deadlock.
        records: What the agent is to know now, as in `RequestStates`.
    """

    report: Deadlock
    records: Records


AgentMessage = (
    RequestStates | Released | Refused | VersionRaised | Surrendered | Resolved | Knowledge
)

# --- What the machines want done ----------------------------------------------------------------


class ToServer(NamedTuple):
    """Send a message to the lock server of a node."""

    node: str
    message: ServerMessage


class ToAgent(NamedTuple):
    """Send a message to an agent."""

    agent: AgentId
    message: AgentMessage


class ViewChange(NamedTuple):
    """What one step of a lock table has changed in the view of a lock id.

    Attributes:
        lock_id: The lock id that the view is of.
        node: The node whose lock table it is.
        gone: The numbers of requests that are no longer there.
        requests: Those that are new, or in another state or place.
        version: The lock table's version after the step.
    """

    lock_id: LockId
    node: str
    gone: tuple[int, ...]
    requests: tuple[Contender, ...]
    version: int


class TableChange(NamedTuple):
    """Which requests of a lock table one step has changed, in whatever view they are.

    Attributes:
        changed: Their numbers and lock ids.
    """

    changed: tuple[tuple[int, LockId], ...]


class ToWatcher(NamedTuple):
    """Tell a watcher of a lock id: the present view when it begins, and then what has changed."""

    watcher: Hashable
    news: View | ViewChange | TableChange


class AnswerWait(NamedTuple):
    """Answer a client's wait: with a result, a fencing token, or an exception to raise."""

    wait: Hashable
    result: LockResult | int | Exception


class Notify(NamedTuple):
    """Tell the client something that it asked to be told (options notify and monitor_nodes)."""

    notification: Notification


class Lost(NamedTuple):
    """Locks that the client was told it has are gone with a node; told before all else.

    Attributes:
        lock_ids: Which locks.
        error: What to raise where the client relies on them.
    """

    lock_ids: tuple[LockId, ...]
    error: LockLost


class Ended(NamedTuple):
    """The agent has ended; the reason is `None` for a normal end."""

    reason: Exception | None


ServerEffect = ToAgent | ToWatcher
AgentEffect = ToServer | ToAgent | AnswerWait | Lost | Notify | Ended
