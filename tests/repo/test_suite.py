"""The suite itself runs as it is meant to."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("of one")
def test_groups_stay_together(request: pytest.FixtureRequest) -> None:
    """pytest-xdist knows a group by the end of its tests' ids: without that it splits it, and says nothing."""
    if not hasattr(request.config, "workerinput"):
        pytest.skip("all tests run in one process")
    assert request.node.nodeid.endswith("@of one")
