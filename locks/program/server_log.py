"""The log of a process that only runs a lock server.

A write to a pipe that nobody reads, or to a stopped terminal, blocks until it is read. A lock
server must not wait for this, because all programs that request locks would wait, too. So the
logging thread only puts the record into a queue, and the log's own thread writes it. (The lock
server of a machine writes to a file, which does not block.) The queue has a limit. If it is full,
records are left out, and the next line tells how many.
"""

from __future__ import annotations

import json
import logging
import os
import queue
from contextlib import suppress
from datetime import datetime, timezone
from typing import Final

from locks.errors import InvalidOption
from locks.runtime.logs import EVENTS, LOGGERS
from locks.runtime.native import start_thread

__all__ = [
    "FORMATS",
    "JsonFormatter",
    "StandardError",
    "Unhindered",
    "parse_levels",
    "start_logging",
]

MOST_LINES: Final = 10_000  # that wait to be written
PATIENCE: Final = 1.0  # seconds for writing the last lines when the process ends
TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class StandardError(logging.Handler):
    """Writes lines to the standard error without a buffer.

    So nothing has to be flushed at the end of the interpreter, which could block.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        with suppress(
            OSError
        ):  # a closed pipe or a full disk: there is no other place to report it
            _write_all(line)


def _write_all(text: bytes) -> None:
    while text:
        text = text[os.write(2, text) :]


class Unhindered(logging.Handler):
    """Passes records to another handler, in its own thread.

    Args:
        handler: The handler that writes the lines. It may block.
        most: The largest number of records that may wait for it.

    Attributes:
        left_out: How many records were left out, because the queue was full, since the last line
            was written.
    """

    def __init__(self, handler: logging.Handler, most: int = MOST_LINES) -> None:
        super().__init__()
        self._handler = handler
        self._records: queue.Queue[logging.LogRecord | None] = queue.Queue(most)
        self.left_out = 0
        self._join = start_thread(self._write, "locks log")

    def emit(self, record: logging.LogRecord) -> None:
        """Put a record into the queue, or leave it out if the queue is full."""
        try:
            self._records.put_nowait(record)
        except queue.Full:
            self.left_out += 1

    def close(self) -> None:
        """Wait for a short time until all records are written; the reader may have stopped."""
        super().close()
        with suppress(queue.Full):
            self._records.put(None, timeout=PATIENCE)
            if self._join(PATIENCE):
                self._handler.close()

    def _write(self) -> None:
        # Without the handler's lock: nobody else calls the handler, and `logging.shutdown` takes
        # the locks of all handlers.
        while (record := self._records.get()) is not None:
            self._handler.emit(record)
            if self.left_out:
                self._handler.emit(self._take_left_out())

    def _take_left_out(self) -> logging.LogRecord:
        text = "%d lines of the log were left out: they came faster than they could be written"
        self.acquire()  # as in a call of `emit`
        try:
            counted = (self.left_out,)
            self.left_out = 0
        finally:
            self.release()
        return logging.LogRecord("locks.runtime", logging.WARNING, __file__, 0, text, counted, None)


class JsonFormatter(logging.Formatter):
    """One object for each record: time, level, logger, message, and an event's fields (`locks.runtime.logs.EVENTS`)."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        said: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        event = getattr(record, "event", None)
        if event in EVENTS:
            fields = {name: getattr(record, name, None) for name in EVENTS[event].fields}
            said |= {"event": event, **fields}
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said, default=str)


FORMATS: dict[str, logging.Formatter] = {
    "text": logging.Formatter(TEXT),
    "json": JsonFormatter(),
}
"""The formatters of lines, by name of the format."""


def parse_levels(given: list[str]) -> dict[str, str]:
    """The levels of loggers.

    Args:
        given: Each `LEVEL`, for `locks`, or `LOGGER=LEVEL`.

    Returns:
        The level of each logger.

    Raises:
        InvalidOption: There is no such logger, or no such level.
    """
    levels = {}
    for each in given:
        name, _, level = each.rpartition("=")
        name, level = name or "locks", level.upper()
        if name not in LOGGERS:
            raise InvalidOption(
                f"--log-level {each}: there is no logger {name}. The loggers are {', '.join(LOGGERS)}"
            )
        if level not in LEVELS:
            raise InvalidOption(
                f"--log-level {each}: there is no level {level}. The levels are {', '.join(LEVELS)}"
            )
        levels[name] = level
    return levels


def start_logging(formatter: logging.Formatter, level: int = logging.WARNING) -> None:
    """Write all log records to the standard error, in a thread of the log.

    Args:
        formatter: Formats a line.
        level: The lowest level of loggers that have no level of their own.
    """
    writer = StandardError()
    writer.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[Unhindered(writer)])
