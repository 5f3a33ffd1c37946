"""The errors for calls of clients that can't be carried out, with their texts.

The refusing function raises the error itself, so that the traceback shows its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from locks.core.agent.requests import servable
from locks.errors import (
    BlocksEventLoop,
    CannotServe,
    InvalidOption,
    LocksError,
    LockTimeout,
    MisuseError,
    NotClient,
    NotHeld,
    TransactionEnded,
    causes,
    listed,
)
from locks.model import FEW_IDS, RIVALS, AgentId, Contender, LockId, LockInfo, show, show_all
from locks.node.client.clients import name_of
from locks.node.client.one_client import OwnAgent
from locks.node.ports import NodePort
from locks.runtime.bridge import foreign_loop, is_in_event_loop
from locks.runtime.monitor import Client, Down

__all__ = [
    "blocks_event_loop",
    "check_may_wait",
    "client_has_ended",
    "explained",
    "in_the_parent",
    "no_inbox",
    "no_units",
    "not_client",
    "not_from_elsewhere",
    "not_held",
    "owner_has_ended",
    "reasons",
    "stopped",
    "timed_out",
    "token_timed_out",
]


ASKED_WITHIN = 1.0  # seconds to wait for another node's answer which client holds a lock


def not_client(agent: OwnAgent, caller: Client) -> NotClient:
    """The error for a caller that uses the transaction of another client."""
    return NotClient(
        f"{name_of(caller)} can't use transaction {agent.id}: it belongs to "
        f"{agent.name}. Begin a transaction there, or name "
        "the client when it begins (client=...). To use one transaction in several threads, give it an owner: "
        'with locks.transaction(owner=locks.Owner("request 17")) as tx',
        agent=agent.id,
    )


def owner_has_ended(owner: Client) -> MisuseError:
    """The error for a caller that acts for an owner that has ended."""
    name = name_of(owner)
    return MisuseError(
        f"can't lock for owner {name}: it has ended. A task or thread that outlives the "
        "owner it was started under needs an owner of its own",
        owner=name,
    )


def check_may_wait() -> None:
    """Refuse a blocking call from a coroutine, before anything is done.

    Raises:
        BlocksEventLoop: The caller is a coroutine, or a callback of an event loop.
    """
    if is_in_event_loop():
        raise blocks_event_loop()


def blocks_event_loop() -> BlocksEventLoop:
    """The error for a blocking call from a coroutine."""
    if (foreign := foreign_loop()) is not None:
        return BlocksEventLoop(f"this call may wait, and would block {foreign}")
    return BlocksEventLoop(
        "this call may wait, and would block the event loop: in a coroutine use "
        "locks.aio, as in `async with locks.aio.transaction() as tx: await tx.write_lock(...)`, or "
        "`await locks.aio.call(function, ...)` for functions that locks.aio lacks"
    )


def explained(error: CannotServe, node: NodePort) -> CannotServe:
    """The error for nodes that do not serve, with the known reasons: no answer, or why they refuse."""
    if not any(name in node.refusals for name in error.nodes):
        nobody = "".join(
            f". No answer from {name} at {place}"
            for name in error.nodes
            if (place := node.place_of(name)) is not None
        )
        if not nobody:
            return error
        return CannotServe(f"{error}{nobody}", lock_id=error.lock_id, nodes=error.nodes)
    what = "can't lock" if error.lock_id is None else f"can't lock {show(error.lock_id)}"
    names = ", ".join(error.nodes)
    return CannotServe(
        f"{what}: {names} {'does' if len(error.nodes) == 1 else 'do'} not serve this program"
        f"{reasons(error.nodes, node.refusals)}",
        lock_id=error.lock_id,
        nodes=error.nodes,
    )


def reasons(nodes: Iterable[str], refusals: Mapping[str, str]) -> str:
    """Why nodes that run can't be connected, as the end of a sentence; empty if they don't run."""
    found = causes({name: refusals[name] for name in nodes if name in refusals})
    return f". {found}" if found else ""


def no_units(lock_id: LockId) -> InvalidOption:
    """The error for a query for the unit of a lock that is not counted."""
    return InvalidOption(
        f"{show(lock_id)} has no units: it is not a counted lock; make the id of one with locks.values.units()",
        lock_id=lock_id,
    )


def not_held(lock_id: LockId, by: str | None = None) -> NotHeld:
    """The error for the release of a lock that is not held, or is held `by` another kind of lock."""
    why = (
        ": the caller does not hold it. If another thread or task is to release what this one acquires, give the lock an owner: "
        'locks.Lock(..., owner=locks.Owner("request 17"))'
        if by is None
        else f": the caller holds it by {by}; release that"
    )
    return NotHeld(f"can't release {show(lock_id)}{why}", lock_id=lock_id)


def not_from_elsewhere(agent: object) -> MisuseError:
    """The error for a program that uses an agent of another node."""
    return MisuseError(
        f"agent {agent} can be used only on its own node; let an actor there use it, and ask that actor",
        agent=str(agent),
    )


def no_inbox(agent: OwnAgent) -> InvalidOption:
    """The error for a client that requests a notification, but has no inbox for it."""
    return InvalidOption(
        f"transaction {agent.id} can't notify its client of the fencing token: begin it with notify=..."
    )


def timed_out(
    agent: OwnAgent,
    wanted: Sequence[LockInfo],
    timeout: float | None,
    withdrawn: bool,
    quiet: bool,
) -> LockTimeout:
    """The error for a client whose wait for locks timed out.

    Args:
        agent: Its agent.
        wanted: The locks that it waited for.
        timeout: The time limit.
        withdrawn: Whether the requests were withdrawn.
        quiet: Whether to leave out the holders.
    """
    ids = [info.lock_id for info in wanted]
    holders = [] if quiet else [each for info in wanted for each in _holders(agent, info)]
    names = list(dict.fromkeys(f"{h.client} ({h.agent})" for h in holders))
    held_by = ", ".join(names[:FEW_IDS])
    if len(names) > FEW_IDS:
        held_by += f" and {len(names) - FEW_IDS:,} more"
    lost = agent.node.turn.ask(agent.machine.lost)
    away = "" if held_by or quiet else _away(agent.node, wanted)
    return LockTimeout(
        _not_had(wanted, timeout)
        + away
        + (f"{':' if timeout == 0 else ','} held by {held_by}" if held_by else "")
        + ("" if withdrawn else "; the requests stay in the queue")
        + (f". Locks lost meanwhile, which must not be relied on: {show_all(lost)}" * bool(lost)),
        lock_ids=ids,
        holders=holders,
        timeout=timeout,
        lost=lost,
    )


def _not_had(wanted: Sequence[LockInfo], timeout: float | None) -> str:
    """The beginning of the error of a wait that timed out."""
    modes = {info.mode for info in wanted}
    mode = f"{modes.pop()} " if len(modes) == 1 else ""
    ids = show_all([info.lock_id for info in wanted])
    if timeout == 0:
        locks = "lock" if len(wanted) == 1 else "locks"
        return f"could not get the {mode}{locks} {f'on {ids} ' * bool(ids)}without waiting"
    return f"timed out after {_seconds(timeout)} s waiting for {mode}{ids or 'locks'}"


def _away(node: NodePort, wanted: Sequence[LockInfo]) -> str:
    """The servers that are down and without which locks can't be had that nobody holds, as a part of a sentence."""
    names = sorted(
        {
            name
            for info in wanted
            if not servable(info.require, info.nodes, node.alive)
            for name in info.nodes
            if name not in node.alive
        }
    )
    if not names:
        return ""
    return f": too few lock servers are up, no answer from {listed(names)}{reasons(names, node.refusals)}"


