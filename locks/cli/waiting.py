"""The line that tells a person at a terminal what a command waits for."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress

from locks.core.facts import RequestFact
from locks.errors import LocksError
from locks.facts.gather import waits
from locks.facts.graph import WaitReport
from locks.facts.stories import duration, longest, who, wish
from locks.model import LockId
from locks.program.default import default_node
from locks.ranges import one_line
from locks.runtime.clock import monotonic

__all__ = ["Waiting"]

OFTEN = 1.0  # seconds between two lines
SOON = 0.5  # before the first one: most waits are shorter
PATIENCE = 1.0  # of one question


class Waiting:
    """While a command waits for a lock: one line on standard error, if that is a terminal, that is redrawn every second.

    It is cleared at the end of the block, or before, by `over`.

    Args:
        name: The command, such as `locks run`.
        lock_id: The lock that it waits for.
    """

    def __init__(self, name: str, lock_id: LockId) -> None:
        self._name, self._lock_id = name, lock_id
        self._over = threading.Event()
        self._writes = threading.Lock()
        self._shown = False
        self._thread = threading.Thread(target=self._show, name="locks waiting", daemon=True)

    def __enter__(self) -> Waiting:
        if sys.stderr.isatty():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over()
        if self._thread.ident is not None:
            self._thread.join()  # it must ask nothing when the node has stopped

    def over(self) -> None:
        """Clear the line: the wait has ended. Calling it again has no effect."""
        self._over.set()
        with self._writes:
            if self._shown:
                self._shown = False
                _write("\r\x1b[K")

    def _show(self) -> None:
        begun = monotonic()
        pause = SOON
        with suppress(LocksError, OSError):  # the node is stopping, or the terminal is gone
            while not self._over.wait(pause):
                pause = OFTEN
                said = told(waits(self._lock_id, timeout=PATIENCE), default_node().name)
                since = duration(monotonic() - begun)
                columns = os.get_terminal_size(sys.stderr.fileno()).columns
                line = one_line(f"{self._name}: {since}: {said}", max(columns, 20) - 1)
                with self._writes:
                    if said and not self._over.is_set():
                        self._shown = True
                        _write(f"\r{line}\x1b[K")


def told(graph: WaitReport, node: str) -> str:
    """What a node waits for, and who holds it; empty if it waits for nothing."""
    own = [each for each in graph.requests if each.request.agent.node == node and not each.granted]
    if not own:
        if graph.requests or not graph.silent:
            return ""
        return f"no answer from {', '.join(server for server, _ in graph.silent)}"
    ahead = [edge.holder for edge in graph.edges if edge.waiter in own]
    held = [each for each in ahead if each.granted]
    wanted = f"waiting for {wish(own[0])}"
    if held:
        return f"{wanted}, held by {_named(held)}"
    return f"{wanted}, behind {_named(ahead)}" if ahead else wanted


def _named(facts: Iterable[RequestFact]) -> str:
    """The one that has been there for the longest time, and how many others there are."""
    facts = list(facts)
    first = longest(facts)
    others = len({each.request.agent for each in facts}) - 1
    more = f" and {others} more" if others else ""
    return f"{who(first)} for {duration(first.seconds)}{more}"


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
