"""Fixtures for tests with several nodes.

A test runs in a fresh native thread without a hub, whatever other tests have done in the main one: so
each node that it starts has a thread and a hub of its own, as in most programs.
"""

from __future__ import annotations

from collections.abc import Iterator

import gevent
import pykka
import pytest
from gevent._hub_local import get_hub_if_exists

from tests.cluster.harness import World
from tests.cluster.nodes import Nodes

_Thread = gevent.monkey.get_original("threading", "Thread")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Run a test in a thread of its own."""
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    errors: list[BaseException] = []

    def body() -> None:
        try:
            pyfuncitem.obj(**arguments)
        except BaseException as error:
            errors.append(error)
        finally:
            if "nodes" in arguments:
                arguments["nodes"].stop()
            for actor in pykka.ActorRegistry.get_all():
                actor.stop(block=False)
            hub = get_hub_if_exists()  # a GeventActor of the test lives there
            if hub is not None:
                gevent.sleep(0)
                hub.destroy(destroy_loop=True)

    thread = _Thread(target=body, name="test", daemon=True)
    thread.start()
    thread.join(600)
    assert not thread.is_alive(), "the test hangs"
    if errors:
        raise errors[0]
    return True


@pytest.fixture
def nodes() -> Nodes:
    """Nodes in this process, ended at the end of the test, in its thread."""
    return Nodes()


@pytest.fixture
def world() -> Iterator[World]:
    """Nodes that are processes, ended at the end."""
    with World() as made:
        yield made
