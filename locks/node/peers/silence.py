"""Silent nodes: connected, but they do not answer, because they are stopped, hang, or are cut off.

Such a node counts as lost only after `net_ticktime`, which is long. A program that has requests at
several nodes need not wait that long. While answers are expected, this program looks every `LOOK`
seconds. A node is *silent* if it has an unanswered request, `PATIENCE` looks have found no input
from it, and another node has said something meanwhile. It stays silent until any input arrives from
it. (Decision 0015.)

* Looks count, not time: this program may have been busy or stopped itself, so that it has not read
  its input yet. Between two looks it reads.
* If no other node says anything, some are asked for a sign of life.
* A busy node answers, but perhaps late. So a node that was found silent and answers again soon was
  busy. Its patience is doubled, up to `MOST_PATIENCE`, for `CALM` seconds. Otherwise clients would
  switch from a busy node to the next one and back.
* A client that waits in the queue of a node expects no answer, and an answer may be missing though the
  node has said something since. So that node is asked for a sign of life if it has said nothing for
  `ROUND` seconds.

`Suspects` has the rule, and `Silence` the timer, one for all nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from locks.net.link import Link, Traffic
from locks.runtime.clock import monotonic
from locks.runtime.executor import Executor
from locks.runtime.hub_life import Timer
from locks.runtime.inline import Turn
from locks.runtime.waiter import run_in_hub

__all__ = ["LOOK", "MOST_PATIENCE", "PATIENCE", "Found", "Silence", "Suspects"]

LOOK = 0.03  # seconds between looks
PATIENCE = 3  # looks without input from a node with a request
MOST_PATIENCE = 48  # looks, for a node that was busy before
CALM = 60.0  # seconds until it is forgotten that a node was busy
SOON = 60  # looks; a node that answers again earlier was not silent, but busy
LASTING = 30  # looks after which work that depends on a silent node is begun again another way
ROUND = 1.0  # seconds between signs of life of nodes where clients wait
WITNESSES = 3  # other nodes that are asked for a sign of life


class _Asked:
    """A node with an unanswered request.

    Attributes:
        heard: How often input had arrived from it before.
        messages: How many messages had arrived from all nodes before.
        looks: How many looks have found no input since.
    """

    __slots__ = ("heard", "looks", "messages")

    def __init__(self, heard: int, messages: int) -> None:
        self.heard, self.messages, self.looks = heard, messages, 0


class Found(NamedTuple):
    """The result of a look.

    Attributes:
        silent: The nodes that are silent now, and were not before.
        speaking: Those that answer again.
        doubted: Those that must be asked for a sign of life.
        lasting: Those that have been silent for a while, so that they are not just busy.
        pause: Seconds until the next look; `None` if no answer is expected.
    """

    silent: list[str]
    speaking: list[str]
    doubted: list[str]
    lasting: list[str]
    pause: float | None


class Suspects:
    """Which nodes have unanswered requests, and which are silent. Pure: the caller supplies counts and times.

    Attributes:
        silent: The silent nodes.
    """

    __slots__ = ("_asked", "_busy", "_round", "silent")

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self._asked: dict[str, _Asked] = {}
        self._busy: dict[str, tuple[int, float]] = {}  # the patience, and its end
        self._round: tuple[float, dict[str, int]] = (-ROUND, {})  # its time, and the input counts

    def asked(self, name: str, heard: int, messages: int) -> None:
        """Note a request that a node answers at once.

        Args:
            name: The node.
            heard: How often input has arrived from it.
            messages: How many messages have arrived from all nodes.
        """
        known = self._asked.get(name)
        if known is None or (known.heard != heard and name not in self.silent):
            self._asked[name] = _Asked(heard, messages)

    def lost(self, name: str) -> None:
        """Forget a node that is no longer connected."""
        self._asked.pop(name, None)
        self._busy.pop(name, None)
        self.silent.discard(name)

    def look(
        self,
        heard: Mapping[str, int],
        messages: int,
        now: float,
        awaited: Callable[[], Iterable[str]],
    ) -> Found:
        """Find the nodes that are silent, or speak again.

        Args:
            heard: How often input has arrived from each connected node.
            messages: How many messages have arrived from all nodes.
            now: The time, in seconds.
            awaited: Returns the nodes where clients wait for others.
        """
        found = Found([], [], [], [], None)
        for name, asked in list(self._asked.items()):
            patience, until = self._busy.get(name, (PATIENCE, now))
            patience = patience if now < until else PATIENCE
            if heard.get(name) != asked.heard:
                del self._asked[name]
                if name in self.silent:
                    self.silent.discard(name)
                    found.speaking.append(name)
                    if asked.looks < patience + SOON:
                        self._busy[name] = (min(2 * patience, MOST_PATIENCE), now + CALM)
                continue
            asked.looks += 1
            others = [each for each in heard if each != name and each not in self.silent]
            if name in self.silent:
                if asked.looks == patience + LASTING:
                    found.lasting.append(name)
            elif asked.looks < patience:
                pass
            elif not others:
                del self._asked[name]
            elif messages != asked.messages:
                self.silent.add(name)
                found.silent.append(name)
            elif asked.looks == patience:
                found.doubted.extend(others[:WITNESSES])
        if self._asked:
            return found._replace(pause=LOOK)
        return self._go_round(heard, now, awaited, found)

    def _go_round(
        self,
        heard: Mapping[str, int],
        now: float,
        awaited: Callable[[], Iterable[str]],
        found: Found,
    ) -> Found:
        """Now and then, look at the nodes where clients wait, while no node has an unanswered request."""
        last, before = self._round
        if not last <= now < last + ROUND:
            last, counts = now, {name: heard[name] for name in awaited() if name in heard}
            found.doubted.extend(name for name in counts if counts[name] == before.get(name))
            self._round = (now, counts)
        return found._replace(pause=last + ROUND - now if self._round[1] else None)


class Silence:
    """Watches which of the connected nodes are silent. Everything but the timer is for the turn.

    Args:
        links: The connections, by node.
        traffic: Counts their messages.
        turn: The node's turn.
        executor: Its hub has the timer.
        doubt: Called with a link that must be asked for a sign of life.
        awaited: Returns the nodes where clients wait for others.
        changed: Called with a node, and whether it is silent now.
        lasts: Called with a node that has been silent for a while.

    Attributes:
        told: Other functions to call with a node that is silent now.
    """

    def __init__(
        self,
        links: Mapping[str, Link],
        traffic: Traffic,
        turn: Turn,
        executor: Executor,
        *,
        doubt: Callable[[Link], object],
        awaited: Callable[[], Iterable[str]],
        changed: Callable[[str, bool], object],
        lasts: Callable[[str], object],
    ) -> None:
        self._links = links
        self._traffic = traffic
        self._turn = turn
        self._executor = executor
        self._doubt = doubt
        self._awaited = awaited
        self._changed = changed
        self._lasts = lasts
        self._suspects = Suspects()
        self._waits_in: object = None  # the hub in which the timer runs
        self._pause = 0.0  # its time
        self._timer: Timer | None = None
        self.told: dict[Callable[[str], object], None] = {}

    @property
    def silent(self) -> Collection[str]:
        """The nodes that are silent now."""
        return self._suspects.silent

    def asked(self, name: str) -> None:
        """Note a request that a node answers at once."""
        link = self._links.get(name)
        if link is not None:
            self._suspects.asked(name, link.heard, self._traffic.received)
            hub = self._executor.hub
            if self._waits_in is not hub or self._pause > LOOK:
                run_in_hub(hub, self._wait, LOOK)
                self._waits_in, self._pause = hub, LOOK

    def doubt(self, name: str) -> None:
        """Ask a node for a sign of life, because the answer to its request may take a while."""
        link = self._links.get(name)
        if link is not None:
            self._doubt(link)
            self.asked(name)

    def lost(self, name: str) -> None:
        """Forget a node that is no longer connected."""
        self._suspects.lost(name)

    def _wait(self, pause: float | None) -> None:
        """Look again after a pause, if there is one; in the hub."""
        if self._timer is not None:
            self._timer.close()
            self._timer = None
        if pause is not None:
            self._timer = self._executor.new_timer(pause, self._look_now)

    def _look_now(self) -> None:
        pause: float | None = LOOK  # if it is interrupted
        try:
            found = self._turn.thin(self._look)  # nothing is inflated while nothing changes
            if found is not None:
                pause = found.pause
                if any(found[:-1]):
                    self._turn.run(self._report, found)
        finally:
            self._wait(pause)

    def _look(self) -> Found:
        """Look which nodes are silent."""
        heard = {name: link.heard for name, link in self._links.items()}
        found = self._suspects.look(heard, self._traffic.received, monotonic(), self._awaited)
        self._waits_in = None if found.pause is None else self._executor.hub
        self._pause = found.pause or 0.0
        return found

    def _report(self, found: Found) -> None:
        """Report the changes that a look has found, unless a node was lost meanwhile."""
        for name in found.doubted:
            self.doubt(name)
        for name in found.speaking:
            if name not in self.silent:
                self._changed(name, False)
        for name in found.silent:
            if name in self.silent:
                self._changed(name, True)
                for told in list(self.told):
                    told(name)
        for name in found.lasting:
            self._lasts(name)
