"""Bad calls: each is refused by a specific, helpful error, and changes nothing."""

from __future__ import annotations

import functools
import itertools
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any

import gevent
import pytest
from gevent import monkey

import locks
from locks.node.client.clients import labelled, this_program
from tests.api.clients import Client, Run

A = ("a",)

Bad = Callable[[locks.actors.Agent, locks.actors.Agent], Any]


class Scene:
    """Client one holds a and b, client two waits for a: nothing of it may change."""

    def __init__(self, run: Run) -> None:
        self.one, self.two = run.begin(2)
        self.one.lock(A, "write").get()
        self.one.lock(("b",), "read").get()
        self.two.lock_nowait(A, "write")

    def state(self) -> Any:
        node = locks.statistics()
        return (
            [locks.queue(lock_id) for lock_id in (A, ("b",), ("c",))],
            [locks.original.lock_info(client.agent) for client in (self.one, self.two)],
            [locks.original.transaction_status(client.agent) for client in (self.one, self.two)],
            [locks.original.watchers(lock_id) for lock_id in (A, ("b",), ("c",))],
            node,
        )


def refused(
    scene: Scene, caller: Client, bad: Callable[[], Any], error: type[Exception], *words: str
) -> Exception:
    """Check that the call raises this very error with these words in it, and changes nothing."""
    before = scene.state()
    with pytest.raises(error) as caught:
        caller.call(bad)
    assert type(caught.value) is error
    for word in words:
        assert word in str(caught.value)
    assert scene.state() == before
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is error
    assert str(copy) == str(caught.value)
    return caught.value


IDS = [
    ("a", "plain str", "('a',)"),
    (b"a", "plain bytes", "(b'a',)"),
    ((), "at least one key element", "()"),
    ([], "at least one key element", "()"),
    (([1],), "([1],)", "of the type list"),
    (("a", {"b": 1}), "{'b': 1}", "of the type dict"),
    (None, "None", 'such as ("db", "users", 17)'),
    (17, "17", "tuple or list"),
    ({"a"}, "{'a'}", "tuple or list"),
]

CALLS: dict[str, Callable[[locks.actors.Agent, Any], Any]] = {
    "lock": locks.original.lock,
    "lock_nowait": locks.original.lock_nowait,
    "lock_objects": lambda agent, i: locks.original.lock_objects(
        agent, [(("c",), "read"), (i, "write")]
    ),
    "begin_transaction": lambda agent, i: locks.original.begin_transaction(
        [(("c",), "read"), (i, "read")]
    ),
    "unlock": locks.original.unlock,
    "fencing_token": locks.original.fencing_token,
    "surrender_nowait": lambda agent, i: locks.original.surrender_nowait(agent, i, agent),
    "holders": lambda agent, i: locks.holders(i),
    "queue": lambda agent, i: locks.queue(i),
    "watch": lambda agent, i: locks.watch(i, watcher=print),
    "unwatch": lambda agent, i: locks.unwatch(i, watcher=print),
    "watchers": lambda agent, i: locks.original.watchers(i),
    "Lock": lambda agent, i: locks.Lock(i),
    "RWLock": lambda agent, i: locks.RWLock(i),
}


def test_bad_lock_ids(run: Run) -> None:
    """Every function that takes a lock id refuses each bad one, and says what is wrong with it."""
    scene = Scene(run)
    for call, (bad, *words) in itertools.product(CALLS.values(), IDS):
        bad_call = functools.partial(call, scene.one.agent, bad)
        error = refused(scene, scene.one, bad_call, locks.errors.InvalidLockId, *words)
        assert isinstance(error, ValueError)


