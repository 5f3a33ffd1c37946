"""The layers of the library: which module is in which, who may import whom, and a picture of it.

`python -m tests.repo.layers` prints the picture in `docs/architecture.md` (with `leader` or `lab`, those in `docs/where.md`), made from the imports as they
are. `test_layers.py` checks the imports against the table. Imports for type checking count like any other.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Layer(NamedTuple):
    """One layer.

    Attributes:
        name: Its name.
        modules: Patterns of the modules in it; the first layer with one that fits has the module.
        may: The layers that it may import, besides itself.
        says: What it is, for the picture.
    """

    name: str
    modules: tuple[str, ...]
    may: tuple[str, ...] = ()
    says: str = ""


GROUND = ("words", "errors", "ground")
NODES = (*GROUND, "core", "runtime", "net bytes", "messages", "net")
LIBRARY = [
    Layer(
        "words",
        ("locks.words", "locks.ranges", "locks.version"),
        (),
        "words.py, ranges.py: ids, records",
    ),
    Layer("errors", ("locks.errors",), ("words",), "errors.py: what locks raises"),
    Layer(
        "ground",
        ("locks.lock_ids", "locks.model"),
        ("words", "errors"),
        "lock_ids.py, model.py: rules, checks",
    ),
    Layer("core", ("locks.core*",), GROUND, "core/: the machines, pure"),
    Layer("runtime", ("locks.runtime*",), ("words", "errors"), "runtime/: actors on gevent"),
    Layer(
        "net bytes",
        tuple(
            f"locks.net.{name}" for name in ("addresses", "budgets", "frames", "hello", "secrets")
        ),
        GROUND,
        "net/: frames, the hello, secrets, addresses, budgets",
    ),
    Layer(
        "messages",
        ("locks.net.messages", "locks.net.raised"),
        (*GROUND, "core"),
        "net/messages.py: what nodes say",
    ),
    Layer(
        "net",
        ("locks.net*",),
        (*GROUND, "core", "runtime", "net bytes", "messages"),
        "net/: connections, actors of other nodes",
    ),
    Layer("node", ("locks.node.*",), NODES, "node/: the actors"),
    Layer(
        "program",
        ("locks.program*",),
        (*NODES, "node"),
        "program/: the program's node",
    ),
    Layer(
        "metrics",
        ("locks.metrics*",),
        (*NODES, "node", "program"),
        "metrics/: for Prometheus",
    ),
    Layer(
        "tracing",
        ("locks.tracing*",),
        (*NODES, "node"),
        "tracing/: for OpenTelemetry",
    ),
    Layer("groups", ("locks.groups*",), (*NODES, "node", "program"), "groups/: process groups"),
    Layer("mvcc", ("locks.mvcc*",), (*GROUND, "runtime"), "mvcc/: a multi-version lock table"),
    Layer(
        "face",
        (
            "locks.actors",
            "locks.api",
            "locks.retries",
            "locks.transactions",
            "locks.primitives",
            "locks.shapes",
            "locks.shapes.once",
            "locks.shapes.reentrant",
            "locks.shapes.semaphore",
            "locks.facts*",
        ),
        (*NODES, "node", "program", "groups", "mvcc"),
        "api.py, transactions.py, primitives.py, shapes/, facts/: what users call",
    ),
    Layer(
        "aio",
        ("locks.aio*",),
        (*GROUND, "runtime", "node", "program", "face"),
        "aio/: the same for asyncio and trio",
    ),
    # Where a name is looked for that is not one of `import locks`; nothing but names.
    Layer(
        "places",
        ("locks.node", "locks.original", "locks.values"),
        (*GROUND, "runtime", "net", "net bytes", "node", "face"),
        "original.py, values.py, node/__init__.py: names by subject",
    ),
    # What `import locks` gives: names of the face, and, when it is first used, `locks.aio`, which stands on the face.
    # A decorator for both kinds of functions stands on both.
    Layer(
        "package",
        ("locks", "locks.shapes.decorator"),
        (
            *(*GROUND, "core", "runtime", "net", "net bytes", "node", "program", "metrics"),
            *("tracing", "face", "aio", "places"),
        ),
        "import locks: all of it, and the decorator",
    ),
    Layer(
        "web",
        ("locks.web*",),
        (*GROUND, "core", "runtime", "face"),
        "web/: the live page",
    ),
    Layer(
        "ownership",
        ("locks.ownership*",),
        (*GROUND, "runtime", "node", "program", "face", "package"),
        "ownership/: who owns what",
    ),
    Layer(
        "engines",
        ("locks.engines*",),
        (
            *(*GROUND, "core", "runtime", "net bytes", "net bytes", "net", "node", "program"),
            *("face", "aio", "package"),
        ),
        "engines/: for engines and frameworks",
    ),
    Layer(
        "cli",
        ("locks.cli*", "locks.__main__"),
        (
            *(*GROUND, "core", "runtime", "net bytes", "net bytes", "net", "program", "metrics"),
            *("face", "places", "package", "web"),
        ),
        "cli/: the command line",
    ),
]
PUBLIC = (  # for locks_leader
    *(*GROUND, "runtime", "program", "groups", "ownership", "face", "aio", "places"),
    "package",
)
LEADER = [
    Layer(
        "leader ground",
        ("locks_leader.errors", "locks_leader.policy", "locks_leader.whose"),
        GROUND,
        "errors.py, policy.py, whose.py",
    ),
    Layer(
        "leader core",
        ("locks_leader.core*",),
        (*GROUND, "leader ground"),
        "core/: the election, pure",
    ),
    Layer(
        "leader letters",
        ("locks_leader.letters", "locks_leader.sharing"),
        (*PUBLIC, "messages", "net", "leader ground", "leader core"),
        "letters.py, sharing.py: what instances say",
    ),
    Layer(
        "leader terms",
        ("locks_leader.behaviour", "locks_leader.state"),
        (*PUBLIC, "leader ground", "leader core"),
        "behaviour.py, state.py: what callbacks see",
    ),
    Layer(
        "leader shell",
        ("locks_leader.shell*",),
        (*PUBLIC, "leader ground", "leader core", "leader letters", "leader terms"),
        "shell/: the actor",
    ),
    Layer(
        "leader face",
        (
            "locks_leader",
            "locks_leader.api",
            "locks_leader.aio",
            "locks_leader.election",
            "locks_leader.ownership",
        ),
        (
            *(*PUBLIC, "messages", "net", "leader ground", "leader core", "leader letters"),
            *("leader terms", "leader shell"),
        ),
        "api.py, election.py, ownership.py: what users call",
    ),
    Layer(
        "leader command",
        (
            *("locks_leader.command", "locks_leader.elect", "locks_leader.leaders"),
            *("locks_leader.demo", "locks_leader.__main__"),
        ),
        (*PUBLIC, "core", "cli", "leader ground", "leader terms", "leader face"),
        "elect.py, leaders.py, command.py: the command line",
    ),
]
# The command line loads the laboratory's commands by the names in `COMMANDS` of `locks/__main__.py`, when they are used: it
# imports none of it. Nothing else in `locks` and `locks_leader` names the laboratory, but `locks.testing`.
LAB_ROOMS = (
    *("worlds", "schedules", "explorer", "cases"),
    *("stories", "original", "applications"),
)
LAB = [
    Layer(
        "lab",
        ("locks_lab", *(f"locks_lab.{room}*" for room in LAB_ROOMS)),
        (*GROUND, "core"),
        "worlds/, schedules/, explorer/, cases/, stories/, original/, applications/: the simulator",
    ),
    Layer(
        "lab leader",
        ("locks_lab.leader*",),
        (*GROUND, "core", "lab", "leader ground", "leader core"),
        "leader/: simulated elections",
    ),
    Layer(
        "lab play",
        ("locks_lab.play*",),
        (*GROUND, "core", "lab", "lab leader"),
        "play/: worlds that are played",
    ),
    Layer(
        "lab commands",
        ("locks_lab.commands*",),
        (*GROUND, "core", "runtime", "face", "package", "cli", "web", "lab", "lab play"),
        "commands/: locks sim, locks demo, locks play",
    ),
    Layer(
        "testing",
        ("locks.testing*",),
        (*NODES, "node", "program", "lab", "ownership"),
        "testing/: for the tests of users",
    ),
]
LAYERS = [*LIBRARY, *LEADER, *LAB]

# Modules outside of `core` that are as pure as it is.
PURE = (
    "locks.words",
    "locks.errors",
    "locks.lock_ids",
    "locks.model",
    "locks.core*",
    "locks.net.addresses",
    "locks.net.budgets",
    "locks.net.frames",
    "locks.groups.table",
    "locks.testing.linearizability",
    "locks.ownership.errors",
    "locks.ownership.spread",
    "locks.ownership.coordinator",
    "locks.ownership.member",
    "locks.ownership.round_robin",
    "locks.mvcc.errors",
    "locks.mvcc.model",
    "locks.mvcc.records",
    "locks.mvcc.waiting",
    "locks.mvcc.contention",
    "locks.mvcc.deadlocks",
    "locks.mvcc.lines",
    "locks.mvcc.table",
    "locks.web.picture",
    "locks.web.changes",
    "locks_leader.errors",
    "locks_leader.policy",
    "locks_leader.core*",
)
# All that pure modules import from outside: nothing with a clock, chance, threads or sockets.
PURE_OUTSIDE = {
    "__future__",
    "abc",
    "bisect",
    "collections",
    "collections.abc",
    "copy",
    "dataclasses",
    "enum",
    "difflib",
    "fractions",
    "msgspec",
    "json",
    "re",
    "functools",
    "hashlib",
    "ipaddress",
    "heapq",
    "itertools",
    "math",
    "numbers",
    "operator",
    "reprlib",
    "struct",
    "sys",
    "types",
    "typing",
    "weakref",
}


def layer_of(module: str) -> Layer | None:
    """The layer that a module is in, if it is in one."""
    for layer in LAYERS:
        if any(fnmatchcase(module, pattern) for pattern in layer.modules):
            return layer
    return None


def is_pure(module: str) -> bool:
    """Whether it may import nothing with a clock, chance, threads or sockets."""
    return any(fnmatchcase(module, pattern) for pattern in PURE)


def name_of(path: Path) -> str:
    """The name of the module in a file below `ROOT`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if path.stem == "__init__" else parts)


