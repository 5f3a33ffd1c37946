"""How large the fields of messages may be: said once, in the annotations of the fields themselves.

A message is a named tuple. The annotation of each field says its type, and here are the words for what
belongs to the type: an integer has a range, a text and a tuple have a size. Whoever takes messages in
makes its checks of the annotations: `locks.otp.bytes.fields` for what other nodes send, `locks.core.checked` for
what programs send. A field without a range or a size is refused by both, at import.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

__all__ = [
    "LONGEST_NAME",
    "LONGEST_TEXT",
    "MOST_EDGES",
    "MOST_IN_KNOT",
    "MOST_RECORDS",
    "MOST_WAYS",
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
    "Ways",
    "one_line",
]


class Range(NamedTuple):
    """Of an integer."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"from {self.least} to {self.most}"


class Size(NamedTuple):
    """Of a text in characters, of a tuple in elements: how many at most."""

    most: int


NUMBER = Range(0, (1 << 63) - 1)  # what fits into a signed integer of eight bytes, as of databases
LONGEST_NAME = 255  # characters, of a node's name: Erlang's limit
LONGEST_TEXT = 1000
PLACE_BITS = 4096  # of each of the two numbers of a place in an order
MOST_RECORDS = 10_000  # more don't fit into a term
MOST_WAYS = 16  # lock servers over which an agent may be reached, in a message
MOST_IN_KNOT = 1000  # requests that are looked at again before a surrender is carried out
MOST_EDGES = 50  # of a circle, in a report that is sent: all its agents are told all of it

Number = Annotated[int, NUMBER]
"""Of requests, waits, calls: what is counted."""
Version = Annotated[int, NUMBER, "version"]
"""Of a lock table, so fencing tokens, too; what other nodes say is held against the clock as well
(`locks.wire.versions`)."""
Created = Annotated[int, Range(0, (1 << 64) - 1)]
"""When an agent was made; the number of its pid."""
Name = Annotated[str, Size(LONGEST_NAME)]
"""Of a node."""
Names = Annotated[tuple[Name, ...], Size(MOST_RECORDS)]
Ways = Annotated[tuple[Name, ...], Size(MOST_WAYS)]
"""The nodes of lock servers over which an agent may be reached."""
Versions = Annotated[tuple[Version, ...], Size(MOST_RECORDS)]
Text = Annotated[str, Size(LONGEST_TEXT), "line"]
"""What a person reads, in one line: names of clients, rules, reasons. What arrives is cleaned (`one_line`)."""


def one_line(text: str, most: int = LONGEST_TEXT) -> str:
    """A text as a log and a terminal are to show it, and not to obey it: what can't be printed is written as Python escapes it."""
    if text.isprintable():
        return text[:most]
    return "".join([each if each.isprintable() else repr(each)[1:-1] for each in text[:most]])[
        :most
    ]
