"""The messages between the instances of an election: each comes back, and nothing else is let in."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, get_args

import pykka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from locks import MisuseError
from locks.ranges import Version
from locks.values import Atom
from locks_leader.core.messages import (
    Affirm,
    Announce,
    Forward,
    ForwardAnswer,
    FromLeader,
    LeaderCast,
    Member,
    Message,
    NotTheLeader,
    Resign,
    YieldTo,
)
from locks_leader.wire.messages import pack, unpack
from tests.unit.strategies import replaced, values

ME, OTHER = (pykka.ThreadingActor().actor_ref for _ in range(2))
KNOWN = {
    Version: st.integers(0, 2**50),
    Any: st.text() | st.lists(st.integers()),
    Member: st.just(OTHER),
}
MESSAGES = {kind: values(kind, KNOWN) for kind in get_args(Message)}

# What each message is on the wire, after the atom `$leader`.
SAME: list[tuple[Message, tuple[Any, ...]]] = [
    (Announce(3, "x"), (Atom("announce"), ME, 3, "x")),
    (FromLeader(3, "x"), (Atom("from_leader"), ME, 3, "x")),
    (Affirm(3), (Atom("affirm"), ME, 3)),
    (Resign(3), (Atom("resign"), ME, 3)),
    (YieldTo(3, OTHER), (Atom("yield_to"), ME, 3, OTHER)),
    (Forward(1, "x"), (Atom("forward"), ME, 1, "x")),
    (ForwardAnswer(1, "x"), (Atom("answer"), ME, 1, "x")),
    (NotTheLeader(1), (Atom("not_the_leader"), ME, 1)),
    (LeaderCast("x"), (Atom("leader_cast"), ME, "x")),
]


@pytest.mark.parametrize("kind", MESSAGES)
@given(st.data())
def test_each_message_comes_back(kind: Any, data: st.DataObject) -> None:
    """Each message comes back as it was, with its sender."""
    message = data.draw(MESSAGES[kind])
    assert unpack(pack(message, ME)) == (ME, message)


@pytest.mark.parametrize(("message", "term"), SAME, ids=lambda each: type(each).__name__)
def test_what_messages_look_like(message: Message, term: tuple[Any, ...]) -> None:
    """Nodes of other versions understand each other: a message is the same term as ever."""
    assert pack(message, ME) == (Atom("$leader"), *term)


@given(st.one_of(*MESSAGES.values()), st.data())
def test_what_is_wrong_is_refused(message: Message, data: st.DataObject) -> None:
    """With any part replaced by something else, it is still a message, or is refused as none."""
    junk = st.sampled_from([None, True, 1.0, "x", (), ME, Atom("affirm")])
    term = replaced(pack(message, ME), data, junk)
    if type(term) is tuple:
        with suppress(MisuseError):  # and nothing else
            sender, known = unpack(term)
            assert (sender, known) == unpack(pack(known, sender))
