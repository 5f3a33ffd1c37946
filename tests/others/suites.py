"""Other people's test suites: where each is taken from, and what it is run against.

A suite is what its authors wrote. It is imported from where it is installed, or unpacked from their source archive, which pip downloads
once into the environment's folder `others`; nothing of it is copied into this repository. What stands between it and `locks` is one module of
`inside/`: either the tests' classes with our locks put in, or a plugin of pytest that puts them into the tests' own modules.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

__all__ = ["INSIDE", "SUITES", "Archive", "Installed", "Suite"]

INSIDE = Path(__file__).parent / "inside"


class Installed(NamedTuple):
    """A suite that comes with an installed package, or with the interpreter.

    Attributes:
        package: Whose version is said; `None` for the interpreter.
        module: What has to be there.
    """

    package: str | None
    module: str

    def version(self) -> str:
        """Which version it is."""
        return metadata.version(self.package) if self.package else platform.python_version()

    def is_there(self) -> bool:
        """Whether it can be imported: distributions of Linux leave CPython's tests out."""
        try:
            return find_spec(self.module) is not None
        except ModuleNotFoundError:
            return False


class Archive(NamedTuple):
    """A suite in a source archive.

    Attributes:
        package: Its name.
        pinned: The version; `None` for the one that is installed.
        packages: What it needs besides what the tests have, with versions; these come into a folder of their own.
    """

    package: str
    pinned: str | None = None
    packages: tuple[str, ...] = ()

    def version(self) -> str:
        """Which version it is."""
        return self.pinned or metadata.version(self.package)


class Suite(NamedTuple):
    """A suite, and how it is run.

    Attributes:
        name: What it is called here.
        whose: What it is.
        against: What it is run against.
        source: Where it comes from.
        tests: Which files, in `inside/` or in the archive.
        plugin: The module of `inside/` that puts our locks in, if the tests are not there.
        environment: More variables.
        patched: Whether gevent has patched the program.
        limit: Seconds that one test may take.
        long: Names of tests that take minutes; `LOCKS_EXPLORE=1` has them, too.
    """

    name: str
    whose: str
    against: str
    source: Installed | Archive
    tests: tuple[str, ...]
    plugin: str | None = None
    environment: Mapping[str, str] = {}
    patched: bool = False
    limit: float = 30
    long: tuple[str, ...] = ()


CPYTHON_LOCKS = Installed(None, "test.lock_tests")
SHAPES = "`Lock`, `RLock`, `Semaphore`"
LOCKS = ("cpython_locks.py",)
PYKKA = Archive("pykka", packages=("pytest-mock==3.15.1",))
FOR_REDBEAT = (
    "fakeredis==2.40.0",
    "redis==8.1.0",
    "sortedcontainers==2.4.0",
    "tenacity==9.1.2",
    "pytz==2025.2",
)
FOR_TLDEXTRACT = (
    *("requests==2.34.2", "requests-file==3.0.1", "filelock==4.1.0", "pytest-mock==3.15.1"),
    *("responses==0.26.0", "sybil==10.0.1", "syrupy==5.1.0", "urllib3==2.8.0"),
    *("certifi==2026.10.18", "charset-normalizer==3.5.2", "PyYAML==6.0.3"),
)

