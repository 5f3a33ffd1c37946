"""What `docs/choosing.md` says of other projects, tried with them; skipped where one is not installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from benchmarks.crowd_servers import postgres
from benchmarks.harness import Report
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


@pytest.mark.slow
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


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """The address of a PostgreSQL of our own."""
    report = Report()
    with postgres(report) as found:
        if found is None:
            pytest.skip("; ".join(report.skipped))
        yield found.address


@pytest.fixture
def connect(database: str) -> Iterator[Callable[..., Any]]:
    """Connects with it; each connection commits each statement."""
    import psycopg

    with ExitStack() as stack:
        yield lambda **more: stack.enter_context(psycopg.connect(database, autocommit=True, **more))


def asked(connection: Any, query: str) -> Any:
    """The value that a query finds."""
    return connection.execute(query).fetchone()[0]


def test_advisory_locks_are_of_clients_of_one_database(connect: Callable[..., Any]) -> None:
    """PostgreSQL: a client of another database does not see them. They can be shared, and `pg_locks` shows who holds one."""
    one, two = connect(), connect()
    one.execute("create database other")
    other = connect(dbname="other")
    shared = "select pg_try_advisory_lock_shared(1)"
    assert asked(one, shared)
    assert asked(two, shared)
    assert not asked(two, "select pg_try_advisory_lock(1)")
    assert asked(other, "select pg_try_advisory_lock(1)")
    holders = "select pid from pg_locks where locktype = 'advisory' and objid = 1 and database = (select oid from pg_database where datname = 'postgres')"
    pids = {pid for (pid,) in other.execute(holders)}
    assert pids == {one.info.backend_pid, two.info.backend_pid}


def test_advisory_locks_are_free_when_their_holder_dies(
    database: str, connect: Callable[..., Any]
) -> None:
    """PostgreSQL: a killed client's lock is free once the server has seen that its connection is closed."""
    code = (
        f"import psycopg; connection = psycopg.connect({database!r}); "
        "connection.execute('select pg_advisory_lock(1)')"
    )
    connection = connect()
    attempt = "select pg_try_advisory_lock(1)"
    with holder(code) as process:
        assert not asked(connection, attempt)
        process.kill()
        process.wait()
        eventually(lambda: asked(connection, attempt))


def waiting(connection: Any) -> int:
    """How many clients wait for advisory locks."""
    return int(
        asked(
            connection,
            "select count(*) from pg_locks where locktype = 'advisory' and not granted",
        )
    )


