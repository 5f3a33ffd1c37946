"""What `help` shows of the classes that programs use: what they call, each with a docstring, and no machinery."""

from __future__ import annotations

import inspect
import pydoc
import re
from types import GenericAlias

import pytest

import locks
import locks.mvcc
import locks.ownership
import locks_leader

OWNERSHIP = "group_for groups hold join joined owned owns run statistics stop"
SHOWN: dict[type, str] = {
    locks.actors.Agent: "client deadlocks id is_alive lock_info lost on_lost status stop",
    locks.Lock: "acquire locked owned release token",
    locks.actors.Monitor: "cancel",
    locks.node.Node: "address agents await_nodes connect disconnect link monitor_nodes nodes register remote "
    "spawn_agent statistics stop trace view",
    locks.RWLock: "read_lock write_lock",
    locks.Transaction: "agent deadlocks ensure_held learned lock lock_all lost read_lock token unit unlock write_lock",
    locks.mvcc.LockTable: "acquire_lock add_discovered_lock dequeue is_alive locks scan_and_enqueue state states "
    "statistics stop update_locks wait_for",
    locks.ownership.Ownership: OWNERSHIP,
    locks_leader.Behaviour: "elected from_leader handle_call handle_cast handle_down handle_info handle_leader_call "
    "handle_leader_cast init stepped_down surrendered terminate",
    locks_leader.Election: "leadership run start stop",
    locks_leader.ElectionState: "alive ask_candidates broadcast broadcast_to_candidates candidates ensure_leading "
    "leader leader_node me new_candidates role stop term workers",
    locks_leader.Leadership: "ensure_leading lost term",
    locks_leader.Ownership: OWNERSHIP,
}  # fmt: skip
ATTRIBUTES = {"client", "id", "on_lost", "lost"}  # described in the class


@pytest.mark.parametrize("kind", SHOWN, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_help_shows_what_programs_call(kind: type) -> None:
    """These names and no others; whoever adds one decides whether it is for programs."""
    text = pydoc.plain(pydoc.render_doc(kind))
    shown = set(re.findall(r"^ \|  ([a-z]\w*)(?:\(| *$| =)", text, re.M))
    assert shown - ATTRIBUTES == set(SHOWN[kind].split()) - ATTRIBUTES
    assert kind.__doc__
    for name in SHOWN[kind].split():
        if name in ATTRIBUTES and not isinstance(getattr(kind, name, None), property):
            assert f"{name}: " in kind.__doc__
        else:
            assert getattr(kind, name).__doc__


def test_all_that_is_exported_has_a_docstring() -> None:
    """Functions and classes of both packages, and the methods that `help` shows of them."""
    missing = [
        f"{module.__name__}.{name}"
        for module in (locks, locks_leader, locks.mvcc, locks.ownership)
        for name in module.__all__
        if inspect.isroutine(found := getattr(module, name))
        or (
            isinstance(found, type)
            and type(found) is not GenericAlias  # Python 3.10 takes these for types
        )
        if not pydoc.getdoc(found)
    ]
    assert missing == []
