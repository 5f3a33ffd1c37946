"""Each engine that has a table of its own is refused where nothing says that it is meant."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.helpers import without_settings
from tests.warm import run_program

ENGINES = {
    "OneClock": (
        "apscheduler",
        "from apscheduler.schedulers.background import BackgroundScheduler\n"
        "from locks.engines.apscheduler import OneClock\n"
        "OneClock(BackgroundScheduler()).start()",
        "each process would run the jobs",
    ),
    "single": (
        "celery",
        "from locks.engines.celery import single\n"
        "@single(('job',))\n"
        "def job(): print('ran')\n"
        "job()",
        "each worker would run job",
    ),
    "beat": (
        "celery",
        "from celery import Celery\n"
        "from locks.engines.celery import Scheduler\n"
        "Scheduler(Celery('t', broker='memory://'), schedule_filename='beat').tick()",
        "each beat would send all tasks",
    ),
    "LockedCommand": (
        "django",
        "import django\n"
        "from django.conf import settings\n"
        "settings.configure(); django.setup()\n"
        "from locks.engines.django import LockedCommand\n"
        "class Command(LockedCommand):\n"
        "    def handle(self, *args, **options): print('ran')\n"
        "Command().run_from_argv(['manage.py', 'job'])",
        "job could run twice at the same time",
    ),
    "tooz": (
        "tooz",
        "from tooz import coordination\ncoordination.get_coordinator('locks://', b'me').start()",
        "other programs would not see this coordinator; use locks+local:// or locks://name@host:port,...",
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_without_servers(engine: str, tmp_path: Path) -> None:
    """It runs nothing, and says which settings are missing; `LOCKS_SERVERS=here` means it."""
    needs, code, why = ENGINES[engine]
    try:
        import_module(needs)
    except ImportError:
        pytest.skip(f"{needs} is not installed")
    known = without_settings()
    done = run_program([sys.executable, "-c", code], env=known, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        f"no lock servers configured: {why}. Set LOCKS_SERVERS=local or call locks.start"
        in done.stderr
    )
    code += "\nimport os; os._exit(0)"
    done = run_program(
        [sys.executable, "-c", code], env={**known, "LOCKS_SERVERS": "here"}, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