def test_bad_lock_ids_in_a_transaction(run: Run) -> None:
    """So do the methods of a transaction; an id given instead of a list of ids is noticed, too."""
    scene = Scene(run)

    def work() -> None:
        with locks.transaction() as tx:
            before = scene.state()
            for bad, *words in IDS:
                for call in (
                    tx.lock,
                    tx.read_lock,
                    tx.write_lock,
                    tx.unlock,
                    tx.token,
                    lambda i: tx.lock_all([("c",), i]),
                    lambda i: tx.lock_all(read=[("c",), i]),
                ):
                    with pytest.raises(locks.errors.InvalidLockId) as caught:
                        call(bad)
                    assert all(word in str(caught.value) for word in words)
            with pytest.raises(locks.errors.InvalidLockId, match="plain str"):
                tx.lock_all(write=("c", "d"))
            assert scene.state() == before
            assert locks.original.lock_info(tx.agent) == []

    scene.one.call(work)


# fmt: off
OPTIONS: dict[str, tuple[Bad, type[Exception], list[str]]] = {
    "mode": (
        lambda agent, other: locks.original.lock(agent, ("c",), "exclusive"),
        locks.errors.InvalidOption, ["'exclusive'", '"read" or "write"']),
    "require": (
        lambda agent, other: locks.original.lock(agent, ("c",), "write", None, "most"),
        locks.errors.InvalidOption, ["'most'", "all, any, majority, all_alive, majority_alive"]),
    "a node instead of nodes": (
        lambda agent, other: locks.original.lock(agent, ("c",), "write", "a@b"),
        locks.errors.InvalidOption, ["'a@b'", "list of node names"]),
    "node that does not run": (
        lambda agent, other: locks.original.lock(agent, ("c",), "write", ["x@nowhere"]),
        locks.CannotServe, ["c", "x@nowhere is not running", "await_nodes=True"]),
    "surrender on a node that does not run": (
        lambda agent, other: locks.original.surrender_nowait(agent, A, other, ["x@y"]),
        locks.errors.NodeNotRunning, ["x@y"]),
    "object pattern": (
        lambda agent, other: locks.original.lock_objects(agent, [(("c",), "read"), (("d",),)]),
        locks.errors.InvalidOption, ["(('d',),)", "(lock_id, mode, nodes, require)"]),
    "negative timeout": (
        lambda agent, other: locks.original.lock(agent, ("c",), timeout=-1),
        locks.errors.InvalidOption, ["timeout=-1", ">= 0", "None to wait for ever"]),
    "timeout of a lock that is larger than any float": (
        lambda agent, other: locks.Lock(("c",)).acquire(timeout=10**5000),
        locks.errors.InvalidOption, ["timeout=", "None to wait for ever"]),
    "retries": (
        lambda agent, other: locks.run_transaction(print, retries=-1),
        locks.errors.InvalidOption, ["retries=-1"]),
    "on_deadlock": (
        lambda agent, other: locks.transaction(on_deadlock="wait"),
        locks.errors.InvalidOption, ["'wait'", '"abort" or "surrender"']),
    "flag": (
        lambda agent, other: locks.original.change_flag(agent, "color", True),
        locks.errors.InvalidOption, ["'color'", "abort_on_deadlock, await_nodes, monitor_nodes, notify"]),
    "value of a flag": (
        lambda agent, other: locks.original.change_flag(agent, "await_nodes", 1),
        locks.errors.InvalidOption, ["'await_nodes'", "1", "True and False"]),
    "value of notify": (
        lambda agent, other: locks.original.change_flag(agent, "notify", "yes"),
        locks.errors.InvalidOption, ["notify", "'yes'"]),
    "option": (
        lambda agent, other: locks.original.spawn_agent(abort_on_deadlock="no"),
        locks.errors.InvalidOption, ["abort_on_deadlock='no'", "use True or False"]),
    "unknown option": (
        lambda agent, other: locks.original.begin_transaction(color="red"),
        TypeError, ["color"]),
    "client": (
        lambda agent, other: locks.original.spawn_agent(client="me"),
        locks.errors.InvalidOption, ["'me'", "actor's reference, a greenlet, a thread or an owner"]),
    "thread that was not started": (
        lambda agent, other: locks.original.spawn_agent(client=NOT_STARTED),
        locks.errors.InvalidOption, ["not started"]),
    "link to a thread": (
        lambda agent, other: locks.original.spawn_agent(client=threading.main_thread(), link=True),
        locks.errors.InvalidOption, ["a thread can't be stopped from outside", "link=False"]),
    "is not an actor and has no inbox": (
        lambda agent, other: locks.original.spawn_agent(client=threading.main_thread(), notify=True),
        locks.errors.InvalidOption, ["MainThread", "no inbox", "notify=function"]),
    "not an agent": (
        lambda agent, other: locks.original.lock((agent, None), ("c",)),
        locks.MisuseError, ["is not an agent", "pair (agent, result)"]),
    "lock for Lock": (
        lambda agent, other: locks.original.lock(("c",), "write"),  # type: ignore[arg-type]
        locks.MisuseError, ["('c',) is not an agent", "use locks.Lock(lock_id)"]),
    "locked for Lock.locked": (
        lambda agent, other: 1 if locks.locked(("c",)) else 0,
        locks.MisuseError, ["locks.locked() is a decorator", "use locks.Lock(lock_id).locked()"]),
    "watcher": (
        lambda agent, other: locks.watch(("c",), watcher=17),
        locks.errors.InvalidOption, ["17", "neither an actor's reference nor a callable", "watcher=function"]),
    "unlock of what is not held": (
        lambda agent, other: locks.original.unlock(agent, ("c", 1)),
        locks.errors.NotHeld, ["agent-1@", "has neither locked nor requested c/1"]),
    "token of what is not held": (
        lambda agent, other: locks.original.fencing_token(agent, ("c",)),
        locks.errors.NotHeld, ["c has no fencing token", "has neither locked nor requested it"]),
    "surrender of what nobody waits for": (
        lambda agent, other: locks.original.surrender_nowait(agent, ("b",), other),
        locks.errors.NotHeld, ["b", "agent-2@", "is not waiting"]),
    "other requirement": (
        lambda agent, other: locks.original.lock(agent, A, "write", None, "any"),
        locks.errors.ConflictingRequest, ["a was requested before", "require='all'", "require='any'"]),
    "other nodes for an upgrade": (
        lambda agent, other: locks.original.lock_objects(agent, [(("c",), "read"), (("b",), "write", ["x@y"], "all_alive")]),
        locks.errors.ConflictingRequest, ["b was requested before on", "x@y"]),
    "lock through another one's transaction": (
        lambda agent, other: locks.original.lock(other, ("c",)),
        locks.errors.NotClient, ["agent-2@", "belongs to", "can't use transaction", "client=..."]),
    "wait in another one's transaction": (
        lambda agent, other: locks.original.await_all_locks(other),
        locks.errors.NotClient, ["agent-2@"]),
    "end another one's transaction": (
        lambda agent, other: locks.original.end_transaction(other),
        locks.errors.NotClient, ["agent-2@"]),
    "surrender for another one": (
        lambda agent, other: locks.original.surrender_nowait(other, A, agent),
        locks.errors.NotClient, ["agent-2@"]),
    "node name": (
        lambda agent, other: locks.start("nameless"),
        locks.MisuseError, ["is already running", "locks.stop()", "nameless"]),
}
# fmt: on
NOT_STARTED = threading.Thread()


