"""A free lock is thin, and nobody can tell: `locks.node.client.thin`.

Two nodes play the same random scripts, one with thin locks and one without: each call has the same outcome, and
whatever is looked at, at whatever moment, is the same.
"""

from __future__ import annotations

import asyncio
import copy
import pickle
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Any

import gevent
import pytest
from gevent.event import AsyncResult
from gevent.queue import Queue
from hypothesis import given, settings
from hypothesis import strategies as st

import locks
from locks import aio, original
from locks.core.thin import MOST_HERE
from locks.node.client.agent import Agent
from locks.node.node import Node
from locks.program.default import default_node, stand_in
from locks.ranges import replace
from tests.helpers import SEED, eventually, run_script

NAME = "thin@h"
IDS = [("a",), ("a", "b"), ("a", "c"), ("d",)]
LIMIT = 20.0

clients = st.integers(0, 2)
ids = st.sampled_from(IDS)
modes = st.sampled_from(["read", "write"])
LOCK = st.one_of(
    st.tuples(st.just("acquire"), clients, ids, modes),
    st.tuples(st.just("release"), clients, ids),
)
TRANSACTION = st.one_of(
    *(st.tuples(st.just("open"), clients), st.tuples(st.just("close"), clients)),
    *(st.tuples(st.just("take"), clients, ids, modes),) * 2,
)
steps = st.one_of(
    *(LOCK, LOCK, LOCK, TRANSACTION, TRANSACTION, TRANSACTION),
    st.tuples(st.sampled_from(["run", "own"]), clients, ids, modes),
    st.tuples(st.sampled_from(["undo", "ask", "disown"]), clients, ids),
    st.tuples(st.sampled_from(["after", "end_owner"]), clients),
    st.tuples(st.sampled_from(["owned", "token", "leave", "leave"]), clients, ids),
    st.tuples(st.sampled_from(["enter", "enter", "nest", "own_again"]), clients, ids, modes),
    st.tuples(st.just("disown_once"), clients, ids),
    st.tuples(st.just("block"), clients, ids, modes),
    *(st.tuples(st.just("begin"), clients, st.booleans()),) * 2,
    *(st.tuples(st.sampled_from(["get", "request"]), clients, ids, modes),) * 2,
    st.tuples(st.sampled_from(["give", "tell"]), clients, ids),
    st.tuples(st.sampled_from(["end", "end", "die", "hold", "alive"]), clients),
    st.tuples(st.sampled_from(["holders", "queue", "locked", "watch", "unwatch"]), clients, ids),
    st.tuples(st.sampled_from(["agents", "statistics", "waits", "trace", "untrace"]), clients),
)


class Client:
    """A greenlet that does what it is told to."""

    def __init__(self, name: str) -> None:
        self._jobs: Queue[Any] = Queue()
        self.greenlet = gevent.spawn(self._work)
        self.greenlet.name = name
        self.locks: dict[Any, Any] = {}
        self.agents: list[Agent] = []
        self.open: list[locks.Transaction] = []
        self.closed: list[locks.Transaction] = []
        self.owner = locks.Owner(f"owner of {name}")

    def _work(self) -> None:
        while True:
            job, answer = self._jobs.get()
            if job is None:
                return
            try:
                answer.set(job())
            except locks.errors.LocksError as error:
                answer.set(f"{type(error).__name__}: {error}")
            except gevent.GreenletExit:
                return
            except BaseException as error:
                answer.set_exception(error)

    def call(self, job: Callable[[], Any]) -> Any:
        """Have it do a job; an error of `locks` is returned as a text."""
        return self.begin(job).get(timeout=LIMIT)

    def begin(self, job: Callable[[], Any]) -> AsyncResult[Any]:
        """Do the same without waiting for it."""
        answer: AsyncResult[Any] = AsyncResult()
        self._jobs.put((job, answer))
        return answer

    def die(self) -> None:
        """End it, and its owner."""
        self._jobs.put((None, None))
        self.greenlet.join(LIMIT)
        assert self.greenlet.dead
        self.owner.end()


