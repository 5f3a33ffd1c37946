"""The calls that a program may be in when its node stops: each with what it may end with, and what it needs.

`CALLS` is the table: a call, whether it waits until the node has ended, and which errors it may end with beside `REFUSED`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple

import locks
import locks_leader
import locks_leader.aio
from locks import aio, facts, groups, original
from locks.ownership import Backlog, Ownership
from locks.program.default import default_node
from locks.runtime.waiter import Event

__all__ = ["CALLS", "LIMIT", "REFUSED", "TASKS", "Call", "allowed"]

LIMIT = 60.0  # seconds; calls that wait have a limit of their own
REFUSED = frozenset(
    ("NodeNotRunning", "CannotServe", "TransactionEnded", "LockLost", "OperatingError")
)
"""The errors that each call may end with when the node stops."""


_number = count()  # of a worker that has its own backlog: those of one name share one


class Call(NamedTuple):
    """One call.

    Attributes:
        do: It.
        waits: Whether it waits until the node has ended.
        errors: Errors that it may end with beside `REFUSED`.
        needs: What it needs: "servers", or a "thread" of its own, or "" for nothing.
    """

    do: Callable[[], object]
    waits: bool = False
    errors: frozenset[str] = frozenset()
    needs: str = ""


def mine(text: str) -> tuple[str, ...]:
    """A lock id of this process alone: others may share its servers."""
    return (text, str(os.getpid()))


# --- Calls that wait until the node has ended ---------------------------------------------------


def waits() -> None:
    """Wait for a lock that another client holds."""
    with locks.Owner("the holder"), locks.transaction() as tx:
        tx.write_lock(mine("held"), timeout=LIMIT)
        with locks.Owner("one who waits"), locks.transaction() as other:
            other.write_lock(mine("held"), timeout=LIMIT)


def leads() -> None:
    """Lead until the leadership is lost."""
    locks_leader.Election(mine("e")).run(lambda leader: leader.lost.wait(LIMIT), timeout=LIMIT)


def stands() -> None:
    """Stand for election beside a leader."""
    leader, other = locks_leader.Election(mine("s")), locks_leader.Election(mine("s"))
    leader.start()
    try:
        other.run(leads_on, timeout=LIMIT)
    finally:
        leader.stop()


def leads_on(leadership: locks_leader.Leadership) -> None:
    """Lead until it is lost."""
    leadership.lost.wait(LIMIT)


def awaits_a_node() -> None:
    """Wait for a node that never comes."""
    default_node().await_nodes(["nobody@nowhere"], timeout=LIMIT)


def connects() -> None:
    """Wait for the connection with a node that is not there."""
    default_node().connect("nobody@127.0.0.1:9", timeout=LIMIT)


def awaits_once() -> None:
    """Wait while somebody else does what is done once."""
    with locks.Owner("the holder"), locks.transaction() as tx:
        tx.write_lock(mine("once, held"), timeout=LIMIT)
        with locks.Owner("one who waits"), locks.once(mine("once, held"), timeout=LIMIT):
            pass


def asks_who_never_answers() -> None:
    """Call a leader that never answers."""

    class Mute(locks_leader.Behaviour):
        """Takes a call, and does not answer."""

        def handle_leader_call(self, request: Any, *_: Any) -> Any:
            return locks_leader.NO_REPLY

    instance = locks_leader.start(Mute, mine("mute"))
    try:
        locks_leader.leader_call(instance, "?", timeout=LIMIT)
    finally:
        instance.stop(block=False)


def owns_for_ever() -> None:
    """Work on what never ends."""
    worker = Ownership(mine("own"), groups=4)
    backlog = Backlog(range(1000), groups=4, more=True)
    worker.run(backlog, lambda task, token: Event().wait(0.001))


def shares_for_ever() -> None:
    """The same, among nodes."""
    worker = locks_leader.Ownership(mine("share"), groups=4)
    backlog = Backlog(range(1000), groups=4, more=True)
    worker.run(backlog, lambda task, token: Event().wait(0.001))


def awaits_a_task() -> None:
    """Wait in a task of asyncio."""

    async def other() -> None:
        async with aio.Lock(mine("task"), timeout=LIMIT):
            pass

    async def main() -> None:
        async with aio.Lock(mine("task")):
            await asyncio.create_task(other())

    asyncio.run(main())


def leads_in_a_task() -> None:
    """Lead in a task of asyncio."""

    async def work(leadership: locks_leader.aio.Leadership) -> None:
        await leadership.lost.wait(LIMIT)

    asyncio.run(locks_leader.aio.Election(mine("task")).run(work, timeout=LIMIT))


# --- Short calls --------------------------------------------------------------------------------


def owns() -> None:
    """Share work out on one node."""
    worker = Ownership((*mine("short own"), next(_number)), groups=4)
    worker.join()
    try:
        worker.run(Backlog(range(4), groups=4), lambda *_: None)
    finally:
        worker.stop()


def shares() -> None:
    """Share work out among nodes."""
    worker = locks_leader.Ownership((*mine("short share"), next(_number)), groups=4)
    worker.run(Backlog(range(4), groups=4), lambda *_: None)


def asks_a_leader() -> None:
    """Start an instance, and call it."""

    class Polite(locks_leader.Behaviour):
        """Answers."""

        def handle_leader_call(self, request: Any, *_: Any) -> Any:
            return request

        handle_call = handle_leader_call

    instance = locks_leader.start(Polite, mine("polite"))
    try:
        locks_leader.info(instance, timeout=LIMIT)
        locks_leader.call(instance, 1, timeout=LIMIT)
        locks_leader.leader_call(instance, 1, timeout=LIMIT)
        locks_leader.leader_cast(instance, 1)
    finally:
        instance.stop(block=False)


def has(lock: locks.Lock | locks.RLock | locks.Semaphore) -> None:
    """Acquire and release it."""
    with lock:
        pass


def waits_for_a_condition() -> None:
    """Wait within two blocks of one lock."""
    lock = locks.RLock(mine("condition"), timeout=LIMIT)
    condition = threading.Condition(lock)  # type: ignore[arg-type]
    with lock, condition:
        condition.wait(0.001)


def watched() -> None:
    """Watch an id, and stop watching."""

    def told(view: object) -> None:
        """Nothing to do."""

    locks.watch(mine("watched"), watcher=told)
    locks.unwatch(mine("watched"), watcher=told)


def begins_and_ends() -> None:
    """The functions of the original."""
    agent, _ = original.begin_transaction()
    original.lock_nowait(agent, mine("a"))
    original.await_all_locks(agent, timeout=LIMIT)
    original.end_transaction(agent)


def begins_an_election() -> None:
    """Start and stop a candidate."""
    election = locks_leader.Election(mine("started"))
    election.start()
    election.stop()


def done_once() -> None:
    """Do something that is done once."""
    with suppress(locks.AlreadyDone), locks.once(mine("once")):
        pass
    with locks.once((*mine("once"), next(_number)), timeout=LIMIT):
        pass


def joins_a_group() -> None:
    """Join a group, look at it, leave it."""
    member = locks_leader.start(locks_leader.Behaviour, mine("member"))
    try:
        groups.join("g", member)
        groups.members("g")
        groups.which_groups()
        groups.leave("g", member)
    finally:
        member.stop(block=False)


def breaks() -> None:
    """End another client's transaction."""
    with locks.Owner("broken"), locks.transaction() as tx:
        facts.break_transaction(tx.agent, reason="a test", timeout=5)


