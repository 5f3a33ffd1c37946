"""Warnings about others: few, short, and with their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from locks.net.notices import MOST, PERIOD, Notices
from locks.ranges import LONGEST_LINE as LONGEST


class Log:
    """Notices with a clock of the test.

    Attributes:
        lines: What was logged.
        now: The time.
    """

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.now = 1000.0
        self._caplog = caplog
        self.notices = Notices(self._run, lambda: self.now)

    def _run(self, function: Callable[..., object], *args: Any) -> bool:
        function(*args)
        return True

    @property
    def lines(self) -> list[str]:
        return [record.getMessage() for record in self._caplog.records]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    """An empty log."""
    return Log(caplog)


def test_one_a_minute_for_a_cause_and_an_address(log: Log) -> None:
    """The first is logged; those within a minute are counted; the next one says how many they were."""
    for _ in range(5):
        log.notices.warn("cookie", "h", "%s has another cookie", "b")
    log.notices.warn("cookie", "elsewhere", "%s has another cookie", "c")
    log.notices.warn("name", "h", "%s is not %s", "b", "c")
    assert log.lines == ["b has another cookie", "c has another cookie", "b is not c"]
    log.now += PERIOD
    log.notices.warn("cookie", "h", "%s has another cookie", "d")
    assert log.lines[3:] == ["d has another cookie (4 similar messages before it are not shown)"]
    log.now += PERIOD
    log.notices.warn("cookie", "h", "%s has another cookie", "e")
    assert log.lines[4:] == ["e has another cookie"]


def test_many_addresses_are_one(log: Log) -> None:
    """Strangers with ever new addresses write a bounded number of lines a minute, and take no memory."""
    for number in range(20 * MOST):
        log.notices.warn("crowd", f"h{number}", "too many")
    assert len(log.lines) == MOST + 1
    assert len(log.notices._kinds) == MOST + 1
    log.now += PERIOD
    log.notices.warn("crowd", "another", "too many")
    assert len(log.lines) == MOST + 2
    assert len(log.notices._kinds) == 1


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10**6,
        b"x" * 10**6,
        ("x",) * 10**6,
        {"k": ["x"] * 10**6},
        ValueError("x" * 10**6),
        10**4000,
        "line\nanother\x1b[31m",
    ],
    ids=lambda value: type(value).__name__,
)
def test_lines_are_short_and_are_lines(log: Log, value: Any) -> None:
    """Whatever is shown, a line is no longer than it may be, and no more than a line."""
    log.notices.warn("message", "b", "%s sent %s", "b" * 255, value)
    (line,) = log.lines
    assert len(line) <= LONGEST
    assert line.isprintable()
