"""The model of the original's elections (`locks_lab.original.elections`) against the original itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from locks.otp.bytes.terms import Atom
from tests.erlang.elections import Played
from tests.erlang.erlang import Erlang
from tests.helpers import eventually
from tests.original.elections import SCRIPTS, foreseen


@pytest.fixture
def two(erlang: Erlang, more_erlang: Callable[..., Erlang]) -> list[Erlang]:
    """Two nodes that are connected."""
    other = more_erlang("e2@127.0.0.1")
    assert erlang.call("main", "net_adm", "ping", Atom(other.name)) == Atom("pong")
    return [erlang, other]


@pytest.mark.parametrize(("script", "homes"), SCRIPTS)
def test_callbacks(two: list[Erlang], script: str, homes: str) -> None:
    """What real instances are told is one of what the model allows."""
    assert Played(two[: len(homes.split())]).play(script) in foreseen(script, homes)


def test_whoever_is_killed_with_the_merge_lock_leaves_it_behind(erlang: Erlang) -> None:
    """Its helper keeps the lock, and that of the next candidate waits for it: so nobody leads."""
    played = Played([erlang])
    played.start(1, "hangs")
    eventually(lambda: len(queue(erlang, played.resource)) == 1)
    played.start(2)
    played.kill(1, hangs=True)
    eventually(lambda: len(queue(erlang, played.resource)) == 2)
    assert played.leader(2) is None
    first, second = queue(erlang, played.resource)
    assert first != second
    played.kill(2)
    for group in queue(erlang, played.resource):
        erlang.call("main", "driver", "kill", group)


def queue(erlang: Erlang, resource: str) -> list[Any]:
    """The agents in the queue of the merge lock."""
    lock_id = [Atom("locks_leader"), Atom("sync"), resource]
    rows = erlang.call("asks", "ets", "lookup", Atom("locks_server_locks"), lock_id)
    return [entry[1] for row in rows for _, entries in row[4] for entry in entries]
