"""Which servers have the locks of an id, if each id is on some of the servers only (`copies`). Pure.

Every program that shares the servers must find the same ones, whichever version of Python or of `locks` it runs. So this never
changes: the first element of the id decides, by rendezvous hashing. Each server gets a score, the SHA-256 hash of its name and of
the element; the servers with the highest scores have the id. Ids with the same first element are together, so two ids that are
related are. If a server is added or removed, the ids of the others stay where they are.

The name decides of an election, because the ids of all elections begin with the same element. A lock on that element
alone would cover ids on different servers; no server could grant it.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from locks.words import ELECTIONS, LockId

__all__ = ["key_of", "place"]


def key_of(lock_id: LockId) -> tuple[Any, ...]:
    """The element that decides where an id is, in a tuple, in a form that is the same for equal elements.

    Returns:
        An empty tuple if the id covers ids that are on different servers.
    """
    first, rest = lock_id[0], lock_id[1:]
    if first in ELECTIONS:
        return (_same(rest[0]),) if rest else ()
    if type(first) is str:
        return (first,)
    return (_same(first),)


def _same(element: Any) -> Any:
    """An element in a form that is the same for all that are equal to it: 1, 1.0 and `True` are."""
    if isinstance(element, tuple):
        return tuple([_same(each) for each in element])
    if isinstance(element, bool) or (
        isinstance(element, float) and element.is_integer() and abs(element) < 1 << 63
    ):
        return int(element)
    return element


def place(key: bytes, servers: Iterable[str], copies: int) -> tuple[str, ...]:
    """The servers that have the ids with an element, sorted by name.

    Args:
        key: The element of `key_of`, as it is sent to other nodes.
        servers: All servers.
        copies: How many of them have each id.
    """
    scores = sorted(
        [(sha256(server.encode() + b"\0" + key).digest(), server) for server in servers]
    )
    return tuple(sorted([server for _, server in scores[-copies:]]))
