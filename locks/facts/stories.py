"""Who waits for whom, in sentences: up to the one that waits for nobody."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from locks.core.facts import RequestFact
from locks.facts.graph import Waits
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
    """How long something takes, for a person."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} days {hours % 24} h"


def as_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table, as wide as it has to be; a cell that is very long moves the rest of its own line alone."""
    lines = [heads, *rows]
    widths = [min(WIDEST, max(map(len, column))) for column in zip(*lines, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def wish(fact: RequestFact) -> str:
    """What is asked for."""
    typed = show(fact.request.lock_id)
    return typed if is_contest(fact.request.lock_id) else f"{fact.request.mode} {typed}"


def who(fact: RequestFact) -> str:
    """Whose request it is."""
    program = f" ({fact.program}, pid {fact.pid})" if fact.program else ""
    return f"{fact.label}{program}"


def longest(facts: Iterable[RequestFact]) -> RequestFact:
    """The one that takes longest."""
    return max(facts, key=lambda fact: fact.seconds)


def holding(waits: Waits, agent: AgentId) -> list[list[RequestFact]]:
    """What an agent holds, each lock with where it has it; the longest first."""
    held: dict[tuple[LockId, str], list[RequestFact]] = {}
    for fact in waits.of(agent):
        if fact.granted and not is_held_up_id(fact.request.lock_id):
            held.setdefault((fact.request.lock_id, fact.request.mode), []).append(fact)
    return sorted(held.values(), key=lambda facts: -longest(facts).seconds)


def agents_at(waits: Waits, lock_id: LockId) -> list[AgentId]:
    """The agents with requests on an id, above it and below it: who waits longest first, then who holds."""
    there = [fact for fact in waits.requests if related(fact.request.lock_id, lock_id)]
    there.sort(key=lambda fact: (fact.granted, -fact.seconds))
    return list(dict.fromkeys(fact.request.agent for fact in there))


def why(waits: Waits, agents: Sequence[AgentId]) -> list[str]:
    """The sentences about why these agents wait, and all that they wait for; each agent once."""
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
        lines.append(f"{len(agents) - MOST_TOLD} more wait or hold there.")
    for agent in roots:
        lines += root_story(waits, agent)
    if not roots and lines:
        lines.append("They wait for each other: a deadlock, which is resolved by itself.")
    return lines


def _blockers(waits: Waits, agent: AgentId) -> Iterator[tuple[str, AgentId]]:
    """For each other agent that this one waits for: how, and who."""
    found: dict[AgentId, list[tuple[RequestFact, RequestFact]]] = {}
    for edge in waits.blockers(agent):
        found.setdefault(edge.holder.request.agent, []).append(edge)
    for other, edges in found.items():
        waiter, holder = max(edges, key=lambda edge: edge[0].seconds)
        if is_held_up_id(waiter.request.lock_id):
            text = f"{who(waiter)} waits with another transaction of its own, {other}"
            yield f"{text}, and can't go on with {agent} meanwhile.", other
            continue
        places = ", ".join(sorted({edge[0].request.node for edge in edges}))
        has = f"has held {wish(holder)} for {duration(holder.seconds)}"
        if not holder.granted:
            has = f"stands ahead of it, for {duration(holder.seconds)} now, with {wish(holder)}"
        text = f"{who(waiter)} has waited {duration(waiter.seconds)} for {wish(waiter)}"
        yield f"{text}: {who(holder)} {has} (on {places}).", other


def root_story(waits: Waits, agent: AgentId) -> list[str]:
    """What is known of an agent that waits for nothing."""
    facts = waits.of(agent)
    if not facts:
        return []
    fact = longest(facts)
    behind = len(waits.behind(agent))
    held = holding(waits, agent)
    leads = any(is_contest(locks[0].request.lock_id) for locks in held)
    does = "it leads" if leads else "it is at work, or has forgotten what it holds"
    lines = [f"{who(fact)} waits for nothing: {does}."]
    for locks in held[:MOST_TOLD]:
        places = ", ".join(sorted(each.request.node for each in locks))
        since = duration(longest(locks).seconds)
        lines.append(f"  It has held {wish(locks[0])} for {since} (on {places}).")
    if len(held) > MOST_TOLD:
        lines.append(f"  It holds {len(held) - MOST_TOLD} more.")
    place = next((each.address for each in facts if each.address), "")
    if place:
        lines.append(f"  It is connected from {place}.")
    lines.append(
        f"  {behind or 'Nobody'} wait{'' if behind > 1 else 's'} for it, directly or behind others."
    )
    if behind:
        lines.append(f"  To end it: locks break {agent} --reason '...'")
    return lines