def looks_around() -> None:
    """All questions."""
    facts.waits(timeout=5)
    locks.statistics()
    locks.queue(mine("a"))
    locks.holders(mine("a"))
    locks.Lock(mine("a")).locked()


def monitors() -> None:
    """Watch nodes come and go."""

    def told(news: object) -> None:
        """Nothing to do."""

    node = default_node()
    node.monitor_nodes(told)
    node.nodes()
    node.monitor_nodes(told, False)


def token() -> None:
    """The token of a lock on several servers."""
    with locks.Lock(mine("token"), timeout=LIMIT) as lock:
        lock.token(timeout=LIMIT)


def runs(function: Callable[[], Any]) -> Callable[[], None]:
    """A coroutine function, in a loop of its own."""
    return lambda: asyncio.run(function())


# --- In tasks, of asyncio or trio ---------------------------------------------------------------


async def has_in_task() -> None:
    """Each lock."""
    async with aio.Lock(mine("aio"), timeout=LIMIT):
        pass
    async with aio.RLock(mine("aio"), timeout=LIMIT), aio.Semaphore(mine("sem"), 2, timeout=LIMIT):
        pass


async def transacts_in_task() -> None:
    """A transaction."""
    async with aio.transaction(timeout=LIMIT) as tx:
        await tx.write_lock(mine("aio"))


async def watches_in_task() -> None:
    """The first view."""
    async with aio.watch(mine("aio")) as views:
        async for _ in views:
            break


