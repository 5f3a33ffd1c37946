"""Fixtures for the tests of the engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.servers import Machine


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A machine of our own."""
    with Machine() as made:
        yield made
