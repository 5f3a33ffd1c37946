"""Figures of locks in Dask and Ray, beside what these have themselves: `distributed.Lock`, and an actor of Ray with a lock of asyncio.

Each is a cluster of three workers on this machine, as its own documentation starts one. A task locks and releases again and
again, alone or all three at once; and the worker of a task that has the lock is killed, while a task on another worker waits for it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import locks
from benchmarks.harness import Figure, Report, interleave

__all__ = ["FIGURES"]

WORKERS = 3
ID = ("bench", 1)
KILLS = 5
LIMIT = 40.0  # seconds after which what does not come does not come
SETTLED = 0.5  # seconds from its word until the second task waits


class Pair(NamedTuple):
    """Acquire and release."""

    acquire: Callable[[], object]
    release: Callable[[], object]


def ours() -> Pair:
    """A transaction with one lock."""
    entered = []

    def acquire() -> None:
        entered.append(locks.transaction(timeout=60))
        entered[-1].__enter__().write_lock(ID)

    return Pair(acquire, lambda: entered.pop().__exit__(None, None, None))


def of_dask() -> Pair:
    """The lock of Dask."""
    from distributed import Lock

    lock = Lock("bench")
    return Pair(lock.acquire, lock.release)


def of_ray() -> Pair:
    """A lock of asyncio in an actor."""
    import ray

    actor = ray.get_actor("bench-lock")
    return Pair(lambda: ray.get(actor.acquire.remote()), lambda: ray.get(actor.release.remote()))


def again_and_again(kind: Callable[[], Pair], number: int) -> float:
    """Lock and release so often; return the seconds of one time."""
    pair = kind()
    pair.acquire()
    pair.release()
    begun = time.monotonic()
    for _ in range(number):
        pair.acquire()
        pair.release()
    return (time.monotonic() - begun) / number


def hold(kind: Callable[[], Pair], folder: str) -> None:
    """Lock, say in which process, and hold it until all is over."""
    over, holder = Path(folder, "over"), Path(folder, "holder")
    if over.exists():
        return
    pair = kind()
    pair.acquire()
    draft = Path(folder, f"holder-{os.getpid()}")
    draft.write_text(str(os.getpid()))
    draft.rename(holder)
    while not over.exists():
        time.sleep(0.05)
    pair.release()


def take(kind: Callable[[], Pair], folder: str) -> float:
    """Say that it waits, lock and release; return when it was had, by the machine's clock."""
    pair = kind()
    Path(folder, "waits").touch()
    pair.acquire()
    had = time.monotonic()
    pair.release()
    return had


