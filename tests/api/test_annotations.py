"""What tools read of the public names: annotations that can be evaluated, and signatures, which both faces have alike."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import typing
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pykka
import pytest

import locks
import locks.aio
import locks.groups
import locks.metrics
import locks.mvcc
import locks.ownership
import locks.testing
import locks.tracing
import locks_leader
import locks_leader.aio

MODULES = [
    *(locks, locks.aio, locks.groups, locks.metrics, locks.mvcc, locks.ownership, locks.testing),
    *(locks.tracing, locks_leader, locks_leader.aio),
]


def public(module: ModuleType) -> list[Any]:
    """Functions and classes of a module, with what programs use of these."""
    found: list[Any] = []
    for name in module.__all__:
        value = getattr(module, name)
        # Pykka has names in annotations of `ActorRef` for type checkers only.
        of_pykka = inspect.isclass(value) and issubclass(value, pykka.ActorRef)
        if inspect.isfunction(value) or (inspect.isclass(value) and not of_pykka):
            found.append(value)
        if inspect.isclass(value):
            found += [function for _, function in methods(value)]
    return found


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    """What programs call of a class: what `help` shows, and `__init__`."""
    shown = getattr(kind, "_for_users", vars(kind))
    for name, member in vars(kind).items():
        function = getattr(member, "__func__", getattr(member, "fget", member))
        if inspect.isfunction(function) and (
            name == "__init__" or (name[0] != "_" and name in shown)
        ):
            yield name, function


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.__name__))
def test_annotations_can_be_evaluated(module: ModuleType) -> None:
    """`typing.get_type_hints`, as pydantic, FastAPI and editors use it."""
    values = public(module)
    assert values
    for value in values:
        typing.get_type_hints(value)


def test_references_of_pykka_have_hints_of_their_own() -> None:
    """Only what Pykka's `ActorRef` says of itself can't be evaluated; when it can be, our references need no exception here."""
    with pytest.raises(NameError, match="ActorInbox"):
        typing.get_type_hints(pykka.ActorRef)


def test_annotations_load_what_they_name() -> None:
    """A program that meets nobody can have the annotations evaluated, too; the classes are the public ones."""
    program = """
import typing, locks
hints = typing.get_type_hints(locks.start)
assert locks.TLS in typing.get_args(hints["tls"]), hints
assert typing.get_type_hints(locks.node.Node.remote)["return"] is locks.node.RemoteRef
assert typing.get_type_hints(locks.node.Node)["cluster"]
import ssl
assert ssl.SSLContext in typing.get_args(typing.get_type_hints(locks.TLS.contexts)["return"])
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=60)
    assert done.returncode == 0


ALIKE = [
    (blocking, awaited, name)
    for blocking, awaited in ((locks, locks.aio), (locks_leader, locks_leader.aio))
    for name in awaited.__all__
    if name in blocking.__all__
]
APART = {  # what only the blocking face has
    "watch": {"watcher"},  # the other one is an iterator
    "Election.__init__": {"on_elected", "on_lost"},  # for code in coroutines there are blocks
}
ONE_SIDED = {"Election.start", "Leadership.__init__"}  # in a thread of its own; made by an election


def of_both(blocking: Any, awaited: Any, name: str) -> Iterator[tuple[str, Any, Any]]:
    """The functions behind a name, or the methods of a class that both faces have."""
    one, other = getattr(blocking, name), getattr(awaited, name)
    if not inspect.isclass(one):
        yield name, one, other
        return
    for inner, method in methods(one):
        twin = inspect.getattr_static(other, inner, None)
        if inspect.isfunction(vars(one)[inner]):
            yield f"{name}.{inner}", method, twin


@pytest.mark.parametrize(
    ("blocking", "awaited", "name"), ALIKE, ids=lambda each: getattr(each, "__name__", each)
)
def test_both_faces_have_the_same_signatures(blocking: Any, awaited: Any, name: str) -> None:
    """Spelled out for `help` and editors: the same parameters, kinds, defaults and annotations, but for the function that is called."""
    for where, one, other in of_both(blocking, awaited, name):
        if where in ONE_SIDED:
            continue
        assert other is not None, where
        ours, theirs = inspect.signature(one).parameters, inspect.signature(other).parameters
        assert [each for each in ours if each not in APART.get(where, ())] == list(theirs), where
        for key, each in theirs.items():
            assert (each.kind, each.default) == (ours[key].kind, ours[key].default), (where, key)
            assert key == "function" or each.annotation == ours[key].annotation, (where, key)


def test_no_option_is_hidden() -> None:
    """Each option is typed, also one of a typed dictionary; only `call` passes on whatever it is given."""
    hidden = [
        value.__qualname__
        for value in public(locks.aio)
        if inspect.isfunction(value)
        for each in inspect.signature(value).parameters.values()
        if each.kind is inspect.Parameter.VAR_KEYWORD
        and not typing.is_typeddict(_type_of_options(value, each.name))
    ]
    assert hidden == ["call"]


def _type_of_options(function: Any, name: str) -> Any:
    """The type of the options; from Python 3.11 on, it is `Unpack` of a typed dictionary."""
    hint = typing.get_type_hints(function).get(name)
    return next(iter(typing.get_args(hint)), hint)


@pytest.mark.parametrize("module", [locks, locks.aio], ids=lambda module: str(module.__name__))
def test_a_wrong_option_is_named_with_those_that_there_are(module: Any) -> None:
    """The message begins with the function that was called."""
    wrong: dict[str, Any] = {"timeouts": 1}
    calls: dict[str, tuple[Any, ...]] = {
        **dict.fromkeys(("Lock", "RLock", "RWLock", "once"), (("a",),)),
        "Semaphore": (("a",), 2),
        "transaction": (),
    }
    for name, arguments in calls.items():
        with pytest.raises(
            TypeError, match=rf"^{name}\(\) .* 'timeouts'; it has .*timeout, owner, "
        ):
            getattr(module, name)(*arguments, **wrong)


def test_a_run_that_surrenders_is_refused_by_both_faces() -> None:
    """A transaction that is run again is aborted first; the option is not passed over."""
    with pytest.raises(TypeError, match="on_deadlock"):
        locks.run_transaction(lambda tx: None, on_deadlock="surrender")  # type: ignore[call-arg]

    async def nothing(tx: locks.aio.Transaction) -> None:
        """Would do nothing."""

    with pytest.raises(TypeError, match="on_deadlock"):
        asyncio.run(locks.aio.run_transaction(nothing, on_deadlock="surrender"))  # type: ignore[call-arg]
