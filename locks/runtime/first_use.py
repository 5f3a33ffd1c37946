"""What is loaded when it is first used: the names of a package, and modules that few programs need; and what programs have loaded.

Type checkers are to see imports instead, in a block for them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any

__all__ = ["Unloaded", "at_first_use", "loaded"]


def loaded(name: str) -> Any:
    """A module, if the program has imported it; not while a thread is importing it, because some of its names are missing then."""
    module = sys.modules.get(name)
    is_half = getattr(getattr(module, "__spec__", None), "_initializing", False)
    return None if is_half else module


class Unloaded:
    """Stands for a module, and loads it when something of it is first used.

    `typing.get_type_hints` can evaluate annotations with such a name; an import for type checkers alone would leave it undefined.

    Args:
        name: The module's full name.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # of a tool that looks at all names of a module
            raise AttributeError(name)
        return getattr(import_module(self._name), name)


def at_first_use(
    package: str,
    names: Collection[str],
    together: tuple[str, ...] = (),
    apart: Mapping[str, str] | None = None,
    modules: Collection[str] = (),
) -> tuple[Callable[..., Any], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` of a package.

    Args:
        package: The package.
        names: Its names, loaded or not.
        together: The modules that have most of them; the first use of one loads them all.
        apart: The names that are loaded by themselves, and the module that has each.
        modules: Modules of the package that are loaded as they are used, besides those that have names.
    """
    apart = apart or {}
    inside = f"{package}."
    loaded = [each for each in (*together, *apart.values()) if each.startswith(inside)]
    own = {*modules, *(each.removeprefix(inside).split(".")[0] for each in loaded)}
    rest = set(names) - apart.keys() - own

    def get(name: str) -> Any:
        there = vars(sys.modules[package])
        if name in apart:
            there[name] = getattr(import_module(apart[name]), name)
            return there[name]
        if name in rest:
            for each in together:
                found = vars(import_module(each))
                there.update({known: found[known] for known in rest & found.keys()})
            return there[name]
        if name in own:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names_of() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return get, names_of
