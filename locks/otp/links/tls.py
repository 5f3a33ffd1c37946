"""TLS without waiting: bytes in, bytes out."""

from __future__ import annotations

import ssl
from typing import Any, Final

__all__ = ["Tls"]

_CIPHERTEXT: Final = 16384  # the most that one TLS record holds


class Tls:
    """TLS on one connection: received bytes go in, bytes to send come out.

    Args:
        context: The accepted certificates, and this node's own.
        server: Whether this is the accepting side.
        hostname: On the connecting side, the name of the other side's host, for its choice of a certificate.
    """

    __slots__ = ("_incoming", "_object", "_outgoing")

    def __init__(self, context: ssl.SSLContext, server: bool, hostname: str | None = None) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server, hostname)

    def handshake(self, data: bytes = b"") -> bool:
        """Continue the handshake; return whether it is done. Then send `outgoing`."""
        if data:
            self._incoming.write(data)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    @classmethod
    def own_certificate(
        cls, connects: ssl.SSLContext, accepts: ssl.SSLContext
    ) -> dict[str, Any] | None:
        """The certificate of a node itself; `None` if its own CA has not signed it, or not for connecting.

        Python's `ssl` decodes only verified certificates of others. So the node's two sides talk to each other.
        """
        connects.check_hostname, connects.verify_mode = False, ssl.CERT_NONE
        here, there = cls(connects, False), cls(accepts, True)
        try:
            while not there.handshake(here.outgoing()):
                here.handshake(there.outgoing())
        except ssl.SSLError:
            return None
        return there.certificate

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The other side's certificate, after the handshake."""
        return self._object.getpeercert()

    def decrypt(self, data: bytes) -> bytes:
        """Decrypt received data.

        Raises:
            ssl.SSLError: The data is not valid in TLS, or the other side has ended TLS.
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
        """Encrypt data, to be sent with `outgoing`."""
        if data:
            self._object.write(data)

    def outgoing(self) -> bytes:
        """The bytes to send now."""
        return self._outgoing.read()
