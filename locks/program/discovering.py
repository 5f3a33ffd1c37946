"""Servers that are found by discovery: which words and addresses name a service, and the first search."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from functools import partial

from locks.errors import InvalidOption, OperatingError
from locks.lock_ids import shown
from locks.node.client.scope import HERE_WORD as HERE_WORD
from locks.otp.names.discovery import Address, Discovery
from locks.otp.names.ways import found_by
from locks.program.dns_names import SCHEME
from locks.program.local import WORD, LocalServer
from locks.runtime.away import call_in_thread
from locks.runtime.waiter import Waiter

__all__ = ["HERE_WORD", "discovery_of", "find_servers", "names_a_source", "none_of_the_servers"]

logger = logging.getLogger("locks.nodes")

AGAIN = 0.2  # seconds between two searches, while servers are missing


def names_a_source(text: str) -> bool:
    """Whether a text names a discovery service instead of servers."""
    return text in (HERE_WORD, WORD) or text.startswith(f"{WORD}:") or "://" in text


def discovery_of(text: str) -> Discovery:
    """The discovery that a text such as `"local"` stands for.

    Raises:
        InvalidOption: The text is unknown or wrong.
    """
    local = LocalServer.of(text)
    if local is not None:
        return local
    if text.startswith(SCHEME):
        try:
            from locks.program.dns_servers import DnsServers
        except ImportError as error:
            raise InvalidOption(
                f"servers={shown(text)} needs dnspython: pip install 'pykka-locks[dns]' ({error})",
                servers=shown(text),
            ) from error
        return DnsServers(text)
    raise InvalidOption(
        f"servers={shown(text)} is not a list of servers; write one: "
        '["a@10.0.0.1:9100", "b@10.0.0.2:9100", "c@10.0.0.3:9100"], or "local"',
        servers=shown(text),
    )


def find_servers(discovery: Discovery, timeout: float) -> Mapping[str, Address]:
    """Search until all servers are found; waits.

    Args:
        discovery: The discovery.
        timeout: Seconds to wait at most; starting a lock server may take longer.

    Raises:
        OperatingError: The servers were not found in time.
        InvalidOption: The answer is invalid.
    """
    if isinstance(discovery, LocalServer):
        return call_in_thread(discovery.find)
    deadline = time.monotonic() + timeout
    told = discovery.describe()
    reason = "no answer"
    while True:
        left = deadline - time.monotonic()
        try:
            found = call_in_thread(partial(found_by, discovery), max(left, 0.001))
        except TimeoutError:
            pass  # the earlier reason says more
        except (OSError, OperatingError) as error:
            reason = str(error)
        else:
            if len(found) == discovery.size:
                return found
            reason = f"found {len(found)} of {discovery.size}: {', '.join(sorted(found)) or 'none'}"
        left = deadline - time.monotonic()
        if left <= 0:
            raise OperatingError(
                f"timed out after {timeout:g} s searching for the servers with {told}: {reason}",
                servers=told,
            )
        logger.debug("%s has not found all servers yet: %s", told, reason)
        Waiter().wait(min(AGAIN, left))  # other greenlets run meanwhile


def none_of_the_servers(name: str, discovery: Discovery, found: Iterable[str]) -> OperatingError:
    """The error of a lock server that is not in the discovered set."""
    return OperatingError(
        f"this node, {name}, is not one of the servers found with {discovery.describe()}: {', '.join(sorted(found)) or 'none'}. A lock "
        "server must be in its own set of servers",
        name=name,
    )
