"""Rules on the library's sources: who may import whom, and what no file may contain."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# The layers, from the lowest to the highest. A module imports from `locks` only what its layer
# allows, and no module of `locks` imports `locks_leader`. Imports for type checking count too.

# Pure: each tier imports only from the tiers before it.
PURE = [
    ["locks.errors"],
    ["locks.model", "locks.groups.table"],
    ["locks.core.messages", "locks.core.server.tree", "locks.core.agent.requests"],
    ["locks.core.server.table"],
    ["locks.core.agent.wait_graph"],
    ["locks.core.server.notifier", "locks.core.agent.deadlocks"],
    ["locks.core.agent.ledger", "locks.core.agent.fencing"],
    ["locks.core.server.machine", "locks.core.agent.machine"],
    # Two that stand beside them: who owns which groups of resources, and the lock table of a
    # multi-version store.
    ["locks.ownership.errors", "locks.ownership.spread", "locks.mvcc.errors", "locks.mvcc.model"],
    ["locks.ownership.coordinator", "locks.ownership.member", "locks.mvcc.records"],
    ["locks.mvcc.waiting"],
    ["locks.mvcc.table"],
]
# All that pure modules import from outside: nothing with a clock, chance, threads or sockets.
PURE_OUTSIDE = {
    "__future__",
    "abc",
    "bisect",
    "collections",
    "collections.abc",
    "dataclasses",
    "enum",
    "fractions",
    "functools",
    "heapq",
    "itertools",
    "operator",
    "typing",
}
# The simulator drives the pure machines, and knows nothing of actors.
SIM = ["locks.sim", "locks.sim.*"]
# The runtime knows nothing about locks.
RUNTIME = ["locks.runtime", "locks.runtime.*"]
# Distribution: Erlang's protocol. It knows nothing about locks but the root of the errors.
OTP = ["locks.otp", "locks.otp.*"]
# Without sockets, clock or chance: bytes in, events out. The shell around it is the rest of OTP.
OTP_SANS_IO = [
    "locks.otp.terms*",
    "locks.otp.etf*",
    "locks.otp.control*",
    "locks.otp.frames*",
    "locks.otp.challenges*",
    "locks.otp.handshake*",
    "locks.otp.epmd*",
]
# Our messages, and those of the original, as Erlang's terms.
FORMS = [
    "locks.wire",
    "locks.wire.*",
    "locks.wire.original",
    "locks.wire.original.*",
    "locks.groups.wire",
]
# Actors: shells around the pure machines. They import what is below, and each other.
ACTORS = [
    "locks.node.node",
    "locks.node.server",
    "locks.node.agent",
    "locks.node.remote_clients",
    "locks.node.cluster",
    "locks.node.original_peers",
    "locks.program",
    "locks.groups",
    "locks.groups.scope",
    "locks.mvcc",
    "locks.mvcc.lock_table",
]
# Face: imports everything above and each other.
FACE = [
    "locks",
    "locks.__main__",
    "locks.api",
    "locks.transaction",
    "locks.primitives",
    "locks.cli*",
    "locks.cli.demo*",
    "locks.testing",
    "locks.ownership",
    "locks.ownership.backlog",
    "locks.ownership.groups",
    "locks.ownership.part",
    "locks.ownership.process",
    "locks.ownership.worker",
]

# `locks_leader` stands on `locks`. Its pure tiers import from `locks` only the errors.
LEADER_PURE = [
    ["locks_leader.errors"],
    ["locks_leader.policy", "locks_leader.core.messages"],
    [
        "locks_leader.core.membership",
        "locks_leader.core.calls",
        "locks_leader.core.contest",
        "locks_leader.core.merge",
    ],
    ["locks_leader.core.machine"],
]
# What the original's candidates say, and what it means to ours: pure, and knows Erlang's terms.
LEADER_FORMS = ["locks_leader.wire.original_messages", "locks_leader.wire.original_bridge"]
LEADER_SIM = ["locks_leader.sim", "locks_leader.sim.*"]
# The actor and what users see: it imports public names, and what is above, and each other.
LEADER_SHELL = [
    "locks_leader",
    "locks_leader.__main__",
    "locks_leader.shell.agreements",
    "locks_leader.api",
    "locks_leader.behaviour",
    "locks_leader.demo*",
    "locks_leader.election",
    "locks_leader.shell.instance",
    "locks_leader.shell.original_peers",
    "locks_leader.ownership",
    "locks_leader.state",
    "locks_leader.shell.transactions",
    "locks_leader.wire.messages",
]
PUBLIC = [
    "locks",
    "locks.node.agent",
    "locks.groups",
    "locks.ownership.*",
    "locks.program",
    "locks.runtime",
    "locks.runtime.[A-Z]*",
    "locks.runtime.current_client",
    "locks.runtime.tell",
]

MAY_PRINT = ["locks.__main__", "locks.cli*", "locks.cli.demo*", "locks.cli.sim*"]
MAY_PRINT += ["locks_leader.demo*", "locks_leader.sim.cli*", "locks_leader.sim.__main__"]
LONGEST_FILE = 520


def matches(module: str, patterns: list[str]) -> bool:
    """Tell whether one of the patterns names the module."""
    return any(fnmatchcase(module, pattern) for pattern in patterns)


def may_import(module: str) -> list[str] | None:
    """Return the patterns of what `module` may import from `locks`; None if it is in no layer."""
    below: list[str] = []
    for tier in PURE:
        if matches(module, tier):
            return below
        below = below + tier
    leader: list[str] = []
    for tier in LEADER_PURE:
        if matches(module, tier):
            return ["locks.errors", *leader]
        leader = leader + tier
    if matches(module, LEADER_FORMS):
        return ["locks", "locks.otp", "locks.otp.[A-Z]*", *leader, *LEADER_FORMS]
    if matches(module, LEADER_SIM):
        return below + SIM + leader + LEADER_SIM
    if matches(module, LEADER_SHELL):
        return PUBLIC + leader + LEADER_FORMS + LEADER_SHELL
    if matches(module, SIM):
        return below + SIM
    if matches(module, RUNTIME):
        return RUNTIME
    if matches(module, OTP_SANS_IO):
        return ["locks.errors", *OTP_SANS_IO]
    if matches(module, OTP):
        return ["locks.errors", *RUNTIME, *OTP]
    if matches(module, FORMS):
        return below + OTP_SANS_IO + FORMS
    if matches(module, ACTORS):
        return below + RUNTIME + OTP + FORMS + ACTORS
    if matches(module, FACE):
        return below + SIM + RUNTIME + OTP + FORMS + ACTORS + FACE
    return None


def imports(module: str, source: str, is_package: bool = False) -> list[tuple[int, str]]:
    """Return line and full name of each import; `from a import b` is `a.b` if that is a module."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            up = len(parts) - node.level + is_package if node.level else 0
            base = ".".join(parts[:up] + ([node.module] if node.module else []))
            for alias in node.names:
                name = f"{base}.{alias.name}"
                is_module = may_import(name) is not None or name in PURE_OUTSIDE or exists(name)
                found.append((node.lineno, name if is_module else base))
    return list(dict.fromkeys(found))


