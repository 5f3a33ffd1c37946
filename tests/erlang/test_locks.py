"""The original's agents and ours lock on the original's lock servers and on ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pykka
import pytest

import locks
from locks.otp.bytes.etf import encode
from locks.otp.bytes.terms import Atom, Pid, Term
from tests.cluster.harness import World
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


@SERVERS
def test_readers_of_both_kinds_share_a_lock(
    node: locks.node.Node, erlang: Erlang, fresh: Fresh, server: str
) -> None:
    """Both read at the same time; a writer waits for both."""
    lock_id = fresh()
    reader = ErlangClient(erlang, "reader")
    reader.lock(lock_id, "read", server)
    mine = PythonClient()
    mine.lock(lock_id, "read", server)
    writer = ErlangClient(erlang, "writer")
    wanted = writer.ask(lock_id, "write", server)
    eventually_queued(erlang, lock_id, server, 3)
    reader.end()
    eventually_queued(erlang, lock_id, server, 2)
    assert not wanted.is_done
    mine.end()
    assert wanted.get() == (Atom("ok"), [])
    writer.end()


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


def test_one_transaction_over_both_kinds_of_servers(
    node: locks.node.Node, erlang: Erlang, fresh: Fresh
) -> None:
    """One lock on both nodes at once, by a client of each kind; each has it on both or waits."""
    lock_id = fresh()
    both = [ERLANG, PYTHON]
    first = ErlangClient(erlang, "first")
    first.lock(lock_id, "write", *both)
    for server in both:
        assert len(queue_at(erlang, lock_id, server)) == 1
    second = PythonClient()
    asked = second.ask(lock_id, "write", *both)
    for server in both:
        eventually_queued(erlang, lock_id, server, 2)
    first.end()
    assert asked.result(5).status == "have_all_locks"
    (info,) = second.do(locks.lock_info, second.agent).result(5)
    assert set(info.granted) == set(both)
    second.end()
    for server in both:
        eventually_queued(erlang, lock_id, server, 0)


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
    mine.do(locks.ensure_held, mine.agent, lock_id).result(5)
    rival = ErlangClient(erlang, "rival")
    wanted = rival.ask(lock_id, "write", PYTHON, ERLANG)
    eventually_queued(erlang, lock_id, ERLANG, 2)
    assert not wanted.is_done
    mine.end()
    wanted.get()
    rival.end()


# --- What the original can't do


def test_unlock_and_fencing_tokens_are_refused_on_the_original(
    node: locks.node.Node, erlang: Erlang, fresh: Fresh
) -> None:
    """Both say why, and change nothing; the lock goes when the transaction ends."""
    lock_id = fresh()
    agent, _ = locks.begin_transaction([(lock_id, "write", [ERLANG])], timeout=5)
    with pytest.raises(locks.MisuseError, match="runs the Erlang original"):
        locks.unlock(agent, lock_id)
    with pytest.raises(locks.errors.InvalidOption, match="runs the Erlang original"):
        locks.fencing_token(agent, lock_id)
    locks.ensure_held(agent, lock_id)
    locks.end_transaction(agent)
    eventually_queued(erlang, lock_id, ERLANG, 0)


def test_a_wish_given_up_at_the_original_goes_with_the_transaction(
    node: locks.node.Node, erlang: Erlang, fresh: Fresh
) -> None:
    """After a timeout the request stays in the queue; a later grant does no harm, asking again works."""
    lock_id, other = fresh(), fresh()
    holder = ErlangClient(erlang, "holder")
    holder.lock(lock_id, "write", ERLANG)
    agent = locks.spawn_agent()
    with pytest.raises(locks.LockTimeout):
        locks.lock(agent, lock_id, "write", [ERLANG], timeout=0.2)
    assert locks.lock_info(agent) == []
    holder.end()
    assert locks.lock(agent, other, "write", [ERLANG], timeout=5).status == "have_all_locks"
    assert len(queue_at(erlang, lock_id, ERLANG)) == 1  # it has it, and does not know
    assert locks.lock(agent, lock_id, "write", [ERLANG], timeout=5).status == "have_all_locks"
    locks.end_transaction(agent)
    eventually_queued(erlang, lock_id, ERLANG, 0)
    eventually_queued(erlang, other, ERLANG, 0)


def test_each_side_sees_the_clients_of_the_other(
    node: locks.node.Node, erlang: Erlang, fresh: Fresh
) -> None:
    """In a queue, the client of a Python agent is the actor that asks, on both kinds of servers."""
    lock_id = fresh()
    told: list[Any] = []
    mine = Keeper.start(told)
    agent = locks.spawn_agent(client=mine)
    mine.ask(lambda: locks.lock(agent, lock_id, "write", [PYTHON, ERLANG], timeout=5))
    theirs = ErlangClient(erlang, "theirs")
    wanted = theirs.ask(lock_id, "write", PYTHON, ERLANG)
    eventually_queued(erlang, lock_id, ERLANG, 2)
    eventually_queued(erlang, lock_id, PYTHON, 2)
    eventually(lambda: len(clients_known_to(erlang, theirs)) == 4)
    (client,) = {pid for pid in clients_known_to(erlang, theirs) if pid.node == PYTHON}
    assert client.number != agent.id.created
    erlang.call("main", "driver", "send", client, "are you the client?")
    eventually(lambda: told == ["are you the client?"])
    mine.stop()
    wanted.get()
    theirs.end()


def clients_known_to(erlang: Erlang, client: ErlangClient) -> list[Pid]:
    """The clients in all queues that the agent of an Erlang client was told."""
    _, rows = erlang.call("looks", "locks_agent", "lock_info", client.agent)
    return [entry[2] for row in rows for group in row[4] for entry in group[1]]


class Keeper(pykka.ThreadingActor):
    """Keeps what it is told, and does what it is asked."""

    def __init__(self, told: list[Any]) -> None:
        super().__init__()
        self.told = told

    def on_receive(self, message: Any) -> Any:
        """Keep text; call anything else."""
        if isinstance(message, str):
            self.told.append(message)
            return None
        return message()


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
        mine.do(locks.ensure_held, mine.agent, there).result(5)
    asked.result(5)
    other.end()
    # Another incarnation of it: what was lost is asked for again.
    assert more_erlang(mortal.name).name == mortal.name
    assert mine.do(locks.await_all_locks, mine.agent, timeout=10).result(12)
    mine.do(locks.ensure_held, mine.agent, there).result(5)
    mine.end()


def test_the_death_of_a_lock_server_of_the_original(
    node: locks.node.Node, more_erlang: Callable[..., Erlang], fresh: Fresh
) -> None:
    """Its node stays: the loss is told all the same, and a new lock server is found."""
    other = more_erlang("g@127.0.0.1")
    assert node.connect(other.name)
    mine = PythonClient(await_nodes=True)
    lock_id = fresh()
    mine.lock(lock_id, "write", other.name)
    other.call("main", "application", "stop", Atom("locks"))
    assert mine.agent.lost.wait(5)
    assert node.nodes() == sorted({ERLANG, other.name})
    assert other.name not in node.alive
    other.call("main", "driver", "start_locks")
    mine.do(locks.await_all_locks, mine.agent, timeout=10).result(12)
    mine.end()


def test_the_death_of_a_python_node(
    node: locks.node.Node, erlang: Erlang, world: World, fresh: Fresh
) -> None:
    """An Erlang agent is told that its locks there can't be served; what Python had is free."""
    mortal = world.worker("q@127.0.0.1", epmd=True)
    assert mortal.do("connect", peer=ERLANG)
    eventually(lambda: ERLANG in mortal.do("alive"))
    lock_id, there = fresh(), fresh()
    mortal.do("begin", client="c")
    mortal.do("lock", client="c", lock_id=list(lock_id), nodes=[ERLANG])
    waiter = ErlangClient(erlang, "waiter")
    wanted = waiter.ask(lock_id, "write", ERLANG)
    eventually_queued(erlang, lock_id, ERLANG, 2)
    loser = ErlangClient(erlang, "loser")
    loser.lock(there, "write", mortal.name)
    watching = erlang.call("loser", "driver", "monitor_process", loser.agent)
    mortal.kill()
    wanted.get()
    waiter.end()
    reason = erlang.call("loser", "driver", "down", watching)
    assert reason[0] == Atom("cannot_lock_objects")


