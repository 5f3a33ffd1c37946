"""Jobs of other people's queues and engines: one at a time over all processes, once each, while one that runs is killed.

The programs are in `jobs/`. Each is started twice; queues are sent each job twice.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cluster.machine import Machine
from tests.cluster.managed import managed
from tests.engines.programs import Program
from tests.helpers import eventually, free_port

JOBS = Path(__file__).with_name("jobs")
LONG = 300.0  # seconds: Prefect begins with a server of its own
SETTINGS = {
    "DO_NOT_TRACK": "1",
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": f"{LONG:g}",
}


class Engine(NamedTuple):
    """A queue or an engine.

    Attributes:
        needs: The packages that have to be installed.
        start: The command that starts a process of it.
        send: A line of Python that sends a job, if it is a queue.
        redis: Whether it needs a Redis.
        first: What has to be done before.
    """

    needs: tuple[str, ...]
    start: str
    send: str = ""
    redis: bool = False
    first: tuple[str, ...] = ()


ENGINES = {
    "huey": Engine(
        ("huey",), "huey_consumer huey_jobs.huey -w 1", "from huey_jobs import *; invoice({})"
    ),
    "rq": Engine(("rq",), "rq worker", "from rq_jobs import *; send({})", redis=True),
    "dramatiq": Engine(
        ("dramatiq", "redis"),
        "dramatiq dramatiq_jobs -p 1 -t 1",
        "from dramatiq_jobs import *; invoice.send({})",
        redis=True,
    ),
    "arq": Engine(
        ("arq",), "arq arq_jobs.Worker", "from arq_jobs import *; asyncio.run(send({}))", redis=True
    ),
    "saq": Engine(
        ("saq",),
        "python -m saq saq_jobs.settings",
        "import asyncio; from saq_jobs import *; asyncio.run(send({}))",
        redis=True,
    ),
    "taskiq": Engine(
        ("taskiq_redis",),
        "taskiq worker taskiq_jobs:broker --workers 1 --max-async-tasks 1",
        "import asyncio; from taskiq_jobs import *; asyncio.run(send({}))",
        redis=True,
    ),
    "luigi": Engine(
        ("luigi",), "python -m luigi --module luigi_jobs Invoices --local-scheduler --no-lock"
    ),
    "dagster": Engine(("dagster",), "python -m dagster job execute -f dagster_jobs.py"),
    "prefect": Engine(("prefect",), "python prefect_jobs.py"),
    "airflow": Engine(
        ("airflow",),
        "airflow dags test invoices",
        first=("airflow db migrate", "airflow dags reserialize"),
    ),
}


@contextmanager
def redis(folder: Path) -> Iterator[dict[str, str]]:
    """A Redis, and where it is."""
    port = free_port()
    with subprocess.Popen(
        [str(shutil.which("redis-server")), "--port", f"{port}", "--save", ""],
        cwd=folder,
        stdout=subprocess.DEVNULL,
    ) as server:
        try:
            eventually(lambda: answers(port))
            url = f"redis://127.0.0.1:{port}/0"
            yield {"REDIS_URL": url, "RQ_REDIS_URL": url}
        finally:
            server.kill()


def answers(port: int) -> bool:
    """Whether somebody listens."""
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.explore
@pytest.mark.parametrize("name", ENGINES)
def test_one_at_a_time_and_once_each(name: str, tmp_path: Path) -> None:
    """While one process writes an invoice the other one waits; it goes on when that is killed; each invoice is written once."""
    engine = ENGINES[name]
    for package in engine.needs:
        pytest.importorskip(package, reason=f"{package} is not installed: pip install {package}")
    if engine.redis and shutil.which("redis-server") is None:
        pytest.skip("there is no redis-server on the path")
    for path in JOBS.glob("*.py"):
        shutil.copy(path, tmp_path)

    def notes() -> list[list[str]]:
        path = tmp_path / "notes"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    with ExitStack() as stack:
        machine = stack.enter_context(Machine())
        observer = Program(machine.program, "import locks\n")
        observer.ready()
        where = stack.enter_context(redis(tmp_path)) if engine.redis else {}
        environment = {**machine.environment, **where, **SETTINGS}
        environment["AIRFLOW__CORE__DAGS_FOLDER"] = str(tmp_path)
        for number in range(2):
            home = tmp_path / f"home {number}"
            home.mkdir()
            environment["HOME"] = str(home)
            for before in engine.first:
                with managed(before, tmp_path, environment) as made:
                    assert made.process.wait(LONG) == 0, made.log
            stack.enter_context(managed(engine.start, tmp_path, environment))
        if engine.send:
            lines = "; ".join(engine.send.format(number) for number in (1, 2, 3, 1, 2, 3))
            with managed(f'python -c "{lines}"', tmp_path, environment) as sender:
                assert sender.process.wait(60) == 0, sender.log
        (first,) = eventually(notes, LONG)
        eventually(lambda: observer.do("len(locks.queue(('invoices',)).waiting)") > 0, LONG)
        assert notes() == [first]
        os.kill(int(first[2]), signal.SIGKILL)
        eventually(lambda: len(notes()) == 2)
        (tmp_path / "go").touch()
        eventually(lambda: all((tmp_path / f"invoice {number}").exists() for number in (1, 2, 3)))
        eventually(lambda: len(notes()) == 7)
    assert notes()[1][2] != first[2]
    rest = iter(notes()[1:])
    done = [(begun, ended) for begun, ended in zip(rest, rest, strict=True)]
    assert all(
        (begun[0], ended[0], begun[1:]) == ("begin", "end", ended[1:]) for begun, ended in done
    )
    assert sorted(begun[1] for begun, _ in done) == ["1", "2", "3"]
