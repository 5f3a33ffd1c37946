"""Whether this process is one of several of the same program.

Each of them would have a lock table of its own, and none would see the locks of the others: without servers, a lock
excludes nobody there. A fork is known to `locks.program.default`; what else starts the processes of a program leaves
marks, which are read here. An inherited environment alone is no mark: a program that such a process starts is another one.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

from locks.program.handed_down import PACKAGES
from locks.runtime.first_use import loaded

__all__ = ["one_of_several"]


def one_of_several(forked_from: int) -> str | None:
    """What shows that this process is one of several, as a sentence; `None` if nothing does.

    Args:
        forked_from: The process that this one was forked from, if it still runs; or 0.
    """
    if _is_only_worker():
        return None
    if forked_from:
        return f"it was forked from process {forked_from} of the same program"
    for mark in (_child, _billiard, _gunicorn, _uwsgi, _xdist, _ray, _ppft):
        found = mark()
        if found is not None:
            return found
    return None


def _is_only_worker() -> bool:
    """Whether it is the only worker of a server whose other process uses no locks: of gunicorn, or `uvicorn --reload`."""
    arbiters = _arbiters()
    if arbiters and all(each.num_workers == 1 and each.pid == os.getppid() for each in arbiters):
        return True
    process = loaded("multiprocessing.process")
    config = (
        None if process is None else getattr(process.current_process(), "_kwargs", {}).get("config")
    )
    return bool(getattr(config, "should_reload", False))


def _arbiters() -> list[Any]:
    """The masters of gunicorn's workers, as a worker has them in its memory."""
    arbiter = loaded("gunicorn.arbiter")
    kind = None if arbiter is None else arbiter.Arbiter
    return [] if kind is None else [each for each in gc.get_referrers(kind) if type(each) is kind]


def _child() -> str | None:
    """`multiprocessing` has started it, and with it process pools, joblib, the workers of uvicorn and hypercorn; or its copy `multiprocess`."""
    for process in filter(None, map(loaded, (f"{package}.process" for package in PACKAGES))):
        parent = process.parent_process()
        if parent is not None:
            return f"it was started by process {parent.pid} of the same program"
        if getattr(
            process.current_process(), "_inheriting", False
        ):  # its main module is being imported
            return f"it was started by process {os.getppid()} of the same program"
    return None


def _billiard() -> str | None:
    """A process of Celery's pool."""
    process = loaded("billiard.process")
    if process is None or type(process.current_process()).__name__ == "_MainProcess":
        return None
    return f"it is the process {process.current_process().name} of a pool of Celery"


def _gunicorn() -> str | None:
    server = os.environ.get("SERVER_SOFTWARE", "")
    is_worker = loaded("gunicorn.arbiter") is not None and server.startswith("gunicorn")
    return "it is one of the workers of gunicorn" if is_worker else None


def _uwsgi() -> str | None:
    several = getattr(loaded("uwsgi"), "numproc", 1) > 1
    return "it is one of the workers of uWSGI" if several else None


def _xdist() -> str | None:
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    several = os.environ.get("PYTEST_XDIST_WORKER_COUNT") != "1"
    if not worker or not several or loaded("execnet") is None:
        return None
    return f"it is {worker}, one of the workers of pytest-xdist"


def _ray() -> str | None:
    script = os.path.basename(sys.argv[0]) if sys.argv else ""
    if loaded("ray") is None or script != "default_worker.py":
        return None
    return "it is one of the workers of Ray"


def _ppft() -> str | None:
    spec = getattr(loaded("__main__"), "__spec__", None)
    is_worker = spec is not None and spec.name == "ppft.__main__"
    return "it is one of the workers of pathos' ParallelPool" if is_worker else None
