"""What freezing says of fields by their names is about fields that there are."""

from __future__ import annotations

import pickle
import random
from typing import Any

from locks.core.messages import Request
from locks.core.server.machine import ServerMachine
from locks.model import AgentId
from locks_lab.explorer.freezing import DROPPED, SINGLE, Labels, fields
from locks_lab.worlds.world import World

SCRIPTS = ["write a on n1,n2 majority; token a; write b", "write b; read a/1; unlock a/1; write a"]


def test_each_name_is_that_of_a_field() -> None:
    """No name is left over when a field is renamed: its order would count, or its value."""
    found: dict[str, set[str]] = {}
    world = World(SCRIPTS, ("n1", "n2"))
    for server in world.servers.values():
        server.labels = Labels(server)  # type: ignore[attr-defined]
    rng = random.Random(1)
    while choices := world.choices():
        _collect([*world.servers.values(), *world.clients], found, set())
        world.do(rng.choice(choices))
    assert set.union(*found.values()) >= SINGLE
    for name, dropped in DROPPED.items():
        assert found[name] >= dropped


def test_what_was_pickled_goes_on_as_before() -> None:
    """Slots without children share an empty dictionary, which must not become one that they all put children into."""
    server = ServerMachine("n1")
    for number, lock_id in enumerate([("a",), ("b",), ("a", 1)], 1):
        server = pickle.loads(pickle.dumps(server))
        server.handle(Request(AgentId(number, "n1", number), "c", lock_id, "read", False, False))
    assert [holder.lock_id for holder in server.view(("b",)).holders] == [("b",)]


def _collect(value: Any, found: dict[str, set[str]], seen: set[int]) -> None:
    """The names of the fields of all objects that can be reached, by class."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple, set, frozenset)):
        for each in value:
            _collect(each, found, seen)
    elif type(value).__module__.startswith(("locks.", "locks_lab.")):
        names = fields(value)
        found.setdefault(type(value).__name__, set()).update(names)
        for name in names:
            _collect(getattr(value, name, None), found, seen)
