"""The differences between two pictures.

A page applies the changes to its old picture to get the new one. For each page, only the picture that was last sent is
kept: a slow page misses the pictures in between, and its next changes lead to the newest one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from locks.web.picture import TABLES, Picture, Row

__all__ = ["NOTHING", "Changes", "applied", "changes", "parts", "with_rows_of"]

NOTHING: Picture = {table: {} for table in TABLES}
PART = 500  # rows in one message


class Changes(NamedTuple):
    """The steps from one picture to another.

    Attributes:
        put: New or changed rows, by table and key.
        gone: The keys of removed rows, by table.
    """

    put: dict[str, dict[str, Row]]
    gone: dict[str, list[str]]


def changes(old: Picture, new: Picture) -> Changes:
    """The changes that turn the old picture into the new one."""
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
    """The picture after the changes, as the page computes it."""
    new = {}
    for table in TABLES:
        lost = set(change.gone.get(table, ()))
        kept = {key: row for key, row in old[table].items() if key not in lost}
        new[table] = kept | change.put.get(table, {})
    return new


def with_rows_of(old: Picture, new: Picture) -> Picture:
    """The new picture, with the same row objects as the old one where rows are equal, so that pages share them."""
    return {
        table: {
            key: before if (before := old[table].get(key)) == row and before is not None else row
            for key, row in new[table].items()
        }
        for table in TABLES
    }


def parts(change: Changes, size: int = PART) -> Iterator[Changes]:
    """Split changes into small parts, at least one. Removals come first."""
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
