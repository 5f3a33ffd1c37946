"""The nodes that one node knows: where they are, when each is dialled, and what others hear of them.

`Book` has the rules, without a clock. `Dialling` follows them, and `Finder` asks for addresses.

* *Asked for*: nodes that the program has named. They are never forgotten, and only the program
  changes their addresses.
* *Heard of*: all others. Another node has named them, with an age: how long ago that node was
  connected with them. News makes a name younger, never older.
* *Met*: nodes that this node was connected with itself. Only these are named to others, each with
  its age. So hearsay can't keep a name alive.
* A node that was not asked for is forgotten when nobody has been connected with it for `FORGET`
  seconds.
* One node can bring in `MOST_NAMES` names that nobody here has met, and all together `LARGEST` names.
  More of them replace the oldest ones.
* The longer a node is gone, the more rarely it is dialled: again after half of that time.
* Nodes that were asked for are dialled when they are due, all at once. Of the others,
  `AT_A_TIME` at once and `EACH_LOOK` in each look. So a node that names a thousand others, existing
  or not, delays nobody.

What can fail: a dial, with an error that is noted, and told once if it comes twice in a row; a
locator, then the last known address is used. A look that is interrupted may have marked nodes as
dialled: they are due again after their pause.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import nlargest, nsmallest

import gevent
from gevent.event import Event
from gevent.lock import RLock

from locks.errors import LocksError
from locks.net.addresses import Address, Locator, UnixAddress
from locks.net.hello import Settled
from locks.net.messages import FORGET, MOST_NAMES, News
from locks.net.notices import Notices
from locks.runtime.away import call_in_thread
from locks.runtime.clock import monotonic
from locks.runtime.executor import Executor
from locks.runtime.inline import Turn
from locks.runtime.waiter import run_in_hub

__all__ = ["Book", "Dialling", "Finder"]

logger = logging.getLogger("locks.nodes")

GONE = 100  # how many of the names sent at a time may be of nodes that are gone
LARGEST = 10_000  # names in the book that were not asked for
SHORTEST = 0.05  # seconds between two dials of a node that was asked for, or met, at least
HEARSAY = 1.0  # seconds, likewise of a node that was only heard of
LONGEST_ASKED = 1.0  # seconds between two dials of a node that was asked for, at most
LONGEST = 60.0  # seconds, likewise of all others

EACH_LOOK = 2  # dials that a look begins of nodes that were not asked for: 40 a second
AT_A_TIME = 20  # such dials under way
BREATH = 0.05  # seconds between two looks into the book, at least
SHARE = 50  # and at least so many times the duration of a look

PAUSE = 1.0  # seconds between two questions to a locator, at least
PAUSE_HERE = 0.1  # likewise for the server of this machine


class Known:
    """A known node.

    Attributes:
        address: Where it listens.
        source: The node that named it; empty once this node has met it.
        seen: When it was last known to be alive, or asked for.
        asked: Whether the program has asked for it.
        due: When to dial it next.
        failure: The reason of the last failed dial, and how often in a row it was the reason.
    """

    __slots__ = ("address", "asked", "due", "failure", "seen", "source")

    def __init__(self, address: Address, source: str, seen: float) -> None:
        self.address = address
        self.source = source
        self.seen = self.due = seen
        self.asked = False
        self.failure = ("", 0)


class Book:
    """The nodes that one node knows. All times are by one clock that only goes forward.

    Args:
        own: The node's own name, which is never in the book.
        linked: The nodes that it is connected with now.
        refusals: Filled with the reasons for which running nodes can't be connected, by name.
        chance: Returns a random number between 0 and 1, so that nodes don't dial in step.

    Attributes:
        known: The nodes, by name.
    """

    def __init__(
        self,
        own: str,
        linked: Collection[str],
        refusals: dict[str, str],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.known: dict[str, Known] = {}
        self._own = own
        self._linked = linked
        self._refusals = refusals
        self._chance = chance

    # --- Nodes that are named -------------------------------------------------------------------

    def ask_for(self, name: str, address: Address, now: float) -> None:
        """Note that the program wants a connection with a node."""
        if name != self._own:
            known = self.known.setdefault(name, Known(address, self._own, now))
            known.address, known.asked = address, True
            known.seen = known.due = now

    def forget(self, name: str) -> None:
        """Forget a node, also one that was asked for."""
        self.known.pop(name, None)
        self._refusals.pop(name, None)

    def hear(self, source: str, news: Iterable[News], now: float) -> int:
        """Take in news from a node, which knows best where it is itself; return how many names were dropped.

        The form of the news is checked before, its truth is not.
        """
        before = len(self.known)
        for each in news:
            name, address = each.name, each.address
            seen = now - each.age
            if name == self._own or each.age >= FORGET:
                continue
            known = self.known.get(name)
            if known is None:
                known = self.known[name] = Known(address, source, seen)
                known.due = now if each.age < HEARSAY else now + self._pause(known, now)
            elif name == source or (seen > known.seen and name not in self._linked):
                known.seen = max(known.seen, seen)
                if not known.asked:
                    known.address = address
                    known.due = min(known.due, now + self._pause(known, now))
            if name == source or name in self._linked:
                known.source = ""
        if len(self.known) == before:
            return 0
        mine = [name for name, known in self.known.items() if known.source == source]
        dropped = self._keep(mine, MOST_NAMES)
        if len(self.known) > LARGEST:
            dropped += self._keep(list(self.known.keys() - self._linked), LARGEST)
        return dropped

    def _keep(self, names: list[str], most: int) -> int:
        """Keep so many of the nodes that were not asked for, first those that were met, then the youngest; return how many were dropped."""
        names = [name for name in names if not self.known[name].asked]
        names.sort(key=lambda name: (not self.known[name].source, self.known[name].seen))
        dropped = names[: max(0, len(names) - most)]
        for name in dropped:
            self.forget(name)
        return len(dropped)

    # --- Connections that come and go -----------------------------------------------------------

    def connected(self, name: str, now: float) -> None:
        """Note that a node is connected."""
        known = self.known.get(name)
        if known is not None:
            known.source, known.seen, known.failure = "", now, ("", 0)
            self._refusals.pop(name, None)

    def lost(self, name: str, now: float) -> None:
        """Note that the connection to a node is lost. It is not dialled at once: it is not back yet."""
        known = self.known.get(name)
        if known is not None:
            known.seen = now
            known.due = now + self._pause(known, now)

    def failed(self, name: str, reason: str, refused: bool) -> int:
        """Note that a dial has failed; return how often in a row for this reason.

        Args:
            name: The node.
            reason: Why.
            refused: Whether a program answered there and refused it.
        """
        known = self.known.get(name)
        if known is None or name in self._linked:
            return 0
        known.failure = (reason, known.failure[1] + 1 if reason == known.failure[0] else 1)
        if refused:
            self._refusals[name] = reason
        else:
            self._refusals.pop(name, None)
        return known.failure[1]

    def has_failed(self, name: str) -> bool:
        """Whether the last dial of a node has failed, or was refused."""
        known = self.known.get(name)
        return name in self._refusals or (known is not None and known.failure[1] > 0)

    # --- Dials ----------------------------------------------------------------------------------

    def _pause(self, known: Known, now: float) -> float:
        """Seconds until the next dial."""
        shortest = HEARSAY if known.source and not known.asked else SHORTEST
        longest = LONGEST_ASKED if known.asked else LONGEST
        pause = min(max((now - known.seen) / 2, shortest), longest)
        return pause * (0.8 + 0.4 * self._chance())

    def take_due(self, now: float, room: int) -> tuple[list[str], float]:
        """Take the nodes to dial now, and forget those that nobody has seen for long.

        Args:
            now: The time.
            room: How many nodes may be dialled that were not asked for.

        Returns:
            The names, and the seconds until the next call has something to do.
        """
        due, heard, soonest = [], [], math.inf
        for name, known in list(self.known.items()):
            if name in self._linked:
                continue
            end = math.inf if known.asked else known.seen + FORGET
            if end <= now:
                self.forget(name)
                continue
            if known.due > now:
                soonest = min(soonest, known.due)
            elif known.asked:
                due.append(name)
            else:
                heard.append((bool(known.source), known.due, name))
            soonest = min(soonest, end)
        due += [name for *_, name in nsmallest(room, heard)]
        for name in due:
            known = self.known[name]
            known.due = now + self._pause(known, now)
            soonest = min(soonest, known.due)
        return due, 0.0 if len(heard) > room else max(0.0, soonest - now)

    # --- News for others ------------------------------------------------------------------------

    def news_for(self, now: float, to: str) -> list[News]:
        """The news for a node: the nodes that this one has met, the youngest first, limited."""
        there = [news for name in self._linked if name != to and (news := self.news_of(name))]
        seen = [
            (known.seen, name)
            for name, known in self.known.items()
            if not known.source and known.seen > now - FORGET and name not in self._linked
        ]
        gone = [news for at, name in nlargest(GONE, seen) if (news := self.news_of(name, now - at))]
        return [*there[: MOST_NAMES - GONE - 1], *(news for news in gone if news.name != to)]

    def news_of(self, name: str, age: float = 0.0) -> News | None:
        """The news about a node; `None` if others can't reach it at an address."""
        known = self.known.get(name)
        if known is None or isinstance(known.address, UnixAddress):
            return None
        return News(name, *known.address, age)


