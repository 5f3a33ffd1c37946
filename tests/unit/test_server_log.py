"""The log of a lock server: a thread of its own writes it, and nobody waits for that."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator

import pytest

from locks.errors import InvalidOption
from locks.program.server_log import FORMATS, Unhindered, parse_levels
from locks.runtime.logs import EVENTS


class Stuck(logging.StreamHandler):  # type: ignore[type-arg]  # generic since Python 3.11
    """Writes nothing until it is let go on."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Block, and then write."""
        self.begun.set()
        assert self.go_on.wait(30)
        super().emit(record)


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """A logger of which no other handler hears."""
    logger = logging.Logger("locks.nodes")
    yield logger
    for handler in logger.handlers:
        handler.close()


def test_who_logs_never_waits(logger: logging.Logger) -> None:
    """While nothing can be written, records wait; those that are too many are left out, and the log says how many."""
    writer = Stuck()
    handler = Unhindered(writer, most=3)
    logger.addHandler(handler)
    logger.warning("first")
    assert writer.begun.wait(30)
    for number in range(10):
        logger.warning("line %d", number)
    assert handler.left_out == 7
    writer.go_on.set()
    handler.close()
    assert writer.stream.getvalue().splitlines() == [
        "first",
        "7 lines of the log were left out: they came faster than they could be written",
        "line 0",
        "line 1",
        "line 2",
    ]


def test_a_line_as_json(logger: logging.Logger) -> None:
    """It is one object, with the fields of its event; of an exception, too."""
    text = io.StringIO()
    writer = logging.StreamHandler(text)
    writer.setFormatter(FORMATS["json"])
    logger.addHandler(writer)
    fields = dict.fromkeys(EVENTS["node_down"].fields, "x")
    logger.warning("a\nb %s", "c", extra={"event": "node_down", **fields})
    try:
        raise ValueError("no")
    except ValueError:
        logger.exception("failed")
    first, second = map(json.loads, text.getvalue().splitlines())
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "level": "WARNING",
        "logger": "locks.nodes",
        "message": "a\nb c",
        "event": "node_down",
        **fields,
    }
    assert second["exception"].endswith("ValueError: no")


def test_levels() -> None:
    """One for all, or for a logger; what does not exist is refused by name."""
    assert parse_levels(["info", "locks.waits=ERROR"]) == {
        "locks": "INFO",
        "locks.waits": "ERROR",
    }
    with pytest.raises(InvalidOption, match=r"there is no logger lock\.waits"):
        parse_levels(["lock.waits=INFO"])
    with pytest.raises(InvalidOption, match="there is no level LOUD"):
        parse_levels(["locks.waits=loud"])
