"""The command line that shows what a program's node would be started with: `python -m locks config`."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from locks.errors import LocksError
from locks.otp.names.discovery import Discovery
from locks.program.settings import FILE, SETTINGS, arguments, read_settings

__all__ = ["add_command"]

DESCRIPTION = f"""\
Show what locks.start() takes from the environment and from {FILE}, and from where. What is said in more than one place is taken
from the first of: the arguments of locks.start, the environment (LOCKS_SERVERS ...), the file that LOCKS_CONFIG names or
{FILE} in the current folder, the defaults.
"""


def add_command(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "config",
        help="show what is said in the environment and in locks.toml",
        description=DESCRIPTION,
    )
    parser.add_argument("--json", action="store_true", help="print one object of JSON")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    try:
        found = read_settings()
        servers = arguments(found).get("servers")
    except LocksError as error:
        print(f"python -m locks config: {error}", file=sys.stderr)
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
            if name == "servers" and isinstance(servers, Discovery):
                text = servers.describe()
            print(f"{name:{width}}  {text}    from {setting.source}")
    return 0
