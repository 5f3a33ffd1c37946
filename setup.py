"""What setup.cfg can't say: with `LOCKS_COMPILE=1`, mypyc compiles modules, and their sources stand next to them."""

from __future__ import annotations

import os
from glob import glob
from typing import Any

from setuptools import setup

# All of them are pure. Why others are not compiled: docs/decisions/0051-compiled-wheels.md
COMPILED = (
    *("locks/model.py", "locks/core/paths.py", "locks/core/parts.py"),
    "locks/core/server/*.py",
    "locks/core/agent/*.py",
    *("locks/otp/etf.py", "locks/otp/etf_decode.py", "locks/otp/frames.py", "locks/otp/reading.py"),
    *("locks/otp/control.py", "locks/otp/behaviours.py", "locks/otp/processes.py"),
    *("locks/otp/link.py", "locks/otp/budgets.py", "locks/otp/backlog.py", "locks/otp/tls.py"),
    *("locks/wire/forms.py", "locks/wire/messages.py", "locks/wire/urgency.py"),
    *("locks/node/dispatch.py", "locks/node/history.py", "locks/node/times.py"),
    *("locks/node/cluster.py", "locks/node/guests.py", "locks/node/relaying.py"),
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
