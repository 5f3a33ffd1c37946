"""Who waits for whom, in sentences, up to the transaction that is not waiting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from locks.core.facts import RequestFact
from locks.facts.graph import WaitReport
from locks.model import AgentId, LockId, is_held_up_id, related, show
from locks.node.observing.elections import is_contest

__all__ = [
    "agents_at",
    "as_table",
    "duration",
    "holding",
    "longest",
    "root_story",
    "who",
    "why",
    "wish",
]

WIDEST = 60  # characters of a column of a table
MOST_TOLD = 5  # waiters at one lock, or locks of one agent


def duration(seconds: float) -> str:
    """Format a duration."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} days {hours % 24} h"


def as_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table; a very long cell shifts only the rest of its own line."""
    lines = [heads, *rows]
    widths = [min(WIDEST, max(map(len, column))) for column in zip(*lines, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def wish(fact: RequestFact) -> str:
    """The requested lock and mode."""
    typed = show(fact.request.lock_id)
    return typed if is_contest(fact.request.lock_id) else f"{fact.request.mode} {typed}"


def who(fact: RequestFact) -> str:
    """The client and the agent of a request."""
    program = f" ({fact.program}, pid {fact.pid})" if fact.program else ""
    return f"{fact.label}{program}"


def longest(facts: Iterable[RequestFact]) -> RequestFact:
    """The fact with the longest time."""
    return max(facts, key=lambda fact: fact.seconds)


def holding(waits: WaitReport, agent: AgentId) -> list[list[RequestFact]]:
    """The locks that an agent holds, each with its servers; the longest first."""
    held: dict[tuple[LockId, str], list[RequestFact]] = {}
    for fact in waits.of(agent):
        if fact.granted and not is_held_up_id(fact.request.lock_id):
            held.setdefault((fact.request.lock_id, fact.request.mode), []).append(fact)
    return sorted(held.values(), key=lambda facts: -longest(facts).seconds)


def agents_at(waits: WaitReport, lock_id: LockId) -> list[AgentId]:
    """The agents with requests on an id, above it and below it: first the waiting ones, the longest wait first, then the holders."""
    there = [fact for fact in waits.requests if related(fact.request.lock_id, lock_id)]
    there.sort(key=lambda fact: (fact.granted, -fact.seconds))
    return list(dict.fromkeys(fact.request.agent for fact in there))


def why(waits: WaitReport, agents: Sequence[AgentId]) -> list[str]:
    """Explain why these agents wait, and all agents that they wait for; each agent once."""
    lines: list[str] = []
    told: dict[AgentId, None] = dict.fromkeys(agents[:MOST_TOLD])
    todo = list(told)
    roots: list[AgentId] = []
    for agent in todo:
        blockers = list(_blockers(waits, agent))
        for line, other in blockers:
            lines.append(line)
            if other not in told:
                told[other] = None
                todo.append(other)
        if not blockers:
            roots.append(agent)
    if len(agents) > MOST_TOLD:
        lines.append(f"{len(agents) - MOST_TOLD} more are waiting or hold locks there.")
    for agent in roots:
        lines += root_story(waits, agent)
    if not roots and lines:
        lines.append("They wait for each other: a deadlock, which is resolved automatically.")
    return lines


def _blockers(waits: WaitReport, agent: AgentId) -> Iterator[tuple[str, AgentId]]:
    """The agents that this one waits for, each with a sentence."""
    found: dict[AgentId, list[tuple[RequestFact, RequestFact]]] = {}
    for edge in waits.blockers(agent):
        found.setdefault(edge.holder.request.agent, []).append(edge)
    for other, edges in found.items():
        waiter, holder = max(edges, key=lambda edge: edge[0].seconds)
        if is_held_up_id(waiter.request.lock_id):
            text = f"{who(waiter)} waits with another transaction of its own, {other}"
            yield f"{text}, and cannot continue with {agent} meanwhile.", other
            continue
        places = ", ".join(sorted({edge[0].request.node for edge in edges}))
        has = f"has held {wish(holder)} for {duration(holder.seconds)}"
        if not holder.granted:
            has = f"has been ahead of it in the queue for {duration(holder.seconds)}, with {wish(holder)}"
        text = f"{who(waiter)} has been waiting {duration(waiter.seconds)} for {wish(waiter)}"
        yield f"{text}: {who(holder)} {has} (on {places}).", other


def root_story(waits: WaitReport, agent: AgentId) -> list[str]:
    """Describe an agent that is not waiting."""
    facts = waits.of(agent)
    if not facts:
        return []
    fact = longest(facts)
    behind = len(waits.behind(agent))
    held = holding(waits, agent)
    leads = any(is_contest(locks[0].request.lock_id) for locks in held)
    does = "it leads" if leads else "it is still working, or it forgot to release"
    lines = [f"{who(fact)} is not waiting for any lock: {does}."]
    for locks in held[:MOST_TOLD]:
        places = ", ".join(sorted(each.request.node for each in locks))
        since = duration(longest(locks).seconds)
        lines.append(f"  It has held {wish(locks[0])} for {since} (on {places}).")
    if len(held) > MOST_TOLD:
        lines.append(f"  It holds {len(held) - MOST_TOLD} more locks.")
    place = next((each.address for each in facts if each.address), "")
    if place:
        lines.append(f"  Its connection is from {place}.")
    lines.append(
        f"  {behind or 'No'} other{'' if behind == 1 else 's'} wait{'s' if behind == 1 else ''} for it, directly or indirectly."
    )
    if behind:
        lines.append(f"  To end it: locks break {agent} --reason '...'")
    return lines
