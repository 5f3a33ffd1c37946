"""APScheduler under gunicorn: each worker has the jobs, and one of them runs them.

$ export LOCKS_SERVERS=local
$ gunicorn -w 3 -c gunicorn_clock.py clock:app
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from apscheduler.schedulers.background import BackgroundScheduler

from locks.engines.apscheduler import OneClock


def tick() -> None:
    with Path("ticks.txt").open("a") as ticks:
        ticks.write(f"{os.getpid()}\n")


scheduler = BackgroundScheduler(job_defaults={"misfire_grace_time": 60})
scheduler.add_job(tick, "interval", seconds=0.1, id="tick")
clock = OneClock(scheduler, ("clock",))


def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"one of us runs the clock\n"]
