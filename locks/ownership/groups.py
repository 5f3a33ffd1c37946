"""Which group a resource belongs to."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any
from zlib import crc32

from locks.errors import InvalidOption
from locks.lock_ids import DEEPEST, shown
from locks.runtime.callables import check_callable

__all__ = ["Grouping", "stable_hash"]

MOST_GROUPS = 1 << 20


@lru_cache(maxsize=1 << 14, typed=True)
def stable_hash(resource: Hashable) -> int:
    """A number for a resource: the same in every process, on every machine and Python.

    Args:
        resource: Text, bytes, a whole number, or a tuple of those.

    Returns:
        32 bits, evenly spread (CRC-32).

    Raises:
        InvalidOption: It is something else.
    """
    return crc32(_bytes(resource))


def _bytes(resource: Any, depth: int = DEEPEST) -> bytes:
    if isinstance(resource, str):
        return resource.encode("utf-8", "surrogatepass")
    if isinstance(resource, bytes):
        return b"b" + resource
    if isinstance(resource, int):
        return b"i%d" % resource
    if isinstance(resource, tuple) and depth:
        parts = [_bytes(part, depth - 1) for part in resource]
        return b"t" + b"".join(b"%d:%s" % (len(part), part) for part in parts)
    raise InvalidOption(
        f"resource {shown(resource)} has no hash that is the same everywhere: use text, bytes, whole "
        f"numbers and tuples of them, at most {DEEPEST} deep, or give group_for",
        resource=shown(resource),
    )


class Grouping:
    """A number of groups, and the function from resources to them.

    Args:
        groups: How many groups there are.
        group_for: Tells the group of a resource, from 0 to `groups - 1`; a stable hash by default.

    Raises:
        InvalidOption: `groups` is not a whole number from 1 to about a million, or `group_for` can't
            be called.
    """

    def __init__(self, groups: int, group_for: Callable[[Any], int] | None = None) -> None:
        if type(groups) is not int or not 0 < groups <= MOST_GROUPS:
            raise InvalidOption(
                f"groups={groups!r} is not a whole number from 1 to {MOST_GROUPS:,}",
                groups=repr(groups),
            )
        if group_for is not None:
            check_callable(
                group_for, "group_for", "pass a function from a resource to the number of its group"
            )
        self.groups = groups
        self.group_for = group_for

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Grouping):
            return NotImplemented
        return self.groups == other.groups and self.group_for == other.group_for

    __hash__ = None  # type: ignore[assignment]

    def group_of(self, resource: Hashable) -> int:
        """The group of a resource.

        Raises:
            InvalidOption: There is none.
        """
        if self.group_for is None:
            try:
                return stable_hash(resource) % self.groups
            except TypeError:  # not hashable
                return crc32(_bytes(resource)) % self.groups
        group = self.group_for(resource)
        if type(group) is not int or not 0 <= group < self.groups:
            raise InvalidOption(
                f"group_for({resource!r}) is {group!r}, not a whole number from 0 to "
                f"{self.groups - 1}",
                resource=repr(resource),
                group=repr(group),
            )
        return group
