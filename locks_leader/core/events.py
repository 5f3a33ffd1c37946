"""What happens to an instance of an election, and what it wants done.

Events and effects are immutable values. `Event` is all that an `InstanceCore` takes in, `Effect` all that
it may ask for; both are closed. Most events come from outside, and wait in the mailbox until they are
taken (`Incoming`). The others answer an effect, and are taken in at once (`Answer`).

An instance has two transactions, each with an agent of its own. A *round* is the number of a transaction
that contends for the election's lock, a *number* that of one that takes the merge lock. What is told of
a transaction names it, and what names an earlier one is stale.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final, Literal, NamedTuple

from locks_leader.core.messages import Kind, Member, Message

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
    "Resync",
    "SendToMember",
    "Started",
    "SurrenderLeadership",
    "TokenTold",
    "standing_of",
]

Grants = frozenset[tuple[str, int]]  # nodes, each with the version of the grant there

# How the two transactions ask for their locks: in which mode, and on how many of the nodes.
LOCK: Final[tuple[Literal["write"], Literal["all_alive"]]] = ("write", "all_alive")
CONTEST_OPTIONS: Final = {"notify": True, "await_nodes": True}
MERGE_OPTIONS: Final = {"notify": True, "abort_on_deadlock": True}
ENDS: Final = ("aborted", "ended")
"""What agents notify of their end, which a monitor tells, too."""

NOTHING: Any = object()  # no payload


class ContestStanding(NamedTuple):
    """How the contest stands for one instance.

    Attributes:
        grants: Where it has the lock.
        held: Whether it has it on all nodes that are up.
    """

    grants: Grants
    held: bool


class Origin(NamedTuple):
    """Whom the leader answers: a call that was made here, or a number of another instance."""

    member: Member | None
    call: Hashable


class HandOver(NamedTuple):
    """What the callback `elected` has for those who follow.

    Attributes:
        new: For those whom it leads from now on: they get it in `surrendered`.
        old: For those whom it leads already: they get it in `from_leader`; or `NOTHING`.
    """

    new: Any
    old: Any = NOTHING


class SurrenderLeadership(NamedTuple):
    """The callback `elected` gives the leadership to another candidate."""

    heir: Member


Outcome = HandOver | SurrenderLeadership  # of the callback `elected`


# --- What comes in, and waits in the mailbox ----------------------------------------------------


class Started(NamedTuple):
    """It takes part from now on.

    Attributes:
        elders: Nodes on which somebody asks for the lock, and perhaps has it and leads already.
    """

    elders: frozenset[str] = frozenset()


class MemberJoined(NamedTuple):
    """Another instance takes part in the election."""

    member: Member
    node: str
    kind: Kind


class MemberDown(NamedTuple):
    """Another instance has ended, or is cut off."""

    member: Member


class NodeLost(NamedTuple):
    """A node's lock server was lost. It may be back already; what was locked there is gone."""

    node: str


class Noticed(NamedTuple):
    """Which nodes are up, or how the contest stands, may have changed."""


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
    message: Message


class Resync(NamedTuple):
    """A follower is not sure any more who leads it: if this instance does, it says so again."""

    member: Member


class LeaderCalled(NamedTuple):
    """Somebody calls the leader through this instance; `Reply` answers `call`."""

    call: Hashable
    request: Any


class CallCancelled(NamedTuple):
    """Whoever made a call of the leader does not wait for the answer any more."""

    call: Hashable


class CastMade(NamedTuple):
    """Somebody sends the leader a message through this instance."""

    request: Any


class Called(NamedTuple):
    """Somebody calls this very instance; the callback `handle_call` answers `caller`."""

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
    | Resync
    | LeaderCalled
    | CallCancelled
    | CastMade
    | Called
)

# --- What answers an effect ---------------------------------------------------------------------


class Looked(NamedTuple):
    """The answer to `Look`.

    Attributes:
        alive: The nodes whose lock servers are up, and count.
        round: The round that was asked for.
        standing: How the contest stands; `None` without a round, or if its agent has ended, which
            will be told.
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
        merged: Whether it had the merge lock when the callback returned. Without it nobody is waited for, so some
            may not have been heard.
    """

    outcome: Outcome
    merged: bool


class NotSent(NamedTuple):
    """An answer to `SendToMember`: there is something in the message that can't be sent."""

    member: Member
    message: Message
    error: Exception


Answer = Looked | Elected | NotSent
Event = Incoming | Answer

# --- What is to be done -------------------------------------------------------------------------


class Look(NamedTuple):
    """Say now which nodes are up, and how the contest stands: `Looked`.

    Attributes:
        round: The round of the contest; `None` if it takes no part.
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
    """Say when a member is down: `MemberDown`."""

    member: Member


class SendToMember(NamedTuple):
    """Send a message to another instance; if it can't be sent, say so at once: `NotSent`."""

    member: Member
    message: Message


class Elect(NamedTuple):
    """Run the callback `elected`, and say what has come of it: `Elected`. It is the last of its list.

    Attributes:
        newcomer: Who is to be led from now on; `None` for the election itself.
    """

    newcomer: Member | None


class CallBack(NamedTuple):
    """Run another callback.

    The arguments are a payload, a member, or a request, and with a request whom to answer: an `Origin`
    for `handle_leader_call`, the caller for `handle_call`.
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
    """How the contest stands, from what its agent has on which nodes."""
    return ContestStanding(frozenset(zip(granted, versions, strict=True)), held)
