"""What participants of several nodes say to each other: there, and checked."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from locks.net.messages import BadMessage
from locks.net.values import Values
from locks.ownership.messages import (
    Closed,
    Grant,
    GroupsReleased,
    Leaving,
    Renew,
    Report,
    Revoke,
    ToParticipant,
    ToSession,
    Welcome,
)
from locks_leader.sharing import FromParticipant, FromSession, check
from tests.leader.sessions import Name

ID = (7, "a@127.0.0.1")
ME = Name("w0")
OTHER = Name("w1")
SAID = [Report({0: 5, 3: 9}, 4), Report({}, 0), GroupsReleased((0, 1, 3)), Leaving()]
TOLD = [
    Welcome(ME),
    Grant(ME, (0, 1), 12),
    Renew(ME, (2,), 1 << 50),
    Revoke(ME, (0, 1, 2)),
    Closed(ME),
]
MESSAGES = [
    *[FromParticipant(ID, OTHER, message) for message in SAID],
    *[FromSession(ID, 3, message) for message in TOLD],
]


def arrived(message: Any, speaker: str = ID[1]) -> Any:
    """What another node makes of a message. Names are not actors here, so they are numbers on the way."""
    names = {1: ME, 2: OTHER}
    values = Values(lambda ref: (ID[1], 1 if ref == ME else 2), lambda _, number: names[number])  # type: ignore[index]
    return values.unpack(values.pack(message), speaker)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda sent: type(sent.message).__name__)
def test_each_message_arrives_as_it_was(message: FromParticipant | FromSession) -> None:
    """On another node, and it is right there."""
    again = arrived(message)
    assert again == message
    check(again, 4)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda sent: type(sent.message).__name__)
def test_nobody_speaks_for_another_one(message: FromParticipant | FromSession) -> None:
    """A participant's message comes from its node, and a session's from that of the leader."""
    with pytest.raises(BadMessage, match="b@x speaks for something of 'a@127"):
        arrived(message, "b@x")


def test_all_messages_are_here() -> None:
    """A message that is added to the unions has to be added above, and so can be received."""
    assert {type(message) for message in SAID} == set(get_args(ToSession))
    assert {type(message) for message in TOLD} == set(get_args(ToParticipant))


@pytest.mark.parametrize(
    "message",
    [
        FromSession(ID, -1, TOLD[0]),
        FromSession(ID, 3, SAID[0]),  # type: ignore[arg-type]
        FromSession(("x", 7), 3, TOLD[0]),  # type: ignore[arg-type]
        FromParticipant(ID, OTHER, TOLD[0]),  # type: ignore[arg-type]
        FromParticipant(ID, 17, SAID[0]),  # type: ignore[arg-type]
        FromParticipant(ID, OTHER, GroupsReleased((-1,))),
        FromParticipant(ID, OTHER, GroupsReleased(("0",))),  # type: ignore[arg-type]
        FromParticipant(ID, OTHER, Report({0: "1"}, 1)),  # type: ignore[dict-item]
        FromParticipant(ID, OTHER, Report({0: 1}, None)),  # type: ignore[arg-type]
    ],
    ids=repr,
)
def test_what_is_wrong_does_not_arrive(message: Any) -> None:
    """A type, a range, a message of the other side: nothing comes of it."""
    with pytest.raises(BadMessage):
        arrived(message)


@pytest.mark.parametrize(
    "message",
    [
        FromParticipant(ID, OTHER, GroupsReleased((4,))),
        FromParticipant(ID, OTHER, Report({4: 1}, 1)),
        FromSession(ID, 3, Grant(ME, (4,), 7)),
        FromSession(ID, 3, Renew(ME, (0,), (1 << 62))),
    ],
    ids=repr,
)
def test_groups_and_tokens_are_checked(message: Any) -> None:
    """A group that does not exist, a token of another time."""
    with pytest.raises(BadMessage):
        check(message, 4)
