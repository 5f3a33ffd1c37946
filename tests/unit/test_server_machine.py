"""The lock server's machine: what it tells those who watch."""

from __future__ import annotations

from typing import Any

from locks.core.messages import Remove, Request, ToWatcher, Unwatch, Watch
from locks.core.server.machine import ServerMachine
from locks.core.views import FollowedView
from locks.model import View
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
