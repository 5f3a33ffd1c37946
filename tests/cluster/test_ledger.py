"""The file that fences, on which tests of faults rely: it refuses, it notices, and it survives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.harness import ROOT
from tests.cluster.ledger import LINE, Broken, Ledger, Stale
from tests.helpers import eventually

WRITES = """
import sys
from tests.cluster.ledger import Ledger
ledger = Ledger(sys.argv[1])
token = int(sys.argv[2])
while True:
    ledger.write(token, "child", ledger.read(token, "child"))
"""


def test_a_smaller_token_is_refused(tmp_path: Path) -> None:
    """At reading and at writing; the same token counts for its owner only."""
    ledger = Ledger(tmp_path / "ledger")
    ledger.write(3, "one", ledger.read(3, "one"))
    with pytest.raises(Broken, match="the same token 3"):
        ledger.read(3, "two")
    assert ledger.read(4, "two") == 1
    for access in (lambda: ledger.read(3, "one"), lambda: ledger.write(3, "one", 1)):
        with pytest.raises(Stale):
            access()
    with pytest.raises(Broken, match="but 1 is there"):
        ledger.write(4, "two", 0)
    assert ledger.check() == 1


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        (["written 1 3 one", "written 1 4 two"], "increments are lost"),
        (["written 1 4 one", "written 2 3 two"], "went back"),
        (["written 1 3 one", "written 2 3 two"], "the same token 3"),
    ],
)
def test_what_is_wrong_in_a_ledger_is_noticed(tmp_path: Path, lines: list[str], wrong: str) -> None:
    """The check can fail: writes that got lost, tokens that fall, and tokens of two."""
    path = tmp_path / "ledger"
    path.write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(Broken, match=wrong):
        Ledger(path).check()


def test_a_ledger_outlives_who_is_killed_in_the_middle(tmp_path: Path) -> None:
    """SIGKILL between and within writes leaves all lines whole; the next one goes on from there."""
    path = tmp_path / "ledger"
    for token in (1, 2, 3):
        size = path.stat().st_size if path.exists() else 0
        with subprocess.Popen(
            [sys.executable, "-c", WRITES, str(path), str(token)], cwd=ROOT
        ) as child:
            try:
                eventually(lambda s=size: path.exists() and path.stat().st_size > s + 50 * LINE)  # type: ignore[misc]
            finally:
                child.kill()
        assert path.stat().st_size % LINE == 0
    assert Ledger(path).check() > 60
