"""A free lock on one other node needs no agent's machine, and nobody can tell: `locks.node.client.thin`.

Two worlds of two client nodes and a lock server play the same random scripts, one with thin locks and one without: each call has the same
outcome, and the lock table is the same whenever it is looked at, its versions too. The lock server answers by its thin locks as well.
"""

from __future__ import annotations

import logging
import random
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from typing import Any

import gevent
import pytest
from gevent.event import AsyncResult

import locks
from locks.core.thin import Remote as ThinRemote
from locks.core.thin import Thin
from locks.node.node import Node
from locks.node.peers.guests import Visitor
from locks.node.ports import PendingCall
from locks.program.default import stand_in
from tests.api.test_thin_locks import IDS, Client, World, _said
from tests.cluster.harness import COOKIE
from tests.cluster.nodes import Nodes, link, peer, until_members
from tests.helpers import EXPLORE, LIMIT, SEED, eventually, run_script
from tests.torture.tracing import Tracer, trace

NativeThread = gevent.monkey.get_original("threading", "Thread")

SERVER = "server@127.0.0.1"
ONE, TWO = "one@127.0.0.1", "two@127.0.0.1"
ID = ("a", 1)
SCRIPTS = 400 if EXPLORE else 25
LENGTH = 40


def is_quiet(server: Node, *clients: Node) -> bool:
    """Whether all that was sent is taken in. No node takes a turn for this."""
    before = traffic(server, *clients)
    for node in (server, *clients):
        node.turn.thin(int)  # turns that have counted something are over
    sent, received = before
    return sent == received and traffic(server, *clients) == before


def traffic(*nodes: Node) -> tuple[tuple[int, int], tuple[int, int]]:
    """How many messages were sent to a server and to its clients, and how many have arrived there."""
    server, *clients = [each.cluster.network.traffic for each in nodes if each.cluster]
    sent = sum(each.sent for each in clients), server.sent
    return sent, (server.received, sum(each.received for each in clients))