SOURCES = {
    name_of(path): path
    for top in ("locks", "locks_leader", "locks_lab")
    for path in sorted((ROOT / top).rglob("*.py"))
}


class Import(NamedTuple):
    """One import: the line, and the full name of what is imported."""

    line: int
    name: str


@cache
def imports(module: str, source: str, is_package: bool = False) -> list[Import]:
    """What a module imports; `from a import b` is `a.b` if that is a module."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [Import(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            up = len(parts) - node.level + is_package if node.level else 0
            base = ".".join(parts[:up] + ([node.module] if node.module else []))
            for alias in node.names:
                name = f"{base}.{alias.name}"
                is_module = name in SOURCES or name in PURE_OUTSIDE
                found.append(Import(node.lineno, name if is_module else base))
    return list(dict.fromkeys(found))


def loaded(source: str) -> list[Import]:
    """What is imported when a module is loaded: not in functions, and not for type checkers."""
    found: list[Import] = []

    def visit(nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            if isinstance(node, ast.Import):
                found.extend(Import(node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                found.extend(
                    Import(node.lineno, f"{node.module}.{alias.name}") for alias in node.names
                )
            elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                visit(node.orelse)
            elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                visit(ast.iter_child_nodes(node))

    visit([ast.parse(source)])
    return found


@cache
def graph() -> dict[str, set[str]]:
    """Which modules of the project each one imports."""
    return {
        module: {
            each.name
            for each in imports(module, path.read_text("utf-8"), path.stem == "__init__")
            if each.name in SOURCES and each.name != module
        }
        for module, path in SOURCES.items()
    }


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The circles of a graph: each set of modules that import each other, in a row or by turns."""
    reach = {module: set(_reached(edges, module)) for module in edges}
    found = {
        tuple(sorted(other for other in reach[module] if module in reach[other]))
        for module in edges
        if module in reach[module]
    }
    return sorted(list(circle) for circle in found)


