"""The invariants: what must be true of a program's node whenever nothing is going on in it.

They are checked after each fault. Each is one function that raises an `AssertionError`; `broken` runs all
of them and returns what does not hold, in words.

* The lock table is what it would be if counted anew, and no two conflicting requests are granted
  (`tests.lockstep`); each waiting request has a true reason to wait.
* When each request was asked for and granted is known, and of no request that is gone.
* Each agent knows of its own requests exactly what the table has, and nothing is under way between them:
  so both machines have taken each event whole, or not at all.
* No circle of waiting agents is left.
* Nothing is kept by nobody: each owner in the table is an agent that lives, each agent that lives is
  listed under a client that lives, and under no other.
* Nothing lies about: no message in the queue, no work posted, the turn free.

Some of this is in private parts of the product. That is the place for it: all other modules of this folder
use what users use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import gevent
import pykka

from locks.core.server.tree import Entry
from locks.model import RequestRecord, blocks
from locks.node.client.agent import Agent
from locks.node.node import Node
from locks.runtime.monitor import watch_of
from locks_lab.worlds.study import study
from tests.helpers import eventually
from tests.lockstep import check_exclusion, check_structure, slots

__all__ = ["broken", "broken_when_empty", "lives"]

SOON = 10.0
"""Seconds within which the background does what it has to."""


def broken(node: Node) -> list[str]:
    """Which invariants do not hold; clients may hold locks and wait, but nobody may be in a turn."""
    return _failures(
        node,
        *(check_running, check_quiet, check_table, check_times),
        *(check_agents, check_circles, check_registers),
    )


def broken_when_empty(node: Node) -> list[str]:
    """The same when all clients have ended their transactions: then nothing may be left."""
    return broken(node) + _failures(node, check_empty)


def _failures(node: Node, *checks: Callable[[Node], None]) -> list[str]:
    found = []
    for check in checks:
        try:
            check(node)
        except Exception as error:  # what is torn may raise anything
            text = str(error).splitlines()[0] if str(error) else _line(error)
            found.append(f"{check.__name__[6:]}: {type(error).__name__}: {text}")
    return found


def _line(error: BaseException) -> str:
    """Where a bare `assert` failed."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}"


# --- The node ---------------------------------------------------------------------------------------


def check_running(node: Node) -> None:
    """The node runs, and so does its lock server."""
    assert node.running, "the node does not run any more"
    assert node.server.is_alive(), "the lock server has ended"


def check_quiet(node: Node) -> None:
    """Soon nothing is under way: no message, no agent that has to look, no posted work, nothing torn.

    What could not be done where it came up is done by the background, which takes a moment.
    """
    found: list[str] = []

    def is_quiet() -> bool:
        found[:] = _under_way(node)
        return not found

    with suppress(AssertionError):
        eventually(is_quiet, SOON)
    assert not found, found[0]


def _under_way(node: Node) -> Iterator[str]:
    dispatch = node._dispatch
    turn = node.turn
    if not turn._lock.acquire(blocking=False):
        yield "the turn is taken, and nobody works"
        return
    try:
        if dispatch._queue:
            yield f"{len(dispatch._queue)} messages were not delivered"
        if dispatch.unsettled:
            yield "an agent has not looked for deadlocks"
        if turn._posted:
            yield f"{len(turn._posted)} posted jobs were not done"
        if dispatch.torn:
            yield "a turn was torn, and nobody mends it"
        if dispatch.news:
            yield "something is to be told, and nobody does it"
    finally:
        turn._lock.release()
    if turn.is_here():
        yield "this thread has the turn, and is not in it"


def check_registers(node: Node) -> None:
    """The agents, clients and holders that a node lists are those that live."""
    for ref, agent in node.agents_by_id.items():
        assert agent.id == ref
        assert agent.is_alive(), f"{ref} has ended, and is listed"
        assert agent.machine.ended is None, f"the machine of {ref} has ended, its actor has not"
        assert lives(agent.client), f"the client of {ref} is dead"
        assert agent in node.clients.get(agent.client_key, ()), (
            f"{ref} is not listed for its client"
        )
        watch = watch_of(agent.client) if agent._monitor is None else None
        watched = agent._monitor is not None or (
            watch is not None and node.thin.monitor in watch.monitors
        )
        assert watched, f"nobody watches over the client of {ref}"
    for client, agents in node.clients.items():
        assert agents, f"{client} is listed, and has no transaction"
        for agent in agents:
            assert node.agents_by_id.get(agent.id) is agent, f"{agent.id} of {client} is no agent"
    for client, agent in node.holders.items():
        assert node.agents_by_id.get(agent.id) is agent, f"{client} has locks by a dead agent"
        assert not agent.machine.empty, f"{client} has no lock, and a transaction for it"


