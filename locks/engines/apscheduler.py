"""APScheduler: of several processes that have the same jobs, one runs them.

scheduler = BackgroundScheduler()
scheduler.add_job(report, "cron", hour=4, id="report")
clock = locks.engines.apscheduler.OneClock(scheduler)
clock.start()                       # in each worker
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from queue import SimpleQueue
from typing import Any

from apscheduler.events import (
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_SUBMITTED,
    EVENT_SCHEDULER_SHUTDOWN,
)
from apscheduler.schedulers import SchedulerNotRunningError
from apscheduler.schedulers.base import BaseScheduler

import locks
from locks.engines.leading import Leading, from_mark, to_mark

__all__ = ["OneClock"]

logger = logging.getLogger("locks.engines.apscheduler")

PAUSE = 1.0  # seconds until servers that are missing are asked again
REMEMBERED = 86400.0  # seconds for which a job's last run is remembered that is not there any more
LOOKS = 5.0  # seconds after which it is looked whether it is to end


class OneClock:
    """Runs a scheduler in one of the processes that have it, and in the next one when that one has ended.

    The scheduler is paused where it does not lead. Each run of a job leaves a mark, so the next leader neither repeats nor leaves out
    a run, except one that had begun at the very moment of the death: that one runs once more. What was due while
    nobody led runs late, if the job's `misfire_grace_time` allows it; APScheduler's default is one second. Jobs need ids.

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
        self._unmarked: SimpleQueue[dict[str, int] | None] = SimpleQueue()
        self._marker = threading.Thread(
            target=self._mark_later, name="one clock, marks", daemon=True
        )

    def start(self) -> None:
        """Start the scheduler, and take part; call it after a fork, in each worker."""
        self.scheduler.add_listener(self._has_run, EVENT_JOB_SUBMITTED | EVENT_JOB_MAX_INSTANCES)
        self.scheduler.add_listener(self._has_ended, EVENT_SCHEDULER_SHUTDOWN)
        self.scheduler.start(paused=True)
        self._thread.start()
        self._marker.start()

    def stop(self, wait: bool = True) -> None:
        """Shut the scheduler down, which may be done without this as well; another process leads.

        Args:
            wait: Whether to wait for jobs that are running.
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
        while not self._stopping.is_set():
            try:
                if self._leading.lead(LOOKS):
                    self._lead()
            except locks.LocksError as error:
                if not self._stopping.wait(PAUSE):
                    logger.error("this process can't run the jobs: %s", error)
            except SchedulerNotRunningError:  # it was shut down just now
                self._leading.give_up()
                return

    def _lead(self) -> None:
        logger.info("this process runs the jobs")
        self._catch_up()
        self.scheduler.resume()
        while not self._leading.await_loss(LOOKS):
            pass
        if not self._stopping.is_set():
            self.scheduler.pause()
            logger.error("this process does not run the jobs any more: it has lost its lock")
        self._leading.give_up()

    def _catch_up(self) -> None:
        """Go on after the last run of each job, whoever has run it."""
        now = datetime.now(timezone.utc)
        for job in self.scheduler.get_jobs():
            marked = self._leading.marks.get(job.id)
            if marked is not None and job.next_run_time is not None:
                following = job.trigger.get_next_fire_time(from_mark(marked), now)
                if following is None:
                    job.remove()
                else:
                    job.modify(next_run_time=following)
        recent = to_mark(now - timedelta(seconds=REMEMBERED))
        known = {job.id for job in self.scheduler.get_jobs()}
        marks = dict(self._leading.marks).items()  # more may come meanwhile
        # Also of jobs that have run for the last time here: a process that begins later has them anew.
        self._leading.mark({name: at for name, at in marks if name in known or at > recent})

    def _has_run(self, event: Any) -> None:
        """A run was begun, or left out for another one is running; in the scheduler's thread, or in its event loop."""
        done = {event.job_id: to_mark(max(event.scheduled_run_times))}
        try:
            self._mark(done)
        except locks.BlocksEventLoop:
            self._unmarked.put(done)

    def _mark_later(self) -> None:
        """Set the marks of what has run in an event loop, one after the other."""
        for done in iter(self._unmarked.get, None):
            self._mark(done)

    def _mark(self, done: dict[str, int]) -> None:
        try:
            self._leading.mark(done)
        except locks.BlocksEventLoop:
            raise
        except locks.LocksError as error:
            if not self._stopping.is_set():
                logger.error("can't mark that job %r was run: %s", *done, error)
