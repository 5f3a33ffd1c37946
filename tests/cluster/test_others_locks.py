"""What a connected node can't do to the locks of others: it speaks for itself only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from locks.otp.bytes import control
from locks.otp.bytes.behaviours import CALL, CAST
from locks.otp.bytes.terms import Atom, Pid, Reference
from locks.wire.forms import OURS, pid_of

from tests.cluster.nodes import A, B, Nodes, Stranger, Tx, link
from tests.helpers import eventually

BAD = "bad@127.0.0.1"
ME = Pid(3, BAD, 77)
ID = ["held"]


def to(agent: Pid, term: Any) -> bytes:
    """A message to an agent."""
    return control.Send(agent, term).pack()


def call(agent: Pid, caller: Pid, verb: str) -> bytes:
    """A call of an agent."""
    tag = Reference(caller.node, 1, (1,))
    return to(agent, (CALL, (caller, tag), (OURS, Atom(verb), caller)))


RECORD = (A, 1, 0, 0, ID, Atom("write"), Atom("gone"), 1, 1, False, 1 << 40)
FORGED: dict[str, Callable[[Pid, Pid], list[bytes]]] = {
    "exit": lambda agent, _: [control.Exit2(ME, agent, Atom("kill")).pack()],
    "exit in the client's name": lambda agent, client: [
        control.Exit2(client, agent, Atom("kill")).pack()
    ],
    "link and exit": lambda agent, _: [
        control.Link(ME, agent).pack(),
        control.Exit(ME, agent, Atom("kill")).pack(),
    ],
    "the lock server's word": lambda agent, _: [
        to(agent, (OURS, Atom("released"), A, ID, [])),
    ],
    "its records": lambda agent, _: [to(agent, (OURS, Atom("told"), A, [RECORD]))],
    "an agent's word": lambda agent, _: [
        to(agent, (OURS, Atom("knowledge"), Pid(1 << 12, A, 1), [], True)),
    ],
    "the client's call": lambda agent, client: [call(agent, client, "end")],
    "the lock server's cast": lambda agent, client: [
        control.RegSend(client, Atom("locks_server"), (CAST, (OURS, Atom("remove"), agent.number))).pack(),
    ],
}  # fmt: skip


@pytest.mark.parametrize("what", FORGED)
def test_nobody_takes_the_lock_of_another(nodes: Nodes, what: str) -> None:
    """What is said in another's name ends the connection of who says it, and nothing else."""
    a, b = nodes.meet(A, B)
    tx = Tx(b)
    agent, client = tx.agent.id, ME._replace(node=B)
    tx.lock(("held",), [A])
    assert [each.agent for each in a.view(("held",)).holders] == [agent]
    stranger = Stranger(b.address)
    stranger.say_hello(b.name, BAD)
    eventually(lambda: BAD in b.nodes())
    pid = pid_of(agent, b.cluster.network.creation)  # type: ignore[union-attr]
    for frame in FORGED[what](pid, client):
        stranger.frame(frame)
    assert stranger.is_closed()
    eventually(lambda: BAD not in b.nodes())
    assert link(a, B).closed is None
    assert [each.agent for each in a.view(("held",)).holders] == [agent]
    assert b.agents_by_id[agent].machine.ended is None
    tx.die()