class Dialling:
    """Dials the nodes of a book.

    Args:
        name: The node.
        book: Its book, which is read and written in its turn.
        turn: Its turn.
        executor: Runs its greenlets.
        notices: Logs why a node can't be connected.
        dial: Connects to a node; raises an error if it can't.
    """

    def __init__(
        self,
        name: str,
        book: Book,
        turn: Turn,
        executor: Executor,
        notices: Notices,
        dial: Callable[[str], None],
    ) -> None:
        self._name = name
        self._book = book
        self._turn = turn
        self._executor = executor
        self._notices = notices
        self._dial = dial
        # Only in the hub:
        self._running = True
        self._changed = Event()
        self._under_way: dict[str, bool] = {}  # by name: whether it was asked for

    def start(self) -> None:
        """Start dialling. In the hub."""
        self._executor.spawn(self._keep_dialling)

    def stop(self) -> None:
        """Stop dialling. In the hub."""
        self._running = False
        self._changed.set()

    def look_soon(self) -> None:
        """Look into the book soon, because it has changed. From any thread."""
        run_in_hub(self._executor.hub, self._changed.set)

    def _keep_dialling(self) -> None:
        while self._running:
            self._changed.clear()
            pause, breath = PAUSE, BREATH
            try:
                pause, breath = self._turn.run(self._look)
            except Exception:
                logger.exception("%s failed to look for nodes to connect to", self._name)
            gevent.sleep(max(breath, BREATH))
            self._changed.wait(None if pause == math.inf else pause)

    def _look(self) -> tuple[float, float]:
        """Dial the nodes that are due; return how long to wait for a change, and how long in any case. In the turn."""
        now = monotonic()
        heard = sum(not asked for asked in self._under_way.values())
        due, pause = self._book.take_due(now, max(0, min(EACH_LOOK, AT_A_TIME - heard)))
        for name in due:
            if name not in self._under_way:
                self._under_way[name] = self._book.known[name].asked
                self._executor.spawn(self._try, name)
        return pause, SHARE * (monotonic() - now)

    def _try(self, name: str) -> None:
        try:
            if self._running:
                self._dial(name)
        except (OSError, LocksError) as error:
            self._tell_failure(name, error)
        except Exception:
            logger.exception("%s failed to connect to %s", self._name, name)
        finally:
            del self._under_way[name]

    def _tell_failure(self, name: str, error: Exception) -> None:
        """Log why a node can't be connected, unless it just does not run, which is normal.

        A reason is logged when it occurs twice in a row, and not again. Some reasons occur once
        whenever two nodes dial each other.
        """
        text = str(error)
        absent = (ConnectionRefusedError, FileNotFoundError)
        refused = not isinstance(error, (*absent, Settled))
        times = self._turn.run(self._book.failed, name, text, refused)
        if times == 2 and refused:
            self._notices.warn(text, name, "%s can't connect to %s: %s", self._name, name, text)


