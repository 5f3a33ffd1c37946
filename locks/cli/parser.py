"""The parser of the command lines: it suggests the nearest known word for a mistyped one.

Python 3.14 suggests commands and choices itself. In addition, an unknown option of a command is answered with the
usage of *that* command.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from locks.errors import nearest

__all__ = ["Parser"]

CHOICE = re.compile(r"invalid choice: '(.*)' \(.*choose from (.*)\)", re.DOTALL)
OPTION = re.compile(r"--[\w-]+")


class Parser(argparse.ArgumentParser):
    """A parser that suggests the nearest known word, and shows its texts as they are. The parsers of its commands do, too.

    Args:
        args: As for `argparse.ArgumentParser`.
        wrong: The exit status for wrong arguments.
        options: As for `argparse.ArgumentParser`.
    """

    def __init__(self, *args: Any, wrong: int = 2, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, **options)
        self._wrong = wrong

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse the arguments of a command; refuse unknown ones here.

        Returns:
            The parsed arguments, and an empty list.
        """
        known, rest = super().parse_known_args(args, namespace)
        if rest:
            options = OPTION.findall(self.format_help())
            self.error(f"unrecognized arguments: {' '.join(rest)}{nearest(rest[0], options)}")
        return known, rest

    def error(self, message: str) -> NoReturn:
        """Print what is wrong, and exit."""
        wrong = CHOICE.search(message)
        if wrong is not None:
            message += nearest(wrong[1], re.findall(r"[\w-]+", wrong[2]))
        self.print_usage(sys.stderr)
        self.exit(self._wrong, f"{self.prog}: error: {message}\n")
