"""The events and effects of an instance of an election.

Events and effects are immutable values in closed unions. An `InstanceCore` takes in `Event`s, and
returns `Effect`s. Most events come from outside, and wait in the mailbox until they are taken
(`Incoming`). The others answer an effect, and are taken in at once (`Answer`).

An instance has two transactions, each with its own agent. A *round* is the number of a transaction
that contends for the election's lock. A *number* is that of a transaction that takes the merge
lock. Events about a transaction contain its number, and those of an earlier one are stale.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final, Literal, NamedTuple

from locks_leader.core.messages import AnyMessage, Kind, Member

__all__ = [
    "CONTEST_OPTIONS",
    "LOCK",
    "MERGE_OPTIONS",
    "NOTHING",
    "Answer",
    "AskToken",
    "BeginContest",
    "BeginMerge",
    "CallBack",
    "CallCancelled",
    "Called",
    "CastLost",
    "CastMade",
    "ContestGone",
    "ContestStanding",
    "Effect",
    "Elect",
    "Elected",
    "EndContest",
    "EndMerge",
    "Event",
    "Grants",
    "HandOver",
    "IncludeNodes",
    "Incoming",
    "LeaderCalled",
    "Look",
    "Looked",
    "MemberDown",
    "MemberJoined",
    "MergeTold",
    "MonitorMember",
    "NodeLost",
    "NotSent",
    "Noticed",
    "Origin",
    "Outcome",
    "Received",
    "Reply",
    "SendToMember",
    "Started",
    "SurrenderLeadership",
    "TokenTold",
    "standing_of",
]

Grants = frozenset[tuple[str, int]]  # nodes, each with the version of the grant there

# How the two transactions request their locks: the mode, and how many of the nodes are needed.
LOCK: Final[tuple[Literal["write"], Literal["all_alive"]]] = ("write", "all_alive")
CONTEST_OPTIONS: Final = {"notify": True, "await_nodes": True}
MERGE_OPTIONS: Final = {"notify": True, "abort_on_deadlock": True}
ENDS: Final = ("aborted", "ended")
"""Notifications of an agent's end, which a monitor reports as well."""

NOTHING: Any = object()  # no payload


class ContestStanding(NamedTuple):
    """The standing of one instance in the contest.

    Attributes:
        grants: The nodes and versions of its grants.
        held: Whether it holds the lock on all nodes that are up.
    """

    grants: Grants
    held: bool


class Origin(NamedTuple):
    """Whom the leader answers: a call that was made here, or a number of another instance."""

    member: Member | None
    call: Hashable


class HandOver(NamedTuple):
    """The messages that the callback `elected` has for the followers.

    Attributes:
        new: For new followers, which get it in `surrendered`.
        old: For present followers, which get it in `from_leader`; or `NOTHING`.
    """

    new: Any
    old: Any = NOTHING


class SurrenderLeadership(NamedTuple):
    """The callback `elected` gives the leadership to another candidate."""

    heir: Member


Outcome = HandOver | SurrenderLeadership  # of the callback `elected`


# --- Events that wait in the mailbox ------------------------------------------------------------


class Started(NamedTuple):
    """The instance takes part from now on.

    Attributes:
        elders: Nodes on which other instances request the lock; one of these may lead already.
    """

    elders: frozenset[str] = frozenset()


class MemberJoined(NamedTuple):
    """Another instance takes part in the election. Whoever says so says `MemberDown`, too."""

    member: Member
    node: str
    kind: Kind


class MemberDown(NamedTuple):
    """Another instance has ended, or is cut off."""

    member: Member


class NodeLost(NamedTuple):
    """A node's lock server was lost, with all locks there. It may be back already."""

    node: str


class Noticed(NamedTuple):
    """The set of nodes that are up, or the standing in the contest, may have changed."""


class TokenTold(NamedTuple):
    """The answer to `AskToken`: the fencing token; `None` if the lock is lost."""

    round: int
    token: int | None


class ContestGone(NamedTuple):
    """The agent of a round has ended by itself, and with it all that it was granted."""

    round: int


class MergeTold(NamedTuple):
    """The merge lock was taken; or its transaction was aborted, or its agent has ended."""

    number: int
    held: bool


class Received(NamedTuple):
    """Another instance has sent a message."""

    sender: Member
    node: str
    message: AnyMessage


class LeaderCalled(NamedTuple):
    """A client calls the leader through this instance; `Reply` answers `call`."""

    call: Hashable
    request: Any


