"""How a command joins: as a client of the servers that are named in its options, or in the environment."""

from __future__ import annotations

import argparse
from pathlib import Path

from locks.errors import InvalidOption
from locks.otp.options import TLS
from locks.program import start
from locks.program.cookies import read_cookie
from locks.program.discovering import HERE_WORD, names_a_source
from locks.program.settings import read_settings

__all__ = ["add_command_line", "add_options", "join"]

PATIENCE = 10.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which servers there are."""
    parser.add_argument(
        "--servers",
        metavar="SERVERS",
        help="name@host:port of all servers, with commas between them; or local, or dns://... (default: $LOCKS_SERVERS)",
    )
    parser.add_argument(
        "--cookie-file",
        type=Path,
        help="file with the secret that all nodes share (default: $LOCKS_COOKIE_FILE)",
    )
    parser.add_argument(
        "--tls",
        nargs=3,
        metavar=("CERTIFICATE", "KEY", "CA"),
        help="PEM files: own certificate, its key, and the CA of the others (default: $LOCKS_TLS_...)",
    )


def add_command_line(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that runs a command, and that."""
    parser.add_argument(
        "--kill-after",
        type=float,
        default=PATIENCE,
        metavar="SECONDS",
        help="when COMMAND is killed, after it was asked to end (default: %(default)s)",
    )
    parser.add_argument("--label", help="what others see in the place of a client's name")
    parser.add_argument("command_line", nargs="+", metavar="COMMAND", help="after --")


def join(options: argparse.Namespace) -> None:
    """Start this program's node.

    Raises:
        InvalidOption: No servers are named, or something else is wrong.
        OperatingError: They are not found.
    """
    text: str | None = options.servers
    said = read_settings().get("servers")
    if text == HERE_WORD or (text is None and (said is None or said.value == HERE_WORD)):
        raise InvalidOption(
            "which servers? A lock of this program alone would keep nobody out: name them with --servers or in "
            "LOCKS_SERVERS; --servers local for the programs of this machine"
        )
    is_list = text is not None and not names_a_source(text)
    start(
        servers=text.split(",") if is_list and text is not None else text,
        cookie=read_cookie(options.cookie_file) if options.cookie_file else None,
        tls=TLS(*options.tls) if options.tls else None,
    )
