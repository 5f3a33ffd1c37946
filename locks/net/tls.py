"""TLS without waiting, and the certificates of nodes.

Both sides have a certificate, and check that the other one's is for the host in its node's name. The accepting side learns that name
only after the handshake of TLS, and Python's `ssl` has no check for that time. The connecting side uses the same check, so that its
error says which names the certificate has.

What a node proves itself with (`Keys`) may change while it runs. A connection uses it while it is made, and never again. So new files
count for new connections only.

Source: RFC 6125 and RFC 9525. Only the alternative names count, an address must be equal, and `*` stands for the whole first part of a
name that has at least two more.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from locks.errors import InvalidOption
from locks.net.secrets import Cookie, Cookies
from locks.runtime.first_use import Unloaded

if TYPE_CHECKING:
    import ssl
else:
    ssl = Unloaded("ssl")

__all__ = ["TLS", "Keys", "Tls", "host_of", "wrong_host"]

_CIPHERTEXT: Final = 16384  # the most that one TLS record holds
Certificate = Mapping[str, Any]
"""A certificate, as `ssl.SSLObject.getpeercert` returns it."""


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
        self._incoming.write(data)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    @property
    def certificate(self) -> Certificate | None:
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


# --- Certificates -------------------------------------------------------------------------------


def wrong_host(certificate: Certificate | None, host: str) -> str | None:
    """Return what is wrong if a certificate is not for a host, a name or an address; else `None`."""
    if any(_is_for(kind, name, host) for kind, name in _names(certificate)):
        return None
    return (
        f"the node on {host} has a certificate for {_hosts(certificate)}; it needs one for {host}, as "
        f"`locks certificates {host}` makes it, or the other side needs TLS(..., check_hostname=False)"
    )


def host_of(certificate: Certificate | None, host: str) -> str:
    """Return a host that a certificate is for: the given one if possible, else the first one in it.

    For a name with `*`, it is the given host's first part with the rest of that name.
    """
    names = _names(certificate)
    if not names or wrong_host(certificate, host) is None:
        return host
    kind, name = names[0]
    if kind == "IP Address":
        return str(ipaddress.ip_address(name.strip()))
    first, dot, rest = name.partition(".")
    return f"{host.partition('.')[0] if first == '*' else first}{dot}{rest}"


def _hosts(certificate: Certificate | None) -> str:
    return ", ".join(dict.fromkeys(name for _, name in _names(certificate)))[:200] or "no host"


def _names(certificate: Certificate | None) -> list[tuple[str, str]]:
    names = (certificate or {}).get("subjectAltName", ())
    return [(kind, name) for kind, name in names if kind in ("DNS", "IP Address")]


def _is_for(kind: str, name: str, host: str) -> bool:
    address = _address(host)
    if address is not None or kind != "DNS":
        return kind != "DNS" and _address(name) == address is not None
    name, host = name.lower().rstrip("."), host.lower().rstrip(".")
    first, _, rest = name.partition(".")
    if first == "*" and "." in rest:
        return host.partition(".")[2] == rest and host.partition(".")[0] != ""
    return name == host


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.strip())
    except ValueError:
        return None


# --- The files ----------------------------------------------------------------------------------


class TLS(NamedTuple):
    """Certificates for connections, on both sides.

    Attributes:
        certificate: File with the node's certificate (and those between it and the CA), PEM.
        key: File with its private key, PEM.
        ca: File with the certificates that peers' certificates must be signed by, PEM.
        check_hostname: Whether the certificate of another node, whichever side connects, must be
            for the host in that node's name. A client that has no name takes one for its certificate.
    """

    certificate: str | Path
    key: str | Path
    ca: str | Path
    check_hostname: bool = True

    def contexts(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        """The contexts for connecting and for accepting.

        Raises:
            InvalidOption: A file can't be read, or is not what it should be.
        """
        made = []
        for purpose in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER):
            context = ssl.SSLContext(purpose)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.check_hostname = False  # `wrong_host` checks it, on both sides
            context.verify_mode = ssl.CERT_REQUIRED
            loaded: tuple[str | Path, ...] = self[:2]
            try:
                context.load_cert_chain(self.certificate, self.key)
                loaded = (self.ca,)
                context.load_verify_locations(self.ca)
            except (OSError, ValueError) as error:
                absent = [str(path) for path in self[:3] if not Path(path).exists()]
                why = f"there is no {', '.join(absent)}" if absent else error
                raise InvalidOption(
                    f"can't set up TLS with {' and '.join(map(str, loaded))}: {why}. A certificate, its key, and the "
                    "certificate of the CA must be PEM files",
                    tls=repr(self),
                ) from error
            made.append(context)
        return made[0], made[1]

    def own(self) -> Certificate:
        """The node's certificate.

        Raises:
            InvalidOption: A file can't be read, or is not what it should be.
        """
        self.contexts()
        return _decoded(self.certificate)

    def check_is_for(self, name: str) -> None:
        """Raise `InvalidOption` if the certificate of a node that listens is for another host: all others would refuse it."""
        own, host = self.own(), name.partition("@")[2]
        if self.check_hostname and wrong_host(own, host) is not None:
            raise InvalidOption(
                f"the certificate {self.certificate} is for {_hosts(own)}, but this node is {name}, so all other nodes "
                f"would refuse it: make one with `locks certificates {host}`, or name the node after a host that it is for",
                tls=repr(self),
            )

    def host_of(self, host: str) -> str:
        """The host for the name of a client on this host: one that its certificate is for, if that is checked.

        Raises:
            InvalidOption: A file can't be read, or is not what it should be.
        """
        return host_of(self.own(), host) if self.check_hostname else host


def _decoded(file: str | Path) -> Certificate:
    """The first certificate in a file that `ssl` has loaded before."""
    import _ssl

    # Python's only function that decodes a certificate that nobody has presented.
    found: Certificate = _ssl._test_decode_cert(file)  # type: ignore[attr-defined]
    return found


class Keys(NamedTuple):
    """The cookies and certificates of a node, as they were when they were read.

    Attributes:
        cookies: The cookies.
        tls: The files with certificates; `None` without TLS.
        contexts: What they say, for connecting and for accepting.
        expires: When the node's certificate expires, in seconds since 1970.
        read: The content of these files.
    """

    cookies: Cookies
    tls: TLS | None = None
    contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None = None
    expires: float | None = None
    read: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, cookies: Cookies, tls: TLS | None) -> Keys:
        """Read the files with certificates.

        Raises:
            InvalidOption: A file can't be read, or is not what it should be.
        """
        if tls is None:
            return cls(cookies)
        files = [Path(each).absolute() for each in tls[:3]]  # the program may go to another folder
        tls = TLS(files[0], files[1], files[2], tls.check_hostname)
        contexts = tls.contexts()
        expires = ssl.cert_time_to_seconds(_decoded(files[0])["notAfter"])
        return cls(cookies, tls, contexts, expires, tuple(each.read_bytes() for each in files))

    def again(self, cookie: Cookie | None = None, tls: TLS | None = None) -> Keys:
        """Read all files again.

        Args:
            cookie: Where the cookies are now, if that has changed.
            tls: Where the certificates are now, likewise.

        Raises:
            InvalidOption: A file can't be read, or is not what it should be.
        """
        return Keys.of(Cookies.read(cookie or self.cookies.given), tls or self.tls)

    def are_same(self, other: Keys) -> bool:
        """Whether both say the same."""
        return self.read == other.read and self.cookies.each == other.cookies.each

    def __str__(self) -> str:
        """For a log: no secret."""
        count = len(self.cookies.each)
        said = "1 cookie" if count == 1 else f"{count} cookies"
        return said if self.tls is None else f"{said}, and the certificate {self.tls.certificate}"
