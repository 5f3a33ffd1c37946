"""Figures of programs of one machine: the lock server that they share by `servers="local"`, and what else they could use.

The yardsticks are `filelock.FileLock`, `multiprocessing.Lock`, and redis-py's `Lock` on a Redis without
persistence that is started here; what is not installed is left out. A program of the crowd is

    python -m benchmarks.machine KIND PLACE SECONDS

It says that it is ready, waits for a line, and prints how often it had the lock within so many seconds, and the
longest wait.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import locks
from benchmarks.cluster import Sizes, on_linux
from benchmarks.harness import Figure, Report, Sample, interleave
from benchmarks.lab import Lab, Load, line_of, now, pinnings, timed
from locks.net.stream import credentials_of
from locks.program.local import LocalServer

__all__ = ["FIGURES"]

DOMAIN = "bench"
PROGRAMS = 8
ID = ("bench", 1)
HELD = 0.001  # seconds for which a program of the crowd has the lock
WITH = "with transaction() + write_lock"
Operation = Callable[[], float]


def server_process() -> int:
    """The process of the lock server."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(LocalServer(DOMAIN).folder.socket))
        found = credentials_of(sock)
    assert found is not None
    assert found.pid is not None
    return found.pid


def end(process: int) -> None:
    """End the lock server; it is nobody's child."""
    os.kill(process, signal.SIGTERM)
    while Path(f"/proc/{process}").exists():
        time.sleep(0.01)


def pair(acquire: Callable[[], object], release: Callable[[], object]) -> Operation:
    """Acquire and release."""

    def operation() -> float:
        acquire()
        granted = now()
        release()
        return granted

    return operation


def with_transaction() -> float:
    """One transaction, with the fencing token that `write_lock` returns."""
    with locks.transaction() as tx:
        tx.write_lock(ID)
        return now()


def machine(report: Report, green: bool) -> None:
    """One program takes and releases a lock of the machine."""
    if not on_linux(report):
        return
    sizes = Sizes.of(report)
    with tempfile.TemporaryDirectory() as folder, Lab(report, green) as lab:
        os.environ["XDG_RUNTIME_DIR"] = folder
        locks.start(servers=f"local:{DOMAIN}")
        server = server_process()
        try:
            lock = locks.Lock(ID)
            parties = {
                WITH: Load(timed(with_transaction), os.getpid(), [server]),
                "Lock acquire + release": Load(
                    timed(pair(lock.acquire, lock.release)), os.getpid(), [server]
                ),
            }
            yardsticks = {}
            if filelock := report.optional("filelock"):
                on_file = filelock.FileLock(str(Path(folder, "filelock")))
                yardsticks["filelock.FileLock"] = pair(on_file.acquire, on_file.release)
            shared = multiprocessing.Lock()
            yardsticks["multiprocessing.Lock"] = pair(shared.acquire, shared.release)
            others = {name: Load(timed(each), os.getpid(), []) for name, each in yardsticks.items()}
            notes = dict.fromkeys(others, "")
            redis = lab.start_redis()
            if redis is not None:
                others["redis-py's Lock"], notes["redis-py's Lock"], _ = redis
            samples: dict[str, Sample] = {}
            pinned = pinnings(report)
            for pins in pinned:
                for name, load in {**parties, **others}.items():
                    key = f"{pins.name}: {name}"
                    samples[key] = lab.sample(key, pins, load, sizes.seconds)
            runs = interleave(samples, sizes.rounds)
            for pins in pinned:
                for name in parties:
                    for other in others:
                        report.compare(
                            runs,
                            f"{pins.name}: {name}",
                            f"{pins.name}: {other}",
                            yardstick_label=other,
                            note=f"{lab.note(f'{pins.name}: {name}')}; {notes[other]}".rstrip("; "),
                        )
        finally:
            locks.stop()
            end(server)


# --- A crowd ---------------------------------------------------------------------------------------


def neighbours(report: Report) -> None:
    """Programs that want one lock all the time: how often they have it, and who waits for how long."""
    seconds = 0.3 if report.quick else 3.0
    with tempfile.TemporaryDirectory() as folder, Lab(report, green=False) as lab:
        os.environ["XDG_RUNTIME_DIR"] = folder
        kinds = ["locks"]
        if report.optional("filelock"):
            kinds.append("filelock")
        redis = lab.start_redis()
        if redis is not None:
            kinds.append("redis")
        found = {}
        for kind in kinds:
            place = str(redis.port) if redis is not None and kind == "redis" else folder
            module = (sys.executable, "-m", "benchmarks.machine", kind, place, str(seconds))
            programs = [lab.start(*module) for _ in range(PROGRAMS)]
            for program in programs:
                line_of(program)
            for program in programs:
                print(file=program.stdin, flush=True)
            said = [json.loads(line_of(program)) for program in programs]
            if kind == "locks":
                end(server_process())
            found[kind] = [each[0] for each in said], max(each[1] for each in said)
        for kind, (turns, longest) in found.items():
            report.add(
                f"{PROGRAMS} programs, {HELD * 1000:g} ms each: {kind}",
                sum(turns) / seconds,
                "turns/s",
                note=f"longest wait {longest:.3f} s; a program had from {min(turns)} to {max(turns)} turns",
            )


def program(kind: str, place: str, seconds: float) -> None:
    """One program of the crowd."""
    if kind == "locks":
        locks.start(servers=f"local:{DOMAIN}")
        lock = locks.Lock(ID)
    elif kind == "filelock":
        lock = importlib.import_module("filelock").FileLock(str(Path(place, "filelock")))
    else:
        client = importlib.import_module("redis").Redis(port=int(place))
        lock = client.lock("crowd", timeout=30)
    print("ready", flush=True)
    sys.stdin.readline()
    turns, longest, last = 0, 0.0, now() + seconds
    while (asked := now()) < last:
        lock.acquire()
        longest = max(longest, now() - asked)
        turns += 1
        time.sleep(HELD)
        lock.release()
    print(json.dumps([turns, longest]), flush=True)


FIGURES = [
    Figure(
        "machine",
        "Programs of one machine: one lock",
        {
            "hub": lambda report: machine(report, green=True),
            "threads": lambda report: machine(report, green=False),
        },
    ),
    Figure(
        "neighbours", "Programs of one machine that want the same lock", {"two cores": neighbours}
    ),
]

if __name__ == "__main__":
    program(sys.argv[1], sys.argv[2], float(sys.argv[3]))
