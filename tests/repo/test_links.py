"""Links between pages lead somewhere: to a file that is there, and to a heading that it has."""

from __future__ import annotations

import re
import unicodedata
from importlib import import_module
from pathlib import Path

import yaml

from mkdocs_hooks import PLAY_PAGE

ROOT = Path(__file__).parents[2]
DECISIONS = ROOT / "docs" / "decisions"
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    ROOT / "tests" / "README.md",
    ROOT / "benchmarks" / "README.md",
]

CODE = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1 *$|``.+?``|`[^`\n]+`", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^)>\s]+)>?\)|<img[^>]* src=\"([^\"]+)\"")


def anchor(heading: str) -> str:
    """The anchor that Python-Markdown, and GitHub, give to a heading of the kind that these pages have."""
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    ascii_only = unicodedata.normalize("NFKD", shown).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower())


def without_code(text: str) -> str:
    """A page without its blocks; code within a line is kept, for it is part of headings."""
    return CODE.sub(lambda code: code[0] if "\n" not in code[0] else "", text)


def anchors(text: str) -> set[str]:
    """The anchors of a page."""
    return {anchor(heading) for heading in HEADING.findall(without_code(text))}


def links(text: str) -> list[str]:
    """The links of a page that lead to files of this repository, or to its own headings."""
    found = [link or image for link, image in LINK.findall(without_code(text))]
    return [each for each in found if not re.match(r"[a-z]+:", each)]


def broken(page: Path, text: str) -> list[str]:
    """The links of a page that lead nowhere."""
    wrong = []
    for link in links(text):
        path, _, place = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if target == ROOT / "docs" / PLAY_PAGE:
            continue  # the build of the site makes it
        if not target.exists():
            wrong.append(link)
        elif (
            place
            and target.suffix == ".md"
            and not place.startswith(("locks.", "locks_leader.", "locks_lab."))
        ):
            there = text if target == page else target.read_text(encoding="utf-8")
            wrong += [link] * (place not in anchors(there))
    return wrong


def test_links_lead_somewhere() -> None:
    """Each link of a page names a file that is there, and a heading of it."""
    found = {page: broken(page, page.read_text(encoding="utf-8")) for page in PAGES}
    assert {page: links for page, links in found.items() if links} == {}


def test_each_page_is_in_the_navigation() -> None:
    """The site's navigation has each page once, and no other; decisions are not for its readers."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert list(yaml.parse(text)), "it is YAML"
    named = re.findall(r"(\S+\.md)\b", text.partition("\nnav:\n")[2])
    pages = {*(ROOT / "docs").rglob("*.md")} - {*DECISIONS.glob("*.md")}
    assert sorted(named) == sorted(str(page.relative_to(ROOT / "docs")) for page in pages)


def test_each_page_is_in_the_list_of_pages() -> None:
    """`docs/index.md` leads to each page beside it."""
    listed = {
        link.partition("#")[0]
        for link in links((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    }
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert sorted(pages - listed - {"index.md"}) == []


def test_the_index_has_each_decision() -> None:
    """In order, by its title, whose number is its file's."""
    index = (DECISIONS / "index.md").read_text(encoding="utf-8")
    pages = sorted(DECISIONS.glob("0*.md"))
    titles = [
        page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for page in pages
    ]
    assert re.findall(r"^- \[(.+)\]\((.+)\)$", index, re.MULTILINE) == [
        (title, page.name) for title, page in zip(titles, pages, strict=True)
    ]
    assert [title[:5] for title in titles] == [
        f"{number:04}:" for number in range(1, len(pages) + 1)
    ]


PAGE = """\
# Up & down

See [here](#up-down), [there](gone.md), [a heading](#no-such-heading) and [elsewhere](https://a.test/#x).

```text
[in a block](gone.md)
# no heading
```

## `locks why`, and *more*
"""


def test_broken_links_are_found(tmp_path: Path) -> None:
    """A file that is not there, and a heading that is not; blocks have neither links nor headings."""
    assert anchors(PAGE) == {"up-down", "locks-why-and-more"}
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    assert broken(page, PAGE) == ["gone.md", "#no-such-heading"]


def test_the_reference_has_each_public_name() -> None:
    """By its public path, once, on a page of its subject."""
    text = "".join(page.read_text("utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    shown = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    assert len(shown) == len(set(shown))
    modules = ("locks", "locks.errors", "locks.facts", "locks.node", "locks.actors")
    modules += ("locks.original", "locks.values", "locks_leader")
    names = {f"{name}.{each}" for name in modules for each in import_module(name).__all__}
    names -= {f"locks.{name}" for name in import_module("locks.errors").__all__}  # they are there
    names -= {f"locks.original.{name}" for name in ("watch", "unwatch")}  # of locks
    names -= {
        f"locks.errors.{name}"
        for name in ("anew", "are_needed", "assert_never", "causes", "listed", "nearest")
    }
    names -= {"locks.HERE", "locks.aio", "locks_leader.NO_REPLY", "locks_leader.Policy"}
    names -= {"locks_leader.Ownership"}  # has a page of its own
    assert set(shown) == names
