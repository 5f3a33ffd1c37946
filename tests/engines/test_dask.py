"""Locks for Dask, with real clusters on this machine: processes that are killed, tasks that are cancelled, servers that are lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import locks
from locks import aio
from tests.engines import tasks
from tests.engines.tasks import LOCK, noted
from tests.helpers import LIMIT, ROOT, eventually

pytest.importorskip("distributed", reason="Dask is not installed: pip install 'pykka-locks[dask]'")

import dask
from distributed import Client, Future, LocalCluster, Security

from locks.engines import dask as engine

WORKERS = 3


@contextmanager
def running(**options: Any) -> Iterator[Client]:
    """A cluster of three workers with a thread each, as a program of its own would have it."""
    given = {"n_workers": WORKERS, "threads_per_worker": 1, "dashboard_address": ":0", **options}
    # The cluster gives workers up for lost that take longer to start again; by default 15 seconds.
    patience = dask.config.set({"distributed.deploy.lost-worker-timeout": LIMIT})
    with patience, LocalCluster(**given) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def dask_cluster() -> Iterator[Client]:
    """A cluster with a lock server beside the scheduler."""
    with running() as client:
        engine.install(client)
        yield client


@pytest.fixture
def client(dask_cluster: Client) -> Client:
    """The same, with all of its workers connected with the lock server, whatever other tests have done to them."""
    dask_cluster.wait_for_workers(WORKERS, timeout=LIMIT)
    eventually(lambda: everywhere(dask_cluster, servers_connected) == [1] * WORKERS)
    return dask_cluster


def workers(client: Client) -> list[str]:
    """The addresses of the workers."""
    return list(client.scheduler_info(n_workers=-1)["workers"])


def holder(client: Client, folder: Path, **options: Any) -> Future:
    """A task that holds the lock."""
    future = client.submit(tasks.hold, str(folder), pure=False, **options)
    noted(folder, "holder")
    return future


def test_tasks_exclude_each_other_over_workers(client: Client, tmp_path: Path) -> None:
    """Functions and coroutines count without losing anything, each with a larger fencing token, on all workers."""
    folder = str(tmp_path)
    done = [
        client.submit(what, folder, pure=False)
        for _ in range(15)
        for what in (tasks.count, tasks.count_in_a_coroutine)
    ]
    assert len(set(client.gather(done))) == WORKERS
    assert (tmp_path / "number").read_text() == "30"
    tokens = [int(token) for token in (tmp_path / "tokens").read_text().splitlines()]
    assert tokens == sorted(set(tokens)), "a token does not rise"


def test_a_killed_worker_lets_go(client: Client, tmp_path: Path) -> None:
    """Who is killed with the lock has it no more; the next one gets it, and Dask does the task again."""
    first = holder(client, tmp_path)
    second = client.submit(tasks.take, pure=False)
    client.submit(queue_of, 2, pure=False).result(timeout=LIMIT)
    os.kill(int(noted(tmp_path, "holder")[0]), signal.SIGKILL)
    assert second.result(timeout=LIMIT)
    again = noted(tmp_path, "holder", 2)
    assert again[0] != again[1]
    tasks.note(str(tmp_path), "let-go", "")
    assert first.result(timeout=LIMIT) == "held"


def test_a_cancelled_task_lets_go(client: Client, tmp_path: Path) -> None:
    """Its lock is free at once, although its code goes on; that is told by `tx.lost` and `ensure_held`."""
    first = holder(client, tmp_path)
    first.cancel()
    assert client.submit(tasks.take, pure=False).result(timeout=LIMIT)
    assert noted(tmp_path, "holder-told") == ["TransactionEnded"]


def test_a_cancelled_wait_ends(client: Client, tmp_path: Path) -> None:
    """A task that waits for a lock, and is cancelled, leaves the queue and its thread."""
    first = holder(client, tmp_path)
    waits = client.submit(tasks.take, pure=False, key="waits")
    names = client.submit(queue_of, 2, pure=False).result(timeout=LIMIT)
    assert names[1].startswith("task waits at tasks.py:"), names
    waits.cancel()
    assert len(client.submit(queue_of, 1, pure=False).result(timeout=LIMIT)) == 1
    everywhere = [client.submit(os.getpid, pure=False) for _ in range(4)]
    assert client.gather(everywhere)
    tasks.note(str(tmp_path), "let-go", "")
    assert first.result(timeout=LIMIT) == "held"


def queue_of(number: int) -> list[str]:
    """Who has the lock and waits for it, once there are so many."""

    def found() -> list[str]:
        names = tasks.who()
        return names if len(names) == number else []

    return eventually(found)


def test_a_cancelled_task_that_is_wanted_again_is_run_again(client: Client, tmp_path: Path) -> None:
    """The same key is submitted while the cancelled code goes on: what it raises is not the result, but it is done again."""
    worker, *others = workers(client)
    folder = str(tmp_path)
    given: dict[str, Any] = {"key": "wanted", "workers": [worker]}
    first = client.submit(tasks.hold_and_ask, folder, **given)
    noted(tmp_path, "holder")
    first.cancel()
    client.submit(tasks.take, pure=False, workers=others).result(timeout=LIMIT)  # it has let go
    with Client(client.scheduler.address) as other:
        second = other.submit(tasks.hold_and_ask, folder, **given)
        eventually(lambda: client.run(state_of, "wanted", workers=[worker])[worker] == "executing")
        assert len(noted(tmp_path, "holder")) == 1, "it is the first run that goes on"
        tasks.note(folder, "ask", "")
        assert second.result(timeout=LIMIT) == "held"
    assert len(noted(tmp_path, "holder", 2)) == 2


def state_of(key: str, dask_worker: Any) -> str:
    """The state of a task on a worker."""
    task = dask_worker.state.tasks.get(key)
    return str(task and task.state)


def test_a_deadlock_over_workers_is_resolved(client: Client, tmp_path: Path) -> None:
    """Two tasks on two workers lock two ids crosswise: one of them is aborted, once, and both finish."""
    first, second = workers(client)[:2]
    folder = str(tmp_path)
    done = [
        client.submit(tasks.cross, folder, "crossing-1", "a", "b", pure=False, workers=[first]),
        client.submit(tasks.cross, folder, "crossing-2", "b", "a", pure=False, workers=[second]),
    ]
    assert sorted(future.result(timeout=LIMIT) for future in done) == [1, 2]


def test_the_lock_server_is_killed(client: Client, tmp_path: Path) -> None:
    """Its holder is told that it has lost the lock. Another server is started, and tokens go on rising."""
    folder = str(tmp_path)
    client.submit(tasks.count, folder, pure=False).result(timeout=LIMIT)
    first = holder(client, tmp_path)
    (server,) = client.run_on_scheduler(lock_servers)
    os.kill(server, signal.SIGKILL)
    assert noted(tmp_path, "holder-told") == ["LockLost"]
    assert isinstance(first.exception(timeout=LIMIT), locks.LockLost)
    eventually(lambda: client.run_on_scheduler(lock_servers) not in ([], [server]))
    client.submit(count_patiently, folder, pure=False).result(timeout=LIMIT)
    before, after = (int(token) for token in (tmp_path / "tokens").read_text().splitlines())
    assert after > before


def count_patiently(folder: str) -> int:
    """The same as `count`, with a server that may be starting."""
    return locks.run_transaction(
        lambda tx: (tx.write_lock(LOCK), tasks.note(folder, "tokens", tx.token(LOCK)))[0] and 1,
        timeout=60,
        await_nodes=True,
    )


def everywhere(client: Client, function: Callable[[], Any]) -> list[Any]:
    """What a function gives on each worker that is there."""
    return list(client.run(function, on_error="ignore").values())


async def servers_connected() -> int:
    """With how many lock servers this program is connected."""
    return len((await aio.start()).nodes())


def lock_servers() -> list[int]:
    """The processes of lock servers that are children of this one."""
    found = subprocess.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in found.stdout.splitlines() if "locks.engines.beside" in line]
    return [int(line.split()[0]) for line in lines]


def test_another_program_joins(client: Client, tmp_path: Path) -> None:
    """A program that is no part of the cluster shares its locks."""
    first = holder(client, tmp_path)
    script = f"""
