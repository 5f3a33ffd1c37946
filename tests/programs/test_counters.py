"""Programs that count together, each with several workers: no step is lost, and what a killed one held is free at once.

The programs are in `counters/`.
"""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cluster.machine import Machine
from tests.cluster.managed import managed
from tests.engines.programs import Program
from tests.helpers import eventually
from tests.programs.counters.counting import ROUNDS, WORKERS

COUNTERS = Path(__file__).with_name("counters")


class Counter(NamedTuple):
    """A program.

    Attributes:
        needs: The package that has to be installed.
        start: Starts it.
    """

    needs: str
    start: str


PROGRAMS = {
    "trio": Counter("trio", "python trio_counter.py"),
    "anyio on asyncio": Counter("anyio", "python anyio_counter.py asyncio"),
    "anyio on trio": Counter("anyio", "python anyio_counter.py trio"),
    "gevent": Counter("gevent", "python gevent_counter.py"),
    "Tornado": Counter("tornado", "python tornado_counter.py"),
    "Twisted": Counter("twisted", "python twisted_counter.py"),
    "joblib": Counter("joblib", "python joblib_counter.py"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_killed_program_lets_go(name: str, tmp_path: Path) -> None:
    """Of three programs the one that counts first is killed while it does; the others go on at once, and each step of theirs is there."""
    program = PROGRAMS[name]
    pytest.importorskip(program.needs, reason=f"not installed: pip install {program.needs}")
    for path in COUNTERS.glob("*.py"):
        shutil.copy(path, tmp_path)
    (tmp_path / "count").write_text("0")

    def notes() -> list[list[str]]:
        path = tmp_path / "notes"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    with ExitStack() as stack:
        machine = stack.enter_context(Machine())
        observer = Program(machine.program, "import locks\n")
        observer.ready()
        running = [
            stack.enter_context(managed(program.start, tmp_path, machine.environment))
            for _ in range(3)
        ]
        eventually(lambda: observer.do("len(locks.queue(('counter',)).waiting)") == 8)
        (first,) = notes()
        group = os.getpgid(int(first[1]))
        os.killpg(group, signal.SIGKILL)
        eventually(lambda: len(notes()) == 2)
        (tmp_path / "go").touch()
        for each in running:
            assert each.process.wait(60) == 0 or each.process.pid == group, each.log
    rest = iter(notes()[1:])
    done = [(begun, ended) for begun, ended in zip(rest, rest, strict=True)]
    assert all(
        (begun[0], ended[0], begun[1]) == ("begin", "end", ended[1]) for begun, ended in done
    )
    assert (tmp_path / "count").read_text() == f"{len(done)}"
    assert len(done) == 2 * len(WORKERS) * len(ROUNDS)
