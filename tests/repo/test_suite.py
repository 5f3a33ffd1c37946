"""The suite itself runs as it is meant to."""

from __future__ import annotations

import pytest

from tests.repo.lines import lines_of_code


@pytest.mark.xdist_group("of one")
def test_groups_stay_together(request: pytest.FixtureRequest) -> None:
    """pytest-xdist knows a group by the end of its tests' ids: without that it splits it, and says nothing."""
    if not hasattr(request.config, "workerinput"):
        pytest.skip("all tests run in one process")
    assert request.node.nodeid.endswith("@of one")


def test_lines_of_code_are_counted() -> None:
    """Blank lines, comments, docstrings and imports don't count; a text that is used does."""
    text = '"""Doc."""\n\nimport os\nfrom a import (\n    b,\n)\n\n# why\nx = """a\nb"""\n\n\ndef f():\n    """Doc."""\n    return b\n'
    assert lines_of_code(text) == 4
