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

A side that refuses says why before it closes the connection, in two frames: `not_allowed`, which
OTP understands, and a text for the log (`refuse`). Both sides stop at such a frame, at any step.

Each side proves that it knows the cookie: it sends the MD5 digest of the cookie and the other
side's challenge. The accepting side proves it only after the other side has. Nothing else is
protected: neither the following data, nor against a man in the middle. That is the task of TLS.

The connecting side answers the challenge of any listener at the address. So an attacker might lure
this node there and send it one of its own challenges, which the node would then answer itself.
`Challenges` recognises its recent challenges, and with `issued` such a handshake fails.

The shell owns the connection and its time limits, and decides which of several connections with a
node is kept. With `asks`, it decides this after the other side has proven itself (`Proven`), and
before this side does. Everything here is bounded: there is one frame of each kind, in a fixed
order, each at most `LONGEST_FRAME` bytes. Any fault ends in `Failed`, which says what was wrong,
with the value, but never with the cookie. After `Failed` and `Established`, all input is ignored.

Within TLS, the length in front of each frame has four bytes, otherwise two, as in OTP.

Refused: the handshake of version 5, nodes that ask to be given a name (`DFLAG_NAME_ME`), nodes that
lack a flag that OTP 26 and newer demand.

Source: ERTS user's guide, "Distribution Protocol", "Distribution Handshake".
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from struct import Struct
from struct import error as StructError
from typing import Literal, get_args

from locks.errors import InvalidOption, MisuseError
from locks.otp.admission.challenges import Challenges
from locks.otp.admission.introductions import (
    FLAGS,
    FLAGS_HIDDEN,
    MANDATORY,
    MANDATORY_25,
    Established,
    Event,
    Failed,
    Flag,
    Named,
    Peer,
    Proven,
    Send,
    Status,
)
from locks.otp.admission.secret import Cookie
from locks.otp.admission.strangers import Cause, first_words, plain, words

__all__ = [
    "FLAGS",
    "FLAGS_HIDDEN",
    "MANDATORY",
    "Challenges",
    "Established",
    "Event",
    "Failed",
    "Flag",
    "Handshake",
    "Named",
    "Peer",
    "Proven",
    "Send",
    "Status",
    "refusal",
]

LONGEST_FRAME = 1024  # bytes, without those of its length
LONGEST_NAME = 255  # bytes
OTHER_COOKIE = "has another cookie"  # part of a refusal, by which the refused side recognises it

Decision = Literal["ok", "ok_simultaneous", "nok", "not_allowed", "alive"]
DECISIONS: tuple[Decision, ...] = get_args(Decision)

# --- The handshake ------------------------------------------------------------------------------

_NAME = Struct(">cQIH")  # tag, flags, creation, size of the name
_CHALLENGE = Struct(">cQIIH")  # tag, flags, challenge, creation, size of the name
_REPLY = Struct(">cI16s")
_ACK = Struct(">c16s")

# The next step: of the connecting side (at "alive" it needs the shell's answer), of the accepting
# side (at "decide" and "admit" it needs the shell's decision), and of both.
_Step = Literal[
    "start",
    "status",
    "alive",
    "challenge",
    "ack",
    "name",
    "decide",
    "confirm",
    "reply",
    "admit",
    "over",
]
_NOT_ALLOWED = b"snot_allowed"