import sys, locks
from distributed import Client
from locks.engines import dask
with Client({client.scheduler.address!r}) as client:
    dask.join(client)
    print(locks.holders({LOCK!r})[0].client)
    print(locks.Lock({LOCK!r}).acquire(blocking=False))
"""
    found = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    who, got = found.stdout.splitlines()
    assert who.startswith("task hold-"), who
    assert got == "False"
    tasks.note(str(tmp_path), "let-go", "")
    assert first.result(timeout=LIMIT) == "held"


def test_what_is_wrong_is_said(client: Client) -> None:
    """Numbers that can't be, other lock servers than there are, a cluster without any: nothing has changed then."""
    with pytest.raises(locks.errors.InvalidOption, match="servers=-1 is wrong"):
        engine.install(client, servers=-1)
    with pytest.raises(
        locks.errors.InvalidOption, match="port=65535 is wrong; use a number from 1 to 65533"
    ):
        engine.install(client, servers=3, port=65535)
    with pytest.raises(locks.MisuseError, match="already has 1, not 3"):
        engine.install(client, servers=3)
    engine.install(client)
    assert client.submit(tasks.take, pure=False).result(timeout=LIMIT)


def test_a_majority_of_three(tmp_path: Path) -> None:
    """Of three lock servers one is killed: its holder keeps its lock, others get theirs at once. So again when the first one is back."""
    with running() as client:
        with pytest.raises(locks.MisuseError, match="has no lock servers"):
            engine.join(client)
        others = servers_of(client)  # of another cluster
        engine.install(client, servers=3)

        def servers() -> list[int]:
            return [pid for pid in servers_of(client) if pid not in others]

        for number in range(2):
            folder = tmp_path / f"{number}"
            folder.mkdir()
            eventually(lambda: len(servers()) == 3)
            assert all(client.run(all_serve).values())
            first = holder(client, folder)
            os.kill(servers()[0], signal.SIGKILL)
            assert client.submit(tasks.take, ("other",), pure=False).result(timeout=LIMIT)
            tasks.note(str(folder), "let-go", "")
            assert first.result(timeout=LIMIT) == "held"
            client.submit(tasks.count, str(tmp_path), pure=False).result(timeout=LIMIT)
        before, after = (int(token) for token in (tmp_path / "tokens").read_text().splitlines())
        assert after > before
        left = servers()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left))


