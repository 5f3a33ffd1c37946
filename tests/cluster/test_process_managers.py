"""Programs of many processes, as others start them: each adds to one counter under one lock."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cluster.harness import World
from tests.cluster.servers import LIMIT, Servers, free_port
from tests.helpers import eventually

ADD = """
import os, pathlib, locks

COUNTER = pathlib.Path(os.environ["COUNTER"])

def add(tx):
    tx.write_lock(("counter",))
    value = int(COUNTER.read_text()) + 1
    COUNTER.write_text(str(value))
    return value
"""
WEB = (
    ADD
    + """
def application(environ, start_response):
    body = str(locks.run_transaction(add, timeout=30)).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]

if "EAGER" in os.environ:
    locks.start()
"""
)
POOL = (
    ADD
    + """
import multiprocessing, sys

def work(number):
    for _ in range(5):
        locks.run_transaction(add, timeout=60)

if __name__ == "__main__":
    locks.run_transaction(add)
    context = multiprocessing.get_context(sys.argv[1])
    if sys.argv[2] == "pool":
        with context.Pool(8) as pool:
            pool.map(work, range(8))
    else:
        processes = [context.Process(target=work, args=(number,)) for number in range(8)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    print(COUNTER.read_text())
"""
)
EACH, CLIENTS = 10, 4


@pytest.fixture(scope="module")
def processes() -> Iterator[Servers]:
    """The lock servers."""
    with World() as world:
        yield Servers(world)


def answer(url: str) -> int | None:
    """What the program says; nothing if nobody is there."""
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, method="POST"), timeout=LIMIT
        ) as got:
            return int(got.read())
    except ConnectionError:
        return None
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionError):
            return None
        raise


@pytest.mark.skipif(find_spec("gunicorn") is None, reason="no gunicorn here")
@pytest.mark.parametrize("eager", ["at the first lock", "when it is loaded"])
@pytest.mark.parametrize(
    "options",
    [
        pytest.param("--preload"),
        pytest.param("", marks=pytest.mark.explore),
        pytest.param("-k gevent", marks=pytest.mark.explore),
        pytest.param("-k gevent --preload", marks=pytest.mark.explore),
        pytest.param("-k gthread --threads 4 --preload", marks=pytest.mark.explore),
    ],
)
def test_gunicorn(processes: Servers, tmp_path: Path, options: str, eager: str) -> None:
    """Of three workers with four clients none loses an addition, loaded before the fork or after it."""
    (tmp_path / "web.py").write_text(WEB)
    counter = tmp_path / "counter"
    counter.write_text("0")
    port = free_port()
    given = [
        "-w",
        "3",
        "-b",
        f"127.0.0.1:{port}",
        "--no-control-socket",
        *options.split(),
        "web:application",
    ]
    environment = processes.environment() | {"COUNTER": str(counter)}
    if eager == "when it is loaded":
        environment["EAGER"] = "1"
    log = tmp_path / "log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", *given],
            cwd=tmp_path,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    answers: list[int | None] = []
    url = f"http://127.0.0.1:{port}/"
    try:
        first = eventually(lambda: answer(url))
        threads = [
            threading.Thread(target=lambda: answers.extend(answer(url) for _ in range(EACH)))
            for _ in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
    finally:
        server.terminate()
        server.wait(timeout=LIMIT)
    assert sorted(map(str, answers)) == sorted(
        str(first + n) for n in range(1, EACH * CLIENTS + 1)
    ), log.read_text()


@pytest.mark.parametrize(
    ("method", "how"),
    [
        ("fork", "processes"),
        *(
            pytest.param(method, how, marks=pytest.mark.explore)
            for method, how in itertools.product(
                ["fork", "forkserver", "spawn"], ["processes", "pool"]
            )
            if (method, how) != ("fork", "processes")
        ),
    ],
)
def test_multiprocessing(processes: Servers, tmp_path: Path, method: str, how: str) -> None:
    """Eight processes of each way to start them; the parent has locked before."""
    program = tmp_path / "pool.py"
    program.write_text(POOL)
    counter = tmp_path / "counter"
    counter.write_text("0")
    done = subprocess.run(
        [sys.executable, program, method, how],
        env=processes.environment() | {"COUNTER": str(counter)},
        capture_output=True,
        text=True,
        timeout=2 * LIMIT,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("41\n", "")
