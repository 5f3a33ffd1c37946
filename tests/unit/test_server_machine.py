"""The lock server's machine: what it tells those who watch, and what it remembers of whom it has told what."""

from __future__ import annotations

from typing import Any

from locks.core.messages import Remove, Request, ToWatcher, Unwatch, Watch
from locks.core.server.machine import ServerMachine
from locks.core.views import FollowedView
from locks.model import AgentId, View
from tests.lockstep import agent

A, ROW, OTHER = ("a",), ("a", 1), ("b",)


class Told:
    """What one watcher of `A` is told, made into views by the changes."""

    def __init__(self) -> None:
        self.followed: FollowedView | None = None

    def __call__(self, effects: list[Any]) -> list[tuple[Any, list[tuple[int, bool]]]]:
        """Who is told which view: its requests in their order, and whether they are granted."""
        found = []
        for effect in effects:
            if isinstance(effect, ToWatcher):
                view = effect.news
                if isinstance(view, View):
                    self.followed = FollowedView.of(view)
                else:
                    assert self.followed is not None
                    view = self.followed.changed(view)
                found.append((effect.watcher, [(c.agent.serial, c.granted) for c in view.requests]))
        return found


def test_a_watcher_is_told_the_view_at_once_and_then_each_change_of_it() -> None:
    """Of the id itself and of related ones, until it has said that it is enough."""
    server, told = ServerMachine("n@h"), Told()
    server.handle(Request(agent(1), "c", A, "write"))
    assert told(server.handle(Watch("me", A))) == [("me", [(1, True)])]
    assert told(server.handle(Request(agent(2), "c", ROW, "read"))) == [
        ("me", [(1, True), (2, False)])
    ]
    assert told(server.handle(Request(agent(3), "c", OTHER, "read"))) == []
    assert told(server.handle(Remove(agent(1)))) == [("me", [(2, True)])]
    assert told(server.handle(Unwatch("me", A))) == []
    assert told(server.handle(Remove(agent(2)))) == []


# --- What a lock server remembers of whom it has told what. ---


NODE = "n1@h"
LOCK = ("a",)


def test_a_lock_that_is_held_for_long_does_not_remember_all_who_were_told_of_it() -> None:
    """Agents that have waited for it, and are gone, are forgotten: a leader holds its lock for weeks."""
    server = ServerMachine(NODE)
    holder = AgentId(1, NODE, 1)
    server.handle(Request(holder, "holder", LOCK, "write", True, True))
    for number in range(2, 500):
        agent = AgentId(number, "n2@h", number)
        told = server.handle(Request(agent, "waiter", LOCK, "write", True, True))
        assert any(effect.agent == agent and len(effect.message.records) == 2 for effect in told)
        server.handle(Remove(agent))
    (entry,) = server.table.requesters[holder].all()
    assert entry.notified is not None
    assert len(entry.notified) < 50
