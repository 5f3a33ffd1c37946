"""Errors that clients on other nodes are told: they have the attributes that they had, each checked."""

from __future__ import annotations

import pickle
from typing import Any, get_type_hints

import pytest

import locks
from locks.errors import LocksError
from locks.model import AgentId, Contender, Deadlock, Edge, RequestRecord
from locks.net.actors import RemoteError, text_of
from locks.net.messages import About, Raised, decode, encode
from locks.net.raised import about, error_in

ME, OTHER = AgentId(1 << 40, "a@x", 0), AgentId((1 << 40) + 4097, "b@x", 1)
ID = ("db", 17)
RECORDS = tuple(
    RequestRecord("a@x", number, agent, "ann", ID, "write", "waiting", number, 5, True, 6)
    for number, agent in ((1, ME), (2, OTHER))
)
REPORT = Deadlock(ME, ID, "a@x", "aborted", (Edge(*RECORDS), Edge(*RECORDS[::-1])), "the youngest")
CONTENDER = Contender(OTHER, "bob", ID, "write", True, 5)
KINDS: dict[type[LocksError], list[LocksError]] = {
    locks.LocksError: [
        locks.MisuseError("wrong"),
        locks.errors.OperatingError("down"),
        locks.DeadlockAborted("again", deadlock=REPORT),
    ],
    locks.MisuseError: [
        locks.errors.InvalidLockId("wrong", lock_id="''"),
        locks.errors.InvalidOption("wrong", value="7"),
        locks.errors.ConflictingRequest("again", lock_id=ID),
        locks.errors.NotClient("not yours", agent=ME),
        locks.errors.WaitsForItself("itself", lock_id=ID, holder=OTHER),
        locks.errors.ReentrantCall("within"),
        locks.errors.BlocksEventLoop("in a coroutine"),
        locks.errors.NotHeld("not held", lock_id=ID),
    ],
    locks.errors.OperatingError: [
        locks.errors.NotMarked("not marked", lock_id=ID),
        locks.AlreadyDone("done", lock_id=ID, by="ann", at=1.5, token=7),
        locks.errors.NodeNotRunning("down", nodes=["b@x"]),
        locks.errors.LimitExceeded("full", node="b@x", what="waits", limit=3, present=3),
        locks.LockTimeout("late", lock_ids=[ID], holders=[CONTENDER], timeout=0.5, lost=[("x",)]),
        locks.TransactionEnded("over", agent=ME),
        locks.LockLost("lost", lock_ids=[ID], nodes=["b@x"]),
    ],
    locks.errors.NodeNotRunning: [locks.CannotServe("down", lock_id=ID, nodes=["b@x"])],
    locks.TransactionEnded: [
        locks.errors.TransactionBroken("broken", agent=ME, reason="it sleeps", by="ann")
    ],
}
"""An example of each error, by the kind that it is of."""
EXAMPLES = [error for examples in KINDS.values() for error in examples]


def sent(error: Exception) -> Exception | None:
    """An exception as it arrives elsewhere."""
    raised = decode(encode(Raised(1, type(error).__name__, str(error), about(error))))
    assert isinstance(raised, Raised)
    return error_in(raised)


def test_each_kind_is_here() -> None:
    """A kind of error without an example can't be added."""
    kinds: set[type] = {value for value in vars(locks.errors).values() if _is_error(value)}
    assert {type(error) for error in EXAMPLES} == kinds - {LocksError}


def test_each_error_is_of_its_kind() -> None:
    """All are misuse, an operating error, or an abort; a wrong value is a `ValueError` and a timeout a `TimeoutError`."""
    for kind, examples in KINDS.items():
        assert [error for error in examples if kind not in type(error).__bases__] == []
    assert locks.LocksError.__bases__ == (Exception,)
    assert issubclass(locks.errors.InvalidLockId, ValueError)
    assert issubclass(locks.errors.InvalidOption, ValueError)
    assert issubclass(locks.LockTimeout, TimeoutError)
    assert locks.errors.OperatingError in RemoteError.__bases__


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, LocksError)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_keeps_its_attributes(error: LocksError) -> None:
    """Between nodes and between processes; and it has each that its annotations promise."""
    for again in (sent(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert isinstance(again, LocksError)
        assert again.about == error.about
        for name in get_type_hints(type(error)):
            assert getattr(again, name) == getattr(error, name)


def test_what_is_not_what_it_should_be_is_left_out() -> None:
    """An attribute of another type; an error that lacks what it is about is a `RemoteError` for who has asked."""
    wrong: Any = locks.LockTimeout("late", lock_ids=[ID], holders=[7], timeout=1)  # type: ignore[list-item]
    late: Any = sent(wrong)
    assert (late.holders, late.timeout, late.lock_ids) == ((), 1, (ID,))
    assert error_in(Raised(1, "NotHeld", "not held", About())) is None
    assert error_in(Raised(1, "assert_never", "x", About())) is None


@pytest.mark.parametrize(
    "name", ["args", "about", "message", "self", "__class__", "__traceback__", "__dict__"]
)
def test_what_is_no_attribute_of_an_error_is_left_out(name: str) -> None:
    """Whatever another node says of one, there is an error for who waits for the answer."""
    for kind in KINDS:
        for value in (1, "x"):
            told = Raised(1, kind.__name__, "text", About({name: value, "other": 2}))
            error = error_in(decode(encode(told)))  # type: ignore[arg-type]
            if error is not None:
                assert str(error) == "text"
                assert name not in error.about


@pytest.mark.parametrize("text", ["\ud800" * 5000, "x" * 5000, "\udcff", ""])
def test_every_text_can_be_sent(text: str) -> None:
    """Also one that is long, and is longer as it is sent."""
    decode(encode(Raised(1, "Error", text_of(text))))