@pytest.mark.every_kind
def test_bad_calls(run: Run) -> None:
    """Each bad call raises its own error, which names the value and says what to do."""
    scene = Scene(run)
    agent, other = scene.one.agent, scene.two.agent
    for bad, error, words in OPTIONS.values():
        if not (
            run.owned and error is locks.errors.NotClient
        ):  # who has an owner's transaction acts for it
            refused(scene, scene.one, lambda bad=bad: bad(agent, other), error, *words)  # type: ignore[misc]


ON_ENDED: list[Callable[[locks.actors.Agent], Any]] = [
    lambda agent: locks.original.lock(agent, ("c",)),
    lambda agent: locks.original.lock(agent, ("c",), timeout=0),
    lambda agent: locks.original.lock_nowait(agent, ("c",)),
    lambda agent: locks.original.lock_objects(agent, [(("c",), "read")]),
    lambda agent: locks.original.await_all_locks(agent),
    lambda agent: locks.original.unlock(agent, A),
    lambda agent: locks.original.fencing_token(agent, A),
    lambda agent: locks.original.transaction_status(agent),
    lambda agent: locks.original.lock_info(agent),
    lambda agent: locks.original.change_flag(agent, "notify", print),
    lambda agent: locks.original.end_transaction(agent),
]


def test_ended_agents(run: Run) -> None:
    """Whatever is asked of a transaction that has ended: `TransactionEnded`, and what to do."""
    scene = Scene(run)
    ended = scene.one.call(locks.original.spawn_agent)
    scene.one.call(locks.original.end_transaction, ended)
    for call in ON_ENDED:
        bad_call = functools.partial(call, ended)
        refused(scene, scene.one, bad_call, locks.TransactionEnded, str(ended), "begin a new one")


