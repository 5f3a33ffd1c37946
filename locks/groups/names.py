"""The names of groups."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from locks.errors import InvalidLockId, InvalidOption
from locks.lock_ids import check_lock_id, shown

__all__ = ["to_group"]


def to_group(value: Any) -> Hashable:
    """The name of a group, in the form that is the same everywhere: like an element of a lock id.

    Raises:
        InvalidOption: The value can't be the name of a group.
    """
    try:
        (group,) = check_lock_id((value,))
    except InvalidLockId as error:
        raise InvalidOption(f"can't use {shown(value)} as a group: {error}") from error
    return group
