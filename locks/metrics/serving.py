"""The metrics of a lock server over HTTP: `locks node --metrics 127.0.0.1:9464`.

Beside them are `/healthz`, which is answered while the node takes turns, and `/readyz`, which says whether enough
lock servers can be asked to take a lock, and whether this one can say what is done once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler

from locks.errors import InvalidOption, OperatingError, are_needed
from locks.lock_ids import shown
from locks.metrics.collecting import (
    collector,
    node_at_hand,
    require_client,
    servers_of,
    why_not_once,
)
from locks.net.addresses import is_loopback, parse_address

__all__ = ["checked_address", "serve"]

OK, DOWN = "200 OK", "503 Service Unavailable"
SILENCE = 10.0  # seconds that a connection may be silent


class _Handler(WSGIRequestHandler):
    """Closes a connection that is silent for a while, because each connection has a thread."""

    timeout = SILENCE

    def handle(self) -> None:
        with suppress(OSError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: requests and closed connections are not interesting."""


def checked_address(text: str, plaintext: bool) -> tuple[str, int]:
    """The host and the port where metrics are to be served.

    Args:
        text: The text.
        plaintext: Whether addresses other than loopback are allowed, although the metrics are not encrypted.

    Raises:
        InvalidOption: The address is wrong or not allowed.
    """
    host, port = parse_address(text, "--metrics")
    if not (plaintext or is_loopback(host)):
        raise InvalidOption(
            f"refused to serve unencrypted metrics at {host}, which is open to the network: use loopback, or "
            "LOCKS_ALLOW_PLAINTEXT=true if the network is yours alone",
            value=shown(text),
        )
    return host, port


def health(path: str) -> tuple[str, str] | None:
    """The answer for a path: the status, and a text; `None` if the path is another one."""
    if path not in ("/healthz", "/readyz"):
        return None
    node = node_at_hand()
    if node is None or not node.running:
        return DOWN, "the node has stopped"
    if path == "/readyz" and node.cluster is not None and node.cluster.network.is_about_to_end:
        return DOWN, "the node is about to end, and takes nothing new"
    known, connected, needed = node.turn.ask(servers_of, node)
    text = f"{connected} of {known} lock servers can be asked; {are_needed(needed)}"
    if path == "/readyz" and connected >= needed and (why := node.turn.ask(why_not_once, node)):
        return DOWN, f"{text}; {why}"
    return OK if connected >= needed or path == "/healthz" else DOWN, text


def serve(host: str, port: int) -> str:
    """Serve the metrics of this program's node, in threads of `prometheus_client` that end with the process.

    Returns:
        Their URL.

    Raises:
        MisuseError: `prometheus_client` is not installed.
        OperatingError: The address can't be used.
    """
    require_client()
    from prometheus_client import (
        CollectorRegistry,
        PlatformCollector,
        ProcessCollector,
        make_wsgi_app,
        start_http_server,
    )

    registry = CollectorRegistry()
    registry.register(collector())
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    metrics = make_wsgi_app(registry)

    def application(environment: Any, start: Callable[..., Any]) -> Iterable[bytes]:
        answer = health(environment["PATH_INFO"])
        if answer is None:
            pages: Iterable[bytes] = metrics(environment, start)
            return pages
        start(answer[0], [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{answer[1]}\n".encode()]

    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        raise OperatingError(f"can't serve metrics at {host}:{port}: {error}") from error
    server.RequestHandlerClass = _Handler
    server.set_app(application)
    return f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"
