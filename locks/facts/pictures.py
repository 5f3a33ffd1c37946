"""The wait-for graph as text, for Mermaid, and for Graphviz; an edge for each two agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from locks.facts.graph import Waits
from locks.facts.stories import duration, longest, who, wish
from locks.model import AgentId, is_held_up_id

__all__ = ["FORMATS"]


class _Arrow(NamedTuple):
    """One agent waits for another one.

    Attributes:
        waiter: Who waits.
        holder: For whom.
        text: For what.
    """

    waiter: AgentId
    holder: AgentId
    text: str


def _arrows(waits: Waits) -> list[_Arrow]:
    found: dict[tuple[AgentId, AgentId], str] = {}
    for waiter, holder in waits.edges:
        pair = (waiter.request.agent, holder.request.agent)
        if pair not in found:
            is_own = is_held_up_id(waiter.request.lock_id)
            text = "its own other transaction" if is_own else wish(waiter)
            found[pair] = f"{text}, {duration(waiter.seconds)}"
    return [_Arrow(*pair, text) for pair, text in found.items()]


def _names(waits: Waits, arrows: list[_Arrow]) -> dict[AgentId, str]:
    concerned = dict.fromkeys(each for arrow in arrows for each in arrow[:2])
    return {agent: f"{who(longest(waits.of(agent)))} {agent}" for agent in concerned}


def as_text(waits: Waits) -> str:
    """A tree for each root: below each agent those that wait for it; who waits for several is told once."""
    arrows = _arrows(waits)
    names = _names(waits, arrows)
    behind: dict[AgentId, list[_Arrow]] = {}
    for arrow in arrows:
        behind.setdefault(arrow.holder, []).append(arrow)
    lines: list[str] = []
    seen: set[AgentId] = set()
    first = [*waits.roots, *names]  # those of a circle have no root
    for root in first:
        if root in seen:
            continue
        todo = [(0, root, "")]
        while todo:
            depth, agent, text = todo.pop()
            again = " (see above)" if agent in seen and behind.get(agent) else ""
            lines.append(f"{'  ' * depth}{names[agent]}{text}{again}")
            if agent not in seen:
                seen.add(agent)
                for arrow in reversed(behind.get(agent, [])):
                    todo.append((depth + 1, arrow.waiter, f" waits for {arrow.text}"))
    return "\n".join(lines)


def as_mermaid(waits: Waits) -> str:
    """A flow chart."""
    arrows = _arrows(waits)
    names = _names(waits, arrows)
    numbers = {agent: f"n{number}" for number, agent in enumerate(names)}
    roots = [numbers[agent] for agent in waits.roots]
    lines = ["flowchart LR"]
    lines += [f'    {numbers[agent]}["{_for_mermaid(name)}"]' for agent, name in names.items()]
    for waiter, holder, text in arrows:
        lines.append(f'    {numbers[waiter]} -->|"{_for_mermaid(text)}"| {numbers[holder]}')
    lines += [f"    style {number} stroke-width:4px" for number in roots]
    return "\n".join(lines)


def _for_mermaid(text: str) -> str:
    for sign, entity in (
        ("#", "#35;"),
        ('"', "#quot;"),
        ("<", "#lt;"),
        (">", "#gt;"),
        ("`", "#96;"),
    ):
        text = text.replace(sign, entity)
    return text


def as_dot(waits: Waits) -> str:
    """A graph for Graphviz."""
    arrows = _arrows(waits)
    names = _names(waits, arrows)
    roots = waits.roots
    lines = ["digraph waits {", "    rankdir=LR", "    node [shape=box]"]
    for agent, name in names.items():
        style = ", penwidth=3" if agent in roots else ""
        lines.append(f"    {_for_dot(str(agent))} [label={_for_dot(name)}{style}]")
    for waiter, holder, text in arrows:
        ends = f"{_for_dot(str(waiter))} -> {_for_dot(str(holder))}"
        lines.append(f"    {ends} [label={_for_dot(text)}]")
    return "\n".join([*lines, "}"])


def _for_dot(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


FORMATS: dict[str, Callable[[Waits], str]] = {"text": as_text, "mermaid": as_mermaid, "dot": as_dot}
