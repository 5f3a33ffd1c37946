"""APScheduler in several processes, of which one runs the jobs: under gunicorn, with workers that are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from itertools import groupby
from pathlib import Path

import pytest

from tests.cluster.managed import web
from tests.cluster.servers import Machine
from tests.engines.programs import Program
from tests.helpers import LIMIT, eventually

pytestmark = pytest.mark.usefixtures("here")
pytest.importorskip(
    "apscheduler", reason="APScheduler is not installed: pip install pykka-locks[apscheduler]"
)

COMMAND = "gunicorn -w 3 -c gunicorn_clock.py clock:app"
# Each run puts down for when it was, which a job is not told: its last run is asked for.
CLOCK = """
from datetime import datetime, timezone
from apscheduler.events import EVENT_JOB_SUBMITTED
from apscheduler.schedulers.background import BackgroundScheduler
from locks.engines.apscheduler import OneClock
import locks
locks.start(servers="local")
first = datetime.fromtimestamp({first!r}, timezone.utc)
scheduler = BackgroundScheduler(job_defaults=dict(misfire_grace_time=None, max_instances=1000, coalesce=False))
scheduler.add_job(int, "interval", seconds=0.1, id="tick", start_date=first)
scheduler.add_job(int, "date", run_date=first, id="once")
runs = []
def has_run(event):
    for at in event.scheduled_run_times:
        runs.append((event.job_id, round((at - first).total_seconds() * 10)))
        print(*runs[-1], len(event.scheduled_run_times), file=log, flush=True)
log = open({log!r}, "a")
scheduler.add_listener(has_run, EVENT_JOB_SUBMITTED)
clock = OneClock(scheduler)
clock.start()
"""


@pytest.mark.explore
def test_of_three_workers_one_runs_the_jobs_and_the_next_one_when_it_is_killed(
    machine: Machine, tmp_path: Path
) -> None:
    """The recipe: only one worker's jobs run at a time; when it is killed, or gunicorn stops it, another one's do."""

    def workers() -> list[int]:
        """Those that have run jobs, one after the other."""
        path = tmp_path / "ticks.txt"
        lines = path.read_text().split() if path.exists() else []
        return [int(pid) for pid, _ in groupby(lines)]

    def ticks() -> int:
        return len((tmp_path / "ticks.txt").read_text().split())

    with web(COMMAND, tmp_path, machine.environment) as (gunicorn, _):
        for turn, number in enumerate((signal.SIGKILL, signal.SIGTERM), 1):
            eventually(lambda turn=turn: len(workers()) == turn)  # type: ignore[misc]
            before = ticks()
            eventually(lambda before=before: ticks() > before + 5)  # type: ignore[misc]
            os.kill(workers()[-1], number)
        eventually(lambda: len(workers()) == 3)
        assert len(set(workers())) == 3
        assert gunicorn.process.poll() is None


@pytest.mark.slow
def test_the_next_one_neither_repeats_nor_leaves_out_a_run(
    machine: Machine, tmp_path: Path
) -> None:
    """The leader is killed, and its lock server too: each run of each job is had once, or once more for a death."""
    log = tmp_path / "runs"
    code = CLOCK.format(first=time.time() + 1, log=str(log))
    one, two, three = (Program(machine.program, code) for _ in range(3))
    for each in (one, two, three):
        each.ready()

    def runs() -> list[int]:
        lines = log.read_text().splitlines() if log.exists() else []
        return [int(line.split()[1]) for line in lines if line.startswith("tick ")]

    def until(program: Program) -> None:
        """Wait until it has run jobs."""
        had = program.do("len(runs)")
        eventually(lambda: program.do("len(runs)") > had + 3)

    running = [one, two, three]
    for _ in range(2):
        eventually(lambda: len(runs()) > 3)
        (leader,) = eventually(
            lambda: [each for each in running if each.do("scheduler.state") == 1]
        )
        until(leader)
        leader.kill()
        running.remove(leader)
    (last,) = running
    until(last)
    server = machine.server()
    assert server is not None
    os.kill(server, signal.SIGKILL)
    until(last)
    found = runs()
    assert sorted(set(found)) == list(range(min(found), max(found) + 1))
    # On a busy machine several runs of a job are begun together, and marked together.
    together = max(int(line.split()[2]) for line in log.read_text().splitlines())
    assert len(found) <= len(set(found)) + 2 * together
    assert 1 <= log.read_text().count("once ") <= 2
    assert last.do("clock.stop()") is None
    assert last.do("scheduler.running") is False
    eventually(lambda: last.do("len(locks.holders(('apscheduler',)))") == 0)


def test_a_scheduler_of_an_event_loop_keeps_one_mark_for_each_job(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In a loop of asyncio marks are set as well, each in the place of the one before; the loop stops the clock itself."""
    from apscheduler.schedulers.asyncio import AsyncIOScheduler

    import locks
    from locks.engines.apscheduler import OneClock

    runs: list[int] = []

    def marks() -> int:
        return sum(
            each.request.lock_id[:2] == ("loop", "marks") for each in locks.facts.waits().requests
        )

    async def main() -> None:
        scheduler = AsyncIOScheduler()
        scheduler.add_job(lambda: runs.append(marks()), "interval", seconds=0.01, id="tick")
        clock = OneClock(scheduler, ("loop",))
        clock.start()
        until = time.monotonic() + LIMIT
        while len(runs) < 20 and time.monotonic() < until:
            await asyncio.sleep(0.01)
        clock.stop()

    try:
        asyncio.run(main())
        assert len(runs) >= 20
        assert 0 < max(runs) <= 2  # the new one and the old one, for a moment
        eventually(lambda: marks() == 0)
        assert not [each for each in caplog.records if each.name.startswith("locks")]
    finally:
        locks.stop()
