"""The settings of gunicorn for `clock.py`: each worker starts the clock, after it was forked."""

from typing import Any


def post_worker_init(worker: Any) -> None:
    """Called in each worker."""
    from clock import clock

    clock.start()
