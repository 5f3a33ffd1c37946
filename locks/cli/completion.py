"""`locks completion`: a script by which a shell completes the commands and their options.

It is made of the command line itself by shtab, a package of the extra `locks[completion]`. The script is complete in itself:
a shell that completes starts no Python.
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
SAYS = """Print a script by which a shell completes the commands and their options. It needs the package shtab, of the extra
locks[completion], to be made; not to be used.

Exit status: 0; 2 wrong arguments; 3 shtab is not installed."""
OF_FILES = ("tls",)  # options whose values are files, but that argparse takes for text


def add_command(commands: Any, root: argparse.ArgumentParser) -> None:
    """Add the command to the command line.

    Args:
        commands: Where to.
        root: The whole command line.
    """
    parser = commands.add_parser(
        "completion",
        help="print a script by which a shell completes commands and options",
        description=SAYS,
        epilog=f"Examples:\n{EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(run=lambda options: _run(root, options.shell))


def _run(root: argparse.ArgumentParser, shell: str) -> int:
    try:
        import shtab
    except ImportError:
        print(
            "locks completion: shtab is missing: pip install 'pykka-locks[completion]'",
            file=sys.stderr,
        )
        return MISSING
    for action in _actions(root):
        if action.type is Path or action.dest in OF_FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    root.prog = "locks"  # whatever it was called just now
    print(shtab.complete(root, shell))
    return 0


def _actions(root: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All arguments of a command line, those of its commands among them."""
    todo = [root]
    for parser in todo:
        for action in parser._actions:
            yield action
            if isinstance(action, argparse._SubParsersAction):
                todo += action.choices.values()
