"""The ways to a node: its known address, its present one, or a tunnel.

If a `Locator` knows where a node's servers are, the node asks it before it dials a server again,
because a lost server may have another address now. The first dial uses the address from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gevent.lock import RLock

from locks.errors import LocksError
from locks.net.stream import Stream
from locks.otp.names.addresses import Address, Locator, UnixAddress
from locks.otp.notices import Notices
from locks.otp.options import Options
from locks.runtime.away import call_in_thread
from locks.runtime.clock import monotonic

__all__ = ["Finder", "Ways"]

PAUSE = 1.0  # seconds between two questions to a locator, at least
PAUSE_HERE = 0.1  # likewise for the server of this machine


class Finder:
    """Asks a locator, not too often, and never twice at the same time. In the hub.

    Args:
        name: The node.
        locator: The locator.
        known: Its answer when the node was started.
        notices: Logs its errors.
    """

    def __init__(
        self, name: str, locator: Locator, known: Mapping[str, Address], notices: Notices
    ) -> None:
        self._name = name
        self._locator = locator
        self._notices = notices
        self._addresses: Mapping[str, Address] = known
        self._fresh = set(known)  # not dialled yet
        self._asked = -PAUSE
        self._busy = RLock()

    def address_of(self, name: str) -> Address | None:
        """The present address of a server, as far as known. Waits."""
        if name in self._fresh:
            self._fresh.discard(name)
            return self._addresses.get(name)
        with self._busy:
            is_here = isinstance(self._addresses.get(name), UnixAddress)
            if monotonic() - self._asked >= (PAUSE_HERE if is_here else PAUSE):
                self._asked = monotonic()
                self._ask()
        return self._addresses.get(name)

    def _ask(self) -> None:
        try:
            found = call_in_thread(self._locator.find)
        except Exception as error:  # of an engine
            fault = None if isinstance(error, (OSError, LocksError)) else error
            text = "%s can't find its servers with %s: %s"
            told = self._locator.describe()
            self._notices.warn("locator", told, text, self._name, told, error, error=fault)
        else:
            self._addresses = {**self._addresses, **found}


class Ways:
    """Begins connections. In the hub.

    Args:
        options: The node's options.
        finder: Finds the servers, if they may move.
        dial_tunnel: Begins a connection with a node without an address, over a tunnel.
    """

    def __init__(
        self, options: Options, finder: Finder | None, dial_tunnel: Callable[[str], Stream]
    ) -> None:
        self._options = options
        self._finder = finder
        self._dial_tunnel = dial_tunnel

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
        if address is None:
            return self._dial_tunnel(name)
        self._options.check_address(address, "connects to")  # it may be from another node
        return Stream.connect(address)
