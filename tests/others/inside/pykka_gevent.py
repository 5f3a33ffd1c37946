"""A plugin of pytest for Pykka's tests: their runtime has actors and futures on gevent, and waits as these do."""

from __future__ import annotations

import sys

import gevent.event
import pykka
import pytest

from locks.runtime.actor import GeventActor, GeventFuture


def use(name: str, actor_class: type[pykka.Actor]) -> None:
    """Have the tests' runtime be another one. Their `conftest` is there by now, and no test has asked for the runtime."""
    (runtime,) = sys.modules["tests.conftest"].RUNTIMES["threading"].values
    runtime.name = name
    runtime.actor_class = actor_class
    runtime.future_class = GeventFuture
    runtime.event_class = gevent.event.Event
    runtime.sleep_func = gevent.sleep


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Actors are greenlets."""
    use("gevent", GeventActor)
