"""Dials the nodes of an address book, as often as the book says, and not too many at a time.

Nodes that the program has asked for are dialled as soon as they are due, all at once. Nodes that
were only named by others wait for a place: a fixed number of rounds a second begins a limited
number of dials, if not too many are under way. So a node that names a thousand others, existing or
not, costs a limited number of dials a second, and delays no one.

Each round looks through the whole book. So there is no second list that an exception in the middle
of a turn could leave wrong.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection

import gevent
from gevent.event import Event

from locks.errors import LocksError
from locks.net.hello import NoWay, Settled
from locks.otp.names.address_book import AddressBook
from locks.otp.notices import Notices
from locks.runtime.clock import monotonic
from locks.runtime.executor import Executor
from locks.runtime.inline import Turn
from locks.runtime.waiter import run_in_hub

__all__ = ["Dialling"]

logger = logging.getLogger("locks.nodes")

ROUND = 0.1  # seconds between two rounds of dials of nodes that were not asked for
EACH_ROUND = 4  # such dials in a round: 40 a second
AT_A_TIME = 20  # such dials under way at once
LOOK = 5.0  # seconds between two looks into the book, at most
BREATH = 0.02  # seconds between two looks, at least
SHARE = 50  # and at least so many times the duration of a look


class Dialling:
    """Dials the nodes with which one node should be connected.

    Args:
        name: The node.
        links: The nodes that it is connected with.
        turn: Its turn: the book is read and written in it.
        executor: Runs its greenlets.
        notices: Logs why a node can't be connected.
        refusals: Filled with the reasons for which running nodes can't be connected, by their
            names.
        dial: Connects to a node; raises an error if it can't.
        forget: Returns after how many seconds a name that was only heard of is forgotten.

    Attributes:
        book: The address book.
    """

    def __init__(
        self,
        name: str,
        links: Collection[str],
        turn: Turn,
        executor: Executor,
        notices: Notices,
        *,
        refusals: dict[str, str],
        dial: Callable[[str], None],
        forget: Callable[[], float],
    ) -> None:
        self.book = AddressBook(name, links, forget=forget, chance=random.random, refusals=refusals)
        self._name = name
        self._links = links
        self._turn = turn
        self._executor = executor
        self._notices = notices
        self._dial = dial
        # Only in the hub:
        self._running = True
        self._news = Event()
        self._asked: set[str] = set()  # being dialled
        self._heard: set[str] = set()
        self._next_round = 0.0
        self._breath = BREATH

    def start(self) -> None:
        """Start dialling. In the hub."""
        self._executor.spawn(self._keep_dialling)

    def stop(self) -> None:
        """Stop dialling. In the hub."""
        self._running = False
        self._news.set()

    def look_soon(self) -> None:
        """Look into the book soon, because it has changed. From any thread."""
        run_in_hub(self._executor.hub, self._news.set)

    # --- In the hub -----------------------------------------------------------------------------

    def _keep_dialling(self) -> None:
        while self._running:
            self._news.clear()
            pause: float | None = LOOK
            try:
                pause = self._turn.run(self._look)
            except Exception:
                logger.exception("%s failed to look for nodes to connect to", self._name)
            gevent.sleep(self._breath)
            self._news.wait(pause)

    def _look(self) -> float | None:
        """Dial the nodes that are due; return the seconds until the next look. In the turn."""
        now = monotonic()
        new_round = now >= self._next_round
        room = min(EACH_ROUND, AT_A_TIME - len(self._heard)) if new_round else 0
        asked, heard = self.book.due(now, room)
        for name in asked:
            self._begin(name, now, self._asked)
        for name in heard:
            self._begin(name, now, self._heard)
        if heard:
            self._next_round = now + ROUND
        pause = self.book.next_due(now)
        self._breath = max(BREATH, SHARE * (monotonic() - now))
        return min(pause or ROUND, LOOK) if self.book.known else None

    def _begin(self, name: str, now: float, busy: set[str]) -> None:
        """Dial a node, unless a dial is under way."""
        self.book.dialled(name, now)
        if name not in self._asked and name not in self._heard:
            busy.add(name)
            self._executor.spawn(self._try, name, busy)

    def _try(self, name: str, busy: set[str]) -> None:
        try:
            if self._running and name not in self._links:
                self._dial(name)
        except (OSError, LocksError) as error:
            self._tell_failure(name, error)
        except Exception:
            logger.exception("%s failed to connect to %s", self._name, name)
        finally:
            busy.discard(name)

    def _tell_failure(self, name: str, error: BaseException) -> None:
        """Log why a node can't be connected, unless it just does not run, which is normal.

        A reason is logged when it occurs twice in a row, and not again. Some reasons occur once
        whenever two nodes dial each other.
        """
        text = str(error)
        absent = isinstance(error, ConnectionRefusedError)
        settled = isinstance(error, Settled)
        times = self._turn.run(self.book.failed, name, text, not absent and not settled)
        if times == 2 and not absent and not settled and not isinstance(error, NoWay):
            self._notices.warn(text, name, "%s can't connect to %s: %s", self._name, name, text)
