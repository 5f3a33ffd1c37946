"""Limits of message fields, written once: in the annotations of the fields.

A message is a named tuple, and the annotation of each field gives its type. This module has the rest of
the annotation: the range of an integer, and the size of a text or a tuple. `locks.otp.bytes.fields` makes
the checks of messages of other nodes from the annotations; it refuses a field without a range or a size, at import.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

__all__ = [
    "LONGEST_NAME",
    "LONGEST_TEXT",
    "MOST_EDGES",
    "MOST_IN_KNOT",
    "MOST_RECORDS",
    "NUMBER",
    "PLACE_BITS",
    "Created",
    "Name",
    "Names",
    "Number",
    "Range",
    "Size",
    "Text",
    "Version",
    "Versions",
    "one_line",
]


class Range(NamedTuple):
    """The range of an integer."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"from {self.least} to {self.most}"


class Size(NamedTuple):
    """The largest size: of a text in characters, of a tuple in elements."""

    most: int


NUMBER = Range(0, (1 << 63) - 1)  # fits into a signed 8-byte integer, as in databases
LONGEST_NAME = 255  # characters of a node's name; Erlang's limit
LONGEST_TEXT = 1000
PLACE_BITS = 4096  # of each of the two numbers of a place
MOST_RECORDS = 10_000  # a term holds no more
MOST_IN_KNOT = 1000  # requests that are checked again before a surrender is carried out
MOST_EDGES = 50  # of a cycle in a report that is sent: each of its agents gets the report

Number = Annotated[int, NUMBER]
"""The number of a request, a wait or a call."""
Version = Annotated[int, NUMBER, "version"]
"""The version of a lock table, and so a fencing token; versions from other nodes are also compared with the clock
(`locks.wire.versions`)."""
Created = Annotated[int, Range(0, (1 << 64) - 1)]
"""When an agent was made; the number of its pid."""
Name = Annotated[str, Size(LONGEST_NAME)]
"""The name of a node."""
Names = Annotated[tuple[Name, ...], Size(MOST_RECORDS)]
Versions = Annotated[tuple[Version, ...], Size(MOST_RECORDS)]
Text = Annotated[str, Size(LONGEST_TEXT), "line"]
"""What a person reads, in one line: names of clients, rules, reasons. What arrives is cleaned (`one_line`)."""

LONGEST_LINE = 300
"""Characters of a line about others in a log."""


def one_line(text: str, most: int = LONGEST_TEXT) -> str:
    """A text as a log and a terminal are to show it, and not to obey it: what can't be printed is written as Python escapes it."""
    if text.isprintable():
        return text[:most]
    return "".join([each if each.isprintable() else repr(each)[1:-1] for each in text[:most]])[
        :most
    ]


def plain(text: str) -> str:
    """A text of others for one line of a log, cut."""
    return one_line(
        text if len(text) <= LONGEST_LINE else f"{text[: LONGEST_LINE - 3]}...", LONGEST_LINE
    )
