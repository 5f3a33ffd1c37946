"""The letters between the participants of an ownership, each cast to an instance."""

from __future__ import annotations

from typing import Any

from locks.net.messages import BadMessage
from locks.net.values import Reference, letters
from locks.net.versions import check_version
from locks.ownership.messages import ToParticipant, ToSession
from locks.ranges import Message, Name, Number, Version

__all__ = ["FromParticipant", "FromSession", "SessionId", "check"]

SessionId = tuple[Version, Name]  # the leader's term when it was elected, and its node


class FromParticipant(Message, frozen=True):
    """A participant's message to the session `id`."""

    id: SessionId
    sender: Reference
    message: ToSession


class FromSession(Message, frozen=True):
    """A message of the session `id`, with the number of its agreements."""

    id: SessionId
    agreements: Number
    message: ToParticipant

    @property
    def sender(self) -> str:
        """The node of the session."""
        return self.id[1]


letters("ownership", FromParticipant | FromSession | ToSession | ToParticipant)


def check(letter: FromParticipant | FromSession, groups: int) -> None:
    """Check the groups and tokens in a letter.

    Args:
        letter: The letter.
        groups: How many groups there are.

    Raises:
        BadMessage: There is no such group, or a token is too far ahead of the clock.
    """
    message: Any = letter.message
    if "token" in message.__struct_fields__:
        check_version(message.token)
    owned = getattr(message, "owned", {})
    for token in owned.values():
        check_version(token)
    for group in (*getattr(message, "groups", ()), *owned):
        if not 0 <= group < groups:
            raise BadMessage(f"{group} is not a group")
