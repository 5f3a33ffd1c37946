"""Each operation of an agent has the same name, arguments and defaults wherever it is written out.

There are the functions of `locks`, the operations of the actor, the methods of transactions, blocking and for asyncio, and the
calls from other nodes. Some are made from others; `OPERATIONS` here says which belong together.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, get_args

import pytest

import locks
from locks import aio
from locks.actors import LockAgent
from locks.node.client.agent import Agent
from locks.node.peers import operations
from locks.node.peers.remote_clients import RemoteAgent


class Operation(NamedTuple):
    """An operation that has the same name among the functions of `locks` and those of the actor.

    Attributes:
        word: What it is called between nodes; `None` if it is for clients on the agent's own node.
        waits: Whether it waits, with a `timeout`.
    """

    word: operations.Word | None
    waits: bool = False


OPERATIONS = {
    "lock": Operation("lock", waits=True),
    "lock_nowait": Operation("ask"),
    "lock_objects": Operation("ask"),
    "await_all_locks": Operation("await", waits=True),
    "unlock": Operation("unlock"),
    "surrender_nowait": Operation("surrender"),
    "change_flag": Operation("flag"),
    "transaction_status": Operation("status"),
    "lock_info": Operation("info"),
    "fencing_token": Operation("token", waits=True),
    "fencing_token_nowait": Operation(None),
    "ensure_held": Operation("ensure_held"),
    "end_transaction": Operation("end"),
}
OF_ACTORS_ALONE = {"async_await_all_locks", "monitor_nodes", "stop"}  # of the original
# What a user of an agent calls on it, here or on another node.
OF_AGENTS = {
    *(
        "ask_for",
        "await_all",
        "change_flag",
        "check_client",
        "end_transaction",
        "ensure_held",
        "give_up",
        "lock_by",
    ),
    *("lock_info", "status", "surrender", "token", "token_nowait", "unlock"),
}
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


@pytest.mark.parametrize("name", OPERATIONS)
def test_functions_and_actors_agree(name: str) -> None:
    """A function has the agent first, and `timeout` last if it waits; the actor's operation has the rest, and is answered later."""
    operation = OPERATIONS[name]
    function = parameters(getattr(locks, name), 1)
    timeout = function.pop("timeout", None)
    assert (timeout is not None) is operation.waits
    assert timeout is None or timeout.default is None
    found = getattr(LockAgent, name, None)
    if operation.word is None:
        assert found is None
        return
    assert found is not None
    actor = parameters(found, 1)
    assert actor.keys() == function.keys()
    assert {key: each.default for key, each in actor.items()} == {
        key: each.default for key, each in function.items()
    }
    assert (inspect.signature(found).return_annotation == "Later") is operation.waits


@pytest.mark.parametrize("name", [name for name, each in OPERATIONS.items() if each.word])
def test_an_operation_that_does_not_wait_is_the_function(name: str) -> None:
    """The actor has no checks and no code of its own for it."""
    made_from = getattr(getattr(LockAgent, name), "__wrapped__", None)
    assert made_from is (None if OPERATIONS[name].waits else getattr(locks, name))


def test_no_operation_is_left_out() -> None:
    """Each function with an agent first, each operation of the actor, and each word between nodes is in the table."""
    functions = {
        name
        for name in locks.__all__
        if inspect.isfunction(found := getattr(locks, name))
        and next(iter(inspect.signature(found).parameters), "") == "agent"
    }
    assert functions - {"break_transaction"} == OPERATIONS.keys()
    assert LockAgent._operations - OF_ACTORS_ALONE == {
        name for name, each in OPERATIONS.items() if each.word is not None
    }
    words = {each.word for each in OPERATIONS.values()} - {None}
    assert operations.OPERATIONS.keys() == set(get_args(operations.Word)) == words | {"more"}


@pytest.mark.parametrize("name", [name for name, each in OPERATIONS.items() if each.word])
def test_what_waits_here_waits_between_nodes(name: str) -> None:
    """The table of calls from other nodes says the same."""
    word = OPERATIONS[name].word
    assert word is not None
    assert operations.OPERATIONS[word].waits is OPERATIONS[name].waits


@pytest.mark.parametrize("name", sorted(OF_AGENTS))
def test_an_agent_elsewhere_is_used_as_one_that_is_here(name: str) -> None:
    """What stands for an agent of another node has the methods that functions use, with the same arguments."""
    here, there = (inspect.signature(getattr(each, name)) for each in (Agent, RemoteAgent))
    assert [(each.name, each.default) for each in there.parameters.values()] == [
        (each.name, each.default) for each in here.parameters.values()
    ]


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
