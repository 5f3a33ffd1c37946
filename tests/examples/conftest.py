"""Fixtures for the tests of the example store."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from examples.kv_store import END, Store
from tests.cluster.conftest import pytest_pyfunc_call as in_a_thread


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test with a node runs in a thread without a hub, whatever other tests have left in the main one."""
    return in_a_thread(pyfuncitem) if "node" in pyfuncitem.fixturenames else None


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads for what has to wait."""
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.fixture
def store(pool: ThreadPoolExecutor) -> Iterator[Store]:
    """A store without a file; at the end nothing must be left in it.

    It ends before the pool: if a test fails, whoever still waits in it is woken.
    """
    with Store() as store:
        yield store
        assert not store.active
        assert not store.storage.writers("", END)
        assert not store.table.states()
        assert not store.latches._line
