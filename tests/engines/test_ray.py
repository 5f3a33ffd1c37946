"""Locks for Ray, with a real cluster of three nodes on this machine: workers, actors, lock servers and a node are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import locks
from tests.engines import tasks
from tests.engines.tasks import noted
from tests.helpers import LIMIT, ROOT, eventually

os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # otherwise it writes a token into the home
pytest.importorskip("ray", reason="Ray is not installed: pip install 'pykka-locks[ray]'")

import ray
from ray.cluster_utils import Cluster

from locks.engines import ray as engine

NODES = 3


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Cluster]:
    """Three nodes, each with a lock server."""
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 3, "include_dashboard": False}
    )
    try:
        for _ in range(NODES - 1):
            cluster.add_node(num_cpus=3)
        ray.init(
            cluster.address,
            log_to_driver=False,
            runtime_env={
                "worker_process_setup_hook": "locks.engines.ray.setup",
                "env_vars": {"PYTHONPATH": str(ROOT)},
            },
        )
        engine.install()
        yield cluster
        engine.uninstall()
    finally:
        ray.shutdown()
        cluster.shutdown()


def submit(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Start a task."""
    return ray.remote(function).options(num_cpus=1, **options).remote(*args)


def result(ref: Any) -> Any:
    """What a task returns."""
    return ray.get(ref, timeout=LIMIT)


def holder(folder: Path, **options: Any) -> Any:
    """A task that holds the lock."""
    ref = submit(tasks.hold, str(folder), **options)
    noted(folder, "holder")
    return ref


def queue_of(number: int) -> list[str]:
    """Who has the lock and waits for it, once there are so many."""

    def found() -> list[str]:
        names = tasks.who()
        return names if len(names) == number else []

    return eventually(found)


class Keeper:
    """An actor that takes a lock in one call, and releases it in another one."""

    def __init__(self) -> None:
        self._lock = locks.Lock(tasks.LOCK)

    def acquire(self) -> int:
        """Take it; return the process."""
        self._lock.acquire()
        return os.getpid()

    def release(self) -> None:
        """Release it."""
        self._lock.release()


class Counter:
    """An actor of coroutines."""

    async def count(self, folder: str) -> int:
        """Count under the lock."""
        return await tasks.count_in_a_coroutine(folder)


@pytest.mark.usefixtures("ray_cluster")
def test_tasks_and_actors_exclude_each_other(tmp_path: Path) -> None:
    """Tasks and coroutines of actors count without losing anything, each with a larger fencing token."""
    folder = str(tmp_path)
    counter = ray.remote(Counter).remote()
    refs = [counter.count.remote(folder) for _ in range(15)]
    refs += [submit(tasks.count, folder) for _ in range(15)]
    assert len(set(result(refs))) > 1
    assert (tmp_path / "number").read_text() == "30"
    tokens = [int(token) for token in (tmp_path / "tokens").read_text().splitlines()]
    assert tokens == sorted(set(tokens)), "a token does not rise"


@pytest.mark.usefixtures("ray_cluster")
def test_a_killed_worker_lets_go(tmp_path: Path) -> None:
    """Who is killed with the lock has it no more; the next one gets it, and Ray does the task again."""
    first = holder(tmp_path)
    second = submit(tasks.take)
    assert result(submit(queue_of, 2))[1].startswith("task take ")
    os.kill(int(noted(tmp_path, "holder")[0]), signal.SIGKILL)
    assert result(second)
    assert len(noted(tmp_path, "holder", 2)) == 2
    tasks.note(str(tmp_path), "let-go", "")
    assert result(first) == "held"


@pytest.mark.usefixtures("ray_cluster")
def test_a_cancelled_task_lets_go(tmp_path: Path) -> None:
    """One that has the lock, and one that waits for it: their locks are free, their requests are withdrawn."""
    first = holder(tmp_path)
    second = submit(tasks.take)
    result(submit(queue_of, 2))
    ray.cancel(second)
    assert len(result(submit(queue_of, 1))) == 1
    ray.cancel(first)
    assert result(submit(tasks.take))
    for each in (first, second):
        with pytest.raises(ray.exceptions.TaskCancelledError):
            result(each)


@pytest.mark.usefixtures("ray_cluster")
def test_a_task_that_generates_has_its_locks_until_its_end() -> None:
    """A task with many results is one owner over all of them."""
    values = submit(generate, num_returns="streaming")
    assert [result(value) for value in values] == [0, 1, 2]
    assert result(submit(tasks.take))


