"""Which requests of a browser are answered.

* A request has to name this machine as a person would: by an address, as `localhost`, or by a name that was allowed. A
  page of somebody else whose name suddenly means our address (DNS rebinding) can't have an address as its name.
* What tells or changes anything demands the token, if there is one, in a header of its own. A browser adds that header to
  nothing by itself, so a page of somebody else can't make it ask in the user's name.
* What a page of somebody else makes the browser ask is refused where the browser says so.
"""

from __future__ import annotations

import hmac
import ipaddress
from typing import NamedTuple

__all__ = ["Refusal", "Rules", "is_loopback", "name_of_host", "refusal"]

OUR_OWN = ("", "none", "same-origin")


class Rules(NamedTuple):
    """What is allowed.

    Attributes:
        names: By which names the page may be asked for, besides addresses and `localhost`.
        token: What has to be known; nothing, if it is empty.
        may_break: Whether transactions may be ended.
    """

    names: tuple[str, ...] = ()
    token: str = ""
    may_break: bool = False


class Refusal(NamedTuple):
    """Why a request is not answered.

    Attributes:
        status: The status of HTTP.
        why: In words.
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


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine can connect with an address."""
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def refusal(
    rules: Rules, *, host: str, site: str = "", token: str = "", secret: bool = False
) -> Refusal | None:
    """Why a request is not answered; nothing, if it is.

    Args:
        rules: What is allowed.
        host: The request's header `Host`.
        site: Its header `Sec-Fetch-Site`.
        token: Its header `X-Locks-Token`.
        secret: Whether the answer tells or changes anything.
    """
    name = name_of_host(host)
    if not (_is_address(name) or name == "localhost" or name in rules.names):
        why = f"the page is not called {name[:100]!r} here; if it is to be, start it with --host"
        return Refusal("421 Misdirected Request", why)
    if not secret:
        return None
    if site.lower() not in OUR_OWN:
        return Refusal("403 Forbidden", "a page of somebody else asks")
    if rules.token and not hmac.compare_digest(token.encode(), rules.token.encode()):
        return Refusal("401 Unauthorized", "the token is missing or wrong")
    return None
