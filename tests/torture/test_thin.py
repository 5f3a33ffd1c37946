"""Thin locks (`locks.node.client.thin`), looked at before each instruction of the calls that take, inflate and release them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.helpers import ROOT, SEED

SCRIPT = """
import logging
import sys
from types import FrameType
from typing import Any

import locks
from tests.torture import systematic
from tests.torture.cases import CASES
from tests.torture.tracing import Tracer

case, fault, first, stride = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
node = locks.start()
found: set[str] = set()
looks = held = 0


class Looking(Tracer):
    def step(self, frame: FrameType, event: str, arg: Any) -> Any:
        global looks, held
        if node.thin.held:
            held += 1
            if not (node.thin.due and node._dispatch.torn):
                found.add(f"{frame.f_code.co_name}:{frame.f_lineno}")
        looks += 1
        super().step(frame, event, arg)
        return self.step


systematic.Tracer = Looking
log = systematic._Log()
logging.getLogger("locks").addHandler(log)
logging.getLogger("locks").propagate = False
at, problems = first, []
while True:
    trial = systematic.play(case, CASES[case].kinds[0], fault, at, log)
    if not trial.struck:
        break
    problems += trial.problems
    at += stride
print(sorted(found), problems, at > first, looks > held > 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["Injected", "view"])
@pytest.mark.parametrize(
    "case",
    [
        *("with RWLock", "with Lock, inflated", "with transaction, lock"),
        *("begin_transaction of one", "with RLock"),
    ],
)
def test_a_held_thin_lock_is_announced_at_each_instruction(case: str, fault: str) -> None:
    """Whatever comes at whatever position: before no instruction is there a thin lock that the next turn would not inflate."""
    command = [sys.executable, "-c", SCRIPT, case, fault, str(SEED % 60), "60"]
    environ = {**os.environ, "LOCKS_SERVERS": "here"}
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("[] [] True True\n", "")
