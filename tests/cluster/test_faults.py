"""Faults with real processes: nodes killed, stopped and restarted, links cut and healed.

In the last test faults come at random (`LOCKS_EXPLORE=1`: for 30 seconds), while clients increase a
number in a file under a lock (`tests.cluster.ledger`). `LOCKS_SEED=...` gives
the same faults again, if not at the same moments.

`python -m tests.cluster.test_faults` prints how long it takes until others notice.
"""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import locks
from tests.cluster.harness import Answer, Proxy, Server, Worker, World, until_alive
from tests.helpers import LIMIT, eventually

SERVERS = ("s1@127.0.0.1", "s2@127.0.0.1", "s3@127.0.0.1")
X = ["x"]


class Net(NamedTuple):
    """Three lock servers, programs with clients, and a proxy for the link of each two nodes."""

    world: World
    servers: dict[str, Server]
    workers: list[Worker]
    links: dict[frozenset[str], Proxy]
    ticktime: float

    def link(self, one: str, other: str) -> Proxy:
        """The link between two nodes."""
        return self.links[frozenset((one, other))]

    def links_of(self, name: str) -> list[Proxy]:
        """All links of a node."""
        return [proxy for pair, proxy in self.links.items() if name in pair]

    def until_whole(self, limit: float = LIMIT) -> None:
        """Wait until each worker can ask everybody."""
        names = [*self.servers, *(worker.name for worker in self.workers)]
        for worker in self.workers:
            until_alive(worker, *names, limit=limit)


def start(world: World, workers: int, *, net_ticktime: float = 3, patched: bool = False) -> Net:
    """Start lock servers and workers, each connected with all others through proxies.

    Args:
        world: What ends them.
        workers: How many workers.
        net_ticktime: After how many seconds of silence a node counts as down.
        patched: Whether every second worker is monkey-patched.
    """
    names = [*SERVERS, *(f"w{number}@127.0.0.1" for number in range(1, workers + 1))]
    links = {frozenset(pair): world.proxy() for pair in itertools.combinations(names, 2)}
    net = Net(world, {}, [], links, net_ticktime)
    for name in names:
        peers = _peers(net, names, name)
        if name in SERVERS:
            net.servers[name] = world.server(name, peers, net_ticktime=net_ticktime, mesh=False)
        else:
            odd = len(net.workers) % 2 == 1
            net.workers.append(
                world.worker(
                    name, peers, net_ticktime=net_ticktime, mesh=False, patched=patched and odd
                )
            )
    for process in (*net.servers.values(), *net.workers):
        _lead_to(net, names, process)
    net.until_whole()
    return net


def mend(net: Net) -> None:
    """Let everything be there and whole, and nothing be locked."""
    for proxy in net.links.values():
        proxy.heal()
    for process in (*net.servers.values(), *net.workers):
        if process.process.poll() is None:
            process.go_on()
        else:
            restart(net, process.name)
    for worker in net.workers:
        worker.do("clear", client="mends")
    net.until_whole()


def _peers(net: Net, names: list[str], name: str) -> list[str]:
    """Whom a node dials: those that come before it; through the proxies of these links."""
    return [net.link(name, other).peer(other) for other in names[: names.index(name)]]


def _lead_to(net: Net, names: list[str], process: Server | Worker) -> None:
    """Let the proxies before a node lead to where it is."""
    for later in names[names.index(process.name) + 1 :]:
        net.link(process.name, later).target = process.address


def restart(net: Net, name: str) -> None:
    """Start a node again; it is a new incarnation, at another port."""
    names = [*SERVERS, *(worker.name for worker in net.workers)]
    peers = _peers(net, names, name)
    given: dict[str, Any] = {"net_ticktime": net.ticktime, "mesh": False}
    process: Server | Worker
    if name in SERVERS:
        net.servers[name].kill()
        process = net.servers[name] = net.world.server(name, peers, **given)
    else:
        index = names.index(name) - len(SERVERS)
        net.workers[index].kill()
        process = net.workers[index] = net.world.worker(name, peers, **given)
    _lead_to(net, names, process)


@pytest.fixture(scope="module")
def all_processes() -> Iterator[Net]:
    """Three lock servers and three workers, the second one monkey-patched."""
    with World() as world:
        yield start(world, 3, patched=True)


@pytest.fixture
def net(all_processes: Net) -> Net:
    """The same, whatever tests have done with them before."""
    mend(all_processes)
    return all_processes


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
    first, second, _ = net.workers
    holds(first)
    token = first.do("token", lock_id=X)
    waits = asks(second)
    first.kill()
    assert waits.get() == "have_all_locks"
    assert second.do("token", lock_id=X) > token


@pytest.mark.slow
def test_a_holder_that_is_stopped(net: Net) -> None:
    """SIGSTOP of a holder: it is silent, the next one has the lock; it learns so when it goes on."""
    first, second, _ = net.workers
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
    first, second, third = net.workers
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
    first, second, _ = net.workers
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
        net.servers[name].kill()
    elif fault == "stop":
        net.servers[name].stop()
    else:
        for proxy in net.links_of(name):
            proxy.cut()


def _mend(net: Net, name: str, fault: str) -> None:
    if fault == "kill":
        restart(net, name)
    elif fault == "stop":
        net.servers[name].go_on()
    else:
        for proxy in net.links_of(name):
            proxy.heal()


