"""Fixtures for the tests of the example store."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from examples.kv_store import END, Store


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