def lives(client: Any) -> bool:
    """Whether a client lives, or has not begun yet."""
    if isinstance(client, gevent.Greenlet):
        return not client.dead
    if isinstance(client, (pykka.ActorRef, threading.Thread)):
        return client.is_alive()
    return not getattr(client, "dead", False)


def check_empty(node: Node) -> None:
    """Nothing is left of anybody."""
    table = node.server.machine.table
    assert not node.agents_by_id, f"left: {list(map(str, node.agents_by_id))}"
    assert not node.clients, f"clients left: {list(node.clients)}"
    assert not node.holders, f"holders left: {list(node.holders)}"
    assert not table.requesters, f"owners left: {list(map(str, table.requesters))}"
    assert not table._entries, "entries left"
    assert not node.server.machine._watchers.any, "watchers left"
    assert not node.server.machine._notifier.closers, "the notifier looks at somebody"
    assert not node.thin.held, "thin locks left"
    assert not node.thin.agents, "thin transactions left"
    watch = threading.current_thread().__dict__.get("_locks_watch")
    left = set() if watch is None else watch.monitors.keys() - {node.thin.monitor}
    assert not left, "monitors of this thread are left"


# --- The machines -----------------------------------------------------------------------------------


def check_table(node: Node) -> None:
    """The lock table agrees with itself, and excludes."""
    table = node.server.machine.table
    check_structure(table)
    check_exclusion([entry.record(node.name) for entry in _entries(node)])
    strangers = [str(ref) for ref in table.requesters if ref not in node.agents_by_id]
    assert not strangers, f"requests of nobody: {strangers}"


def check_times(node: Node) -> None:
    """Of each request in the table is known since when it waits or is granted, and of no other one."""
    times, entries = node.server.times, list(_entries(node))
    assert times.got.keys() == {entry.number for entry in entries if entry.granted}
    assert times.asked.keys() >= {entry.number for entry in entries if not entry.granted}
    assert times.asked.keys() <= {entry.number for entry in entries}
    assert not node.server.changed, "something is still to be put down"


def check_agents(node: Node) -> None:
    """Each agent and the lock table say the same of the agent's requests."""
    for agent in node.agents_by_id.values():
        _check_agent(agent, node)


def _check_agent(agent: Agent, node: Node) -> None:
    machine = agent.machine
    ledger = study(machine).ledger
    entries = {(e.slot.lock_id, e.mode): e for e in _entries(node) if e.requester.id == agent.id}
    known: dict[Any, RequestRecord] = {}
    for request in ledger.requests.values():
        for node_request in request.node_requests.values():
            for mode, record in node_request.records.items():
                if record.state != "gone":
                    known[record.lock_id, mode] = record
    assert known.keys() == entries.keys(), (
        f"{agent.id} knows of {sorted(map(str, known))}, the table of {sorted(map(str, entries))}"
    )
    for key, entry in entries.items():
        state = "granted" if entry.granted else "waiting"
        mine = known[key]
        assert (mine.number, mine.state, mine.since) == (entry.number, state, entry.since), (
            f"{agent.id} takes {key} for {mine.state}, the table says {state}"
        )
    waiting = {known[key].key for key, entry in entries.items() if not entry.granted}
    assert set(ledger.waiting) == waiting, f"{agent.id} does not know what it waits for"
    for request in ledger.requests.values():
        assert request.held == request.serves(request.mode, ledger.alive)
    unheld = {request.lock_id for request in ledger.requests.values() if not request.held}
    assert set(ledger.open) == unheld, f"{agent.id} has open requests that are not open"
    assert not ledger._unanswered, f"{agent.id} waits for answers"
    assert not ledger.releasing, f"{agent.id} waits for releases"
    assert not study(machine).giving_up, f"{agent.id} gives up something"
    assert not machine._out, f"{agent.id} has effects that were not carried out"
    assert not machine._waits.pending or ledger.open, f"{agent.id} waits for nothing"


def check_circles(node: Node) -> None:
    """No agents wait for each other: each deadlock was resolved."""
    records = [entry.record(node.name) for entry in _entries(node)]
    edges: dict[Any, set[Any]] = {}
    for waiter in records:
        if waiter.state == "waiting":
            found = {other.agent for other in records if blocks(other, waiter)}
            edges.setdefault(waiter.agent, set()).update(found)
    left = dict(edges)
    while left:
        free = [agent for agent, to in left.items() if not any(t in left for t in to)]
        assert free, f"a deadlock was not resolved: {sorted(map(str, left))}"
        for agent in free:
            del left[agent]


def _entries(node: Node) -> Iterable[Entry]:
    root = node.server.machine.table.find(())
    assert root is not None
    return [entry for slot in slots(root) for entry in slot.entries()]
