"""Requests of other nodes that a lock server answers without its machine, beside the same ones that its machine takes in."""

from __future__ import annotations

import random
from typing import Any

import pytest

from locks.core.messages import Release, Remove, Request, ServerEffect, ServerMessage, ToAgent
from locks.core.server.machine import ServerMachine
from locks.core.thin import Granted, Thin
from locks.model import LockId, agent_numbered
from tests.helpers import EXPLORE

SEEDS = range(20_000 if EXPLORE else 600)
AGENTS = [agent_numbered(number, f"n{number % 2}@h") for number in range(5)]
IDS: list[LockId] = [("a",), ("a", 1), ("a", 1, 2), ("b",), ("b", 2), ("c",), ("c", (1,))]


class Server:
    """A lock server that answers what it can by thin locks."""

    def __init__(self, rule: type[Thin]) -> None:
        self.machine = ServerMachine("s@h", 100)
        self.thin = rule(self.machine)
        self.short = 0

    def handle(self, message: ServerMessage) -> list[ServerEffect]:
        """What it answers."""
        thin = self.thin
        if isinstance(message, Request) and thin.may_serve(message):
            self.short += 1
            return [ToAgent(message.agent, thin.serve(message, 0.0))]
        if isinstance(message, Remove) and thin.part(message):
            return []
        self.inflate()
        return self.machine.handle(message)

    def inflate(self) -> None:
        """Put the thin locks into the table."""
        for event, args, _ in self.thin.steps():
            event(*args)
        self.thin.conclude()


def messages(seed: int) -> list[ServerMessage]:
    """Some that a server may get, most of them for what is free."""
    chance = random.Random(seed)
    found: list[ServerMessage] = []
    for _ in range(chance.randrange(2, 30)):
        agent = chance.choice(AGENTS)
        client, lock_id = f"client {agent.created}", chance.choice(IDS)
        mode: Any = chance.choice(("write", "write", "read"))
        standing = chance.choice(((False, False),) * 6 + ((True, False),) * 3 + ((True, True),))
        kinds = (
            Request(agent, client, lock_id, mode, *standing, chance.random() < 0.05),
            Remove(agent),
            Release(agent, lock_id),
        )
        found.append(chance.choices(kinds, (5, 4, 1))[0])
    return found


def compare(seed: int, rule: type[Thin] = Thin) -> int:
    """Put the same messages to two servers; return how many the short way answered."""
    whole, server = ServerMachine("s@h", 100), Server(rule)
    for message in messages(seed):
        assert server.handle(message) == whole.handle(message), f"seed {seed}: {message}"
    server.inflate()
    assert server.machine.save() == whole.save(), f"seed {seed}"
    assert server.machine.statistics() == whole.statistics(), f"seed {seed}"
    return server.short


def test_guests_get_the_same_answers() -> None:
    """Each answer, version, place and count is that of the lock table, whenever the thin locks are put into it."""
    assert sum(map(compare, SEEDS)) > len(SEEDS)


class Known(Thin):
    """Serves agents that the lock table knows."""

    def may_serve(self, message: Request) -> bool:
        return self.is_free(message.lock_id) and not message.spare


class Below(Thin):
    """Does not look at what is held above."""

    def is_free(self, lock_id: LockId) -> bool:
        depth = len(lock_id)
        above = {lock_id[:each]: self.held.pop(lock_id[:each], None) for each in range(1, depth)}
        found = super().is_free(lock_id)
        self.held.update({key: each for key, each in above.items() if each is not None})
        return found


class Uncounted(Thin):
    """Does not count what is released."""

    def release(self, granted: Granted) -> None:
        super().release(granted)
        self.changes -= 1


class Forgotten(Thin):
    """Leaves the locks of agents that end."""

    def part(self, message: Remove) -> bool:
        return self.guests.pop(message.agent, None) is not None


class Numbered(Thin):
    """Gives places as if nothing had been released."""

    def put(self, *args: Any) -> int:
        self.given = len(self.held)
        return super().put(*args)


class Alone(Thin):
    """Forgets that an agent has requests elsewhere."""

    def put(self, *args: Any) -> int:
        return super().put(*args[:4])


@pytest.mark.parametrize("rule", [Known, Below, Uncounted, Forgotten, Numbered, Alone])
def test_wrong_rules_are_caught(rule: type[Thin]) -> None:
    """Each of them by some of the scripts."""
    with pytest.raises((AssertionError, KeyError)):
        sum(compare(seed, rule) for seed in SEEDS)
