"""`locks completion`: print a shell completion script for the commands and their options.

shtab, a package of the extra `locks[completion]`, makes the script from the command line's parsers. The script is
self-contained: completing starts no Python.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["add_command"]

SHELLS = ("bash", "zsh", "fish")
MISSING = 3
EXAMPLES = """\
  locks completion bash > ~/.local/share/bash-completion/completions/locks
  locks completion zsh > ~/.zfunc/_locks         # fpath+=~/.zfunc, before compinit
  locks completion fish > ~/.config/fish/completions/locks.fish
"""
SAYS = """Print a script with which a shell completes the commands and their options. Making it needs the package shtab, from the
extra locks[completion]; using it does not.

Exit status: 0; 2 wrong arguments; 3 shtab is not installed."""
OF_FILES = ("tls",)  # options whose values are files, although argparse treats them as text


def add_command(commands: Any, about: str) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "completion", help=about, description=SAYS, epilog=f"Examples:\n{EXAMPLES}"
    )
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(run=lambda options: _run(options.root, options.shell))


def _run(root: argparse.ArgumentParser, shell: str) -> int:
    try:
        import shtab
    except ImportError:
        print(
            "locks completion: the package shtab is not installed: pip install 'pykka-locks[completion]'",
            file=sys.stderr,
        )
        return MISSING
    for action in _actions(root):
        if action.type is Path or action.dest in OF_FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    root.prog = "locks"  # instead of the name it was called by
    print(shtab.complete(root, shell))
    return 0


def _actions(root: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All arguments of a command line, including those of its commands."""
    todo = [root]
    for parser in todo:
        for action in parser._actions:
            yield action
            if isinstance(action, argparse._SubParsersAction):
                todo += action.choices.values()
