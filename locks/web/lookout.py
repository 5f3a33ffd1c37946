"""Asks the cluster repeatedly, while a page is open."""

from __future__ import annotations

import logging
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
from locks.runtime.clock import monotonic, wall
from locks.web.changes import NOTHING, with_rows_of
from locks.web.picture import Picture, key_of, picture_of

__all__ = ["Lookout", "Seen"]

logger = logging.getLogger("locks.web")

SHORTEST = 0.5  # shortest time between two looks, in seconds
SPARE = 10  # the pause after a look is this many times as long as the look
SELDOM = 5.0  # shortest time between two looks at client nodes, in seconds
PATIENCE = 2.0  # seconds to wait for each answer


class Seen(NamedTuple):
    """A picture, and its time.

    Attributes:
        number: Its number.
        at: Its time by the clock, in seconds since 1970.
        picture: The picture.
        agents: The agents in it, by their keys.
    """

    number: int
    at: float
    picture: Picture
    agents: dict[str, AgentId]


class Lookout:
    """Looks while a page is open, at most a tenth of the time; everything runs in the hub that `run` is called in.

    Changes are not reported to the watchers. Each watcher compares the newest picture with its own when it is
    ready. So a slow watcher costs nothing, and nothing is kept for it.
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
        """The number of watchers."""
        return self._watchers

    @property
    def pause(self) -> float:
        """Seconds until the next look."""
        return max(SHORTEST, SPARE * self._took)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Count one more watcher during a block."""
        self._watchers += 1
        self._watched.set()
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._watched.clear()

    def after(self, number: int, timeout: float) -> Seen | None:
        """Wait for a newer picture than this one; `None` if there is none in time."""
        if self.newest is None or self.newest.number == number:
            self._news.wait(timeout)
        newest = self.newest
        return None if newest is None or newest.number == number else newest

    def keep_looking(self) -> None:
        """Look for ever; call it in a separate greenlet."""
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
            if idle and self._around_due <= monotonic():
                # In parallel: a suspended program delays the answer.
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
        """Look once. If that fails, the picture shows the error."""
        begun = monotonic()
        try:
            seen = look(before, timeout=PATIENCE)._replace(around=self._around)
            picture = picture_of(seen)
        except Exception as error:
            if not isinstance(error, LocksError):
                logger.exception("the page can't show the answers of the lock servers")
            seen = Look(wall())
            return seen, picture_of(seen, str(error) or repr(error))
        if not seen.silent:  # waiting for servers that do not answer costs nothing
            self._took = monotonic() - begun
        return seen, picture

    def _look_around(self) -> None:
        """Also ask the client nodes: which instances follow which leader, and who is in which group."""
        begun = monotonic()
        try:
            self._around = look_around(timeout=PATIENCE)
            if not self._around.silent:
                self._around_took = monotonic() - begun
        except LocksError:
            self._around = None  # the lock servers do not answer; the other look reports that
        except Exception:
            self._around = None
            logger.exception("the page can't show the elections")
        finally:
            pause = max(SELDOM, SPARE * self._around_took)
            self._around_due = monotonic() + pause
