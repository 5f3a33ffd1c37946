"""What a lock server tells of itself: its requests with their times, its deadlocks, its node.

Values, as they are told to other nodes (`locks.wire.facts`). Times are microseconds since 1970 by the clock of the
lock server's node; each answer says what that clock is, so whoever asks needs no clock of its own to say how long
something takes.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from locks.core.statistics import NodeStatistics
from locks.errors import assert_never
from locks.model import AgentId, Deadlock, LockId, RequestRecord
from locks.ranges import MOST_RECORDS, Name, Names, Number, Size, Text

__all__ = [
    "MOST_CLIENTS",
    "MOST_DEADLOCKS",
    "Answer",
    "AskClients",
    "AskDeadlocks",
    "AskMembers",
    "AskNode",
    "AskRequests",
    "Break",
    "Broken",
    "ClientPage",
    "DeadlockFact",
    "DeadlockPage",
    "MemberFact",
    "MemberPage",
    "NodeFact",
    "Question",
    "RequestFact",
    "RequestPage",
    "Untold",
    "node_of",
]

MOST_CLIENTS = 1000  # in one page
MOST_DEADLOCKS = 100  # that a lock server remembers


class RequestFact(NamedTuple):
    """One request at one lock server, with what an operator wants to know of it.

    Attributes:
        request: The request.
        asked: When it was asked for, or last surrendered; 0 if that is not known.
        since: When it was granted; 0 if it waits.
        now: When this was told.
        label: What its client is called; its name, if the program has given it no label.
        program: The file of the client's program; empty if that is not known.
        pid: The number of the program's process; 0 if that is not known.
        address: From where the client's node is connected, `host:port`; empty if it is the lock server's own node.
    """

    request: RequestRecord
    asked: Number
    since: Number
    now: Number
    label: Text
    program: Text
    pid: Number
    address: Text

    @property
    def granted(self) -> bool:
        """Whether it is granted; otherwise it waits."""
        return self.request.state == "granted"

    @property
    def seconds(self) -> float:
        """For how long it is granted, or waits."""
        begun = self.since if self.granted else self.asked
        return max(0, self.now - begun) / 1e6 if begun else 0.0


class RequestPage(NamedTuple):
    """Some of the requests of a lock server, in the order in which they were asked for.

    Attributes:
        requests: The requests.
        more: Whether there are later ones.
    """

    requests: Annotated[tuple[RequestFact, ...], Size(MOST_RECORDS)]
    more: bool


class DeadlockFact(NamedTuple):
    """A deadlock that a lock server has broken, on the word of the agent that yielded.

    Attributes:
        number: Which one it is, counted from 1 since the lock server began.
        at: When.
        now: When this was told.
        report: The deadlock.
    """

    number: Number
    at: Number
    now: Number
    report: Deadlock

    @property
    def seconds(self) -> float:
        """How long ago that was."""
        return max(0, self.now - self.at) / 1e6


class DeadlockPage(NamedTuple):
    """Some of the deadlocks that a lock server remembers, the oldest first.

    Attributes:
        deadlocks: The deadlocks.
        more: Whether there are later ones.
    """

    deadlocks: Annotated[tuple[DeadlockFact, ...], Size(MOST_DEADLOCKS)]
    more: bool


class NodeFact(NamedTuple):
    """A node at one moment.

    Attributes:
        node: Its name.
        version: The version of `locks` that it runs.
        program: Its program, and the number of its process.
        started: When it was started.
        now: What its clock says.
        servers: The nodes whose lock servers it can ask, its own among them.
        clients: How many client nodes are connected with it.
        statistics: What it has counted.
    """

    node: Name
    version: Text
    program: Text
    started: Number
    now: Number
    servers: Names
    clients: Number
    statistics: NodeStatistics

    @property
    def uptime(self) -> float:
        """For how many seconds it has run."""
        return max(0, self.now - self.started) / 1e6

    def ahead_of(self, clock: float) -> float:
        """How far its clock is ahead of another one, in seconds; what is finer than a tenth, the way there has made."""
        return round(self.now / 1e6 - clock, 1) + 0.0  # never -0.0


class ClientPage(NamedTuple):
    """Some of the client nodes that are connected with a node, by name.

    Attributes:
        clients: Their names.
        more: Whether there are later ones.
    """

    clients: Annotated[tuple[Name, ...], Size(MOST_CLIENTS)]
    more: bool


class MemberFact(NamedTuple):
    """An actor that is a member of a process group.

    Attributes:
        scope: The scope of the group.
        group: The group, as other nodes see it.
        member: What the actor is called.
        node: Its node.
        program: The file of its program.
        pid: The number of the program's process.
    """

    scope: Name
    group: Any
    member: Text
    node: Name
    program: Text
    pid: Number


class MemberPage(NamedTuple):
    """Some of the actors of a node that are members of process groups; one that has joined twice is there twice.

    Attributes:
        members: The members.
        more: Whether there are later ones.
    """

    members: Annotated[tuple[MemberFact, ...], Size(MOST_RECORDS)]
    more: bool


# --- Questions ----------------------------------------------------------------------------------


class AskRequests(NamedTuple):
    """Which requests are there? The answer is a `RequestPage`.

    Attributes:
        prefix: Those on this lock id, above it and below it; all, if there is none.
        after: Those with larger numbers than this.
    """

    prefix: LockId | None
    after: Number


class AskDeadlocks(NamedTuple):
    """Which deadlocks were there? The answer is a `DeadlockPage`.

    Attributes:
        after: Those with larger numbers than this.
    """

    after: Number


class AskNode(NamedTuple):
    """What is a node? The answer is a `NodeFact`.

    Attributes:
        node: The node.
    """

    node: Name


class AskClients(NamedTuple):
    """Which client nodes are connected with you? The answer is a `ClientPage`.

    Attributes:
        after: Those whose names come after this one.
    """

    after: Name


class AskMembers(NamedTuple):
    """Which actors of a node are members of process groups? The answer is a `MemberPage`.

    Attributes:
        node: The node.
        after: Only those after so many.
    """

    node: Name
    after: Number


class Break(NamedTuple):
    """End a transaction. The answer is a `Broken`.

    Attributes:
        agent: The transaction's agent.
        reason: Why.
        by: Who wants it.
    """

    agent: AgentId
    reason: Text
    by: Text


class Broken(NamedTuple):
    """What has become of a `Break`.

    Attributes:
        done: Whether the transaction was ended.
        why: Why not.
    """

    done: bool
    why: Text = ""


class Untold(NamedTuple):
    """A question was not answered, for it could not be passed on.

    Attributes:
        why: Why not.
    """

    why: Text


Question = AskRequests | AskDeadlocks | AskNode | AskClients | AskMembers | Break
Answer = RequestPage | DeadlockPage | NodeFact | ClientPage | MemberPage | Broken | Untold


def node_of(question: Question) -> str | None:
    """The node that a question is for, if it is a certain one; lock servers pass it on to that one."""
    match question:
        case AskNode(node) | AskMembers(node):
            return node
        case Break(agent):
            return agent.node
        case AskRequests() | AskDeadlocks() | AskClients():
            return None
        case _:
            assert_never(question)
