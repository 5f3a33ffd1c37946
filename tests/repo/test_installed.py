"""What `pip install` gives works in an empty folder: the README's first program, the commands, and word of another `locks`.

`LOCKS_INSTALLED` names the Python of an environment in which nothing but the package is installed (`make package`); without it,
it is the one that runs the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = os.environ.get("LOCKS_INSTALLED")
PYTHON = Path(NAMED).absolute() if NAMED else Path(sys.executable)
COMMAND = PYTHON.with_name("locks")
FOREIGN = "class Mutex:\n    pass\n"  # what the other distribution has


def run(
    folder: Path, *command: str | Path, path: str | Path | None = None, status: int = 0
) -> tuple[str, str]:
    """Run a command in a folder, without a word of the checkout; what it prints, and what it complains of."""
    outside = {"PYTHONPATH", "PYTHONSAFEPATH", "LOCKS_INSTALLED"}
    environment = {name: value for name, value in os.environ.items() if name not in outside}
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**environment, **({} if path is None else {"PYTHONPATH": str(path)})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout, done.stderr


@pytest.mark.skipif(
    (3, 12) <= sys.version_info < (3, 12, 3), reason="threads can't begin others after the main one"
)
def test_first_program(tmp_path: Path) -> None:
    """The README's first program moves the money both ways, and ends."""
    _, _, rest = (
        (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## A first program\n")
    )
    program = rest.partition("```python\n")[2].partition("```")[0]
    (tmp_path / "first.py").write_text(program, encoding="utf-8")
    said, complained = run(tmp_path, PYTHON, "first.py")
    assert sorted(said.splitlines()) == ["move money from ann to bob", "move money from bob to ann"]
    assert "Traceback" not in complained


def test_command_is_there(tmp_path: Path) -> None:
    """`locks --help` lists the commands, those of elections among them."""
    said, _ = run(tmp_path, COMMAND, "--help")
    for command in ("demo", "node", "status", "elect"):
        assert f"\n    {command} " in said


@pytest.mark.slow
def test_demo(tmp_path: Path) -> None:
    """`python -m locks demo` resolves deadlocks, and no money is missing."""
    said, _ = run(tmp_path, PYTHON, "-m", "locks", "demo", "--seconds", "1", "--json")
    assert json.loads(said)["transfers"] > 0
    said, _ = run(tmp_path, PYTHON, "-m", "locks_leader", "demo")
    assert said


def test_metadata(tmp_path: Path) -> None:
    """The distribution has the name, version and licence that it says; nothing else is needed to ask for them."""
    program = "import importlib.metadata as m, locks, json; d = m.metadata('pykka-locks'); "
    program += "print(json.dumps([d['Version'], locks.__version__, d['License-Expression'], d.get_all('Provides-Extra'), locks.__file__]))"
    said, _ = run(tmp_path, PYTHON, "-c", program)
    version, own, licence, extras, file = json.loads(said)
    assert version == own
    assert licence == "MPL-2.0"
    assert {"all", "metrics", "otel", "web", "dev"} <= set(extras)
    assert NAMED is None or "site-packages" in file


SIMULATED = """
import locks
from locks.testing import Simulation
simulation = Simulation(seed=3)
def work():
    with locks.Lock(("a",)):
        pass
for _ in range(2):
    simulation.client(work)
simulation.run()
print(simulation.summary.schedules)
"""
TESTED = """
from locks.testing import seeds

@seeds(2)
def test_it(simulation):
    import locks
    def work():
        with locks.Lock(("a",)):
            pass
    simulation.client(work)
    simulation.run()
"""


def test_a_program_that_simulates(tmp_path: Path) -> None:
    """`locks.testing` works where the package is installed."""
    (tmp_path / "simulated.py").write_text(SIMULATED, encoding="utf-8")
    assert run(tmp_path, PYTHON, "simulated.py")[0] == "1\n"


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_tests_that_simulate(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pytest finds the fixture, also if a conftest uses `locks` before."""
    if NAMED is not None:
        pytest.skip("pytest is not installed there")
    monkeypatch.delenv("PYTEST_XDIST_WORKER_COUNT", raising=False)
    (tmp_path / "conftest.py").write_text('import locks\nLOCK = locks.Lock(("a",))\n', "utf-8")
    (tmp_path / "test_it.py").write_text(TESTED, encoding="utf-8")
    said, _ = run(tmp_path, PYTHON, "-m", "pytest", *options)
    assert "2 passed" in said


@pytest.mark.parametrize("imported", ["import locks_leader", "import locks, locks_leader"])
def test_another_locks_hides_ours(imported: str, tmp_path: Path) -> None:
    """Where `import locks` finds somebody else's, `locks_leader` says so, and where that is, instead of a missing name."""
    (tmp_path / "locks.py").write_text(FOREIGN, encoding="utf-8")
    _, complained = run(tmp_path, PYTHON, "-c", imported, status=1)
    last = complained.splitlines()[-1]
    assert last.startswith("ImportError: locks_leader needs the package `locks`")
    assert f"finds {tmp_path / 'locks.py'}" in last
    assert "pip uninstall locks" in last


@pytest.mark.parametrize("imported", ["import locks_leader", "import locks, locks_leader"])
def test_a_folder_beside_the_program(imported: str, tmp_path: Path) -> None:
    """A folder that is called `locks`, too, as a checkout is, hides what is installed as a link to a checkout, and nothing else."""
    package = run(tmp_path, PYTHON, "-c", "import locks; print(locks.__path__[0])")[0]
    (tmp_path / "locks").mkdir()
    if "site-packages" in package:
        run(tmp_path, PYTHON, "-c", imported)
        return
    _, complained = run(tmp_path, PYTHON, "-c", imported, status=1)
    last = complained.splitlines()[-1]
    assert f"finds the folder {tmp_path / 'locks'}, which is not a package" in last
    assert "or move the program" in last
