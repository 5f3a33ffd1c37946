"""Event loops that `locks.aio` does not support: what would block them, or let all their tasks hold a lock at once, is refused."""

from __future__ import annotations

import os
import sys

import pytest

from tests.warm import run_program

TRIED = """
def tried():
    import locks
    said = []
    for make in (locks.Lock, locks.RLock, lambda lock_id: locks.transaction()):
        try:
            with make(("x",)) as got:
                got.write_lock(("x",))
        except locks.MisuseError as error:
            said.append(f"{type(error).__name__}: {error}")
    try:
        locks.aio.tasks.current_owner()
    except locks.MisuseError as error:
        said.append(str(error))
    return said

def in_thread():
    with locks.RLock(("x",)):
        return "in a thread"
"""
LOOPS = {
    "twisted": """
import locks, locks.aio.tasks
from twisted.internet import selectreactor
selectreactor.install()
from twisted.internet import task, reactor
from twisted.internet.defer import ensureDeferred
from twisted.internet.threads import deferToThread

async def main():
    print(*tried(), sep="\\n")  # before the reactor runs
    await task.deferLater(reactor, 0)
    print(*tried(), await deferToThread(in_thread), sep="\\n")

with locks.RLock(("x",)):
    pass
task.react(lambda reactor: ensureDeferred(main()))
""",
    "eventlet": """
import eventlet, locks, locks.aio.tasks
from eventlet import tpool

def main():
    print(*tried(), tpool.execute(in_thread), sep="\\n")

with locks.RLock(("x",)):
    pass
eventlet.spawn(main).wait()
""",
}


def said(code: str) -> list[str]:
    """What a program prints, whose locks are its own."""
    done = run_program(
        [sys.executable, "-c", code],
        env=os.environ | {"LOCKS_SERVERS": "here", "PYTHONWARNINGS": "ignore"},
    )
    return [line for line in (done.stdout + done.stderr).splitlines() if line]


@pytest.mark.parametrize("name", LOOPS)
def test_tasks_that_share_a_thread_are_refused(name: str) -> None:
    """Three tasks of such a loop would hold one `RLock` at once, as they are one client. The error says what works, and that does."""
    pytest.importorskip(name, reason=f"not installed: pip install {name}")
    *refused, last = said(TRIED + LOOPS[name])
    assert last == "in a thread", refused
    assert len(refused) == (8 if name == "twisted" else 4)
    works = {"twisted": "deferToThread", "eventlet": "tpool.execute"}
    assert all(works[name] in line for line in refused)
    assert sum(line.startswith("BlocksEventLoop: ") for line in refused) == 3 * len(refused) // 4


def test_threads_that_eventlet_has_replaced_are_refused() -> None:
    """A node needs native threads: without them the program would hang."""
    pytest.importorskip("eventlet", reason="not installed: pip install eventlet")
    code = "import eventlet\neventlet.monkey_patch()\nimport locks\nlocks.start()"
    assert "MisuseError: locks needs native threads" in said(code)[-1]
