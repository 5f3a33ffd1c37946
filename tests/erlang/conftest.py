"""Fixtures for tests with a real Erlang and the original. Without them the tests are skipped.

A test runs in a thread of its own without a gevent hub, as those in `tests/cluster` do, so that its
Python node has a thread and a hub of its own.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import locks
from tests.cluster.conftest import pytest_pyfunc_call, world
from tests.erlang.erlang import COOKIE, MISSING, PRESENT, Erlang, compiled
from tests.helpers import eventually
from tests.otp.erlang import port_mapper

__all__ = ["pytest_pyfunc_call", "world"]

PYTHON = "p@127.0.0.1"
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip all of them where the original is not there, and say what is missing."""
    for item in [] if PRESENT else items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.skip(reason=MISSING))


@pytest.fixture(scope="session")
def mapper() -> Iterator[None]:
    """An epmd of their own for all nodes, in this process and in others."""
    before = os.environ.get("ERL_EPMD_PORT")
    with port_mapper() as port:
        os.environ["ERL_EPMD_PORT"] = str(port)
        yield
        if before is None:
            del os.environ["ERL_EPMD_PORT"]
        else:
            os.environ["ERL_EPMD_PORT"] = before


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the compiled driver."""
    return compiled(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="session")
def erlang(mapper: None, driver: Path) -> Iterator[Erlang]:
    """A node with the original that all tests share; they must leave it as it is."""
    node = Erlang("e@127.0.0.1", driver)
    yield node
    node.close()
    print("".join(node.output))


@pytest.fixture
def more_erlang(mapper: None, driver: Path) -> Iterator[Callable[..., Erlang]]:
    """Starts nodes with the original for one test."""
    nodes: list[Erlang] = []

    def start(name: str, *, locks: bool = True) -> Erlang:
        nodes.append(Erlang(name, driver, locks=locks))
        return nodes[-1]

    yield start
    for node in nodes:
        node.close()


@pytest.fixture
def alone(mapper: None) -> Iterator[locks.node.Node]:
    """A Python node in this process."""
    node = locks.start(PYTHON, cookie=COOKIE, epmd=True)
    yield node
    locks.stop()


@pytest.fixture
def node(alone: locks.node.Node, erlang: Erlang) -> locks.node.Node:
    """A Python node that is connected with the Erlang node, and can ask its lock server."""
    assert alone.connect(erlang.name)
    eventually(lambda: erlang.name in alone.alive)
    return alone


_ids = itertools.count(1)


@pytest.fixture
def fresh() -> Callable[[], tuple[str, int]]:
    """Makes lock ids that no test has used before."""
    return lambda: ("test", next(_ids))