class Handshake:
    """One side of one handshake.

    Args:
        name: Our name, `name@host`.
        creation: Our incarnation, 32 bit and not 0.
        cookie: The secret of both nodes: 1 to 255 Latin-1 characters, none of them white space.
        accepts: More cookies, by which the other side may prove itself when we accept; we answer with the same. It decides
            what the other side may do.
        challenge: A number of 32 bit that was never used before (`Challenges.next`).
        peer: The node that we connect to, or `None` when we accept.
        flags: The flags that we offer.
        issued: Whether a challenge is one of our own (`Challenges.issued`).
        length_size: How many bytes the length of each frame has: 2, or 4 as OTP has it within TLS.
        asks: Whether the accepting side stops at `Proven`.

    Raises:
        InvalidOption: One of these is wrong.
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
        asks: bool = False,
        accepts: Sequence[Cookie] = (),
    ) -> None:
        cookie = Cookie(cookie)
        for one in (name,) if peer is None else (name, peer):
            wrong = _wrong_name(one)
            if wrong:
                raise InvalidOption(f"a node's name must be name@host, but {wrong}", name=one)
        if peer == name:
            raise InvalidOption(f"{name} can't connect to itself", name=name)
        if not 0 < creation < 1 << 32:
            raise InvalidOption(
                f"a creation must be a number from 1 to 2**32 - 1, not {creation!r}"
            )
        if not 0 <= challenge < 1 << 32:
            raise InvalidOption(f"a challenge must be a number of 32 bits, not {challenge!r}")
        if flags & MANDATORY != MANDATORY or flags & Flag.NAME_ME or flags >> 64:
            raise InvalidOption(f"the flags {flags:#x} lack some that other nodes require")
        self._cookie = cookie.check()
        self._accepts = (self._cookie, *accepts)
        self._length_size = length_size
        self._name = name
        self._creation = creation
        self._challenge = challenge
        self._flags = flags
        self._issued = issued
        self._asks = asks
        self._answer = b""  # to the peer's challenge, while the shell decides
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
                events += self._misunderstand()
            elif len(self._buffer) < head + size:
                break
            else:
                frame = self._buffer[head : head + size]
                self._buffer = self._buffer[head + size :]
                if frame == _NOT_ALLOWED and self._step not in ("name", "decide", "admit"):
                    events += self._refused()
                else:
                    events += self._take(frame)
        return events

    def decide(self, status: Decision) -> list[Event]:
        """Decide whether the handshake continues, on the accepting side after `Named`.

        Args:
            status: `"ok"`; `"ok_simultaneous"`: our own attempt to connect to that node is given up
                for this one; `"nok"`: our own attempt continues, and this one is given up;
                `"not_allowed"`; `"alive"`: there is a connection, and the node must say whether
                this one replaces it.

        Raises:
            MisuseError: There is nothing to decide.
            InvalidOption: There is no such status.
        """
        if status not in DECISIONS:
            raise InvalidOption(f"a status must be one of {', '.join(DECISIONS)}, not {status!r}")
        if self._over:
            return []
        self._need("decide")
        sent = self._framed(b"s" + status.encode())
        if status == "alive":
            self._step = "confirm"
            return [sent]
        if status in ("nok", "not_allowed"):
            said = f"we answered {self._peer.name} with {status!r}"
            return [sent, *self._fail(said, "not wanted")]
        return [sent, self._send_challenge()]

    def admit(self) -> list[Event]:
        """Let the other side in, after `Proven`.

        Raises:
            MisuseError: It has not proven itself, or `asks` is not set.
        """
        if self._over:
            return []
        self._need("admit")
        return [self._framed(_ACK.pack(b"a", self._answer)), self._establish()]

    def refuse(self, reason: str, cause: Cause) -> list[Event]:
        """Refuse the other side, after `Named` or `Proven`, and tell it why.

        Raises:
            MisuseError: There is nothing to decide.
        """
        if self._over:
            return []
        if self._step != "admit":
            self._need("decide")
        return self._turn_away(reason, reason, cause)

    def answer_alive(self, go_on: bool) -> list[Event]:
        """Say whether this connection replaces the old one, on the connecting side after "alive".

        Raises:
            MisuseError: The other side has not asked.
        """
        if self._over:
            return []
        self._need("alive")
        if not go_on:
            failed = self._fail("another connection already exists, and is kept", "settled")
            return [self._framed(b"sfalse"), *failed]
        self._step = "challenge"
        return [self._framed(b"strue")]

    # --- Steps

    @property
    def is_judged(self) -> bool:
        """Whether the other side judges our proof now. An Erlang node that has another cookie closes the connection."""
        return self._step == "ack"

    @property
    def _over(self) -> bool:
        return self._step == "over"

    def _need(self, step: _Step) -> None:
        if self._step != step:
            raise MisuseError(
                f"the handshake of {self._name} is at {self._step!r}, not at {step!r}"
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
        return self._fail(f"an unexpected frame: {_shown(frame)}")

    def _take_status(self, frame: bytes) -> list[Event]:
        status = frame[1:].decode("latin-1")
        if frame[:1] != b"s":
            return self._fail(f"a status was expected, not {_shown(frame)}")
        if status.startswith("named:"):
            return self._fail("it gave us a name, which we did not request")
        if status not in DECISIONS:
            return self._fail(f"an unknown status, {_shown(frame[1:])}")
        if status == "nok":
            return [Status(status), *self._fail("its own connection to us is kept", "settled")]
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
            said = "its challenge is one of ours; a third party may be relaying them"
            return self._fail(said, "cookie")
        self._step = "ack"
        return [self._framed(_REPLY.pack(b"r", self._challenge, self._digest(challenge)))]

    def _take_ack(self, frame: bytes) -> list[Event]:
        tag, digest = _ACK.unpack_from(frame)
        if tag != b"a" or len(frame) != _ACK.size:
            return self._fail(f"an acknowledgement was expected, not {_shown(frame)}")
        if not self._is_right(digest, self._cookie):
            return self._fail(f"{self._peer.name} {OTHER_COOKIE}", "cookie")
        return [self._establish()]

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
            return self._fail(f"{self._peer.name} keeps the existing connection", "settled")
        return self._fail(f"true or false was expected, not {_shown(frame)}")

    def _take_reply(self, frame: bytes) -> list[Event]:
        tag, challenge, digest = _REPLY.unpack_from(frame)
        if tag != b"r" or len(frame) != _REPLY.size:
            return self._fail(f"an answer to the challenge was expected, not {_shown(frame)}")
        cookie = next((each for each in self._accepts if self._is_right(digest, each)), None)
        if cookie is None:
            said = f"{OTHER_COOKIE}; all nodes need the same one"
            return self._turn_away(f"{self._peer.name} {said}", f"{self._name} {said}", "cookie")
        self._cookie = cookie
        self._step, self._answer = "admit", self._digest(challenge)
        return [Proven(self._peer)] if self._asks else self.admit()

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
            said = "it uses version 5 of the handshake; OTP 25 or newer is needed"
            return self._fail(said, "too old")
        return self._fail(f"a name was expected, not {_shown(frame)}")

    def _meet(self, frame: bytes, place: int, size: int, flags: int, creation: int) -> list[Event]:
        """Take in the peer's name, flags and creation; return the answer if they are refused."""
        encoded = frame[place : place + size]
        if len(encoded) < size:
            return self._fail(f"a name of {size} bytes is cut off: {_shown(encoded)}")
        if flags & Flag.NAME_ME:
            return self._fail(f"{_shown(encoded)} requests a name, which is not supported")
        try:
            name = encoded.decode()
        except UnicodeDecodeError:
            return self._fail(f"a name is not UTF-8: {_shown(encoded)}")
        wrong = _wrong_name(name)
        if wrong:
            return self._fail(f"its name is invalid: {wrong}")
        if name == self._name:
            said = f"two programs have the name {name}; give each a unique name"
            return self._turn_away(f"it has our own name: {said}", said, "name")
        if self._expected not in (None, name):
            return self._turn_away(
                f"found {name} there instead of {self._expected}; the name or the address is wrong",
                f"it expects {self._expected}, but this is {name}; its address is wrong",
                "name",
            )
        if flags & Flag.MANDATORY_25_DIGEST:
            flags |= MANDATORY_25
        missing = MANDATORY & ~flags
        if missing:
            names = ", ".join(str(flag.name) for flag in Flag if flag & missing)
            said = f"{name} (flags {flags:#x}) lacks {names}; OTP 25 or newer is needed"
            return self._turn_away(said, said, "too old")
        self._peer = Peer(name, int(flags), creation)
        return []

    def _digest(self, challenge: int) -> bytes:
        return self._cookie.digest(challenge)

    def _is_right(self, digest: bytes, cookie: Cookie) -> bool:
        """Whether this is the answer to our challenge by a node with this cookie."""
        return hmac.compare_digest(digest, cookie.digest(self._challenge))

    def _establish(self) -> Established:
        self._step = "over"
        rest, self._buffer = self._buffer, b""
        return Established(self._peer, rest)

    def _refused(self) -> list[Event]:
        """Take in the other side's refusal, and its reason if it sent one."""
        head = self._length_size
        size = int.from_bytes(self._buffer[:head], "big")
        said = self._buffer[head : head + size]
        why = words(said[1:]) if said[:1] == b"s" else ""
        cause: Cause = "cookie" if OTHER_COOKIE in why else "not wanted"
        failed = self._fail(f"it refused the connection{': ' if why else ''}{why}", cause)
        return [Status("not_allowed"), *failed] if self._expected is not None else failed

    def _turn_away(self, reason: str, told: str, cause: Cause) -> list[Event]:
        """Fail, and tell the other side why."""
        return [Send(refusal(told, self._length_size)), *self._fail(reason, cause)]

    def _misunderstand(self) -> list[Event]:
        """Fail because the input is no handshake, and say what it seems to be."""
        reason, cause = first_words(self._buffer)
        if cause == "tls" and self._step == "name":
            return self._turn_away(reason, "this node does not use TLS", cause)
        return self._fail(reason, cause)

    def _framed(self, body: bytes) -> Send:
        return Send(_frame(body, self._length_size))

    def _fail(self, reason: str, cause: Cause = "bad words") -> list[Event]:
        self._step = "over"
        self._buffer = b""
        return [Failed(reason, cause)]


def refusal(why: str, length_size: int = 2) -> bytes:
    """The frames that refuse a node: `not_allowed`, and the reason."""
    words = b"s" + plain(why).encode()
    return _frame(_NOT_ALLOWED, length_size) + _frame(words, length_size)


def _frame(body: bytes, length_size: int) -> bytes:
    return len(body).to_bytes(length_size, "big") + body


def _shown(data: bytes) -> str:
    """Bytes for the log, cut to a short text."""
    return repr(data) if len(data) <= 80 else f"{data[:80]!r}..."


def _wrong_name(name: str) -> str | None:
    """Return what is wrong with the name of a node, or `None`."""
    if not isinstance(name, str) or name.count("@") != 1 or not all(name.split("@")):
        return f"{name!r:.100} is not of the form name@host"
    if not name.isprintable() or " " in name:
        return f"{name!r:.100} has a character that names can't have"
    if len(name.encode()) > LONGEST_NAME:
        return f"{name!r:.100}... has more than {LONGEST_NAME} bytes"
    return None
