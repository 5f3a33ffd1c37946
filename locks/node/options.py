"""The options of a node in a cluster: those of `locks.start`, checked.

They are safe by default: a cluster needs a cookie, a node listens on loopback, and any other
address needs TLS, or `allow_plaintext=True`.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, NamedTuple

from locks.errors import InvalidOption
from locks.lock_ids import shown
from locks.model import NODE_NAME, Require, check_node_name, check_require, is_seconds
from locks.net.addresses import Address, HostAndPort, Locator, UnixAddress, is_loopback, place
from locks.net.messages import Limits
from locks.net.secrets import Cookie, Cookies
from locks.net.tls import TLS

__all__ = [
    "MOST_SERVERS",
    "Options",
    "client_name",
    "parse_peer",
    "parse_servers",
]

MOST_SERVERS = 99
NET_TICKTIME = 15.0  # seconds


class Options(NamedTuple):
    """The options of a node in a cluster. `Options.check` makes them.

    Attributes:
        cookies: The secret that all nodes share; several while it is changed.
        listen: Where to accept connections; `None` to connect only.
        peers: The nodes to connect to, with their addresses.
        tls: Certificates, or `None`.
        net_ticktime: After how many seconds a silent node counts as down.
        mesh: Whether nodes inform each other of the nodes that they know.
        plaintext: Whether addresses other than loopback are allowed without TLS.
        servers: The default nodes of locks, in order; empty if none were given.
        require: How many of these are needed.
        locator: Knows where the servers are, if they may move.
        state: The file in which it keeps what is done, if it does.
        copies: How many of the servers have each id; 0 if all have all ids.
        limits: What each other program may have at its lock server.
    """

    cookies: Cookies
    listen: Address | None
    peers: dict[str, Address]
    tls: TLS | None
    net_ticktime: float
    mesh: bool
    plaintext: bool
    servers: tuple[str, ...]
    require: Require
    locator: Locator | None
    state: Path | None = None
    copies: int = 0
    limits: Limits = Limits()

    @property
    def hidden(self) -> bool:
        """Whether it is a client node, hidden from other nodes: it has no mesh, and does not listen."""
        return not self.mesh and self.listen is None

    def name_for(self, given: str | None) -> str:
        """The name of a node: the given one, or else a unique one for a client node."""
        return given or (client_name(self.tls) if self.hidden else NODE_NAME)

    def at(self, found: Mapping[str, Address]) -> Options:
        """The same options with the present addresses of servers."""
        return self._replace(peers={**self.peers, **found})

    @classmethod
    def check(
        cls,
        name: str | None,
        *,
        cookie: Cookie | str | Path | Sequence[str] | None,
        listen: str | int | Address | bool | None,
        peers: Iterable[str] | None,
        tls: TLS | None,
        net_ticktime: float | None,
        mesh: bool | None,
        allow_plaintext: bool | None,
        servers: Iterable[str] | Mapping[str, Address] = (),
        require: Require | None = None,
        locator: Locator | None = None,
        state: str | Path | None = None,
        copies: int | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> Options | None:
        """Check the options of `locks.start`, as given there; return `None` for a node without a cluster.

        Raises:
            InvalidOption: Something is wrong.
        """
        if isinstance(peers, (str, bytes)):
            raise InvalidOption(
                f'peers={peers!r} is a string; write a list: ["b@127.0.0.1:9100"]',
                peers=repr(peers),
            )
        peers = list(peers or ())
        given = parse_servers(servers)
        if not given and require is not None:
            raise InvalidOption(
                f"require={require!r} needs servers=[...], too: it is the number of servers that a lock needs",
                require=require,
            )
        number = _copies(given, copies)
        if cookie is None:
            if listen not in (None, False) or peers or given or tls is not None or state:
                raise InvalidOption(
                    f"{_whose(name, given)} needs a cookie, a secret that all nodes share: "
                    "use start(..., cookie=...), or a file: --cookie-file, LOCKS_COOKIE_FILE; there is no default",
                )
            return None
        cookies = Cookies.read(Cookie(cookie))
        if net_ticktime is None:
            net_ticktime = NET_TICKTIME
        elif not (is_seconds(net_ticktime) and 0 < net_ticktime < 86400):
            raise InvalidOption(
                f"net_ticktime={net_ticktime!r} is not a number of seconds > 0",
                net_ticktime=repr(net_ticktime),
            )
        if tls is not None and not isinstance(tls, TLS):
            raise InvalidOption(
                f"tls={tls!r} is wrong; use locks.TLS(certificate, key, ca)", tls=repr(tls)
            )
        if mesh is None:
            mesh = not given or name in given
        if listen is None:
            listen = given.get(name or "") or (None if mesh else False)
        options = cls(
            cookies,
            _listen_address(listen),
            _with_peers(given, map(parse_peer, peers)),
            tls,
            net_ticktime,
            bool(mesh),
            bool(allow_plaintext),
            tuple(sorted(given)),
            _required(range(number or len(given)), require),
            locator,
            None if state is None else Path(state),
            number,
            Limits() if limits is None else Limits.check(limits),
        )
        if options.state is not None and options.hidden:
            raise InvalidOption(
                f"state={str(state)!r} is for lock servers, and this node is only a client of some",
                state=str(state),
            )
        if name is not None and name in given:
            del options.peers[name]
        own = name or NODE_NAME
        if own in options.peers:
            raise InvalidOption(f"peers contains {own}, the node itself; remove it", peer=own)
        if options.listen is not None:
            options.check_address(options.listen, "listens on")
            if name is not None and tls is not None:
                tls.check_is_for(name)
        for address in options.peers.values():
            options.check_address(address, "connects to")
        return options

    def check_address(self, address: Address, what: str) -> None:
        """Raise `InvalidOption` unless the address is loopback, or TLS or plaintext is given."""
        if isinstance(address, UnixAddress):
            return
        if self.tls is None and not self.plaintext and not is_loopback(address[0]):
            raise InvalidOption(
                f"a node that {what} {address[0]} is open to the network: use TLS (--tls, LOCKS_TLS_CERTIFICATE and "
                "so on, or tls=locks.TLS(...)), or LOCKS_ALLOW_PLAINTEXT=1 or allow_plaintext=True if the network is "
                "yours alone",
                address=address,
            )


def client_name(tls: TLS | None = None) -> str:
    """A unique name for a client node, from its process and machine, or the host that its certificate is for."""
    import secrets
    import socket

    host = "".join(socket.gethostname().split())
    if tls is not None:
        host = tls.host_of(host)
    try:
        return check_node_name(f"client-{os.getpid()}-{secrets.token_hex(6)}@{host}")
    except InvalidOption:  # a host with a strange name
        return f"client-{os.getpid()}-{secrets.token_hex(6)}@localhost"


def _whose(name: str | None, servers: Container[str]) -> str:
    """What a node without a cookie is, for the error."""
    if servers and name not in servers:
        return "a client of lock servers"
    return "a node that connects to others, or accepts connections,"


def parse_peer(peer: Any, what: str = "peer") -> tuple[str, HostAndPort]:
    """Split `name@host:port`.

    Args:
        peer: The text.
        what: What it is, for the error.

    Raises:
        InvalidOption: It does not have this form.
    """
    if isinstance(peer, str) and peer.count("@") == 1:
        name, colon, port = peer.partition(":")
        if colon and port.isdecimal() and 0 < int(port) < 65536:
            return check_node_name(name), (name.split("@")[1], int(port))
    raise InvalidOption(
        f'{what} {peer!r} is not of the form "name@host:port", such as a@10.0.0.1:9100',
        peer=repr(peer),
    )


def parse_servers(servers: Iterable[str] | Mapping[str, Address]) -> dict[str, Address]:
    """The names of servers and their addresses, from a list, or a mapping by a locator.

    Raises:
        InvalidOption: They are not valid, or too many.
    """
    if isinstance(servers, (str, bytes)) or not isinstance(servers, Iterable):
        raise InvalidOption(
            f"servers={shown(servers)} is not a list of servers; use one, such as "
            '["a@10.0.0.1:9100", "b@10.0.0.2:9100", "c@10.0.0.3:9100"]',
            servers=shown(servers),
        )
    each = list(servers)
    if len(each) > MOST_SERVERS:
        raise InvalidOption(f"{len(each)} servers are too many; the limit is {MOST_SERVERS}")
    if isinstance(servers, Mapping):
        return {check_node_name(name): address for name, address in servers.items()}
    found: dict[str, Address] = dict(parse_peer(server, "lock server") for server in each)
    if len(found) < len(each):
        raise InvalidOption(
            f"servers={shown(each)} contains a name twice; each server needs a unique name",
            servers=shown(each),
        )
    return found


def _with_peers(
    servers: Mapping[str, Address], peers: Iterable[tuple[str, Address]]
) -> dict[str, Address]:
    """All nodes to connect to, with their addresses.

    Raises:
        InvalidOption: A node has two addresses.
    """
    found = dict(servers)
    for name, address in peers:
        known = found.setdefault(name, address)
        if address != known:
            raise InvalidOption(
                f"{name} has two addresses, {place(known)} and {place(address)}; list it once",
                name=name,
            )
    return found


def _copies(servers: Sized, copies: int | None) -> int:
    """How many of the servers have each id; 0 if all have all ids.

    Raises:
        InvalidOption: There can't be so many.
    """
    if copies is None:
        return 0
    if type(copies) is not int or copies < 1:
        raise InvalidOption(
            f"copies={shown(copies)} is not a whole number from 1 on", copies=shown(copies)
        )
    if copies > len(servers):
        raise InvalidOption(
            f"copies={copies} needs as many servers, and servers=[...] has {len(servers)}; list more servers, or use fewer copies",
            copies=copies,
        )
    return copies if copies < len(servers) else 0


def _required(servers: Sized, require: Require | None) -> Require:
    """How many of the servers are needed; a majority of several by default."""
    if require is None:
        return "majority" if len(servers) > 1 else "all"
    if check_require(require) not in ("all", "majority"):
        raise InvalidOption(
            f'require={require!r} would let two programs hold the same lock; use "majority" or "all"',
            require=require,
        )
    return "all" if len(servers) == 1 else require  # with one server, both are the same


def _listen_address(listen: str | int | Address | bool | None) -> Address | None:
    if listen is False:
        return None
    if listen is None or listen is True:
        return ("127.0.0.1", 0)
    if isinstance(listen, UnixAddress):
        return listen
    host, port = "127.0.0.1", listen
    if isinstance(listen, (tuple, list)) and len(listen) == 2:
        host, port = listen
    elif isinstance(listen, str):
        host, _, port = listen.rpartition(":")
        host = host.strip("[]") or "127.0.0.1"
    if isinstance(port, str) and port.isdecimal():
        port = int(port)
    if not isinstance(host, str) or type(port) is not int or not 0 <= port < 65536:
        raise InvalidOption(
            f'listen={listen!r} is not an address, such as "127.0.0.1:9100", or a port; port 0 '
            "takes a free one, and False listens nowhere",
            listen=repr(listen),
        )
    return (host, port)
