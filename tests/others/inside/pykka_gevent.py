"""A plugin of pytest for Pykka's tests: their runtime has actors and futures on gevent, and waits as these do."""

from __future__ import annotations

import sys

import gevent.event
import pytest

from locks.runtime import GeventActor, GeventFuture


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Their `conftest` is there now, and no test has asked for the runtime."""
    (runtime,) = sys.modules["tests.conftest"].RUNTIMES["threading"].values
    runtime.name = "gevent"
    runtime.actor_class = GeventActor
    runtime.future_class = GeventFuture
    runtime.event_class = gevent.event.Event
    runtime.sleep_func = gevent.sleep
