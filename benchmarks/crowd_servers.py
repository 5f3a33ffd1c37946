"""What the figures of crowds stand on: lock servers, slowed or stopped, programs that are asked, a PostgreSQL.

Programs are started once for each figure, and told by lines of JSON what to do (`benchmarks.crowd_program`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import locks
from benchmarks.harness import Report
from benchmarks.lab import COOKIE, HOST, Lab, line_of, processor_time

__all__ = [
    "Postgres",
    "Program",
    "Servers",
    "ask_all",
    "fresh",
    "out_of_order",
    "percentile",
    "postgres",
    "servers",
    "slowed",
    "stopped",
    "told",
]

PAUSE = 0.001  # seconds between two looks at how much a server has worked
POSTGRES_USER = "postgres"  # whom the server runs as where this program is root's
POSTGRES_FOLDERS = "/usr/lib/postgresql"  # where Debian has the programs that are not in the path

_numbers = iter(range(1 << 60))


def fresh() -> tuple[Any, ...]:
    """A lock id that nobody has used."""
    return ("crowd", os.getpid(), next(_numbers))


class Servers(NamedTuple):
    """Lock servers that programs share: their names, addresses and processes."""

    names: list[str]
    addresses: list[str]
    processes: list[subprocess.Popen[str]]

    @property
    def given(self) -> dict[str, Any]:
        """What a program passes to `locks.start`."""
        return {"servers": self.addresses, "cookie": COOKIE}


def servers(lab: Lab, number: int, folder: str) -> Servers:
    """Start lock servers that know each other."""
    cookie = Path(folder, "cookie")
    cookie.touch(mode=0o600)
    cookie.write_text(COOKIE)
    found = Servers([], [], [])
    for each in range(number):
        process = lab.start(
            *(sys.executable, "-m", "locks", "node", "--cookie-file", str(cookie)),
            *("--name", f"server{each}@{HOST}"),
            quiet=True,
            peers=found.addresses,
        )
        ready = json.loads(line_of(process))
        found.names.append(ready["name"])
        found.addresses.append(f"{ready['name']}:{ready['port']}")
        found.processes.append(process)
    return found


# --- Programs --------------------------------------------------------------------------------------


class Program:
    """A process that does what each line says.

    Args:
        lab: Starts it.
        kind: What it is.
        module: The module of `benchmarks` that runs it.
        given: What it needs for that.
    """

    def __init__(
        self, lab: Lab, kind: str, /, *, module: str = "crowd_program", **given: Any
    ) -> None:
        command = (sys.executable, "-m", f"benchmarks.{module}", kind, json.dumps(given))
        self.process = lab.start(*command)

    def begin(self, **what: Any) -> None:
        """Have it do something."""
        print(json.dumps(what), file=self.process.stdin, flush=True)

    def end(self) -> Any:
        """What came of it; waits for it."""
        return json.loads(line_of(self.process))


def ask_all(programs: Sequence[Program], **what: Any) -> list[Any]:
    """Have all of them do the same at the same time."""
    for program in programs:
        program.begin(**what)
    return [program.end() for program in programs]


def told(programs: Sequence[Program]) -> None:
    """Wait until all are ready."""
    for program in programs:
        program.end()


# --- Servers that are slow, or silent --------------------------------------------------------------


@contextmanager
def slowed(processes: Sequence[int], times: float) -> Iterator[None]:
    """Slow processes down, as if they had a processor that is so many times slower.

    A process that has worked is stopped for as long as that work would have taken longer. So one that
    waits is not slowed, and one that works gets its share in small pieces.
    """
    done = threading.Event()

    def slow(process: int) -> None:
        before = processor_time(process)
        while not done.wait(PAUSE):
            worked = processor_time(process)
            owed = (worked - before) * (times - 1)
            if owed > PAUSE:
                before = worked
                with stopped(process):
                    done.wait(owed)

    threads = [threading.Thread(target=slow, args=(each,)) for each in processes if times > 1]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


@contextmanager
def stopped(process: int) -> Iterator[None]:
    """Stop a process: it says nothing, and its connections stay open."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


