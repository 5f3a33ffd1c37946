"""What travels between nodes: the base of its classes, and the bounds of their fields, written once.

A message is a `Value`, a msgspec Struct. The annotation of each field gives its type, and the range of a number or the size of a
text or a tuple. The decoder (`locks.net.messages`) checks each value against them; nothing checks again.

On the wire a value is an array of its fields in their order. So a field that is added later stands at the end and has a default: an older
node ignores it, and a newer one does without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace as replace

__all__ = [
    "LONGEST_NAME",
    "LONGEST_TEXT",
    "MOST_EDGES",
    "MOST_IN_KNOT",
    "MOST_NUMBER",
    "MOST_RECORDS",
    "PLACE_BITS",
    "Checked",
    "Created",
    "Message",
    "Name",
    "Names",
    "Number",
    "Text",
    "Value",
    "Version",
    "Versions",
    "one_line",
    "replace",
]

MOST_NUMBER: Final = (1 << 63) - 1  # fits into a signed 8-byte integer, as in databases
LONGEST_NAME: Final = 255  # characters of a node's name
LONGEST_TEXT: Final = 1000
PLACE_BITS: Final = 4096  # of each of the two numbers of a place
MOST_RECORDS: Final = 10_000  # in a message
MOST_IN_KNOT: Final = 1000  # requests that are checked again before a surrender is carried out
MOST_EDGES: Final = 50  # of a cycle in a report that is sent: each of its agents gets the report


class Value(Struct, frozen=True, array_like=True, gc=False):
    """A value that travels between nodes, or is a part of one."""


class Message(Value, frozen=True, tag=str.lower):
    """A value of a closed union, told apart by the name of its class."""


Number = Annotated[int, Meta(ge=0, le=MOST_NUMBER)]
"""The number of a request, a wait or a call."""
Version = Annotated[int, Meta(ge=0, le=MOST_NUMBER)]
"""The version of a lock table, and so a fencing token."""
Created = Annotated[int, Meta(ge=0)]
"""When an agent was made; 64 bits."""
Name = Annotated[str, Meta(max_length=LONGEST_NAME)]
"""The name of a node."""
Names = Annotated[tuple[Name, ...], Meta(max_length=MOST_RECORDS)]
Versions = Annotated[tuple[Version, ...], Meta(max_length=MOST_RECORDS)]
if TYPE_CHECKING:
    Checked = type
    Text = str
    """What a person reads, in one line: names of clients, rules, reasons. What arrives is cleaned (`one_line`)."""
else:

    class Checked(type):
        """Makes types for which the decoder asks `locks.net.messages` for a check, because no bound says what they are."""

        def __instancecheck__(cls, value):
            return isinstance(value, cls.kinds)

    class Text(metaclass=Checked):
        """What a person reads, as above."""

        kinds = str


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
