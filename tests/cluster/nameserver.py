"""A nameserver on loopback whose records a test changes (dnslib)."""

from __future__ import annotations

from collections import Counter
from threading import Thread
from typing import Any

import dnslib
from dnslib.server import BaseResolver, DNSLogger, DNSServer

__all__ = ["Nameserver", "hosts", "services"]

PLAIN = 512  # bytes that an answer over UDP may have (RFC 1035)


class Nameserver(BaseResolver):
    """Answers over UDP, and over TCP what is too large for that.

    Attributes:
        zone: What there is, as lines of a zone file.
        silent: Whether it does not answer.
        failure: The error that it answers with, `"SERVFAIL"` for example.
        asked: How often it was asked over which protocol.
        port: Where it listens on 127.0.0.1.
    """

    def __init__(self, zone: str = "") -> None:
        self.zone = zone
        self.silent = False
        self.failure: str | None = None
        self.asked: Counter[str] = Counter()
        quiet = DNSLogger("-request,-reply,-truncated,-error")
        over = {"address": "127.0.0.1", "logger": quiet}
        while True:
            tcp = DNSServer(self, port=0, tcp=True, **over)
            self.port: int = tcp.server.server_address[1]
            try:
                udp = DNSServer(self, port=self.port, **over)
                break
            except OSError:  # that port is somebody's over UDP
                tcp.server.server_close()
        self._servers = [udp, tcp]
        for server in self._servers:
            Thread(target=server.server.serve_forever, args=(0.02,), daemon=True).start()

    def resolve(self, request: Any, handler: Any) -> Any:
        """Answer a question."""
        self.asked[handler.protocol] += 1
        if self.silent:
            raise dnslib.DNSError("no answer")
        reply = request.reply()
        records = dnslib.RR.fromZone(self.zone)
        named = [each for each in records if each.rname == request.q.qname]
        if self.failure is not None:
            reply.header.rcode = getattr(dnslib.RCODE, self.failure)
        elif not named:
            reply.header.rcode = dnslib.RCODE.NXDOMAIN
        else:
            reply.add_answer(*(each for each in named if each.rtype == request.q.qtype))
        if handler.protocol == "udp" and len(reply.pack()) > PLAIN:
            reply = request.reply()
            reply.header.tc = 1  # dnslib would leave the question out, too
        return reply

    def url(self, name: str, **options: object) -> str:
        """The `dns://` address of servers that it knows."""
        said = "".join(f"&{option}={value}" for option, value in options.items())
        return f"dns://{name}?nameserver=127.0.0.1:{self.port}{said}"

    def close(self) -> None:
        """Stop it."""
        for server in self._servers:
            server.server.shutdown()
            server.server.server_close()

    def __enter__(self) -> Nameserver:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def hosts(name: str, *addresses: str, ttl: int = 0) -> str:
    """A zone in which a name has addresses."""
    return "\n".join(
        f"{name}. {ttl} IN {'AAAA' if ':' in address else 'A'} {address}" for address in addresses
    )


def services(name: str, *targets: tuple[str, int], ttl: int = 0) -> str:
    """A zone in which a service is at targets."""
    return "\n".join(f"{name}. {ttl} IN SRV 0 0 {port} {target}." for target, port in targets)
