"""The rules of a crowd: ours, those that they replaced, and wrong ones that must be caught.

A wrong rule shows in `locks_lab.crowd.measures.Report.violations`, or in how long a crowd takes
(`tests/model/test_crowds.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from locks.core.server.table import LockTable
from locks.core.server.tree import Entry
from locks_lab.crowd.links import Fair, Link, RoundRobin, Scheduler
from locks_lab.crowd.prices import Calls, Flat, Growing, Price
from locks_lab.worlds.rules import OURS, RULES, OtherServer, Rule

__all__ = ["CROWD", "CROWD_RULES", "CrowdRule", "Pausing"]

Clock = Callable[[], float]


class CrowdRule(NamedTuple):
    """The rules of a crowd.

    Attributes:
        name: Its name on the command line.
        about: The difference, in one line.
        machines: The machines of agents and lock servers.
        scheduler: Makes the scheduler of a lock server, given a clock.
        urgent_first: Whether urgent messages are read before other agents' requests on the same
            link.
        price: Makes the `Price` of a lock server's steps.
        right: Whether all properties of a crowd must hold.
        silence: What programs do when a server has become silent, or sends again: called with the
            crowd, the server, and which of the two.
        patience: After how many seconds a server counts as silent.
        lines: Whether agents ask the gate alone while their program waits for the same lock.
    """

    name: str
    about: str
    machines: Rule = OURS
    scheduler: Callable[[Clock], Scheduler] = lambda clock: Fair()
    urgent_first: bool = True
    price: Callable[[], Price] = Flat
    right: bool = False
    silence: Callable[[Any, str, bool], None] | None = None
    patience: float = 0.1
    lines: bool = False


# --- Schedulers -----------------------------------------------------------------------------------


class Pausing:
    """The rule that `Fair` replaced: each link has a share of the time, and pauses when it is used up.

    It pauses if other links *have had* messages within some seconds, not if they have messages now.
    So all links may pause at the same time.
    """

    PART = 1 / 4
    SAVED = 0.5
    FORGIVEN = SAVED / 2
    LONG = 0.004
    LONGEST_PAUSE = 3.0
    TOGETHER = 5.0

    def __init__(self) -> None:
        self._left: dict[Link, tuple[float, float]] = {}
        self._heard: dict[Link, float] = {}
        self._due: dict[Link, float] = {}

    def next(self, ready: Sequence[Link], now: float) -> Link | float:
        """A link that does not pause; or the end of the first pause."""
        link = min(ready, key=lambda link: self._due.get(link, 0.0))
        due = self._due.get(link, 0.0)
        return link if due <= now else due

    def served(self, link: Link, took: float, now: float) -> None:
        """It pays for that, the more the longer it took."""
        self._heard[link] = now
        left = self._grown(link, now)
        price = took * max(1.0, took / self.LONG)
        left = max(0.0, left - price) if left >= self.FORGIVEN else left - price
        others = any(
            now - at < self.TOGETHER for each, at in self._heard.items() if each is not link
        )
        left = max(-self.PART * self.LONGEST_PAUSE if others else 0.0, left)
        self._left[link] = (left, now)
        self._due[link] = now + max(0.0, -left / self.PART)

    def _grown(self, link: Link, now: float) -> float:
        left, at = self._left.get(link, (self.SAVED, now))
        return min(self.SAVED, left + self.PART * (now - at))


# --- Lock servers ---------------------------------------------------------------------------------


class _BargingTable(LockTable):
    """A reader never waits for a writer that only waits: a crowd of readers starves it."""

    def _blocker_of(self, entry: Entry, slot: Any) -> Any:
        found = super()._blocker_of(entry, slot)
        if found is not None and entry.mode == "read" and not found.granted:
            writers = entry.slot.granted[found.rank]
            return None if not writers else found
        return found


class _BargingServer(OtherServer):
    table_class = _BargingTable


# --- All of them ----------------------------------------------------------------------------------

CROWD = CrowdRule("ours", "the rules of locks", right=True)

CROWD_RULES: dict[str, CrowdRule] = {
    rule.name: rule
    for rule in (
        CROWD,
        CrowdRule(
            "gate-only",
            "agents ask the gate alone while their program waits",
            right=True,
            lines=True,
        ),
        CrowdRule("ask-all", "agents ask all servers although their program waits"),
        CrowdRule(
            "in-turn",
            "lock servers read a message of each link in turn",
            scheduler=lambda clock: RoundRobin(),
            right=True,
        ),
        CrowdRule(
            "calls", "a step costs so much for each call that it makes", price=Calls, right=True
        ),
        CrowdRule(
            "pausing",
            "lock servers pause links that have used up their share of the time",
            scheduler=lambda clock: Pausing(),
        ),
        CrowdRule("in-order", "a release is read behind what came before it", urgent_first=False),
        CrowdRule("growing", "a step costs as much as the queue is long", price=Growing),
        CrowdRule(
            "former",
            "pausing, in-order and growing together",
            scheduler=lambda clock: Pausing(),
            urgent_first=False,
            price=Growing,
        ),
        CrowdRule(
            "tell-all",
            "lock servers tell each change to all who want the same",
            RULES["tell-all"],
        ),
        CrowdRule(
            "barging",
            "readers do not wait for a writer that waits",
            Rule("barging", "", server=_BargingServer),
        ),
    )
}
