"""The flags that two nodes exchange in a handshake, and the events of a handshake.

Source: ERTS user's guide, "Distribution Protocol", "Distribution Handshake". The values of the
flags are from `dist.hrl` of OTP's `kernel` (the guide has another value for
`DFLAG_MANDATORY_25_DIGEST`).
"""

from __future__ import annotations

from enum import IntFlag
from typing import NamedTuple

from locks.otp.admission.strangers import Cause

__all__ = [
    "FLAGS",
    "FLAGS_HIDDEN",
    "MANDATORY",
    "MANDATORY_25",
    "Established",
    "Event",
    "Failed",
    "Flag",
    "Named",
    "Peer",
    "Proven",
    "Send",
    "Status",
]


class Flag(IntFlag):
    """The capabilities of a node. Only those of both nodes are used."""

    PUBLISHED = 0x1
    EXTENDED_REFERENCES = 0x4
    DIST_MONITOR = 0x8
    FUN_TAGS = 0x10
    DIST_MONITOR_NAME = 0x20
    NEW_FUN_TAGS = 0x80
    EXTENDED_PIDS_PORTS = 0x100
    EXPORT_PTR_TAG = 0x200
    BIT_BINARIES = 0x400
    NEW_FLOATS = 0x800
    SMALL_ATOM_TAGS = 0x4000
    UTF8_ATOMS = 0x10000
    MAP_TAG = 0x20000
    BIG_CREATION = 0x40000
    SEND_SENDER = 0x80000
    HANDSHAKE_23 = 0x1000000
    UNLINK_ID = 0x2000000
    MANDATORY_25_DIGEST = 0x4000000
    SPAWN = 1 << 32
    NAME_ME = 2 << 32
    V4_NC = 4 << 32


# The flags that MANDATORY_25_DIGEST stands for.
MANDATORY_25 = (
    Flag.EXTENDED_REFERENCES
    | Flag.FUN_TAGS
    | Flag.EXTENDED_PIDS_PORTS
    | Flag.UTF8_ATOMS
    | Flag.NEW_FUN_TAGS
    | Flag.BIG_CREATION
    | Flag.NEW_FLOATS
    | Flag.MAP_TAG
    | Flag.EXPORT_PTR_TAG
    | Flag.BIT_BINARIES
    | Flag.HANDSHAKE_23
)
# The flags that we demand, as OTP 26 does.
MANDATORY = int(MANDATORY_25 | Flag.V4_NC | Flag.UNLINK_ID)
# The flags that we offer: all of those, and monitors, visible names, spawn requests, and messages
# with senders. A client node offers the same without a visible name.
FLAGS = int(
    MANDATORY
    | Flag.MANDATORY_25_DIGEST
    | Flag.PUBLISHED
    | Flag.DIST_MONITOR
    | Flag.DIST_MONITOR_NAME
    | Flag.SMALL_ATOM_TAGS
    | Flag.SEND_SENDER
    | Flag.SPAWN
)
FLAGS_HIDDEN = FLAGS & ~Flag.PUBLISHED

# --- Events -------------------------------------------------------------------------------------


class Peer(NamedTuple):
    """The other node.

    Attributes:
        name: Its name.
        flags: The flags that it offers (`Flag`); those of both nodes are used.
        creation: Its incarnation.
    """

    name: str
    flags: int
    creation: int

    @property
    def hidden(self) -> bool:
        """Whether other nodes must not be told of it, because it is a client node."""
        return not self.flags & Flag.PUBLISHED


class Send(NamedTuple):
    """Bytes for the other side, with their length in front."""

    data: bytes


class Named(NamedTuple):
    """On the accepting side: the name that the other node gives. Nothing is proven yet."""

    name: str


class Status(NamedTuple):
    """On the connecting side: the decision of the other side. "alive" needs an answer."""

    status: str


class Proven(NamedTuple):
    """On the accepting side, with `asks`: the other side knows the cookie. Call `admit` or `refuse`."""

    peer: Peer


class Established(NamedTuple):
    """Both sides have proven that they know the cookie; `rest` is the input after the handshake."""

    peer: Peer
    rest: bytes


class Failed(NamedTuple):
    """The handshake has failed: close the connection. The reason is for the log."""

    reason: str
    cause: Cause = "bad words"


Event = Send | Named | Status | Proven | Established | Failed
