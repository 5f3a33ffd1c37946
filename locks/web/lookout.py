"""Looks at the cluster again and again, while somebody watches."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import gevent
from gevent.event import Event

from locks.core.facts import NodeFact
from locks.errors import LocksError
from locks.facts.gather import Gathered, deadlocks, lock_servers, quorum, requests
from locks.facts.graph import Waits, waits_of
from locks.model import AgentId
from locks.web.changes import NOTHING, with_rows_of
from locks.web.picture import Look, Picture, key_of, picture_of

__all__ = ["Lookout", "Seen"]

logger = logging.getLogger("locks.web")

SHORTEST = 0.5  # seconds between two looks
SPARE = 10  # times as long as a look takes is the pause after it
PATIENCE = 2.0  # seconds to wait for each answer
NOBODY = Gathered((), ())


class Seen(NamedTuple):
    """A picture, and when it was made.

    Attributes:
        number: Which one it is.
        at: What the clock said, in seconds since 1970.
        picture: The picture.
        agents: The agents in it, by their keys.
    """

    number: int
    at: float
    picture: Picture
    agents: dict[str, AgentId]


class Lookout:
    """Looks while somebody watches, and at most a tenth of the time; all of it in the hub that `run` is called in.

    Nobody is told what has changed. Each watcher compares the newest picture with the one that it knows, when it
    gets to it. So one that does not get to it costs nothing, and nothing is kept for it.
    """

    def __init__(self) -> None:
        self.newest: Seen | None = None
        self._watchers = 0
        self._watched = Event()
        self._news = Event()
        self._took = 0.0
        self._known: tuple[Any, ...] = ()
        self._requests = NOBODY
        self._waits = Waits((), ())
        self._deadlocks = NOBODY
        self._counted: tuple[Any, ...] = ()

    @property
    def watchers(self) -> int:
        """How many watch."""
        return self._watchers

    @property
    def pause(self) -> float:
        """Seconds between two looks, now."""
        return max(SHORTEST, SPARE * self._took)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While one more watches."""
        self._watchers += 1
        self._watched.set()
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._watched.clear()

    def after(self, number: int, timeout: float) -> Seen | None:
        """A newer picture than this one, as soon as there is one; nothing, if there is none in time."""
        if self.newest is None or self.newest.number == number:
            self._news.wait(timeout)
        newest = self.newest
        return None if newest is None or newest.number == number else newest

    def run(self) -> None:
        """Look, for ever; in a greenlet of its own."""
        number = 0
        last = NOTHING
        while True:
            if not self._watched.is_set():
                self.newest, last = None, NOTHING
                self._forget()
                self._watched.wait()
            number += 1
            look, seen = self._look()
            picture = with_rows_of(last, seen)
            agents = {key_of(each): each for each in look.waits.agents}
            self.newest, last = Seen(number, look.now, picture, agents), picture
            news, self._news = self._news, Event()
            news.set()
            gevent.sleep(self.pause)

    def _look(self) -> tuple[Look, Picture]:
        """Look once. If that fails, this is what is seen, and the next look begins anew."""
        begun = time.monotonic()
        try:
            look = self._ask()
            picture = picture_of(look)
        except Exception as error:
            if not isinstance(error, LocksError):
                logger.exception("the page can't show what the lock servers say")
            self._forget()
            look = Look(Waits((), ()), (), (), (), 0, 0, time.time(), str(error) or repr(error))
            return look, picture_of(look)
        if not look.silent:  # to wait for who does not answer costs nobody anything
            self._took = time.monotonic() - begun
        return look, picture

    def _forget(self) -> None:
        """What was read is read anew."""
        self._known = self._counted = ()

    def _ask(self) -> Look:
        servers, needed = quorum()
        nodes = lock_servers(timeout=PATIENCE)
        self._ask_requests(nodes)
        self._ask_deadlocks(nodes)
        silent = dict(self._requests.silent) | dict(nodes.silent)
        return Look(
            self._waits,
            nodes.facts,
            self._deadlocks.facts,
            tuple(silent.items()),
            servers,
            needed,
            time.time(),
        )

    def _ask_requests(self, nodes: Gathered) -> None:
        """Read the lock tables, if one of them is another one than when they were last read."""
        known = (nodes.silent, sorted((_life(fact), fact.table) for fact in nodes.facts))
        if known != self._known or self._requests.silent:
            self._requests = requests(timeout=PATIENCE)
            self._waits = waits_of(self._requests.facts, self._requests.silent)
            self._known = known

    def _ask_deadlocks(self, nodes: Gathered) -> None:
        """Read the reports, if there are more than when they were last read."""
        counted = (nodes.silent, sorted((_life(fact), fact.deadlocks) for fact in nodes.facts))
        if counted != self._counted or self._deadlocks.silent:
            self._deadlocks = deadlocks(timeout=PATIENCE)
            self._counted = counted


def _life(fact: NodeFact) -> tuple[str, int]:
    """Which node that is, and since when."""
    return fact.node, fact.started
