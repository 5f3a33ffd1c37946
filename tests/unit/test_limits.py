"""Limits of what a program may have at a lock server: the settings, when a request would wait, and what an agent does that is refused."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from locks.core.agent.machine import AgentMachine
from locks.core.messages import (
    AnswerWait,
    Refused,
    Request,
    RequestStates,
    ToServer,
)
from locks.core.server.machine import ServerMachine
from locks.core.server.table import LockTable
from locks.errors import InvalidOption, LimitExceeded
from locks.lock_ids import counted
from locks.model import MODES, AgentId, LockId, Mode, RequestRecord, covers
from locks.net.messages import Limits
from locks.program.settings import read_settings
from tests.helpers import SEED

A, B, C = "a@x", "b@x", "c@x"
ID, OTHER = ("db", 1), ("db", 2)


# --- Settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"wait": 3},
            "no limit of 'wait'; the limits are requests, waits, watches, transactions; did you mean waits?",
        ),
        ({"zebra": 3}, "no limit of 'zebra'; the limits are requests, waits, watches"),
        ({"waits": 0}, "the limit of waits is 0, but must be a whole number from 1 on"),
        ({"waits": True}, "must be a whole number"),
        ({"waits": 2.5}, "must be a whole number"),
        (17, "limits=17 is not a mapping"),
    ],
)
def test_wrong_limits_are_refused(given: Any, said: str) -> None:
    """A name that is no limit, and a number that is none, are errors that say so."""
    with pytest.raises(InvalidOption) as error:
        Limits.check(given)
    assert said in str(error.value)


def test_limits_in_the_environment_and_in_the_file(tmp_path: Any) -> None:
    """LOCKS_LIMITS has them as text, the file as a table; another form is refused with the variable's name."""
    (tmp_path / "locks.toml").write_text("[limits]\nwaits = 7\n")
    assert read_settings({}, tmp_path)["limits"].value == {"waits": 7}
    there = {"LOCKS_LIMITS": "requests=1000, waits=9"}
    assert read_settings(there, tmp_path)["limits"].value == {"requests": 1000, "waits": 9}
    for wrong in ("waits", "waits=many", "waits=1=2"):
        with pytest.raises(InvalidOption, match=r"LOCKS_LIMITS is .*, but must be limits"):
            read_settings({"LOCKS_LIMITS": wrong}, tmp_path)


# --- Would a request wait? ------------------------------------------------------------------------


def test_whether_a_request_must_wait_is_what_happens_then() -> None:
    """In random tables, a request of which the table says that it need not wait is granted at once, and any other one waits, but for upgrades."""
    random = Random(SEED)
    agents = [AgentId(number, A, number) for number in range(1, 6)]
    ids: list[LockId] = [("a",), ("a", 1), ("a", 1, 2), ("a", 2), ("b",)]
    waited = granted = 0
    for _ in range(200):
        table = LockTable()
        for _ in range(25):
            agent, lock_id, mode = random.choice(agents), random.choice(ids), random.choice(MODES)
            if random.random() < 0.3:
                table.remove(agent)
                continue
            size = table.size
            must = table.must_wait(agent, lock_id, mode)
            assert table.size == size
            new = not any(covers(each.mode, mode) for each in table.own(agent, lock_id))
            first = agent not in table.requesters
            (entry, *_) = table.request(agent, "c", lock_id, mode)
            if not new:
                continue
            assert must or entry.granted
            if first:
                assert must is not entry.granted
                waited += must
                granted += not must
    assert waited > 100
    assert granted > 100


# --- Who is refused -------------------------------------------------------------------------------


def machine(*alive: str) -> AgentMachine:
    """An agent of another node than its servers."""
    return AgentMachine(AgentId(1, "me@x", 1), "c", alive)


def granted(node: str, number: int, mode: Mode = "write", lock_id: LockId = ID) -> RequestStates:
    """A server grants a request."""
    me = AgentId(1, "me@x", 1)
    record = RequestRecord(
        node, number, me, "c", lock_id, mode, "granted", number, number, False, number
    )
    return RequestStates(node, (record,))


def refused(node: str, mode: Mode = "write", lock_id: LockId = ID) -> Refused:
    """A server refuses a request."""
    return Refused(node, lock_id, 0, mode, "requests", 10, 10)


def answers(effects: list[Any]) -> list[Any]:
    """The results of waits."""
    return [each.result for each in effects if isinstance(each, AnswerWait)]


def to_server(effects: list[Any]) -> list[Any]:
    """The messages to lock servers."""
    return [each.message for each in effects if isinstance(each, ToServer)]


def test_a_refused_request_ends_its_wait_and_nothing_else() -> None:
    """The wait has the error with the limit; the transaction goes on, and keeps its other locks and waits."""
    me = machine(A)
    me.ask(OTHER, "write", (A,), "all", wait=1)
    me.receive(granted(A, 1, lock_id=OTHER))
    me.ask(ID, "write", (A,), "all", wait=2)
    (error,) = answers(me.receive(refused(A)))
    assert isinstance(error, LimitExceeded)
    assert (error.node, error.what, error.limit, error.present) == (A, "requests", 10, 10)
    assert str(error) == (
        "could not get the write lock on db/1: this program has 10 locks and requests at a@x, which allows 10 for each "
        "program. Release some first, or start a@x with a higher limit (LOCKS_LIMITS=requests=...)"
    )
    assert me.ended is None
    assert me.holds(OTHER)
    assert not me.asks_for(ID)
    assert me.receive(refused(A)) == []  # comes too late


def test_a_lock_that_a_majority_grants_is_not_lost_by_a_refusal() -> None:
    """The third server's refusal changes nothing as long as two have granted it; when one of them goes down, it is asked again."""
    me = machine(A, B, C)
    me.ask(ID, "write", (A, B, C), "majority", wait=1)
    me.receive(granted(A, 1))
    assert me.receive(granted(B, 1))
    assert me.holds(ID)
    assert me.receive(refused(C)) == []
    me.ensure_held(ID)
    effects = me.node_down(B)
    assert Request(me.id, "c", ID, "write", True) in to_server(effects)
    assert [each.node for each in effects if isinstance(each, ToServer)] == [C]


def test_one_of_three_servers_refuses_before_the_others_answer() -> None:
    """The call fails at once, and the request is withdrawn everywhere; further refusals and grants change nothing."""
    me = machine(A, B, C)
    me.ask(ID, "write", (A, B, C), "majority", wait=1)
    me.receive(granted(A, 1))
    effects = me.receive(refused(B))
    assert isinstance(answers(effects)[0], LimitExceeded)
    assert [each.node for each in effects if isinstance(each, ToServer)] == [A, B, C]
    assert me.receive(refused(C)) == []
    assert me.receive(granted(C, 1)) == []
    assert me.empty


def test_a_counted_lock_at_its_limit() -> None:
    """Requests for units wait when all units are taken, and not before."""
    server = ServerMachine(A)
    pool = counted(("pool",), 2)
    for number in (1, 2, 3):
        agent = AgentId(number, A, number)
        assert server.table.must_wait(agent, pool, "write") is (number == 3)
        server.handle(Request(agent, "c", pool, "write"))
