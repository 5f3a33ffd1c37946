"""The ways to a node: its known address, an address found now, a port mapper, or a tunnel.

If a node's servers are found by a `Discovery`, the node calls it before it dials a server again,
because a lost server may have another address now. The first dial uses the address from the start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import Any

from gevent.lock import RLock

from locks.errors import InvalidOption, LocksError
from locks.lock_ids import shown
from locks.model import check_node_name, is_seconds, plain_text
from locks.otp.links.stream import Stream
from locks.otp.names.discovery import Address, ChangingDiscovery, Discovery, UnixAddress
from locks.otp.names.port_mapper import PortMapper
from locks.otp.notices import Notices
from locks.otp.options import MOST_SERVERS, Options
from locks.runtime.away import call_in_thread

__all__ = ["Finder", "Ways", "found_by"]

PAUSE = 1.0  # seconds between two calls of a discovery, at least
PAUSE_HERE = 0.1  # likewise for a discovery on this machine


def found_by(discovery: Discovery) -> dict[str, Address]:
    """The checked answer of a discovery; blocks.

    Raises:
        InvalidOption: The answer is not valid.
        Exception: An exception of the discovery.
    """
    told, size = discovery.describe(), discovery.size
    if type(size) is not int or not 0 < size <= MOST_SERVERS:
        raise InvalidOption(
            f"the number of servers of {told} is {shown(size)}; it must be 1 to {MOST_SERVERS}",
            servers=shown(size),
        )
    if isinstance(discovery, ChangingDiscovery) and not _is_interval(discovery.interval):
        raise InvalidOption(
            f"the interval of {told} is {shown(discovery.interval)}; it must be a number of seconds > 0",
            interval=shown(discovery.interval),
        )
    named = discovery.find()
    if not isinstance(named, Mapping):
        raise InvalidOption(
            f"{told} returned {shown(named)} instead of a dictionary of names and addresses, such as "
            '{"a@10.0.0.1": ("10.0.0.1", 9100)}',
            servers=shown(named),
        )
    found = dict(named)
    if len(found) > size:
        raise InvalidOption(
            f"{told} returned {len(found)} servers instead of {size}: "
            f"{shown(sorted(map(str, found)))}",
            servers=shown(sorted(map(str, found))),
        )
    for name, address in found.items():
        if not isinstance(address, UnixAddress) and not _is_host_and_port(address):
            raise InvalidOption(
                f"{told} returned the address {shown(address)} for {check_node_name(name)}, which is not "
                'a host with a port, such as ("10.0.0.1", 9100)',
                servers=shown(address),
            )
    return {check_node_name(name): address for name, address in found.items()}


def _is_interval(interval: Any) -> bool:
    return is_seconds(interval) and 0 < interval < inf


def _is_host_and_port(address: Any) -> bool:
    return (
        isinstance(address, tuple)
        and len(address) == 2
        and plain_text(address[0]) is not None
        and type(address[1]) is int
        and 0 < address[1] < 65536
    )


class Finder:
    """Calls a discovery, not too often, and never twice at the same time. In the hub.

    Args:
        name: The node.
        discovery: The discovery.
        known: Its answer when the node was started.
        notices: Logs its errors.
    """

    def __init__(
        self, name: str, discovery: Discovery, known: Mapping[str, Address], notices: Notices
    ) -> None:
        self._name = name
        self._discovery = discovery
        self._notices = notices
        self._found: Mapping[str, Address] = known
        self._fresh = set(known)  # not dialled yet
        self._asked = -PAUSE
        self._busy = RLock()

    def address_of(self, name: str) -> Address | None:
        """The present address of a server, as far as known. Waits."""
        if name in self._fresh:
            self._fresh.discard(name)
            return self._found.get(name)
        with self._busy:
            is_here = isinstance(self._found.get(name), UnixAddress)
            if time.monotonic() - self._asked >= (PAUSE_HERE if is_here else PAUSE):
                self._asked = time.monotonic()
                self._ask()
        return self._found.get(name)

    def ask_discovery(self) -> Mapping[str, Address] | None:
        """The present answer of the discovery; `None` if it fails. Waits."""
        with self._busy:
            self._asked = time.monotonic()
            return self._ask()

    def _ask(self) -> Mapping[str, Address] | None:
        try:
            found = call_in_thread(partial(found_by, self._discovery))
        except Exception as error:  # it may be the user's code
            fault = None if isinstance(error, (OSError, LocksError)) else error
            text = "%s can't find its servers with %s: %s"
            told = self._discovery.describe()
            self._notices.warn("discovery", told, text, self._name, told, error, error=fault)
            return None
        self._found = {**self._found, **found}  # other servers may still be at their old addresses
        return found


class Ways:
    """Begins connections. In the hub.

    Args:
        options: The node's options.
        finder: Finds the servers, if they are known by a discovery.
        dial_tunnel: Begins a connection with a node without an address, over a tunnel.

    Attributes:
        mapper: Erlang's port mapper, if it is used.
    """

    def __init__(
        self, options: Options, finder: Finder | None, dial_tunnel: Callable[[str], Stream]
    ) -> None:
        self._options = options
        self._finder = finder
        self._dial_tunnel = dial_tunnel
        self.mapper: PortMapper | None = None

    def begin_connection(self, name: str, address: Address | None) -> Stream:
        """Begin a connection; waits.

        Args:
            name: The node.
            address: Its address, if known.

        Raises:
            OSError: It can't be reached.
            LocksError: It is not allowed, or there is no way.
        """
        if self._finder is not None and name in self._options.servers:
            address = self._finder.address_of(name) or address
        if address is None and self.mapper is not None:
            try:
                address = (name.split("@")[1], self.mapper.look_up(name))
            except (OSError, LocksError):
                if not self._options.hidden:
                    raise
        if address is None:
            return self._dial_tunnel(name)
        self._options.check_address(address, "connects to")  # it may be from another node
        return Stream.connect(address)