def exists(module: str) -> bool:
    """Tell whether the project has this module."""
    path = ROOT.joinpath(*module.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    """Check one module against all rules of this file."""
    allowed = may_import(module)
    if allowed is None:
        return [f"{module} is in no layer: add it to the table at the top of {Path(__file__).name}"]
    pure = any(module in tier for tier in PURE + LEADER_PURE)
    of_locks = module.split(".")[0] == "locks"
    bad = []
    for line, name in imports(module, source, is_package):
        top = name.split(".")[0]
        if top == "locks_leader" and of_locks:
            bad.append(f"{module}:{line} imports {name}: `locks` knows nothing of it")
        elif top in ("locks", "locks_leader") and not matches(name, allowed):
            bad.append(f"{module}:{line} imports {name}, which is not below it")
        elif top not in ("locks", "locks_leader") and pure and name not in PURE_OUTSIDE:
            bad.append(f"{module}:{line} imports {name}, which is not on the list for pure modules")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "print" and not matches(module, MAY_PRINT):
                bad.append(f"{module}:{node.lineno} calls print")
            if node.func.id == "__import__":
                bad.append(f"{module}:{node.lineno} imports behind this test's back")
    lines = source.splitlines()
    for number, line_text in enumerate(lines, 1):
        if mark := re.search(r"\b(TODO|FIXME)\b", line_text):
            bad.append(f"{module}:{number} has a {mark[0]}")
    if len(lines) > LONGEST_FILE:
        bad.append(f"{module} has {len(lines)} lines, more than {LONGEST_FILE}")
    return bad


SOURCES = sorted(path for top in ("locks", "locks_leader") for path in (ROOT / top).rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_keeps_the_rules(path: Path) -> None:
    """Each module is in a layer, imports only from below, and is short and finished."""
    is_package = path.stem == "__init__"
    parts = path.relative_to(ROOT).with_suffix("").parts
    module = ".".join(parts[:-1] if is_package else parts)
    found = violations(module, path.read_text(encoding="utf-8"), is_package)
    assert not found, "\n".join(found)


def test_there_is_something_to_check() -> None:
    """The sources are found at all."""
    assert SOURCES


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        (
            "locks.core.server.table",
            "from locks.core.server.notifier import Informer",
            "not below it",
        ),
        ("locks.core.server.table", "from locks import wait_graph", "not below it"),
        ("locks.core.server.table", "from . import wait_graph", "not below it"),
        ("locks.core.server.table", "from .informer import Informer", "not below it"),
        ("locks.core.server.table", "import locks", "not below it"),
        ("locks.core.server.table", "from locks import lock", "not below it"),
        ("locks.errors", "from locks.model import Mode", "not below it"),
        ("locks.core.agent.machine", "import locks.core.server.machine", "not below it"),
        ("locks.model", "def f():\n    import locks.node.node", "not below it"),
        ("locks.runtime.actor", "from ..model import Mode", "not below it"),
        ("locks.node.server", "from locks.api import lock", "not below it"),
        ("locks.sim.world", "from locks.runtime import Client", "not below it"),
        ("locks.core.agent.machine", "from locks.sim.rules import OURS", "not below it"),
        (
            "locks.runtime.actor",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from locks.node.node import Node",
            "locks.runtime.actor:3 imports locks.node.node",
        ),
        ("locks.api", "import locks_leader", "knows nothing of it"),
        ("locks.api", "from locks_leader.core import x", "knows nothing of it"),
        (
            "locks_leader.core.machine",
            "from locks_leader.shell.instance import Instance",
            "not below it",
        ),
        ("locks_leader.core.contest", "import locks", "not below it"),
        ("locks_leader.shell.instance", "from locks.node.node import Node", "not below it"),
        ("locks_leader.core.merge", "import time", "list for pure modules"),
        ("locks.model", "import time", "list for pure modules"),
        ("locks.model", "from random import choice", "list for pure modules"),
        ("locks.core.server.notifier", "import threading as t", "list for pure modules"),
        ("locks.core.server.notifier", "from gevent.queue import Queue", "list for pure modules"),
        ("locks.model", "__import__('time')", "behind this test's back"),
        ("locks.surprise", "", "in no layer: add it to the table"),
        ("locks.model", "print(1)", "calls print"),
        ("locks.model", "x = 1  # TODO: think", "has a TODO"),
        ("locks.model", '"""FIXME"""', "has a FIXME"),
        ("locks.model", "\n" * (LONGEST_FILE + 1), "lines, more than"),
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
        (
            "locks.core.agent.machine",
            "from locks import model\nfrom .informer import Informer",
            False,
        ),
        ("locks.runtime", "from .actor import Actor\nfrom . import names", True),
        ("locks.runtime.actor", "import gevent, time\nfrom . import names", False),
        (
            "locks.node.node",
            "from locks.node.server import Server\nfrom locks.runtime import Actor",
            False,
        ),
        ("locks", "from .api import lock\nfrom locks.cli import main", True),
        ("locks.cli_tables", "import locks\nprint('a table')", False),
        ("locks_leader.api", "import locks\nfrom locks_leader.core.machine import Machine", False),
        ("locks.model", "\n" * LONGEST_FILE, False),
    ],
)
def test_checker_accepts(module: str, source: str, is_package: bool) -> None:
    """The checker lets pass what the table allows."""
    assert violations(module, source, is_package) == []