class World:
    """A node, with or without thin locks, and its clients. Its time is the number of the step."""

    def __init__(self, thin: bool, eager: bool = True) -> None:
        self.time = 1
        clocks = (lambda: self.time * 10**9, lambda: float(self.time))
        self.node = Node(NAME, log_waits_longer_than=inf, clocks=clocks, first_version=100)
        self.node.thin.usable = thin
        self.eager = eager
        self.taken: Counter[bool] = Counter()
        self.clients = [Client(f"client {i}") for i in range(3)]
        self.seen: list[str] = []
        self.traced: list[str] = []

    def do(self, step: tuple[Any, ...]) -> Any:
        """Carry out a step; returns what the client sees."""
        what, i, *args = step
        self.time += 1
        if self.eager:
            self.node.thin.pause = 0
        client = self.clients[i]
        with stand_in(self.node):
            if what == "die":
                client.die()
                self.clients[i] = Client(f"client {i}")
                return None
            found = client.call(lambda: getattr(self, f"_{what}")(client, *args))
        self.taken[bool(self.node.thin.agents)] += 1
        return found

    def _acquire(self, client: Client, lock_id: Any, mode: Any) -> Any:
        lock = client.locks[lock_id] = locks.Lock(lock_id, mode)
        return lock.acquire(blocking=False)

    def _lock(self, client: Client, lock_id: Any) -> locks.Lock:
        lock: locks.Lock = client.locks.get(lock_id) or locks.Lock(lock_id)
        return lock

    def _release(self, client: Client, lock_id: Any) -> Any:
        return self._lock(client, lock_id).release()

    def _owned(self, client: Client, lock_id: Any) -> Any:
        return self._lock(client, lock_id).owned()

    def _token(self, client: Client, lock_id: Any) -> Any:
        return self._lock(client, lock_id).token()

    def _locked(self, client: Client, lock_id: Any) -> Any:
        return self._lock(client, lock_id).locked()

    def _block(self, client: Client, lock_id: Any, mode: Any) -> Any:
        with locks.Lock(lock_id, mode, timeout=0) as lock:
            return lock.token()

    def _open(self, client: Client) -> Any:
        tx = locks.transaction(timeout=0)
        tx.__enter__()
        client.open.append(tx)

    def _take(self, client: Client, lock_id: Any, mode: Any) -> Any:
        return client.open[-1].lock(lock_id, mode) if client.open else None

    def _undo(self, client: Client, lock_id: Any) -> Any:
        return client.open[-1].unlock(lock_id) if client.open else None

    def _ask(self, client: Client, lock_id: Any) -> Any:
        return client.open[-1].token(lock_id) if client.open else None

    def _close(self, client: Client) -> Any:
        if client.open:
            client.closed.append(client.open.pop())
            client.closed[-1].__exit__(None, None, None)

    def _after(self, client: Client) -> Any:
        """What a transaction says that has ended."""
        if not client.closed:
            return None
        tx = client.closed[-1]
        agent = tx.agent
        asks: list[Callable[[], Any]] = [
            *(lambda: tx.lock(("a",)), lambda: tx.unlock(("a",)), lambda: tx.token(("a",))),
            *(tx.ensure_held, agent.lock_info, agent.status, lambda: tx.__exit__(None, None, None)),
        ]
        said = [agent, agent.is_alive(), agent.client is client.greenlet, tx.deadlocks]
        return [str(each) for each in (*said, tx.lost.is_open, *map(_said, asks))]

    def _run(self, client: Client, lock_id: Any, mode: Any) -> Any:
        return locks.run_transaction(lambda tx: tx.lock(lock_id, mode), timeout=0, retries=0)

    def _own(self, client: Client, lock_id: Any, mode: Any) -> Any:
        return locks.Lock(lock_id, mode, owner=client.owner).acquire(blocking=False)

    def _disown(self, client: Client, lock_id: Any) -> Any:
        return locks.Lock(lock_id, owner=client.owner).release()

    def _end_owner(self, client: Client) -> Any:
        client.owner.end()
        client.owner = locks.Owner("the next owner")

    def _enter(self, client: Client, lock_id: Any, mode: Any) -> Any:
        return locks.RLock(lock_id, mode).acquire(blocking=False)

    def _nest(self, client: Client, lock_id: Any, mode: Any) -> Any:
        lock = locks.RLock(lock_id, mode, timeout=0)
        with lock, lock:
            return lock.acquire(), lock.release(), self.node.view(lock_id)

    def _own_again(self, client: Client, lock_id: Any, mode: Any) -> Any:
        return locks.RLock(lock_id, mode, owner=client.owner).acquire(blocking=False)

    def _disown_once(self, client: Client, lock_id: Any) -> Any:
        return locks.RLock(lock_id, owner=client.owner).release()

    def _leave(self, client: Client, lock_id: Any) -> Any:
        return locks.RLock(lock_id).release()

    def _begin(self, client: Client, abort: bool) -> Any:
        agent, result = locks.original.begin_transaction(abort_on_deadlock=abort)
        client.agents.append(agent)
        return result

    def _request(self, client: Client, lock_id: Any, mode: Any) -> Any:
        return (
            locks.original.lock_nowait(client.agents[-1], lock_id, mode) if client.agents else None
        )

    def _get(self, client: Client, lock_id: Any, mode: Any) -> Any:
        agents = client.agents
        return locks.original.lock(agents[-1], lock_id, mode, timeout=0) if agents else None

    def _give(self, client: Client, lock_id: Any) -> Any:
        return locks.original.unlock(client.agents[-1], lock_id) if client.agents else None

    def _tell(self, client: Client, lock_id: Any) -> Any:
        """What an agent says of itself."""
        agent = client.agents[-1] if client.agents else None
        if agent is None:
            return None
        asks: list[Callable[[], Any]] = [
            *(lambda: agent, lambda: agent.id, lambda: repr(agent), agent.lock_info, agent.status),
            *(
                lambda: locks.original.fencing_token(agent, lock_id),
                lambda: locks.original.ensure_held(agent),
            ),
        ]
        return [_said(ask) for ask in asks]

    def _alive(self, client: Client) -> Any:
        return [agent.is_alive() for agent in client.agents]

    def _end(self, client: Client) -> Any:
        return locks.original.end_transaction(client.agents.pop()) if client.agents else None

    def _hold(self, client: Client) -> Any:
        """Wait for what the transaction has asked for, unless it has to wait long: holds up other transactions."""
        return (
            str(locks.original.await_all_locks(client.agents[-1], timeout=0))
            if client.agents
            else None
        )

    def _holders(self, client: Client, lock_id: Any) -> Any:
        return locks.holders(lock_id)

    def _queue(self, client: Client, lock_id: Any) -> Any:
        return locks.queue(lock_id)

    def _watch(self, client: Client, lock_id: Any) -> Any:
        locks.watch(lock_id, watcher=self._view)

    def _unwatch(self, client: Client, lock_id: Any) -> Any:
        locks.unwatch(lock_id, watcher=self._view)

    def _view(self, view: Any) -> None:
        self.seen.append(str(view))

    def _agents(self, client: Client | None = None) -> Any:
        return [
            (str(each.id), each.machine.client, each.lock_info(), str(each.status()))
            for each in self.node.agents()
        ]

    def _statistics(self, client: Client | None = None) -> Any:
        return self.node.statistics()

    def _waits(self, client: Client) -> Any:
        return str(locks.facts.waits())

    def _trace(self, client: Client) -> Any:
        self.node.trace = lambda *said: self.traced.append(str([str(each) for each in said]))

    def _untrace(self, client: Client) -> Any:
        self.node.trace = None

    def all(self) -> Any:
        """All that can be seen."""
        with stand_in(self.node):
            views = [self.node.view(lock_id) for lock_id in IDS]
            told = [self._agents(), self._statistics(), views]
        self.node.executor.call(lambda: None)
        return [*told, self.traced]

    def close(self) -> list[str]:
        """Stop it; returns what its watchers saw."""
        for client in self.clients:
            client.die()
        self.node.stop()
        return self.seen


