"""Reasons for refusing strangers, in words for a log.

Both the refused node and the refusing one should be told what to do. Each case has a *cause*, by
which lines of a log are counted (`locks.otp.notices`). Text from other nodes is cut, and stripped
of characters that could damage a log.
"""

from __future__ import annotations

from typing import Literal

from locks.errors import OperatingError
from locks.ranges import one_line

__all__ = [
    "LONGEST",
    "Cause",
    "NoWay",
    "Refused",
    "Settled",
    "first_words",
    "plain",
    "tls_words",
    "words",
]

LONGEST = 300  # characters of a line about others

Cause = Literal[
    "bad words",  # no handshake, or a wrong one
    "tls",  # one side has TLS
    "certificate",
    "silent",  # timed out
    "crowd",  # no room at the door
    "too old",
    "name",  # the name is our own, or not the expected one
    "cookie",
    "taken",  # another program is connected under the name
    "not wanted",
    "no way",  # no address
    "settled",  # another connection is kept: nothing is wrong
]


class Refused(OperatingError):
    """A handshake has failed.

    Attributes:
        cause: The kind of reason.
    """

    cause: Cause = "bad words"


class NoWay(Refused):
    """The address of a node is not known. This is no fault."""


class Settled(Refused):
    """A handshake has ended because another connection is kept, or none is needed."""


# The first bytes of a TLS record: an alert or a handshake, of any version.
_TLS = (b"\x15\x03", b"\x16\x03")


def first_words(data: bytes) -> tuple[str, Cause]:
    """The reason, and its cause, if a handshake begins with these bytes."""
    if data.startswith(_TLS):
        return "it uses TLS, but this node does not; set tls= on both, or on neither", "tls"
    shown = f"{data[:40]!r}{'...' if len(data) > 40 else ''}"
    if data[:2].isalpha():
        return f"it uses another protocol, {shown}; the name or the port is wrong", "bad words"
    return f"that is not a node's handshake: {shown}", "bad words"


def tls_words(reason: str | None, text: str) -> tuple[str, Cause]:
    """The reason, and its cause, if TLS fails with this reason of OpenSSL."""
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"):
        return "it does not use TLS, but this node does; set tls= on both, or on neither", "tls"
    return f"TLS failed: {plain(text)}; check the certificates of both", "certificate"


def words(data: bytes) -> str:
    """The text of a refusal by another node."""
    return plain(data[: 4 * LONGEST].decode("utf-8", "replace"))


def plain(text: str) -> str:
    """A text for one line of a log, cut."""
    return one_line(text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}...", LONGEST)
