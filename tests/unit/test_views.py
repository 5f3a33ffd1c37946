"""Views that are kept up to date by changes, and who is told of which change."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from locks.core import views
from locks.core.messages import (
    OUTSIDE,
    Remove,
    Request,
    ServerEffect,
    TableChange,
    ToWatcher,
    Unwatch,
    ViewChange,
    Watch,
)
from locks.core.server import machine as server_machine
from locks.core.server import table, tree, watchers
from locks.core.server.machine import ServerMachine
from locks.core.views import FollowedView
from locks.model import LockId, View, related
from locks_lab.worlds.study import all_watchers
from tests.helpers import lines_of
from tests.lockstep import agent
from tests.unit.test_saving import IDS, messages

MODULES = (server_machine, table, tree, watchers)


class Following:
    """What watchers of a lock server are told, as views."""

    def __init__(self) -> None:
        self.server = ServerMachine("a@h")
        self.views: dict[tuple[Any, LockId], FollowedView] = {}
        self.told: list[tuple[Any, View]] = []

    def handle(self, message: Any) -> None:
        """Have the lock server take in a message, and watchers what it has for them."""
        for effect in self.server.handle(message):
            if not isinstance(effect, ToWatcher):
                continue
            watcher, news = effect
            key = (watcher, news.lock_id)
            if isinstance(news, View):
                self.views[key] = FollowedView.of(news)
                self.told.append((watcher, news))
            else:
                self.told.append((watcher, self.views[key].changed(news)))


@settings(max_examples=40, deadline=None)
@given(st.lists(messages, max_size=40), st.integers(0, 40))
def test_changes_make_the_view_that_the_lock_table_has(steps: list[Any], few: int) -> None:
    """Whatever happens, each watcher is told exactly the views that there were, in order."""
    all_at_once, views.FEW = views.FEW, few
    try:
        following = Following()
        for lock_id in IDS:
            following.handle(Watch("all", lock_id))
        for step in steps:
            before = {lock_id: following.server.view(lock_id) for lock_id in IDS}
            following.told.clear()
            following.handle(step)
            told = {view.lock_id: view for who, view in following.told if who == "all"}
            for lock_id in IDS:
                now = following.server.view(lock_id)
                if lock_id in told:
                    # Who is told later in the same step may have changed the version.
                    assert told[lock_id].requests == now.requests
                    assert told[lock_id].version <= now.version
                else:
                    assert now.requests == before[lock_id].requests
    finally:
        views.FEW = all_at_once


def test_a_view_that_many_are_told_is_made_once() -> None:
    """Watchers of one id here share the work; each is told the same view."""
    following = FollowedView(("a",), "a@h")
    change = ViewChange(("a",), "a@h", (), (), 5)
    assert following.changed(change) is following.changed(change)


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(tuple), max_size=12))
def test_who_is_told_of_a_change(ids: list[LockId]) -> None:
    """Those who watch a related id, found without looking at the others."""
    server = ServerMachine("a@h")
    for number, lock_id in enumerate(ids):
        server.handle(Watch(number, lock_id))
    for changed in [*ids, ("a",), ("a", "b", "c", "a", "b")]:
        effects = server.handle(Request(agent(1), "c", changed, "read"))
        told = [effect.watcher for effect in effects if isinstance(effect, ToWatcher)]
        expected = [n for n, lock_id in enumerate(ids) if related(lock_id, changed)]
        assert sorted(told) == expected  # type: ignore[type-var]
        server.handle(Remove(agent(1)))
    for number, lock_id in enumerate(ids):
        server.handle(Unwatch(number, lock_id))
    assert all_watchers(server) == []
    assert not server._watchers._below


def test_those_outside_are_told_what_changes_and_nothing_else() -> None:
    """They read the table themselves: its size does not matter when they begin, nor what they watch."""
    server = ServerMachine("a@h")
    server.handle(Request(agent(1), "c", ("a", 1), "write"))
    assert server.handle(Watch(OUTSIDE, ())) == []
    (effect,) = told(server.handle(Request(agent(2), "c", ("a", 2), "write")))
    assert isinstance(effect.news, TableChange)
    ((number, lock_id),) = effect.news.changed
    assert lock_id == ("a", 2)
    again = ServerMachine("a@h")
    again.load(server.save())
    assert all_watchers(again) == [OUTSIDE]
    for each in (server, again):
        (effect,) = told(each.handle(Remove(agent(2))))
        assert effect.news == TableChange(((number, lock_id),))
        each.handle(Unwatch(OUTSIDE, ()))
        assert told(each.handle(Remove(agent(1)))) == []


def told(effects: list[ServerEffect]) -> list[ToWatcher]:
    """What watchers are told."""
    return [each for each in effects if isinstance(each, ToWatcher)]


def test_a_change_costs_what_has_changed_not_what_is_there() -> None:
    """With a watcher of a table, one more row costs as much beside 2,000 rows as beside 20."""
    costs = []
    for rows in (20, 2000):
        server = ServerMachine("a@h")
        server.handle(Watch("w", ("t",)))
        server.handle(Watch(OUTSIDE, ()))
        for row in range(rows):
            server.handle(Request(agent(1), "c", ("t", row), "write"))
        one_more = Request(agent(2), "c", ("t", rows), "write")
        costs.append(lines_of(lambda server=server, one=one_more: server.handle(one), *MODULES))  # type: ignore[misc]
    assert costs[1] <= costs[0] + 5, costs
