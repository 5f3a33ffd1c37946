"""What setup.cfg can't say: with `LOCKS_COMPILE=1`, mypyc compiles modules, and their sources stand next to them."""

from __future__ import annotations

import os
from glob import glob
from typing import Any

from setuptools import setup

# All of them are pure. Why others are not compiled: docs/decisions/0051-compiled-wheels.md
COMPILED = (
    *("locks/model.py", "locks/core/parts.py"),
    "locks/core/server/*.py",
    "locks/core/agent/*.py",
    *(
        f"locks/otp/bytes/{name}.py"
        for name in ("etf", "etf_decode", "frames", "control", "behaviours")
    ),
    *(f"locks/otp/links/{name}.py" for name in ("reading", "link", "budgets", "backlog", "tls")),
    "locks/otp/process/processes.py",
    *("locks/wire/forms.py", "locks/wire/messages.py", "locks/wire/urgency.py"),
    *("locks/node/dispatch.py", "locks/node/history.py", "locks/node/observing/times.py"),
    *(f"locks/node/peers/{name}.py" for name in ("cluster", "guests")),
)
LEFT = ("counters.py", "__init__.py")
# Where it is compiled, nothing of what the package needs has to be installed yet; what `make check` finds is not looked for again.
CHECKS = ("--ignore-missing-imports", "--follow-imports=silent")


def compiled() -> dict[str, Any]:
    """What to compile, and with what; nothing unless that is wanted."""
    if os.environ.get("LOCKS_COMPILE", "0") in ("", "0"):
        return {}
    needs = {"setup_requires": ["mypy>=1.10"]}
    try:
        from mypyc.build import mypycify
    except ImportError:  # pip asks first what is needed
        return needs
    files = {path for pattern in COMPILED for path in glob(pattern, recursive=True)}
    modules = sorted(path for path in files if os.path.basename(path) not in LEFT)
    return {**needs, "ext_modules": mypycify([*CHECKS, *modules])}


setup(**compiled())