def servers_of(client: Client) -> list[int]:
    """The lock servers beside the scheduler, and those of other clusters of its process."""
    found: list[int] = client.run_on_scheduler(lock_servers)
    return found


async def all_serve() -> bool:
    """Whether all lock servers grant locks to this program; waits for it."""
    async with aio.transaction(timeout=60, await_nodes=True) as tx:
        return await tx.write_lock(("all", os.getpid()), require="all") > 0


def test_encrypted(tmp_path: Path) -> None:
    """A cluster with certificates: lock servers and workers use these, too."""
    pytest.importorskip("cryptography", reason="Dask makes certificates with it")
    with running(security=Security.temporary(), n_workers=2) as client:
        engine.install(client)
        folder = str(tmp_path)
        client.gather([client.submit(tasks.count, folder, pure=False) for _ in range(10)])
        assert (tmp_path / "number").read_text() == "10"
        assert all(client.run(uses_tls).values())


def uses_tls() -> bool:
    """Whether this program's node is connected by TLS."""
    node = locks.start()
    return node.cluster is not None and node.cluster.options.tls is not None


def test_the_lock_server_ends_with_its_process(tmp_path: Path) -> None:
    """A scheduler that is killed leaves no lock server behind."""
    from locks.engines.beside import Beside

    async def begin() -> int:
        beside = await Beside.start_process(
            {
                "name": "a@b",
                "cookie": "c" * 20,
                "host": "127.0.0.1",
                "port": 0,
                "names": ["a@b"],
                "tls": None,
            }
        )
        await beside.tell_addresses({"a@b": beside.address})
        return beside._process.pid

    child = os.fork()
    if not child:
        (tmp_path / "server").write_text(str(asyncio.run(begin())))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    server = int((tmp_path / "server").read_text())
    eventually(lambda: not Path(f"/proc/{server}").exists())
