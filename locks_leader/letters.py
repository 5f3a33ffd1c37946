"""What instances of an election are sent by each other and by clients: the letters between nodes (`locks.net.values`).

On one node they are passed as they are, so an instance checks what a letter between nodes is checked for when it arrives.
"""

from __future__ import annotations

from typing import Annotated, Any, get_args

import pykka
from msgspec import Meta

from locks import MisuseError
from locks.net.actors import text_of
from locks.net.messages import BadMessage
from locks.net.values import Reference, letters
from locks.net.versions import check_version
from locks.node import RemoteError
from locks.ranges import LONGEST_NAME, Message
from locks_leader.core.messages import AnyMessage

__all__ = [
    "AskInfo",
    "CallLeader",
    "CancelCall",
    "Cast",
    "CastToLeader",
    "FromInstance",
    "Letter",
    "Raised",
    "check",
    "outcome",
    "outcome_for",
]

Ticket = Annotated[str, Meta(max_length=LONGEST_NAME)]


class FromInstance(Message, frozen=True):
    """A message of another instance."""

    sender: Reference
    message: AnyMessage


class CallLeader(Message, frozen=True):
    """A client calls the leader through an instance; the ticket identifies the call."""

    ticket: Ticket
    request: Any


class CancelCall(Message, frozen=True):
    """A client has given a call up."""

    ticket: Ticket


class Cast(Message, frozen=True):
    """A client sends an instance something."""

    message: Any


class CastToLeader(Message, frozen=True):
    """A client sends the leader something through an instance."""

    message: Any


class AskInfo(Message, frozen=True):
    """What does the instance know of its election?"""


class Raised(Message, frozen=True):
    """The leader raised an exception, in the place of an answer for another node."""

    kind: str
    text: str


Letter = FromInstance | CallLeader | CancelCall | Cast | CastToLeader | AskInfo
letters("election", Letter | AnyMessage | Raised)


def check(letter: Letter) -> None:
    """Check what no decoder has checked: a letter of the same node, and how far a term is ahead of the clock.

    Raises:
        MisuseError: It is wrong.
    """
    match letter:
        case FromInstance():
            message: Any = letter.message
            try:
                if not isinstance(letter.sender, pykka.ActorRef) or type(message) not in MESSAGES:
                    raise BadMessage("it is of no instance")
                if hasattr(message, "term"):
                    if type(message.term) is not int:
                        raise BadMessage(f"{message.term!r:.100} is no term")
                    check_version(message.term)
            except BadMessage as error:
                text = f"{letter!r:.200} is not a message of an election: {error}"
                raise MisuseError(text, value=f"{letter!r:.200}") from None
        case CallLeader() | CancelCall():
            if type(letter.ticket) is not str or len(letter.ticket) > LONGEST_NAME:
                text = f"{letter.ticket!r:.200} is not the ticket of a call"
                raise MisuseError(text, value=f"{letter.ticket!r:.200}")
        case Cast() | CastToLeader() | AskInfo():
            pass


MESSAGES = frozenset(get_args(AnyMessage))


def outcome_for(value: Any, is_here: bool) -> Any:
    """The outcome of a call: an answer, or an exception; for another node, its name and text.

    Args:
        value: The outcome.
        is_here: Whether it is for an instance of the same node, which can have the exception
            itself.
    """
    if isinstance(value, Exception) and not is_here:
        return Raised(text_of(type(value).__name__), text_of(value))
    return value


def outcome(value: Any) -> Any:
    """The answer, or the exception to raise."""
    if isinstance(value, Raised):
        return RemoteError(f"the leader raised {value.kind}: {value.text}", kind=value.kind)
    return value
