"""Our messages as Erlang terms: each comes back as it was sent, and nothing else is let in."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from fractions import Fraction
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locks.core import messages
from locks.lock_ids import HELD_UP, MOST_UNITS, counted
from locks.model import (
    AgentId,
    Deadlock,
    LockId,
    Mode,
    Place,
    RequestRecord,
    View,
)
from locks.otp.bytes.etf import decode, encode
from locks.otp.bytes.fields import BadMessage
from locks.otp.bytes.terms import Atom, Pid
from locks.ranges import PLACE_BITS, Name, Version
from locks.wire import versions
from locks.wire.forms import is_ours
from locks.wire.messages import pack, unpack_to_agent, unpack_to_server
from locks.wire.values import (
    pack_view,
    unpack_view,
)
from locks.wire.versions import DAY
from tests.unit.strategies import replaced, values

NOW = versions.now()
HERE, THERE = "a@127.0.0.1", "b@127.0.0.1"
ME = AgentId(7 << 12 | 5, HERE, 5)
OTHER = AgentId(9 << 12 | 6, THERE, 6)
CLIENT = "client of mine"
NODES = st.sampled_from([HERE, THERE, "ü@h"])


def agents(nodes: st.SearchStrategy[str] = NODES) -> st.SearchStrategy[AgentId]:
    """References as nodes make them: the serial number is the lowest bits of the time."""
    return st.builds(
        lambda created, node: AgentId(created, node, created & 0xFFF),
        st.integers(0, 2**64 - 1),
        nodes,
    )


IDS = st.lists(
    st.one_of(
        st.text(),
        st.integers(-(1 << 63), (1 << 63) - 1),
        st.binary(),
        st.booleans(),
        st.none(),
        st.just(("a", 1)),
    ),
    min_size=1,
    max_size=3,
).map(tuple)
IDS |= st.builds(counted, IDS, st.integers(1, MOST_UNITS))
HELD_UP_IDS = st.builds(lambda n: (HELD_UP, HERE, n, 1), st.integers(0, 2**64 - 1))
LARGE = 2**PLACE_BITS - 1
ANY = {
    AgentId: agents(),
    Name: st.sampled_from([HERE, THERE, "x" * 255]) | st.text(min_size=1, max_size=20),
    LockId: IDS | HELD_UP_IDS,
    Version: st.integers(0, NOW + 2 * DAY),
    Place: st.one_of(
        st.integers(), st.fractions(max_denominator=99), st.just(Fraction(-LARGE, LARGE - 1))
    ),
}
OTHER_RECORDS = values(RequestRecord, ANY)
OWN_RECORDS = OTHER_RECORDS.map(lambda record: record._replace(agent=ME, client=CLIENT))
TOLD = {**ANY, RequestRecord: OTHER_RECORDS | OWN_RECORDS, Deadlock: values(Deadlock, ANY)}
# An agent of the sending node says something to a lock server; an agent is told of its own surrenders.
WATCHERS = st.builds(Pid, st.integers(0, 2**64 - 1), st.just(THERE), st.integers(0, 2**32 - 1))
FROM_AGENT = {**TOLD, AgentId: agents(st.just(THERE)), Hashable: WATCHERS, LockId: IDS}
OWN_SURRENDERS = values(messages.Surrender, {**TOLD, AgentId: st.just(ME)})
FOR_AGENT = {**TOLD, messages.Surrender: OWN_SURRENDERS}

TO_SERVER = {kind: values(kind, FROM_AGENT) for kind in get_args(messages.ServerMessage)}
TO_AGENT = {kind: values(kind, FOR_AGENT) for kind in get_args(messages.AgentMessage)}


def sent(term: Any) -> Any:
    """A term as it arrives."""
    return decode(encode(term))


@pytest.mark.parametrize("kind", TO_SERVER)
@given(st.data())
def test_messages_to_lock_servers(kind: Any, data: st.DataObject) -> None:
    """Each message to a lock server comes back as it was, from the node that its sender is of."""
    message = data.draw(TO_SERVER[kind])
    term = sent(pack(message))
    assert is_ours(term)
    assert unpack_to_server(term, THERE) == message
    with pytest.raises(BadMessage, match="there is no message"):
        unpack_to_agent(term, ME, CLIENT)


@pytest.mark.parametrize("kind", TO_AGENT)
@given(st.data())
def test_messages_to_agents(kind: Any, data: st.DataObject) -> None:
    """Each message to an agent comes back as it was, what the receiver knows itself included."""
    message = data.draw(TO_AGENT[kind])
    term = sent(pack(message, ME))
    assert is_ours(term)
    assert unpack_to_agent(term, ME, CLIENT) == message
    with pytest.raises(BadMessage, match="there is no message"):
        unpack_to_server(term, THERE)


# What each message is on the wire. The short forms stand for the parts of it.
ID = ("db", 1)
WORDS = ", ".join(get_args(Mode))
SURRENDER = messages.Surrender(ME, ID, (3, 12), (4, 13))
THEIR_PID, MY_PID = Pid(OTHER.created, THERE, 0), Pid(ME.created, HERE, 0)
READ, WRITE = Atom("read"), Atom("write")


@given(OWN_RECORDS, st.booleans(), st.booleans(), st.booleans())
def test_a_grant(record: RequestRecord, granted: bool, blocked: bool, at_once: bool) -> None:
    """The most frequent message has a short form; all that is near to it comes back as it was, too."""
    record = record._replace(state="granted" if granted else "waiting", blocked=blocked)
    if at_once:
        record = record._replace(since=record.version)
    for message in (
        messages.RequestStates(record.node, (record,)),
        messages.RequestStates(THERE, (record,)),
    ):
        assert unpack_to_agent(sent(pack(message, ME)), ME, CLIENT) == message


JUNK = st.one_of(
    st.integers(), st.text(), st.none(), st.just([]), st.just(()), st.just({}),
    st.sampled_from([Atom("x"), Atom("write"), Pid(1, "c@h", 1), (1, 0), [[1]], 0, ME.created]),
)  # fmt: skip


@given(st.one_of(*TO_SERVER.values(), *TO_AGENT.values()), st.data())
def test_what_is_wrong_is_refused(message: Any, data: st.DataObject) -> None:
    """With any part replaced by something else, a message is still one, or is refused as none."""
    damaged = replaced(sent(pack(message, ME)), data, JUNK)
    if not is_ours(damaged):
        return
    with suppress(BadMessage):  # and nothing else
        known = unpack_to_server(damaged, THERE)
        assert unpack_to_server(sent(pack(known)), THERE) == known
    with suppress(BadMessage):
        told = unpack_to_agent(damaged, ME, CLIENT)
        assert unpack_to_agent(sent(pack(told, ME)), ME, CLIENT) == told


BAD_FIELDS = [
    (messages.Remove(ME), {2: Pid(5, HERE, 0)}, "number of an agent"),
    (messages.Remove(ME), {2: -1}, "number of an agent"),
    (messages.Remove(ME), {2: 1 << 64}, "number of an agent"),
    (messages.Remove(ME), {2: True}, "number of an agent"),
    (messages.Watch(MY_PID, ID), {2: THEIR_PID}, "pid of a watcher"),
    (messages.Watch(MY_PID, ID), {2: ME.created}, "pid of a watcher"),
    (messages.Release(ME, ID), {3: []}, "not empty"),
    (messages.Release(ME, ID), {3: [{}]}, "of the type dict"),
    (messages.Release(ME, ID), {4: Atom("unknown")}, f"one of {WORDS}"),
    (messages.Release(ME, ID), {4: "read"}, f"one of {WORDS}"),
    (messages.Release(ME, ID), {3: [HELD_UP, HERE, 1, 1]}, "which is reserved"),
    (messages.StandingElsewhere(ME, True, True), {4: 1}, "a bool .waits_elsewhere of a Standing"),
    (messages.Surrender(ME, ID), {4: (1,)}, "should be a tuple"),
    (messages.Surrender(ME, ID), {4: (1, True)}, "should be a version"),
    (messages.Surrender(ME, ID), {4: (1 << 63, 1)}, "an int from 0 to"),
    (messages.Request(ME, CLIENT, ID, "read"), {3: "x" * 1001}, "at most 1000 characters"),
    (messages.RaiseVersion(ME, ID, 1, 2), {5: 1 << 63}, "too far ahead of this node's clock"),
    (messages.RaiseVersion(ME, ID, 1, 2), {5: 2**8192 - 3}, "too far ahead of this node's clock"),
    (messages.RaiseVersion(ME, ID, 1, 2), {5: -1}, "should be a version"),
    (messages.RaiseVersion(ME, ID, 1, 2), {4: 1 << 63}, "too far ahead of this node's clock"),
]


@pytest.mark.parametrize(("message", "changes", "complaint"), BAD_FIELDS)
def test_each_field_is_checked(message: Any, changes: dict[int, Any], complaint: str) -> None:
    """A field of another type, or out of its bounds, is refused and named."""
    term = list(pack(message))
    for place, value in changes.items():
        term[place] = value
    with pytest.raises(BadMessage, match=complaint):
        unpack_to_server(tuple(term), HERE)


def test_a_node_speaks_for_its_own_agents() -> None:
    """An agent is named by its number only; it is one of the node that sent the message."""
    assert unpack_to_server(sent(pack(messages.Remove(ME))), THERE) == messages.Remove(
        ME._replace(node=THERE)
    )


def test_nobody_is_told_of_the_surrender_of_another_agent() -> None:
    """An answer to a surrender is for the agent that has surrendered."""
    term = pack(messages.Surrendered(THERE, SURRENDER, True, (), 15), ME)
    assert unpack_to_agent(term, ME, CLIENT)
    with pytest.raises(BadMessage, match="another agent"):
        unpack_to_agent(term, OTHER, CLIENT)


def test_a_place_between_two() -> None:
    """Places may be fractions; a fraction over nothing is none."""
    record = RequestRecord(
        HERE, 1, ME, CLIENT, ("a",), "write", "waiting", Fraction(1, 3), 1, True, 1
    )
    term = list(pack(messages.RequestStates(HERE, (record,)), ME))
    assert unpack_to_agent(sent(tuple(term)), ME, CLIENT).records == (record,)
    parts = list(term[3][0])
    parts[7] = (1, 0)
    term[3] = [tuple(parts)]
    with pytest.raises(BadMessage, match="place"):
        unpack_to_agent(sent(tuple(term)), ME, CLIENT)


# --- Values -------------------------------------------------------------------------------------


VALUES: list[tuple[st.SearchStrategy[Any], Any, Any]] = [
    (values(View, ANY), pack_view, unpack_view),
]


@pytest.mark.parametrize(("strategy", "pack_it", "unpack_it"), VALUES, ids=["view"])
@given(st.data())
def test_values(strategy: Any, pack_it: Any, unpack_it: Any, data: st.DataObject) -> None:
    """What a node answers comes back as it was, and is refused if it is anything else."""
    value = data.draw(strategy)
    term = sent(pack_it(value))
    assert unpack_it(term) == value
    with suppress(BadMessage):  # and nothing else
        unpack_it(replaced(term, data, JUNK))
