"""Which form of the package this process uses: compiled modules, where they are installed, or the interpreted ones.

A compiled wheel has both: next to the source of each compiled module stands the module that mypyc has made of it, and
Python prefers that one. `LOCKS_PURE=1` in the environment chooses the sources. It is chosen once, before any other module of
`locks` is imported, and for all of them: objects of both forms do not fit together. Simulations choose the sources by themselves, where
no compiled module is loaded yet. As this module is the first one, forks are noted from here on, too (`forked_from`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
)
from types import ModuleType

from locks.form.forked import forked_from

__all__ = ["COMPILED", "forked_from", "require_interpreted", "run_interpreted", "shown"]

PACKAGE = __name__.partition(".")[0]
PURE = "LOCKS_PURE"
SAMPLE = "model"  # a module that every compiled wheel has compiled


class _Sources:
    """Finds the sources of the package's modules, whatever stands next to them."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(PACKAGE + "."):
            return None
        for folder in path or ():
            finder = FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES))
            spec = finder.find_spec(name)
            if spec is not None:
                return spec
        return None


def _choose() -> bool:
    """Whether compiled modules are there, and wanted; if they are not wanted, they are not found from now on."""
    name = f"{PACKAGE}.{SAMPLE}"
    spec = PathFinder.find_spec(name, list(sys.modules[PACKAGE].__path__))
    if spec is None or not isinstance(spec.loader, ExtensionFileLoader):
        return False
    if os.environ.get(PURE, "0") in ("", "0"):
        return True
    sys.meta_path.insert(0, _Sources)
    return False


COMPILED = _choose()
"""Whether this process uses compiled modules; `require_interpreted` may change it before one is loaded."""


def version() -> str:
    """The version of `locks`, with the form."""
    return shown(str(getattr(sys.modules[__name__.partition(".")[0]], "__version__", "")))


def shown(version: str) -> str:
    """A version, with the form."""
    return f"{version} (compiled)" if COMPILED else version


def require_interpreted(what: str) -> None:
    """Use the interpreted modules from here on, for what puts classes of its own in the place of ours: compiled modules do not let it.

    Raises:
        ImportError: This process has loaded compiled modules.
    """
    global COMPILED
    if not COMPILED:
        return
    for name, module in sys.modules.items():
        file = str(getattr(module, "__file__", ""))
        if name.startswith(PACKAGE + ".") and file.endswith(tuple(EXTENSION_SUFFIXES)):
            raise ImportError(
                f"{what} needs the interpreted modules of locks, and this process has loaded compiled ones, {name} among them: "
                f'put "import locks.testing" before all else that uses locks, or start Python with {PURE}=1 in its environment'
            )
    sys.meta_path.insert(0, _Sources)
    COMPILED = vars(sys.modules[PACKAGE])["__compiled__"] = False


def run_interpreted() -> None:
    """Begin this process anew with the interpreted modules, if it uses the compiled ones.

    Only a process that was begun with the very arguments that it has now: not a program that has another one's commands in it.
    """
    arguments = sys.argv[1:]
    if COMPILED and sys.orig_argv[len(sys.orig_argv) - len(arguments) :] == arguments:
        sys.stdout.flush()
        sys.stderr.flush()
        command = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, command, {**os.environ, PURE: "1"})
