"""`locks config`: show the settings that locks.start() would use, and their sources."""

from __future__ import annotations

import argparse
import json
from typing import Any

from locks.cli.printing import say
from locks.errors import LocksError
from locks.otp.names.addresses import Locator
from locks.program.settings import FILE, SETTINGS, arguments, read_settings

__all__ = ["add_command"]

DESCRIPTION = f"""\
Show the settings in effect, and where each comes from. A setting comes from the first of these that has it: the arguments of
locks.start, the environment (LOCKS_SERVERS ...), the file named in LOCKS_CONFIG or {FILE} in the current folder, the
defaults.
"""


def add_command(commands: Any, about: str) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser("config", help=about, description=DESCRIPTION)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    try:
        found = read_settings()
        servers = arguments(found).get("servers")
    except LocksError as error:
        if options.json:
            print(json.dumps({"error": str(error)}))
        say("locks config", error)
        return 2
    if options.json:
        print(json.dumps({name: setting._asdict() for name, setting in found.items()}))
        return 0
    width = max(map(len, SETTINGS))
    for name in SETTINGS:
        setting = found.get(name)
        if setting is None:
            print(f"{name:{width}}  (default)")
        else:
            value = setting.value
            text = ", ".join(value) if isinstance(value, list) else str(value)
            if name == "servers" and isinstance(servers, Locator):
                text = servers.describe()
            print(f"{name:{width}}  {text}    from {setting.source}")
    return 0
