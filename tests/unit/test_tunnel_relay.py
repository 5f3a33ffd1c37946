"""What a relay passes on, counts and refuses; and the form of its messages."""

from __future__ import annotations

import random
from typing import Any

import pytest

from locks.otp.bytes import etf
from locks.otp.bytes.control import BadMessage
from locks.otp.tunnel.messages import (
    ABSENT,
    CHUNK,
    RELAY,
    TUNNELS,
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
from tests.helpers import SEED

A, B, C = "a@x", "b@x", "c@x"


def relay(*connected: str) -> Relay:
    """A relay that is connected with these nodes."""
    return Relay("s@x", {A, B, C, *connected}.__contains__, list)


def to(end: str, message: Any) -> Outgoing:
    """What is said to an end."""
    return Outgoing(end, TUNNELS, message)


def opened(*connected: str) -> Relay:
    """One with a tunnel from A to B."""
    made = relay(*connected)
    assert made.take_message(A, Open(A, 1, B)) == [to(B, Open(A, 1, B)), to(A, Opened(A, 1))]
    return made


@pytest.mark.parametrize(
    "message",
    [
        Open(A, 1, B),
        Open(A, 1, B, True),
        Open(A, 1, B, False, True),
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


def test_what_one_end_says_goes_to_the_other() -> None:
    """Both ways, until one closes it; what was on its way then is dropped."""
    made = opened()
    for one, other in ((A, B), (B, A)):
        for message in (Data(A, 1, b"x"), Credit(A, 1, 1)):
            if isinstance(message, Data):
                assert made.take_message(one, message) == [to(other, message)]
            else:
                assert made.take_message(other, message) == [to(one, message)]
    assert made.take_message(B, Close(A, 1, "why")) == [to(A, Close(A, 1, "why"))]
    assert made.take_message(A, Data(A, 1, b"x")) == []
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
        made.take_message(speaker, message)
    assert made.take_message(A, Data(A, 1, b"x")) == [to(B, Data(A, 1, b"x"))]
    assert len(made) == 1


def test_no_end_sends_more_than_a_window_ahead() -> None:
    """A stopped end has at most that much of one tunnel at the relay."""
    made = opened()
    for _ in range(WINDOW // CHUNK):
        made.take_message(A, Data(A, 1, bytes(CHUNK)))
    with pytest.raises(BadMessage):
        made.take_message(A, Data(A, 1, b"x"))
    made.take_message(B, Credit(A, 1, 1))
    made.take_message(A, Data(A, 1, b"x"))
    with pytest.raises(BadMessage):
        made.take_message(A, Data(A, 1, b"x"))


def test_the_loss_of_a_node_ends_its_tunnels() -> None:
    """The other ends are told, and nothing is kept."""
    made = opened()
    made.take_message(C, Open(C, 1, A))
    made.take_message(B, Open(B, 1, C))
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
        made.take_message(A, Open(A, number, others[number % 2]))
    for speaker, target in ((A, B), (B, A)):
        (said,) = made.take_message(speaker, Open(speaker, 1000, target))
        assert isinstance(said.message, Close)
        assert f"{A} already has 128 tunnels" in said.message.reason
    number = 0
    while len(made) < MOST_IN_ALL:
        number += 1
        made.take_message(
            others[number % len(others)],
            Open(others[number % len(others)], number, others[-number % len(others)]),
        )
    (said,) = made.take_message(B, Open(B, 1, C))
    assert isinstance(said.message, Close)
    assert f"relays {MOST_IN_ALL}" in said.message.reason


# --- Two relays ---------------------------------------------------------------------------------


FAR = Open(A, 1, B, far=True)


class Two:
    """Relays s and t, of which s is connected with A, and t with B; u is a relay that is connected with nobody."""

    def __init__(self) -> None:
        self.cut = False
        self.relays = {
            "s@x": Relay("s@x", {A, C, "u@x", "t@x"}.__contains__, lambda: ["u@x", "t@x"]),
            "t@x": Relay("t@x", {B, "s@x"}.__contains__, lambda: ["s@x"]),
            "u@x": Relay("u@x", {"s@x"}.__contains__, lambda: ["s@x"]),
        }

    def say(self, speaker: str, server: str, message: Any) -> list[tuple[str, Any]]:
        """Say something to a relay; what the ends are told of what follows."""
        told = []
        todo = [(speaker, server, message)]
        while todo:
            by, at, said = todo.pop(0)
            for node, process, answer in self.relays[at].take_message(by, said):
                if process == RELAY:
                    todo.append((at, node, answer))
                else:
                    told.append((node, answer))
        return told


def test_a_target_of_another_relay_is_reached() -> None:
    """The relays that are connected are tried; what is said goes through both, and is counted by both."""
    two = Two()
    assert two.say(A, "s@x", Open(A, 1, B)) == [(A, Close(A, 1, ABSENT))]
    assert two.say(A, "s@x", FAR) == [(B, Open(A, 1, B)), (A, Opened(A, 1))]
    assert two.say(A, "s@x", Data(A, 1, b"to")) == [(B, Data(A, 1, b"to"))]
    assert two.say(B, "t@x", Data(A, 1, b"fro")) == [(A, Data(A, 1, b"fro"))]
    assert two.say(B, "t@x", Credit(A, 1, 2)) == [(A, Credit(A, 1, 2))]
    assert [len(each) for each in two.relays.values()] == [1, 1, 0]
    assert two.say(B, "t@x", Close(A, 1, "why")) == [(A, Close(A, 1, "why"))]
    assert not any(map(len, two.relays.values()))


def test_nobody_harms_another_relay() -> None:
    """A client that gives two tunnels one number does not get a relay disconnected that serves it."""
    two = Two()
    two.relays["t@x"]._is_connected = {A, B, "s@x"}.__contains__
    two.say(A, "t@x", Open(A, 1, B))
    ((node, said),) = two.say(A, "s@x", FAR)
    assert (node, type(said)) == (A, Close)
    assert two.relays["t@x"].take_message("s@x", Data(A, 1, b"x")) == []
    with pytest.raises(BadMessage):
        two.relays["t@x"].take_message(B, Open(A, 2, B))


def test_random_tunnels() -> None:
    """Whatever three honest nodes and one lost connection after the other do: nothing is left over."""
    rng = random.Random(SEED)
    made = relay()
    there: dict[tuple[str, int], dict[str, int]] = {}  # what each end may still send
    for number in range(5000):
        if not there or rng.random() < 0.1:
            one, other = rng.sample([A, B, C], 2)
            if len(made.take_message(one, Open(one, number, other))) == 2:
                there[one, number] = {one: WINDOW, other: WINDOW}
            continue
        key = rng.choice(list(there))
        one, other = rng.sample(list(there[key]), 2)
        what = rng.random()
        if what < 0.5:
            size = min(rng.randint(1, CHUNK), there[key][one])
            if size:
                there[key][one] -= size
                made.take_message(one, Data(*key, bytes(size)))
        elif what < 0.9:
            taken = WINDOW - there[key][other]
            if taken:
                size = rng.randint(1, taken)
                there[key][other] += size
                made.take_message(one, Credit(*key, size))
        elif what < 0.98:
            del there[key]
            made.take_message(one, Close(*key, ""))
        else:
            gone = {each for each in there if one in there[each]}
            assert {each.message[:2] for each in made.lost(one)} == gone
            there = {each: ends for each, ends in there.items() if each not in gone}
        assert len(made) == len(there)
    for node in (A, B, C):
        made.lost(node)
    assert len(made) == 0
    assert not made._of
    assert not made._bytes
