"""How a command connects: as a client of the servers in its options or the environment."""

from __future__ import annotations

import argparse
from pathlib import Path

from locks.errors import InvalidOption
from locks.net.tls import TLS
from locks.program import meeting as meeting  # what `start` needs
from locks.program.default import start
from locks.program.local import HERE_WORD, is_word
from locks.program.settings import read_settings

__all__ = [
    "add_command_line",
    "add_credentials",
    "add_options",
    "add_servers",
    "join",
    "servers_in",
]

PATIENCE = 10.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for servers and credentials."""
    add_servers(parser, "name@host:port of all servers, comma-separated; or local")
    add_credentials(parser)


def add_servers(parser: argparse.ArgumentParser, about: str) -> None:
    """Add the options for the servers."""
    parser.add_argument("--servers", metavar="SERVERS", help=f"{about} (default: $LOCKS_SERVERS)")
    parser.add_argument(
        "--copies",
        type=int,
        metavar="NUMBER",
        help="how many of the servers have each lock id (default: $LOCKS_COPIES, or all)",
    )


def servers_in(options: argparse.Namespace) -> str | list[str] | None:
    """The servers in the options, as `start` takes them."""
    text: str | None = options.servers
    return text if text is None or is_word(text) else text.split(",")


def add_credentials(parser: argparse.ArgumentParser) -> None:
    """Add the options for a cookie and for TLS."""
    parser.add_argument(
        "--cookie-file",
        type=Path,
        help="file with the secret that all nodes share; in further lines, more that are accepted (default: $LOCKS_COOKIE_FILE)",
    )
    parser.add_argument(
        "--tls",
        nargs=3,
        metavar=("CERTIFICATE", "KEY", "CA"),
        help="PEM files: own certificate, its key, and the CA of the peers (default: $LOCKS_TLS_...)",
    )


def add_command_line(parser: argparse.ArgumentParser) -> None:
    """Add the options and arguments of a command that runs another command."""
    parser.add_argument(
        "--kill-after",
        type=float,
        default=PATIENCE,
        metavar="SECONDS",
        help="seconds between SIGTERM and SIGKILL (default: %(default)s)",
    )
    parser.add_argument("--label", help="the client's name, as shown to others")
    parser.add_argument("command_line", nargs="+", metavar="COMMAND", help="after --")


def join(options: argparse.Namespace) -> None:
    """Start this program's node.

    Raises:
        InvalidOption: No servers are configured, or an option is wrong.
        OperatingError: The servers were not found.
    """
    text: str | None = options.servers
    said = read_settings().get("servers")
    if text == HERE_WORD or (text is None and (said is None or said.value == HERE_WORD)):
        raise InvalidOption(
            "no lock servers configured: set LOCKS_SERVERS or pass --servers "
            "(`--servers local` for this machine)"
        )
    start(
        servers=servers_in(options),
        copies=options.copies,
        cookie=options.cookie_file,
        tls=TLS(*options.tls) if options.tls else None,
    )
