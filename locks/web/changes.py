"""What differs between two pictures.

A page that has the old picture and makes the changes has the new one. Nothing is kept for a page but the picture that it
was last sent: one that reads slowly misses the pictures in between, and its next changes lead to the newest one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from locks.web.picture import TABLES, Picture, Row

__all__ = ["NOTHING", "Changes", "applied", "changes", "parts", "with_rows_of"]

NOTHING: Picture = {table: {} for table in TABLES}
PART = 500  # rows in one message


class Changes(NamedTuple):
    """How to get from one picture to another.

    Attributes:
        put: Rows that are new, or other than before, by table and key.
        gone: The keys of those that are not there any more, by table.
    """

    put: dict[str, dict[str, Row]]
    gone: dict[str, list[str]]


def changes(old: Picture, new: Picture) -> Changes:
    """What is to be done to the old picture to get the new one."""
    put: dict[str, dict[str, Row]] = {}
    gone: dict[str, list[str]] = {}
    for table in TABLES:
        before, after = old[table], new[table]
        if before is after:
            continue
        if other := {key: row for key, row in after.items() if before.get(key) != row}:
            put[table] = other
        if lost := [key for key in before if key not in after]:
            gone[table] = lost
    return Changes(put, gone)


def applied(old: Picture, change: Changes) -> Picture:
    """The picture after the changes; what the page does, too."""
    new = {}
    for table in TABLES:
        lost = set(change.gone.get(table, ()))
        kept = {key: row for key, row in old[table].items() if key not in lost}
        new[table] = kept | change.put.get(table, {})
    return new


def with_rows_of(old: Picture, new: Picture) -> Picture:
    """The new picture, with the very rows of the old one where they are equal: pages that hold old ones share them."""
    return {
        table: {
            key: before if (before := old[table].get(key)) == row and before is not None else row
            for key, row in new[table].items()
        }
        for table in TABLES
    }


def parts(change: Changes, size: int = PART) -> Iterator[Changes]:
    """The same changes in parts, none of which is large; at least one. What is gone comes first."""
    put: dict[str, dict[str, Row]] = {}
    gone: dict[str, list[str]] = {}
    count = 0
    for table, key, row in _each(change):
        if count == size:
            yield Changes(put, gone)
            put, gone, count = {}, {}, 0
        count += 1
        if row is None:
            gone.setdefault(table, []).append(key)
        else:
            put.setdefault(table, {})[key] = row
    yield Changes(put, gone)


def _each(change: Changes) -> Iterator[tuple[str, str, Row | None]]:
    for table, keys in change.gone.items():
        for key in keys:
            yield table, key, None
    for table, rows in change.put.items():
        for key, row in rows.items():
            yield table, key, row
