"""Fixtures for the tests of `locks.aio`: each test leaves nothing behind, and says nothing."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import locks
from tests.api.clients import left_nothing_behind


@pytest.fixture(autouse=True)
def clean(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No lock is kept; no coroutine was never awaited, no exception never retrieved, nothing was lost in a finaliser."""
    lost: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: lost.append(unraisable.exc_value))
    yield
    try:
        gc.collect()
        assert lost == []
        said = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
        assert said == []
        left_nothing_behind()
    finally:
        locks.stop()