SUITES = [
    Suite(
        "cpython-threads",
        "CPython: `test.lock_tests`",
        f"{SHAPES} in threads",
        CPYTHON_LOCKS,
        LOCKS,
    ),
    Suite(
        "cpython-greenlets",
        "CPython: `test.lock_tests`",
        f"{SHAPES} in greenlets",
        CPYTHON_LOCKS,
        LOCKS,
        environment={"LOCKS_OTHERS_CLIENTS": "greenlets"},
    ),
    Suite(
        "cpython-patched",
        "CPython: `test.lock_tests`",
        f"{SHAPES} in a patched program",
        CPYTHON_LOCKS,
        LOCKS,
        patched=True,
    ),
    Suite(
        "cpython-asyncio",
        "CPython: `test.test_asyncio.test_locks`",
        "`aio.Lock`, `aio.Semaphore`",
        Installed(None, "test.test_asyncio.test_locks"),
        ("cpython_asyncio.py",),
        limit=8,
    ),
    Suite(
        "cpython-multiprocessing",
        "CPython: `test._test_multiprocessing`",
        f'{SHAPES} with `servers="local"`',
        Installed(None, "test._test_multiprocessing"),
        ("cpython_multiprocessing.py",),
        limit=10,
        long=("test_thousand",),
    ),
    Suite(
        "gevent-patched",
        "gevent: `gevent.tests.lock_tests`",
        f"{SHAPES} in a patched program",
        Installed("gevent", "gevent.tests.lock_tests"),
        ("gevent_locks.py",),
        patched=True,
        limit=20,
    ),
    Suite(
        "gevent-threads",
        "gevent: `gevent.tests.test__semaphore`",
        "`Lock` in threads with a hub each",
        Installed("gevent", "gevent.tests.test__semaphore"),
        ("gevent_threads.py",),
    ),
    Suite(
        "pykka-gevent",
        "Pykka: `tests/`",
        "`GeventActor`, `GeventFuture`",
        PYKKA,
        ("tests",),
        plugin="pykka_gevent",
        limit=10,
    ),
    Suite(
        "pykka-turns",
        "Pykka: `tests/`, of references, the registry and proxies",
        "lock servers' and agents' kind of actors",
        PYKKA,
        ("tests/test_ref.py", "tests/test_registry.py", "tests/proxy"),
        plugin="pykka_turns",
        limit=5,
    ),
    Suite(
        "fasteners",
        "fasteners: `tests/test_lock.py`",
        "`RWLock`",
        Archive("fasteners", "0.20", ("fasteners==0.20",)),
        ("tests/test_lock.py",),
        plugin="fasteners_rwlock",
        limit=20,
    ),
    Suite(
        "redbeat",
        "celery-redbeat: `tests/`, which has a lock of redis-py",
        "`locks.compat.redis.Lock` in its place",
        Archive("celery-redbeat", "2.4.2", FOR_REDBEAT),
        ("tests",),
        plugin="face_redis_client",
        environment={"LOCKS_SERVERS": "here"},
    ),
    Suite(
        "tldextract",
        "tldextract: `tests/`, which has a lock of filelock",
        '`locks.compat.filelock.FileLock` with `servers="local"` in its place',
        Archive("tldextract", "5.4.0", FOR_TLDEXTRACT),
        ("tests",),
        plugin="face_filelock",
        environment={"LOCKS_SERVERS": "local"},
    ),
    Suite(
        "redis",
        "redis-py: `tests/test_lock.py`",
        "`locks.compat.redis`",
        Archive("redis", "8.1.0", ("redis==8.1.0", "packaging==26.0")),
        ("tests/test_lock.py",),
        plugin="face_redis",
        environment={"LOCKS_SERVERS": "here"},
    ),
    Suite(
        "filelock",
        "filelock: `tests/test_filelock.py`, `tests/test_error.py`",
        "`locks.compat.filelock`",
        Archive("filelock", "3.16.1", ("filelock==3.16.1", "pytest-mock==3.15.1")),
        ("tests/test_filelock.py", "tests/test_error.py"),
        plugin="face_filelock",
        environment={"LOCKS_SERVERS": "here"},
        limit=120,
    ),
    Suite(
        "kazoo",
        "kazoo: `kazoo/tests/`, of locks, semaphores and elections",
        "`locks.compat.kazoo`",
        Archive("kazoo", "2.11.0"),
        ("kazoo/tests/test_lock.py", "kazoo/tests/test_election.py"),
        plugin="face_kazoo",
        limit=20,
        environment={"LOCKS_SERVERS": "here"},
    ),
]
