"""A connection until both sides have a link: a gevent socket with or without TLS, whole frames in and out.

Each such connection has a greenlet that waits for a limited time. At the end, `release` hands the bare socket over to a `Link`.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from _socket import getaddrinfo  # even in a monkey-patched program, where the usual one waits
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from gevent import monkey
from gevent import socket as gevent_socket

from locks.errors import InvalidOption
from locks.net.addresses import Address, HostAndPort, UnixAddress
from locks.net.frames import frame
from locks.net.hello import LONGEST, Refused, first_words
from locks.net.tls import TLS, Tls, wrong_host

if TYPE_CHECKING:
    import ssl

__all__ = [
    "Credentials",
    "Stream",
    "abandon",
    "check_user",
    "credentials_of",
    "listen",
    "native_socket",
]

BACKLOG = 1024  # connections that the system keeps until they are accepted
UNFINISHED = "~"  # at the end of the path of a Unix domain socket, until it listens
_READ = 4096
_UCRED = struct.Struct("iII")  # of Linux: process, user, group
_XUCRED = struct.Struct("=II")  # of the BSDs and macOS: version, user, and more
_XUCRED_SIZE = 76
_LOCAL_PEERCRED = 1
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
        self._arrived = b""  # and not taken
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
        target: Any
        if isinstance(address, UnixAddress):
            family, target = int(socket.AF_UNIX), address.path
        else:
            host, port = address
            try:  # gevent looks up even a numeric address in a thread, which takes ten times as long as the rest
                family, *_, target = getaddrinfo(
                    host.encode("ascii"), port, flags=socket.AI_NUMERICHOST
                )[0]
            except (socket.gaierror, UnicodeEncodeError):
                return cls(gevent_socket.create_connection(address))
        sock = gevent_socket.socket(family)
        try:
            sock.connect(target)
            stream = cls(sock)
            stream.check_user()
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

    # --- TLS ------------------------------------------------------------------------------------

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
                data = self._read()
        finally:
            self._send_raw(tls.outgoing())  # the rest, or an alert
        self._tls = tls
        self._arrived = tls.decrypt(b"")  # what came along with the end of the handshake

    def check_host(self, files: TLS | None, name: str) -> None:
        """Raise `Refused` if the other side's certificate must be for the host in its node's name, and is not."""
        if self._tls is not None and files is not None and files.check_hostname:
            wrong = wrong_host(self._tls.certificate, name.partition("@")[2])
            if wrong is not None:
                raise Refused(wrong, cause="certificate")

    def first_byte(self) -> bytes:
        """Wait until the other side sends something, or closes; return the first byte, still unread."""
        first: bytes = self._socket.recv(1, socket.MSG_PEEK)
        return first

    def is_closed(self) -> bool:
        """Whether it is known to be closed, by either side; does not wait."""
        try:
            self._socket.settimeout(0)
            return not self.first_byte()
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self._socket.settimeout(None)

    # --- Frames ---------------------------------------------------------------------------------

    def send(self, body: bytes) -> None:
        """Send a frame; waits."""
        data = frame(body)
        if self._tls is not None:
            self._tls.encrypt(data)
            data = self._tls.outgoing()
        self._send_raw(data)

    def receive(self) -> bytes:
        """Wait for a frame; return its body.

        Raises:
            OSError: The connection was closed, or has failed.
            Refused: It is too long for a hello.
        """
        while True:
            size = int.from_bytes(self._arrived[:4], "big")
            if len(self._arrived) >= 4 and size > LONGEST:
                raise first_words(self._arrived)
            if len(self._arrived) >= 4 + size:
                body, self._arrived = self._arrived[4 : 4 + size], self._arrived[4 + size :]
                return body
            data = self._read()
            self._arrived += data if self._tls is None else self._tls.decrypt(data)

    def _send_raw(self, data: bytes) -> None:
        if data:
            self._socket.sendall(data)

    def _read(self) -> bytes:
        data: bytes = self._socket.recv(_READ)
        if not data:
            raise ConnectionError(
                "the connection was closed before both sides had proven themselves"
            )
        return data

    # --- The end --------------------------------------------------------------------------------

    def release(self) -> tuple[socket.socket, Tls | None, bytes]:
        """Hand over the socket, not blocking, with TLS and what has arrived; the stream is done."""
        sock = native_socket(fileno=self._socket.detach())
        sock.setblocking(False)
        return sock, self._tls, self._arrived

    def close(self) -> None:
        """Close it; a greenlet that waits for it gets an `OSError`."""
        self._socket.close()

    def leave_to_parent(self) -> None:
        """In a forked child: release the socket."""
        abandon(self._socket)


def abandon(sock: Any) -> None:
    """In a forked child: close a gevent socket at once, though its hub may not run here."""
    if sock.fileno() != -1:
        native_socket(fileno=sock.detach()).close()  # a patched `os.close` waits for the hub


# --- Listening ----------------------------------------------------------------------------------


def listen(address: Address) -> socket.socket:
    """Make a native socket that listens at an address.

    A Unix domain socket takes the place of an existing file; the path appears only when it listens.

    Raises:
        InvalidOption: The address can't be listened on.
    """
    if isinstance(address, UnixAddress):
        family, where, cure = socket.AF_UNIX, address.path, ""
    else:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        where, cure = (
            f"{address[0]}:{address[1]}",
            "; choose another address, or port 0 for a free one",
        )
    listener = native_socket(family, socket.SOCK_STREAM)
    try:
        if isinstance(address, UnixAddress):
            with suppress(FileNotFoundError):
                os.unlink(where + UNFINISHED)
            listener.bind(where + UNFINISHED)
            listener.listen(BACKLOG)
            os.rename(where + UNFINISHED, where)
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        said = f"can't listen on {where}: {error.strerror or error}{cure}"
        raise InvalidOption(said, address=address) from error
    return listener


# --- Who is at the other end of a Unix domain socket --------------------------------------------


class Credentials(NamedTuple):
    """A program, as the system reports it.

    Attributes:
        pid: Its process; `None` if the system does not report it.
        uid: Its user.
    """

    pid: int | None
    uid: int


def credentials_of(sock: Any) -> Credentials | None:
    """The program at the other end of a socket; `None` if this system does not report it."""
    if hasattr(socket, "SO_PEERCRED"):
        ucred = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        pid, uid, _ = _UCRED.unpack(ucred)
        return Credentials(pid, uid)
    if sys.platform == "darwin" or "bsd" in sys.platform:
        xucred = sock.getsockopt(0, _LOCAL_PEERCRED, _XUCRED_SIZE)
        return Credentials(None, _XUCRED.unpack_from(xucred)[1])
    return None


def check_user(found: Credentials | None) -> None:
    """Raise unless a program belongs to the user of this one.

    Raises:
        Refused: It belongs to another user.
    """
    own = os.geteuid()
    if found is not None and found.uid != own:
        raise Refused(
            f"the program at the other end runs as user {found.uid}, but this one as user {own}; on a "
            "Unix domain socket only programs of one user can connect",
            cause="user",
        )
