"""Helpers that several tests share: `from tests.helpers import eventually`."""

from __future__ import annotations

import inspect
import os
import pathlib
import random
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from types import FrameType, ModuleType
from typing import Any, TypeVar

import gevent
import pytest
from gevent._hub_local import get_hub_if_exists

ROOT = pathlib.Path(__file__).parents[1]
T = TypeVar("T")
LIMIT = 60.0
"""Seconds after which what does not come fails a test: many, for machines that do other things, too."""
EXPLORE = os.environ.get("LOCKS_EXPLORE") == "1"
"""Whether tests try more, and take longer."""
SEED = int(os.environ.get("LOCKS_SEED", "0"))
"""Random tests begin with it: `make test` tries the same each time, `make explore` draws another one. pytest prints it first."""


def lines_of(do: Callable[[], object], *modules: ModuleType) -> int:
    """How many lines of some modules `do` carries out: the same on every machine."""
    files = {module.__file__ for module in modules}
    lines = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_filename not in files:
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    finally:
        sys.settrace(before)
    return lines


def eventually(condition: Callable[[], T], limit: float = LIMIT) -> T:
    """Wait until `condition()` is true and return its value; fail after `limit` seconds.

    In a thread with a gevent hub the other greenlets run meanwhile. In a thread without one none is
    created, for a hub changes how a program looks to the library.
    """
    # gevent has no public question "is there a hub?"; its public `get_hub` makes one.
    sleep = time.sleep if get_hub_if_exists() is None else gevent.sleep
    deadline = time.monotonic() + limit
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit} s: {_name(condition)}")
        sleep(0.001)
    return value


def in_thread(function: Callable[[], T]) -> T:
    """What a function returns, or raises, in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(LIMIT)


def free_port() -> int:
    """A port at which nobody listens just now, and of which the system gives none to connections that begin."""
    while True:
        port = random.SystemRandom().randrange(10_000, 30_000)  # whatever a test has seeded
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def without_settings() -> dict[str, str]:
    """The environment of this process, without settings of `locks`."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LOCKS_")}


FORKS = ("-W", "ignore:This process:DeprecationWarning")  # of Python 3.12, which warns of any fork


def run_script(script: str) -> str:
    """Run a script in a fresh interpreter and return what it printed; its stderr must be empty."""
    done = subprocess.run(
        [sys.executable, *FORKS, "-c", textwrap.dedent(script)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.stderr == "", done.stderr
    assert done.returncode == 0
    return done.stdout


def _name(condition: Callable[[], object]) -> str:
    """Return the name of a function, or the line that holds a lambda."""
    name = getattr(condition, "__qualname__", repr(condition))
    if "<lambda>" in name:
        try:
            return " ".join(inspect.getsource(condition).split())
        except OSError:
            pass
    return name


def needs(*packages: str) -> None:
    """Skip a module of tests, with a line, where packages are missing; `pip install -e '.[test-all]'` has all."""
    missing = [each for each in packages if find_spec(each) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}", allow_module_level=True)
