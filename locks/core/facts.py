"""Questions to a lock server about itself, and its answers: requests, deadlocks, its node.

These are plain values, sent between nodes as terms (`locks.wire.facts`). Times are microseconds
since 1970 by the clock of the lock server's node. Each answer contains the present time of that
clock, so durations do not depend on the clock of the node that asks.
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
MOST_DEADLOCKS = 100  # remembered by a lock server


class RequestFact(NamedTuple):
    """One request at one lock server, with times and origin for operators.

    Attributes:
        request: The request.
        asked: When it was made, or last surrendered; 0 if unknown.
        since: When it was granted; 0 if it waits.
        now: The time of this answer.
        label: The label that the program gave its client, or else the client's name.
        program: The file of the client's program; empty if unknown.
        pid: The process id of the program; 0 if unknown.
        address: The address of the client's node, `host:port`; empty for the lock server's own
            node.
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
        """How long it has been granted, or has waited."""
        begun = self.since if self.granted else self.asked
        return max(0, self.now - begun) / 1e6 if begun else 0.0


class RequestPage(NamedTuple):
    """Some of the requests of a lock server, in the order in which they were made.

    Attributes:
        requests: The requests.
        more: Whether there are later ones.
    """

    requests: Annotated[tuple[RequestFact, ...], Size(MOST_RECORDS)]
    more: bool


class DeadlockFact(NamedTuple):
    """A deadlock that a lock server has broken, as reported by the agent that yielded.

    Attributes:
        number: Its number, counted from 1 since the lock server began.
        at: When it was broken.
        now: The time of this answer.
        report: The deadlock.
    """

    number: Number
    at: Number
    now: Number
    report: Deadlock

    @property
    def seconds(self) -> float:
        """How long ago it was broken."""
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
    """The state of a node at one time.

    Attributes:
        node: Its name.
        version: The version of `locks` that it runs.
        program: Its program, and the process id.
        started: When it was started.
        now: The time of its clock.
        servers: The nodes whose lock servers it can reach, its own included.
        clients: The number of client nodes that are connected with it.
        statistics: Its counters.
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
        """How long it has run, in seconds."""
        return max(0, self.now - self.started) / 1e6

    def ahead_of(self, clock: float) -> float:
        """How far its clock is ahead of another, in seconds; in tenths, as the answer took some time."""
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
        member: The name of the actor.
        node: Its node.
        program: The file of its program.
        pid: The process id of the program.
    """

    scope: Name
    group: Any
    member: Text
    node: Name
    program: Text
    pid: Number


class MemberPage(NamedTuple):
    """Some of a node's members of process groups; an actor that joined twice is listed twice.

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
        prefix: Only requests related to this lock id; `None` for all.
        after: Only requests with larger numbers than this.
    """

    prefix: LockId | None
    after: Number


class AskDeadlocks(NamedTuple):
    """Which deadlocks were there? The answer is a `DeadlockPage`.

    Attributes:
        after: Only deadlocks with larger numbers than this.
    """

    after: Number


class AskNode(NamedTuple):
    """What is the state of a node? The answer is a `NodeFact`.

    Attributes:
        node: The node.
    """

    node: Name


class AskClients(NamedTuple):
    """Which client nodes are connected with you? The answer is a `ClientPage`.

    Attributes:
        after: Only nodes whose names come after this one.
    """

    after: Name


class AskMembers(NamedTuple):
    """Which actors of a node are members of process groups? The answer is a `MemberPage`.

    Attributes:
        node: The node.
        after: How many members to skip.
    """

    node: Name
    after: Number


class Break(NamedTuple):
    """End a transaction. The answer is a `Broken`.

    Attributes:
        agent: The transaction's agent.
        reason: Why.
        by: The operator who requests it.
    """

    agent: AgentId
    reason: Text
    by: Text


class Broken(NamedTuple):
    """The outcome of a `Break`.

    Attributes:
        done: Whether the transaction was ended.
        why: If it was not, why.
    """

    done: bool
    why: Text = ""


class Untold(NamedTuple):
    """A question was not answered, because it could not be passed on.

    Attributes:
        why: Why it could not be passed on.
    """

    why: Text


Question = AskRequests | AskDeadlocks | AskNode | AskClients | AskMembers | Break
Answer = RequestPage | DeadlockPage | NodeFact | ClientPage | MemberPage | Broken | Untold


def node_of(question: Question) -> str | None:
    """The node to which lock servers pass a question on; `None` if any of them can answer it."""
    match question:
        case AskNode(node) | AskMembers(node):
            return node
        case Break(agent):
            return agent.node
        case AskRequests() | AskDeadlocks() | AskClients():
            return None
        case _:
            assert_never(question)