def _said(ask: Callable[[], Any]) -> str:
    """The answer, or the error."""
    try:
        return str(ask())
    except locks.errors.LocksError as error:
        return f"{type(error).__name__}: {error}"


def play(script: list[tuple[Any, ...]], eager: bool = True) -> Counter[bool]:
    """Play a script in both worlds; returns after how many steps there was a thin lock, and after how many not."""
    thin, thick = World(True, eager), World(False)
    try:
        for number, step in enumerate(script):
            found, wanted = thin.do(step), thick.do(step)
            assert found == wanted, f"step {number}, {step}: {found} with thin locks, else {wanted}"
        assert thin.all() == thick.all()
        for client in range(3):
            assert thin.do(("die", client)) == thick.do(("die", client))
        assert thin.all() == thick.all()
    finally:
        seen, wanted = thin.close(), thick.close()
    assert seen == wanted
    assert not thick.taken[True]
    return thin.taken


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=30), st.booleans())
def test_the_same_with_thin_locks_and_without(script: list[Any], eager: bool) -> None:
    """After each step of random scripts, each call has had the same outcome; in the end all is the same."""
    play(script, eager)


def test_scripts_have_thin_locks() -> None:
    """The scripts are not in vain: after many steps there is a thin lock."""
    chance = random.Random(SEED)
    script: list[tuple[Any, ...]] = []
    for _ in range(200):
        client, lock_id = chance.randrange(3), chance.choice(IDS)
        script.append(("acquire", client, lock_id, "write"))
        script += [("holders", client, lock_id)] * (chance.random() < 0.1)
        script.append(("release", client, lock_id))
    assert play(script)[True] > 100