def test_an_erlang_agent_awaits_a_python_node(
    node: locks.node.Node, erlang: Erlang, world: World, fresh: Fresh
) -> None:
    """With `await_nodes`, it asks to be told when there is a lock server again, and claims anew."""
    mortal = world.worker("r@127.0.0.1", epmd=True)
    assert mortal.do("connect", peer=ERLANG)
    lock_id = fresh()
    patient = ErlangClient(erlang, "patient", await_nodes=True)
    patient.lock(lock_id, "write", mortal.name)
    mortal.kill()
    eventually(lambda: Atom(mortal.name) not in erlang.call("main", "erlang", "nodes"))
    again = world.worker(mortal.name, epmd=True)
    assert again.do("connect", peer=ERLANG)
    eventually(lambda: len(again.do("holders", lock_id=list(lock_id))) == 1)
    patient.end()
    eventually(lambda: again.do("holders", lock_id=list(lock_id)) == [])


# --- Watching


def test_an_erlang_process_watches_a_lock_of_a_python_node(
    node: locks.node.Node, erlang: Erlang, fresh: Fresh
) -> None:
    """First it is told that somebody has it, then each change; a lock that nobody has is silent."""
    lock_id, free = fresh(), fresh()
    agent, _ = locks.begin_transaction([(lock_id, "write")], timeout=5)
    for each in (lock_id, free):
        erlang.call("watcher", "locks", "watch", list(each), [Atom(PYTHON)])
        eventually(lambda each=each: locks.watchers(each))
    first = erlang.call("watcher", "driver", "message", 5000)
    assert first == (Atom("locks_info"), list(lock_id), Atom(PYTHON), [])
    locks.end_transaction(agent)
    info = erlang.call("watcher", "driver", "message", 5000)
    assert info[1][1] == list(lock_id)
    assert info[1][4] == []
    agent, _ = locks.begin_transaction([(free, "read")], timeout=5)
    info = erlang.call("watcher", "driver", "message", 5000)
    assert info[1][1] == list(free)
    assert [group[0] for group in info[1][4]] == [Atom("r")]
    erlang.call("watcher", "locks", "unwatch", list(free), [Atom(PYTHON)])
    eventually(lambda: not locks.watchers(free))
    locks.end_transaction(agent)
    assert erlang.call("watcher", "driver", "messages", 50) == []
