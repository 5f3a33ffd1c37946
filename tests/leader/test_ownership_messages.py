"""What participants of several nodes say to each other: as terms, back again, and checked."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from locks.otp.bytes import etf
from locks_leader.wire.ownership_messages import FromParticipant, FromSession, pack, unpack

from locks import MisuseError
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


def through_a_term(message: tuple[Any, ...]) -> Any:
    """What another node makes of a tuple. Its reference is not an actor here, so it is put back."""
    what, id, about, *fields = message
    is_participant = isinstance(about, Name)
    encoded = etf.encode((what, id, None if is_participant else about, *fields))
    what, id, about, *fields = etf.decode(encoded)
    return (what, id, OTHER if is_participant else about, *fields)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda sent: type(sent.message).__name__)
def test_each_message_arrives_as_it_was(message: FromParticipant | FromSession) -> None:
    """On the same node, where the tuple itself is handed over, and on another one."""
    packed = pack(message)
    assert unpack(packed, ME, 4) == message
    assert unpack(through_a_term(packed), ME, 4) == message


def test_all_messages_are_here() -> None:
    """A message that is added to the unions has to be added above, and so can be received."""
    assert {type(message) for message in SAID} == set(get_args(ToSession))
    assert {type(message) for message in TOLD} == set(get_args(ToParticipant))


@pytest.mark.parametrize(
    "term",
    [
        None,
        (),
        ("welcome",),
        ("farewell", ID, 3, 0),
        ("welcome", ID, "3", 0),
        ("welcome", ID, 3),
        ("leaving", ID, "w1"),
        ("leaving", ID, 3),
        ("groups_released", ID, OTHER, [4]),
        ("groups_released", ID, OTHER, [-1]),
        ("groups_released", ID, OTHER, ["0"]),
        ("groups_released", ID, OTHER, 0),
        ("report", ID, OTHER, [0], 1),
        ("report", ID, OTHER, {4: 1}, 1),
        ("report", ID, OTHER, {0: "1"}, 1),
        ("report", ID, OTHER, {0: 0}, 1),
        ("report", ID, OTHER, {0: 1}, None),
        ("report", ID, 17, {0: 1}, 1),
        ("grant", ID, 3, 0, [0], None),
        ("grant", ID, 3, 0, [4], 7),
        ("grant", ID, OTHER, 0, [0], 7),
        ("renew", ID, 3, 0, ["0"], 7),
        ("revoke", ID, 3, 0, [None]),
        ("closed", ID, None, 0),
    ],
    ids=repr,
)
def test_anything_else_is_refused(term: Any) -> None:
    """A word, a number of fields, a type or a group that does not exist: nothing comes of it."""
    with pytest.raises(MisuseError, match="is not a message of an ownership"):
        unpack(term, ME, 4)
