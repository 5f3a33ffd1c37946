"""Programs that begin warm (`tests.warm`) are as those that begin cold."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import tests.warm
from tests.helpers import ROOT, eventually
from tests.warm import Program, run_program

LOOKS = """
import json, os, signal, sys, threading
import locks
from locks.runtime.forked import forked_from
node = locks.start()
answer = {
    "argv": sys.argv, "name": __name__, "cwd": os.getcwd(), "X": os.environ.get("X"), "input": sys.stdin.read(),
    "forked": forked_from(), "node": node.name,
    "threads": threading.current_thread() is threading.main_thread(), "SIGINT": signal.getsignal(signal.SIGINT).__name__,
    "streams": [[each.fileno(), each.encoding, each.isatty()] for each in (sys.stdin, sys.stdout, sys.stderr)],
    "files": sorted(os.listdir("/proc/self/fd"))[:3],
}
print(json.dumps(answer))
locks.stop()
threading.Thread(target=lambda: print("last")).start()
sys.exit(7)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere programs begin cold")
@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", LOOKS, "one", "--two"),
        ("-c", "import sys; print('out', flush=True); print('error', file=sys.stderr)"),
        ("-m", "locks", "node", "--name", "a@x", "--drain", "-1"),
        ("-m", "locks_leader.command", "status", "--servers", "a@127.0.0.1:1"),
        ("-m", "tests.no_such_module"),
    ],
    ids=["what it sees", "-c", "-m", "of a package", "no module"],
)
def test_a_warm_program_does_what_a_cold_one_does(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its arguments, streams, environment and folder are its own, its parent is this process, and it ends with its status."""
    options: dict[str, Any] = {"cwd": tmp_path, "env": {"PYTHONPATH": str(ROOT), "X": "1"}}
    done = []
    for warm in (True, False):
        monkeypatch.setattr(tests.warm, "_is_warm", lambda *_, warm=warm: warm)
        done.append(run_program([sys.executable, *arguments], input="some input", **options))
    assert vars(done[0]) == vars(done[1])


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere programs begin cold")
def test_what_begins_cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is patched before its imports, has a session of its own, other settings of Python, or another version of `locks`."""
    monkeypatch.setattr(tests.warm, "_start", lambda *_: pytest.fail("it begins warm"))
    patched = "from gevent import monkey; monkey.patch_all(); import locks"
    assert run_program([sys.executable, "-c", patched]).returncode == 0
    assert run_program(["true"]).returncode == 0
    assert run_program([sys.executable, "-c", "1"], env={"PYTHONHASHSEED": "1"}).returncode == 0
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "__init__.py").write_text("print('another one')")
    command = [sys.executable, "-c", "import locks"]
    assert run_program(command, cwd=tmp_path).stdout == "another one\n"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert run_program(command, cwd=tmp_path.parent, env=env).stdout == "another one\n"
    assert run_program([sys.executable, "-c", "1"], start_new_session=True).returncode == 0


def test_a_warm_program_is_a_child() -> None:
    """It can be stopped, and killed; its end is known at once."""
    program = Program([sys.executable, "-c", "input()"])
    assert program.poll() is None
    program.kill()
    eventually(lambda: program.poll() == -9)
    program.communicate()
