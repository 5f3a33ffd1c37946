"""A connected node says anything that can be read: whatever it is, the locks of others stay, and the node lives.

What can't be read has its tests in `tests/net/test_messages.py`.
"""

from __future__ import annotations

import logging
from typing import Any, get_args

import msgspec
import pytest

from locks.model import AgentId
from locks.net.messages import Frame, encode
from tests.cluster.nodes import A, B, Nodes, Peer, Tx, until_members
from tests.helpers import EXPLORE, SEED, eventually
from tests.net.made import Maker

BAD = "bad@127.0.0.1"
TIMES = 3000 if EXPLORE else 60


class Mixed(Maker):
    """Makes frames about what is there: agents of the sender and of others, numbers of theirs, names of nodes."""

    def __init__(self, seed: int, agents: list[AgentId]) -> None:
        super().__init__(seed)
        self.agents = agents

    def of(self, kind: Any) -> Any:
        """A value of a type, often one that means something here."""
        if kind is AgentId and self.random.random() < 0.9:
            return self.random.choice(self.agents)
        made = super().of(kind)
        if type(made) is int and self.random.random() < 0.3:
            return self.random.choice(self.agents).created
        if type(made) is str and self.random.random() < 0.5:
            return self.random.choice([A, B, BAD, "taken"])
        return made


@pytest.mark.parametrize("kind", get_args(Frame), ids=lambda kind: kind.__name__)
def test_whatever_a_node_says_the_locks_of_others_stay(
    nodes: Nodes, kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is taken in, or ends the connection for a reason that was thought of."""
    caplog.set_level(logging.ERROR, "locks")
    a, b = nodes.meet(A, B)
    tx = Tx(b)
    tx.lock(("held",), [A])
    waiting = Tx(b)
    asked = waiting.ask(("held",), [A], timeout=60)
    agents = [AgentId((10**15 + n) << 12, BAD, 0) for n in range(3)] + [tx.agent.id]
    bad = None
    for seed in range(SEED, SEED + TIMES):
        for node in (a, b):
            if bad is None or bad.is_over:
                bad = _Bad(node)
            frame = Mixed(seed, agents).struct(kind)
            try:
                bad.frame(encode(frame))
            except (OSError, msgspec.MsgspecError, OverflowError):
                bad = None
        assert tx.agent.machine.ended is None, seed
        assert [each.agent for each in a.view(("held",)).holders] == [tx.agent.id], seed
    assert "failed to carry out" not in caplog.text
    if bad is not None:
        bad.close()
    eventually(lambda: BAD not in a.nodes() and BAD not in b.nodes())
    until_members(b, A, B)
    tx.end()
    asked.result(30)
    waiting.end()


class _Bad(Peer):
    """A node that says anything."""

    def __init__(self, node: Any) -> None:
        super().__init__(node.address, node.name, BAD)
        self.socket.setblocking(False)

    @property
    def is_over(self) -> bool:
        """Whether the other side has closed the connection."""
        try:
            while self.socket.recv(65536):
                pass
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True
