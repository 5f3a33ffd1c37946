"""Compiled or interpreted modules: which of them a process uses (`locks.form`). No compiler is needed here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import locks
from locks import form

LOOKS = """
import package.form as form
print(form.COMPILED, form.shown("1.0"))
try:
    form.require_interpreted("a simulator")
except ImportError as error:
    print(error)
if not form.COMPILED:
    import package.model, package.below.deep
    print(package.model.__file__, package.below.deep.__file__)
    form.run_interpreted()  # does nothing
    print("goes on")
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package in whose modules nothing is but what chooses, as if two of them were compiled."""
    folder = tmp_path / "package"
    (folder / "below").mkdir(parents=True)
    shutil.copytree(Path(form.__file__).parent, folder / "form")
    for name in ("__init__", "model", "below/__init__", "below/deep"):
        (folder / f"{name}.py").touch()
    for name in ("model", "below/deep"):
        (folder / f"{name}{EXTENSION_SUFFIXES[-1]}").touch()
    return folder


def look(package: Path, pure: str | None, program: str = LOOKS) -> list[str]:
    """What a program prints, with or without `LOCKS_PURE`."""
    environment = {name: value for name, value in os.environ.items() if name != form.PURE}
    if pure is not None:
        environment[form.PURE] = pure
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=package.parent,
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("pure", [None, "", "0"])
def test_compiled_modules_are_used_where_they_are(package: Path, pure: str | None) -> None:
    """They are found, it is told, and what subclasses ours is refused with what to do about it."""
    told, refused = look(package, pure)
    assert told == "True 1.0 (compiled)"
    assert refused.startswith("a simulator needs the interpreted modules")
    assert "LOCKS_PURE=1" in refused


def test_sources_are_used_when_they_are_chosen(package: Path) -> None:
    """With `LOCKS_PURE=1` the module next to a source is not found, in no folder of the package."""
    told, files, goes_on = look(package, "1")
    assert told == "False 1.0"
    assert files == f"{package / 'model.py'} {package / 'below' / 'deep.py'}"
    assert goes_on == "goes on"


def test_a_program_begins_anew_with_the_sources(package: Path) -> None:
    """`run_interpreted` runs the same program once more, with its arguments, and with the sources."""
    program = "import package.form as form; form.run_interpreted(); print(form.COMPILED)"
    assert look(package, None, program) == ["False"]


def test_a_program_that_holds_the_commands_is_not_begun_anew(package: Path) -> None:
    """Whoever calls `run_interpreted` with arguments that the process was not begun with goes on."""
    program = "import sys; sys.argv = ['locks', 'sim']; import package.form as form; form.run_interpreted(); print(form.COMPILED)"
    assert look(package, None, program) == ["True"]


def test_sources_alone_need_no_choice(package: Path) -> None:
    """Where nothing is compiled, nothing is put into the way of imports."""
    for path in package.rglob(f"*{EXTENSION_SUFFIXES[-1]}"):
        path.unlink()
    program = f"import sys; before = list(sys.meta_path); {LOOKS}print(sys.meta_path == before)"
    program = program.replace("; \n", "\n")
    assert look(package, "1", program)[-1] == "True"
    assert look(package, None)[0] == "False 1.0"


def test_the_package_says_which() -> None:
    """`locks.__compiled__` is what the modules are."""
    assert locks.__compiled__ == (not str(sys.modules["locks.model"].__file__).endswith(".py"))
