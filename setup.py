"""What setup.cfg can't say: the project's addresses; and with `LOCKS_COMPILE=1` the modules that mypyc compiles, with their sources next to them."""

from __future__ import annotations

import os
import re
from configparser import ConfigParser
from glob import glob
from pathlib import Path
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


def addresses() -> dict[str, Any]:
    """The project's addresses, and the README, in which links are whole as soon as the project has a home."""
    settings = ConfigParser(interpolation=None)
    settings.read("setup.cfg", "utf-8")
    home = settings["tool:home"]["address"].rstrip("/")
    readme = Path("README.md").read_text("utf-8")
    urls = {"Original (Erlang)": "https://github.com/uwiger/locks"}
    if home:
        readme = re.sub(r"(?<=\]\()(?!\w+:|#)", f"{home}/blob/HEAD/", readme)
        readme = re.sub(r'(?<=src=")(?!\w+:)', f"{home}/raw/HEAD/", readme)
        urls = {
            "Source": home,
            "Documentation": f"{home}/blob/HEAD/docs/pages.md",
            "Changelog": f"{home}/blob/HEAD/CHANGELOG.md",
            "Issues": f"{home}/issues",
            **urls,
        }
    return {"project_urls": urls, "long_description": readme}


setup(**addresses(), **compiled())
