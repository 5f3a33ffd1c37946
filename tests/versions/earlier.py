"""The earlier version of `locks`, beside which the present one works: taken from the history of this checkout."""

from __future__ import annotations

import io
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.cluster.harness import ROOT

__all__ = ["EARLIER", "unpacked"]

EARLIER = "b9d932b5390aaecbc4e55371cd300b922e97c0af"
"""The first commit whose nodes use protocol 4. Once there are releases: the tag of the last one with the same protocol."""


def unpacked(folder: Path) -> Path:
    """Unpack it into a folder, with the programs of the tests; skip the test where the history does not reach that far."""
    git = [shutil.which("git") or "git", "-C", str(ROOT)]
    if (
        not shutil.which("git")
        or subprocess.run(
            [*git, "cat-file", "-e", f"{EARLIER}^{{commit}}"], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip(f"needs a checkout whose history has {EARLIER[:8]}")
    parts = [
        "locks",
        "locks_leader",
        "locks_lab",
        "tests/helpers.py",
        "tests/cluster",
        "tests/leader",
    ]
    packed = subprocess.run(
        [*git, "archive", "--format=zip", EARLIER, *parts], capture_output=True, check=True
    )
    zipfile.ZipFile(io.BytesIO(packed.stdout)).extractall(folder)
    (folder / "tests" / "versions").mkdir()
    shutil.copy(Path(__file__).with_name("worker.py"), folder / "tests" / "versions")
    return folder
