"""Questions to a lock server about itself, and its answers: requests, deadlocks, its node, what is done.

These are plain values, sent between nodes as they are (`locks.net.messages`). Times are microseconds
since 1970 by the clock of the lock server's node. Each answer contains the present time of that
clock, so durations do not depend on the clock of the node that asks.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from msgspec import Meta

from locks.core.statistics import NodeStatistics
from locks.errors import assert_never
from locks.model import AgentId, Deadlock, LockId, RequestRecord
from locks.ranges import MOST_RECORDS, Message, Name, Names, Number, Text, Value, Version
from locks.words import Key

__all__ = [
    "MOST_CLIENTS",
    "MOST_DEADLOCKS",
    "Answer",
    "AskClients",
    "AskDeadlocks",
    "AskMark",
    "AskMarks",
    "AskMembers",
    "AskNode",
    "AskRequests",
    "Break",
    "Broken",
    "ClientPage",
    "DeadlockFact",
    "DeadlockPage",
    "Mark",
    "MarkFact",
    "MarkPage",
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


class RequestFact(Value, frozen=True):
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


class RequestPage(Message, frozen=True):
    """Some of the requests of a lock server, in the order in which they were made.

    Attributes:
        requests: The requests.
        more: Whether there are later ones.
    """

    requests: Annotated[tuple[RequestFact, ...], Meta(max_length=MOST_RECORDS)]
    more: bool


class DeadlockFact(Value, frozen=True):
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


class DeadlockPage(Message, frozen=True):
    """Some of the deadlocks that a lock server remembers, the oldest first.

    Attributes:
        deadlocks: The deadlocks.
        more: Whether there are later ones.
    """

    deadlocks: Annotated[tuple[DeadlockFact, ...], Meta(max_length=MOST_DEADLOCKS)]
    more: bool


class NodeFact(Message, frozen=True):
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


class ClientPage(Message, frozen=True):
    """Some of the client nodes that are connected with a node, by name.

    Attributes:
        clients: Their names.
        more: Whether there are later ones.
    """

    clients: Annotated[tuple[Name, ...], Meta(max_length=MOST_CLIENTS)]
    more: bool


class MemberFact(Value, frozen=True):
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
    group: Key
    member: Text
    node: Name
    program: Text
    pid: Number


class MemberPage(Message, frozen=True):
    """Some of a node's members of process groups; an actor that joined twice is listed twice.

    Attributes:
        members: The members.
        more: Whether there are later ones.
    """

    members: Annotated[tuple[MemberFact, ...], Meta(max_length=MOST_RECORDS)]
    more: bool


class Mark(Value, frozen=True):
    """The work of a lock id is done.

    Attributes:
        lock_id: The lock id.
        token: The fencing token of the run that has done it.
        at: When it was done.
        until: When this is forgotten.
        by: The client that has done it.
    """

    lock_id: LockId
    token: Version
    at: Number
    until: Number
    by: Text


class MarkFact(Message, frozen=True):
    """What a lock server knows of the work of one lock id.

    Attributes:
        mark: The mark, if there is one.
        had: Whether it was there before the question.
        since: The version of the grant of the agent that asks; 0 if it does not hold the lock there.
        complete: Whether the server knows all marks that it may have to know (`locks.core.done`).
        servers: The servers with which it shares its marks.
        now: The time of this answer.
        trouble: Why it can't keep marks in its file, if it is to.
    """

    mark: Mark | None
    had: bool
    since: Version
    complete: bool
    servers: Names
    now: Number
    trouble: Text = ""

    def counts(self, servers: Collection[str]) -> bool:
        """Whether the answer counts for a client of these servers that holds the lock."""
        same = set(self.servers) == set(servers)
        return self.since > 0 and self.complete and not self.trouble and same


class MarkPage(Message, frozen=True):
    """Some of the marks of a lock server, the oldest first.

    Attributes:
        marks: The marks.
        more: The number after which there are more; 0 if there are none.
        complete: Whether the server knows all marks that it may have to know.
        started: When it was started.
        now: The time of this answer.
        anew: If it knows that all servers once had no memory at the same time: their names, and when they had been started.
        keeps: Whether it keeps its marks in a file.
        trouble: Why it can't, if it is to.
    """

    marks: Annotated[tuple[Mark, ...], Meta(max_length=MOST_RECORDS)]
    more: Number
    complete: bool
    started: Number
    now: Number
    anew: Annotated[tuple[tuple[Name, Number], ...], Meta(max_length=MOST_RECORDS)]
    keeps: bool = False
    trouble: Text = ""


# --- Questions ----------------------------------------------------------------------------------


class AskRequests(Message, frozen=True):
    """Which requests are there? The answer is a `RequestPage`.

    Attributes:
        prefix: Only requests related to this lock id; `None` for all.
        after: Only requests with larger numbers than this.
    """

    prefix: LockId | None
    after: Number


class AskDeadlocks(Message, frozen=True):
    """Which deadlocks were there? The answer is a `DeadlockPage`.

    Attributes:
        after: Only deadlocks with larger numbers than this.
    """

    after: Number


class AskNode(Message, frozen=True):
    """What is the state of a node? The answer is a `NodeFact`.

    Attributes:
        node: The node.
    """

    node: Name


class AskClients(Message, frozen=True):
    """Which client nodes are connected with you? The answer is a `ClientPage`.

    Attributes:
        after: Only nodes whose names come after this one.
    """

    after: Name


class AskMembers(Message, frozen=True):
    """Which actors of a node are members of process groups? The answer is a `MemberPage`.

    Attributes:
        node: The node.
        after: How many members to skip.
    """

    node: Name
    after: Number


class Break(Message, frozen=True):
    """End a transaction. The answer is a `Broken`.

    Attributes:
        agent: The transaction's agent.
        reason: Why.
        by: The operator who requests it.
    """

    agent: AgentId
    reason: Text
    by: Text


class AskMark(Message, frozen=True):
    """Is the work of a lock id done? Or: remember that it is. The answer is a `MarkFact`.

    Attributes:
        agent: The agent that asks.
        lock_id: The lock id.
        now: The time of the clock of the agent's node.
        since: The version of the agent's grant, under which the mark is to be set.
        mark: The mark to set, with times by that clock; `None` to read only.
    """

    agent: AgentId
    lock_id: LockId
    now: Number
    since: Version = 0
    mark: Mark | None = None


class AskMarks(Message, frozen=True):
    """What is done? The answer is a `MarkPage`.

    Attributes:
        after: Only marks with larger numbers than this.
    """

    after: Number


class Broken(Message, frozen=True):
    """The outcome of a `Break`.

    Attributes:
        done: Whether the transaction was ended.
        why: If it was not, why.
    """

    done: bool
    why: Text = ""


class Untold(Message, frozen=True):
    """A question was not answered, because it could not be passed on.

    Attributes:
        why: Why it could not be passed on.
    """

    why: Text


Question = (
    AskRequests | AskDeadlocks | AskNode | AskClients | AskMembers | AskMark | AskMarks | Break
)
Answer = (
    RequestPage
    | DeadlockPage
    | NodeFact
    | ClientPage
    | MemberPage
    | MarkFact
    | MarkPage
    | Broken
    | Untold
)


def node_of(question: Question) -> str | None:
    """The node to which lock servers pass a question on; `None` if any of them can answer it."""
    match question:
        case AskNode(node) | AskMembers(node):
            return node
        case Break(agent):
            return agent.node
        case AskRequests() | AskDeadlocks() | AskClients() | AskMark() | AskMarks():
            return None
        case _:
            assert_never(question)
