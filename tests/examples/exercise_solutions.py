"""Solutions of `examples/exercises/test_exercises.py`, by the names that are to be filled in there."""

from __future__ import annotations

from typing import Any

from examples.cautionary_tale.drafts import DRAFTS
from examples.cautionary_tale.findings import TALES
from locks.core.agent.deadlocks import Resolver
from locks.core.server.notifier import Notifier
from locks_lab.worlds.rules import OtherAgent, OtherServer, Rule


class _Idle(Resolver):
    """Nobody looks for deadlocks."""

    def settle(self, *_: Any) -> None:
        self.unsettled = False


class _IdleAgent(OtherAgent):
    resolver_class = _Idle


class _ToTheLargest(Notifier):
    """The lock server tells the whole circle to the agent that must yield, however short it is."""

    long = 0


class _ToTheLargestServer(OtherServer):
    notifier_class = _ToTheLargest


class Bank:
    """It remembers the largest token."""

    balance = 100
    largest = 0

    def put(self, token: int, balance: int) -> bool:
        """Refuse what comes late."""
        if token < self.largest:
            return False
        self.largest, self.balance = token, balance
        return True


SOLUTIONS = {
    "TYPED": {1: "2", 2: "client 3, c", 3: "Client 3", 4: "1", 10: "4", 11: "3"},
    "MOVES": {
        5: "1 1>n1 n1>1 1 1>n1 n1>1 1 1>n1 2 2>n1 n1>2 2 2>n1 n1>2 2 2>n1",
        6: "1 2 2>n1 3 3>n1 1>n1",
        7: "1 n1>1 s1 2 n1>2 s2 3 n1>3 s3 2 n1>2 n1>3 3 n1>3 s3 n1>1 1 n1>1 s1 n1>2 1>2 s2",
        8: "2 n1>2 s2 1 n1>1 s1 1 n1>1 3 n1>3 n1>2 n1>2 2 n1>2 s2 n1>2 n1>1 n1>1 n1>1 s1 1 n1>2 n1>2 s2 n1>3 n1>3 s3",
        9: " ".join(["next"] * 15),
        11: "1 1>n1 n1>1 d1 1>n1 2 2>n1 n1>2",
        12: "1 2 1>n1 2>n2 n1>1 n2>2",
    },
    "BROKEN": Rule("idle", "nobody looks for deadlocks", _IdleAgent),
    "BROKEN_MOVES": 15,
    "FEWER": Rule("to the largest", "as it says", server=_ToTheLargestServer),
    "Bank": Bank,
    "FAILURES": {draft.name: TALES[draft] for draft in DRAFTS if draft in TALES},
}
