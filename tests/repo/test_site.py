"""The site of the documentation: what `mkdocs_hooks.py` does when it is built; the build itself is `make docs`."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import mkdocs_hooks as hooks


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ('<script src="https://unpkg.com/x.js"></script>', ["https://unpkg.com/x.js"]),
        ('<script src="//cdn.test/x.js"></script>', ["//cdn.test/x.js"]),
        ('<link rel="stylesheet" href="HTTPS://fonts.test/css">', ["HTTPS://fonts.test/css"]),
        ('<link rel="alternate stylesheet" href="//a.test/b.css">', ["//a.test/b.css"]),
        ('<link rel="preconnect" href="https://fonts.test">', ["https://fonts.test"]),
        ('<link rel="icon" href="http://a.test/i.png">', ["http://a.test/i.png"]),
        ('<img alt="" src="https://badges.test/b.svg">', ["https://badges.test/b.svg"]),
        ('<img src="a.png" srcset="b.png 1x, https://c.test/c.png 2x">', ["https://c.test/c.png"]),
        ('<iframe src="wss://a.test/"></iframe>', ["wss://a.test/"]),
        ('<object data="https://a.test/o"></object>', ["https://a.test/o"]),
        ('<svg><use href="https://a.test/i.svg#i"/></svg>', ["https://a.test/i.svg#i"]),
        ("<p style=\"background: url('https://a.test/b.png')\">", ["https://a.test/b.png"]),
        ("<style>@import 'https://a.test/a.css';</style>", ["https://a.test/a.css"]),
        ('<a href="https://a.test/">a link that one may follow</a>', []),
        ('<link rel="canonical" href="https://a.test/">', []),
        ('<script src="../assets/a.js"></script><img src="data:image/png;base64,aa//bb">', []),
        ("<pre><code>&lt;img src='https://a.test/'&gt; url(https://a.test)</code></pre>", []),
    ],
)
def test_what_a_page_loads_from_elsewhere_is_found(
    page: str, found: list[str], tmp_path: Path
) -> None:
    """Whatever loads it: scripts, styles, fonts, pictures, frames. Links and quoted text are no loads."""
    folder = tmp_path / "a page"
    folder.mkdir()
    (folder / "index.html").write_text(f"<!doctype html><html>{page}</html>")
    assert [load.address for load in hooks.from_elsewhere(tmp_path)] == found
    assert {load.file for load in hooks.from_elsewhere(tmp_path)} <= {"a page/index.html"}


def test_what_a_style_sheet_loads_from_elsewhere_is_found(tmp_path: Path) -> None:
    """Fonts and pictures of a public server; not what is in the sheet itself, with names of XML in it."""
    (tmp_path / "a.css").write_text(
        '@import url(https://a.test/a.css); b {background: url( "//b.test/b.woff" )}'
        " c {mask: url(\"data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg'>\")} d {src: url(d.woff)}"
    )
    assert [load.address for load in hooks.from_elsewhere(tmp_path)] == [
        "https://a.test/a.css",
        "//b.test/b.woff",
    ]


def package(path: Path) -> Path:
    """A package as npm makes them."""
    with tarfile.open(path, "w:gz") as file:
        for name in hooks.MERMAID.shipped.values():
            member = tarfile.TarInfo(name)
            member.size = len(name)
            file.addfile(member, io.BytesIO(name.encode()))
    return path


def test_the_pin_is_a_version_that_the_theme_can_use() -> None:
    """A whole version and a whole hash; the theme asks for version 11."""
    assert re.fullmatch(r"11\.\d+\.\d+", hooks.MERMAID.version)
    for package in (hooks.MERMAID, hooks.PYODIDE):
        assert re.fullmatch(r"sha512-[A-Za-z0-9+/]{86}==", package.integrity)


def test_the_site_has_the_page_to_play_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page of `locks play` with Python for the browser, below 3 MB without that; it finds all that it loads."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    pyodide = hooks.PYODIDE
    with tarfile.open(pyodide.path, "w:gz") as file:
        for name in pyodide.shipped.values():
            file.addfile(tarfile.TarInfo(name))
    digest = base64.b64encode(hashlib.sha512(pyodide.path.read_bytes()).digest()).decode()
    monkeypatch.setattr(hooks, "PYODIDE", pyodide._replace(integrity=f"sha512-{digest}"))
    made = hooks.playground()
    page = made[hooks.PLAY_PAGE].decode()
    for name in re.findall(r'(?:src|href)="([^":]+)"', page):
        assert f"play/{name}" in made
    assert page.index("engine.js") < page.index("play.js")
    assert "play/pyodide/pyodide.mjs" in made
    assert not [place for place in made if place.endswith(".md")], "MkDocs would make pages of them"
    assert sum(len(content) for place, content in made.items() if "pyodide/" not in place) < 3e6
    with zipfile.ZipFile(io.BytesIO(made["play/sources.zip"])) as archive:
        assert "locks_lab/play/requests.py" in archive.namelist()