@pytest.mark.slow
def test_a_stalled_link(net: Net) -> None:
    """A link that takes everything and passes nothing on is found by its silence, from both ends."""
    first, second, _ = net.workers
    holds(first, require="all")
    waits = asks(second, "all")
    proxy = net.link(first.name, SERVERS[0])
    proxy.stall()
    assert first.do("await_lost", timeout=30)
    assert waits.get() == "have_all_locks"  # the server has given up the first one, too
    proxy.heal()
    net.until_whole()
    second.do("ensure_held")


@pytest.mark.slow
def test_a_cut_between_clients(net: Net) -> None:
    """A deadlock of three clients whose nodes are cut off from each other is resolved over their lock server."""
    server = [SERVERS[0]]
    for worker in net.workers:
        worker.do("begin")
        worker.do("lock", lock_id=["ring", worker.name], nodes=server)
    youngest = net.workers[2]
    links = [net.link(worker.name, youngest.name) for worker in net.workers[:2]]
    for link in links:
        link.cut()
    until_alive(youngest, *SERVERS)
    asked = [
        one.ask("lock", lock_id=["ring", other.name], nodes=server)
        for one, other in itertools.pairwise([*net.workers, net.workers[0]])
    ]
    for worker in net.workers:
        lock_id = ["ring", worker.name]
        eventually(
            lambda lock_id=lock_id: net.workers[0].do(  # type: ignore[misc]
                "waiting", client="looks", lock_id=lock_id, node=SERVERS[0]
            )
        )
    assert asked[1].get() == "have_all_locks"  # what the youngest has surrendered
    net.workers[1].do("end")
    assert asked[0].get() == "have_all_locks"
    net.workers[0].do("end")
    assert asked[2].get() == "have_all_locks"
    assert youngest.do("deadlocks") == 1
    for link in links:
        link.heal()


# --- Random faults ------------------------------------------------------------------------------








Fault = Callable[[Net, random.Random, str, float, list[Answer]], Callable[[], object]]


def _stop_some(net: Net, chance: random.Random, *_: object) -> Callable[[], object]:
    process = chance.choice([*net.servers.values(), *net.workers])
    process.stop()
    return process.go_on


def _restart_some(net: Net, chance: random.Random, *_: object) -> Callable[[], object]:
    name = chance.choice(SERVERS)
    net.servers[name].kill()
    return lambda: restart(net, name)


def _cut_some(net: Net, chance: random.Random, *_: object) -> Callable[[], object]:
    proxy = chance.choice(list(net.links.values()))
    proxy.cut()
    return proxy.heal


def _cut_off(net: Net, chance: random.Random, *_: object) -> Callable[[], object]:
    name = chance.choice([*SERVERS, *(worker.name for worker in net.workers)])
    proxies = net.links_of(name)
    for proxy in proxies:
        proxy.cut()
    return lambda: [proxy.heal() for proxy in proxies]


def _stall_some(net: Net, chance: random.Random, *_: object) -> Callable[[], object]:
    proxy = chance.choice(list(net.links.values()))
    proxy.stall()
    return proxy.heal


FAULTS: list[Fault] = [_stop_some, _restart_some, _cut_some, _cut_off, _stall_some]


# --- How long it takes --------------------------------------------------------------------------


def measure(rounds: int = 5) -> dict[str, list[float]]:
    """Measure how long it takes until others notice a fault, with real processes on this machine.

    Args:
        rounds: How often each is measured.

    Returns:
        Seconds: `"kill to grant"`: from the SIGKILL of a holder to the grant of its lock to the
        next client, in another process; `"kill to lost"`: from the SIGKILL of a lock server to the
        moment in which a holder is told that its lock is lost; `"cut to lost"`: likewise from the
        cut of its link.
    """
    found: dict[str, list[float]] = {"kill to grant": [], "kill to lost": [], "cut to lost": []}
    for _ in range(rounds):
        with World() as world:
            for what, seconds in _measure_once(world).items():
                found[what].append(seconds)
    return found


def _measure_once(world: World) -> dict[str, float]:
    given: dict[str, Any] = {"net_ticktime": 600, "mesh": False}  # nobody finds out by silence
    server = world.server("s@127.0.0.1", **given)
    proxy = world.proxy(server.address)
    direct = world.worker("d@127.0.0.1", [server.peer], **given)
    through = world.worker("t@127.0.0.1", [proxy.peer(server.name)], **given)
    for worker in (direct, through):
        until_alive(worker, server.name)
        worker.do("begin")
    nodes = [server.name]
    through.do("lock", lock_id=["cut"], nodes=nodes)
    cut = proxy.cut()
    noticed: float = eventually(lambda: through.do("lost"))[0][0]
    proxy.heal()
    until_alive(through, server.name)
    through.do("begin")
    through.do("lock", lock_id=["kill"], nodes=nodes)
    waits = direct.ask("lock", lock_id=["kill"], nodes=nodes)
    eventually(lambda: direct.do("asked", client="looks") == 1)
    killed = through.kill()
    waits.get()
    server_killed = server.kill()
    lost: float = eventually(lambda: direct.do("lost"))[0][0]
    return {
        "kill to grant": waits.at - killed,
        "kill to lost": lost - server_killed,
        "cut to lost": noticed - cut,
    }




if __name__ == "__main__":
    for what, times in measure().items():
        middle, worst = statistics.median(times), max(times)
        print(f"{what}: median {middle * 1000:.1f} ms, worst {worst * 1000:.1f} ms of {len(times)}")
