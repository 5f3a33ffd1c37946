"""What `docs/choosing.md` says of other projects, tried with them; skipped where one is not installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import LIMIT, eventually, free_port

HOLDERS = {
    "fasteners": "import fasteners; lock = fasteners.InterProcessLock({path!r}); lock.acquire()",
    "filelock": "import filelock; lock = filelock.FileLock({path!r}); lock.acquire()",
}


@contextmanager
def holder(code: str) -> Iterator[subprocess.Popen[str]]:
    """A program that holds a lock; it is killed at the end of the block at the latest."""
    text = f"{code}\nprint('has it', flush=True)\nimport time\ntime.sleep({LIMIT})"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", text], stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "has it\n"
            yield process
        finally:
            process.kill()


def in_a_thread_that_ends(work: Callable[[], object]) -> None:
    """Run something in a thread, which ends."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.mark.parametrize("name", HOLDERS)
def test_locks_between_processes_are_free_when_their_holder_dies(name: str, tmp_path: Path) -> None:
    """fasteners, filelock: the system frees the lock of a file; so nothing expires, and nothing stays."""
    library: Any = pytest.importorskip(name, reason=f"not installed: pip install {name}")
    path = str(tmp_path / "lock")
    with holder(HOLDERS[name].format(path=path)) as process:
        if name == "fasteners":
            lock = library.InterProcessLock(path)
            attempt = lambda: lock.acquire(blocking=False)  # noqa: E731
        else:
            lock = library.FileLock(path)

            def attempt() -> bool:
                try:
                    lock.acquire(timeout=0)
                except library.Timeout:
                    return False
                return True

        assert not attempt()
        process.kill()
        process.wait()
        assert attempt()
        lock.release()


def test_locks_of_threads_are_locked_for_ever_when_their_holder_dies() -> None:
    """threading: a thread that ends does not release its lock."""
    lock = threading.Lock()
    in_a_thread_that_ends(lock.acquire)
    assert not lock.acquire(blocking=False)


def test_read_and_write_locks_of_threads_stay_with_a_thread_that_has_ended() -> None:
    """readerwriterlock: likewise; there are locks to read and to write."""
    library: Any = pytest.importorskip(
        "readerwriterlock.rwlock", reason="not installed: pip install readerwriterlock"
    )
    lock = library.RWLockFair()
    readers = [lock.gen_rlock(), lock.gen_rlock()]
    assert all(each.acquire(blocking=False) for each in readers)
    for each in readers:
        each.release()
    writer = lock.gen_wlock()
    in_a_thread_that_ends(writer.acquire)
    assert not lock.gen_rlock().acquire(blocking=False)


@pytest.fixture
def redis_port(tmp_path: Path) -> Iterator[int]:
    """Where a Redis of our own listens."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("there is no redis-server on the path")
    port = free_port()
    with subprocess.Popen(
        [program, "--port", f"{port}", "--save", ""], cwd=tmp_path, stdout=subprocess.DEVNULL
    ) as server:
        try:
            yield port
        finally:
            server.kill()


def test_a_lock_of_redis_expires_only_with_a_timeout(redis_port: int) -> None:
    """redis-py: without `timeout`, the default, the lock of a dead holder is locked for ever; who has it is a random token."""
    redis: Any = pytest.importorskip("redis", reason="not installed: pip install redis")
    client = redis.Redis(port=redis_port)

    def answers() -> bool:
        try:
            return bool(client.ping())
        except redis.exceptions.ConnectionError:
            return False

    eventually(answers)
    code = f"import redis; client = redis.Redis(port={redis_port}); client.lock('a').acquire(); client.lock('b', timeout=1000).acquire()"
    with holder(code) as process:
        process.kill()
        process.wait()
    assert not client.lock("a").acquire(blocking=False)
    assert client.pttl("a") == -1  # it has no end
    assert 0 < client.pttl("b") <= 1_000_000
    assert len(client.get("a")) == 32
    client.close()