def _seconds(timeout: float | None) -> str:
    """A time limit; one that is the rest of another one has more digits than anybody reads."""
    return "None" if timeout is None else f"{round(timeout, 3):g}"


def _holders(agent: OwnAgent, info: LockInfo) -> list[Contender]:
    """The holders of a lock that an agent has waited for, from the first node that answers in time."""
    node = agent.node
    until = node.clock() + ASKED_WITHIN
    for name in sorted(
        info.nodes, key=lambda name: name != node.name
    ):  # its own node answers at once
        left = until - node.clock()
        if name not in node.alive or name in node.silent or name in info.granted or left <= 0:
            continue
        with suppress(LocksError):
            found = node.view(info.lock_id, name, left, patient=False).holders
            others = [c for c in found if c.agent != agent.id and c.mode in RIVALS[info.mode]]
            if others:
                return others
    return []


def token_timed_out(lock_id: LockId, timeout: float | None) -> LockTimeout:
    """Of a client that has waited for a fencing token for too long."""
    return LockTimeout(
        f"timed out after {_seconds(timeout)} s waiting for the fencing token of {show(lock_id)}: too few nodes "
        f"have confirmed it; the lock is still held",
        lock_ids=[lock_id],
        timeout=timeout,
    )


def stopped(agent: AgentId, reason: object) -> TransactionEnded:
    """Of a client whose agent was stopped, as any actor."""
    return TransactionEnded(f"transaction {agent} was stopped: {reason}", agent=agent)


def client_has_ended(agent: OwnAgent, down: Down) -> TransactionEnded:
    """Of a transaction whose client has ended."""
    text = f"transaction {agent.id} has ended, because its client {agent.name} has ended"
    return TransactionEnded(f"{text} ({down.reason})", agent=agent.id)


def in_the_parent(agent: AgentId) -> TransactionEnded:
    """Of a transaction that a forked child has taken along."""
    return TransactionEnded(
        f"can't use transaction {agent}: it belongs to the parent process; begin a new one here",
        agent=agent,
    )
