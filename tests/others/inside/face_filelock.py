"""A plugin of pytest: `filelock.FileLock` and its relatives are those of `locks.compat`."""

from __future__ import annotations

import filelock

from locks.compat.filelock import FileLock

filelock.BaseFileLock = filelock.FileLock = filelock.SoftFileLock = FileLock
