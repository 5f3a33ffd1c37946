"""Our messages as Erlang terms: each comes back as it was sent, and nothing else is let in."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locks.core import messages
from locks.model import (
    MODES,
    REQUIREMENTS,
    AgentId,
    Contender,
    Deadlock,
    Edge,
    LockInfo,
    LockResult,
    RequestRecord,
    View,
)
from locks.otp.etf import decode, encode
from locks.otp.terms import Atom, Pid
from locks.wire import (
    BadMessage,
    agent_of,
    is_ours,
    pack,
    pack_info,
    pack_result,
    pack_view,
    pid_of,
    unpack_info,
    unpack_result,
    unpack_to_agent,
    unpack_to_server,
    unpack_view,
)

HERE, THERE = "a@127.0.0.1", "b@127.0.0.1"
NODES = st.sampled_from([HERE, THERE, "ü@h"])


def agents(nodes: st.SearchStrategy[str] = NODES) -> st.SearchStrategy[AgentId]:
    """References as nodes make them: the serial number is the lowest bits of the time."""
    return st.builds(
        lambda created, node: AgentId(created, node, created & 0xFFF),
        st.integers(0, 2**64 - 1),
        nodes,
    )


ME = AgentId(7 << 12 | 5, HERE, 5)
CLIENT = "client of mine"
NUMBERS = st.integers(-(2**70), 2**70)
IDS = st.lists(
    st.one_of(st.text(), st.integers(), st.binary(), st.booleans(), st.none(), st.just(("a", 1))),
    min_size=1,
    max_size=3,
).map(tuple)
PLACES = st.one_of(st.integers(), st.fractions(max_denominator=99))
OTHER_RECORDS = st.builds(
    RequestRecord, NODES, NUMBERS, agents(), st.text(), IDS, st.sampled_from(MODES),
    st.sampled_from(["granted", "waiting", "gone"]), PLACES, NUMBERS, st.booleans(), NUMBERS,
)  # fmt: skip
OWN_RECORDS = OTHER_RECORDS.map(lambda record: record._replace(agent=ME, client=CLIENT))
RECORDS = st.lists(st.one_of(OTHER_RECORDS, OWN_RECORDS), max_size=3).map(tuple)
REPORTS = st.builds(
    Deadlock, agents(), IDS, NODES, st.sampled_from(["surrendered", "aborted"]),
    st.lists(st.builds(Edge, OTHER_RECORDS, OTHER_RECORDS), min_size=1, max_size=2).map(tuple),
    st.text(),
)  # fmt: skip
ENDS = st.none() | st.tuples(NUMBERS, NUMBERS)


def surrenders(who: st.SearchStrategy[AgentId]) -> st.SearchStrategy[messages.Surrender]:
    """Surrenders of some agents."""
    return st.builds(messages.Surrender, who, IDS, ENDS, ENDS, st.none() | REPORTS)


SENDERS = agents(st.just(THERE))
TO_SERVER: dict[type[Any], st.SearchStrategy[Any]] = {
    messages.Request: st.builds(
        messages.Request, SENDERS, st.text(), IDS, st.sampled_from(MODES), st.booleans(),
        st.booleans(),
    ),
    messages.Release: st.builds(
        messages.Release, SENDERS, IDS, st.none() | st.sampled_from(MODES)
    ),
    messages.Surrender: surrenders(SENDERS),
    messages.Remove: st.builds(messages.Remove, SENDERS),
    messages.StandingElsewhere: st.builds(messages.StandingElsewhere, SENDERS, st.booleans(), st.booleans()),
    messages.Inquire: st.builds(messages.Inquire, SENDERS),
    messages.RaiseVersion: st.builds(messages.RaiseVersion, SENDERS, IDS, NUMBERS, NUMBERS),
}  # fmt: skip
TO_AGENT: dict[type[Any], st.SearchStrategy[Any]] = {
    messages.RequestStates: st.builds(messages.RequestStates, NODES, RECORDS),
    messages.Released: st.builds(messages.Released, NODES, IDS, RECORDS),
    messages.VersionRaised: st.builds(
        messages.VersionRaised, NODES, IDS, NUMBERS, NUMBERS, st.booleans()
    ),
    messages.Surrendered: st.builds(
        messages.Surrendered, NODES, surrenders(st.just(ME)), st.booleans(), RECORDS, NUMBERS
    ),
    messages.Resolved: st.builds(messages.Resolved, REPORTS, RECORDS),
    messages.Knowledge: st.builds(messages.Knowledge, agents(), RECORDS, st.booleans()),
}


def sent(term: Any) -> Any:
    """A term as it arrives."""
    return decode(encode(term))


def test_all_messages_are_tried() -> None:
    """The tables above leave out no message that goes from node to node."""
    local = {messages.Watch, messages.Unwatch}
    assert set(TO_SERVER) | local == set(messages.ServerMessage.__args__)
    assert set(TO_AGENT) == set(messages.AgentMessage.__args__)


@given(st.one_of(*TO_SERVER.values()))
def test_messages_to_lock_servers(message: Any) -> None:
    """A message to a lock server comes back as it was; its agent is of the node that sent it."""
    term = sent(pack(message))
    assert is_ours(term)
    assert unpack_to_server(term, THERE) == message
    assert unpack_to_server(term, HERE).agent.node == HERE  # type: ignore[union-attr]
    with pytest.raises(BadMessage, match="no message"):
        unpack_to_agent(term, ME, CLIENT)


@given(st.one_of(*TO_AGENT.values()))
def test_messages_to_agents(message: Any) -> None:
    """A message to an agent comes back as it was, what the receiver knows itself included."""
    term = sent(pack(message, ME))
    assert is_ours(term)
    assert unpack_to_agent(term, ME, CLIENT) == message
    with pytest.raises(BadMessage, match="no message"):
        unpack_to_server(term, THERE)


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


@given(st.one_of(*TO_SERVER.values(), *TO_AGENT.values()), st.data())
def test_what_is_wrong_is_refused(message: Any, data: st.DataObject) -> None:
    """With any part replaced by something else, a message is still one, or is refused as none."""
    term = sent(pack(message, ME))
    path = []
    part = term
    while isinstance(part, (tuple, list)) and part:
        path.append(data.draw(st.integers(0, len(part) - 1)))
        part = part[path[-1]]
        if data.draw(st.booleans()):
            break
    junk = data.draw(
        st.one_of(st.integers(), st.text(), st.none(), st.just([]), st.just(()), st.just({}))
        | st.sampled_from([Atom("x"), Pid(1, "c@h", 1), (1, 0), [[1]]])
    )

    def replaced(value: Any, at: list[int]) -> Any:
        if not at:
            return junk
        parts = list(value)
        parts[at[0]] = replaced(parts[at[0]], at[1:])
        return type(value)(parts)

    damaged = replaced(term, path)
    if not is_ours(damaged):
        return
    for unpack in (
        lambda: unpack_to_server(damaged, THERE),
        lambda: unpack_to_agent(damaged, ME, CLIENT),
    ):
        with suppress(BadMessage):  # and nothing else
            unpack()


@given(agents())
def test_references_are_pids(agent: AgentId) -> None:
    """A reference and the pid that it is are one and the same."""
    assert agent_of(sent(pid_of(agent, 3))) == agent


@given(agents(), agents())
def test_references_have_the_order_of_pids(one: AgentId, other: AgentId) -> None:
    """References are ordered as Erlang orders the pids."""
    assert (one < other) == (pid_of(one) < pid_of(other))


CONTENDERS = st.builds(
    Contender, agents(), st.text(), IDS, st.sampled_from(MODES), st.booleans(), NUMBERS, NUMBERS,
    PLACES,
)  # fmt: skip


@given(st.builds(View, IDS, NODES, st.lists(CONTENDERS, max_size=3).map(tuple), NUMBERS))
def test_views(view: View) -> None:
    """A view comes back as it was told to a watcher."""
    assert unpack_view(sent(pack_view(view))) == view


@given(
    st.builds(
        LockResult,
        st.sampled_from(["no_locks", "waiting", "have_all_locks", "cannot_serve"]),
        st.lists(REPORTS, max_size=2).map(tuple),
    )
)
def test_results(result: LockResult) -> None:
    """What a wait ends with comes back as it was answered."""
    assert unpack_result(sent(pack_result(result))) == result


NAMES = st.lists(NODES, max_size=3).map(tuple)


@given(
    st.builds(
        LockInfo, IDS, st.sampled_from(MODES), NAMES, st.sampled_from(REQUIREMENTS), NAMES,
        st.booleans(), st.booleans(),
    )
)  # fmt: skip
def test_infos(info: LockInfo) -> None:
    """What an agent knows of a lock comes back as it was answered."""
    assert unpack_info(sent(pack_info(info))) == info


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