def generate() -> Iterator[int]:
    """Yield with a lock that is never released."""
    tx = locks.transaction(timeout=60).__enter__()
    tx.write_lock(tasks.LOCK)
    for number in range(3):
        tx.ensure_held()
        yield number


@pytest.mark.usefixtures("ray_cluster")
def test_a_deadlock_over_workers_is_resolved(tmp_path: Path) -> None:
    """Two tasks lock two ids crosswise: one of them is aborted, once, and both finish."""
    folder = str(tmp_path)
    first = submit(tasks.cross, folder, "crossing-1", "a", "b")
    second = submit(tasks.cross, folder, "crossing-2", "b", "a")
    assert sorted(result([first, second])) == [1, 2]


@pytest.mark.usefixtures("ray_cluster")
def test_an_actor_has_its_locks_until_its_end() -> None:
    """One call takes a lock, another one releases it; an actor that is killed has none any more."""
    keeper = ray.remote(Keeper).remote()
    result(keeper.acquire.remote())
    waits = submit(tasks.take)
    result(submit(queue_of, 2))
    result(keeper.release.remote())
    assert result(waits)
    result(keeper.acquire.remote())
    waits = submit(tasks.take)
    result(submit(queue_of, 2))
    ray.kill(keeper)
    assert result(waits)


@pytest.mark.usefixtures("ray_cluster")
def test_what_is_wrong_is_said() -> None:
    """Numbers that can't be, and other lock servers than there are; to install again does nothing."""
    with pytest.raises(locks.errors.InvalidOption, match="servers=0 is wrong"):
        engine.install(servers=0)
    with pytest.raises(locks.MisuseError, match="already has 3 lock servers, not 1"):
        engine.install(servers=1)
    engine.install()
    assert result(submit(tasks.take))


def servers() -> dict[str, tuple[int, str]]:
    """The lock servers that run: process and node of each."""
    named = [each["name"] for each in ray.util.list_named_actors(all_namespaces=True)]
    asked = {
        ray.get_actor(name, engine.NAMESPACE).__ray_call__.remote(place): name for name in named
    }
    ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=5)
    found = {}
    for ref in ready:
        with suppress(ray.exceptions.RayActorError):
            found[asked[ref]] = ray.get(ref)
    return found


def place(_: object) -> tuple[int, str]:
    """The process and the node of an actor."""
    return os.getpid(), ray.get_runtime_context().get_node_id()


def held_while(folder: Path, fault: Callable[[], object]) -> None:
    """A task on the head node holds the lock through a fault, and the next ones get it."""
    head = ray.get_runtime_context().get_node_id()
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(head, soft=False)
    assert eventually(lambda: result(submit(servers_connected, scheduling_strategy=here)) == NODES)
    first = holder(folder, scheduling_strategy=here)
    fault()
    tasks.note(str(folder), "let-go", "")
    assert result(first) == "held"
    for _ in range(3):
        result(submit(tasks.count, str(folder), scheduling_strategy=here))
    (folder / "let-go").unlink()
    (folder / "holder").unlink()


def servers_connected() -> int:
    """With how many lock servers this program is connected."""
    return len(locks.start().nodes())


def test_a_lock_server_and_a_node_are_killed(ray_cluster: Cluster, tmp_path: Path) -> None:
    """The holder keeps its lock, others get it afterwards, tokens rise; the lost lock server is started anew, elsewhere."""
    before = eventually(lambda: len(found := servers()) == NODES and found)
    assert len({node for _, node in before.values()}) == NODES
    head = ray.get_runtime_context().get_node_id()
    victim = next(name for name, (_, node) in before.items() if node != head)

    def kill_a_server() -> None:
        os.kill(before[victim][0], signal.SIGKILL)
        eventually(lambda: servers().get(victim, before[victim]) != before[victim])

    def kill_a_node() -> None:
        _, lost = servers()[victim]
        node = next(each for each in ray_cluster.worker_nodes if each.node_id == lost)
        ray_cluster.remove_node(node, allow_graceful=False)
        eventually(lambda: servers().get(victim, (0, lost))[1] != lost)

    held_while(tmp_path, kill_a_server)
    held_while(tmp_path, kill_a_node)
    tokens = [int(token) for token in (tmp_path / "tokens").read_text().splitlines()]
    assert len(tokens) == 6
    assert tokens == sorted(set(tokens)), "a token does not rise"
