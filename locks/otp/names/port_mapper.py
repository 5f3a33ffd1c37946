"""Connections to Erlang's port mapper (epmd): registering a node, and looking nodes up.

A node stays registered as long as its connection to the port mapper is open. If the connection
breaks, the node is registered again, with the same name, as soon as a port mapper is available.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from typing import Any, TypeVar

import gevent
from gevent import socket as gevent_socket

from locks.errors import OperatingError
from locks.net.stream import abandon, native_socket
from locks.otp.names import epmd
from locks.otp.names.addresses import HostAndPort

__all__ = ["PortMapper"]

logger = logging.getLogger("locks.nodes")

T = TypeVar("T")
PATIENCE = 5.0  # seconds
PAUSE = 1.0  # seconds between attempts to register again


def mapper_port() -> int:
    """The port of port mappers: 4369, or `ERL_EPMD_PORT`, as for Erlang."""
    return int(os.environ.get("ERL_EPMD_PORT", "4369"))


class PortMapper:
    """One node's connections to port mappers.

    Args:
        name: The node's name.
        address: Where it listens; a node that does not listen is not registered.
    """

    def __init__(self, name: str, address: HostAndPort | None) -> None:
        self._name = name
        self._address = address
        self._socket: Any = None
        self._closed = False

    def register(self) -> int | None:
        """Register the node with this machine's port mapper; blocks.

        Returns:
            The assigned creation; `None` if the node does not listen.

        Raises:
            OperatingError: There is no port mapper, or the name is taken.
        """
        if self._address is None:
            return None
        sock = native_socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.settimeout(PATIENCE)
        try:
            sock.connect(("127.0.0.1", mapper_port()))
            creation = self._introduce(sock)
        except BaseException as error:
            sock.close()
            if isinstance(error, OSError):
                raise OperatingError(
                    f"no answer from Erlang's port mapper on port {mapper_port()}: {error}. Start "
                    "it with `epmd -daemon`, or use epmd=False and peers with ports"
                ) from error
            raise
        self._socket = sock
        return creation

    def _introduce(self, sock: Any) -> int:
        assert self._address is not None
        sock.sendall(epmd.alive2_request(self._name.split("@")[0], self._address[1]))
        return _receive(sock, epmd.parse_alive2_response)

    def stay_registered(self) -> None:
        """Register again whenever the connection is lost. Runs in its own greenlet."""
        sock = self._socket
        if sock is None:
            return
        sock.setblocking(False)
        self._socket = sock = gevent_socket.socket(fileno=sock.detach())
        while not self._closed:
            try:
                while sock.recv(64):
                    pass
            except OSError as error:
                logger.debug("lost the connection to the port mapper: %s", error)
            sock.close()
            while not self._closed:
                gevent.sleep(PAUSE, ref=False)
                try:
                    self._socket = sock = gevent_socket.create_connection(
                        ("127.0.0.1", mapper_port()), PATIENCE
                    )
                    self._introduce(sock)
                    sock.settimeout(None)
                    break
                except (OSError, OperatingError) as error:
                    logger.debug("%s can't register again: %s", self._name, error)

    def look_up(self, name: str) -> int:
        """Request the port of a node from the port mapper of its host. Waits, as a greenlet.

        Raises:
            OSError: The port mapper does not answer.
            OperatingError: It does not know the node.
        """
        alive, host = name.split("@")
        sock = gevent_socket.create_connection((host, mapper_port()))
        try:
            sock.sendall(epmd.port_please2_request(alive))
            return _receive(sock, epmd.parse_port2_response)
        finally:
            sock.close()

    def close(self) -> None:
        """End the registration."""
        self._closed = True
        if self._socket is not None:
            self._socket.close()

    def leave_to_parent(self) -> None:
        """In a forked child: release the connection; the parent stays registered."""
        self._closed = True
        if self._socket is not None:
            abandon(self._socket)


def _receive(sock: Any, parse: Callable[[bytes], T | None]) -> T:
    """Read until the answer is complete."""
    data = b""
    while True:
        part = sock.recv(1024)
        data += part
        found = parse(data)
        if found is not None:
            return found
        if not part:
            raise ConnectionError("the port mapper closed the connection")
