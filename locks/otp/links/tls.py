"""TLS on a connection that does not wait: bytes in, bytes out."""

from __future__ import annotations

import ssl
from typing import Any, Final

__all__ = ["Tls"]

_CIPHERTEXT: Final = 16384  # the most that one TLS record holds


class Tls:
    """TLS on a connection: what was received goes in, what is to be sent comes out.

    Args:
        context: What to accept, and this node's certificate.
        server: Whether this is the accepting side.
        hostname: The name that the other's certificate must have; on the connecting side.
    """

    __slots__ = ("_incoming", "_object", "_outgoing")

    def __init__(self, context: ssl.SSLContext, server: bool, hostname: str | None = None) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server, hostname)

    def handshake(self, data: bytes = b"") -> bool:
        """Go on with the handshake; return whether it is done. `outgoing` is to be sent."""
        if data:
            self._incoming.write(data)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    @property
    def certificate(self) -> dict[str, Any] | None:
        """What the other side's certificate says, once the handshake is done."""
        return self._object.getpeercert()

    def decrypt(self, data: bytes) -> bytes:
        """What the other side has written.

        Raises:
            ssl.SSLError: The data is not what TLS allows, or the other side has ended it.
        """
        self._incoming.write(data)
        found = []
        while True:
            try:
                part = self._object.read(_CIPHERTEXT)
            except ssl.SSLWantReadError:
                break
            if not part:
                raise ssl.SSLError("the other side has closed the connection")
            found.append(part)
        return b"".join(found)

    def encrypt(self, data: bytes | bytearray) -> None:
        """Write data, to be sent with `outgoing`."""
        if data:
            self._object.write(data)

    def outgoing(self) -> bytes:
        """What is to be sent now."""
        return self._outgoing.read()
