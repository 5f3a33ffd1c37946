"""Rules on the library's sources: who may import whom, and what no file may contain."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatchcase

import pytest

from tests.repo.layers import (
    LAYERS,
    PURE,
    PURE_OUTSIDE,
    ROOT,
    SOURCES,
    circles,
    graph,
    imports,
    is_pure,
    layer_of,
    loaded,
    matching,
)

pytestmark = pytest.mark.xdist_group("layers")  # they share the graph of all imports
MAY_PRINT = [
    "locks_leader.elect",
    "locks_leader.leaders",
    "locks.cli*",
    "locks_leader.demo*",
    "locks_lab.commands*",
    "locks_lab.leader.__main__",
]
MOST_AT_THE_TOP = 13  # modules directly in `locks/`


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    """Check one module against all rules of this file."""
    layer = layer_of(module)
    if layer is None:
        return [f"{module} is in no layer: add it to the table in layers.py"]
    pure = is_pure(module)
    bad = []
    for line, name in imports(module, source, is_package):
        top = name.split(".")[0]
        if top in ("locks", "locks_leader", "locks_lab"):
            other = layer_of(name)
            if other is None or (other != layer and other.name not in layer.may):
                bad.append(f"{module}:{line} imports {name}, which is not below {layer.name}")
        elif pure and name not in PURE_OUTSIDE:
            bad.append(f"{module}:{line} imports {name}, which is not on the list for pure modules")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            may_print = any(fnmatchcase(module, pattern) for pattern in MAY_PRINT)
            if node.func.id == "print" and not may_print:
                bad.append(f"{module}:{node.lineno} calls print")
            if node.func.id == "__import__":
                bad.append(f"{module}:{node.lineno} imports behind this test's back")
    lines = source.splitlines()
    for number, line_text in enumerate(lines, 1):
        if mark := re.search(r"\b(TODO|FIXME)\b", line_text):
            bad.append(f"{module}:{number} has a {mark[0]}")
    return bad


@pytest.mark.slow
def test_modules_keep_the_rules() -> None:
    """Each module is in a layer, imports only from below, and is finished."""
    found = [
        each
        for module, path in SOURCES.items()
        for each in violations(module, path.read_text("utf-8"), path.stem == "__init__")
    ]
    assert not found, "\n".join(found)


def test_no_modules_import_each_other() -> None:
    """There is no circle of imports, those for type checking counted."""
    assert circles(graph()) == []


def test_a_package_loads_none_of_its_modules() -> None:
    """Else a thread that imports the module and one that imports the package wait for each other, and Python gives one of them a half-loaded module.

    `locks` and `locks_leader` are loaded before any other module of theirs.
    """
    first = {"locks", "locks_leader"}
    packages = [module for module, path in SOURCES.items() if path.stem == "__init__"]
    bad = [
        f"{package} loads {line.name}"
        for package in packages
        if package not in first
        for line in loaded(SOURCES[package].read_text("utf-8"))
        if line.name.startswith(f"{package}.")
    ]
    assert bad == []


def test_what_is_loaded_is_found() -> None:
    """The finder sees imports at the top, also in a condition, and not those in functions or for type checkers."""
    source = "import p.a\nif x:\n    from p.b import c\nelse:\n    from p import d"
    assert [each.name for each in loaded(source)] == ["p.a", "p.b.c", "p.d"]
    for not_loaded in ("def late():\n    import p.a", "if TYPE_CHECKING:\n    import p.a"):
        assert loaded(not_loaded) == []


def test_the_laboratory_is_named_in_few_places() -> None:
    """`locks.testing` stands on it, and the command line loads its commands."""
    knows = {
        module
        for module, path in SOURCES.items()
        if not module.startswith("locks_lab") and "locks_lab" in path.read_text("utf-8")
    }
    outside = {each for each in knows if not each.startswith("locks.testing")}
    assert outside == {"locks.__main__"}


def test_few_modules_stand_at_the_top() -> None:
    """A newcomer sees layers in `locks/`, and not dozens of files."""
    flat = [path.name for path in (ROOT / "locks").glob("[!_]*.py")]
    assert len(flat) <= MOST_AT_THE_TOP, flat


def test_a_layer_names_only_layers_before_it() -> None:
    """The table itself goes one way."""
    known: set[str] = set()
    for layer in LAYERS:
        assert known.issuperset(layer.may), layer
        known.add(layer.name)


def test_each_pattern_names_a_module() -> None:
    """The table has nothing in it that is not there (any more)."""
    patterns = [*(p for layer in LAYERS for p in layer.modules), *PURE]
    assert [each for each in patterns if not matching(SOURCES, each)] == []


def test_a_circle_is_found() -> None:
    """The finder of circles finds them: by turns, in a row, and none where there is none."""
    assert circles({"a": {"b"}, "b": {"a"}, "c": {"a"}}) == [["a", "b"]]
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"e"}, "e": {"d"}}) == [
        ["a", "b", "c"],
        ["d", "e"],
    ]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


TABLE = "locks.core.server.table"


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        (TABLE, "from locks.node.server import Server", "not below core"),
        (TABLE, "from locks import api", "not below core"),
        (TABLE, "from ...node import ports", "not below core"),
        (TABLE, "import locks", "not below core"),
        (TABLE, "from locks import lock", "not below core"),
        ("locks.errors", "import locks.model", "not below errors"),
        ("locks.lock_ids", "import locks.core.messages", "not below ground"),
        ("locks.model", "def f():\n    import locks.node.node", "not below ground"),
        ("locks.runtime.actor", "from ..model import Mode", "not below runtime"),
        ("locks.node.server", "from locks.api import lock", "not below node"),
        ("locks_lab.worlds.world", "from locks.runtime import Client", "not below lab"),
        ("locks.core.agent.machine", "from locks_lab.worlds.rules import OURS", "not below core"),
        ("locks.net.messages", "from locks.net.link import Link", "not below messages"),
        (
            "locks.runtime.actor",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from locks.node.node import Node",
            "locks.runtime.actor:3 imports locks.node",
        ),
        ("locks.api", "import locks_leader", "not below face"),
        (
            "locks_leader.core.machine",
            "from locks_leader.api import start",
            "not below leader core",
        ),
        ("locks_leader.core.contest", "import locks", "not below leader core"),
        ("locks_leader.shell.instance", "from locks.node.node import Node", "not below"),
        ("locks_leader.core.merge", "import time", "list for pure modules"),
        ("locks.model", "import time", "list for pure modules"),
        ("locks.model", "from random import choice", "list for pure modules"),
        (TABLE, "import threading as t", "list for pure modules"),
        (TABLE, "from gevent.queue import Queue", "list for pure modules"),
        ("locks.model", "__import__('time')", "behind this test's back"),
        ("locks.surprise", "", "in no layer: add it to the table"),
        ("locks.model", "print(1)", "calls print"),
        ("locks.model", "x = 1  # TODO: think", "has a TODO"),
        ("locks.model", '"""FIXME"""', "has a FIXME"),
    ],
)
def test_checker_can_fail(module: str, source: str, complaint: str) -> None:
    """The checker finds each kind of offence."""
    (found,) = violations(module, source)
    assert complaint in found


@pytest.mark.parametrize(
    ("module", "source", "is_package"),
    [
        ("locks.model", "from collections import abc, deque\nfrom locks.errors import Bad", False),
        ("locks.core.agent.machine", "from locks import model\nfrom . import ledger", False),
        ("locks.runtime", "from .actor import Actor\nfrom . import names", True),
        ("locks.runtime.actor", "import gevent, time\nfrom . import names", False),
        ("locks.runtime.inline", "from locks.errors import LocksError", False),
        ("locks.node.node", "from locks.node.server import Server\nimport locks.runtime", False),
        ("locks", "from .api import lock", True),
        ("locks.cli.tables", "import locks\nprint('a table')", False),
        ("locks_leader.api", "import locks\nfrom locks_leader.core.machine import Machine", False),
    ],
)
def test_checker_accepts(module: str, source: str, is_package: bool) -> None:
    """The checker lets pass what the table allows."""
    assert violations(module, source, is_package) == []
