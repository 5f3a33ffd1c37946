"""A deadlock step by step, for the live page, `locks deadlocks` and the simulator. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from locks.model import Deadlock, Edge, LockId, RequestRecord, show

__all__ = ["Told", "steps_of"]


class Told(NamedTuple):
    """A deadlock in sentences.

    Attributes:
        yields: The client whose agent yielded.
        steps: A sentence for each edge of the report, the broken edge last; then one for the
            resolution.
    """

    yields: str
    steps: tuple[str, ...]


def _same(text: str) -> str:
    return text


def steps_of(
    report: Deadlock,
    client: Callable[[str], str] = _same,
    lock: Callable[[LockId], str] = show,
) -> Told:
    """Describe a deadlock step by step.

    Args:
        report: Its report.
        client: Maps a client's name to the name to show.
        lock: Shows a lock id.
    """

    def wish(record: RequestRecord) -> str:
        return f"{record.mode} {lock(record.lock_id)}"

    def waits(edge: Edge) -> str:
        waiter, holder = edge
        if edge.is_hold_up:
            own = f"{client(waiter.client)} waits with {holder.agent}"
            return f"{own} and cannot continue with {waiter.agent} meanwhile."
        has = "holds" if holder.state == "granted" else "is queued for"
        return (
            f"{client(waiter.client)} waits for {wish(waiter)}: "
            f"{client(holder.client)} {has} {wish(holder)}."
        )

    steps = [waits(edge) for edge in (*report.cycle[1:], *report.cycle[:1])]
    if steps:
        steps[-1] += " This closes the cycle."
    yields = _who_yields(report, client)
    if report.action == "aborted":
        done = "is aborted"
    else:
        done = f"gives up {lock(report.lock_id)} and queues for it again"
    steps.append(f"{yields} {done}: {report.rule}. The others continue.")
    return Told(yields, tuple(steps))


def _who_yields(report: Deadlock, client: Callable[[str], str]) -> str:
    for edge in report.cycle:
        for record in (edge.waiter, edge.holder):
            if record.agent == report.agent:
                return client(record.client)
    return str(report.agent)  # the report of a large cycle has only some edges
