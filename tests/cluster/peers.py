"""A node in the hands of a test: it goes through the handshake, and then says what the test wants."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from locks.node.peers.greeting import PROTOCOL
from locks.otp.bytes import control
from locks.otp.bytes.terms import Atom, Pid, Reference
from locks.otp.links.budgets import Limits
from locks.otp.process.processes import CALL, CAST, parse_call
from locks.wire.forms import LOCK_SERVER, OURS
from tests.cluster.harness import Address
from tests.cluster.nodes import Stranger

ODD = "odd@127.0.0.1"


class Peer(Stranger):
    """A node that is connected with another one.

    Args:
        address: Where that one listens.
        node: Its name.
        name: What this one is called.
    """

    def __init__(self, address: Address | None, node: str, name: str = ODD) -> None:
        super().__init__(address)
        self.name = name
        self.me = Pid(77, name, 77)
        self.shake_hands(node, name)
        self._calls = itertools.count(1)

    def call(self, request: Any) -> None:
        """Call the lock server."""
        tag = Reference(self.name, 77, (next(self._calls), 0, 0))
        self.tell((CALL, (self.me, tag), request))

    def cast(self, message: Any) -> None:
        """Send the lock server a message of ours."""
        self.tell((CAST, (OURS, *message)))

    def tell(self, term: Any) -> None:
        """Send the lock server anything."""
        self.frame(control.RegSend(self.me, Atom(LOCK_SERVER), term).pack())

    def greet(
        self, *known: Any, version: Any = 1, ticktime: Any = 15.0, protocol: Any = PROTOCOL
    ) -> None:
        """Greet the lock server; a node that is named without an age is alive."""
        entries = [(*each, 0.0) if len(each) == 3 else each for each in known]
        limits = tuple(Limits())
        self.call((OURS, Atom("greeting"), protocol, version, ticktime, entries, limits))

    def calls(self) -> Iterator[tuple[Pid, Any, Any]]:
        """The calls of that node: caller, tag, request."""
        for message in self.messages():
            if isinstance(message, control.RegSend):
                call = parse_call(message.message)
                if call is not None:
                    yield call

    def answer(self, call: tuple[Pid, Any, Any]) -> None:
        """Answer a greeting."""
        self.frame(control.Send(call[0], (call[1], Atom("ok"))).pack())
