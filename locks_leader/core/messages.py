"""What the instances of an election say to each other, and what the machine wants done.

Messages and effects are immutable values. `Message` is all that an instance takes in from another
one, `Effect` all that the machine may ask for; both are closed.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal, NamedTuple

__all__ = [
    "Affirm",
    "Announce",
    "AskTerm",
    "CallBack",
    "Contend",
    "ContestStanding",
    "DropMerge",
    "Effect",
    "Elect",
    "Forward",
    "ForwardAnswer",
    "FromLeader",
    "Grants",
    "Include",
    "LeaderCast",
    "Member",
    "Message",
    "Monitor",
    "NotTheLeader",
    "Origin",
    "Reply",
    "Resign",
    "Role",
    "Send",
    "TakeMerge",
    "Withdraw",
    "YieldTo",
]

Role = Literal["candidate", "following", "syncing", "leader"]
Member = Hashable  # an instance of the election; the machine compares them, nothing else

# --- Messages from one instance to another ------------------------------------------------------


class Announce(NamedTuple):
    """I lead you; `payload` is what `elected` has for its new followers."""

    term: int
    payload: Any


class FromLeader(NamedTuple):
    """The leader broadcasts something."""

    term: int
    payload: Any


class Affirm(NamedTuple):
    """I still lead you, with a new term from now on."""

    term: int


class Resign(NamedTuple):
    """I do not lead any more."""

    term: int


class YieldTo(NamedTuple):
    """The leader of this term gives its place to `heir`: everybody else stands last behind it."""

    term: int
    heir: Member


class Forward(NamedTuple):
    """A call for the leader, from an instance that was asked to pass it on."""

    number: int
    request: Any


class ForwardAnswer(NamedTuple):
    """The leader's answer to `Forward`."""

    number: int
    value: Any


class NotTheLeader(NamedTuple):
    """The answer to `Forward` of one who does not lead: the call was not carried out."""

    number: int


class LeaderCast(NamedTuple):
    """A message for the leader, which nobody waits for."""

    request: Any


Message = (
    Announce
    | FromLeader
    | Affirm
    | Resign
    | YieldTo
    | Forward
    | ForwardAnswer
    | NotTheLeader
    | LeaderCast
)


Grants = frozenset[tuple[str, int]]  # nodes, each with the version of the grant there


class ContestStanding(NamedTuple):
    """How the contest stands for one instance.

    Attributes:
        grants: Where it has the lock.
        held: Whether it has it on all nodes that are up.
    """

    grants: Grants
    held: bool


# --- What the machine wants done ----------------------------------------------------------------


class Contend(NamedTuple):
    """Ask for the lock on these nodes, with a new agent; numbers of rounds rise."""

    round: int
    nodes: frozenset[str]


class Include(NamedTuple):
    """Ask for the lock on one more node."""

    round: int
    node: str


class Withdraw(NamedTuple):
    """Give up the lock, and all requests for it."""

    round: int


class AskTerm(NamedTuple):
    """Establish the fencing token of the lock; each has one answer."""

    round: int


class TakeMerge(NamedTuple):
    """Take the merge lock on these nodes; numbers rise."""

    number: int
    nodes: frozenset[str]


class DropMerge(NamedTuple):
    """Release the merge lock, or cancel the request for it."""

    number: int


class Monitor(NamedTuple):
    """Say when a member is down."""

    member: Member


class Send(NamedTuple):
    """Send a message to another instance."""

    member: Member
    message: Message


class Elect(NamedTuple):
    """Run the callback `elected`, and give its outcome to `Machine.elected` before anything else.

    Attributes:
        newcomer: Who is to be led from now on; `None` for the election itself.
    """

    newcomer: Member | None


class CallBack(NamedTuple):
    """Run another callback."""

    name: Literal[
        "surrendered",
        "stepped_down",
        "from_leader",
        "handle_down",
        "handle_leader_call",
        "handle_leader_cast",
    ]
    args: tuple[Any, ...] = ()


class Reply(NamedTuple):
    """Answer a call that was made here: with a value, or `LeaderDied`."""

    call: Hashable
    value: Any


class Origin(NamedTuple):
    """Whom the leader answers: a call that was made here, or a number of another instance."""

    member: Member | None
    call: Hashable


Effect = (
    Contend
    | Include
    | Withdraw
    | AskTerm
    | TakeMerge
    | DropMerge
    | Monitor
    | Send
    | Elect
    | CallBack
    | Reply
)