class Finder:
    """Asks a locator where servers are, not too often, and never twice at the same time. In the hub.

    Args:
        name: The node.
        locator: The locator.
        known: Its answer when the node was started, which is good for the first dial of each server.
        notices: Logs its errors.
    """

    def __init__(
        self, name: str, locator: Locator, known: Mapping[str, Address], notices: Notices
    ) -> None:
        self._name = name
        self._locator = locator
        self._notices = notices
        self._addresses = dict(known)
        self._fresh = set(known)
        self._asked = -PAUSE
        self._busy = RLock()

    def address_of(self, name: str) -> Address | None:
        """The present address of a server, as far as known; `None` for other nodes. Waits."""
        if name not in self._locator.names:
            return None
        if name in self._fresh:
            self._fresh.discard(name)
            return self._addresses[name]
        with self._busy:
            is_here = isinstance(self._addresses.get(name), UnixAddress)
            if monotonic() - self._asked >= (PAUSE_HERE if is_here else PAUSE):
                self._asked = monotonic()
                self._ask()
        return self._addresses.get(name)

    def _ask(self) -> None:
        try:
            self._addresses.update(call_in_thread(self._locator.find))
        except Exception as error:  # of an engine
            fault = None if isinstance(error, (OSError, LocksError)) else error
            text, source = "%s can't find its servers with %s: %s", self._locator.describe()
            self._notices.warn("locator", source, text, self._name, source, error, error=fault)
