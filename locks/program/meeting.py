"""What the start of a node takes that meets others: its options, and who says where the servers are.

A program that is alone needs none of it, nor what it stands on: `locks.program.default` imports it when it is needed, before
anything has begun.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from locks.errors import InvalidOption
from locks.node.client.refusals import check_may_wait
from locks.node.client.scope import Here
from locks.node.node import Node
from locks.node.peers.cluster import Cluster as Cluster  # which the node needs then
from locks.otp.admission.secret import Cookie
from locks.otp.names.discovery import Address, Discovery
from locks.otp.options import TLS, Options, parse_servers
from locks.program.discovering import discovery_of, find_servers, none_of_the_servers
from locks.program.local import LocalServer

__all__ = [
    "TLS",
    "Address",
    "Cookie",
    "Discovery",
    "Options",
    "are_others",
    "discovery_of",
    "found_again",
    "options_of",
]


def options_of(
    given: str | None, name: str | None, within: float, *, servers: Any, **options: Any
) -> Options | None:
    """Check how a node takes part in a cluster; `None` if it is to stay alone.

    It waits for servers that have to be found.

    Args:
        given: The node's name, as it was given.
        name: The same, checked.
        within: Seconds until servers have to be found.
        servers: As for `locks.start`.
        **options: Likewise.

    Raises:
        InvalidOption: An option is wrong.
        OperatingError: The servers are not found in time.
    """
    discovery = servers if isinstance(servers, Discovery) else None
    if discovery is not None:
        if options.get("copies") is not None:
            raise InvalidOption(
                f"copies={options['copies']!r} needs a list of servers, and not {discovery.describe()}: where an id is depends on all "
                "servers, so they must not change while programs run",
                copies=repr(options["copies"]),
            )
        if isinstance(discovery, LocalServer):
            options["cookie"] = discovery.secret({"name": given, **options})
        check_may_wait()
        servers = find_servers(discovery, within)
    return Options.check(
        name,
        **options,
        servers=() if servers is None or isinstance(servers, Here) else servers,
        discovery=discovery,
    )


def found_again(name: str, options: Options, within: float) -> Options:
    """The same options for the next node, with the servers as they are now, if they are found.

    Raises:
        OperatingError: They are not found in time, or the node was one of them, and is not any more.
    """
    discovery = options.discovery
    if discovery is None:
        return options
    found = find_servers(discovery, within)
    if name in options.servers and name not in found:
        raise none_of_the_servers(name, discovery, found)
    return options.with_found(found)


def are_others(node: Node, servers: Iterable[str] | Discovery) -> bool:
    """Whether these are not the servers that a node was started with."""
    if isinstance(servers, Discovery):
        options = None if node.cluster is None else node.cluster.distribution.options
        return options is None or options.discovery != servers
    known = () if node.servers is None else node.servers.nodes
    return parse_servers(servers, epmd=True).keys() != set(known)
