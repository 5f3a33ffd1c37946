"""`locks.testing`, for tests that simulate programs beside others that do not: `from tests.simulated import simulate`.

The simulator needs the interpreted modules. On compiled ones these tests are skipped, and the others of their files are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import locks
from tests.helpers import interpreted_only

__all__ = ["Simulation", "simulate", "simulation"]

if TYPE_CHECKING or not locks.__compiled__:
    from locks.testing import Simulation, simulate
    from locks_pytest import simulation
else:
    Simulation = Any

    def simulate(*args: Any, **options: Any) -> None:
        """Skip the test that wants to simulate."""
        interpreted_only()

    @pytest.fixture
    def simulation() -> None:
        """Skip the test that wants to simulate."""
        interpreted_only()
        return
