"""With which versions of other projects the tables of `docs/choosing.md` were tried; `test_claims.py` tries each claim."""

from __future__ import annotations

__all__ = ["TRIED", "describe_tried"]

TRIED = {
    "CPython": "3.11",
    "fasteners": "0.20",
    "filelock": "4.3.1",
    "kazoo": "2.11.0, with ZooKeeper 3.8.0",
    "PostgreSQL": "15.18, with psycopg 3.3.9",
    "readerwriterlock": "1.0.10",
    "redis-py": "8.1.0",
}


def describe_tried() -> str:
    """The versions, as a table."""
    return "\n".join(
        ["| Project | Tried with |", "| --- | --- |", *(f"| {a} | {b} |" for a, b in TRIED.items())]
    )
