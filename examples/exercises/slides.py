"""Slides of the lesson, as Markdown: `python -m examples.exercises.slides > slides.md`.

Each step of `docs/lesson.md` gives three slides: its question, what happens in its situation in the usual order, and its
answer. A line of three dashes is between two slides, as Marp, reveal.js and pandoc read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from locks_lab.play.board import play
from locks_lab.play.situations import Situation, game_of, situation_from

__all__ = ["main", "situation_of", "slides"]

LESSON = Path(__file__).parents[2] / "docs" / "lesson.md"
STEP = re.compile(
    r"^## (?P<title>\d+\. .*?)\n\n(?P<question>.*?)\n\n<details.*?</summary>\n\n(?P<answer>.*?)\n\n</details>",
    re.M | re.S,
)
LINK = re.compile(r"\[Play it\]\(play/index\.html#([^)\s]+)\)[.,:]? ?")
FIELDS = ("kind", "nodes", "homes", "options", "rule")
MOST_LINES = 18  # of a slide
END = ["next"] * 1_000


def situation_of(link: str) -> Situation:
    """The situation of a link to the page, with its moves."""
    parts = parse_qs(link)
    data: dict[str, Any] = {field: parts[field][0] for field in FIELDS if field in parts}
    moves = parts.get("moves", [""])[0].split()
    return situation_from({"clients": parts["client"], "moves": moves, **data})


def slides() -> Iterator[str]:
    """All slides."""
    text = LESSON.read_text(encoding="utf-8")
    yield text.partition("\n\n")[0]
    for step in STEP.finditer(text):
        title = f"## {step['title']}"
        question = LINK.sub("", step["question"])
        link = LINK.search(step["question"])
        if link is None:  # the situation of the step before
            yield f"{title}\n\n{question}"
        else:
            situation = situation_of(link[1])
            scripts = "\n".join(
                f"client {n}: {each}" for n, each in enumerate(situation.clients, 1)
            )
            yield f"{title}\n\n{question}\n\n```text\n{scripts}\n```"
            yield from _story(title, situation)
        yield f"{title}: answer\n\n{step['answer']}"


def _story(title: str, situation: Situation) -> Iterator[str]:
    """What happens in the usual order, in parts that fit on a slide."""
    seen = play(game_of(situation), [*situation.moves, *END])
    lines = [line for said in seen["said"] for line in said["lines"]]
    lines += (seen["wrong"] or "").splitlines()
    for start in range(0, len(lines), MOST_LINES):
        told = "\n".join(lines[start : start + MOST_LINES])
        yield f"{title}: what happens\n\n```text\n{told}\n```"


def main() -> int:
    """Print them."""
    print("\n\n---\n\n".join(slides()))
    return 0


if __name__ == "__main__":
    main()
