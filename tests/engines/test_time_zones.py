"""A new leader continues after the last run of its predecessor, in whatever zone the times of a job are."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from locks.engines.leading import to_mark
from tests.helpers import eventually

pytestmark = pytest.mark.usefixtures("here")

ZONES = ("UTC", "Europe/Berlin", "Asia/Tokyo", "America/New_York")
HOURS = (0, 5, 12, 20, 23)


def last_run(zone: str, hour: int) -> datetime:
    """When a daily job has run last."""
    now = datetime.now(ZoneInfo(zone))
    last = now.replace(hour=hour, minute=0, second=0, microsecond=0)
    return last if last <= now else last - timedelta(days=1)


@pytest.mark.parametrize("zone", ZONES)
def test_a_calendar_job_of_apscheduler_runs_once_a_day(zone: str) -> None:
    """The next run is that of the next day, and the last one is not repeated."""
    background = pytest.importorskip("apscheduler.schedulers.background")
    calendar = pytest.importorskip("apscheduler.triggers.calendarinterval")
    from locks.engines.apscheduler import OneClock

    tz = ZoneInfo(zone)
    ran: list[str] = []
    start = datetime.now(tz).date() - timedelta(days=9)
    # One hour from now on would run during the test.
    hours = [hour for hour in HOURS if hour != (datetime.now(tz) + timedelta(hours=1)).hour]
    scheduler = background.BackgroundScheduler(
        timezone=tz, job_defaults={"misfire_grace_time": None}
    )
    clock = OneClock(scheduler, ("clock of", zone))
    expected = {}
    for hour in hours:
        trigger = calendar.CalendarIntervalTrigger(days=1, hour=hour, timezone=tz, start_date=start)
        last = last_run(zone, hour)
        expected[str(hour)] = trigger.get_next_fire_time(last, datetime.now(tz))
        scheduler.add_job(ran.append, trigger, args=(str(hour),), id=str(hour))
        clock._leading.marks[str(hour)] = to_mark(last)
    clock.start()
    try:
        eventually(lambda: {job.id: job.next_run_time for job in scheduler.get_jobs()} == expected)
    finally:
        clock.stop()
    assert not ran


@pytest.mark.parametrize("zone", ZONES)
def test_a_crontab_of_celery_is_sent_once_a_day(zone: str) -> None:
    """A new leader does not send again what its predecessor has sent for this day."""
    celery = pytest.importorskip("celery")
    from celery import beat
    from celery.schedules import crontab

    from locks.engines.celery import LeaderMixin

    sent: list[str] = []

    class Counts(LeaderMixin, beat.Scheduler):
        def apply_async(self, entry: Any, **options: Any) -> None:
            sent.append(entry.name)

    app = celery.Celery("zones", broker="memory://")
    app.conf.timezone = zone
    hours = [hour for hour in HOURS if hour != (datetime.now(ZoneInfo(zone)).hour + 1) % 24]
    app.conf.beat_schedule = {
        str(hour): {"task": "nothing", "schedule": crontab(hour=hour, minute=0)} for hour in hours
    }
    scheduler = Counts(app=app)
    scheduler._leading.marks = {str(hour): to_mark(last_run(zone, hour)) for hour in hours}
    # Known only to the lock servers, as if the mark of the last moment had not arrived.
    scheduler._since = datetime.now(timezone.utc) - timedelta(days=3)
    try:
        scheduler.tick()
        scheduler.tick()
    finally:
        scheduler.close()
    assert not sent
