"""Crowds in virtual time (`tests.model.crowd`): nobody waits while a processor idles, whoever comes first is served first.

And a hand-over costs as much time and as many messages, however many wait. Wrong rules are caught.
"""

from __future__ import annotations

from typing import Any

import pytest

from locks.core.messages import Remove
from locks.core.server.machine import ServerMachine
from locks.core.server.table import LockTable
from locks_lab.worlds.host import Violation
from locks_lab.worlds.rules import OURS, RULES, OtherServer, Rule
from tests.model.crowd import Crowd, Shape, Turns

READERS = Shape(clients=12, reads=0.5, rounds=10)


def per_transaction(crowd: Crowd) -> float:
    """Messages for each transaction."""
    return crowd.messages.total() / crowd.ended


def most_messages(servers: int) -> int:
    """Four at the gate: request, "waiting", grant and end. Three at each other server, as nobody waits there."""
    return 4 + 3 * (servers - 1)


@pytest.mark.parametrize("servers", [1, 3, 5])
@pytest.mark.parametrize("clients", [10, 100])
def test_everybody_gets_it_in_order_with_few_messages(servers: int, clients: int) -> None:
    """No processor is idle with input (`Crowd` raises it), nobody is overtaken, and messages do not grow with the crowd."""
    crowd = Crowd(Shape(clients, servers)).run()
    assert crowd.ended == clients
    assert crowd.overtaken == 0
    assert per_transaction(crowd) <= most_messages(servers)


def test_a_hand_over_takes_as_long_however_many_wait() -> None:
    """10, 100 and 300 clients in three programs: flat within 1.3."""
    each = [Crowd(Shape(clients)).run().now / clients for clients in (10, 100, 300)]
    assert max(each) < 1.3 * min(each), each


@pytest.mark.parametrize("reads", [0.1, 0.5, 0.9])
def test_neither_readers_nor_writers_are_starved(reads: float) -> None:
    """Readers and writers that come again and again: nobody is overtaken at the gate."""
    assert Crowd(READERS._replace(clients=20, reads=reads)).run().overtaken == 0


# --- Wrong rules are caught -------------------------------------------------------------------------


class PausingTurns(Turns):
    """A node that was served has to pause although nobody else has input."""

    paused = False

    def next(self) -> str | None:
        self.paused = not self.paused
        return super().next() if self.paused else None


class NoExclusionTable(LockTable):
    """Grants whatever is asked for."""

    def _blocker_of(self, entry: Any, slot: Any) -> Any:
        return None


class BargingTable(LockTable):
    """A reader never waits for a writer that only waits."""

    def _blocker_of(self, entry: Any, slot: Any) -> Any:
        found = super()._blocker_of(entry, slot)
        if found is not None and entry.mode == "read" and not found.granted:
            return found if entry.slot.granted[found.rank] else None
        return found


class NoExclusionServer(OtherServer):
    table_class = NoExclusionTable


class BargingServer(OtherServer):
    table_class = BargingTable


class ForgetfulServer(ServerMachine):
    """Does not take out what an agent has that ends."""

    def handle(self, message: Any) -> Any:
        return [] if isinstance(message, Remove) else super().handle(message)


@pytest.mark.parametrize(
    ("shape", "rule", "turns", "said"),
    [
        (Shape(10), OURS, PausingTurns, "is idle while there is input"),
        (Shape(10), Rule("", "", server=NoExclusionServer), Turns, "two clients hold the lock"),
        (Shape(10, 1), Rule("", "", server=ForgetfulServer), Turns, "stuck after 1 transactions"),
    ],
)
def test_a_wrong_rule_is_caught(shape: Shape, rule: Rule, turns: type[Turns], said: str) -> None:
    """Links that pause, a table that grants everything, a server that keeps what has ended."""
    with pytest.raises(Violation, match=said):
        Crowd(shape, rule, turns).run()


@pytest.mark.parametrize("servers", [1, 3])
def test_messages_that_grow_with_the_crowd_are_caught(servers: int) -> None:
    """If all who want the same are told each change."""
    crowd = Crowd(Shape(20, servers), RULES["tell-all"]).run()
    assert per_transaction(crowd) > most_messages(servers)


def test_readers_that_overtake_are_caught() -> None:
    """If readers do not wait for a writer that waits, it is overtaken again and again."""
    assert Crowd(READERS, Rule("", "", server=BargingServer)).run().overtaken > 1
