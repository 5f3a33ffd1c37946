"""What a program pays before its first lock: what it imports, in processor time of whole processes.

`python -m benchmarks --only import`. Each sample is a process of its own. Subtracted is what one takes that imports gevent and
Pykka alone, and has a hub; so all ratios are of what is beyond these. The yardstick is a process that loads all of `locks`
that a program can need which has servers: until 0.2 `import locks` did that.
"""

from __future__ import annotations

import os
import subprocess
import sys
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import TemporaryDirectory

from benchmarks.harness import Figure, Report, Runs, interleave

__all__ = ["FIGURES"]

STANDS_ON = "import gevent, gevent.event, gevent.lock, logging, pykka; gevent.get_hub()"
ALL = "all that a program with servers loads"
IMPORTED, NAMED, LOCKED = "import locks", "and locks.Lock", "and the first lock of it, alone"
PROGRAMS = {
    "": "",
    IMPORTED: "import locks",
    NAMED: "import locks; locks.Lock",
    LOCKED: "import locks\nwith locks.Lock('a'.split()): pass",
    ALL: "import locks; locks.Lock, locks.Semaphore, locks.locked, locks.facts.waits; import locks.program.meeting",
}
VERSION, PYTHON = "locks --version", "python -c pass"
TARGET = 0.4
AT_MOST = 100.0  # ms of `locks --version`


def seconds(*arguments: str) -> float:
    """The processor time of one process of Python."""

    def spent() -> float:
        usage = getrusage(RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    begun = spent()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return spent() - begun


def imports(report: Report) -> None:
    """Imports, and the command line's quickest answer."""
    rounds = 2 if report.quick else 7
    with TemporaryDirectory() as folder:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a worker has its environment for itself
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        samples = {
            name: lambda program=program: seconds("-c", f"{STANDS_ON}\n{program}")
            for name, program in PROGRAMS.items()
        }
        samples[VERSION] = lambda: seconds("-m", "locks", "--version")
        samples[PYTHON] = lambda: seconds("-c", "pass")
        interleave(samples, 1)  # what they import is compiled
        runs = interleave(samples, rounds)
    beyond = Runs(
        (name, [max(took - stood, 1e-6) for took, stood in zip(runs[name], runs[""], strict=True)])
        for name in (IMPORTED, NAMED, LOCKED, ALL)
    )
    for name in (IMPORTED, NAMED, LOCKED):
        report.compare(beyond, name, ALL, "ms", target=report.limit(TARGET))
    report.compare(runs, VERSION, PYTHON, "ms")
    report.rows[-1].target, report.rows[-1].target_on = report.limit(AT_MOST), "value"


FIGURES = [
    Figure(
        "import",
        "what a program and the command line pay before the first lock, beyond gevent and Pykka",
        {"processes": imports},
    )
]