@pytest.fixture
def node() -> Iterator[Node]:
    """The program's node, where the next lock can be thin."""
    found = default_node()
    found.thin.pause = 0
    yield found
    found.thin.pause = 0


def test_a_free_lock_is_thin(node: Node) -> None:
    """It has no agent, but a token, until somebody looks; then all is as it would have been, with the same token."""
    lock = locks.Lock(("thin", 1))
    with lock:
        assert node.thin.agents
        assert not node.agents_by_id
        token = lock.token()
        (holder,) = locks.holders(("thin",))
        assert not node.thin.held
        assert holder.number == token == lock.token()
    assert not locks.holders(("thin",))


LOOKS: dict[str, Callable[[Node, locks.Lock], Any]] = {
    "locks.holders": lambda node, lock: locks.holders(lock.lock_id),
    "locks.queue": lambda node, lock: locks.queue(lock.lock_id),
    "locks.statistics": lambda node, lock: replace(locks.statistics(), times=None),
    "locks.watch": lambda node, lock: _watched(lock),
    "locks.unwatch": lambda node, lock: locks.unwatch(lock.lock_id, watcher=print),
    "locks.original.watchers": lambda node, lock: locks.original.watchers(lock.lock_id),
    "locks.transaction": lambda node, lock: _transaction(lock),
    "locks.run_transaction": lambda node, lock: locks.run_transaction(
        lambda tx: _refused(tx, lock)
    ),
    "locks.original.begin_transaction": lambda node, lock: _begun(
        locks.original.begin_transaction, lock
    ),
    "locks.original.spawn_agent": lambda node, lock: _begun(locks.original.spawn_agent, lock),
    "locks.facts.waits": lambda node, lock: locks.facts.waits(),
    "locks.facts.break_transaction": lambda node, lock: _broken(lock),
    "Lock.acquire": lambda node, lock: lock.acquire(blocking=False),
    "Lock.locked": lambda node, lock: lock.locked(),
    "Lock.owned": lambda node, lock: lock.owned(),
    "Lock.token": lambda node, lock: lock.token(),
    "Lock.release": lambda node, lock: (lock.release(), locks.holders(lock.lock_id)),
    "Node.agents": lambda node, lock: [(a.id, a.lock_info(), a.status()) for a in node.agents()],
    "Node.view": lambda node, lock: node.view(lock.lock_id),
    "Node.statistics": lambda node, lock: replace(node.statistics(), times=None),
    "Node.spawn_agent": lambda node, lock: _begun(lambda: (node.spawn_agent(),), lock),
    "Node.trace": lambda node, lock: _traced(node, lock),
    "Node.stop": lambda node, lock: (node.stop(), lock.owned(), locks.stop()),
}

OF_OWN_LOCKS = ("Lock.owned", "Lock.token", "Lock.release")
BLIND = {  # they say nothing of locks of this program, need an agent (`AGENTS` has these), or other nodes
    *(
        "locks.HERE",
        "locks.TLS",
        "locks.Lock",
        "locks.Owner",
        "locks.RLock",
        "locks.RWLock",
    ),
    *(
        "locks.Semaphore",
        "locks.Transaction",
        "locks.aio",
        "locks.locked",
        "locks.once",
        "locks.start",
    ),
    *(
        "locks.stop",
        "locks.original.await_all_locks",
        "locks.original.change_flag",
        "locks.original.end_transaction",
        "locks.original.ensure_held",
    ),
    *(
        "locks.original.fencing_token",
        "locks.original.fencing_token_nowait",
        "locks.original.lock",
        "locks.original.lock_info",
    ),
    *(
        "locks.original.lock_nowait",
        "locks.original.lock_objects",
        "locks.original.surrender_nowait",
        "locks.original.transaction_status",
    ),
    *(
        "locks.original.unlock",
        "locks.facts.NodeStatistics",
        "locks.facts.RequestFact",
        "locks.facts.WaitEdge",
    ),
    *(
        "locks.facts.WaitReport",
        "Node.address",
        "Node.await_nodes",
        "Node.connect",
        "Node.disconnect",
    ),
    *(
        "Node.link",
        "Node.monitor_nodes",
        "Node.nodes",
        "Node.register",
        "Node.remote",
    ),
}


