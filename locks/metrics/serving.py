"""The metrics of a lock server over HTTP: `locks node --metrics 127.0.0.1:9464`."""

from __future__ import annotations

from contextlib import suppress
from wsgiref.simple_server import WSGIRequestHandler

from locks.errors import InvalidOption, OperatingError
from locks.lock_ids import shown
from locks.metrics.collecting import collector, require_client
from locks.otp.options import is_loopback

__all__ = ["parse_address", "serve"]

SILENCE = 10.0  # seconds that a connection may be silent


class _Handler(WSGIRequestHandler):
    """Closes a connection that is silent for a while, because each connection has a thread."""

    timeout = SILENCE

    def handle(self) -> None:
        with suppress(OSError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: requests and closed connections are not interesting."""


def parse_address(text: str, plaintext: bool) -> tuple[str, int]:
    """Parse the address for metrics, `host:port`.

    Args:
        text: The text.
        plaintext: Whether addresses other than loopback are allowed, although the metrics are not encrypted.

    Raises:
        InvalidOption: The address is wrong or not allowed.
    """
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InvalidOption(
            f"--metrics {shown(text)} is not host:port, such as 127.0.0.1:9464", value=shown(text)
        )
    if not (plaintext or is_loopback(host)):
        raise InvalidOption(
            f"refused to serve unencrypted metrics at {host}, which is open to the network: use loopback, or "
            "--allow-plaintext if the network is yours alone",
            value=shown(text),
        )
    return host, int(port)


def serve(host: str, port: int) -> str:
    """Serve the metrics of this program's node, in threads of `prometheus_client` that end with the process.

    Returns:
        Their URL.

    Raises:
        MisuseError: `prometheus_client` is not installed.
        OperatingError: The address can't be used.
    """
    require_client()
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(collector())
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        raise OperatingError(f"can't serve metrics at {host}:{port}: {error}") from error
    server.RequestHandlerClass = _Handler
    return f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"
