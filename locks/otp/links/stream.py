"""A connection during the handshake: a gevent socket, with or without TLS.

During the handshake, each connection has a greenlet that waits for a limited time. After the
handshake, `release` hands the bare socket over to a `Link`.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Callable
from typing import Any

from gevent import monkey
from gevent import socket as gevent_socket

from locks.otp.admission.certificates import wrong_host
from locks.otp.admission.credentials import check_user, credentials_of
from locks.otp.links.tls import Tls
from locks.otp.names.addresses import Address, HostAndPort, UnixAddress

__all__ = ["Stream", "abandon", "native_socket"]

_READ = 4096
native_socket: type[socket.socket] = monkey.get_original("socket", "socket")
"""The class of native sockets, even in a monkey-patched program."""


class Stream:
    """A connection to a node that has not proven itself yet.

    Args:
        sock: A connected gevent socket.
    """

    def __init__(self, sock: Any) -> None:
        self._socket = sock
        self._tls: Tls | None = None
        self._is_unix = sock.family == socket.AF_UNIX
        if not self._is_unix:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @classmethod
    def connect(cls, address: Address) -> Stream:
        """Connect to an address; waits.

        Raises:
            OSError: Nothing listens there.
            Refused: A program of another user listens, at a Unix domain socket.
        """
        if isinstance(address, UnixAddress):
            return cls._connect_unix(address)
        family = _family(address[0])
        if family is None:
            return cls(gevent_socket.create_connection(address))
        # gevent would look up even a numeric address in a thread, which takes ten times as long as
        # everything else. A lost node is dialled at once, while the other nodes are busy with the
        # loss.
        sock = gevent_socket.socket(family)
        try:
            sock.connect(address)
        except BaseException:
            sock.close()
            raise
        return cls(sock)

    @classmethod
    def _connect_unix(cls, address: UnixAddress) -> Stream:
        sock = gevent_socket.socket(socket.AF_UNIX)
        try:
            sock.connect(address.path)
            stream = cls(sock)
            stream.check_user()
        except FileNotFoundError as error:  # the same as a port without a listener
            sock.close()
            raise ConnectionRefusedError(
                errno.ECONNREFUSED, "there is no such socket", address.path
            ) from error
        except BaseException:
            sock.close()
            raise
        return stream

    def check_user(self) -> None:
        """At a Unix domain socket, check that the other side belongs to the same user.

        Raises:
            Refused: It belongs to another user.
        """
        if self._is_unix:
            check_user(credentials_of(self._socket))

    @property
    def address(self) -> HostAndPort:
        """Host and port of the other side; words in place of the host, if it has none."""
        if self._is_unix:
            found = credentials_of(self._socket)
            pid = None if found is None else found.pid
            return "this machine" if pid is None else f"process {pid} of this machine", 0
        host, port = self._socket.getpeername()[:2]
        return host, port

    def begin_tls(
        self,
        context: ssl.SSLContext,
        server: bool,
        hostname: str | None = None,
        step: Callable[[Callable[[bytes], bool], bytes], bool] = lambda act, data: act(data),
    ) -> None:
        """Use TLS from now on; `step` runs each of its steps, which take time to compute.

        Raises:
            OSError: The handshake of TLS has failed; `ssl.SSLError` is one.
        """
        tls = Tls(context, server, hostname)
        data = b""
        try:
            while not step(tls.handshake, data):
                self._send_raw(tls.outgoing())
                data = self._socket.recv(_READ)
                if not data:
                    raise ConnectionError("the connection was closed during the TLS handshake")
        finally:
            self._send_raw(tls.outgoing())  # the rest, or an alert
        self._tls = tls

    def wrong_host(self, host: str) -> str | None:
        """What is wrong if the other side's certificate is not for this host; `None` without TLS."""
        return None if self._tls is None else wrong_host(self._tls.certificate, host)

    def send(self, data: bytes) -> None:
        """Send all of it; waits."""
        if self._tls is not None:
            self._tls.encrypt(data)
            data = self._tls.outgoing()
        self._send_raw(data)

    def receive(self) -> bytes:
        """Wait for input, and return it.

        Raises:
            OSError: The connection was closed, or has failed.
        """
        # The first bytes may have come along with the end of the TLS handshake.
        data = b"" if self._tls is None else self._tls.decrypt(b"")
        while not data:
            data = self._socket.recv(_READ)
            if not data:
                raise ConnectionError("the connection was closed during the handshake")
            if self._tls is not None:
                data = self._tls.decrypt(data)
        return data

    def release(self) -> tuple[socket.socket, Tls | None]:
        """Hand the socket over, not blocking, and TLS with it; the stream is done."""
        sock = native_socket(fileno=self._socket.detach())
        sock.setblocking(False)
        return sock, self._tls

    def close(self) -> None:
        """Close it; a greenlet that waits for it gets an `OSError`."""
        self._socket.close()

    def await_words(self) -> bytes:
        """Wait until the other side sends something, or closes; return the first byte, still unread."""
        first: bytes = self._socket.recv(1, socket.MSG_PEEK)
        return first

    def is_closed(self) -> bool:
        """Whether it is known to be closed, by either side; does not wait."""
        try:
            self._socket.settimeout(0)
            gone = not self._socket.recv(1, socket.MSG_PEEK)
            self._socket.settimeout(None)
        except BlockingIOError:
            self._socket.settimeout(None)
            return False
        except OSError:
            return True
        return gone

    def leave_to_parent(self) -> None:
        """In a forked child: release the socket."""
        abandon(self._socket)

    def _send_raw(self, data: bytes) -> None:
        if data:
            self._socket.sendall(data)


def _family(host: str) -> socket.AddressFamily | None:
    """The family of a numeric address; `None` for a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return family
    return None


def abandon(sock: Any) -> None:
    """In a forked child: close a gevent socket at once, though its hub may not run here."""
    if sock.fileno() != -1:
        native_socket(fileno=sock.detach()).close()  # a patched `os.close` waits for the hub
