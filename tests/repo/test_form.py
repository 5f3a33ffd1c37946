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
from locks import form, model

SHOWN = """
import package.form as form
print(form.COMPILED, form.shown("1.0"))
"""
LOOKS = (
    SHOWN
    + """
if not form.COMPILED:
    form.require_interpreted("a simulator")  # does nothing
    import package.model, package.below.deep
    print(package.model.__file__, package.below.deep.__file__)
    form.run_interpreted()  # does nothing
    print("goes on")
"""
)


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
    """They are found, and it is told."""
    assert look(package, pure) == ["True 1.0 (compiled)"]


SIMULATES = (
    SHOWN
    + """
try:
    form.require_interpreted("a simulator")
    import package, package.below.deep
    print(form.COMPILED, package.__compiled__, package.below.deep.__file__)
except ImportError as error:
    print(error)
"""
)


def test_a_simulation_chooses_the_sources(package: Path) -> None:
    """Where no compiled module is loaded yet, what subclasses ours needs no setting."""
    told = look(package, None, SIMULATES)
    assert told == ["True 1.0 (compiled)", f"False False {package / 'below' / 'deep.py'}"]


def test_a_simulation_is_refused_after_compiled_modules(package: Path) -> None:
    """Where one is loaded, the error names it, the line that helps, and the setting."""
    loaded = """
import sys, types
sys.modules["package.model"] = types.ModuleType("package.model")
sys.modules["package.model"].__file__ = %r
"""
    file = str(package / f"model{EXTENSION_SUFFIXES[-1]}")
    _, refused = look(package, None, loaded % file + SIMULATES)
    assert refused.startswith("a simulator needs the interpreted modules")
    assert "package.model" in refused
    assert '"import locks.testing" before all else' in refused
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
    assert locks.__compiled__ == (not str(model.__file__).endswith(".py"))
