"""Fixtures for elections: nodes in this process, and a pool of processes for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.conftest import nodes, pytest_pyfunc_call, servers, world
from tests.cluster.harness import World
from tests.leader.harness import Cluster

__all__ = ["cluster", "nodes", "pytest_pyfunc_call", "servers", "world"]


@pytest.fixture(scope="session")
def processes() -> Iterator[Cluster]:
    """A pool of processes."""
    with World() as world:
        yield Cluster(world)


@pytest.fixture
def cluster(processes: Cluster) -> Cluster:
    """The pool; how a test has left it does not matter."""
    return processes
