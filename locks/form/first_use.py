"""Names of a package that are loaded when one of them is first used: `import` itself then takes next to nothing.

Type checkers are to see the names' own imports instead, in a block of the package for them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any

__all__ = ["at_first_use"]


def at_first_use(
    package: str,
    names: Collection[str],
    together: tuple[str, ...],
    apart: Mapping[str, str] | None = None,
    modules: Collection[str] = (),
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` of a package.

    Args:
        package: The package.
        names: Its names, loaded or not.
        together: The modules that have most of them; the first use of one loads them all.
        apart: The names that are loaded by themselves, and the module that has each.
        modules: Modules of the package that are loaded as they are used, besides those that have names.
    """
    apart = apart or {}
    own = {*modules, *(each.split(".")[1] for each in (*together, *apart.values()))}
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
