"""Servers that are found: what a word or an address of a service means, and the first search."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from functools import partial

from locks.errors import InvalidOption, OperatingError
from locks.lock_ids import shown
from locks.otp.names.discovery import Address, Discovery
from locks.otp.names.ways import found_by
from locks.program.dns_names import SCHEME
from locks.program.local import WORD, LocalServer
from locks.runtime import Waiter
from locks.runtime.away import call_in_thread

__all__ = ["HERE_WORD", "discovery_of", "find_servers", "names_a_source", "none_of_the_servers"]

logger = logging.getLogger("locks.nodes")

HERE_WORD = "here"
AGAIN = 0.2  # seconds between two questions, while servers are missing


def names_a_source(text: str) -> bool:
    """Whether a text says where servers are found, instead of naming them."""
    return text in (HERE_WORD, WORD) or text.startswith(f"{WORD}:") or "://" in text


def discovery_of(text: str) -> Discovery:
    """Who says where the servers are, of a text such as `"local"`.

    Raises:
        InvalidOption: It is none of the texts that are known, or something is wrong with it.
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
    """Ask until all servers are found; waits.

    Args:
        discovery: Who is asked.
        timeout: Seconds to wait at most; a lock server that has to be started takes what it takes.

    Raises:
        OperatingError: They were not found in time.
        InvalidOption: What is said can't be.
    """
    if isinstance(discovery, LocalServer):
        return call_in_thread(discovery.find)
    deadline = time.monotonic() + timeout
    told = discovery.describe()
    reason = "it has not answered"
    while True:
        left = deadline - time.monotonic()
        try:
            found = call_in_thread(partial(found_by, discovery), max(left, 0.001))
        except TimeoutError:
            pass  # what it said before says more
        except (OSError, OperatingError) as error:
            reason = str(error)
        else:
            if len(found) == discovery.size:
                return found
            reason = (
                f"it names {len(found)} of {discovery.size}: {', '.join(sorted(found)) or 'none'}"
            )
        left = deadline - time.monotonic()
        if left <= 0:
            raise OperatingError(
                f"the servers were not found by {told} within {timeout:g} s: {reason}",
                servers=told,
            )
        logger.debug("%s has not found all servers yet: %s", told, reason)
        Waiter().wait(min(AGAIN, left))  # other greenlets run meanwhile


def none_of_the_servers(name: str, discovery: Discovery, found: Iterable[str]) -> OperatingError:
    """The error that says so of a lock server's own name."""
    return OperatingError(
        f"{name} is not one of the servers that {discovery.describe()} names: {', '.join(sorted(found)) or 'none'}. A lock "
        "server is one of those that it shares programs with",
        name=name,
    )
