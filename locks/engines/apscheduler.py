"""APScheduler: one of several processes with the same jobs runs them.

scheduler = BackgroundScheduler()
scheduler.add_job(report, "cron", hour=4, id="report")
clock = locks.engines.apscheduler.OneClock(scheduler)
clock.start()                       # in each worker
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from queue import SimpleQueue
from typing import Any

from apscheduler.events import (
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_SUBMITTED,
    EVENT_SCHEDULER_SHUTDOWN,
)
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers import SchedulerNotRunningError
from apscheduler.schedulers.base import BaseScheduler

import locks
from locks.engines.leading import Leading, from_mark, to_mark
from locks.program.default import check_shared

__all__ = ["OneClock"]

logger = logging.getLogger("locks.engines.apscheduler")

PAUSE = 1.0  # seconds until missing servers are asked again
REMEMBERED = 86400.0  # seconds for which the last run of a removed job is remembered
LOOKS = 5.0  # seconds between two checks whether it must end


class OneClock:
    """Runs a scheduler in one of the processes that have it; when that process has ended, the next one takes over.

    The scheduler is paused in all processes but the leader. Each run of a job leaves a mark, so the next leader neither repeats nor skips
    a run, with one exception: a run is repeated if its leader dies before a majority of the lock servers has the mark, which it sets when the run begins. Jobs that become due while there is no
    leader run late, if their `misfire_grace_time` allows it; APScheduler's default is one second. Jobs need ids.

    Args:
        scheduler: A scheduler of APScheduler 3, not started yet; with a thread of its own, or in an event loop of asyncio.
        lock_id: What its leader locks; another id is another clock.
    """

    def __init__(self, scheduler: BaseScheduler, lock_id: Sequence[Any] = ("apscheduler",)) -> None:
        self.scheduler = scheduler
        self._leading = Leading(lock_id, "apscheduler")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="one clock", daemon=True)
        # What has run in an event loop, which must not wait until its mark is set.
        self._unmarked: SimpleQueue[tuple[str, int] | None] = SimpleQueue()
        self._marker = threading.Thread(
            target=self._mark_later, name="one clock, marks", daemon=True
        )

    def start(self) -> None:
        """Start the scheduler and compete for the lead; call it in each worker, after a fork.

        Raises:
            MisuseError: The program has no lock servers, so each one would run the jobs.
        """
        check_shared("each process would run the jobs", among_peers=True)
        self.scheduler.add_listener(self._has_run, EVENT_JOB_SUBMITTED | EVENT_JOB_MAX_INSTANCES)
        self.scheduler.add_listener(self._has_ended, EVENT_SCHEDULER_SHUTDOWN)
        self.scheduler.start(paused=True)
        self._thread.start()
        self._marker.start()

    def stop(self, wait: bool = True) -> None:
        """Shut the scheduler down; another process takes over. The scheduler's own shutdown has the same effect.

        Args:
            wait: Whether to wait for running jobs.
        """
        self.scheduler.shutdown(wait=wait)
        self._has_ended(
            None
        )  # a scheduler in the caller's event loop says so when the caller has returned
        self._thread.join()
        self._marker.join()

    def _has_ended(self, _: Any) -> None:
        self._stopping.set()
        self._leading.give_up()
        self._unmarked.put(None)

    def _run(self) -> None:
        try:
            self._lead_in_turn()
        finally:
            self._leading.end()

    def _lead_in_turn(self) -> None:
        while not self._stopping.is_set():
            try:
                if self._leading.lead(LOOKS):
                    self._lead()
            except locks.LocksError as error:
                if not self._stopping.wait(PAUSE):
                    logger.error("this process can't run the jobs: %s", error)
            except SchedulerNotRunningError:  # the scheduler was just shut down
                return

    def _lead(self) -> None:
        logger.info("this process runs the jobs")
        self._catch_up()
        self.scheduler.resume()
        while not self._leading.await_loss(LOOKS):
            pass
        if not self._stopping.is_set():
            self.scheduler.pause()
            logger.error("this process stops running the jobs: it lost its lock")
        self._leading.give_up()

    def _catch_up(self) -> None:
        """Continue after the last run of each job, in any process."""
        now = datetime.now(timezone.utc)
        for job in self.scheduler.get_jobs():
            marked = self._leading.latest(job.id)
            if marked is not None and job.next_run_time is not None:
                # In the zone of the times that the trigger makes: a calendar's trigger takes the local date of the last run.
                last = from_mark(marked).astimezone(job.next_run_time.tzinfo)
                following = job.trigger.get_next_fire_time(last, now)
                with suppress(JobLookupError):  # it was removed, or the scheduler was shut down
                    if following is None:
                        job.remove()
                    else:
                        job.modify(next_run_time=following)
        recent = to_mark(now - timedelta(seconds=REMEMBERED))
        known = {job.id for job in self.scheduler.get_jobs()}
        marks = dict(self._leading.marks).items()  # new marks may arrive meanwhile
        # Also for jobs that have run here for the last time: a process that starts later adds them again.
        self._leading.mark({name: at for name, at in marks if name in known or at > recent})

    def _has_run(self, event: Any) -> None:
        """A run was begun, or left out for another one is running; in the scheduler's thread, or in its event loop."""
        done = (event.job_id, to_mark(max(event.scheduled_run_times)))
        try:
            self._mark(*done)
        except locks.errors.BlocksEventLoop:
            self._unmarked.put(done)

    def _mark_later(self) -> None:
        """Set the marks of what has run in an event loop, one after the other."""
        for done in iter(self._unmarked.get, None):
            self._mark(*done)

    def _mark(self, job: str, at: int) -> None:
        try:
            self._leading.ran(job, at)
        except locks.errors.BlocksEventLoop:
            raise
        except locks.LocksError as error:
            if not self._stopping.is_set():
                logger.error("can't set the mark for a run of job %r: %s", job, error)
