"""Looks at the cluster again and again, while somebody watches."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import gevent
from gevent.event import Event

from locks.errors import LocksError
from locks.facts.around import Around
from locks.facts.gather import look, look_around
from locks.facts.look import Look
from locks.model import AgentId
from locks.web.changes import NOTHING, with_rows_of
from locks.web.picture import Picture, key_of, picture_of

__all__ = ["Lookout", "Seen"]

logger = logging.getLogger("locks.web")

SHORTEST = 0.5  # seconds between two looks
SPARE = 10  # times as long as a look takes is the pause after it
SELDOM = 5.0  # seconds at least between two looks around
PATIENCE = 2.0  # seconds to wait for each answer


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
        self._around: Around | None = None
        self._looking_around: gevent.Greenlet[..., None] | None = None
        self._around_took = 0.0
        self._around_due = 0.0

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
        try:
            self._run()
        finally:
            gevent.killall([each for each in [self._looking_around] if each is not None])

    def _run(self) -> None:
        number = 0
        last = NOTHING
        before: Look | None = None
        while True:
            if not self._watched.is_set():
                self.newest, last, before = None, NOTHING, None
                self._around, self._around_due = None, 0.0
                self._watched.wait()
            idle = self._looking_around is None or self._looking_around.ready()
            if idle and self._around_due <= time.monotonic():
                # Beside it: a program that is stopped keeps who asks it waiting.
                self._looking_around = gevent.spawn(self._look_around)
            number += 1
            before, picture = self._look(before)
            last = with_rows_of(last, picture)
            agents = {key_of(each): each for each in before.waits.agents}
            self.newest = Seen(number, before.at, last, agents)
            news, self._news = self._news, Event()
            news.set()
            gevent.sleep(self.pause)

    def _look(self, before: Look | None) -> tuple[Look, Picture]:
        """Look once. If that fails, this is what is seen."""
        begun = time.monotonic()
        try:
            seen = look(before, timeout=PATIENCE)._replace(around=self._around)
            picture = picture_of(seen)
        except Exception as error:
            if not isinstance(error, LocksError):
                logger.exception("the page can't show what the lock servers say")
            seen = Look(time.time())
            return seen, picture_of(seen, str(error) or repr(error))
        if not seen.silent:  # to wait for who does not answer costs nobody anything
            self._took = time.monotonic() - begun
        return seen, picture

    def _look_around(self) -> None:
        """Ask the programs, too: who follows whom, and who is in which group."""
        begun = time.monotonic()
        try:
            self._around = look_around(timeout=PATIENCE)
            if not self._around.silent:
                self._around_took = time.monotonic() - begun
        except LocksError:
            self._around = None  # the lock servers do not answer; that is said by the other look
        except Exception:
            self._around = None
            logger.exception("the page can't show who leads")
        finally:
            pause = max(SELDOM, SPARE * self._around_took)
            self._around_due = time.monotonic() + pause
