"""Which requests of a browser are answered.

* A request must name this machine by an address, as `localhost`, or by an allowed name. A foreign page whose name
  suddenly resolves to our address (DNS rebinding) can't have an address as its name.
* A request for data or for a change must have the token, if there is one, in a separate header. A browser never adds
  that header by itself, so a foreign page can't make it send such a request in the user's name.
* A request that a foreign page causes is refused if the browser marks it as such.
"""

from __future__ import annotations

import hmac
import ipaddress
from typing import NamedTuple

__all__ = ["Refusal", "Rules", "name_of_host", "refusal"]

OUR_OWN = ("", "none", "same-origin")


class Rules(NamedTuple):
    """The rules for requests.

    Attributes:
        names: Allowed host names of the page, besides addresses and `localhost`.
        token: The required token; none if it is empty.
        may_break: Whether the page may end transactions.
    """

    names: tuple[str, ...] = ()
    token: str = ""
    may_break: bool = False


class Refusal(NamedTuple):
    """Why a request is not answered.

    Attributes:
        status: The HTTP status.
        why: The reason in words.
    """

    status: str
    why: str


def name_of_host(text: str) -> str:
    """The name in a `Host` header, without the port."""
    name = text.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0].rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def refusal(
    rules: Rules, *, host: str, site: str = "", token: str = "", secret: bool = False
) -> Refusal | None:
    """The reason to refuse a request; `None` if it is answered.

    Args:
        rules: The rules.
        host: The request's header `Host`.
        site: Its header `Sec-Fetch-Site`.
        token: Its header `X-Locks-Token`.
        secret: Whether the answer contains data or changes something.
    """
    name = name_of_host(host)
    if not (_is_address(name) or name == "localhost" or name in rules.names):
        why = f"{name[:100]!r} is not an allowed host name of this page; to allow it, start the page with --host"
        return Refusal("421 Misdirected Request", why)
    if not secret:
        return None
    if site.lower() not in OUR_OWN:
        return Refusal("403 Forbidden", "the request comes from another site")
    if rules.token and not hmac.compare_digest(token.encode(), rules.token.encode()):
        return Refusal("401 Unauthorized", "the token is missing or wrong")
    return None
