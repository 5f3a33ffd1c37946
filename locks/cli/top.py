"""`locks top`: the activity of the lock servers, live in the terminal."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from locks.cli.observing import FAILED, NOTHING, add_looking, print_json, say_silent
from locks.errors import InvalidOption, OperatingError
from locks.facts.data import tree_as_data
from locks.facts.gather import look
from locks.facts.live import frame, rates
from locks.facts.look import Look

__all__ = ["add_command"]

EXAMPLES = """\
  locks top                       # q ends it
  locks top --interval 10
  locks top --once                # one frame, after one interval
  locks top | tee -a locks.log    # no terminal: one frame after another
"""
SAYS = """The activity of the lock servers, live: requests, grants, waits and deadlocks per second, the lock ids with the most
waiting requests, the longest waits and holds, and the last deadlocks (new ones are marked). q ends it."""
WIDTH, HEIGHT = 160, 40  # of a frame that does not go to a terminal
QUICKEST = 0.1  # shortest interval, in seconds
TOO_FEW = "too few lock servers answer to take a lock"


def add_command(commands: Any, about: str) -> None:
    """Add the command to the command line."""
    parser = add_looking(
        commands,
        "top",
        _run,
        what=about,
        says=SAYS,
        nothing=f"--once: {TOO_FEW}",
        examples=EXAMPLES,
    )
    parser.add_argument(
        "--once", action="store_true", help="print one frame, after one interval, and end"
    )
    parser.add_argument(
        "--interval",
        type=float,
        default=2.0,
        metavar="SECONDS",
        help="seconds between two updates (default: %(default)s)",
    )


def _run(options: argparse.Namespace) -> int:
    if not QUICKEST <= options.interval <= threading.TIMEOUT_MAX:
        raise InvalidOption(
            f"--interval {options.interval:g} is too short; use {QUICKEST:g} s or more",
            interval=options.interval,
        )
    if options.once or options.json or not sys.stdout.isatty():
        return _print(options)
    return _Live(options).draw_until_quit()


def _looks(
    options: argparse.Namespace, pause: threading.Event
) -> Iterator[tuple[Look | None, Look]]:
    """Yield each look with the one before, until the pause is interrupted."""
    before = None
    while True:
        begun = time.monotonic()
        now = look(timeout=options.timeout)
        yield before, now
        before = now
        if pause.wait(max(0.0, begun + options.interval - time.monotonic())):
            return


def _print(options: argparse.Namespace) -> int:
    """Print one frame or several to an output that is not a terminal; begin with the second look, since the first has no rates."""
    for before, now in _looks(options, threading.Event()):
        if before is None:
            continue
        if options.json:
            print_json(_as_data(before, now) | ({} if now.enough else {"error": TOO_FEW}))
        else:
            print(time.strftime("%Y-%m-%d %H:%M:%S%z"))
            print("\n".join(frame(before, now, WIDTH, HEIGHT)), end="\n\n")
        sys.stdout.flush()
        if options.once:
            if not options.json:
                say_silent(now.silent)
            return 0 if now.enough else NOTHING if now.nodes else FAILED
    return 0


def _as_data(before: Look | None, now: Look) -> dict[str, Any]:
    return {
        "nodes": [tree_as_data(fact) for fact in now.nodes],
        "rates": {name: each._asdict() for name, each in rates(before, now).items()},
        "silent": dict(now.silent),
    }


class _Live:
    """Looks in a separate thread, so that keys and signals never wait for a lock server that does not answer.

    Args:
        options: The options of the command.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        try:
            from locks.cli.screen import Screen
        except ImportError as error:
            raise OperatingError(
                f"can't draw live on this system, which has no {error.name}; use `locks top --once`, or `locks web`"
            ) from error
        self._options = options
        self._screen = Screen()
        self._pause = threading.Event()
        self._seen: tuple[Look | None, Look] | None = None
        self._error: Exception | None = None

    def draw_until_quit(self) -> int:
        """Draw until a key or a signal ends it; return the exit status."""
        with self._screen as screen:
            thread = threading.Thread(target=self._look, name="locks top", daemon=True)
            thread.start()
            try:
                while screen.ended_by is None and self._error is None:
                    if self._seen is not None:
                        screen.draw(frame(*self._seen, *screen.size))
                    if "q" in screen.keys().lower():
                        return 0
            finally:
                self._pause.set()
        if self._error is not None:
            raise self._error
        return 128 + (screen.ended_by or signal.SIGTERM)

    def _look(self) -> None:
        try:
            for seen in _looks(self._options, self._pause):
                self._seen = seen
                self._screen.wake()
        except Exception as error:
            self._error = error  # for the main thread
            self._screen.wake()
