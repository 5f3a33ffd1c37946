"""Django: the setting, and commands of `manage.py` that run one at a time, as programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.managed import Managed
from tests.cluster.servers import Machine
from tests.helpers import eventually

pytest.importorskip("django", reason="Django is not installed: pip install pykka-locks[django]")

SETTINGS = """
SECRET_KEY = "x"
INSTALLED_APPS = ["shop", "locks.engines.django.LocksConfig"]
USE_TZ = True
LOCKS = {locks}
"""
MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
BILL = """
import sys, time
from pathlib import Path
from locks.engines.django import LockedCommand

class Command(LockedCommand):
    def add_arguments(self, parser):
        parser.add_argument("until")
    def handle(self, *args, until, **options):
        self.locked.ensure_held()
        self.stdout.write("begins")
        self.stdout.flush()
        while not Path(until).exists():
            time.sleep(0.01)
        self.stdout.write("is done")
"""


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A machine of our own, whose programs are told nothing by their environment."""
    with Machine() as made:
        del made.environment["LOCKS_SERVERS"]
        yield made


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one command."""
    commands = tmp_path / "shop" / "management" / "commands"
    commands.mkdir(parents=True)
    for folder in (commands, commands.parent, commands.parent.parent):
        (folder / "__init__.py").touch()
    (commands / "bill.py").write_text(BILL)
    (tmp_path / "settings.py").write_text(SETTINGS.format(locks='{"servers": "local:shop"}'))
    (tmp_path / "manage.py").write_text(MANAGE)
    return tmp_path


def manage(project: Path, machine: Machine, *arguments: str) -> Managed:
    """Run `manage.py`."""
    number = len(list(project.glob("run *")))
    own = project / f"run {number}"
    own.mkdir()
    environment = {**machine.environment, "COLUMNS": "200"}
    return Managed([sys.executable, str(project / "manage.py"), *arguments], own, environment)


@pytest.mark.slow
def test_a_command_runs_one_at_a_time(machine: Machine, project: Path) -> None:
    """A second one ends with an error that says who runs; one that waits runs afterwards, also when the first was killed."""
    one = manage(project, machine, "bill", str(project / "never"))
    eventually(lambda: "begins" in one.log)
    two = manage(project, machine, "bill", str(project / "done"))
    assert two.process.wait(60) == 1
    assert "CommandError: bill was not run: manage.py bill" in two.log
    assert f"pid {one.process.pid}" in two.log
    three = manage(project, machine, "bill", str(project / "done"), "--wait", "60")
    one.kill()
    eventually(lambda: "begins" in three.log)
    (project / "done").touch()
    assert three.process.wait(60) == 0
    assert three.log.split() == ["begins", "is", "done"]


@pytest.mark.slow
def test_the_setting_is_checked_and_the_environment_goes_before_it(
    machine: Machine, project: Path
) -> None:
    """A name that is none is refused with those that there are; `LOCKS_SERVERS` is not overwritten."""
    machine.environment["LOCKS_SERVERS"] = "nowhere"
    wrong = manage(project, machine, "bill", str(project / "done"))
    assert wrong.process.wait(60) == 1
    assert "nowhere" in wrong.log
    (project / "settings.py").write_text(SETTINGS.format(locks='{"server": "local"}'))
    wrong = manage(project, machine, "check")
    assert wrong.process.wait(60) == 1
    assert "LOCKS = {'server': 'local'}" in wrong.log
    assert "cookie_file" in wrong.log


@pytest.mark.slow
def test_a_command_runs_once_for_a_key(machine: Machine, project: Path) -> None:
    """A run that succeeded is the last one for its key, which is said with a status of its own; one that was killed is not."""
    (project / "done").touch()
    done = str(project / "done")
    one = manage(project, machine, "bill", str(project / "never"), "--once", "2026-11")
    eventually(lambda: "begins" in one.log)
    two = manage(project, machine, "bill", done, "--once", "2026-11")
    assert two.process.wait(60) == 1
    assert f"pid {one.process.pid}" in two.log
    one.kill()
    three = manage(project, machine, "bill", done, "--once", "2026-11", "--wait", "60")
    assert three.process.wait(60) == 0
    four = manage(project, machine, "bill", done, "--once", "2026-11")
    assert four.process.wait(60) == 122
    assert "CommandError: bill was not run: manage.py/bill/2026-11 is already done" in four.log
    five = manage(project, machine, "bill", done, "--once", "2026-12")
    assert five.process.wait(60) == 0
