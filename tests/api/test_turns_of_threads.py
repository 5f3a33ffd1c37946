"""What belongs to a turn is read and written with the turn held, and what two threads may begin at once is begun once."""

from __future__ import annotations

from typing import Any

import pytest

import locks
from locks.node import server as servers
from locks.node.node import Node
from locks.node.observing.statistics import Counters
from locks.original import unwatch
from locks.program.default import stand_in
from locks.runtime.inline import Turn


class CheckedCounters(Counters):
    """Counters that are changed in the turn only: elsewhere threads would lose counts."""

    turn: Turn | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        assert self.turn is None or name == "turn" or self.turn.is_here(), name
        super().__setattr__(name, value)


def test_counters_are_changed_in_the_turn_only() -> None:
    """Transactions that begin, end, time out and are inflated; and the sums are right."""
    counters = CheckedCounters()
    node = Node("counts@localhost", counters=counters)
    counters.turn = node.turn
    try:
        with stand_in(node):
            with locks.transaction() as tx:
                tx.write_lock(("a",))
            lock = locks.Lock(("held",))
            with lock:
                assert node.agents()
                with (
                    locks.Owner("other"),
                    locks.transaction() as tx,
                    pytest.raises(locks.LockTimeout),
                ):
                    tx.write_lock(("held",), timeout=0)
                running = node.statistics()
            ended = node.statistics()
        assert (running.transactions, running.timeouts) == (3, 1)
        assert (ended.transactions, ended.timeouts) == (3, 1)
    finally:
        counters.turn = None
        node.stop()


def test_a_watcher_is_watched_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that begins it while another one does leaves no second monitor."""
    node = locks.start()
    watcher = locks.actors.GeventActor.start()
    begun: list[Any] = []
    watch_end = servers.watch_end

    def of_another_thread(*args: Any) -> Any:
        if not begun:
            begun.append(None)
            node.server.watch_over(servers.listener(watcher))
        begun.append(watch_end(*args))
        return begun[-1]

    monkeypatch.setattr(servers, "watch_end", of_another_thread)
    try:
        locks.watch(("a",), watcher=watcher)
        first, second = begun[1:]
        assert list(node.server._monitors.values()) == [first]
        assert second._is_cancelled
        unwatch(("a",), watcher=watcher)
    finally:
        watcher.stop()
