"""`Simulation.diagram("svg")` and `--locks-svg`: drawings in which all is there and nothing stands over anything else."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple
from xml.etree import ElementTree as Xml

import pytest
from hypothesis import given
from hypothesis import strategies as st

import locks
from locks.testing import Simulation
from locks.testing.pictures import KINDS, LETTER
from locks_lab.applications.greenlets import Note
from locks_lab.applications.places import Place

SVG = "{http://www.w3.org/2000/svg}"


class Drawn(NamedTuple):
    """A box of a drawing: its place, and its lines with theirs."""

    x: float
    y: float
    right: float
    bottom: float
    lines: list[tuple[float, float, str]]

    @property
    def text(self) -> str:
        """What it says, without the places where lines end."""
        return "".join(line for _, _, line in self.lines).replace(" ", "")


def drawn(svg: str) -> tuple[list[Drawn], Xml.Element]:
    """The boxes of a drawing, and the drawing."""
    root = Xml.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    found = []
    for group in root.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        if rect is not None:
            x, y, width, height = (float(rect.get(n, "")) for n in ("x", "y", "width", "height"))
            texts = group.iter(f"{SVG}text")
            lines = [(float(t.get("x", "")), float(t.get("y", "")), t.text or "") for t in texts]
            found.append(Drawn(x, y, x + width, y + height, lines))
    return found, root


def check(svg: str) -> list[Drawn]:
    """Nothing is over anything else, lines are within their boxes, and all is on the paper."""
    boxes, root = drawn(svg)
    for one, other in combinations(boxes, 2):
        apart = one.right <= other.x or other.right <= one.x
        assert apart or one.bottom <= other.y or other.bottom <= one.y, (one, other)
    paper = float(root.get("width", "")), float(root.get("height", ""))
    for box in boxes:
        assert box.x >= 0
        assert box.y >= 0
        assert box.right <= paper[0]
        assert box.bottom <= paper[1]
        for x, y, text in box.lines:
            assert box.x <= x
            assert x + len(text) * LETTER <= box.right
            assert box.y < y <= box.bottom
        assert len({y for _, y, _ in box.lines}) == len(box.lines)
    ends = [float(line.get("y2", "")) for line in root.iter(f"{SVG}line")]
    assert all(end >= max(box.bottom for box in boxes) for end in ends)
    return boxes


def packed(*texts: object) -> str:
    """A text without spaces."""
    return "".join(map(str, texts)).replace(" ", "")


def test_run_is_drawn() -> None:
    """Each client has a column; what they did, and the deadlock, stand in the order in which they happened."""
    for seed in range(100):
        made = Simulation(seed)

        def transfer(*ids: tuple[str]) -> None:
            locks.run_transaction(lambda tx: [tx.write_lock(lock_id) for lock_id in ids])

        made.client(transfer, ("a",), ("b",), name="first & <foremost>")
        made.client(transfer, ("b",), ("a",), name="second")
        made.run()
        if made.deadlocks:
            break
    boxes = check(made.diagram("svg"))
    assert [box.text for box in boxes[:2]] == [packed("first & <foremost>"), "second"]
    columns = {box.text: (box.x, box.right) for box in boxes[:2]}
    happened = boxes[2:]
    assert len(happened) == len(made.trace)
    assert [box.y for box in happened] == sorted(box.y for box in happened)
    for line, box in zip(made.trace, happened, strict=True):
        said = line.split(" s  ", 1)[1]
        if "deadlock of" in said:
            assert (box.x, box.right) == (boxes[0].x, boxes[1].right)
            assert "waitsforwritea" in box.text
        else:
            name = "second" if said.startswith("second") else "first & <foremost>"
            assert (box.x, box.right) == columns[packed(name)]
            assert packed(said.removeprefix(name)) in box.text


texts = st.text(max_size=120)
notes = st.builds(
    Note,
    st.just(0.0),
    st.sampled_from(["ann", "bob", "cleo", "deadlock"]),
    texts,
    st.none() | st.just(Place("/somewhere/bank.py", 7, "pay")),
    st.booleans(),
    st.lists(texts, max_size=3).map(tuple),
)


@pytest.mark.slow
@given(st.lists(notes, max_size=12), st.sampled_from([["ann"], ["ann", "bob", "cleo"]]))
def test_anything_can_be_drawn(each: Sequence[Note], columns: list[str]) -> None:
    """Whatever names and notes are: it is XML, and nothing stands over anything else."""
    boxes = check(KINDS["svg"](each, dict.fromkeys(columns, "")))
    assert len(boxes) == len(columns) + len(each)
