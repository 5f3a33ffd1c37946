"""The arguments of the command lines."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

__all__ = ["at_least", "share", "skipped"]


def at_least(least: int) -> Callable[[str], int]:
    """The type of an argument that is a whole number, and not less than another one."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is less than {least}")
        return value

    return number


def share(text: str) -> float:
    """The type of an argument that is a number from 0 to 1."""
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def skipped(left_out: Sequence[object], number: int) -> str:
    """That moves were skipped, and which ones."""
    names = " ".join(map(str, left_out))
    return f"skipped {len(left_out)} of {number} moves, which were not possible: {names}"
