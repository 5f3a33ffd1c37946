"""The hello: two programs that have just connected prove to each other that they know the secret. Pure: bodies of frames in and out.

```
 the side that dials                          the side that accepts
   Hello        -------------------------->   checks what can be checked of a stranger
   checks it    <--------------------------   Hello
   Proof        -------------------------->   finds a secret that both know, and decides about rivals
   checks it    <--------------------------   Proof, with the same secret
```

In place of each of these, either side may send a `Refusal`, and closes the connection. Each message is the body of a frame of at
most `LONGEST` bytes.

A proof is the HMAC-SHA-256 of a label and the frames of both hellos, with the secret as its key. So it covers both names and all else that was said.
Both hellos have a random number, so a proof can't be used again. The labels differ, so it can't be sent back. The side that accepts
proves itself after the other side has. The side that dials sends a proof for each secret that it knows (two while the secret is
changed). A wrong proof only tells that it is of another secret.

Nothing that follows is protected, nor is it secret, and a third party may pass all of it on: that is the task of TLS.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from hmac import compare_digest
from typing import Annotated, Final, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from locks.errors import InvalidOption, OperatingError
from locks.model import check_node_name
from locks.net.frames import frame
from locks.net.secrets import MOST, Cookie
from locks.ranges import Message, plain

__all__ = [
    "ACCEPTS",
    "DIALS",
    "LONGEST",
    "Peer",
    "Refused",
    "Settled",
    "first_words",
    "prove",
    "read_hello",
    "recognise",
    "refusal",
    "say_hello",
    "tls_words",
]

VERSION: Final = 1
LONGEST = 2048  # bytes of the body of a frame
DIALS, ACCEPTS = b"locks 1 dials", b"locks 1 accepts"  # labels of proofs


class Refused(OperatingError):
    """A connection was not made.

    Attributes:
        cause: The kind of reason, by which lines of a log are counted. With `cookie` and `certificate`, other keys may help.
        told: What the other side is told instead, if the reason reads differently there.
    """

    cause: str = "bad words"
    told: str = ""


class Settled(Refused):
    """A connection was not made because another one is kept, or none is needed."""

    cause: str = "settled"


# --- Messages -----------------------------------------------------------------------------------

Name = Annotated[str, Meta(min_length=3, max_length=255)]


class Hello(Message, frozen=True):
    """What a program says of itself.

    Attributes:
        version: Of the protocol.
        name: Its node.
        to: The node that it dials, or that it answers.
        incarnation: A random number, another one after each start.
        ticktime: After how many seconds of silence it takes the other node for dead.
        kind: `client`: other nodes are not told of it.
        nonce: A random number that is never used again.
    """

    version: Literal[1]
    name: Name
    to: Name
    incarnation: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    ticktime: Annotated[float, Meta(ge=0.1, le=86_400)]
    kind: Literal["node", "client"]
    nonce: Annotated[bytes, Meta(min_length=32, max_length=32)]


class Proof(Message, frozen=True):
    """Proofs, each with another secret."""

    codes: Annotated[
        tuple[Annotated[bytes, Meta(min_length=32, max_length=32)], ...],
        Meta(min_length=1, max_length=MOST),
    ]


class Refusal(Message, frozen=True):
    """Why the connection is not made: the cause, and words for a log."""

    cause: Annotated[str, Meta(max_length=20)]
    words: Annotated[str, Meta(max_length=300)]


class Peer(NamedTuple):
    """The node at the other end of a connection.

    Attributes:
        name: Its name.
        incarnation: Another one after each start of its program.
        hidden: Whether other nodes must not be told of it, because it is a client node.
        ticktime: After how many seconds of silence it takes this node for dead.
    """

    name: str
    incarnation: int
    hidden: bool = False
    ticktime: float = 15.0


pack = msgspec.msgpack.encode
_unpack = msgspec.msgpack.Decoder(Hello | Proof | Refusal).decode
M = TypeVar("M", Hello, Proof)


def refusal(error: Refused) -> bytes:
    """The message that tells the other side why it is refused."""
    return pack(Refusal(error.cause, plain(error.told or str(error))))


# --- Steps --------------------------------------------------------------------------------------


def say_hello(own: Peer, to: str, nonce: bytes) -> bytes:
    """The hello of a node to another one, with 32 random bytes."""
    kind: Literal["client", "node"] = "client" if own.hidden else "node"
    hello = Hello(VERSION, own.name, to, own.incarnation, own.ticktime, kind, nonce)
    return pack(hello)


def read_hello(body: bytes, own: str, expected: str | None = None) -> Peer:
    """Read the other side's hello.

    Args:
        body: What it has sent.
        own: The name of this node.
        expected: The node that this one dials, if it does.

    Raises:
        Refused: It is not what it must be, or a refusal.
    """
    hello = _read(body, Hello)
    try:
        name = check_node_name(hello.name)
    except InvalidOption as error:
        raise Refused(f"its name is invalid: {error}") from None
    if name == own:
        said = f"two programs have the name {name}; give each a unique name"
        raise Refused(f"it has our own name: {said}", cause="name", told=said)
    if expected not in (None, name):
        raise Refused(
            f"found {name} there instead of {expected}; the name or the address is wrong",
            cause="name",
            told=f"it expects {expected}, but this is {name}; its address is wrong",
        )
    if hello.to != own:
        raise Refused(
            f"it expects {hello.to}, but this is {own}; its address is wrong",
            cause="name",
            told=f"found {own} there instead of {hello.to}; the name or the address is wrong",
        )
    return Peer(name, hello.incarnation, hello.kind == "client", hello.ticktime)


def prove(label: bytes, dialled: bytes, accepted: bytes, cookies: Iterable[Cookie]) -> bytes:
    """The message with a proof for each secret.

    Args:
        label: `DIALS` or `ACCEPTS`, whichever proves itself.
        dialled: The hello of the side that dials, as it was sent.
        accepted: The hello of the side that accepts.
        cookies: The secrets.
    """
    said = _said(label, dialled, accepted)
    return pack(Proof(tuple(cookie.code(said) for cookie in cookies)))


def recognise(
    body: bytes, label: bytes, dialled: bytes, accepted: bytes, cookies: Iterable[Cookie]
) -> Cookie | None:
    """The first of the secrets that the other side has proven to know; `None` if it knows none.

    Args:
        body: What it has sent.
        label: The label of its proof.
        dialled: The hello of the side that dials, as it was sent.
        accepted: The hello of the side that accepts.
        cookies: The secrets.

    Raises:
        Refused: It is no proof.
    """
    codes, said = _read(body, Proof).codes, _said(label, dialled, accepted)
    for cookie in cookies:
        own = cookie.code(said)
        if any(compare_digest(code, own) for code in codes):
            return cookie
    return None


def _said(label: bytes, *hellos: bytes) -> bytes:
    return label + b"".join(map(frame, hellos))


def _read(body: bytes, kind: type[M]) -> M:
    """The expected message; raises `Refused` if it is another one."""
    try:
        message = _unpack(body)
    except (ValueError, RecursionError) as error:
        raise _unreadable(body) from error
    if isinstance(message, Refusal):
        words = plain(message.words)
        if message.cause == "settled":
            raise Settled(words)
        raise Refused(f"it refused the connection: {words}", cause=message.cause)
    if not isinstance(message, kind):
        raise Refused(f"a {kind.__name__} was expected, not {message!r:.80}")
    return message


def _unreadable(body: bytes) -> Refused:
    with suppress(ValueError, RecursionError):
        said = msgspec.msgpack.decode(body)
        if type(said) is list and said[:1] == ["hello"] and said[1:2] != [VERSION]:
            words = (
                f"the nodes use the versions {VERSION} and {said[1:2]!r:.20} of the protocol; install the same version of "
                "locks on both"
            )
            return Refused(words, cause="version")
    return Refused(f"that is not a node's hello: {_shown(body)}")


# --- Words for what is no hello -----------------------------------------------------------------

# The first bytes of a TLS record: an alert or a handshake, of any version.
CURE = "set tls= on both, or on neither"
_TLS = (b"\x15\x03", b"\x16\x03")


def first_words(data: bytes) -> Refused:
    """Why a connection is refused that begins with bytes that are no frame."""
    if data.startswith(_TLS):
        return Refused(
            f"it uses TLS, but this node does not; {CURE}",
            cause="tls",
            told=f"this node does not use TLS; {CURE}",
        )
    if data[:2].isalpha():
        return Refused(f"it uses another protocol, {_shown(data)}; the name or the port is wrong")
    return Refused(f"that is not a node's hello: {_shown(data)}")


def tls_words(reason: str | None, text: str) -> Refused:
    """Why a connection is refused if TLS fails with this reason of OpenSSL."""
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"):
        return Refused(
            f"it does not use TLS, but this node does; {CURE}",
            cause="tls",
            told=f"this node uses TLS; {CURE}",
        )
    said = f"TLS failed: {plain(text)}; check the certificates of both"
    return Refused(said, cause="certificate")


def _shown(data: bytes) -> str:
    return f"{data[:40]!r}{'...' if len(data) > 40 else ''}"
