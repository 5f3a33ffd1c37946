"""Which locks the restart of a lock server would cost: `locks status --before-restart`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from locks.core.facts import RequestFact
from locks.facts.data import lock_as_data
from locks.facts.gather import requests
from locks.facts.graph import grouped, waits_of
from locks.facts.stories import who, wish
from locks.runtime.clock import monotonic

__all__ = ["Restart", "before_restart"]

BREATH = 0.2  # seconds between two looks
Key = tuple[Any, ...]


class Restart(NamedTuple):
    """What the restart of a lock server would do.

    Attributes:
        server: The server.
        missing: The other servers that are down, or have no memory of what is done yet.
        lost: Locks that would be lost: each on its servers.
        few: Locks that are on too few servers: they are not held by a majority. They are of programs that lock on servers of
            their own choice (`nodes=`), or of such whose other servers were lost.
    """

    server: str
    missing: tuple[str, ...]
    lost: list[list[RequestFact]]
    few: list[list[RequestFact]]

    @property
    def is_safe(self) -> bool:
        """Whether it costs nothing."""
        return not (self.missing or self.lost or self.few)

    def as_data(self) -> dict[str, Any]:
        """The same for JSON."""
        return {
            "server": self.server,
            "safe": self.is_safe,
            "missing": list(self.missing),
            "lost": [lock_as_data(each) for each in self.lost],
            "few": [lock_as_data(each) for each in self.few],
        }

    def lines(self) -> list[str]:
        """The same in sentences."""
        if self.is_safe:
            return [f"{self.server} can be restarted: no lock is lost."]
        lines = [f"{self.server} should NOT be restarted now."]
        if self.missing:
            lines.append(f"  Wait for {', '.join(self.missing)} first.")
        for rows, what in ((self.lost, "would be lost"), (self.few, "is on too few servers")):
            for row in rows:
                places = ", ".join(sorted(fact.request.node for fact in row))
                lines.append(f"  {wish(row[0])} of {who(row[0])} {what} (it is on {places}).")
        return lines


def before_restart(server: str, needed: int, missing: Sequence[str], timeout: float) -> Restart:
    """Look which locks the restart of a server would cost.

    Locks that are just taken or released are on some of their servers only. So what looks dangerous counts if it lasts.

    Args:
        server: The server.
        needed: How many servers a lock needs.
        missing: The other servers that are down, or have no memory of what is done yet.
        timeout: Seconds for a look, and for looks in all.
    """
    deadline = monotonic() + timeout
    rows = _endangered(server, needed, timeout)
    while rows and monotonic() < deadline:
        time.sleep(BREATH)
        now = _endangered(server, needed, timeout)
        rows = {key: now[key] for key in rows if key in now}
    lost = [row for row in rows.values() if len(row) >= needed]
    few = [row for row in rows.values() if len(row) < needed]
    return Restart(server, tuple(missing), lost, few)


def _endangered(server: str, needed: int, timeout: float) -> Mapping[Key, list[RequestFact]]:
    """The locks that are on this server, and would be on too few without it."""
    found = requests(timeout=timeout)
    return {
        (row[0].request.agent, row[0].request.lock_id, row[0].request.mode): row
        for row in grouped(waits_of(found.facts))
        if row[0].granted
        and any(fact.request.node == server for fact in row)
        and len(row) - 1 < needed
    }