# --- Numbers ---------------------------------------------------------------------------------------


def percentile(values: Sequence[float], percent: int) -> float:
    """The value below which so many percent of them are; the largest of few."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def out_of_order(turns: Sequence[tuple[float, float, int]]) -> float:
    """The share of pairs of waits for the same lock in which the one that began later ended earlier.

    Args:
        turns: When each asked, when it was served, and for which lock.
    """
    pairs = wrong = 0
    for key in {key for _, _, key in turns}:
        served = [granted for _, granted, of in sorted(turns) if of == key]
        pairs += len(served) * (len(served) - 1) // 2
        wrong += sum(later < earlier for n, earlier in enumerate(served) for later in served[n:])
    return wrong / pairs if pairs else 0.0


# --- A PostgreSQL ----------------------------------------------------------------------------------


class Postgres(NamedTuple):
    """A PostgreSQL of one's own: how programs connect with it, and which it is."""

    address: str
    about: str


def _postgres_folder() -> Path | None:
    """The folder that has `initdb` and `postgres`."""
    in_path = shutil.which("initdb")
    found = [Path(in_path).parent] if in_path else []
    found += sorted(Path(POSTGRES_FOLDERS).glob("*/bin"), reverse=True)
    return next((each for each in found if (each / "initdb").exists()), None)


@contextmanager
def postgres(report: Report) -> Iterator[Postgres | None]:
    """Start a PostgreSQL on a port of its own; nothing if it is not installed, which the report says.

    It refuses to be root's. Then it runs as its own user, which Debian makes for it.
    """
    package = report.optional("psycopg")
    programs = _postgres_folder()
    if programs is None:
        report.skipped.append("postgresql is not installed: its rows are left out")
    if package is None or programs is None:
        yield None
        return
    prefix: list[str] = []
    if os.getuid() == 0:
        prefix = [
            "setpriv",
            f"--reuid={POSTGRES_USER}",
            f"--regid={POSTGRES_USER}",
            "--clear-groups",
        ]
    with socket.socket() as found:
        found.bind((HOST, 0))
        port = found.getsockname()[1]
    with TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder:
        if prefix:
            shutil.chown(folder, POSTGRES_USER)
        data = f"{folder}/data"
        made = subprocess.run(
            [*prefix, str(programs / "initdb"), "-D", data, "-A", "trust", "-U", "bench", "-N"],
            capture_output=True, text=True, check=False, cwd=folder,
        )  # fmt: skip
        if made.returncode:
            report.skipped.append(
                f"no PostgreSQL could be made, it is left out: {made.stderr[-200:]}"
            )
            yield None
            return
        options = ["-p", str(port), "-h", HOST, "-k", folder, "-c", "fsync=off"]
        server = subprocess.Popen(
            [*prefix, str(programs / "postgres"), "-D", data, *options],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder,
        )  # fmt: skip
        try:
            address = f"host={HOST} port={port} user=bench dbname=postgres"
            version = _until_up(package, address)
            yield Postgres(address, f"psycopg {package.__version__}, PostgreSQL {version}")
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(20)


def _until_up(package: Any, address: str) -> str:
    """Wait until it answers; the number of its version."""
    for _ in range(2000):
        with suppress(package.OperationalError), package.connect(address) as connection:
            (version,) = connection.execute("show server_version").fetchone()
            return str(version).split()[0]
        time.sleep(0.01)
    raise TimeoutError("PostgreSQL does not answer within 20 s")


def until_all_answer(names: Sequence[str]) -> None:
    """Wait until this program's node has an answer of each server."""
    for name in names:
        while True:
            with suppress(locks.LocksError):
                locks.queue(("crowd",), node=name, timeout=1)
                break
            time.sleep(0.05)
