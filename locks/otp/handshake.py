"""The handshake of two nodes, version 6 (OTP 23 and newer), as bytes in and events out.

```
 connecting side                          accepting side
   send_name      ------------------------->              Named: the shell calls decide
   Status         <-------------------------  status
   (answer_alive  - - - - - - - - - - - - ->              if the status was "alive")
                  <-------------------------  challenge
   reply          ------------------------->              checks the digest
   Established    <-------------------------  ack         Established
   checks the digest
```

Each side proves that it knows the cookie: it sends the MD5 digest of the cookie and the number with
which the other one challenged it. The accepting side proves it only after the other one has.
Nothing else is protected, neither what follows nor against a man in the middle: that is what TLS is for.

The connecting side answers the challenge of whatever listens at an address. So an attacker might lure
us there and pass on a challenge of ours, to have us answer it ourselves. `Challenges` knows which ones
it gave lately, and with `issued` such a handshake fails.

The shell owns the connection, its time limits, and the decision which of several connections with a
node is kept. Here, everything is bounded: one frame of each kind, in their order, each at most
`LONGEST_FRAME` bytes. Any fault ends in `Failed`, which says what was wrong, with the value; never with
the cookie. After `Failed` and `Established` all input is ignored.

Within TLS the length in front of each frame has four bytes, else two, as in OTP.

Refused: the handshake of version 5, nodes that ask to be given a name (`DFLAG_NAME_ME`), nodes that
lack a flag that OTP 26 and newer demand.

Source: ERTS user's guide, "Distribution Protocol", "Distribution Handshake"; the values of the flags:
`dist.hrl` of OTP's `kernel` (the guide has another one for `DFLAG_MANDATORY_25_DIGEST`).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from enum import IntFlag
from struct import Struct
from struct import error as StructError
from typing import Literal, NamedTuple, get_args

from locks.errors import InvalidOption, MisuseError
from locks.otp.challenges import Challenges
from locks.otp.secret import Cookie

__all__ = [
    "FLAGS",
    "MANDATORY",
    "Challenges",
    "Established",
    "Event",
    "Failed",
    "Flag",
    "Handshake",
    "Named",
    "Peer",
    "Send",
    "Status",
]

LONGEST_FRAME = 1024  # bytes, without those of its length
LONGEST_NAME = 255  # bytes

Decision = Literal["ok", "ok_simultaneous", "nok", "not_allowed", "alive"]
DECISIONS: tuple[Decision, ...] = get_args(Decision)


class Flag(IntFlag):
    """What a node can do. Only what both can do is used."""

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
_MANDATORY_25 = (
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
MANDATORY = int(_MANDATORY_25 | Flag.V4_NC | Flag.UNLINK_ID)
# What we offer: all of those, and monitors, visible names, spawn requests, and messages with senders.
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

# --- Events -------------------------------------------------------------------------------------


class Peer(NamedTuple):
    """The other node.

    Attributes:
        name: Its name.
        flags: What it offers (`Flag`); what we offer, too, is used.
        creation: Its incarnation.
    """

    name: str
    flags: int
    creation: int


class Send(NamedTuple):
    """Bytes for the other side, with their length in front."""

    data: bytes


class Named(NamedTuple):
    """On the accepting side: what the other node calls itself. Nothing is proven yet."""

    name: str


class Status(NamedTuple):
    """On the connecting side: what the other one has decided. "alive" needs an answer."""

    status: str


class Established(NamedTuple):
    """Both have proven that they know the cookie; `rest` is what came after the handshake."""

    peer: Peer
    rest: bytes


class Failed(NamedTuple):
    """The handshake has failed: close the connection. The reason is for the log."""

    reason: str


Event = Send | Named | Status | Established | Failed

# --- The handshake ------------------------------------------------------------------------------

_NAME = Struct(">cQIH")  # tag, flags, creation, size of the name
_CHALLENGE = Struct(">cQIIH")  # tag, flags, challenge, creation, size of the name
_REPLY = Struct(">cI16s")
_ACK = Struct(">c16s")

# What it waits for, on the connecting side ("alive": the shell's answer), on the accepting one
# ("decide": the shell's decision), and on both.
_Step = Literal[
    "start", "status", "alive", "challenge", "ack", "name", "decide", "confirm", "reply", "over"
]


class Handshake:
    """One side of one handshake.

    Args:
        name: Our name, `name@host`.
        creation: Our incarnation, 32 bit and not 0.
        cookie: What both nodes know: 1 to 255 Latin-1 characters, none of them white space.
        challenge: A number of 32 bit that was never used before (`Challenges.next`).
        peer: The node that we connect to, or `None` when we accept.
        flags: What we offer.
        issued: Says whether a challenge is one of our own (`Challenges.issued`).
        length_size: How many bytes the length of each frame has: 2, or 4 as OTP has it within TLS.

    Raises:
        InvalidOption: One of these is not as it should be.
    """

    def __init__(
        self,
        *,
        name: str,
        creation: int,
        cookie: Cookie | str,
        challenge: int,
        peer: str | None,
        flags: int = FLAGS,
        issued: Callable[[int], bool] | None = None,
        length_size: Literal[2, 4] = 2,
    ) -> None:
        cookie = Cookie(cookie)
        for one in (name,) if peer is None else (name, peer):
            wrong = _wrong_name(one)
            if wrong:
                raise InvalidOption(f"a node's name must be name@host, but {wrong}", name=one)
        if peer == name:
            raise InvalidOption(f"{name} can't connect to itself", name=name)
        if not 0 < creation < 1 << 32:
            raise InvalidOption(f"a creation is a number from 1 to 2**32 - 1, not {creation!r}")
        if not 0 <= challenge < 1 << 32:
            raise InvalidOption(f"a challenge is a number of 32 bits, not {challenge!r}")
        if flags & MANDATORY != MANDATORY or flags & Flag.NAME_ME or flags >> 64:
            raise InvalidOption(f"the flags {flags:#x} are not what other nodes demand")
        self._cookie = cookie.check()
        self._length_size = length_size
        self._name = name
        self._creation = creation
        self._challenge = challenge
        self._flags = flags
        self._issued = issued
        self._expected = peer
        self._peer = Peer("", 0, 0)
        self._step: _Step = "name" if peer is None else "start"
        self._buffer = b""

    # --- What the shell calls

    def start(self) -> list[Event]:
        """Begin, on the connecting side.

        Raises:
            MisuseError: This side accepts, or has begun already.
        """
        self._need("start")
        self._step = "status"
        text = self._name.encode()
        body = _NAME.pack(b"N", self._flags, self._creation, len(text)) + text
        return [self._framed(body)]

    def receive(self, data: bytes) -> list[Event]:
        """Take in bytes, in pieces of any size."""
        events: list[Event] = []
        if not self._over:
            self._buffer += data
        head = self._length_size
        while not self._over and len(self._buffer) >= head:
            size = int.from_bytes(self._buffer[:head], "big")
            if size > LONGEST_FRAME:
                events += self._fail(f"a frame of {size} bytes, more than {LONGEST_FRAME}")
            elif len(self._buffer) < head + size:
                break
            else:
                frame = self._buffer[head : head + size]
                self._buffer = self._buffer[head + size :]
                events += self._take(frame)
        return events

    def decide(self, status: Decision) -> list[Event]:
        """Say whether the handshake may go on, on the accepting side after `Named`.

        Args:
            status: `"ok"`; `"ok_simultaneous"`: our own attempt to connect to that node is given up
                for this one; `"nok"`: it goes on, and this one is given up; `"not_allowed"`;
                `"alive"`: there is a connection, and the node is asked whether it is to be
                replaced.

        Raises:
            MisuseError: There is nothing to decide.
            InvalidOption: There is no such status.
        """
        if status not in DECISIONS:
            raise InvalidOption(f"a status is one of {', '.join(DECISIONS)}, not {status!r}")
        if self._over:
            return []
        self._need("decide")
        sent = self._framed(b"s" + status.encode())
        if status == "alive":
            self._step = "confirm"
            return [sent]
        if status in ("nok", "not_allowed"):
            return [sent, *self._fail(f"we have answered {self._peer.name} with {status!r}")]
        return [sent, self._send_challenge()]

    def answer_alive(self, go_on: bool) -> list[Event]:
        """Say whether the old connection is to be replaced, on the connecting side after "alive".

        Raises:
            MisuseError: The other side has not asked.
        """
        if self._over:
            return []
        self._need("alive")
        if not go_on:
            failed = self._fail("a connection is there already, and is kept")
            return [self._framed(b"sfalse"), *failed]
        self._step = "challenge"
        return [self._framed(b"strue")]

    # --- Steps

    @property
    def _over(self) -> bool:
        return self._step == "over"

    def _need(self, step: _Step) -> None:
        if self._step != step:
            raise MisuseError(
                f"the handshake of {self._name} is at {self._step!r}, and not at {step!r}"
            )

    def _take(self, frame: bytes) -> list[Event]:
        try:
            if self._step == "status":
                return self._take_status(frame)
            if self._step == "challenge":
                return self._take_challenge(frame)
            if self._step == "ack":
                return self._take_ack(frame)
            if self._step == "name":
                return self._take_name(frame)
            if self._step == "confirm":
                return self._take_confirmation(frame)
            if self._step == "reply":
                return self._take_reply(frame)
        except StructError:
            return self._fail(f"a frame of {len(frame)} bytes is too short: {_shown(frame)}")
        return self._fail(f"a frame that nobody waits for: {_shown(frame)}")

    def _take_status(self, frame: bytes) -> list[Event]:
        status = frame[1:].decode("latin-1")
        if frame[:1] != b"s":
            return self._fail(f"a status was expected, not {_shown(frame)}")
        if status.startswith("named:"):
            return self._fail("it gives us a name, which we have not asked for")
        if status not in DECISIONS:
            return self._fail(f"an unknown status, {_shown(frame[1:])}")
        if status in ("nok", "not_allowed"):
            return [Status(status), *self._fail(f"it answers {status!r}")]
        self._step = "alive" if status == "alive" else "challenge"
        return [Status(status)]

    def _take_challenge(self, frame: bytes) -> list[Event]:
        wrong_tag = self._check_tag(frame)
        if wrong_tag:
            return wrong_tag
        _, flags, challenge, creation, size = _CHALLENGE.unpack_from(frame)
        wrong = self._meet(frame, _CHALLENGE.size, size, flags, creation)
        if wrong:
            return wrong
        if challenge == self._challenge or (self._issued is not None and self._issued(challenge)):
            return self._fail("its challenge is one of ours; somebody may be passing them on")
        self._step = "ack"
        return [self._framed(_REPLY.pack(b"r", self._challenge, self._digest(challenge)))]

    def _take_ack(self, frame: bytes) -> list[Event]:
        tag, digest = _ACK.unpack_from(frame)
        if tag != b"a" or len(frame) != _ACK.size:
            return self._fail(f"an acknowledgement was expected, not {_shown(frame)}")
        return self._establish(digest)

    def _take_name(self, frame: bytes) -> list[Event]:
        wrong_tag = self._check_tag(frame)
        if wrong_tag:
            return wrong_tag
        _, flags, creation, size = _NAME.unpack_from(frame)
        wrong = self._meet(frame, _NAME.size, size, flags, creation)
        if wrong:
            return wrong
        self._step = "decide"
        return [Named(self._peer.name)]

    def _take_confirmation(self, frame: bytes) -> list[Event]:
        if frame == b"strue":
            return [self._send_challenge()]
        if frame == b"sfalse":
            return self._fail(f"{self._peer.name} keeps the connection that is there")
        return self._fail(f"true or false was expected, not {_shown(frame)}")

    def _take_reply(self, frame: bytes) -> list[Event]:
        tag, challenge, digest = _REPLY.unpack_from(frame)
        if tag != b"r" or len(frame) != _REPLY.size:
            return self._fail(f"an answer to the challenge was expected, not {_shown(frame)}")
        established = self._establish(digest)
        if isinstance(established[0], Failed):
            return established
        return [self._framed(_ACK.pack(b"a", self._digest(challenge))), *established]

    # --- Parts of steps

    def _send_challenge(self) -> Send:
        self._step = "reply"
        text = self._name.encode()
        head = _CHALLENGE.pack(b"N", self._flags, self._challenge, self._creation, len(text))
        return self._framed(head + text)

    def _check_tag(self, frame: bytes) -> list[Event]:
        """The answer to a name or challenge that is not of version 6; empty if it is."""
        if frame[:1] == b"N":
            return []
        if frame[:1] == b"n":
            return self._fail("it speaks version 5 of the handshake; it needs OTP 25 or newer")
        return self._fail(f"a name was expected, not {_shown(frame)}")

    def _meet(self, frame: bytes, place: int, size: int, flags: int, creation: int) -> list[Event]:
        """Take in the peer's name, flags and creation; return the answer if they are refused."""
        encoded = frame[place : place + size]
        if len(encoded) < size:
            return self._fail(f"a name of {size} bytes is cut off: {_shown(encoded)}")
        if flags & Flag.NAME_ME:
            return self._fail(f"{_shown(encoded)} asks to be given a name, which we don't do")
        try:
            name = encoded.decode()
        except UnicodeDecodeError:
            return self._fail(f"a name is no UTF-8: {_shown(encoded)}")
        wrong = _wrong_name(name)
        if wrong:
            return self._fail(f"it has no good name: {wrong}")
        if name == self._name:
            return self._fail(f"another node has our name, {name}")
        if self._expected not in (None, name):
            return self._fail(f"there is {name}, not {self._expected}")
        if flags & Flag.MANDATORY_25_DIGEST:
            flags |= _MANDATORY_25
        missing = MANDATORY & ~flags
        if missing:
            names = ", ".join(str(flag.name) for flag in Flag if flag & missing)
            return self._fail(f"{name} (flags {flags:#x}) lacks {names}; it needs OTP 25 or newer")
        self._peer = Peer(name, int(flags), creation)
        return []

    def _digest(self, challenge: int) -> bytes:
        return self._cookie.digest(challenge)

    def _establish(self, digest: bytes) -> list[Event]:
        """Check the peer's answer to our challenge."""
        if not hmac.compare_digest(digest, self._digest(self._challenge)):
            return self._fail(f"{self._peer.name} has another cookie")
        self._step = "over"
        rest, self._buffer = self._buffer, b""
        return [Established(self._peer, rest)]

    def _framed(self, body: bytes) -> Send:
        return Send(len(body).to_bytes(self._length_size, "big") + body)

    def _fail(self, reason: str) -> list[Event]:
        self._step = "over"
        self._buffer = b""
        return [Failed(reason)]


def _shown(data: bytes) -> str:
    """Bytes for the log, cut to a short text."""
    return repr(data) if len(data) <= 80 else f"{data[:80]!r}..."


def _wrong_name(name: str) -> str | None:
    """Return what is wrong with the name of a node, or `None`."""
    if not isinstance(name, str) or name.count("@") != 1 or not all(name.split("@")):
        return f"{name!r:.100} is not of the form name@host"
    if not name.isprintable() or " " in name:
        return f"{name!r:.100} has a character that is no part of names"
    if len(name.encode()) > LONGEST_NAME:
        return f"{name!r:.100}... has more than {LONGEST_NAME} bytes"
    return None
