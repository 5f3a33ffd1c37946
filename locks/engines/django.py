"""Django: the lock servers in the settings, and commands of `manage.py` that run one at a time.

INSTALLED_APPS = [..., "locks.engines.django.LocksConfig"]
LOCKS = {"servers": "local"}
"""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

import locks
from locks.program.settings import SETTINGS

__all__ = ["LockedCommand", "LocksConfig"]


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

    A second run at the same time ends with an error; with `--wait SECONDS` it waits. Within `handle`, `self.locked` is the transaction:
    `self.locked.ensure_held()` before a step that can't be undone.

    Attributes:
        lock_id: The lock id; `("manage.py", name of the command)` by default.
        locked: The transaction.
    """

    lock_id: Sequence[Any] | None = None
    locked: locks.Transaction

    def create_parser(self, prog_name: str, subcommand: str, **options: Any) -> Any:
        """The parser of its arguments, with `--wait`."""
        self._name = subcommand
        parser: ArgumentParser = super().create_parser(prog_name, subcommand, **options)
        parser.add_argument(
            "--wait",
            type=float,
            default=0.0,
            metavar="SECONDS",
            help="how long to wait for another run that is in progress (default: not at all)",
        )
        return parser

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run it, with the lock.

        Raises:
            CommandError: Another run is in progress; or that is unknown, or the lock was lost.
        """
        wanted = self.lock_id or ("manage.py", self._name)
        wait = options.pop("wait", 0.0)
        try:
            with locks.transaction(label=f"manage.py {self._name}") as self.locked:
                try:
                    self.locked.write_lock(wanted, timeout=wait)
                except locks.LockTimeout as error:
                    holders = ", ".join(each.client for each in error.holders) or "another program"
                    raise CommandError(
                        f"{self._name} was not run: {holders} is running it"
                    ) from error
                return super().execute(*args, **options)
        except locks.LocksError as error:
            raise CommandError(f"{self._name}: {error}") from error
