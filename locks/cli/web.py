"""`locks web`: the live page."""

from __future__ import annotations

import argparse
import secrets
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent

from locks.cli.joining import add_options
from locks.cli.observing import joined
from locks.errors import InvalidOption
from locks.net.addresses import is_loopback, parse_address
from locks.runtime.waiter import Event
from locks.web.lookout import Lookout
from locks.web.rules import Rules

__all__ = ["LISTEN", "add_command", "page_served", "parse_address", "url_of", "wait_for_end"]

EXAMPLES = """\
  locks web                                            # then open the address that it prints
  locks web --allow-break                              # the page can end transactions
  locks web --listen 0.0.0.0:8420 --token-file token   # for other machines, too
  locks web --host locks.example.org                   # behind a proxy of that name
"""
SAYS = """A live page for a browser: who holds locks, who is waiting, for whom and since when, and the last deadlocks. It asks the
servers only while the page is open, and at most a tenth of the time. Everybody who can open the page sees all lock ids and labels:
by default only programs of this machine can. If others can, or if the page may end transactions, the printed address
contains a token, and without the token the page shows nothing."""
LISTEN = "127.0.0.1:8420"
SHORTEST_TOKEN = 16
LONGEST_PATIENCE = 1.0  # seconds that open requests have at the end


def add_command(commands: Any, about: str) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "web", help=about, description=SAYS, epilog=f"Examples:\n{EXAMPLES}"
    )
    add_options(parser)
    parser.add_argument(
        "--listen",
        default=LISTEN,
        metavar="HOST:PORT",
        help="port 0 takes a free one (default: %(default)s)",
    )
    parser.add_argument(
        "--allow-break",
        action="store_true",
        help="allow the page to end transactions, with a reason",
    )
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a host name of the page, in addition to addresses and localhost; may be repeated",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        help="file with the required token (default: a new one, if required)",
    )
    parser.set_defaults(json=False, run=lambda options: joined("web", _run, options))


@contextmanager
def page_served(
    listen: str,
    names: Sequence[str] = (),
    *,
    token_file: Path | None = None,
    may_break: bool = False,
) -> Iterator[str]:
    """Serve the page during a block; gives its address, including the token, if there is one.

    Args:
        listen: Where to listen, `host:port`.
        names: Allowed host names of the page.
        token_file: The file with the token; by default a new token is made if one is required.
        may_break: Whether the page can end transactions.

    Raises:
        InvalidOption: An option is wrong.
    """
    # Imported late: this saves a lock server without a page 2 MiB, and lets each command start faster.
    from locks.web.serving import Page, serve

    host, port = parse_address(listen, "the page's address")
    is_safe = is_loopback(host) and not names and not may_break
    token = _token(token_file) or ("" if is_safe else secrets.token_urlsafe())
    rules = Rules(tuple(name.lower() for name in names), token, may_break)
    lookout = Lookout()
    server = serve(host, port, Page(lookout, rules))
    looking = gevent.spawn(lookout.keep_looking)
    try:
        yield url_of(host, server.server_port) + (f"#token={token}" if token else "")
    finally:
        looking.kill()
        server.stop(LONGEST_PATIENCE)


def url_of(host: str, port: int | None) -> str:
    """The address of a page, for a browser."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def _token(path: Path | None) -> str:
    """The token in a file; "" if no file is given."""
    if path is None:
        return ""
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(f"can't read the token: {error}") from None
    if len(token) < SHORTEST_TOKEN or not token.isprintable() or " " in token:
        raise InvalidOption(
            f"the token in {path} must be one line of {SHORTEST_TOKEN} or more characters, without spaces"
        )
    return token


def _run(options: argparse.Namespace) -> int:
    with page_served(
        options.listen,
        options.host,
        token_file=options.token_file,
        may_break=options.allow_break,
    ) as address:
        print(address, flush=True)
        wait_for_end()
    return 0


def wait_for_end() -> None:
    """Wait until SIGTERM or Ctrl-C."""
    ended = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.open())
    while not ended.wait(timeout=1):
        pass
