"""What the start of a node takes that meets others: its options, and the search for servers that may move.

A program that is alone needs none of it, nor what it stands on: `locks.program.default` imports it when it is needed, before
anything has begun.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from locks.errors import OperatingError
from locks.net.addresses import Address, Locator
from locks.net.secrets import Cookie
from locks.net.tls import TLS
from locks.node.client.refusals import check_may_wait
from locks.node.client.scope import Here
from locks.node.node import Node
from locks.node.options import Options, parse_servers
from locks.node.peers.cluster import Cluster as Cluster  # which the node needs then
from locks.program.local import LocalServer, servers_by_word
from locks.runtime.away import call_in_thread
from locks.runtime.clock import monotonic
from locks.runtime.waiter import Waiter

__all__ = [
    "TLS",
    "Address",
    "Cookie",
    "Locator",
    "Options",
    "are_others",
    "located_again",
    "options_of",
    "parse_servers",
    "servers_by_word",
]

logger = logging.getLogger("locks.nodes")

AGAIN = 0.2  # seconds between two searches, while servers are missing


def options_of(
    given: str | None, name: str | None, within: float, *, servers: Any, **options: Any
) -> Options | None:
    """Check how a node takes part in a cluster; `None` if it is to stay alone.

    It waits for servers that may move.

    Args:
        given: The node's name, as it was given.
        name: The same, checked.
        within: Seconds until these have to be found.
        servers: As for `locks.start`.
        **options: Likewise.

    Raises:
        InvalidOption: An option is wrong.
        OperatingError: The servers are not found in time.
    """
    locator = servers if isinstance(servers, Locator) else None
    if locator is not None:
        if isinstance(locator, LocalServer):
            options["cookie"] = locator.secret({"name": given, **options})
        check_may_wait()
        servers = _find_servers(locator, within)
    return Options.check(
        name,
        **options,
        servers=() if servers is None or isinstance(servers, Here) else servers,
        locator=locator,
    )


def located_again(options: Options, within: float) -> Options:
    """The same options for the next node, with the present addresses of servers that may move.

    Raises:
        OperatingError: They are not found in time.
    """
    locator = options.locator
    return options if locator is None else options.at(_find_servers(locator, within))


def _find_servers(locator: Locator, timeout: float) -> Mapping[str, Address]:
    """Ask until the addresses of all servers are known; waits.

    Args:
        locator: The locator.
        timeout: Seconds to wait at most; starting the lock server of this machine may take longer.

    Raises:
        OperatingError: They are not found in time.
    """
    if isinstance(locator, LocalServer):
        return call_in_thread(locator.find)
    deadline = monotonic() + timeout
    told = locator.describe()
    reason = "no answer"
    while True:
        left = deadline - monotonic()
        try:
            found = call_in_thread(locator.find, max(left, 0.001))
        except TimeoutError:
            pass  # the earlier reason says more
        except (OSError, OperatingError) as error:
            reason = str(error)
        else:
            missing = [name for name in locator.names if name not in found]
            if not missing:
                return found
            reason = f"no address of {', '.join(missing)}"
        left = deadline - monotonic()
        if left <= 0:
            raise OperatingError(
                f"timed out after {timeout:g} s searching for the servers with {told}: {reason}",
                servers=told,
            )
        logger.debug("%s has not found all servers yet: %s", told, reason)
        Waiter().wait(min(AGAIN, left))  # other greenlets run meanwhile


def are_others(node: Node, servers: Iterable[str] | Locator) -> bool:
    """Whether these are not the servers that a node was started with."""
    if isinstance(servers, Locator):
        options = None if node.cluster is None else node.cluster.options
        return options is None or options.locator != servers
    known = () if node.servers is None else node.servers.nodes
    return parse_servers(servers).keys() != set(known)