def _reached(edges: dict[str, set[str]], start: str) -> Iterator[str]:
    seen: set[str] = set()
    todo = [start]
    while todo:
        for other in edges.get(todo.pop(), ()):
            if other not in seen:
                seen.add(other)
                todo.append(other)
                yield other


def picture(layers: Sequence[Layer], edges: dict[str, set[str]]) -> str:
    """The layers as a diagram (Mermaid): an arrow for each import that is not also a longer way."""
    names = [layer.name for layer in layers]
    arrows: dict[str, set[str]] = {name: set() for name in names}
    used = set()
    for module, others in edges.items():
        own = layer_of(module)
        for other in others:
            below = layer_of(other)
            if own and below and own != below and own.name in arrows:
                arrows[own.name].add(below.name)
                used.add(below.name)
    shown = [*layers, *(each for each in LAYERS if each.name in used and each.name not in names)]
    lines = ["flowchart TB"]
    lines += [f'    {_id(each.name)}["{each.says or each.name}"]' for each in reversed(shown)]
    for name in reversed(names):
        longer = {far for near in arrows[name] for far in _reached(arrows, near)}
        lines += [f"    {_id(name)} --> {_id(other)}" for other in sorted(arrows[name] - longer)]
    return "\n".join(lines) + "\n"


def _id(name: str) -> str:
    return name.replace(" ", "_")


def main(arguments: Sequence[str] = ()) -> int:
    """Print a picture: of `locks`, with `leader` of `locks_leader`, with `lab` of `locks_lab`."""
    layers = LEADER if "leader" in arguments else LAB if "lab" in arguments else LIBRARY
    print(picture(layers, graph()), end="")
    return 0


def matching(modules: Iterable[str], pattern: str) -> list[str]:
    """The modules that fit a pattern."""
    return [module for module in modules if fnmatchcase(module, pattern)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