def _watched(lock: locks.Lock) -> Any:
    seen: list[Any] = []
    watcher = seen.append
    locks.watch(lock.lock_id, watcher=watcher)
    eventually(lambda: seen)
    locks.unwatch(lock.lock_id, watcher=watcher)
    return seen


def _refused(tx: Any, lock: locks.Lock) -> Any:
    """Ask for it in another transaction, which is refused with a text that says who holds it."""
    with pytest.raises(locks.errors.WaitsForItself) as refused:
        tx.lock(lock.lock_id, timeout=0)
    return refused.value


def _transaction(lock: locks.Lock) -> Any:
    with locks.transaction() as tx:
        return _refused(tx, lock)


def _begun(begin: Callable[..., Any], lock: locks.Lock) -> Any:
    found = begin()
    agent = found[0] if isinstance(found, tuple) else found
    try:
        locks.original.lock_nowait(agent, lock.lock_id)
        return locks.queue(lock.lock_id).holders
    finally:
        locks.original.end_transaction(agent)


def _broken(lock: locks.Lock) -> Any:
    (holder,) = locks.holders(lock.lock_id)
    locks.facts.break_transaction(holder.agent, reason="a test")
    return lock.owned()


def _traced(node: Node, lock: locks.Lock) -> Any:
    node.trace = lambda *said: None
    try:
        return [a.lock_info() for a in node.agents_by_id.values()]
    finally:
        node.trace = None


def test_each_view_is_known_here() -> None:
    """A new function or method that may look at locks has to be said to look, or not to."""
    public = {
        *(f"locks.{each}" for each in locks.__all__),
        *(f"locks.original.{each}" for each in {*locks.original.__all__} - {*locks.__all__}),
        *(f"locks.facts.{each}" for each in locks.facts.__all__),
        *(f"Lock.{each}" for each in locks.Lock._for_users),
        *(f"Node.{each}" for each in Node._for_users),
    }
    errors = {
        each
        for each in public
        if isinstance(getattr(locks, each[6:], None), type)
        and issubclass(getattr(locks, each[6:]), Exception)
    }
    assert public - errors - LOOKS.keys() == BLIND


@pytest.mark.parametrize("form", ["Lock", "transaction", "agent"])
@pytest.mark.parametrize("name", LOOKS)
def test_each_view_sees_a_thin_lock(name: str, form: str) -> None:
    """It answers what it answers if the lock was inflated before, and the lock is not thin any more."""
    answers = []
    for thin in (True, False):
        node = Node(
            NAME, log_waits_longer_than=inf, clocks=(lambda: 10**9, lambda: 1.0), first_version=100
        )
        node.thin.usable = thin
        try:
            with stand_in(node):
                lock, tx = locks.Lock(("thin", 7)), locks.transaction()
                if form == "transaction":
                    tx.__enter__()
                    tx.lock(lock.lock_id)
                elif form == "agent":
                    locks.original.lock(locks.original.begin_transaction()[0], lock.lock_id)
                else:
                    lock.acquire()
                assert bool(node.thin.agents) == thin
                answers.append(_said(partial(LOOKS[name], node, lock)))
                # A client that has no `Lock`s looks at nothing.
                assert not node.thin.agents or (form != "Lock" and name in OF_OWN_LOCKS)
        finally:
            node.stop()
    assert answers[0] == answers[1]


def _elsewhere(work: Callable[[], Any]) -> str:
    """What a call by another thread says."""
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(_said(work)), name="another")
    thread.start()
    thread.join(LIMIT)
    return said[0]


def _monitored(agent: Agent) -> Any:
    downs: list[Any] = []
    locks.actors.monitor(agent, downs.append)
    agent.stop()
    eventually(lambda: downs)
    return downs[0].subject is agent, downs[0].reason