@pytest.mark.slow
def test_deadlocks_of_advisory_locks_are_explained(connect: Callable[..., Any]) -> None:
    """PostgreSQL: the client that finds it, after one second, is aborted, and the error says who waits for whom."""
    import psycopg

    clients = [connect() for _ in range(2)]
    observer = connect()
    assert asked(observer, "show deadlock_timeout") == "1s"
    found: list[Any] = []

    def lock(client: Any, key: int) -> None:
        try:
            client.execute(f"select pg_advisory_lock({key})")
        except psycopg.errors.DeadlockDetected as error:
            found.append(error)
            client.execute("select pg_advisory_unlock_all()")

    for number, client in enumerate(clients):
        lock(client, number)
    threads = [
        threading.Thread(target=lock, args=(client, 1 - number))
        for number, client in enumerate(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (error,) = found
    detail = error.diag.message_detail
    assert len(re.findall(r"Process \d+ waits for ExclusiveLock on advisory lock", detail)) == 2


def test_advisory_locks_come_in_the_order_in_which_they_are_asked_for(
    connect: Callable[..., Any],
) -> None:
    """PostgreSQL: first come, first served."""
    first, observer, *others = (connect() for _ in range(7))
    first.execute("select pg_advisory_lock(1)")
    order: list[int] = []

    def take(number: int, client: Any) -> None:
        client.execute("select pg_advisory_lock(1)")
        order.append(number)
        client.execute("select pg_advisory_unlock(1)")

    threads = [
        threading.Thread(target=take, args=(number, client)) for number, client in enumerate(others)
    ]
    for number, thread in enumerate(threads, 1):
        thread.start()
        eventually(lambda number=number: waiting(observer) == number)
    first.execute("select pg_advisory_unlock(1)")
    for thread in threads:
        thread.join()
    assert order == sorted(order)


ZOOKEEPER = Path("/usr/share/java/zookeeper.jar")  # of Debian's package


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[str]:
    """The address of a ZooKeeper of our own."""
    pytest.importorskip("kazoo", reason="not installed: pip install kazoo")
    if not ZOOKEEPER.exists() or shutil.which("java") is None:
        pytest.skip("ZooKeeper is not installed: apt-get install zookeeper")
    port = free_port()
    with TemporaryDirectory() as folder:
        config = Path(folder, "zoo.cfg")
        config.write_text(
            f"dataDir={folder}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
            "tickTime=1000\nmaxClientCnxns=0\nadmin.enableServer=false\n"
        )
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        with subprocess.Popen(
            ["java", "-cp", str(ZOOKEEPER), main, str(config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as server:
            try:
                yield f"127.0.0.1:{port}"
            finally:
                server.kill()


@pytest.fixture
def kazoo_client(zookeeper: str) -> Iterator[Callable[..., Any]]:
    """Connects with it."""
    from kazoo.client import KazooClient

    with ExitStack() as stack:

        def start(**more: Any) -> Any:
            client = KazooClient(zookeeper, **more)
            client.start(timeout=LIMIT)
            stack.callback(client.close)
            stack.callback(client.stop)
            return client

        yield start


def kazoo_holder(zookeeper: str, timeout: float) -> str:
    """The code of a program that holds a lock of kazoo."""
    return (
        "from kazoo.client import KazooClient; "
        f"client = KazooClient({zookeeper!r}, timeout={timeout}); client.start({LIMIT}); "
        "client.Lock('/dies').acquire()"
    )


@pytest.mark.explore  # twenty seconds of waiting
def test_a_lock_of_kazoo_is_free_after_the_time_out_of_its_dead_holder(
    zookeeper: str, kazoo_client: Callable[..., Any]
) -> None:
    """kazoo: by default that are ten seconds; before, it is locked."""
    client = kazoo_client()
    assert client._session_timeout == 10_000
    with holder(kazoo_holder(zookeeper, 20)) as process:  # the longest that ZooKeeper permits here
        process.kill()
        process.wait()
        lock = client.Lock("/dies")
        assert not lock.acquire(blocking=False)
        assert lock.acquire(timeout=LIMIT)
        lock.release()


def test_locks_of_kazoo(kazoo_client: Callable[..., Any]) -> None:
    """kazoo: a lock does not cover what is below it; there are locks to read and write; waiting clients are seen, and served in order."""
    one, two = kazoo_client(), kazoo_client()
    assert one.Lock("/a").acquire()
    assert two.Lock("/a/b").acquire(timeout=LIMIT)
    assert one.ReadLock("/r").acquire()
    assert two.ReadLock("/r").acquire(timeout=LIMIT)
    assert not two.WriteLock("/r").acquire(blocking=False)

    held = one.Lock("/queue", "first")
    held.acquire()
    order: list[str] = []

    def take(name: str) -> None:
        with two.Lock("/queue", name):
            order.append(name)

    names = ["second", "third", "fourth"]
    threads = [threading.Thread(target=take, args=(name,)) for name in names]
    for number, thread in enumerate(threads, 2):
        thread.start()
        eventually(lambda number=number: len(held.contenders()) == number)
    assert held.contenders() == ["first", *names]
    held.release()
    for thread in threads:
        thread.join()
    assert order == names


def test_a_lock_of_kazoo_that_is_lost_still_says_that_it_is_held(
    kazoo_client: Callable[..., Any],
) -> None:
    """kazoo: the client is notified that its session is lost, and somebody else has the lock; `is_acquired` is still true."""
    one, two = kazoo_client(), kazoo_client()
    states: list[str] = []
    one.add_listener(states.append)
    lock = one.Lock("/lost")
    lock.acquire()
    # Another connection takes the session over, and closes it.
    thief = kazoo_client(client_id=one.client_id)
    thief.stop()
    assert two.Lock("/lost").acquire(timeout=LIMIT)
    eventually(lambda: "LOST" in states)
    assert lock.is_acquired
