"""The options of a transaction that its client can change during the transaction."""

from __future__ import annotations

from typing import Any, Literal

from locks.errors import InvalidOption
from locks.lock_ids import shown
from locks.model import plain_text

__all__ = ["Flag", "check_flag"]

Flag = Literal["abort_on_deadlock", "await_nodes", "monitor_nodes", "notify"]
FLAGS: dict[str, Flag] = {
    "abort_on_deadlock": "abort_on_deadlock",
    "await_nodes": "await_nodes",
    "monitor_nodes": "monitor_nodes",
    "notify": "notify",
}


def check_flag(flag: Any, value: Any) -> Flag:
    """Return the name of an option as a plain `str`, free of a subclass's own methods.

    Raises:
        InvalidOption: There is no such option, or the value is not a bool.
    """
    known = FLAGS.get(plain_text(flag) or "")
    if known is None or type(value) is not bool:
        raise InvalidOption(
            f"can't set flag {shown(flag)} to {shown(value)}; the flags are {', '.join(FLAGS)}, "
            "with the values True and False",
            flag=shown(flag),
        )
    return known
