"""What clients with `notify` are told: each kind, with the value that the how-to says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import locks
from locks.program.default import stand_in
from tests.cluster.nodes import A, B, Nodes, Tx, peer
from tests.helpers import eventually

X, Y = ("x",), ("y",)
KINDS: dict[str, Any] = {  # and how the value of each looks
    "waiting": lambda value: value is None,
    "have_all_locks": lambda value: value == (),
    "no_locks": lambda value: value is None,
    "cannot_serve": lambda value: value is None,
    "lock_info": lambda value: isinstance(value, locks.values.RequestRecord),
    "lost": lambda value: value == (X,),
    "token": lambda value: value[0] == Y and isinstance(value[1], int),
    "nodeup": lambda value: value == B,
    "nodedown": lambda value: value == B,
    "aborted": lambda value: isinstance(value, locks.values.Deadlock),
    "ended": lambda value: isinstance(value, locks.LockLost),
}


def test_each_kind_is_told(nodes: Nodes) -> None:
    """And looks as it is documented."""
    news: dict[str, list[Any]] = {}

    def told(each: locks.values.Notification) -> None:
        news.setdefault(each.kind, []).append(each.value)

    def has(*kinds: str) -> None:
        eventually(lambda: set(kinds) <= set(news))

    def until_it_has_all(agent: locks.actors.Agent) -> None:
        eventually(lambda: locks.original.transaction_status(agent).status == "have_all_locks")

    a = nodes.start(A)
    with stand_in(a):
        agent = locks.original.spawn_agent(notify=told, monitor_nodes=True, await_nodes=True)
        locks.original.lock_nowait(agent, X, nodes=[B])
        has("cannot_serve")
        b = nodes.start(B)
        assert a.connect(peer(b))
        has("nodeup", "have_all_locks", "lock_info")
        other = Tx(a)
        other.lock(Y)
        locks.original.lock_nowait(agent, Y, nodes=[A])
        has("waiting")
        other.end()
        until_it_has_all(agent)
        locks.original.fencing_token_nowait(agent, Y)
        has("token")
        second = locks.original.spawn_agent(notify=told)
        locks.original.lock_nowait(second, ("z",), nodes=[B])
        until_it_has_all(second)
        b.stop()
        has("nodedown", "lost", "ended")
        locks.original.unlock(agent, X)
        locks.original.unlock(agent, Y)
        has("no_locks")
        elder = Tx(a)
        elder.lock(Y)
        victim = locks.original.spawn_agent(notify=told, abort_on_deadlock=True)
        locks.original.lock(victim, X, nodes=[A])
        waits = elder.ask(X)
        eventually(lambda: locks.queue(X).waiting)
        locks.original.lock_nowait(victim, Y, nodes=[A])
        has("aborted")
        waits.result(30)
        elder.end()
        locks.original.end_transaction(agent)
    for kind, values in news.items():
        assert any(KINDS[kind](value) for value in values), (kind, values)
    assert set(news) == set(KINDS)


def test_the_list_is_complete() -> None:
    """On the page, and here."""
    kinds = get_args(get_type_hints(locks.values.Notification)["kind"])
    page = (Path(__file__).parents[2] / "docs" / "actors.md").read_text()
    table = page[page.index("| `kind` | What happened |") :].split("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", table, re.M)
    assert len(rows) - 1 == table.count("\n") - 1
    assert sorted(rows[1:]) == sorted(kinds) == sorted(KINDS)
