"""Agreements among nodes: fencing tokens of a lock that is held briefly on several nodes."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import pykka
from gevent import GreenletExit

from locks.errors import OperatingError
from locks.node import Node
from locks.ownership.agreements import take_token
from locks.ownership.messages import AgreementFailed
from locks.runtime.actor import tell
from locks.runtime.exits import kill_greenlet
from locks.runtime.port import world
from locks.runtime.waiter import Waiter
from locks_leader.policy import Policy
from locks_leader.sharing import SessionId

__all__ = ["Agreed", "Agreements"]

logger = logging.getLogger("locks.leader")

PAUSE = 0.1  # seconds before an agreement that has failed is tried again

Ref = pykka.ActorRef[Any]


class Agreed(NamedTuple):
    """There is an agreement, which the session `id` wanted when it knew of tokens up to `newest`."""

    id: SessionId
    token: int
    newest: int


class Agreements:
    """Takes agreements, for one participant; in the hub of its node.

    Args:
        node: The node.
        lock_id: The lock of which an agreement is the fencing token.
        label: The label of the lock's holder.
        policy: The policy, which names the nodes.
    """

    def __init__(self, node: Node, lock_id: tuple[Any, ...], label: str, policy: Policy) -> None:
        self._node = node
        self._lock_id = lock_id
        self._label = label
        self._electorate = policy.electorate
        self._greenlet: Any = None

    def take_agreement(self, id: SessionId, newest: int, participant: Ref) -> None:
        """Take an agreement, and send the participant `Agreed` or `AgreementFailed`."""
        self._greenlet = world().new_greenlet(self._take, id, newest, participant)
        self._greenlet.start()

    def ignored(self, participant: Ref, error: Exception) -> None:
        """Log that a message to the participant was not taken in, one line a minute."""
        text = "%s ignored a message: %s"
        self._node.notices.warn("ignored", str(participant), text, participant, error)

    def cancel(self) -> None:
        """Stop taking an agreement."""
        if self._greenlet is not None:
            kill_greenlet(self._greenlet, GreenletExit())
            self._greenlet = None

    def _take(self, id: SessionId, newest: int, participant: Ref) -> None:
        while True:
            try:
                tell(participant, Agreed(id, self._token(), newest))
                return
            except OperatingError as error:  # nodes come and go
                logger.info("there is no agreement on %s yet: %s", self._lock_id, error)
                Waiter().wait(PAUSE, idle=True)
            except Exception as error:
                tell(participant, AgreementFailed(error))
                return

    def _token(self) -> int:
        if self._electorate is None:
            return take_token(
                self._node, self._lock_id, self._label, sorted(self._node.alive), "all_alive"
            )
        return take_token(
            self._node, self._lock_id, self._label, sorted(self._electorate), "majority"
        )