class Remote(World):
    """A lock server and two client nodes. Clients 0 and 1 live on the first, client 2 on the second."""

    def __init__(self, nodes: Nodes, thin: bool) -> None:
        self.time = 1
        self.eager = True
        self.seen, self.traced = [], []
        self.waits: dict[int, AsyncResult[Any]] = {}
        self.taken: Counter[bool] = Counter()
        clocks = (lambda: self.time * 10**9, lambda: float(self.time))
        self.server, *self.own = connected(nodes, ONE, TWO, clocks=clocks, first_version=100)
        for node in (self.server, *self.own):
            node.thin.usable = thin
        self.served: list[Any] = []
        serve = self.server.thin.serve
        self.server.thin.serve = lambda *args: self.served.append(args) or serve(*args)  # type: ignore[func-returns-value,method-assign]
        self.clients = [Client(f"client {i}") for i in range(3)]

    def do(self, step: tuple[Any, ...]) -> Any:
        """Carry out a step, and wait until nothing is under way; returns what the clients see."""
        what, i, *args = step
        self.node = self.own[i // 2]
        self.server.thin.pause = 0
        found = None
        if i in self.waits:
            if what == "die":
                self.clients[i].greenlet.kill()
                self.clients[i] = Client(f"client {i}")
                del self.waits[i]
        elif what == "wait":
            self._begin_to_wait(i, *args)
        else:
            found = super().do(step)
        eventually(self._is_quiet)
        over = {i: str(self.waits.pop(i).get()) for i in list(self.waits) if self.waits[i].ready()}
        return found, over

    def _begin_to_wait(self, i: int, lock_id: Any, mode: Any) -> None:
        """A client acquires a lock, and waits for it if it has to."""
        self.time += 1
        node, client = self.node, self.clients[i]
        node.thin.pause = 0
        lock: Any = locks.Lock(lock_id, mode)
        lock._home = lambda: node
        client.locks[lock_id] = lock
        self.waits[i] = client.begin(lock.acquire)

    def _is_quiet(self) -> bool:
        """Whether all that was sent is taken in, and who waits no more has gone on. No node takes a turn for this if nobody waits."""
        views = self.table() if self.waits else []
        waiting = [each.client for view in views for each in view.waiting]
        for i, answer in self.waits.items():
            if not (answer.ready() or any(each.startswith(f"client {i}") for each in waiting)):
                return False
        return is_quiet(self.server, *self.own)

    def table(self) -> Any:
        """The lock table. No client node takes a turn for this."""
        return [self.server.view(lock_id) for lock_id in IDS]

    def all(self) -> Any:
        """All that can be seen."""
        told = []
        for node in self.own:
            self.node = node
            told += self._agents()
        statistics = self.server.statistics()
        return [*told, self.table(), statistics.table, statistics.times.holds]

    def close(self) -> list[str]:
        """End its clients; its nodes are stopped with the test's."""
        for client in self.clients:
            client.die()
        return self.seen


def connected(nodes: Nodes, *names: str, **made: Any) -> list[Node]:
    """A lock server, and client nodes of it."""
    server = nodes.start(SERVER, made)
    found = [server]
    for name in names:
        found.append(nodes.start(name, made, mesh=False, listen=False, servers=[peer(server)]))
        until_members(found[-1], SERVER)
    return found


WORDS = {  # and how many arguments each has, and how often it comes
    **dict.fromkeys(["acquire"], (2, 8)),
    **dict.fromkeys(["wait"], (2, 5)),
    **dict.fromkeys(["release"], (1, 8)),
    **dict.fromkeys(["open", "close"], (0, 3)),
    **dict.fromkeys(["take"], (2, 6)),
    **dict.fromkeys(["block", "run"], (2, 2)),
    **dict.fromkeys(["undo", "ask", "owned", "leave", "disown", "give"], (1, 1)),
    **dict.fromkeys(["token"], (1, 3)),
    **dict.fromkeys(["own", "enter", "nest", "get", "request"], (2, 1)),
    **dict.fromkeys(["after", "alive", "end", "die", "hold", "agents", "end_owner"], (0, 1)),
    **dict.fromkeys(["holders", "queue", "locked"], (1, 1)),
}


WAITING = ["acquire", "release", "wait", "token", "block", "queue", "die", "owned"]


def script(chance: random.Random, waits: bool) -> Iterator[tuple[Any, ...]]:
    """A random one, with clients that wait for each other or without."""
    # Two that wait for each other would be a deadlock, and may or may not see it before the time is over.
    words, ids = (WAITING, IDS[-1:]) if waits else ([each for each in WORDS if each != "wait"], IDS)
    for word in chance.choices(words, [WORDS[each][1] for each in words], k=LENGTH):
        arguments = [chance.choice(ids), chance.choice(["read", "write"])]
        yield (word, chance.randrange(3), *arguments[: WORDS[word][0]])


def who(views: Any) -> Any:
    """Who is where in the queues, without the order in which those that die at the same time give up their places."""
    return [
        [(each.agent, each.client, each.lock_id, each.mode, each.granted) for each in view.requests]
        for view in views
    ]


@pytest.mark.parametrize("waits", [False, True])
def test_the_same_with_thin_locks_and_without(nodes: Nodes, waits: bool) -> None:
    """After each step of random scripts, each call has had the same outcome, and the table is the same, now and then.

    So are all versions, and so the tokens, if no client dies while it waits.
    """
    thin, thick = Remote(nodes, True), Remote(nodes, False)
    for number in range(SCRIPTS):
        played = []
        looks = random.Random(f"{SEED} {number} looks")
        for step in script(random.Random(f"{SEED} {number}"), waits):
            played.append(step)
            found, wanted = thin.do(step), thick.do(step)
            if waits:
                eventually(lambda: who(thin.table()) == who(thick.table()))
            assert found == wanted, (number, played)
            if not waits and looks.random() < 0.3:
                assert thin.table() == thick.table(), (number, played)
        for client in range(3):
            assert thin.do(("die", client)) == thick.do(("die", client)), (number, played)
        assert waits or thin.all() == thick.all(), (number, played)
    assert not thick.taken[True]
    assert thin.taken[True] > SCRIPTS
    assert not thick.served
    assert len(thin.served) > SCRIPTS
    thin.close()
    thick.close()


@pytest.fixture
def one(nodes: Nodes) -> Iterator[tuple[Node, Node]]:
    """A lock server, and the program's node, its only client, where the next lock can be thin."""
    server, client = connected(nodes, ONE)
    client.thin.pause = 0
    with stand_in(client):
        yield server, client
    nodes.stop()


def asks(server: Node, lock_id: Any = ID) -> list[str]:
    """Who has or waits for a lock, as its server says."""
    return [each.client.partition(" ")[0] for each in server.view(lock_id).requests]


def in_turns(count: int) -> range:
    """The positions of a disturbed call that are tried here; `LOCKS_EXPLORE` tries all."""
    return range(count) if EXPLORE else range(SEED % 23, count, 23)


class Struck(BaseException):
    """What interrupts a call."""


def _acquire(lock: locks.Lock) -> None:
    lock.acquire()


def _acquire_and_release(lock: locks.Lock) -> None:
    lock.acquire()
    lock.release()


def _transaction(lock: locks.Lock) -> None:
    with locks.transaction() as tx:
        tx.lock(ID)


CALLS = [_acquire, _acquire_and_release, _transaction]


@pytest.mark.parametrize("call", CALLS)
def test_an_interrupted_call_leaves_nothing(
    one: tuple[Node, Node], call: Callable[[locks.Lock], None]
) -> None:
    """An exception before any instruction of a call reaches its caller; then the server keeps nothing, and the lock can be had at once."""
    server, client = one
    lock = locks.Lock(ID)

    def strike() -> None:
        raise Struck

    counter = Tracer()
    trace(counter, lambda: call(lock))
    if call is _acquire:
        lock.release()
    for at in in_turns(counter.count):
        client.thin.pause = 0
        tracer = Tracer(at, strike)
        try:
            trace(tracer, lambda: call(lock))
        except Struck:
            pass
        else:
            assert tracer.struck is None
        if lock.owned():  # it was interrupted before its release, or after it has acquired
            lock.release()
        eventually(lambda: not asks(server))
        assert lock.acquire(timeout=LIMIT)
        lock.release()
        eventually(lambda: not asks(server))
        assert not client.agents_by_id
        assert not client.thin.agents
        assert not client.thin.asking


@pytest.mark.parametrize("call", CALLS)
def test_a_connection_lost_at_any_moment(
    one: tuple[Node, Node], call: Callable[[locks.Lock], None]
) -> None:
    """The call ends as locked, lost or impossible; the server keeps nothing, and the lock can be had again."""
    server, client = one
    lock = locks.Lock(ID, timeout=LIMIT)
    counter = Tracer()
    trace(counter, lambda: call(lock))
    if call is _acquire:
        lock.release()
    positions = list(in_turns(counter.count))
    for at in positions if EXPLORE else positions[::8]:
        client.thin.pause = 0
        lost = link(client, SERVER)
        tracer = Tracer(at, lambda lost=lost: client.turn.post(lost.lose, "the test"))  # type: ignore[misc]
        with suppress(locks.LocksError):
            trace(tracer, lambda: call(lock))
        eventually(lambda: tracer.struck is None or lost.closed)  # noqa: B023
        with suppress(locks.errors.NotHeld):
            lock.release()
        eventually(lambda: not asks(server))
        until_members(client, SERVER)
        assert lock.acquire(timeout=LIMIT)
        lock.release()
        eventually(lambda: not asks(server))


def test_a_free_lock_has_no_agent(one: tuple[Node, Node]) -> None:
    """The server grants it, its token is the server's version, and the client has no agent before somebody looks."""
    server, client = one
    lock = locks.Lock(ID)
    assert lock.acquire()
    assert asks(server) == [threading.current_thread().name]
    assert client.thin.agents
    assert not client.agents_by_id
    (holder,) = server.view(ID).holders
    assert lock.token() == holder.version
    assert client.agents_by_id
    assert not client.thin.agents
    lock.release()
    client.thin.pause = 0
    with locks.transaction() as tx:
        tokens = [tx.lock(("a", i)) for i in range(3)]
        assert len(client.thin.agents) == 1
        assert not client.agents_by_id
        assert tokens == [server.view(("a", i)).holders[0].version for i in range(3)]
    eventually(lambda: not asks(server, ("a",)))


def test_a_wait_goes_on_in_the_usual_way(one: tuple[Node, Node]) -> None:
    """If another holds it, the client waits with an agent, for the rest of its time; then it gets it, or it times out."""
    server, client = one
    other = Client("other")
    held = locks.Lock(ID)
    assert other.call(held.acquire)
    assert not locks.Lock(ID).acquire(blocking=False)
    client.thin.pause = 0
    assert not locks.Lock(ID).acquire(timeout=0.02)
    eventually(lambda: asks(server) == ["other"])
    client.thin.pause = 0
    waiting = gevent.spawn(lambda: locks.Lock(ID).acquire())
    eventually(lambda: len(asks(server)) == 2)
    eventually(lambda: len(client.agents_by_id) == 2)
    other.call(held.release)
    assert waiting.get(timeout=LIMIT)
    other.die()
    eventually(lambda: not asks(server))


@pytest.mark.parametrize("answered", [False, True])
def test_a_killed_client_leaves_nothing(one: tuple[Node, Node], answered: bool) -> None:
    """A client that is killed while it waits for the server's answer, or holds, leaves nothing there."""
    server, client = one

    def client_of_lock() -> None:
        locks.Lock(ID).acquire()
        gevent.sleep(LIMIT)

    with nullcontext() if answered else server.turn._lock:  # the server answers nothing meanwhile
        greenlet = gevent.spawn(client_of_lock)
        eventually(lambda: asks(server) if answered else client.thin.agents or client.agents_by_id)
        greenlet.kill()
    eventually(lambda: is_quiet(server, client))
    eventually(lambda: not asks(server))


def test_whoever_stops_ends_the_wait(one: tuple[Node, Node]) -> None:
    """A client that waits for the server's answer gets an error when its node stops."""
    server, client = one
    with server.turn._lock:
        greenlet = gevent.spawn(lambda: _said(lambda: locks.Lock(ID).acquire()))
        eventually(lambda: client.thin.asking or client.agents_by_id)
        client.stop()
        assert "was stopped" in greenlet.get(timeout=LIMIT)
    eventually(lambda: not asks(server))


AT: dict[str, tuple[Any, str]] = {
    "the client takes the answer in": (ThinRemote, "granted"),
    "the client is woken": (PendingCall, "answer"),
    "the server grants": (Thin, "put"),
    "the server counts": (Visitor, "count"),
}


@pytest.mark.parametrize("where", AT)
def test_an_interrupted_answer(
    one: tuple[Node, Node], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a node is interrupted while it answers or takes it in, the connection is lost, and the call ends: nobody waits for ever."""
    server, client = one
    struck: list[int] = []
    lost = link(client, SERVER)
    owner, name = AT[where]
    usual = getattr(owner, name)

    def interrupted(*args: Any) -> Any:
        if not struck:
            struck.append(1)
            raise Struck
        return usual(*args)

    monkeypatch.setattr(owner, name, interrupted)
    while not struck:  # something else may have been on the way, so that it took the usual way
        server.thin.pause = client.thin.pause = 0
        with suppress(locks.LocksError):
            locks.Lock(ID).acquire(timeout=LIMIT)
            if not struck:
                locks.Lock(ID).release()
    eventually(lambda: lost.closed)
    until_members(client, SERVER)
    with suppress(locks.errors.NotHeld):
        locks.Lock(ID).release()
    eventually(lambda: not asks(server))
    assert locks.Lock(ID).acquire(timeout=LIMIT)


def test_the_server_needs_no_machine_either(one: tuple[Node, Node]) -> None:
    """It only notes who holds what, until somebody looks or is interested; who watches from another node sees each change."""
    server, client = one
    lock = locks.Lock(ID)

    def is_thin() -> bool:
        server.thin.pause = client.thin.pause = 0
        before = len(server.server.history)
        with lock:
            guests = [dict(guest.thin_ids) for guest in server.thin.guests.values()]
        eventually(lambda: not server.thin.guests)
        return guests == [{ID: None}] and len(server.server.history) == before

    eventually(is_thin)  # a timer may have taken a turn
    assert lock.acquire()
    other = Client("other")
    waiting = gevent.spawn(other.call, lambda: locks.Lock(ID).acquire())
    eventually(lambda: len(asks(server)) == 2)
    lock.release()
    assert waiting.get(timeout=LIMIT)
    other.die()
    eventually(lambda: not asks(server))
    seen: list[int] = []

    def see(view: Any) -> None:
        seen.append(len(view.holders))

    locks.watch(ID, watcher=see)
    eventually(lambda: seen == [0])
    server.thin.pause = client.thin.pause = 0
    with lock:
        eventually(lambda: seen == [0, 1])
    eventually(lambda: seen == [0, 1, 0])
    locks.unwatch(ID, watcher=see)


@pytest.mark.parametrize("begins", ["audit", "tracemalloc"])
def test_what_begins_without_a_turn_ends_thin_locks(
    one: tuple[Node, Node], caplog: pytest.LogCaptureFixture, begins: str
) -> None:
    """A program may set the level of the audit log, or begin to trace its memory, while locks are thin: the next lock is not."""
    server, client = one
    held, lock = locks.Lock(("b",)), locks.Lock(ID)
    eventually(lambda: _thin(server, client, held))
    if begins == "audit":
        caplog.set_level(logging.INFO, "locks.audit")
    else:
        tracemalloc.start()
    try:
        with lock:
            assert not server.thin.guests
            assert not client.thin.agents
    finally:
        tracemalloc.stop()
    held.release()
    if begins == "audit":
        eventually(lambda: any("a/1" in each.getMessage() for each in caplog.records))


def _thin(server: Node, client: Node, lock: locks.Lock) -> bool:
    """Take a lock; returns whether it is thin on both sides."""
    server.thin.pause = client.thin.pause = 0
    lock.acquire()
    if server.thin.guests and client.thin.agents:
        return True
    lock.release()
    return False


def test_the_locks_of_a_lost_program_are_free(nodes: Nodes) -> None:
    """Also those that its server has noted only."""
    server, client, other = connected(nodes, ONE, TWO)

    def is_thin() -> bool:
        for node in (server, client, other):
            node.thin.pause = 0
        with stand_in(client):
            locks.Lock(ID).acquire()
            found = bool(server.thin.guests)
            if not found:
                locks.Lock(ID).release()
        return found

    eventually(is_thin)
    client.stop()
    with stand_in(other):
        assert locks.Lock(ID).acquire(timeout=LIMIT)


def test_threads_of_one_owner(one: tuple[Node, Node]) -> None:
    """Threads of one owner are one client: one of them has the lock, others wait for it, and nothing is left."""
    server, client = one
    owner = locks.Owner("all of them")
    lock = locks.Lock(ID, owner=owner)
    inside: list[int] = []

    def work() -> None:
        for _ in range(20):
            client.thin.pause = 0
            assert lock.acquire(timeout=LIMIT)
            inside.append(1)
            assert len(inside) == 1
            inside.pop()
            lock.release()

    threads = [NativeThread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: not any(thread.is_alive() for thread in threads))
    eventually(lambda: not asks(server))


def test_time_that_passes_inflates_nothing(nodes: Nodes) -> None:
    """Heartbeats, and looks for silent nodes, leave what is thin as it is."""
    server = nodes.start(SERVER, net_ticktime=3.0)
    client = nodes.start(ONE, mesh=False, listen=False, servers=[peer(server)], net_ticktime=3.0)
    until_members(client, SERVER)
    inflated: list[int] = []
    for number, node in enumerate((server, client)):
        usual = node.thin.inflate
        node.thin.inflate = lambda number=number, usual=usual: inflated.append(number) or usual()  # type: ignore[func-returns-value, method-assign, misc]

    def stays_thin() -> bool:
        server.thin.pause = client.thin.pause = 0
        lock = locks.Lock(ID)
        with lock:
            assert client.cluster is not None
            inflated.clear()
            before = link(client, SERVER).heard, link(server, ONE).heard
            eventually(lambda: link(client, SERVER).heard > before[0] + 1)
            eventually(lambda: link(server, ONE).heard > before[1] + 1)
            for _ in range(5):
                client.executor.call(client.cluster.silence._look_now)
            return bool(client.thin.agents and server.thin.guests) and not inflated

    with stand_in(client):
        eventually(stays_thin)  # the nodes may still be greeting each other


@pytest.mark.parametrize("is_thin", [True, False])
@pytest.mark.parametrize("beats", [False, True])
def test_a_server_that_falls_silent(nodes: Nodes, is_thin: bool, beats: bool) -> None:
    """A server that does not answer a request is found silent, also if it has sent something else since, and the wait goes on until it does."""
    servers = [nodes.start(name) for name in (SERVER, TWO)]
    client = nodes.start(
        ONE, mesh=False, listen=False, servers=[peer(each) for each in servers], copies=1
    )
    until_members(client, SERVER, TWO)
    ids = [(f"a{i}",) for i in range(40)]
    assert client.servers is not None
    lock_id = next(each for each in ids if client.servers.at(each).nodes == (SERVER,))
    client.thin.pause, client.thin.usable = 0, is_thin
    with stand_in(client):
        with servers[0].turn._lock:
            greenlet = gevent.spawn(lambda: locks.Lock(lock_id).acquire())
            eventually(lambda: client.thin.asking or client.agents_by_id)
            if beats:
                link(client, SERVER).heard += 1
            eventually(lambda: SERVER in client.silent)
            assert not client.thin.asking
        assert greenlet.get(timeout=LIMIT)
    eventually(lambda: not client.silent)


def test_a_forked_child_has_none_of_its_parents(nodes: Nodes) -> None:
    """In a child, the transaction has ended, and nothing is sent; the parent holds its lock as before."""
    server = nodes.start(SERVER)
    told = run_script(f"""
        import gevent, os, locks
        node = locks.start({ONE!r}, servers=[{peer(server)!r}], cookie={COOKIE!r})
        assert node.await_nodes([{SERVER!r}], timeout=60)
        held, other = locks.Lock(("a", 1), timeout=60), locks.Lock(("b", 1), timeout=60)
        node.thin.pause = 0
        held.acquire()
        assert not node.agents_by_id
        (agent,) = node.thin.agents
        sent = node.cluster.network.traffic.sent
        child = os.fork()
        if not child:
            try:
                held.release()
            except locks.errors.LocksError as error:
                print(type(error).__name__, agent.is_alive(), agent.machine.size, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        assert node.cluster.network.traffic.sent == sent and node.thin.agents
        held.release()
        with other:
            print("parent", flush=True)
    """)
    assert told.split() == [
        "MisuseError",
        "False",
        "0",
        "parent",
    ]  # it has a name, which its child can't have
    eventually(lambda: not asks(server, ("a",)))
