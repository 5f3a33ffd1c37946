"""Check of the host that a certificate is for.

On the connecting side, OpenSSL checks this, because the host is known. The accepting side learns
the other node's name only in the handshake of the nodes, after that of TLS. Python's `ssl` has no
check for that time.

Source: RFC 6125 and RFC 9525. Only the alternative names count, an address must be equal, and `*`
stands for the whole first part of a name that has at least two more.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

__all__ = ["wrong_host"]


def wrong_host(certificate: Mapping[str, Any] | None, host: str) -> str | None:
    """Return what is wrong if a certificate is not for a host, else `None`.

    Args:
        certificate: As returned by `ssl.SSLObject.getpeercert`: verified, or empty.
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
