"""Fixtures for the tests of the public API.

A script is played by threads. One in which the kind of client is the subject (`@pytest.mark.every_kind`) is also played by
greenlets, `ThreadingActor`s, `GeventActor`s, and tasks of asyncio, in a program that is not monkey-patched. The same files run once more in a process that is (test_patched.py); there
`LOCKS_PATCHED=1` is set.
"""

from __future__ import annotations

import pathlib
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest

import locks
from tests.api.clients import KINDS, PATCHED, Run, left_nothing_behind, play

ROOT = pathlib.Path(__file__).parents[2]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A script is played by threads, or by each kind of client."""
    if "run" in metafunc.fixturenames:
        every = metafunc.definition.get_closest_marker("every_kind") is not None
        metafunc.parametrize("run", list(KINDS) if every else ["threads"], indirect=True)


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    """The context that the test runs in."""
    return Run(request.param, PATCHED)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test with the fixture `run` is played in its context."""
    return play(pyfuncitem, "run")


@pytest.fixture(autouse=True)
def clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test leaves nothing behind; those with `run` have looked already, in their context."""
    yield
    if "run" not in request.fixturenames:
        try:
            left_nothing_behind()
        finally:
            locks.stop()


@pytest.fixture
def run_script() -> Callable[..., str]:
    """Run a script in a fresh interpreter and return what it printed; it must not fail.

    A script that prints "ready" can be sent SIGINT then: `run_script(text, interrupt=True)`.
    """

    def run_it(script: str, *, interrupt: bool = False) -> str:
        with subprocess.Popen(
            # From 3.12 on Python warns of any fork of a program that has threads.
            [
                sys.executable,
                "-W",
                "ignore::DeprecationWarning",
                "-c",
                textwrap.dedent(script),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            try:
                if interrupt:
                    assert process.stdout.readline() == "ready\n"
                    # Python and gevent miss a signal that comes in the very moment in which the
                    # main thread goes to sleep; they notice it with the next one.
                    for _ in range(20):
                        process.send_signal(signal.SIGINT)
                        if select.select([process.stdout], [], [], 5)[0]:
                            break
                out, err = process.communicate(timeout=300)
            except BaseException:
                process.kill()
                raise
        assert process.returncode == 0, err
        # In a hub gevent reports a Ctrl-C before it raises it in the main greenlet.
        assert err == "" or interrupt
        return out

    return run_it
