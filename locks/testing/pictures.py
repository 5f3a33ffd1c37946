"""Sequence diagrams of simulations, as text for Mermaid and as drawings (SVG).

Each client has a column with its lifeline. An action of a client, or its outcome, is a box on the
lifeline. An event of several clients, such as a deadlock, is a box over all of them. The boxes are
in the order of time, from top to bottom.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple
from xml.etree import ElementTree as Xml

from locks.ranges import one_line
from locks_lab.applications.greenlets import Note
from locks_lab.stories.diagrams import escape

__all__ = ["KINDS", "Kind"]

Kind = Literal["mermaid", "svg"]


class _Box(NamedTuple):
    """A box in a diagram.

    Attributes:
        first: The first column that it is over.
        last: The last one.
        lines: Its text.
        matters: Whether it is highlighted.
    """

    first: int
    last: int
    lines: tuple[str, ...]
    matters: bool


def _boxes(notes: Sequence[Note], columns: Mapping[str, str]) -> Iterator[_Box]:
    at = {name: number for number, name in enumerate(columns)}
    for note in notes:
        if note.who in at:
            where = () if note.place is None else (str(note.place),)
            column = at[note.who]
            yield _Box(column, column, (note.what, *where), note.matters)
        elif columns:
            lines = (f"{note.who} {note.what}", *note.details)
            yield _Box(0, len(columns) - 1, lines, note.matters)


def _heads(columns: Mapping[str, str]) -> list[str]:
    return [f"{name} on {node}" if node else name for name, node in columns.items()]


def _mermaid(notes: Sequence[Note], columns: Mapping[str, str]) -> str:
    lines = ["sequenceDiagram"]
    lines += [
        f"    participant C{n} as {escape(name)}" for n, name in enumerate(_heads(columns), 1)
    ]
    for box in _boxes(notes, columns):
        over = ",".join(f"C{n + 1}" for n in dict.fromkeys((box.first, box.last)))
        lines.append(f"    Note over {over}: {'<br/>'.join(map(escape, box.lines))}")
    return "\n".join(lines)


# Sizes of drawings, in pixels. All letters have the same width, so the length of a line is known.
COLUMN, MARGIN, PAD, GAP = 270, 12, 8, 8
LETTER, LINE = 7.25, 16
STYLE = {"font-family": "monospace", "font-size": "12", "xml:space": "preserve"}
LIFELINE = {"stroke": "#999", "stroke-dasharray": "4 4"}
PLAIN = {"fill": "#fff", "stroke": "#888"}
STRIKING = {"fill": "#fff7ed", "stroke": "#b45309", "stroke-width": "2"}
HEAD = {"fill": "#eef2ff", "stroke": "#555"}


def _svg(notes: Sequence[Note], columns: Mapping[str, str]) -> str:
    root = Xml.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **STYLE})
    paper = Xml.SubElement(root, "rect", {"width": "100%", "height": "100%", "fill": "#fff"})
    lifelines = Xml.SubElement(root, "g", LIFELINE)
    heads = [_Box(n, n, (name,), False) for n, name in enumerate(_heads(columns))]
    top = float(MARGIN)
    bottom = max((_draw(root, box, top, HEAD) for box in heads), default=top)
    end = bottom
    for box in _boxes(notes, columns):
        end = _draw(root, box, end + GAP, STRIKING if box.matters else PLAIN)
    end += GAP
    for number in range(len(columns)):
        x = _number(MARGIN + (number + 0.5) * COLUMN)
        ends = {"x1": x, "y1": _number(bottom), "x2": x, "y2": _number(end)}
        Xml.SubElement(lifelines, "line", ends)
    size = {"width": _number(2 * MARGIN + COLUMN * len(columns)), "height": _number(end + MARGIN)}
    for element in (root, paper):
        element.attrib.update(size)
    Xml.indent(root)
    return Xml.tostring(root, encoding="unicode")


def _draw(parent: Xml.Element, box: _Box, y: float, style: Mapping[str, str]) -> float:
    """Draw a box; return its lower end."""
    x = MARGIN + box.first * COLUMN + GAP / 2
    width = (box.last - box.first + 1) * COLUMN - GAP
    room = int((width - 2 * PAD) / LETTER)
    lines = [part for line in box.lines for part in textwrap.wrap(one_line(line), room) or [""]]
    height = len(lines) * LINE + PAD
    group = Xml.SubElement(parent, "g")
    place = {"x": x, "y": y, "width": width, "height": height, "rx": 4.0}
    Xml.SubElement(group, "rect", {**{k: _number(v) for k, v in place.items()}, **style})
    for number, line in enumerate(lines, 1):
        at = {"x": _number(x + PAD), "y": _number(y + number * LINE)}
        Xml.SubElement(group, "text", at).text = line
    return y + height


def _number(value: float) -> str:
    return f"{value:g}"


KINDS: Mapping[Kind, Callable[[Sequence[Note], Mapping[str, str]], str]] = {
    "mermaid": _mermaid,
    "svg": _svg,
}
"""The kinds of pictures. Each is made from notes and the clients, with their nodes if there are several."""
