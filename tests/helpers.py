"""Helpers that several tests share: `from tests.helpers import eventually`."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import TypeVar

import gevent
from gevent._hub_local import get_hub_if_exists

T = TypeVar("T")


def eventually(condition: Callable[[], T], limit: float = 10.0) -> T:
    """Wait until `condition()` is true and return its value; fail after `limit` seconds.

    In a thread with a gevent hub the other greenlets run meanwhile. In a thread without one none is
    created, for a hub changes how a program looks to the library.
    """
    # gevent has no public question "is there a hub?"; its public `get_hub` makes one.
    sleep = time.sleep if get_hub_if_exists() is None else gevent.sleep
    deadline = time.monotonic() + limit
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit} s: {_name(condition)}")
        sleep(0.001)
    return value


def _name(condition: Callable[[], object]) -> str:
    """Return the name of a function, or the line that holds a lambda."""
    name = getattr(condition, "__qualname__", repr(condition))
    if "<lambda>" in name:
        try:
            return " ".join(inspect.getsource(condition).split())
        except OSError:
            pass
    return name
