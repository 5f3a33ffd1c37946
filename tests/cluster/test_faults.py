"""Faults with real processes: nodes killed, stopped and restarted, links cut and healed; one at a time (`soak.py` has them at random)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import locks
from tests.cluster.harness import Answer, Net, Worker, World, until_alive
from tests.helpers import eventually

SERVERS = ("s1@127.0.0.1", "s2@127.0.0.1", "s3@127.0.0.1")
WORKERS = ("w1@127.0.0.1", "w2@127.0.0.1", "w3@127.0.0.1")
X = ["x"]


@pytest.fixture(scope="module")
def all_processes() -> Iterator[Net]:
    """Three lock servers and three workers, the second one monkey-patched."""
    with World() as world:
        yield Net(world, SERVERS, WORKERS, patched=WORKERS[1:2])


@pytest.fixture
def net(all_processes: Net) -> Net:
    """The same, whatever tests have done with them before."""
    net = all_processes
    for proxy in net.links.values():
        proxy.heal()
    for name, process in list(net.there.items()):
        if process.process.poll() is None:
            process.go_on()
        else:
            net.start(name)
    for name in net.workers:
        net.there[name].do("clear", client="mends")
    net.until_whole()
    return net


def workers(net: Net) -> list[Worker]:
    """The programs."""
    return [net.there[name] for name in net.workers]


def holds(worker: Worker, require: str = "majority", **options: object) -> None:
    """Let a worker have the lock, on all three servers."""
    worker.do("begin", **options)
    worker.do("lock", lock_id=X, nodes=list(SERVERS), require=require)
    eventually(lambda: worker.do("granted") == [list(SERVERS)])


def asks(worker: Worker, require: str = "majority") -> Answer:
    """Let a worker ask for the lock."""
    worker.do("begin", await_nodes=True)
    return worker.ask("lock", lock_id=X, nodes=list(SERVERS), require=require)


# --- A holder -----------------------------------------------------------------------------------


def test_a_holder_that_is_killed(net: Net) -> None:
    """SIGKILL of a holder: the next one has the lock, and a larger token."""
    first, second, _ = workers(net)
    holds(first)
    token = first.do("token", lock_id=X)
    waits = asks(second)
    first.kill()
    assert waits.get() == "have_all_locks"
    assert second.do("token", lock_id=X) > token


@pytest.mark.slow
def test_a_holder_that_is_stopped(net: Net) -> None:
    """SIGSTOP of a holder: it is silent, the next one has the lock; it learns so when it goes on."""
    first, second, _ = workers(net)
    holds(first)
    token = first.do("token", lock_id=X)
    waits = asks(second)
    first.stop()
    assert waits.get() == "have_all_locks"
    new = second.do("token", lock_id=X)
    assert new > token
    first.go_on()
    assert first.do("await_lost", timeout=30)
    with pytest.raises(locks.LockLost):
        first.do("ensure_held")
    net.until_whole()
    second.do("ensure_held")
    second.do("end")
    holds(first)
    assert first.do("token", lock_id=X) > new


# --- Servers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["kill", "stop", "cut"])
def test_a_minority_is_lost(net: Net, fault: str) -> None:
    """One of three servers is killed, stopped or cut off: a majority is held without it."""
    first, second, third = workers(net)
    holds(first)
    waits = asks(second)
    lost = SERVERS[1]
    _strike(net, lost, fault)
    rest = [name for name in SERVERS if name != lost]
    until_alive(first, *rest, second.name, third.name)
    until_alive(second, *rest, first.name, third.name)
    first.do("ensure_held")
    assert first.do("lost") == []
    assert not waits.ready
    token = first.do("token", lock_id=X)
    first.do("end")
    assert waits.get() == "have_all_locks"
    assert second.do("token", lock_id=X) > token
    _mend(net, lost, fault)
    net.until_whole()
    second.do("end")
    holds(first, require="all")


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["kill", "stop", "cut"])
def test_a_majority_is_lost(net: Net, fault: str) -> None:
    """Two of three servers go: the holder is told at once; when they are back, all goes on."""
    first, second, _ = workers(net)
    holds(first)
    token = first.do("token", lock_id=X)
    waits = asks(second)
    if (
        fault == "cut"
    ):  # links go one by one: who waits would have both for a moment, and be told so
        for name in SERVERS[:2]:
            net.link(second.name, name).cut()
    for name in SERVERS[:2]:
        _strike(net, name, fault)
    assert first.do("await_lost", timeout=30)
    with pytest.raises(locks.LockLost) as error:
        first.do("ensure_held")
    assert set(error.value.nodes) <= set(SERVERS[:2])
    assert not waits.ready
    for name in SERVERS[:2]:
        _mend(net, name, fault)
    assert waits.get() == "have_all_locks"
    net.until_whole()
    assert second.do("token", lock_id=X) > token


def _strike(net: Net, name: str, fault: str) -> None:
    if fault == "kill":
        net.there[name].kill()
    elif fault == "stop":
        net.there[name].stop()
    else:
        for proxy in net.links_of(name):
            proxy.cut()


def _mend(net: Net, name: str, fault: str) -> None:
    if fault == "kill":
        net.start(name)
    elif fault == "stop":
        net.there[name].go_on()
    else:
        for proxy in net.links_of(name):
            proxy.heal()


def test_closed_connections_are_noticed_at_once(world: World) -> None:
    """The death of a process, or the end of a link, is noticed by that alone: silence would take ten minutes."""
    net = Net(world, SERVERS[:1], WORKERS[:2], net_ticktime=600, meshed=False)
    (server,), (one, other) = net.servers, (net.there[name] for name in WORKERS[:2])
    one.do("begin", objects=[[["cut"], "write", [server]]])
    net.link(one.name, server).cut()
    eventually(lambda: one.do("lost"))
    net.link(one.name, server).heal()
    net.until_whole()
    for worker in (one, other):
        worker.do("begin")
    one.do("lock", lock_id=X, nodes=[server])
    waits = other.ask("lock", lock_id=X, nodes=[server])
    eventually(lambda: other.do("asked", client="looks") == 1)
    one.kill()
    assert waits.get() == "have_all_locks"
    net.there[server].kill()
    eventually(lambda: other.do("lost"))