async def watches_for_ever() -> None:
    """All views."""
    async with aio.watch(mine("nobody changes it")) as views:
        async for _ in views:
            pass


async def starts_in_task() -> None:
    """Start the node."""
    await aio.start()


async def once_in_task() -> None:
    """Once."""
    with suppress(locks.AlreadyDone):
        async with aio.once(mine("aio once")):
            pass


async def stands_in_task() -> None:
    """Lead for a moment."""

    async def work(leadership: object) -> None:
        """Nothing to do."""

    await locks_leader.aio.Election(mine("aio e")).run(work, timeout=LIMIT)


TASKS: dict[str, Callable[[], Any]] = {
    "aio.Lock, RLock, Semaphore": has_in_task,
    "aio.transaction": transacts_in_task,
    "aio.watch": watches_in_task,
    "aio.watch, until the end": watches_for_ever,
    "aio.start": starts_in_task,
    "aio.once": once_in_task,
    "aio.Election": stands_in_task,
}

DEAD = frozenset(("ActorDeadError", "LeaderDied"))  # Pykka's own, of an actor that was asked itself
OVER = frozenset(("OwnershipEnded", "NotOwner"))
CALLS: dict[str, Call] = {
    "a lock that is held": Call(waits, waits=True),
    "a leader's function": Call(leads, waits=True),
    "a candidate": Call(stands, waits=True),
    "node.await_nodes": Call(awaits_a_node, waits=True, needs="servers"),
    "node.connect": Call(connects, waits=True, needs="servers"),
    "once, held": Call(awaits_once, waits=True, errors=frozenset(("NotMarked",))),
    "leader_call": Call(asks_who_never_answers, waits=True, errors=DEAD),
    "Ownership.run": Call(owns_for_ever, waits=True, errors=OVER),
    "locks_leader.Ownership.run": Call(shares_for_ever, waits=True, errors=OVER),
    "a task that waits": Call(awaits_a_task, waits=True, needs="thread"),
    "a task that leads": Call(leads_in_a_task, waits=True, needs="thread"),
    "Lock": Call(lambda: has(locks.Lock(mine("a"), timeout=LIMIT))),
    "RLock": Call(lambda: has(locks.RLock(mine("b"), timeout=LIMIT))),
    "Semaphore": Call(lambda: has(locks.Semaphore(mine("c"), 2, timeout=LIMIT))),
    "a Condition": Call(waits_for_a_condition, errors=frozenset(("NotHeld",)), needs="thread"),
    "token": Call(token, errors=frozenset(("NotHeld",))),
    "run_transaction": Call(lambda: locks.run_transaction(lambda tx: tx.write_lock(mine("a")))),
    "watch": Call(watched),
    "questions": Call(looks_around),
    "break": Call(breaks, errors=frozenset(("TransactionBroken",))),
    "once": Call(done_once, errors=frozenset(("NotMarked",))),
    "the original's functions": Call(begins_and_ends),
    "start": Call(locks.start),
    "Election.start": Call(begins_an_election),
    "Election.run": Call(
        lambda: locks_leader.Election(mine("r")).run(lambda _: None, timeout=LIMIT)
    ),
    "a behaviour": Call(asks_a_leader, errors=DEAD),
    "groups": Call(joins_a_group, errors=DEAD),
    "monitor_nodes": Call(monitors, needs="servers"),
    "Ownership": Call(owns, errors=OVER),
    "locks_leader.Ownership": Call(shares, errors=OVER),
}


def allowed(name: str) -> frozenset[str]:
    """What a call, or a task, may end with when the node stops."""
    more = CALLS[name].errors if name in CALLS else frozenset(("NotMarked",))
    return REFUSED | more | {"done"}


def table() -> str:
    """Calls, moments and results, as a table."""
    names = {"done": "done"} | {each: f"`{each}`" for each in sorted(REFUSED)}
    lines = [
        f"Refused: {', '.join(names[each] for each in sorted(REFUSED))}.",
        "",
        "| Call | Under way when `stop` begins | Begun while it stops | Begun afterwards |",
        "|---|---|---|---|",
    ]
    for name in (*CALLS, *TASKS):
        more = sorted(allowed(name) - REFUSED - {"done"})
        waits = name in CALLS and CALLS[name].waits
        ends = ", ".join(["done", "refused", *(f"`{each}`" for each in more)])
        begun = "waits on a new node" if waits else "done on a new node"
        lines.append(f"| {name} | {ends} | {begun}, or {ends} | {begun} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