class LockActor:
    """What Ray's users are advised to have."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def acquire(self) -> None:
        """Acquire."""
        await self._lock.acquire()

    async def release(self) -> None:
        """Release, whoever asks."""
        self._lock.release()


class Engine:
    """A cluster.

    Attributes:
        native: Its own lock, by name.
        limit: Seconds after which its own lock does not come any more.
    """

    native: tuple[str, Callable[[], Pair]]
    limit = LIMIT

    def submit(self, function: Callable[..., Any], *args: Any) -> Any:
        """Start a task."""
        raise NotImplementedError

    def result(self, task: Any, limit: float = 120.0) -> Any:
        """What a task returns; `TimeoutError` if it takes too long."""
        raise NotImplementedError

    def settle(self) -> None:
        """Wait until all workers are there."""

    def close(self) -> None:
        """End it."""
        raise NotImplementedError


class Dask(Engine):
    """A `LocalCluster`."""

    native = ("distributed.Lock", of_dask)

    def __init__(self) -> None:
        from distributed import Client, LocalCluster

        from locks.engines import dask

        self._cluster = LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, dashboard_address=":0"
        )
        self._client = Client(self._cluster)
        dask.install(self._client)

    def submit(self, function: Callable[..., Any], *args: Any) -> Any:
        """Start a task."""
        return self._client.submit(function, *args, pure=False)

    def result(self, task: Any, limit: float = 120.0) -> Any:
        """What a task returns."""
        return task.result(timeout=limit)

    def settle(self) -> None:
        """Wait until all workers are there."""
        self._client.wait_for_workers(WORKERS)

    def close(self) -> None:
        """End it."""
        self._client.close()
        self._cluster.close()


class Ray(Engine):
    """A local cluster."""

    native = ("asyncio lock actor", of_ray)
    limit = 10.0  # nobody releases it

    def __init__(self) -> None:
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")
        import ray

        from locks.engines import ray as engine

        root = str(Path(__file__).parents[1])
        hook = "locks.engines.ray.setup"
        ray.init(
            num_cpus=WORKERS + 1,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
            runtime_env={"worker_process_setup_hook": hook, "env_vars": {"PYTHONPATH": root}},
        )
        self._ray, self._engine = ray, engine
        engine.install()
        options = {"name": "bench-lock", "num_cpus": 0, "max_concurrency": 1000}
        self._actor = ray.remote(LockActor).options(**options).remote()

    def submit(self, function: Callable[..., Any], *args: Any) -> Any:
        """Start a task, which is not tried again."""
        return self._ray.remote(function).options(num_cpus=1, max_retries=0).remote(*args)

    def result(self, task: Any, limit: float = 120.0) -> Any:
        """What a task returns."""
        try:
            return self._ray.get(task, timeout=limit)
        except self._ray.exceptions.GetTimeoutError as error:
            raise TimeoutError from error

    def close(self) -> None:
        """End it."""
        self._engine.uninstall()
        self._ray.shutdown()


def await_file(path: Path) -> None:
    """Wait until a file is there."""
    while not path.exists():
        time.sleep(0.01)


def killed(engine: Engine, kind: Callable[[], Pair], limit: float) -> float | None:
    """Kill the worker that holds the lock; the seconds until a task elsewhere has it, or `None`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "holder")
        holder = engine.submit(hold, kind, folder)
        await_file(path)
        waits = engine.submit(take, kind, folder)
        await_file(Path(folder, "waits"))
        time.sleep(SETTLED)
        process = int(path.read_text())
        begun = time.monotonic()
        os.kill(process, signal.SIGKILL)
        try:
            had: float | None = engine.result(waits, limit) - begun
        except (TimeoutError, asyncio.TimeoutError):
            had = None
        Path(folder, "over").touch()
        del holder  # nobody waits for it
        engine.settle()
    return had


def locking(report: Report, make: Callable[[], Engine], package: str) -> None:
    """Tasks that lock again and again."""
    if report.optional(package) is None:
        return
    number, rounds = (20, 1) if report.quick else (1000, 5)
    engine = make()
    try:
        name, native = engine.native
        kinds = {"locks": ours, name: native}

        def alone(kind: Callable[[], Pair]) -> float:
            return float(engine.result(engine.submit(again_and_again, kind, number)))

        def together(kind: Callable[[], Pair]) -> float:
            each = number // WORKERS
            tasks = [engine.submit(again_and_again, kind, each) for _ in range(WORKERS)]
            return max(float(engine.result(task)) for task in tasks) / WORKERS

        for label, run in {"one task": alone, "three tasks, one lock": together}.items():
            samples = {each: partial(run, kind) for each, kind in kinds.items()}
            for sample in samples.values():
                sample()
            report.compare(interleave(samples, rounds), "locks", name, "ms", label=label)
    finally:
        engine.close()


def killing(report: Report, make: Callable[[], Engine], package: str) -> None:
    """Workers that are killed with a lock. What is native is tried once: it may take its time."""
    if report.optional(package) is None:
        return
    kills = 1 if report.quick else KILLS
    engine = make()
    try:
        name, native = engine.native
        tried = [killed(engine, ours, LIMIT) for _ in range(kills)]
        had = [each for each in tried if each is not None]
        natively = None if report.quick else killed(engine, native, engine.limit)
        never = "" if report.quick or natively else f"; {name}: not within {engine.limit:g} s"
        report.add(
            "the holder is killed: until the next one has it",
            statistics.median(had) * 1000,
            "ms",
            yardstick=name,
            yardstick_value=natively and natively * 1000,
            note=f"{len(had)} of {kills} had it, after {max(had) * 1000:.1f} ms at most{never}",
        )
    finally:
        engine.close()


def contexts(make: Callable[[], Engine], package: str) -> dict[str, Callable[[Report], None]]:
    """What is measured of one engine, each in a process of its own."""
    return {
        "locking": partial(locking, make=make, package=package),
        "killing": partial(killing, make=make, package=package),
    }


FIGURES = [
    Figure(
        "dask",
        "Tasks of Dask that lock, on three workers of this machine",
        contexts(Dask, "distributed"),
    ),
    Figure(
        "ray",
        "Tasks of Ray that lock, on this machine",
        contexts(Ray, "ray"),
    ),
]
