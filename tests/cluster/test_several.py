"""Lock objects that are handed to other processes, and what these inherit."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import locks
import locks_leader
from tests.warm import run_program

METHODS = [
    "fork",
    *(pytest.param(each, marks=pytest.mark.slow) for each in ("spawn", "forkserver")),
]

HANDED = """
import multiprocessing, sys, locks, locks_leader
from concurrent.futures import ProcessPoolExecutor

def use(thing):
    try:
        if isinstance(thing, locks.RWLock):
            thing = thing.read_lock()
        if isinstance(thing, locks_leader.Election):
            return thing.run(lambda leadership: True, timeout=30)
        if isinstance(thing, locks.Transaction):
            with thing:
                thing.write_lock(("x",), timeout=0.01)
            return True
        return thing.acquire(blocking=False)
    except locks.LockTimeout:
        return False
    except locks.MisuseError as error:
        return str(error)

if __name__ == "__main__":
    method, servers = sys.argv[1:]
    locks.start(servers=locks.HERE if servers == "here" else servers or None)
    things = [
        locks.Lock(("x",)), locks.RLock(("x",)), locks.RWLock(("x",)), locks.Semaphore(("s",), 1),
        locks.transaction(), locks_leader.Election("e"),
    ]
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method))
    with locks.Lock(("x",)), locks.Semaphore(("s",), 1), pool:
        for thing in things:
            print(pool.submit(use, thing).result())
"""


def said(tmp_path: Path, method: str, servers: str, code: str = HANDED) -> list[str]:
    """What the child says of each object that it got."""
    (tmp_path / "handed.py").write_text(code)
    (tmp_path / "run").mkdir(exist_ok=True)
    done = run_program(
        [sys.executable, "handed.py", method, servers],
        cwd=tmp_path,
        env=os.environ | {"XDG_RUNTIME_DIR": str(tmp_path / "run")},
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_have_their_parents_servers(tmp_path: Path, method: str) -> None:
    """However a child is started, it uses the servers of its parent: what is held there is not acquired here."""
    assert said(tmp_path, method, "local") == ["False"] * 5 + ["True"]


@pytest.mark.parametrize("method", METHODS)
def test_a_lock_of_one_program_is_refused_in_another(tmp_path: Path, method: str) -> None:
    """What is pickled means the lock of its program: it is refused where another one would be acquired."""
    lines = said(tmp_path, method, "here")
    assert len(lines) == 6
    assert all("it was pickled in another process" in line for line in lines)


def test_copies_within_a_program() -> None:
    """A copy names the same lock; a transaction that has begun, and an election with its node, can't be copied."""
    try:
        with locks.Lock(("x",)):
            assert pickle.loads(pickle.dumps(locks.Lock(("x",)))).locked()
            assert copy.deepcopy(locks.RLock(("x",))).owned()
        with (
            locks.transaction() as tx,
            pytest.raises(locks.MisuseError, match="hand on the lock ids"),
        ):
            copy.copy(tx)
        with pytest.raises(locks.MisuseError, match="make it where it is needed"):
            pickle.dumps(locks_leader.Election("e", node=locks.start()))
    finally:
        locks.stop()


def test_a_secret_is_not_pickled_by_chance() -> None:
    """What children inherit is pickled for them alone."""
    import multiprocessing

    locks.start("a@127.0.0.1", cookie="cookie-of-the-tests")
    try:
        config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
        with pytest.raises(TypeError, match="secrets"):
            pickle.dumps(config["locks"])
    finally:
        locks.stop()
    assert "locks" not in config


OVERTAKEN = """
import locks
locks.start(servers="local")
lock = locks.Lock(("z",))
wrong = 0
for _ in range(200):
    with lock:
        pass
    wrong += lock.locked() or bool(locks.holders(("z",)))
    with lock:
        pass
    wrong += any(each.request.lock_id == ("z",) for each in locks.facts.waits().requests)
print(wrong)
"""


def test_a_question_is_not_answered_before_an_own_release(tmp_path: Path) -> None:
    """What a program has released is free in each answer that it gets from then on."""
    (tmp_path / "run").mkdir()
    done = run_program(
        [sys.executable, "-c", OVERTAKEN],
        env=os.environ | {"XDG_RUNTIME_DIR": str(tmp_path / "run")},
        check=True,
    )
    assert done.stdout == "0\n"


LATE = """
import os
read, write = os.pipe()
if not os.fork():
    import locks
    try:
        locks.Lock(("x",)).acquire()
    except locks.MisuseError as error:
        os.write(write, str(error).encode())
    os._exit(0)
os.wait()
os.close(write)
print(os.read(read, 1000).decode())
"""


@pytest.mark.skipif(not Path("/proc/self/auxv").exists(), reason="Linux shows who was forked")
def test_a_fork_that_imports_locks_later_is_refused() -> None:
    """So do the processes of RQ, Airflow and PySpark: the parent never imports `locks`, and each child would have locks of its own."""
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=True)
    assert "it was forked from process" in done.stdout
