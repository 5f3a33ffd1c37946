"""Fixtures for the tests of the end of a node."""

from __future__ import annotations

from tests.cluster.conftest import processes as processes
from tests.engines.conftest import machine as machine
