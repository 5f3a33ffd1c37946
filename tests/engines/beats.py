"""Beats of Celery: a schedule of many entries, each due once, and what was sent of it."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.managed import Managed, managed
from tests.cluster.servers import Machine
from tests.engines.programs import Program
from tests.helpers import eventually

__all__ = ["Beats"]

# Each entry is due once, so each can be counted. What is new to a schedule counts as done now: the first is due a while after.
APP = """
import os, time
from celery import Celery
from celery.schedules import schedstate, schedule

FIRST, STEP, NUMBER = {first!r}, {step!r}, {number!r}

class At(schedule):
    def __init__(self, at):
        super().__init__(1)
        self.at = at
    def is_due(self, last):
        left = self.at - time.time()
        if last.timestamp() >= self.at:
            return schedstate(False, 3600)
        return schedstate(left <= 0, 3600 if left <= 0 else left)
    def __reduce__(self):
        return type(self), (self.at,)

app = Celery("beating", broker="filesystem://")
app.conf.broker_transport_options = dict(data_folder_in={queue!r}, data_folder_out={queue!r})
app.conf.beat_schedule = {{
    f"task {{number}}": dict(task="nothing", schedule=At(FIRST + number * STEP), args=[number])
    for number in range(NUMBER)
}}
"""
OBSERVER = """
import locks
locks.start(servers="local")
def waiting():
    return len(locks.queue(("celery beat", "beating", "leader")).waiting)
def leader():
    found = locks.holders(("celery beat", "beating", "leader"))
    return int(found[0].client.rstrip(")").rpartition(" ")[2]) if found else None
"""


class Beats:
    """Beats of one app on one machine.

    Args:
        machine: The machine.
        folder: Where each of them has a folder.
        first: When the first entry is due.
        step: How long after it the next one is.
        number: How many there are.

    Attributes:
        running: Those that run.
    """

    def __init__(
        self, machine: Machine, folder: Path, first: float, step: float, number: int
    ) -> None:
        self.machine, self.folder = machine, folder
        self.first, self.step, self.number = first, step, number
        self.queue = folder / "queue"
        self.queue.mkdir()
        self._begun = 0
        self.observer = Program(machine.program, OBSERVER)
        self.observer.ready()

    @contextmanager
    def beat(self) -> Iterator[Managed]:
        """A beat, which is ended at the end of the block."""
        self._begun += 1
        own = self.folder / f"beat {self._begun}"
        own.mkdir()
        code = APP.format(
            first=self.first, step=self.step, number=self.number, queue=str(self.queue)
        )
        (own / "beating.py").write_text(code)
        with managed(
            "celery -A beating beat -S locks -l INFO", own, self.machine.environment
        ) as made:
            yield made

    def leader(self) -> int:
        """The process that leads; it is waited for."""
        found: int = eventually(lambda: self.observer.do("leader()"))
        return found

    def waiting(self) -> int:
        """How many wait to lead."""
        found: int = self.observer.do("waiting()")
        return found

    def sent(self) -> list[tuple[int, float]]:
        """What was sent, and when."""
        found = []
        for path in self.queue.glob("*.msg"):
            text = path.read_text()
            if text.endswith("}"):  # otherwise it is being written, or its writer was killed
                body = json.loads(base64.b64decode(json.loads(text)["body"]))
                found.append((int(body[0][0]), path.stat().st_mtime))
        return sorted(found)

    def due(self) -> int:
        """The number of the first entry that is not due yet."""
        return max(0, int((time.time() - self.first) / self.step) + 1)

    def unsent(self, first: int, end: int) -> list[int]:
        """Which entries from the first one to this one were not sent."""
        return sorted(set(range(first, end)) - {number for number, _ in self.sent()})
