"""The original's candidates and workers in an election of ours: the shell around `Originals`.

It is made when the first of them is met, so an election among Python nodes only does not pay for
it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pykka

from locks.errors import LocksError, assert_never
from locks.node import Node
from locks.runtime.actor import tell
from locks.values import View
from locks_leader.core.events import Incoming, MemberJoined, Received, Resync
from locks_leader.core.machine import Machine
from locks_leader.core.messages import Message
from locks_leader.original.bridge import (
    Command,
    Hear,
    Meet,
    Originals,
    TellOriginal,
    holder_in,
)
from locks_leader.original.messages import BadOriginalMessage, parse

__all__ = ["OriginalCandidates"]

logger = logging.getLogger("locks.leader")

Ref = pykka.ActorRef[Any]


class OriginalCandidates:
    """The relations of one instance with the original's instances.

    Args:
        machine: The instance's machine.
        node: Its node.
        lock_id: The election's lock.
        node_of: Returns a member's node.
        feed: Gives the instance an event.
        watch: Makes the instance monitor a member.
    """

    def __init__(
        self,
        machine: Machine,
        node: Node,
        lock_id: tuple[Any, ...],
        node_of: Callable[[Ref], str],
        feed: Callable[[Incoming], None],
        watch: Callable[[Ref], None],
    ) -> None:
        me: Any = machine.me
        self._me: Ref = me
        self._node = node
        self._lock_id = lock_id
        self._node_of = node_of
        self._feed = feed
        self._watch = watch
        self._originals = Originals(machine.me, machine.kind)
        node.server.add_watcher(lock_id, me)
        if machine.policy.quorum > 1:
            logger.warning(
                "%s: the candidates of the Erlang original have no policy, so one of them may lead a minority",
                self._me,
            )

    def instance_ended(self) -> None:
        """The instance ends."""
        self._node.server.remove_watcher(self._lock_id, self._me)

    def met(self, member: Ref) -> None:
        """A candidate of the original takes part."""
        self._carry_out(self._originals.met(member))

    def down(self, member: Ref) -> None:
        """Forget an instance of the original that is gone; the caller notifies the machine."""
        self._originals.down(member)

    def send(self, member: Ref, message: Message) -> None:
        """Our machine has a message for one of the original's."""
        self._carry_out(self._originals.send(member, message))

    def viewed(self, view: View) -> None:
        """Take in the holder of the election's lock on this node."""
        self._carry_out(self._originals.granted(holder_in(view)))

    def receive(self, term: tuple[Any, ...]) -> bool:
        """Take in a message of the original; return whether it belongs to an election."""
        try:
            message = parse(term)
        except BadOriginalMessage as error:
            self._node.notices.warn(
                "ignored", str(self._me), "%s ignored a message: %s", self._me, error
            )
            return True
        if message is None:
            return False
        try:
            self._carry_out(self._originals.receive(message))
        except LocksError as error:  # the answer has no term; no caller here has requested it
            logger.error(
                "%s can't send a message to instances of the Erlang original: %s", self._me, error
            )
        return True

    def _carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case TellOriginal():
                    tell(_ref(command.member), command.term)
                case Hear():
                    node = self._node_of(_ref(command.sender))
                    self._feed(Received(command.sender, node, command.message))
                case Meet():
                    member = _ref(command.member)
                    self._feed(MemberJoined(member, self._node_of(member), command.kind))
                    self._watch(member)
                case Resync():
                    self._feed(command)
                case _:
                    assert_never(command)


def _ref(process: Any) -> Ref:
    """A process, which is a reference to an actor here."""
    ref: Ref = process
    return ref
