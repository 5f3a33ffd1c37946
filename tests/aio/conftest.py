"""Fixtures for the tests of `locks.aio`: each test leaves nothing behind, and says nothing."""

from __future__ import annotations

import gc
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import locks
from locks.runtime.logs import EVENTS
from tests.api.clients import left_nothing_behind

# Loggers: that a deadlock was resolved, or a lock lost, may be said at any time after it, and on a busy machine waits are long.
SAID_LATER = {"locks.deadlocks", "locks.waits", EVENTS["lost"].logger}


@pytest.fixture(autouse=True)
def clean(
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[None]:
    """No lock is kept; no coroutine was never awaited, no exception never retrieved, nothing was lost in a finaliser."""
    lost: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: lost.append(unraisable.exc_value))
    torn = "alarm" in request.fixturenames  # what is torn says so
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if torn else "error", RuntimeWarning)
        yield
        gc.collect()
    try:
        if torn:
            lost.clear()
            caplog.clear()
        assert lost == []
        said = [record for record in caplog.records if record.levelno > logging.INFO]
        assert [each.getMessage() for each in said if each.name not in SAID_LATER] == []
        left_nothing_behind()
    finally:
        locks.stop()
