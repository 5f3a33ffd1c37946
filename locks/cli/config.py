"""`locks config`: show the settings that locks.start() would use, and their sources."""

from __future__ import annotations

import argparse
import json
from typing import Any

from locks.cli.printing import say
from locks.errors import LocksError
from locks.net.addresses import Locator
from locks.program import meeting as meeting  # what `check_settings` needs
from locks.program.default import check_settings
from locks.program.local import servers_by_word
from locks.program.settings import FILE, SETTINGS, Setting, read_settings

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
    found: dict[str, Setting] = {}
    wrong: LocksError | None = None
    try:
        found = read_settings()
        check_settings(found)
    except LocksError as error:
        wrong = error
    if options.json:
        shown = {name: setting._asdict() for name, setting in found.items()}
        print(json.dumps(shown | ({"error": str(wrong)} if wrong else {})))
    elif found or not wrong:
        width = max(map(len, SETTINGS))
        for name in SETTINGS:
            print(f"{name:{width}}  {_text(name, found.get(name))}")
    if wrong:
        say("locks config", wrong)
    return 2 if wrong else 0


def _text(name: str, setting: Setting | None) -> str:
    """A setting as it is shown."""
    if setting is None:
        return "(default)"
    value = setting.value
    text = ", ".join(value) if isinstance(value, list) else str(value)
    if name == "servers" and isinstance(value, str):
        servers = servers_by_word(value)
        text = servers.describe() if isinstance(servers, Locator) else text
    return f"{text}    from {setting.source}"
