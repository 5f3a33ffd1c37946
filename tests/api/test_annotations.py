"""What tools read of the public names: annotations that can be evaluated, and options that both faces take alike."""

from __future__ import annotations

import asyncio
import inspect
import typing
from types import ModuleType
from typing import Any

import pytest

import locks
import locks.aio
import locks_leader
import locks_leader.aio

# Annotations of Pykka's own `ActorRef`, whose names Pykka has for type checkers only.
OF_PYKKA = {"Agent", "RemoteRef"}
# Annotated with classes of parts that are loaded when a program first meets other nodes.
LOADED_LATER = {"Node", "TLS", "start"}
MODULES = [locks, locks.aio, locks_leader, locks_leader.aio]


def public(module: ModuleType) -> list[Any]:
    """Functions and classes of a module, with what is public in these."""
    found: list[Any] = []
    for name in sorted({*module.__all__} - LOADED_LATER):
        value = getattr(module, name)
        if inspect.isfunction(value) or (inspect.isclass(value) and name not in OF_PYKKA):
            found.append(value)
        if inspect.isclass(value):
            for inner, member in vars(value).items():
                function = getattr(member, "__func__", getattr(member, "fget", member))
                if inspect.isfunction(function) and (inner == "__init__" or inner[0] != "_"):
                    found.append(function)
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.__name__))
def test_annotations_can_be_evaluated(module: ModuleType) -> None:
    """`typing.get_type_hints`, as pydantic, FastAPI and editors use it."""
    values = public(module)
    assert values
    for value in values:
        typing.get_type_hints(value)


def test_a_run_that_surrenders_is_refused_by_both_faces() -> None:
    """A transaction that is run again is aborted first; the option is not passed over."""
    with pytest.raises(TypeError, match="on_deadlock"):
        locks.run_transaction(lambda tx: None, on_deadlock="surrender")  # type: ignore[call-arg]

    async def nothing(tx: locks.aio.Transaction) -> None:
        """Would do nothing."""

    with pytest.raises(TypeError, match="on_deadlock"):
        asyncio.run(locks.aio.run_transaction(nothing, on_deadlock="surrender"))  # type: ignore[call-arg]
