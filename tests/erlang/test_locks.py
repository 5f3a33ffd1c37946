"""The original's agents and ours lock on the original's lock servers and on ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import locks
from locks.otp.bytes.etf import encode
from locks.otp.bytes.terms import Atom, Pid, Term
from tests.erlang.clients import PythonClient
from tests.erlang.conftest import PYTHON
from tests.erlang.erlang import Erlang, ErlangClient
from tests.helpers import eventually

ERLANG = "e@127.0.0.1"
Fresh = Callable[[], tuple[str, int]]
SERVERS = pytest.mark.parametrize("server", [PYTHON, ERLANG])


def queue_at(erlang: Erlang, lock_id: tuple[Any, ...], server: str) -> list[Pid]:
    """The agents in the queue of a lock, in their order."""
    if server == PYTHON:
        return [Pid(c.agent.created, c.agent.node, 0) for c in locks.queue(lock_id).requests]
    rows = erlang.call("looks", "ets", "lookup", Atom("locks_server_locks"), list(lock_id))
    return [entry[1] for row in rows for group in row[4] for entry in group[1]]


def eventually_queued(erlang: Erlang, lock_id: tuple[Any, ...], server: str, count: int) -> None:
    """Wait until so many requests for a lock have arrived."""
    eventually(lambda: len(queue_at(erlang, lock_id, server)) == count)


# --- One lock


@SERVERS
def test_a_lock_is_handed_on_from_one_kind_of_client_to_the_other(
    node: locks.node.Node, erlang: Erlang, fresh: Fresh, server: str
) -> None:
    """Erlang has it, Python waits; Python gets it when Erlang lets go; and the other way round."""
    lock_id = fresh()
    first = ErlangClient(erlang, "first")
    first.lock(lock_id, "write", server)
    second = PythonClient()
    asked = second.ask(lock_id, "write", server)
    eventually_queued(erlang, lock_id, server, 2)
    third = ErlangClient(erlang, "third")
    wanted = third.ask(lock_id, "write", server)
    eventually_queued(erlang, lock_id, server, 3)
    assert not asked.done()
    first.end()
    assert asked.result(5).status == "have_all_locks"
    assert not wanted.is_done
    second.end()
    assert wanted.get() == (Atom("ok"), [])
    third.end()
    eventually_queued(erlang, lock_id, server, 0)


def test_a_table_covers_its_rows_for_both(
    node: locks.node.Node, erlang: Erlang, fresh: Fresh
) -> None:
    """On a Python lock server: a table lock waits for row locks of the other kind, and back."""
    table = fresh()
    row = (*table, "row")
    rows = ErlangClient(erlang, "rows")
    rows.lock(row, "write", PYTHON)
    mine = PythonClient()
    asked = mine.ask(table, "write", PYTHON)
    eventually_queued(erlang, table, PYTHON, 2)
    assert not asked.done()
    rows.end()
    asked.result(5)
    reader = ErlangClient(erlang, "reader")
    wanted = reader.ask((*table, "other"), "read", PYTHON)
    eventually_queued(erlang, table, PYTHON, 2)
    assert not wanted.is_done
    mine.end()
    wanted.get()
    reader.end()


def test_lock_ids_of_all_kinds_mean_the_same_on_both_sides(
    node: locks.node.Node, erlang: Erlang, fresh: Fresh
) -> None:
    """Atoms, text, numbers, tuples and lists within an id of Erlang's are found by Python's id."""
    ids: list[list[Any]] = [
        [Atom("an atom"), *fresh()],
        [(Atom("t"), 1), 2**70, True, None, *fresh()],
        [*fresh(), "b\xe4", b"\xff"],
        [*fresh(), [1, [2]]],
    ]
    for term in ids:
        client = ErlangClient(erlang, "ids")
        client.lock(term, "write", PYTHON)
        # A list can't be a key in Python; it is its encoded self.
        lock_id = tuple(Term(encode(each)[1:]) if type(each) is list else each for each in term)
        assert [c.agent.created for c in locks.queue(lock_id).holders] == [client.agent.number]
        client.end()


# --- Several nodes


def test_majority_of_three_lock_servers_of_both_kinds(
    node: locks.node.Node, erlang: Erlang, more_erlang: Callable[..., Erlang], fresh: Fresh
) -> None:
    """Two of three are enough; when one of them dies it is lost, and another majority serves."""
    other = more_erlang("f@127.0.0.1")
    assert node.connect(other.name)
    servers = [PYTHON, ERLANG, other.name]
    lock_id = fresh()
    mine = PythonClient(await_nodes=True)
    mine.lock(lock_id, "write", *servers, require="majority")
    eventually(lambda: all(queue_at(each, lock_id, each.name) for each in (erlang, other)))
    other.kill()
    eventually(lambda: other.name not in node.alive)
    mine.do(locks.original.ensure_held, mine.agent, lock_id).result(5)
    rival = ErlangClient(erlang, "rival")
    wanted = rival.ask(lock_id, "write", PYTHON, ERLANG)
    eventually_queued(erlang, lock_id, ERLANG, 2)
    assert not wanted.is_done
    mine.end()
    wanted.get()
    rival.end()


# --- What the original can't do


# --- Who is no more


@SERVERS
def test_the_death_of_an_erlang_client_frees_its_locks(
    node: locks.node.Node, erlang: Erlang, fresh: Fresh, server: str
) -> None:
    """A Python client that waits gets the lock when the Erlang client is killed, or its agent."""
    for who in ("client", "agent"):
        lock_id = fresh()
        holder = ErlangClient(erlang, "holder")
        holder.lock(lock_id, "write", server)
        mine = PythonClient()
        asked = mine.ask(lock_id, "write", server)
        eventually_queued(erlang, lock_id, server, 2)
        if who == "client":
            holder.die()
        else:
            erlang.call("main", "driver", "kill", holder.agent)
        asked.result(5)
        mine.end()


@SERVERS
def test_the_death_of_a_python_client_frees_its_locks(
    node: locks.node.Node, erlang: Erlang, fresh: Fresh, server: str
) -> None:
    """An Erlang client that waits gets the lock when the Python thread ends."""
    lock_id = fresh()
    mine = PythonClient()
    mine.lock(lock_id, "write", server)
    waiter = ErlangClient(erlang, "waiter")
    wanted = waiter.ask(lock_id, "write", server)
    eventually_queued(erlang, lock_id, server, 2)
    mine.die()
    wanted.get()
    waiter.end()


def test_the_death_of_an_erlang_node(
    node: locks.node.Node, more_erlang: Callable[..., Erlang], fresh: Fresh
) -> None:
    """What its agents had on ours is free; who had a lock on its lock server is told of the loss."""
    mortal = more_erlang("mortal@127.0.0.1")
    assert node.connect(mortal.name)
    here, there = fresh(), fresh()
    ErlangClient(mortal, "holder").lock(here, "write", PYTHON)
    mine = PythonClient(await_nodes=True)
    mine.lock(there, "write", mortal.name)
    other = PythonClient()
    asked = other.ask(here, "write", PYTHON)
    eventually(lambda: len(locks.queue(here).requests) == 2)
    mortal.kill()
    assert mine.agent.lost.wait(5)
    with pytest.raises(locks.LockLost):
        mine.do(locks.original.ensure_held, mine.agent, there).result(5)
    asked.result(5)
    other.end()
    # Another incarnation of it: what was lost is asked for again.
    assert more_erlang(mortal.name).name == mortal.name
    assert mine.do(locks.original.await_all_locks, mine.agent, timeout=10).result(12)
    mine.do(locks.original.ensure_held, mine.agent, there).result(5)
    mine.end()


# --- Watching