class CallCancelled(NamedTuple):
    """The caller of the leader no longer waits for the answer."""

    call: Hashable


class CastMade(NamedTuple):
    """A client sends the leader a message through this instance."""

    request: Any


class Called(NamedTuple):
    """A client calls this instance itself; the callback `handle_call` answers `caller`."""

    request: Any
    caller: Any


Incoming = (
    Started
    | MemberJoined
    | MemberDown
    | NodeLost
    | Noticed
    | TokenTold
    | ContestGone
    | MergeTold
    | Received
    | LeaderCalled
    | CallCancelled
    | CastMade
    | Called
)

# --- Answers to effects -------------------------------------------------------------------------


class Looked(NamedTuple):
    """The answer to `Look`.

    Attributes:
        alive: The nodes whose lock servers are up, and count.
        round: The round in question.
        standing: The standing in the contest; `None` without a round, or if its agent has ended,
            which another event reports.
        bystanders: Nodes that are up, but left out (`locks_leader.core.bystanders`).
    """

    alive: frozenset[str]
    round: int | None
    standing: ContestStanding | None
    bystanders: frozenset[str] = frozenset()


class Elected(NamedTuple):
    """The answer to `Elect`.

    Attributes:
        outcome: The outcome of the callback `elected`.
        merged: Whether it held the merge lock when the callback returned. Without it, the callback
            does not wait for others, so some answers may be missing.
    """

    outcome: Outcome
    merged: bool


class NotSent(NamedTuple):
    """An answer to `SendToMember`: there is something in the message that can't be sent."""

    member: Member
    message: AnyMessage
    error: Exception


Answer = Looked | Elected | NotSent
Event = Incoming | Answer

# --- Effects ------------------------------------------------------------------------------------


class Look(NamedTuple):
    """Answer at once with the nodes that are up, and the standing in the contest: `Looked`.

    Attributes:
        round: The round of the contest; `None` if the instance takes no part.
    """

    round: int | None


class BeginContest(NamedTuple):
    """Ask for the election's lock on these nodes, with a new agent; numbers of rounds rise."""

    round: int
    nodes: frozenset[str]


class IncludeNodes(NamedTuple):
    """Ask for it on more nodes, all at once: that takes fewer messages."""

    round: int
    nodes: frozenset[str]


class EndContest(NamedTuple):
    """Give up the lock, and all requests for it."""

    round: int


class AskToken(NamedTuple):
    """Establish the fencing token of the lock; each has one answer, `TokenTold`."""

    round: int


class BeginMerge(NamedTuple):
    """Take the merge lock on these nodes, with a new agent; numbers rise."""

    number: int
    nodes: frozenset[str]


class EndMerge(NamedTuple):
    """Release the merge lock, or cancel the request for it."""

    number: int


class MonitorMember(NamedTuple):
    """Say when a member is down that has joined without a `MemberJoined`: `MemberDown`."""

    member: Member


class SendToMember(NamedTuple):
    """Send a message to another instance; if it can't be sent, answer `NotSent` at once."""

    member: Member
    message: AnyMessage


class Elect(NamedTuple):
    """Run the callback `elected`, and answer with its outcome: `Elected`. It is the last effect of its list.

    Attributes:
        newcomer: The new follower; `None` for the election itself.
    """

    newcomer: Member | None


class CallBack(NamedTuple):
    """Run another callback.

    The arguments are a payload, a member, or a request. With a request comes the receiver of the
    answer: an `Origin` for `handle_leader_call`, the caller for `handle_call`.
    """

    name: Literal[
        "surrendered",
        "stepped_down",
        "from_leader",
        "handle_down",
        "handle_leader_call",
        "handle_leader_cast",
        "handle_call",
    ]
    args: tuple[Any, ...] = ()


class Reply(NamedTuple):
    """Answer a call that was made here: with a value, or an exception. Each is answered once at most."""

    call: Hashable
    value: Any


class CastLost(NamedTuple):
    """A message for the leader can't be passed on, and is lost."""

    request: Any
    error: Exception


Effect = (
    Look
    | BeginContest
    | IncludeNodes
    | EndContest
    | AskToken
    | BeginMerge
    | EndMerge
    | MonitorMember
    | SendToMember
    | Elect
    | CallBack
    | Reply
    | CastLost
)


def standing_of(granted: Iterable[str], versions: Iterable[int], held: bool) -> ContestStanding:
    """The standing, from the nodes and versions of the agent's grants."""
    return ContestStanding(frozenset(zip(granted, versions, strict=True)), held)
