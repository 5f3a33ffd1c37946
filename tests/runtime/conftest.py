"""Fixtures for the tests of the runtime layer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import helpers


@pytest.fixture
def run_script() -> Callable[[str], str]:
    """Run a script in a fresh interpreter and return what it printed; its stderr must be empty."""
    return helpers.run_script
