"""The original's candidates and workers in an election of ours: the shell around `Originals`.

It is made when the first of them is met, so an election among Python nodes alone pays nothing for it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pykka

from locks import View
from locks.runtime import tell
from locks_leader.core.messages import Message
from locks_leader.shell.transactions import LOCKS_LEADER
from locks_leader.wire.original_bridge import Command, Hear, Meet, Originals, Tell, holder_in
from locks_leader.wire.original_messages import BadMessage, LeaderGone, LeaderReply, parse

if TYPE_CHECKING:
    from locks_leader.shell.instance import Instance

__all__ = ["OriginalCandidates"]

logger = logging.getLogger("locks")

Ref = pykka.ActorRef[Any]


class OriginalCandidates:
    """What one instance has to do with the original's instances.

    Args:
        instance: The instance.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._originals = Originals(instance.actor_ref, instance.machine.kind)
        instance.node.server.add_watcher(instance.lock_id, instance.actor_ref)
        if instance.machine.policy.quorum > 1:
            logger.warning(
                "%s: the original's candidates know no policy: one of them may lead a minority",
                instance,
            )

    def end(self) -> None:
        """The instance ends."""
        self._instance.node.server.remove_watcher(self._instance.lock_id, self._instance.actor_ref)

    def met(self, member: Ref) -> None:
        """A candidate of the original takes part."""
        self._carry_out(self._originals.met(member))

    def down(self, member: Ref) -> None:
        """One of the original's is gone; the machine is told as well."""
        self._originals.down(member)

    def send(self, member: Ref, message: Message) -> None:
        """Our machine has a message for one of the original's."""
        self._carry_out(self._originals.send(member, message))

    def viewed(self, view: View) -> None:
        """Who has the election's lock on this node."""
        self._carry_out(self._originals.granted(holder_in(view)))

    def receive(self, term: tuple[Any, ...]) -> bool:
        """One of the original's says something; returns whether it is a message of an election."""
        try:
            message = parse(term)
        except BadMessage as error:
            if term[0] == LOCKS_LEADER:
                logger.warning("%s ignores a message: %s", self._instance, error)
                return True
            return False
        if term[0] != LOCKS_LEADER and not isinstance(message, (LeaderReply, LeaderGone)):
            return False
        self._carry_out(self._originals.receive(message))
        return True

    def _carry_out(self, commands: list[Command]) -> None:
        instance = self._instance
        machine = instance.machine
        for command in commands:
            if isinstance(command, Tell):
                tell(_ref(command.member), command.term)
                continue
            if isinstance(command, Hear):
                node = instance.node_of(_ref(command.sender))
                effects = machine.receive(command.sender, node, command.message)
            elif isinstance(command, Meet):
                node = instance.node_of(_ref(command.member))
                effects = machine.joined(command.member, node, command.kind)
            else:
                effects = machine.resync(command.member)
            instance.perform(effects)


def _ref(process: Any) -> Ref:
    """A process, which is a reference to an actor here."""
    ref: Ref = process
    return ref
