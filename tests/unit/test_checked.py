"""Messages that a program sends to lock servers and agents, checked field by field."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locks.core import messages
from locks.core.checked import check_agent_id, check_agent_message, check_server_message
from locks.core.messages import AgentMessage, Release, Request, ServerMessage, Surrendered
from locks.errors import InvalidLockId, MisuseError
from locks.lock_ids import check_lock_id
from locks.model import AgentId, Deadlock, Edge, LockId, Mode, Place, RequestRecord
from tests.unit.strategies import replaced, values

ME = AgentId(28677, "a@h", 5)
RECORD = RequestRecord("a@h", 1, ME, "c", ("a",), "write", "granted", 1, 2, False, 2)
REPORT = Deadlock(ME, ("a",), "a@h", "surrendered", (Edge(RECORD, RECORD),), "because")
NUMBERS = st.integers(-(2**64) + 1, 2**64 - 1)
ANY = {
    int: NUMBERS,
    str: st.text(),
    LockId: st.lists(st.text() | st.integers(), min_size=1, max_size=3).map(tuple),
    Place: NUMBERS | st.fractions(max_denominator=99),
    Hashable: st.just("watcher"),
}
JUNK = st.sampled_from(
    [
        None,
        True,
        -1,
        1.5,
        float("nan"),
        "",
        "WRONG",
        b"read",
        [],
        ["a"],
        {},
        (),
        ("a",),
        object(),
        1 << 99,
    ]
)
ALL = [
    *[(kind, check_server_message) for kind in get_args(ServerMessage)],
    *[(kind, check_agent_message) for kind in get_args(AgentMessage)],
]


@pytest.mark.parametrize(("kind", "check"), ALL, ids=lambda each: each.__name__)
@settings(max_examples=settings().max_examples // 3)
@given(st.data())
def test_a_good_message_is_as_it_was_and_another_one_is_refused_or_good(
    kind: Any, check: Any, data: st.DataObject
) -> None:
    """Whatever its fields may be. Any part replaced by anything: nothing but a `MisuseError`, and what comes through is good."""
    message = data.draw(values(kind, ANY))
    assert check(message) == message
    assert type(check(message)) is kind
    fields = list(message)
    where = data.draw(st.integers(0, len(fields) - 1))
    fields[where] = replaced(fields[where], data, JUNK)
    with suppress(MisuseError):
        checked = check(kind(*fields))
        assert check(checked) == checked


class Text(str):
    pass


class Numbers(tuple):  # type: ignore[type-arg]
    pass


class OwnRequest(Request):  # type: ignore[misc]
    pass


GOOD = Request(ME, "c", ("a",), "write")
WRONG = [
    (GOOD._replace(agent=None), "agent"),
    (GOOD._replace(agent=(28677, "a@h", 5)), "agent"),
    (GOOD._replace(agent=ME._replace(created=1 << 65)), "created"),
    (GOOD._replace(agent=ME._replace(serial=True)), "serial"),
    (GOOD._replace(agent=ME._replace(node=Text("a@h"))), "node"),
    (GOOD._replace(client=b"c"), "client"),
    (GOOD._replace(mode="WRONG"), f"mode: 'WRONG' should be one of {', '.join(get_args(Mode))}"),
    (GOOD._replace(mode=None), "mode"),
    (GOOD._replace(requests_elsewhere=1), "requests_elsewhere"),
    (GOOD._replace(waits_elsewhere=None), "waits_elsewhere"),
    (Release(ME, ("a",), "WRONG"), "mode"),
    (messages.Surrender(ME, ("a",), (1,), None), "waiter"),
    (messages.Surrender(ME, ("a",), (1, 2, 3), None), "waiter"),
    (messages.Surrender(ME, ("a",), Numbers((1, 2)), None), "waiter"),
    (messages.Surrender(ME, ("a",), (1, "x"), None), "part 2"),
    (messages.Surrender(ME, ("a",), None, None, REPORT._replace(action="x")), "report: action"),
    (
        messages.Surrender(ME, ("a",), None, None, REPORT._replace(cycle=(RECORD,))),
        "report: cycle",
    ),
    (messages.RaiseVersion(ME, ("a",), 1, 1 << 70), "version"),
    (OwnRequest(*GOOD), "not a message"),
    (tuple(GOOD), "not a message"),
    ("lock it", "not a message"),
    (None, "not a message"),
]


@pytest.mark.parametrize(("message", "words"), WRONG)
def test_each_field_of_a_message_is_checked(message: Any, words: str) -> None:
    """The error says which one is wrong, and how."""
    with pytest.raises(MisuseError, match=words):
        check_server_message(message)


@pytest.mark.parametrize("lock_id", [["x"], [["x"]], "a", (), (["x"],), (float("nan"),), None])
def test_lock_ids_in_messages_are_checked(lock_id: Any) -> None:
    """A list is a lock id, as everywhere; all that is no lock id is refused by the same error."""
    if lock_id == ["x"]:
        checked = check_server_message(GOOD._replace(lock_id=lock_id))
        assert checked == GOOD._replace(lock_id=("x",))
        return
    with pytest.raises(InvalidLockId):
        check_server_message(GOOD._replace(lock_id=lock_id))
    record = RECORD._replace(lock_id=lock_id)
    answer = Surrendered("a@h", messages.Surrender(ME, ("a",)), True, (record,), 1)
    with pytest.raises(InvalidLockId):
        check_agent_message(answer)


def test_lock_ids_in_messages_become_canonical() -> None:
    """Wherever they are within a message."""

    class Named:
        pass

    named = Named()
    lock_id = check_lock_id(("a", named))
    edge = Edge(RECORD._replace(lock_id=("a", named)), RECORD)
    message = messages.Surrender(ME, ("a", named), report=REPORT._replace(cycle=(edge,)))
    checked = check_server_message(message)
    assert isinstance(checked, messages.Surrender)
    assert checked.lock_id[1] is lock_id[1]
    assert checked.report is not None
    assert checked.report.cycle[0].waiter.lock_id[1] is lock_id[1]


def test_references_of_agents_are_checked() -> None:
    """Where the API takes one."""
    assert check_agent_id(ME) == ME
    for wrong in (ME._replace(created="x"), ME._replace(node=1), (1, "a@h", 1), None):
        with pytest.raises(MisuseError, match="not an agent"):
            check_agent_id(wrong)
