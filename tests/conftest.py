"""Settings for the whole suite."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from gevent import monkey
from gevent._hub_local import get_hub_if_exists
from hypothesis import settings

import locks
from tests.helpers import EXPLORE, SEED

# A failing example prints the line that replays it (`@reproduce_failure`): see tests/README.md.
# "ci" tries the same examples in each run; "explore" tries many new ones.
settings.register_profile("ci", max_examples=30, derandomize=True, deadline=None, print_blob=True)
settings.register_profile(
    "explore",
    max_examples=5000,
    derandomize=False,
    deadline=None,
    print_blob=True,
)
settings.load_profile("explore" if EXPLORE else "ci")

# A shell starts what runs in the background with Ctrl-C and Ctrl-\ ignored, and `nohup` with SIGHUP. Programs
# that tests start would inherit that. (The first process goes on ignoring SIGHUP, as was asked for.)
DEFAULTS: dict[str, Any] = {"SIGINT": signal.default_int_handler, "SIGQUIT": signal.SIG_DFL}
if "PYTEST_XDIST_WORKER" in os.environ:
    DEFAULTS["SIGHUP"] = signal.SIG_DFL
    # The workers share no locks, and each test is a program of its own: users say so by LOCKS_SERVERS=here, which here the
    # programs that tests start would inherit.
    os.environ["PYTEST_XDIST_WORKER_COUNT"] = "1"
for name, default in DEFAULTS.items():
    if signal.getsignal(number := signal.Signals[name]) is signal.SIG_IGN:
        signal.signal(number, default)

TESTS = Path(__file__).parent

# Fixtures that keep processes, or what these have printed, for many tests: such tests run one after the
# other, in one worker.
SHARED = {
    "processes",
    "all_processes",
    "outputs",
    "mapper",
    "control",
    "dask_cluster",
    "ray_cluster",
}


def pytest_report_header() -> list[str]:
    """Say which modules are tested, those of a checkout or installed ones; and the seed."""
    return [f"locks: {locks.__file__}", f"LOCKS_SEED={SEED}"]


def pytest_configure(config: pytest.Config) -> None:
    """Each worker compiles a part of the tests that were not compiled yet, and finds what others have compiled.

    They would all begin with the same file, and each compile everything: that takes as long as many tests.
    """
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is None or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    first = int(worker["workerid"].removeprefix("gw"))
    for path in sorted(TESTS.rglob("test_*.py"))[first :: worker["workercount"]]:
        with suppress(Exception, pytest.skip.Exception):  # who collects it meets that again
            import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is there when the tests begin is no garbage: half a million objects, which each `gc.collect()` would look at."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """What has megabytes is no part of a test's name: workers and reports repeat the names."""
    if isinstance(val, (str, bytes)) and len(val) > 1000:
        return f"{argname} of {len(val)}"
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Name the group of each test that shares processes with others."""
    for item in items:
        if SHARED.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group(f"processes of {item.path.parent.name}"))


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whatever programs leave that are killed, browsers above all, is gone with the tests."""
    tmp_path_factory.getbasetemp()  # which is kept for a while
    with (
        tempfile.TemporaryDirectory(prefix="t", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Each test finds its thread without a gevent hub, whatever others have left: a node would live there."""
    hub = get_hub_if_exists()
    if hub is not None and not monkey.is_module_patched("threading"):
        hub.destroy(destroy_loop=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Two more than there are processors, for many tests wait for processes.

    With -s all runs in one process, for workers show nothing of what tests print.
    """
    return 0 if config.option.capture == "no" else (os.cpu_count() or 1) + 2


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's program has no servers on purpose: elections and the like are refused otherwise."""
    monkeypatch.setenv("LOCKS_SERVERS", "here")
