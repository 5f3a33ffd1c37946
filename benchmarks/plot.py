"""Line plots as SVG, in plain text: both axes logarithmic, for figures that grow by powers.

The same input always gives the same text, so that a change of a plot can be read. There is no
background, and each colour can be read on a light and on a dark one. Lines are labelled at their
ends, not in a legend, and have different marks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

__all__ = ["Line", "plot"]

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 66, 190, 20, 52
GREY = "#808080"
COLOURS = ("#3b82d6", "#2e9e63", "#d2691e", "#9b59b6")
MARKS = (
    '<circle cx="{x}" cy="{y}" r="3.5" fill="{c}"/>',
    '<rect x="{x}" y="{y}" width="6.5" height="6.5" transform="translate(-3.25 -3.25)" fill="{c}"/>',
    '<path d="M{x} {y}m0-4.5l4.2 7.5h-8.4z" fill="{c}"/>',
    '<path d="M{x} {y}m0-5l4.5 5l-4.5 5l-4.5-5z" fill="{c}"/>',
)


class Line(NamedTuple):
    """One line of a plot.

    Attributes:
        label: What is written at its end.
        points: Pairs of numbers larger than 0.
        kind: Which colour and mark.
        dashed: Whether it is dashed.
    """

    label: str
    points: Sequence[tuple[float, float]]
    kind: int
    dashed: bool = False


class _Axis:
    """One axis: its ends, as numbers and on the page."""

    def __init__(self, numbers: Sequence[float], start: float, end: float) -> None:
        self.low, self.high = min(numbers), max(numbers)
        self.start, self.end = start, end

    def at(self, number: float) -> float:
        """The position of a number."""
        share = math.log(number / self.low) / math.log(self.high / self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self) -> Iterator[int]:
        """The round numbers on it: 1, 2, 5, 10, 20, and so on."""
        for power in range(10):
            for digit in (1, 2, 5):
                if self.low <= digit * 10**power <= self.high:
                    yield digit * 10**power


def plot(lines: Sequence[Line], across: str, up: str, title: str, least: float = 1) -> str:
    """Draw lines.

    Args:
        lines: The lines.
        across: What the horizontal axis says.
        up: What the vertical one says.
        title: For those who can't see it.
        least: Where the vertical axis begins, if no point is lower.

    Returns:
        The SVG file's text.
    """
    points = [point for line in lines for point in line.points]
    x = _Axis([point[0] for point in points], LEFT, WIDTH - RIGHT)
    y = _Axis([least, *(point[1] for point in points)], HEIGHT - BOTTOM, TOP)
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="13" role="img">',
        f"<title>{escape(title)}</title>",
    ]
    for tick in y.ticks():
        out.append(
            f'<path d="M{LEFT} {y.at(tick)}H{right}" stroke="{GREY}" stroke-opacity="0.3"/>'
            f'<text x="{LEFT - 8}" y="{y.at(tick) + 4.5:g}" text-anchor="end" fill="{GREY}">{tick}</text>'
        )
    for tick in x.ticks():
        out.append(
            f'<path d="M{x.at(tick)} {bottom}v5" stroke="{GREY}"/>'
            f'<text x="{x.at(tick)}" y="{bottom + 20}" text-anchor="middle" fill="{GREY}">{tick}</text>'
        )
    middle = (LEFT + right) / 2
    out += [
        f'<path d="M{LEFT} {bottom}H{right}" stroke="{GREY}"/>',
        f'<text x="{middle:g}" y="{HEIGHT - 10}" text-anchor="middle" fill="{GREY}">'
        f"{escape(across)}</text>",
        f'<text transform="translate(16 {(TOP + bottom) / 2:g})rotate(-90)" '
        f'text-anchor="middle" fill="{GREY}">{escape(up)}</text>',
    ]
    below = math.inf
    for line in sorted(lines, key=lambda line: line.points[-1][1]):
        a, b = (axis.at(number) for axis, number in zip((x, y), line.points[-1], strict=True))
        # Labels overlap neither each other nor the axis.
        below = min(b + 4.5, below - 16, bottom - 6)
        out += _draw(line, x, y)
        out.append(
            f'<text x="{a + 10:g}" y="{below:g}" fill="{COLOURS[line.kind]}">'
            f"{escape(line.label)}</text>"
        )
    return "\n".join([*out, "</svg>", ""])


def _draw(line: Line, x: _Axis, y: _Axis) -> Iterator[str]:
    """One line, with its marks."""
    colour = COLOURS[line.kind]
    places = [(x.at(a), y.at(b)) for a, b in line.points]
    path = "L".join(f"{a} {b}" for a, b in places)
    dashes = ' stroke-dasharray="5 4"' if line.dashed else ""
    yield f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>'
    for a, b in places:
        yield MARKS[line.kind].format(x=a, y=b, c=colour)
