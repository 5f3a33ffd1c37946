"""Times as options take them: a number and a unit, such as `10s` and `12h`."""

from __future__ import annotations

from math import inf

from locks.errors import InvalidOption
from locks.shapes.once import DAY

__all__ = ["parse_time"]

UNITS: dict[str, float] = {"s": 1, "m": 60, "h": 3600, "d": DAY, "w": 7 * DAY}


def parse_time(option: str, text: str) -> float:
    """The seconds of a time.

    Args:
        option: The name of the option, for the error.
        text: The time.

    Raises:
        InvalidOption: It is not a time.
    """
    try:
        seconds = float(text[:-1]) * UNITS[text[-1]]
    except (ValueError, KeyError, IndexError):
        seconds = inf
    if not 0 <= seconds < inf:
        raise InvalidOption(
            f"{option} {text} is not a time; write a number and s, m, h, d or w, such as 12h"
        )
    return seconds
