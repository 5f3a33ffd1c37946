"""`locks play`: the page on which the algorithm is played."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from locks.cli.observing import refused
from locks.cli.web import parse_address, url_of, wait_for_end
from locks.errors import InvalidOption
from locks.web.serving import Assets, Environ, StartResponse, answer, json_body, serve
from locks_lab.play.exercises import exercise
from locks_lab.play.requests import respond
from locks_lab.play.stepping import step_through

__all__ = ["Application", "add_command", "play_served"]

SAYS = """A page for a browser: play the algorithm step by step, forward and back, choose which message arrives next, cut
connections, and compare with the Erlang original. It runs the real machines in a simulated world, and has nothing to do
with running lock servers."""
EXAMPLES = """\
  locks play                              # then open the address that it prints
  locks play --listen 127.0.0.1:0         # takes a free port
  locks play --exercise 3                 # asks a question about a situation, and checks the answer
  locks play --exercise 3 --terminal      # the same in words
"""
LISTEN = "127.0.0.1:8421"
LONGEST_BODY = 100_000  # bytes


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
    parser.add_argument(
        "--exercise", type=int, default=0, metavar="N", help="begin with one of twelve exercises"
    )
    parser.add_argument(
        "--terminal", action="store_true", help="do the exercise here, and serve no page"
    )
    parser.set_defaults(json=False, run=_run)


class Application:
    """The page and its answers, as an application of WSGI."""

    def __init__(self) -> None:
        self._assets = Assets("locks_lab.play", "play.html", "play.css", "play.js")

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path in self._assets.paths and method == "GET":
            return self._assets.send(path, start_response)
        if (path, method) != ("/ask", "POST"):
            why = f"there is no {method} {path[:100]}"
            return answer(start_response, "404 Not Found", {"error": why})
        try:
            return answer(start_response, "200 OK", respond(json_body(environ, LONGEST_BODY)))
        except (InvalidOption, ValueError) as error:
            return answer(start_response, "400 Bad Request", {"error": str(error)})


@contextmanager
def play_served(listen: str) -> Iterator[str]:
    """Serve the page during a block; gives its address.

    Raises:
        InvalidOption: The address is wrong, or can't be used.
    """
    host, port = parse_address(listen, "the page's address")
    server = serve(host, port, Application())
    try:
        yield url_of(host, server.server_port)
    finally:
        server.stop(0)


def _run(options: argparse.Namespace) -> int:
    number = options.exercise
    try:
        asked = exercise(number) if number else None
        if options.terminal:
            if asked is None:
                raise InvalidOption(
                    "--terminal needs --exercise; locks sim step plays any situation there"
                )
            step_through(asked.situation, sys.stdin, partial(print, flush=True), number)
            return 0
        with play_served(options.listen) as address:
            print(f"{address}#exercise={number}" if number else address, flush=True)
            wait_for_end()
    except InvalidOption as error:
        return refused("play", error, options)
    return 0
