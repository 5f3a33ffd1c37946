"""`locks play`: the page on which the algorithm is played."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from locks.cli.web import address_of, wait_for_end

__all__ = ["add_command", "play_served"]

SAYS = """A page for a browser: play the algorithm step by step, forward and back, choose which message arrives next, cut
connections, and compare with the Erlang original. It runs the real machines in a simulated world, and has nothing to do
with running lock servers."""
EXAMPLES = """\
  locks play                              # then open the address that it prints
  locks play --listen 127.0.0.1:0         # takes a free port
"""
LISTEN = "127.0.0.1:8421"


def add_command(commands: Any, about: str) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "play", help=about, description=SAYS, epilog=f"Examples:\n{EXAMPLES}"
    )
    parser.add_argument(
        "--listen",
        default=LISTEN,
        metavar="HOST:PORT",
        help="port 0 takes a free one (default: %(default)s)",
    )
    parser.set_defaults(run=_run)


@contextmanager
def play_served(listen: str) -> Iterator[str]:
    """Serve the page during a block; gives its address.

    Raises:
        InvalidOption: The address is wrong, or can't be used.
    """
    from locks.web.serving import serve
    from locks_lab.play.serving import Application

    host, port = address_of(listen)
    server = serve(host, port, Application())
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{server.server_port}/"
    finally:
        server.stop(0)


def _run(options: argparse.Namespace) -> int:
    with play_served(options.listen) as address:
        print(address, flush=True)
        wait_for_end()
    return 0
