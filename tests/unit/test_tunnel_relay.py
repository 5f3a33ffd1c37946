"""What a relay passes on, counts and refuses; and the form of its messages."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from locks.otp.bytes import etf
from locks.otp.bytes.control import BadMessage, StrangeMessage
from locks.otp.bytes.terms import Atom
from locks.otp.tunnel.messages import (
    ABSENT,
    CHUNK,
    WINDOW,
    Close,
    Credit,
    Data,
    Open,
    Opened,
    encode,
    unpack,
)
from locks.otp.tunnel.relay import MOST_EACH, MOST_IN_ALL, Outgoing, Relay

A, B, C = "a@x", "b@x", "c@x"


def relay(*connected: str) -> Relay:
    """A relay that is connected with these nodes."""
    return Relay("s@x", {A, B, C, *connected}.__contains__)


def opened(*connected: str) -> Relay:
    """One with a tunnel from A to B."""
    made = relay(*connected)
    assert made.take(A, Open(A, 1, B)) == [Outgoing(B, Open(A, 1, B)), Outgoing(A, Opened(A, 1))]
    return made


@pytest.mark.parametrize(
    "message",
    [
        Open(A, 1, B),
        Opened(A, 2**63 - 1),
        Data(A, 1, b"text"),
        Data(A, 1, b"\xff" * CHUNK),
        Credit(A, 1, WINDOW),
        Close(A, 1, "why"),
    ],
)
def test_each_message_comes_back_from_its_term(message: Any) -> None:
    """Bytes stay bytes, also where they are text."""
    assert unpack(etf.decode(encode(message))) == message


def test_a_long_reason_is_cut() -> None:
    """So it can be taken in."""
    assert unpack(etf.decode(encode(Close(A, 1, "x" * 5000)))) == Close(A, 1, "x" * 1000)


@pytest.mark.parametrize("term", [None, (), (1,), (Atom("else"), A, 1), [Atom("close")], "close"])
def test_what_is_no_message_is_strange(term: Any) -> None:
    """It may be a stray one, and is ignored."""
    with pytest.raises(StrangeMessage):
        unpack(term)


def test_what_one_end_says_goes_to_the_other() -> None:
    """Both ways, until one closes it; what was on its way then is dropped."""
    made = opened()
    for one, other in ((A, B), (B, A)):
        for message in (Data(A, 1, b"x"), Credit(A, 1, 1)):
            if isinstance(message, Data):
                assert made.take(one, message) == [Outgoing(other, message)]
            else:
                assert made.take(other, message) == [Outgoing(one, message)]
    assert made.take(B, Close(A, 1, "why")) == [Outgoing(A, Close(A, 1, "why"))]
    assert made.take(A, Data(A, 1, b"x")) == []
    assert len(made) == 0


def test_a_node_that_is_not_connected_is_not_reached() -> None:
    """Nor the relay itself, nor the opener: the opener is told why."""
    made = relay()
    for number, target in enumerate(("d@x", "s@x", A)):
        (said,) = made.take(A, Open(A, number, target))
        assert said.node == A
        assert isinstance(said.message, Close)
        assert said.message.reason == ABSENT
    assert len(made) == 0


@pytest.mark.parametrize(
    ("speaker", "message"),
    [
        (A, Open(B, 7, C)),  # in another's name
        (A, Open(A, 1, C)),  # once more
        (C, Data(A, 1, b"x")),  # not its own
        (C, Close(A, 1, "")),
        (A, Opened(A, 1)),  # for the relay to say
        (A, Credit(A, 1, 1)),  # nothing was sent
    ],
)
def test_what_must_not_be_said_changes_nothing(speaker: str, message: Any) -> None:
    """It ends the connection of whoever says it; the tunnel goes on."""
    made = opened()
    with pytest.raises(BadMessage):
        made.take(speaker, message)
    assert made.take(A, Data(A, 1, b"x")) == [Outgoing(B, Data(A, 1, b"x"))]
    assert len(made) == 1


def test_no_end_sends_more_than_a_window_ahead() -> None:
    """A stopped end has at most that much of one tunnel at the relay."""
    made = opened()
    for _ in range(WINDOW // CHUNK):
        made.take(A, Data(A, 1, bytes(CHUNK)))
    with pytest.raises(BadMessage):
        made.take(A, Data(A, 1, b"x"))
    made.take(B, Credit(A, 1, 1))
    made.take(A, Data(A, 1, b"x"))
    with pytest.raises(BadMessage):
        made.take(A, Data(A, 1, b"x"))


def test_the_loss_of_a_node_ends_its_tunnels() -> None:
    """The other ends are told, and nothing is kept."""
    made = opened()
    made.take(C, Open(C, 1, A))
    made.take(B, Open(B, 1, C))
    said = made.lost(A)
    assert [(each.node, each.message[:2]) for each in said] == [(B, (A, 1)), (C, (C, 1))]
    assert all(isinstance(each.message, Close) and A in each.message.reason for each in said)
    assert len(made) == 1
    assert made.lost(A) == []


def test_tunnels_are_bounded() -> None:
    """Of one node, as an opener or a target; and in all."""
    others = [f"n{number}@x" for number in range(2 * MOST_IN_ALL // MOST_EACH + 1)]
    made = relay(*others)
    for number in range(MOST_EACH):
        made.take(A, Open(A, number, others[number % 2]))
    for speaker, target in ((A, B), (B, A)):
        (said,) = made.take(speaker, Open(speaker, 1000, target))
        assert isinstance(said.message, Close)
        assert f"{A} has 128 tunnels" in said.message.reason
    number = 0
    while len(made) < MOST_IN_ALL:
        number += 1
        made.take(
            others[number % len(others)],
            Open(others[number % len(others)], number, others[-number % len(others)]),
        )
    (said,) = made.take(B, Open(B, 1, C))
    assert isinstance(said.message, Close)
    assert "relays 4096" in said.message.reason


def test_random_tunnels() -> None:
    """Whatever three honest nodes and one lost connection after the other do: nothing is left over."""
    seed = int(os.environ.get("LOCKS_SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed}")
    rng = random.Random(seed)
    made = relay()
    there: dict[tuple[str, int], dict[str, int]] = {}  # what each end may still send
    for number in range(5000):
        if not there or rng.random() < 0.1:
            one, other = rng.sample([A, B, C], 2)
            if len(made.take(one, Open(one, number, other))) == 2:
                there[one, number] = {one: WINDOW, other: WINDOW}
            continue
        key = rng.choice(list(there))
        one, other = rng.sample(list(there[key]), 2)
        what = rng.random()
        if what < 0.5:
            size = min(rng.randint(1, CHUNK), there[key][one])
            if size:
                there[key][one] -= size
                made.take(one, Data(*key, bytes(size)))
        elif what < 0.9:
            taken = WINDOW - there[key][other]
            if taken:
                size = rng.randint(1, taken)
                there[key][other] += size
                made.take(one, Credit(*key, size))
        elif what < 0.98:
            del there[key]
            made.take(one, Close(*key, ""))
        else:
            gone = {each for each in there if one in there[each]}
            assert {each.message[:2] for each in made.lost(one)} == gone
            there = {each: ends for each, ends in there.items() if each not in gone}
        assert len(made) == len(there)
    for node in (A, B, C):
        made.lost(node)
    assert len(made) == 0
    assert not made._of
