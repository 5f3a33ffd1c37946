"""Whom an instance on a client node is to be connected with, and whom a leader may ask."""

from __future__ import annotations

from locks_leader.core.contenders import Contenders
from locks_leader.policy import Policy, quorum

SERVERS = frozenset({"a@x", "b@x", "c@x"})


def test_all_that_any_server_sees_are_wanted() -> None:
    """Except the own node and the servers; what a server has seen counts until it says otherwise, or is gone."""
    made = Contenders("me@x", SERVERS)
    assert made.viewed("a@x", ["me@x", "one@x", "b@x"]) == {"one@x"}
    assert made.viewed("b@x", ["two@x", "one@x", "two@x"]) == {"one@x", "two@x"}
    assert made.viewed("a@x", []) == {"one@x", "two@x"}
    assert made.lost("b@x") == frozenset()
    assert made.lost("b@x") == frozenset()


def test_who_may_be_asked() -> None:
    """On a node that counts, under the merge lock there; on others, under that of as many as it takes to lead."""
    policy = Policy(2, SERVERS)
    assert policy.may_ask("a@x", {"a@x"})
    assert not policy.may_ask("a@x", {"b@x", "c@x"})
    assert policy.may_ask("one@x", {"b@x", "c@x"})
    assert not policy.may_ask("one@x", {"b@x"})
    assert not quorum(1).may_ask("one@x", {"b@x"})
    assert not Policy().may_ask("one@x", {"b@x"})
