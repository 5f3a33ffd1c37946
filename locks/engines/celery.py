"""Celery: one active beat of several, and tasks that run one at a time.

celery -A tasks beat -S locks            # on as many machines as you like: one of them sends

@app.task
@locks.engines.celery.single(("report",))
def report(): ...
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any, ParamSpec, TypeVar

from celery.beat import PersistentScheduler
from celery.schedules import schedstate

import locks
from locks.engines.leading import Leading, from_mark, to_mark
from locks.model import check_lock_id, check_timeout, show
from locks.node.client.clients import plain_label
from locks.program.default import check_shared
from locks.runtime.callables import check_callable, check_ran

__all__ = ["LeaderMixin", "Scheduler", "single"]

P = ParamSpec("P")
R = TypeVar("R")
logger = logging.getLogger("locks.engines.celery")

PAUSE = 1.0  # seconds until missing servers are asked again


class LeaderMixin:
    """Makes a Celery scheduler send tasks only while it leads: `class Scheduler(LeaderMixin, DatabaseScheduler)`.

    All beats of an app compete for a lock, and the holder leads. After it has sent an entry, it sets a mark with the time; the next
    leader continues from there. So a due task is sent once, and a second time only if the leader dies or is cut off between the moment at which the broker
    has the task and the one at which a majority of the lock servers has the mark. Tasks that become due while there is no leader are sent late.

    The lock is `("celery beat", app.main)`; the setting `locks_beat` sets another one.
    """

    app: Any
    schedule: Any
    max_interval: float
    _heap: Any
    _reserved: Any

    def __init__(self, app: Any, *args: Any, **options: Any) -> None:
        lock_id = app.conf.get("locks_beat") or ("celery beat", app.main or "celery")
        self._leading = Leading(lock_id, "celery beat")
        self._since = datetime.now(timezone.utc)
        self._is_set_up = False
        super().__init__(app, *args, **options)  # type: ignore[call-arg]

    def setup_schedule(self) -> None:
        """Do nothing yet: the leader sets the schedule up. Two beats with one schedule file would damage it."""

    def tick(self, *args: Any, **options: Any) -> float:
        """Wait until this beat leads; then send due tasks, like any scheduler.

        Raises:
            MisuseError: The program has no lock servers, so each beat would send.
        """
        if not self._is_set_up:
            check_shared("each beat would send all tasks", among_peers=True)
        try:
            if self._leading.lost:
                logger.error("this beat stops leading: it lost its lock")
                self._step_down()
            if not self._is_set_up:
                if not self._leading.lead(self.max_interval):
                    return 0.0
                self._begin()
            return float(super().tick(*args, **options))  # type: ignore[misc]
        except locks.LocksError as error:
            # An error of the lock servers must not end the beat: it waits for them.
            logger.error("this beat can't lead: %s", error)
            self._step_down()
            return PAUSE

    def _begin(self) -> None:
        """Continue where the previous leader stopped. For new entries, behave as if this beat had started with them."""
        begun = datetime.now(timezone.utc)
        super().setup_schedule()  # type: ignore[misc]
        self._is_set_up = True
        marks = self._leading.marks
        for name, entry in self.schedule.items():
            last = entry.last_run_at
            marked = self._time_of(marks[name]) if name in marks else None
            if last is None or last >= begun:  # the entry is new in this beat's schedule
                entry.last_run_at = marked or self._since.astimezone(self.app.timezone)
            elif marked is not None:
                entry.last_run_at = max(last, marked)
        self._leading.mark(
            {each.name: to_mark(each.last_run_at) for each in self.schedule.values()}
        )
        self._heap = None
        logger.info("this beat leads")

    def _time_of(self, mark: int) -> datetime:
        """In Celery's time zone: a crontab takes the hour and the day of the last run as they are."""
        return from_mark(mark).astimezone(self.app.timezone)

    def is_due(self, entry: Any) -> Any:
        """Whether an entry is due; if so, first look whether the previous leader sent it just before it died."""
        due = super().is_due(entry)  # type: ignore[misc]
        latest = self._leading.latest(entry.name) if due[0] else None
        if latest is None or from_mark(latest) <= entry.last_run_at:
            return due
        entry.last_run_at = self._time_of(latest)
        self._heap = None  # it has the entry with its old time
        return schedstate(False, 0)

    def reserve(self, entry: Any) -> Any:
        """Count a task as sent before it is sent: the returned entry has the time."""
        self._reserved = super().reserve(entry)  # type: ignore[misc]
        schedule = self.schedule
        if (
            entry.name in schedule
        ):  # not all schedulers do that; they would check the old entry again
            schedule[entry.name] = self._reserved
        return self._reserved

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send a due task, and set a mark."""
        super().apply_entry(entry, producer=producer)  # type: ignore[misc]
        self._leading.ran(entry.name, to_mark(self._reserved.last_run_at))

    def _step_down(self) -> None:
        """Stop leading. Close the schedule first, because the next leader may read it."""
        if self._is_set_up:
            self._is_set_up = False
            super().close()  # type: ignore[misc]
        self._leading.give_up()

    def close(self) -> None:
        """End the beat; another one leads immediately. Celery calls this twice, the first time in a signal handler."""
        self._step_down()
        self._leading.end()


class Scheduler(LeaderMixin, PersistentScheduler):
    """Celery's own scheduler for several beats: `celery -A tasks beat -S locks`."""


def single(
    lock_id: Sequence[Any] | Callable[..., Sequence[Any]], *, timeout: float = 0
) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
    """Run a task one at a time, over all workers: a second call at the same time does nothing, and returns `None`.

    This covers a task that was sent twice, one that took longer than its period, and one that a broker delivers again while it is
    still running. If its worker is killed, the next call may run immediately.

    Args:
        lock_id: The lock id; or a function of the task's arguments that returns it, if the id depends on them.
        timeout: Seconds to wait for a running call.

    Returns:
        The decorator; write it below `@app.task`. A call raises `MisuseError` if the program has no lock servers.

    Raises:
        InvalidOption: The timeout is wrong.
        InvalidLockId: The lock id is wrong.
    """
    check_timeout(timeout)
    fixed = None if callable(lock_id) else check_lock_id(lock_id)

    def decorate(function: Callable[P, R]) -> Callable[P, R | None]:
        check_callable(function, "function", "a task is a function")
        label = plain_label(f"task {function.__qualname__}")

        @functools.wraps(function)
        def run(*args: P.args, **options: P.kwargs) -> R | None:
            wanted = lock_id(*args, **options) if callable(lock_id) else fixed
            assert wanted is not None
            check_shared(f"each worker would run {function.__qualname__}", among_peers=True)
            with locks.transaction(label=label) as tx:
                try:
                    tx.write_lock(wanted, timeout=timeout)
                except (locks.LockTimeout, locks.errors.WaitsForItself) as error:
                    # A task that calls a single task with the same lock, in its own thread, would wait for itself.
                    holders = ", ".join(each.client for each in getattr(error, "holders", ()))
                    logger.info(
                        "%s is not run: %s holds %s",
                        function.__qualname__, holders or "its caller", show(check_lock_id(wanted)),
                    )  # fmt: skip
                    return None
                return check_ran(function(*args, **options), "the function", "a task is a function")

        return run

    return decorate