def test_an_unknown_option_is_named_with_the_known_ones() -> None:
    """As of any function of Python's: a `TypeError`, of the function that was called, and not of a class within."""
    options: dict[str, Any] = {"abort_on_deadlocks": True}
    with pytest.raises(
        TypeError, match=r"^begin_transaction\(\) .*'abort_on_deadlocks'; it has timeout, client, "
    ):
        locks.original.begin_transaction(**options)


@pytest.mark.every_kind
def test_begin_that_fails_begins_nothing(run: Run) -> None:
    """When `begin_transaction` raises there is no transaction."""
    scene = Scene(run)
    agents = locks.statistics().agents
    bad: list[tuple[Any, Any]] = [
        ([(A, "write")], {"timeout": 0}),
        ([(A, "write")], {"timeout": -1}),
        ([(("c",), "write", ["x@y"])], {}),
        ([(("c",), "write"), ("d", "write")], {}),
        ([], {"color": "red"}),
    ]
    if not run.owned:  # whoever names an owner acts for it
        bad.append(([(("c",), "write")], {"client": scene.two.subject}))
    for objects, options in bad:
        with pytest.raises((locks.LocksError, TypeError)):
            scene.one.call(locks.original.begin_transaction, objects, **options)
        assert locks.statistics().agents == agents
        assert locks.statistics().table.entries == 3


def test_one_batch_is_checked_against_itself(run: Run) -> None:
    """The same id on other terms within one call is refused, and nothing of the call is asked for."""
    (client,) = run.begin(1)
    batch = [(A, "read"), (("b",), "write"), (A, "read", [locks.start().name], "any")]
    with pytest.raises(locks.errors.ConflictingRequest, match="was requested before"):
        client.call(locks.original.lock_objects, client.agent, batch)
    assert not client.call(locks.original.lock_info, client.agent)


def test_a_name_can_not_forge_lines_of_a_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What threads, greenlets and programs are called is shown in one line, without orders for a terminal, wherever it is shown."""
    forged = "x\n2026-11-25 WARNING forged \x1b[31m"
    seen: list[str] = []

    def work() -> None:
        with locks.transaction() as tx:
            tx.write_lock(("named",))
            seen.extend(each.client for each in locks.holders(("named",)))
            seen.extend(str(each) for each in locks.facts.waits().requests)
            with pytest.raises(locks.LockTimeout) as told, locks.Owner("other"):
                locks.transaction(owner=None).__enter__().write_lock(("named",), timeout=0)
            seen.append(str(told.value))

    greenlet = gevent.Greenlet(work)
    greenlet.name = forged
    clients: list[Any] = [greenlet]
    if not monkey.is_module_patched(
        "threading"
    ):  # there, a thread is a greenlet with a name of its own
        clients.append(threading.Thread(target=work, name=forged))
    for client in clients:
        client.start()
        client.join()
    assert len(seen) == 3 * len(clients)
    assert all("forged" in each and each.isprintable() for each in seen)
    monkeypatch.setattr(sys, "argv", [f"/bin/{forged}"])
    assert labelled(threading.current_thread(), None, this_program(), False).isprintable()
