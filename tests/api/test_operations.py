"""Each operation of an agent has the same name, arguments and defaults wherever it is written out.

There are the functions of `locks.original`, the operations of the actor, and the methods of transactions, blocking and for asyncio. Some
are made from others.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import locks
from locks import aio, original
from locks.actors import LockAgent

WAITS = {  # of operations: whether it waits, with a `timeout`
    "lock": True,
    "lock_nowait": False,
    "lock_objects": False,
    "await_all_locks": True,
    "unlock": False,
    "surrender_nowait": False,
    "change_flag": False,
    "transaction_status": False,
    "lock_info": False,
    "fencing_token": True,
    "ensure_held": False,
    "end_transaction": False,
}
OF_FUNCTIONS_ALONE = {"fencing_token_nowait"}
OF_ACTORS_ALONE = {"async_await_all_locks", "monitor_nodes", "stop"}  # of the original
OF_TRANSACTIONS = {  # and whether it waits
    "lock": True,
    "read_lock": True,
    "write_lock": True,
    "lock_all": True,
    "token": True,
    "unit": False,
    "unlock": False,
    "ensure_held": False,
}


def parameters(function: Callable[..., Any], without: int) -> dict[str, inspect.Parameter]:
    """The parameters of a function, but for the first ones."""
    return dict(list(inspect.signature(function).parameters.items())[without:])


@pytest.mark.parametrize("name", WAITS)
def test_functions_and_actors_agree(name: str) -> None:
    """A function has the agent first, and `timeout` last if it waits; the actor's operation has the rest, and is answered later."""
    function = parameters(getattr(original, name), 1)
    timeout = function.pop("timeout", None)
    assert (timeout is not None) is WAITS[name]
    assert timeout is None or timeout.default is None
    found = getattr(LockAgent, name)
    actor = parameters(found, 1)
    assert actor.keys() == function.keys()
    assert {key: each.default for key, each in actor.items()} == {
        key: each.default for key, each in function.items()
    }
    assert (inspect.signature(found).return_annotation == "Later") is WAITS[name]


@pytest.mark.parametrize("name", WAITS)
def test_an_operation_that_does_not_wait_is_the_function(name: str) -> None:
    """The actor has no checks and no code of its own for it."""
    made_from = getattr(getattr(LockAgent, name), "__wrapped__", None)
    assert made_from is (None if WAITS[name] else getattr(original, name))


def test_no_operation_is_left_out() -> None:
    """Each function with an agent first, and each operation of the actor, is in the table."""
    functions = {
        name
        for name in original.__all__
        if inspect.isfunction(found := getattr(original, name))
        and next(iter(inspect.signature(found).parameters), "") == "agent"
    }
    assert functions - OF_FUNCTIONS_ALONE == WAITS.keys()
    assert LockAgent._operations - OF_ACTORS_ALONE == WAITS.keys()


@pytest.mark.parametrize("name", OF_TRANSACTIONS)
def test_blocking_transactions_and_those_for_asyncio_agree(name: str) -> None:
    """Their methods have the same arguments; those that may wait are coroutines."""
    blocking, awaited = getattr(locks.Transaction, name), getattr(aio.Transaction, name)
    assert inspect.signature(blocking) == inspect.signature(awaited)
    assert inspect.iscoroutinefunction(awaited) is OF_TRANSACTIONS[name]
    assert not inspect.iscoroutinefunction(blocking)


@pytest.mark.parametrize("kind", [locks.Transaction, aio.Transaction])
def test_no_method_of_transactions_is_left_out(kind: type) -> None:
    """Each public method is in the table."""
    public = {name for name, _ in inspect.getmembers(kind, inspect.isfunction)}
    assert {name for name in public if not name.startswith("_")} == OF_TRANSACTIONS.keys()
