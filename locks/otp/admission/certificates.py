"""For which hosts a certificate is.

The side that connects has this checked by OpenSSL: it knows the host. The side that accepts learns only in
the handshake of the nodes, after that of TLS, how the other one calls itself; Python's `ssl` has no
check for that moment.

Source: RFC 6125 and RFC 9525: only the alternative names count, an address must be the same address, and `*` stands for
the whole first part of a name with at least two more.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

__all__ = ["wrong_host"]


def wrong_host(certificate: Mapping[str, Any] | None, host: str) -> str | None:
    """Return what is wrong if a certificate is not for a host, else `None`.

    Args:
        certificate: As `ssl.SSLObject.getpeercert` has it: verified, or empty.
        host: The name of the host, or its address.
    """
    names = list((certificate or {}).get("subjectAltName", ()))
    if any(_is_for(kind, name, host) for kind, name in names):
        return None
    listed = ", ".join(name for kind, name in names if kind in ("DNS", "IP Address"))
    return (
        f"the node on {host} has a certificate for {listed[:200] or 'no host'}; it needs one whose "
        f"alternative names include {host}, or the other side needs TLS(..., check_hostname=False)"
    )


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
