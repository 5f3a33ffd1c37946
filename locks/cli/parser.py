"""The parser of the command lines: who mistypes a word is asked whether the nearest one was meant.

Python 3.14 has the first half of it. The other one is that an option which a command does not know is answered with the
usage of *that* command.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from locks.errors import nearest

__all__ = ["Parser"]

CHOICE = re.compile(r"invalid choice: '(.*)' \(.*choose from (.*)\)", re.DOTALL)
OPTION = re.compile(r"--[\w-]+")


class Parser(argparse.ArgumentParser):
    """A parser that suggests the nearest word. Its commands have the same."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse the arguments of a command; refuse here what it does not know.

        Returns:
            What was given, and an empty list.
        """
        known, rest = super().parse_known_args(args, namespace)
        if rest:
            options = OPTION.findall(self.format_help())
            self.error(f"unrecognized arguments: {' '.join(rest)}{nearest(rest[0], options)}")
        return known, rest

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end with status 2."""
        wrong = CHOICE.search(message)
        if wrong is not None:
            message += nearest(wrong[1], re.findall(r"[\w-]+", wrong[2]))
        super().error(message)
