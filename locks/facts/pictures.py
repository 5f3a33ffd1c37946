"""The wait-for graph as text, for Mermaid, for Graphviz and as SVG; one edge for each pair of agents."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from typing import NamedTuple

from locks.facts.graph import WaitReport
from locks.facts.stories import duration, longest, who, wish
from locks.model import AgentId, is_held_up_id
from locks.ranges import one_line

__all__ = ["FORMATS"]


class _Arrow(NamedTuple):
    """One agent waits for another agent.

    Attributes:
        waiter: The agent that waits.
        holder: The agent that it waits for.
        text: The lock that it waits for.
    """

    waiter: AgentId
    holder: AgentId
    text: str


def _arrows(waits: WaitReport) -> list[_Arrow]:
    found: dict[tuple[AgentId, AgentId], str] = {}
    for waiter, holder in waits.edges:
        pair = (waiter.request.agent, holder.request.agent)
        if pair not in found:
            is_own = is_held_up_id(waiter.request.lock_id)
            text = "its own other transaction" if is_own else wish(waiter)
            found[pair] = f"{text}, {duration(waiter.seconds)}"
    return [_Arrow(*pair, text) for pair, text in found.items()]


def _names(waits: WaitReport, arrows: list[_Arrow]) -> dict[AgentId, str]:
    concerned = dict.fromkeys(each for arrow in arrows for each in arrow[:2])
    return {agent: f"{who(longest(waits.of(agent)))} {agent}" for agent in concerned}


def as_text(waits: WaitReport) -> str:
    """A tree for each root: below each agent, those that wait for it. The waiters of an agent are listed once."""
    arrows = _arrows(waits)
    names = _names(waits, arrows)
    behind: dict[AgentId, list[_Arrow]] = {}
    for arrow in arrows:
        behind.setdefault(arrow.holder, []).append(arrow)
    lines: list[str] = []
    seen: set[AgentId] = set()
    first = [*waits.roots, *names]  # agents in a cycle have no root
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


def as_mermaid(waits: WaitReport) -> str:
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


def as_dot(waits: WaitReport) -> str:
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


# One column for each distance from the roots, which are at the left; sizes are in pixels.
BOX = (250, 44)
GAP = (190, 16)
MARGIN = 12
RISE = 40  # of an arrow that leads back
LETTERS = 38  # of a name, and of a lock
CUT = 26


def as_svg(waits: WaitReport) -> str:
    """A drawing for any browser; text that is cut is complete in the tooltips."""
    arrows = _arrows(waits)
    names = _names(waits, arrows)
    places = _places(waits, arrows, names)
    width = max((x for x, _ in places.values()), default=0) + BOX[0] + GAP[0] // 2 + 2 * MARGIN
    height = max((y for _, y in places.values()), default=0) + BOX[1] + RISE + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-MARGIN} {-MARGIN - RISE} {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        '<defs><marker id="to" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>',
        f'<rect x="{-MARGIN}" y="{-MARGIN - RISE}" width="100%" height="100%" fill="#fff"/>',
    ]
    for waiter, holder, text in arrows:
        curve, (label_x, label_y) = _curve(places[waiter], places[holder])
        middle = f'x="{label_x}" y="{label_y}"'
        lines.append(
            f'<g><title>{_for_svg(text)}</title><path d="{curve}" fill="none" stroke="#555" marker-end="url(#to)"/>'
            f'<text {middle} fill="#555" text-anchor="middle" font-size="11">{_for_svg(text, CUT)}</text></g>'
        )
    roots = waits.roots
    for agent, name in names.items():
        x, y = places[agent]
        stroke = 'stroke="#b45309" stroke-width="3"' if agent in roots else 'stroke="#888"'
        label, _, number = name.rpartition(" ")
        lines.append(
            f"<g><title>{_for_svg(name)}</title>"
            f'<rect x="{x}" y="{y}" width="{BOX[0]}" height="{BOX[1]}" rx="5" fill="#fff" {stroke}/>'
            f'<text x="{x + 8}" y="{y + 18}">{_for_svg(label, LETTERS)}</text>'
            f'<text x="{x + 8}" y="{y + 35}" fill="#555" font-size="11">{_for_svg(number, LETTERS)}</text></g>'
        )
    return "\n".join([*lines, "</svg>"])


def _curve(start: tuple[int, int], end: tuple[int, int]) -> tuple[str, tuple[int, int]]:
    """The curve from one box to another, and the position of its text."""
    (x, y), (to_x, to_y) = start, end
    width, half = BOX[0], BOX[1] // 2
    if x < to_x:  # a cycle: over the top
        x, to_x = x + width // 2, to_x + width // 2
        curve = f"M{x} {y} C{x} {y - RISE} {to_x} {to_y - RISE} {to_x} {to_y}"
        return curve, ((x + to_x) // 2, (y + to_y) // 2 - RISE * 3 // 4 - 3)
    y, to_y = y + half, to_y + half
    if x == to_x:  # also a cycle: outside, at the right
        x, bend = x + width, GAP[0] // 3
        return f"M{x} {y} C{x + bend} {y} {x + bend} {to_y} {x} {to_y}", (x + bend, (y + to_y) // 2)
    to_x, bend = to_x + width, GAP[0] // 2
    curve = f"M{x} {y} C{x - bend} {y} {to_x + bend} {to_y} {to_x} {to_y}"
    return curve, ((x + to_x) // 2, (y + to_y) // 2 - 4)


def _places(
    waits: WaitReport, arrows: list[_Arrow], names: Iterable[AgentId]
) -> dict[AgentId, tuple[int, int]]:
    """The position of each agent: the upper left corner of its box."""
    behind: dict[AgentId, list[AgentId]] = {}
    for arrow in arrows:
        behind.setdefault(arrow.holder, []).append(arrow.waiter)
    columns: dict[AgentId, int] = {}
    filled: list[int] = []  # number of boxes in each column
    places = {}
    for first in [*waits.roots, *names]:  # agents in a cycle have no root
        todo = [] if first in columns else [first]
        columns.setdefault(first, 0)
        while todo:
            further = []
            for agent in todo:
                column = columns[agent]
                filled += [0] * (column + 1 - len(filled))
                places[agent] = (column * (BOX[0] + GAP[0]), filled[column] * (BOX[1] + GAP[1]))
                filled[column] += 1
                for waiter in behind.get(agent, ()):
                    if waiter not in columns:
                        columns[waiter] = column + 1
                        further.append(waiter)
            todo = further
    return places


def _for_svg(text: str, letters: int = 1000) -> str:
    cut = text if len(text) <= letters else text[: letters - 1] + "…"
    return escape(one_line(cut))


FORMATS: dict[str, Callable[[WaitReport], str]] = {
    "text": as_text,
    "mermaid": as_mermaid,
    "dot": as_dot,
    "svg": as_svg,
}
