"""Check that `locks` is our package, and not another module of that name.

Another distribution has such a module, and a program may have one. `locks_leader` imports this
check before anything else. If `locks` is another module, `import locks` runs no code of ours, and
later errors would not show the cause.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import PathFinder

__all__: list[str] = []

OURS = "locks.runtime"  # a part of it that no other module has


def _require_ours() -> None:
    """Refuse another module with the name `locks`, without running it.

    Raises:
        ImportError: It is another one; the error says where it is, and what to do.
    """
    loaded = sys.modules.get("locks")
    spec = loaded.__spec__ if loaded is not None else importlib.util.find_spec("locks")
    inside = spec.submodule_search_locations if spec is not None else None
    if inside is not None and PathFinder.find_spec(OURS, list(inside)) is not None:
        return
    where = getattr(spec, "origin", None) or "nothing"
    if inside and where == "nothing":
        where = f"the folder {next(iter(inside))}, which is not a package"
    raise ImportError(
        f"locks_leader needs the package `locks` of the distribution pykka-locks, but `import locks` finds {where}. If that is "
        "the distribution `locks`, run `pip uninstall locks` and `pip install --force-reinstall pykka-locks`; if it is a file or a "
        "folder of yours, such as a checkout beside the program, rename it, or move the program",
        name="locks",
        path=None if spec is None else spec.origin,
    )


_require_ours()
