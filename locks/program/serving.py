"""What a process does that is a lock server, and nothing else."""

from __future__ import annotations

import gc
import resource

__all__ = ["open_many_files", "settle"]

MOST_FILES = 65536


def open_many_files() -> None:
    """Allow this process as many files as it may have: each client is one, and each stranger at the door."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def settle() -> None:
    """What is there by now stays: collecting garbage need not look at it, for 15 ms each time."""
    gc.freeze()