T, U = ("thin", 7), ("thin", 8)
AGENTS: dict[str, Callable[[Agent], Any]] = {  # all that an agent can be asked, or told
    "Agent.client": lambda agent: agent.client is threading.current_thread(),
    "Agent.deadlocks": lambda agent: agent.deadlocks(),
    "Agent.id": lambda agent: agent.id,
    "Agent.is_alive": lambda agent: agent.is_alive(),
    "Agent.lock_info": lambda agent: agent.lock_info(),
    "Agent.lost": lambda agent: agent.lost.is_open,
    "Agent.on_lost": lambda agent: (setattr(agent, "on_lost", print), agent.id, agent.on_lost),
    "Agent.status": lambda agent: agent.status(),
    "Agent.stop": lambda agent: agent.stop(),
    "locks.original.await_all_locks": lambda agent: locks.original.await_all_locks(agent),
    "locks.original.change_flag": lambda agent: locks.original.change_flag(agent, "notify", print),
    "locks.original.end_transaction": lambda agent: locks.original.end_transaction(agent),
    "locks.original.ensure_held": lambda agent: locks.original.ensure_held(agent, U),
    "locks.original.fencing_token": lambda agent: locks.original.fencing_token(agent, T),
    "locks.original.fencing_token_nowait": lambda agent: locks.original.fencing_token_nowait(
        agent, T
    ),
    "locks.original.lock": lambda agent: locks.original.lock(agent, U),
    "locks.original.lock, again": lambda agent: locks.original.lock(agent, T, "read", timeout=0),
    "locks.original.lock, wrongly": lambda agent: locks.original.lock(agent, U, timeout=-1),
    "locks.original.lock, counted": lambda agent: locks.original.lock(
        agent, locks.values.units(U, 2)
    ),
    "locks.original.lock, elsewhere": lambda agent: _elsewhere(
        lambda: locks.original.lock(agent, U)
    ),
    "locks.original.end_transaction, elsewhere": lambda agent: _elsewhere(
        lambda: locks.original.end_transaction(agent)
    ),
    "locks.original.lock_info": lambda agent: locks.original.lock_info(agent),
    "locks.original.lock_nowait": lambda agent: locks.original.lock_nowait(agent, U),
    "locks.original.lock_objects": lambda agent: locks.original.lock_objects(
        agent, [(U, "read"), (T, "write")]
    ),
    "locks.original.surrender_nowait": lambda agent: locks.original.surrender_nowait(
        agent, T, agent
    ),
    "locks.original.transaction_status": lambda agent: locks.original.transaction_status(agent),
    "locks.original.unlock": lambda agent: locks.original.unlock(agent, T),
    "locks.facts.break_transaction": lambda agent: locks.facts.break_transaction(
        agent, reason="a test"
    ),
    "monitor": _monitored,
    "kill": lambda agent: locks.actors.kill(agent),
    "as an actor": lambda agent: (agent.actor_urn, agent.actor_class, agent.actor_stopped.is_set()),
    "as text": lambda agent: (str(agent), repr(agent)),
    "as a key": lambda agent: {agent: 1}[agent],
    "its kind": lambda agent: (isinstance(agent, Agent), agent.id, type(agent)),
    "pickled": lambda agent: pickle.dumps(agent),
    "copied": lambda agent: copy.copy(agent),
    "something that it has not": lambda agent: agent.colour,  # type: ignore[attr-defined]
    **{
        f"proxy, {name}": lambda agent, name=name: getattr(agent.proxy(), name)().get(timeout=LIMIT)  # type: ignore[misc]
        for name in (
            *("await_all_locks", "lock_info", "transaction_status", "ensure_held"),
            *("end_transaction", "async_await_all_locks", "lock"),
        )
    },
    "proxy, id": lambda agent: agent.proxy().id.get(timeout=LIMIT),
    "ask": lambda agent: agent.ask(("unlock", T), timeout=LIMIT),
    "tell": lambda agent: agent.tell("nothing"),
}


def test_each_function_with_an_agent_is_known_here() -> None:
    """A new attribute of agents, or function with an agent, has to be tried with a light one."""
    functions = {f"locks.original.{each}" for each in original.__all__}
    known = {each for each in AGENTS if each.startswith(("locks.", "Agent."))}
    others = {
        f"locks.original.{each}"
        for each in ("begin_transaction", "spawn_agent", "watch", "unwatch", "watchers")
    }
    of_agents = {f"Agent.{each}" for each in Agent._for_users}
    assert of_agents | functions - others <= known


