"""Words about those who do not get in: why, for a log, whatever they have said.

A node that is refused should be told what to do about it, and so should the one that refuses. Each case has
a *cause*, by which lines of a log are counted (`locks.otp.notices`). What others have said is shown cut, and
without characters that would do something to a log.
"""

from __future__ import annotations

from typing import Literal

from locks.errors import OperatingError

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
    "silent",  # nothing comes in time
    "crowd",  # no room at the door
    "too old",
    "name",  # the name is not the one that is expected, or our own
    "cookie",
    "taken",  # another program is connected under the name
    "not wanted",
    "no way",  # no server relays to it
    "settled",  # another connection is kept: nothing is wrong
]


class Refused(OperatingError):
    """A handshake has failed.

    Attributes:
        cause: Of what kind the reason is.
    """

    cause: Cause = "bad words"


class NoWay(Refused):
    """No server leads to a node, as it is connected with none of them. Nothing is wrong with that."""


class Settled(Refused):
    """A handshake has ended because another connection is kept, or none is wanted."""


# What a record of TLS begins with: an alert or a handshake, of any version.
_TLS = (b"\x15\x03", b"\x16\x03")


def first_words(data: bytes) -> tuple[str, Cause]:
    """What it means if a handshake begins with this."""
    if data.startswith(_TLS):
        return "it uses TLS, but this node does not; set tls= on both, or on neither", "tls"
    shown = f"{data[:40]!r}{'...' if len(data) > 40 else ''}"
    if data[:2].isalpha():
        return f"it uses another protocol, {shown}; the name or the port is wrong", "bad words"
    return f"that is not a node's handshake: {shown}", "bad words"


def tls_words(reason: str | None, text: str) -> tuple[str, Cause]:
    """What it means if TLS fails with this reason, one of OpenSSL's."""
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"):
        return "it does not use TLS, but this node does; set tls= on both, or on neither", "tls"
    return f"TLS failed: {plain(text)}; check the certificates of both", "certificate"


def words(data: bytes) -> str:
    """What another node has said in words."""
    return plain(data[: 4 * LONGEST].decode("utf-8", "replace"))


def plain(text: str) -> str:
    """A text for one line of a log: cut, and without characters that do something else than be read."""
    cut = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
    return cut if cut.isprintable() else "".join(c if c.isprintable() else "?" for c in cut)
