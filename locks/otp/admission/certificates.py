"""Check of the host that a certificate is for, and when it expires.

The accepting side learns the other node's name only in the handshake of the nodes, after that of TLS. Python's `ssl` has no
check for that time. The connecting side uses the same check, so that its error says which names the certificate has.

Source: RFC 6125 and RFC 9525. Only the alternative names count, an address must be equal, and `*`
stands for the whole first part of a name that has at least two more.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from datetime import datetime
from typing import Any

__all__ = ["expiry_of", "host_of", "hosts_of", "wrong_host"]

VERSION, UTC_TIME = 0xA0, 0x17  # tags of DER


def wrong_host(certificate: Mapping[str, Any] | None, host: str) -> str | None:
    """Return what is wrong if a certificate is not for a host, else `None`.

    Args:
        certificate: As returned by `ssl.SSLObject.getpeercert`: verified, or empty.
        host: The name of the host, or its address.
    """
    if any(_is_for(kind, name, host) for kind, name in _names(certificate)):
        return None
    return (
        f"the node on {host} has a certificate for {hosts_of(certificate) or 'no host'}; it needs one for {host}, as "
        f"`locks certificates {host}` makes it, or the other side needs TLS(..., check_hostname=False)"
    )


def hosts_of(certificate: Mapping[str, Any] | None) -> str:
    """The hosts that a certificate is for, in words."""
    return ", ".join(dict.fromkeys(name for _, name in _names(certificate)))[:200]


def host_of(certificate: Mapping[str, Any] | None, host: str) -> str:
    """Return a host that a certificate is for: the given one if possible, else the first one in it.

    For a name with `*`, it is the given host's first part with the rest of that name.

    Args:
        certificate: As for `wrong_host`.
        host: The name of this machine.
    """
    names = _names(certificate)
    if not names or wrong_host(certificate, host) is None:
        return host
    kind, name = names[0]
    if kind == "IP Address":
        return str(ipaddress.ip_address(name.strip()))
    first, dot, rest = name.partition(".")
    return f"{host.partition('.')[0] if first == '*' else first}{dot}{rest}"


def _names(certificate: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    names = (certificate or {}).get("subjectAltName", ())
    return [(kind, name) for kind, name in names if kind in ("DNS", "IP Address")]


def _is_for(kind: str, name: str, host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return kind == "IP Address" and _same_address(name, address)
    if kind != "DNS":
        return False
    name, host = name.lower().rstrip("."), host.lower().rstrip(".")
    first, _, rest = name.partition(".")
    if first == "*" and "." in rest:
        return host.partition(".")[2] == rest and host.partition(".")[0] != ""
    return name == host


def _same_address(name: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        return ipaddress.ip_address(name.strip()) == address
    except ValueError:
        return False


def expiry_of(der: bytes) -> float:
    """When a certificate expires, in seconds since 1970 (RFC 5280, 4.1); of a valid certificate."""
    _, certificate, _ = _element(der)
    _, rest, _ = _element(certificate)
    tag, _, after = _element(rest)
    if tag == VERSION:
        rest = after
    for _ in ("serial number", "signature", "issuer"):
        rest = _element(rest)[2]
    _, validity, _ = _element(rest)
    tag, text, _ = _element(_element(validity)[2])
    digits = text.decode("ascii").removesuffix("Z")
    if tag == UTC_TIME:
        digits = ("20" if digits[:2] < "50" else "19") + digits
    return datetime.strptime(f"{digits}+0000", "%Y%m%d%H%M%S%z").timestamp()


def _element(der: bytes) -> tuple[int, bytes, bytes]:
    """The first element: its tag and its contents; and what follows."""
    size, at = der[1], 2
    if size & 0x80:
        at = 2 + (size & 0x7F)
        size = int.from_bytes(der[2:at], "big")
    return der[0], der[at : at + size], der[at + size :]
