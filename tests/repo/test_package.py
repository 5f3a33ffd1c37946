"""What `setup.py` adds to setup.cfg: addresses from one setting. And the extras."""

from __future__ import annotations

import re
import runpy
import sys
from configparser import ConfigParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
HOME = "https://git.test/somebody/pykka-locks"


def told_setuptools(address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `setup.py` passes on when the setting is this address."""
    settings = (ROOT / "setup.cfg").read_text("utf-8")
    (folder / "setup.cfg").write_text(
        settings.replace("\naddress =\n", f"\naddress = {address}\n"), "utf-8"
    )
    (folder / "README.md").write_text((ROOT / "README.md").read_text("utf-8"), "utf-8")
    told: dict[str, Any] = {}
    monkeypatch.setitem(sys.modules, "setuptools", SimpleNamespace(setup=told.update))
    monkeypatch.chdir(folder)
    runpy.run_path(str(ROOT / "setup.py"))
    return told


def test_addresses_are_made_of_one_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a home, each address of the package and each link and picture of the README is whole, and names a file that is there."""
    told = told_setuptools(HOME, tmp_path, monkeypatch)
    assert told["project_urls"]["Source"] == HOME
    readme = told["long_description"]
    links = re.findall(r'\]\(([^)]*)\)|src="([^"]*)"', readme)
    there = {one or other for one, other in links} | set(told["project_urls"].values())
    assert len(there) > 30
    for link in there:
        assert link.startswith(("https://", "#")), link
        path = re.fullmatch(rf"{HOME}/(?:blob|raw)/HEAD/([^#]*)(?:#.*)?", link)
        assert path is None or (ROOT / path[1]).exists(), link
    assert f"{HOME}/raw/HEAD/docs/img/" in readme


def test_without_a_home_nothing_is_invented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The README is as it is, and the only address is that of the original."""
    told = told_setuptools("", tmp_path, monkeypatch)
    assert list(told["project_urls"]) == ["Original (Erlang)"]
    assert told["long_description"] == (ROOT / "README.md").read_text("utf-8")


def test_the_extra_all_has_all_extras_of_users() -> None:
    """`pykka-locks[all]` names each extra that is not for who changes `locks`, but Dask and Ray, which are large."""
    settings = ConfigParser(interpolation=None)
    settings.read(ROOT / "setup.cfg", "utf-8")
    extras = settings["options.extras_require"]

    def named(extra: str) -> set[str]:
        found = re.fullmatch(r"\s*pykka-locks\[(.*)\]", extras[extra])
        assert found is not None
        return set(found[1].split(","))

    changes = {"test", "check", "test-all", "dev", "docs", "bench"}
    assert named("engines") == {"dask", "ray"}
    assert named("all") == set(extras) - changes - named("engines") - {"all", "engines"}
