"""Silent nodes: connected, but they do not answer, because they are stopped, hang, or are cut off.

Such a node counts as lost only after `net_ticktime`, which is long. A program that has requests at
several nodes need not wait that long. A node is *silent* if it has an unanswered request, no input
has arrived from it for `PATIENCE` seconds, and another node has said something meanwhile. It stays silent until any input arrives from it. (Decision 0015.)

* A busy node answers, but perhaps late. So a node that was found silent and answers again soon was
  busy. Its patience is doubled, up to `MOST_PATIENCE`, for `CALM` seconds. Otherwise clients would
  switch from a busy node to the next one and back.
* This program may have been busy or stopped itself, so that it has not read its input yet. So a
  node counts as silent only if two checks find it so, with a look at the sockets in between. If no
  other node has said anything, some are asked for a sign of life.
* A client that waits in the queue of a node expects no answer. So that node is asked for a sign of
  life now and then (`ROUND`).

Nothing is scheduled while no answer is expected. `Suspects` has the rule, and `Silence` the timer,
one for all nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from locks.net.link import Link, Traffic
from locks.runtime.clock import monotonic
from locks.runtime.executor import Executor
from locks.runtime.hub_life import Timer
from locks.runtime.inline import Turn
from locks.runtime.waiter import run_in_hub

__all__ = ["MOST_PATIENCE", "PATIENCE", "Found", "Silence", "Suspects"]

PATIENCE = 0.07  # seconds without input from a node with a request
MOST_PATIENCE = 1.6  # seconds, for a node that was busy before
CALM = 60.0  # seconds until it is forgotten that a node was busy
SOON = 2.0  # seconds; a node that answers again earlier was not silent, but busy
LASTING = 1.0  # seconds of silence until work that depends on a node is begun again another way
AGAIN = 0.01  # seconds until the second check
LATER = 0.05  # seconds between checks of silent nodes, and of nodes without another one to compare
ROUND = 1.0  # seconds between signs of life of nodes where clients wait
MISSED = 10.0  # seconds; a check that is later than this never comes: the hub has changed
WITNESSES = 3  # other nodes that are asked for a sign of life


class _Asked:
    """A node with an unanswered request.

    Attributes:
        heard: How often input had arrived from it before.
        messages: How many messages had arrived from all nodes before.
        at: The time of the first such request.
        looks: How many checks have found that it is late.
    """

    __slots__ = ("at", "heard", "looks", "messages")

    def __init__(self, heard: int, messages: int, at: float) -> None:
        self.heard, self.messages, self.at = heard, messages, at
        self.looks = 0


class Found(NamedTuple):
    """The result of a check.

    Attributes:
        silent: The nodes that are silent now, and were not before.
        speaking: Those that answer again.
        doubted: Those that must be asked for a sign of life.
        lasting: Those that have been silent for a while, so that they are not just busy.
        pause: Seconds until the next check; `None` if no answer is expected.
    """

    silent: list[str]
    speaking: list[str]
    doubted: list[str]
    lasting: list[str]
    pause: float | None


class Suspects:
    """Which nodes have unanswered requests, and which are silent. Pure: the caller supplies counts and times.

    Attributes:
        silent: The silent nodes, each with the time when this was found, and how often input had
            arrived then.
    """

    __slots__ = ("_asked", "_busy", "_lasting", "_round", "silent")

    def __init__(self) -> None:
        self.silent: dict[str, tuple[float, int]] = {}
        self._asked: dict[str, _Asked] = {}
        self._busy: dict[str, tuple[float, float]] = {}  # the patience, and its end
        self._lasting: set[str] = set()  # the silent nodes that were reported as lasting
        self._round: tuple[float, dict[str, int]] | None = None  # its time, and the input counts

    def asked(self, name: str, heard: int, messages: int, now: float) -> None:
        """Note a request that a node answers at once.

        Args:
            name: The node.
            heard: How often input has arrived from it.
            messages: How many messages have arrived from all nodes.
            now: The time, in seconds.
        """
        known = self._asked.get(name)
        if known is None or known.heard != heard:
            self._asked[name] = _Asked(heard, messages, now)

    def lost(self, name: str) -> None:
        """Forget a node that is no longer connected."""
        for kept in (self._asked, self._busy, self.silent):
            kept.pop(name, None)
        self._lasting.discard(name)

    def find_silent(
        self,
        heard: Mapping[str, int],
        messages: int,
        now: float,
        awaited: Callable[[], Iterable[str]],
    ) -> Found:
        """Check which nodes are silent.

        Args:
            heard: How often input has arrived from each connected node.
            messages: How many messages have arrived from all nodes.
            now: The time, in seconds.
            awaited: Returns the nodes where clients wait for others.
        """
        speaking = [name for name, (_, then) in self.silent.items() if heard.get(name) != then]
        for name in speaking:
            self._speaks(name, now)
        silent: list[str] = []
        doubted: dict[str, None] = {}
        pause = LATER if self.silent else None
        for name, asked in list(self._asked.items()):
            if heard.get(name) != asked.heard:
                del self._asked[name]
            elif name not in self.silent:
                left = asked.at + self._patience(name, now) - now
                if left <= 0:
                    others = [each for each in heard if each != name and each not in self.silent]
                    if not others:
                        continue
                    left = LATER if asked.looks else AGAIN
                    if messages == asked.messages:  # nobody has said anything
                        doubted.update(dict.fromkeys([] if asked.looks else others[:WITNESSES]))
                        asked.looks = 1
                    elif asked.looks < 2:
                        asked.looks = 2
                        left = AGAIN
                    else:
                        self.silent[name] = (now, asked.heard)
                        silent.append(name)
                pause = left if pause is None else min(pause, left)
        if pause is None:
            pause = self._go_round(heard, now, awaited, doubted)
        lasting = [
            name
            for name, (since, _) in self.silent.items()
            if now >= since + LASTING and name not in self._lasting
        ]
        self._lasting.update(lasting)
        return Found(silent, speaking, list(doubted), lasting, pause)

    def _go_round(
        self,
        heard: Mapping[str, int],
        now: float,
        awaited: Callable[[], Iterable[str]],
        doubted: dict[str, None],
    ) -> float | None:
        """Now and then, check the nodes where clients wait, while no node has an unanswered request."""
        last = self._round
        if last is not None and last[0] <= now < last[0] + ROUND:
            return last[0] + ROUND - now
        names = [name for name in awaited() if name in heard]
        if last is not None:
            doubted.update((name, None) for name in names if heard[name] == last[1].get(name))
        self._round = (now, {name: heard[name] for name in names}) if names else None
        if doubted:
            return PATIENCE
        return ROUND if names else None

    def _patience(self, name: str, now: float) -> float:
        """How long a node may take to answer."""
        patience, until = self._busy.get(name, (PATIENCE, 0.0))
        return patience if now < until else PATIENCE

    def _speaks(self, name: str, now: float) -> None:
        """Note that a silent node has answered."""
        since, _ = self.silent.pop(name)
        self._lasting.discard(name)
        self._asked.pop(name, None)
        if now - since < SOON:
            patience = min(2 * self._patience(name, now), MOST_PATIENCE)
            self._busy[name] = (patience, now + CALM)


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
        self._due: float | None = None  # when the next check is due
        self._timer: Timer | None = None
        self.told: dict[Callable[[str], object], None] = {}
        """Other functions to call with a node that is silent now."""

    @property
    def silent(self) -> Mapping[str, object]:
        """The nodes that are silent now."""
        return self._suspects.silent

    def asked(self, name: str) -> None:
        """Note a request that a node answers at once."""
        link = self._links.get(name)
        if link is not None:
            now = monotonic()
            self._suspects.asked(name, link.heard, self._traffic.received, now)
            due = self._due
            if due is None or due > now + PATIENCE or now > due + MISSED:
                self._due = now + PATIENCE
                run_in_hub(self._executor.hub, self._wait, PATIENCE)

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
        """Check again after a pause, if there is one; in the hub."""
        if self._timer is not None:
            self._timer.close()
            self._timer = None
        if pause is not None:
            self._timer = self._executor.new_timer(pause, self._look_now)

    def _look_now(self) -> None:
        self._wait(self._turn.run(self._look))

    def _look(self) -> float | None:
        """Check which nodes are silent, and report changes; return the seconds until the next check."""
        heard = {name: link.heard for name, link in self._links.items()}
        now = monotonic()
        found = self._suspects.find_silent(heard, self._traffic.received, now, self._awaited)
        self._due = None if found.pause is None else now + found.pause
        for name in found.doubted:
            self.doubt(name)
        for name in found.speaking:
            self._changed(name, False)
        for name in found.silent:
            self._changed(name, True)
            for told in list(self.told):
                told(name)
        for name in found.lasting:
            self._lasts(name)
        return found.pause
