"""Django: the lock servers in the settings, and commands of `manage.py` that run one at a time.

INSTALLED_APPS = [..., "locks.engines.django.LocksConfig"]
LOCKS = {"servers": "local"}
"""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

import locks
from locks.program.default import check_shared
from locks.program.settings import SETTINGS
from locks.shapes.once import Once

__all__ = ["LockedCommand", "LocksConfig"]

DONE = 122  # the status of `locks run --once`


class LocksConfig(AppConfig):
    """Configures the lock servers: the setting `LOCKS` has the same values as `LOCKS_SERVERS` and so on.

    The environment has precedence over it. This starts nothing: the first lock does, in the process that takes it.
    """

    name = "locks.engines.django"
    label = "locks"
    verbose_name = "Locks"

    def ready(self) -> None:
        """Read the setting.

        Raises:
            ImproperlyConfigured: The setting is wrong.
        """
        said = getattr(settings, "LOCKS", {})
        if not isinstance(said, dict) or not all(name in SETTINGS for name in said):
            raise ImproperlyConfigured(
                f"LOCKS = {said!r} must be a dictionary with some of these keys: {', '.join(SETTINGS)}"
            )
        for name, value in said.items():
            text = ",".join(value) if isinstance(value, (list, tuple)) else str(value)
            if value is not None:
                os.environ.setdefault(f"LOCKS_{name.upper()}", text)


class LockedCommand(BaseCommand):
    """A command that runs one at a time, over all machines: `class Command(LockedCommand)`, with a `handle` as usual.

    A second run at the same time ends with an error; with `--wait SECONDS` it waits. With `--once KEY` the command runs only if it has not
    succeeded yet for KEY: all lock servers remember that for a day, and later runs end with status 122. Within `handle`, `self.locked` is the transaction,
    or with `--once` what `locks.once` returns: `self.locked.ensure_held()` before a step that can't be undone.

    Attributes:
        lock_id: The lock id; `("manage.py", name of the command)` by default. `--once KEY` adds KEY to it.
        locked: The transaction, or the work that is to be done once.
    """

    lock_id: Sequence[Any] | None = None
    locked: locks.Transaction | Once

    def create_parser(self, prog_name: str, subcommand: str, **options: Any) -> Any:
        """The parser of its arguments, with `--wait` and `--once`."""
        self._name = subcommand
        parser: ArgumentParser = super().create_parser(prog_name, subcommand, **options)
        parser.add_argument(
            "--wait",
            type=float,
            default=0.0,
            metavar="SECONDS",
            help="how long to wait for another run that is in progress (default: not at all)",
        )
        parser.add_argument(
            "--once",
            metavar="KEY",
            help="run only if it has not succeeded yet for KEY, such as a date, on any machine; remembered for a day",
        )
        return parser

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run it, with the lock.

        Raises:
            CommandError: Another run is in progress, or it is already done; or that is unknown, the lock was lost, or there are no
                lock servers.
        """
        wanted = self.lock_id or ("manage.py", self._name)
        wait, key = options.pop("wait", 0.0), options.pop("once", None)
        label = f"manage.py {self._name}"
        try:
            check_shared(f"{self._name} could run twice at the same time", among_peers=key is None)
            with ExitStack() as stack:
                try:
                    if key is None:
                        self.locked = stack.enter_context(locks.transaction(label=label))
                        self.locked.write_lock(wanted, timeout=wait)
                    else:
                        work = locks.once((*wanted, key), timeout=wait, label=label)
                        self.locked = stack.enter_context(work)
                except locks.LockTimeout as error:
                    holders = ", ".join(each.client for each in error.holders) or "another program"
                    raise CommandError(
                        f"{self._name} was not run: {holders} is running it"
                    ) from error
                except locks.AlreadyDone as error:
                    raise CommandError(
                        f"{self._name} was not run: {error}", returncode=DONE
                    ) from error
                return super().execute(*args, **options)
        except locks.LocksError as error:
            raise CommandError(f"{self._name}: {error}") from error