@pytest.mark.parametrize("locked", [False, True])
@pytest.mark.parametrize("name", AGENTS)
def test_a_light_agent_answers_like_any_other(name: str, locked: bool) -> None:
    """Each function says the same of it, and has the same effect."""
    said = []
    for thin in (True, False):
        clocks = (lambda: 10**9, lambda: 1.0)
        node = Node(NAME, log_waits_longer_than=inf, clocks=clocks, first_version=100)
        node.thin.usable = thin
        try:
            with stand_in(node):
                agent, _ = locks.original.begin_transaction()
                if locked:
                    locks.original.lock(agent, T)
                assert (agent in node.thin.agents) == thin
                found = [_told(partial(AGENTS[name], agent)), agent.is_alive()]
                found += [_said(agent.lock_info), locks.queue(T), locks.queue(U), agent.id]
                said.append([*map(str, found)])
                assert not node.thin.agents
        finally:
            node.stop()
    assert said[0] == said[1]


def _told(ask: Callable[[], Any]) -> str:
    """The same, of any error."""
    try:
        return _said(ask)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def test_each_watcher_ends_thin_locks(node: Node) -> None:
    """Who wants to hear of free locks inflates the one that is held, and no lock is thin until that ends."""
    spans = object()
    begins: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
        (lambda: locks.watch(("b",), watcher=print), lambda: locks.unwatch(("b",), watcher=print)),
        (lambda: setattr(node, "trace", print), lambda: setattr(node, "trace", None)),
    ]
    lock = locks.Lock(("thin", 8))
    for begin, end in begins:
        node.thin.pause = 0
        with lock:
            assert node.thin.agents
            begin()
            assert not node.thin.agents
        node.thin.pause = 0
        with lock:
            assert not node.thin.agents
        end()
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patched:
        patched.setattr(Agent, "spans", spans)
        assert not node.thin.is_due()


def test_which_transactions_are_thin(node: Node) -> None:
    """Those whose options need no agent; the others have one from their beginning on."""
    options: list[tuple[bool, dict[str, Any]]] = [
        *((True, {"timeout": 1}), (True, {"label": "x"}), (True, {"nodes": locks.HERE})),
        *((True, {"on_deadlock": "surrender"}), (False, {"await_nodes": True})),
        *((True, {"on_lost": print}), (False, {"owner": locks.Owner("x")})),
    ]
    for thin, chosen in options:
        node.thin.pause = 0
        with locks.transaction(**chosen) as tx:
            tx.write_lock(("thin", 11))
            assert bool(node.thin.agents) == thin, chosen
        assert not locks.holders(("thin",))


def test_tasks_have_thin_locks(node: Node) -> None:
    """Locks and transactions of a task are thin, and end with it."""

    async def work() -> None:
        async with aio.Lock(("thin", 12)):
            assert node.thin.held
        node.thin.pause = 0
        async with aio.transaction() as tx:
            await tx.write_lock(("thin", 12))
            assert node.thin.agents
        node.thin.pause = 0
        lock = aio.RLock(("thin", 12))
        async with lock, lock:
            assert node.thin.held
        assert not node.thin.agents
        await aio.Lock(("thin", 13)).acquire()
        assert node.thin.held

    asyncio.run(work())
    assert not locks.holders(("thin",))
    assert not node.agents()


def test_a_thin_transaction_in_a_forked_child() -> None:
    """There it can't be used, like any other one of the parent; in the parent it goes on."""
    out = run_script(
        """
        import os, locks
        with locks.transaction() as tx:
            tx.lock(("a",))
            assert locks.start().thin.held
            child = os.fork()
            if not child:
                for call in lambda: tx.lock(("b",)), lambda: tx.token(("a",)), lambda: tx.unlock(("a",)):
                    try:
                        call()
                    except locks.errors.TransactionEnded as error:
                        print("belongs to the parent" in str(error), flush=True)
                os._exit(0)
            os.waitpid(child, 0)
            assert locks.start().thin.held
            print(tx.lock(("b",)) > tx.token(("a",)))
        """
    )
    assert out == "True\n" * 4


def test_several_locks_are_thin_at_once(node: Node) -> None:
    """Those of a thread, of a transaction, and of several threads: nothing of them is known to the lock table, until somebody looks."""
    names = [("thin", 20), ("thin", 21), ("other",), ("thin", 22, "x"), ("thin", 22, "y")]
    own = [locks.Lock(each) for each in names]
    assert all(lock.acquire() for lock in own)
    here, done = threading.Barrier(4), threading.Barrier(4)
    tokens: list[int] = []

    def work(number: int) -> None:
        with locks.transaction() as tx:
            tokens.extend(tx.lock(("tx", number, each)) for each in range(5))
            here.wait(LIMIT)
            done.wait(LIMIT)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    here.wait(LIMIT)
    assert len(node.thin.agents) == 4
    assert len(node.thin.held) == 20
    assert not node.agents_by_id
    assert len(set(tokens)) == 15
    holders = locks.holders(("tx",))
    assert sorted(each.number for each in holders) == sorted(tokens)
    assert not node.thin.held
    done.wait(LIMIT)
    for thread in threads:
        thread.join(LIMIT)
    for lock in own:
        lock.release()
    assert not node.agents()


