"""Elections of candidates that start at the same moment, each in a process of its own, beside the original's.

    LOCKS_ORIGINAL=.../_build/default/lib/locks/ebin python -m benchmarks --only starts

needs what `beam` needs, and `epmd`. The original's candidate is `starts.erl`. Ours and the original's take turns; the processes
of both are dealt out to two cores. What is measured, of both in the same way, is the time on the wall from the
first one's start until the last one knows the leader and has what it hands over (`benchmarks.leader`).
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.beam import ENDLESS, FOLDER, MISSING, ORIGINAL, OURS, add, is_there
from benchmarks.cluster import on_linux
from benchmarks.harness import Figure, Report, Runs
from benchmarks.lab import COOKIE, HOST, Lab, Pins, pinnings
from benchmarks.leader import Group

__all__ = ["FIGURES"]

MOST = 5
CANDIDATES = (2, 3, MOST)
TARGET = 1.0
LOOPBACK = "{127,0,0,1}"


class Originals(Group):
    """Erlang nodes, each with a candidate of the original's.

    Args:
        lab: Starts them.
        number: How many.
        pins: The cores on which they run, in turns.
        folder: Where the compiled `starts.erl` is.
        port: That of the epmd which they are known to.
    """

    def __init__(self, lab: Lab, number: int, pins: Pins, folder: str, port: int) -> None:
        self._folder = folder
        self._port = port
        super().__init__(lab, number, pins)

    def command(self, name: str) -> Sequence[str]:
        """What runs a candidate."""
        return (
            *("env", f"ERL_EPMD_PORT={self._port}", "erl", "-noshell"),
            *("-name", name, "-setcookie", COOKIE, "-start_epmd", "false"),
            *("-kernel", "inet_dist_use_interface", LOOPBACK, "logger_level", "none"),
            *("-pa", FOLDER, self._folder, "-s", "starts", "-extra", *self.arguments(name)),
        )


@contextmanager
def port_mapper(lab: Lab) -> Iterator[int]:
    """An epmd of one's own: its port. It lives as long as the lab."""
    with socket.socket() as found:
        found.bind((HOST, 0))
        port = found.getsockname()[1]
    lab.start("epmd", "-port", str(port), "-address", HOST)

    def answers() -> bool:
        with socket.socket() as tried:
            if tried.connect_ex((HOST, port)):
                return False
            tried.sendall(b"\0\1n")  # who is there?
            return bool(tried.recv(4))

    lab.wait(answers, "epmd does not answer")
    yield port


def compiled(folder: str) -> None:
    """Compile the original's candidate."""
    source = Path(__file__).with_name("starts.erl")
    subprocess.run(["erlc", "-o", folder, str(source)], check=True)


def seconds(members: Group, resource: str) -> float:
    """How long one election takes; infinity if it does not come to an end."""
    try:
        found = members.start_together(resource)
    except TimeoutError:
        return ENDLESS
    finally:
        members.stop_all()
    return (found.agreed - found.begun) / 1e9


def beside_the_original(report: Report) -> None:
    """Elections by ours and by the original's candidates, in turns."""
    if not on_linux(report):
        return
    if not (is_there() and shutil.which("epmd")):
        report.skipped.append(MISSING)
        return
    sizes, rounds = ((2,), 2) if report.quick else (CANDIDATES, 15)
    pins = pinnings(report)[-1]
    runs = Runs()
    with tempfile.TemporaryDirectory() as folder:
        compiled(folder)
        for number in sizes:
            name = f"{number} candidates, at the start"
            with Lab(report, False) as lab, port_mapper(lab) as port:
                groups = {
                    OURS: Group(lab, number, pins),
                    ORIGINAL: Originals(lab, number, pins, folder, port),
                }
                for turn in range(rounds + 1):
                    for whose in sorted(groups, reverse=bool(turn % 2)):
                        took = seconds(groups[whose], f"election {turn} at {time.time_ns()}")
                        if turn:  # the first one is to get warm
                            runs.setdefault(whose + name, []).append(took)
            add(report, runs, name, report.limit(TARGET) if number == MOST else None, "ms")


FIGURES = [
    Figure(
        "starts",
        "candidates in processes of their own that start at once, by ours and by the original's, in turns",
        {"threads": beside_the_original},
    )
]