def test_one_turn_inflates_a_bounded_number(node: Node) -> None:
    """A transaction with more locks has its machine from then on, and all of them."""
    with locks.transaction() as tx:
        for number in range(MOST_HERE):
            tx.lock(("many", number))
        assert len(node.thin.held) == MOST_HERE
        tx.lock(("many", "one more"))
        assert not node.thin.held
        assert len(locks.holders(("many",))) == MOST_HERE + 1
    assert not locks.holders(("many",))


RELATED = [
    (("thin", 30), ("thin",)),
    (("thin",), ("thin", 30)),
    (("thin", 30, 1, 2), ("thin", 30)),
    (("thin", 30), ("thin", 30, 1, 2)),
    (("thin", 30), ("thin", 30)),
]


@pytest.mark.parametrize(("first", "second"), RELATED)
def test_a_lock_related_to_a_thin_one_is_not_free(node: Node, first: Any, second: Any) -> None:
    """Another client gets none that conflicts; when the thin one is released, it does."""
    lock = locks.Lock(first)
    assert lock.acquire()
    assert _elsewhere(lambda: locks.Lock(second).acquire(blocking=False)) == "False"
    lock.release()
    node.thin.pause = 0
    assert _elsewhere(lambda: locks.Lock(second).acquire(blocking=False)) == "True"


def test_a_call_from_within_a_thin_transactions_turn(node: Node) -> None:
    """A handler that comes there can release and end, which is done afterwards; all else is refused."""
    tx = locks.transaction()
    tx.__enter__()
    tx.lock(("thin", 14))
    said: list[str] = []

    def handler() -> None:
        said.append(_said(lambda: tx.lock(("thin", 15))).split(":")[0])
        said.append(str(tx.agent.id))
        tx.unlock(("thin", 14))
        said.append(str(bool(node.thin.agents)))

    node.turn.thin(handler)
    assert said == ["ReentrantCall", str(tx.agent.id), "True"]
    assert not locks.holders(("thin",))
    assert tx.agent.is_alive()
    node.turn.run(tx.__exit__, None, None, None)
    assert not tx.agent.is_alive()


def test_a_thin_lock_of_a_dead_thread_is_free_at_once(node: Node) -> None:
    """Nobody has looked at it before its client has ended."""
    thread = threading.Thread(target=lambda: locks.Lock(("thin", 3)).acquire())
    thread.start()
    thread.join()
    assert locks.Lock(("thin", 3)).acquire(timeout=LIMIT)
    locks.Lock(("thin", 3)).release()
    assert not node.agents()


def test_a_waiting_client_gets_a_thin_lock(node: Node) -> None:
    """Who waits for a thin lock gets it when it is released, and sees its holder before."""
    lock = locks.Lock(("thin", 4))
    got: list[bool] = []
    thread = threading.Thread(target=lambda: got.append(locks.Lock(("thin", 4)).acquire()))
    with lock:
        thread.start()
        eventually(lambda: len(locks.queue(("thin", 4)).waiting) == 1)
        assert not got
    thread.join(LIMIT)
    assert got == [True]


def test_only_one_has_a_thin_lock(node: Node) -> None:
    """Threads count under locks that are thin at some times and not at others; no count is lost."""
    chance = random.Random(SEED)
    counts = [0, 0]

    def work(number: int) -> None:
        for turn in range(300):
            which = (number + turn // 50) % 2
            with locks.Lock(("thin", which)):
                before = counts[which]
                if chance.random() < 0.05:
                    locks.holders(("thin", which))
                counts[which] = before + 1
            node.thin.pause = 0

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * LIMIT)
    assert sum(counts) == 4 * 300


def test_a_node_that_stops_releases_thin_locks(node: Node) -> None:
    """What a block holds by it is lost, as it is without thin locks."""

    def stop_within() -> None:
        with locks.Lock(("thin", 6)):
            assert node.thin.held
            locks.stop()

    with pytest.raises(locks.LockLost):
        stop_within()
    assert not locks.holders(("thin", 6))
