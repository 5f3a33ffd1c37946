"""One client with several transactions: how its wait in one of them affects the others.

`locks.core.agent.hold_ups` describes the rules; this module finds the agents with the same client.
Everything is for the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from locks.core.agent.machine import AgentMachine
from locks.core.messages import AgentEffect
from locks.errors import DeadlockAborted, WaitsForItself, anew
from locks.model import RIVALS, AgentId, how_many_block, related, show
from locks.node.ports import NodePort
from locks.runtime.monitor import Ending

if TYPE_CHECKING:
    from typing_extensions import TypeVarTuple, Unpack

    Ts = TypeVarTuple("Ts")

__all__ = ["OwnAgent", "hold_up_others", "interrupt_others", "join_waits", "note_wait"]


class OwnAgent(Protocol):
    """The part of `locks.node.client.agent.Agent` that is needed here."""

    id: AgentId
    name: str
    client: Any

    @property
    def machine(self) -> AgentMachine:
        """Its machine."""

    @property
    def client_key(self) -> Hashable:
        """Its client's key."""

    @property
    def node(self) -> NodePort:
        """The node."""

    def event(self, event: Callable[[Unpack[Ts]], list[AgentEffect]], *args: Unpack[Ts]) -> None:
        """Record one event of the machine, run it, and carry out its effects."""


A = TypeVar("A", bound=OwnAgent)


def hold_up_others(agent: OwnAgent, wait: Hashable, blocks: bool = True) -> None:
    """Hold up a client's other transactions, because it waits with an agent.

    Args:
        agent: The agent.
        wait: The wait, as the agent's machine knows it.
        blocks: Whether the client blocks in it, or only checks whether it is answered at once.

    Raises:
        WaitsForItself: One of these transactions holds the lock that it waits for.
    """
    every = _others(agent)
    others = [each for each in every if not each.machine.empty]
    _check_own(agent, others)
    beside = isinstance(agent.client, Ending)
    if beside:
        others = every  # by another thread it may get something in these before this wait is over
    if others and blocks:
        agent.event(agent.machine.hold_up, wait)
        lock_id = agent.machine.hold_up_id(wait)
        if lock_id is not None:
            for other in others:
                other.event(other.machine.held_up, lock_id, beside)


def note_wait(agent: OwnAgent) -> None:
    """Note, for an owner, that it is about to wait with an agent: it may begin transactions meanwhile."""
    if isinstance(agent.client, Ending):
        agent.client.waiting[agent] = None


def join_waits(agent: OwnAgent) -> None:
    """An owner begins a transaction while it waits in others, by other threads: they hold this one up, too."""
    for other in _waiting(agent.client):
        for wait in other.machine.lasting if other.node is agent.node else ():
            other.event(other.machine.hold_up, wait)
            lock_id = other.machine.hold_up_id(wait)
            if lock_id is not None:
                agent.event(agent.machine.held_up, lock_id, True)


def interrupt_others(agent: OwnAgent) -> None:
    """If an agent was aborted, end the waits of its client with other agents by this error."""
    aborted = agent.machine.ended and agent.machine.ended.reason
    if isinstance(aborted, DeadlockAborted):
        for other in _others(agent):
            if other.machine.awaited:
                text = (
                    f"the wait of {agent.name} with {other.id} was ended, because another transaction of the same "
                    f"client was aborted.\n{aborted}"
                )
                other.event(other.machine.interrupt, anew(aborted, text))


def _waiting(owner: Ending) -> list[OwnAgent]:
    """The agents with which an owner waits; others are forgotten. In the turn, so that no wait begins."""
    for each in list(owner.waiting):
        if not each.machine.awaited:
            owner.waiting.pop(each, None)
    return list(owner.waiting)


def _others(agent: A) -> list[A]:
    """The other agents of the same client."""
    own = list(
        agent.node.clients.get(agent.client_key, ())
    )  # a copy: others may begin during this call
    return [each for each in own if each is not agent]


def _check_own(agent: OwnAgent, others: Iterable[OwnAgent]) -> None:
    """Raise `WaitsForItself` if another transaction of the same client blocks this one."""
    wanted = [info for info in agent.machine.lock_info() if not info.held]
    for other in others:
        for held in other.machine.lock_info():
            for info in wanted:
                if (
                    held.granted
                    and related(held.lock_id, info.lock_id)
                    and held.mode in RIVALS[info.mode]
                    and how_many_block(held.lock_id, info.lock_id) == 1
                ):
                    raise WaitsForItself(
                        f"{agent.name} would wait for itself: it requests {info.mode} {show(info.lock_id)}, but "
                        f"holds {held.mode} {show(held.lock_id)} in another transaction "
                        f"({other.id}). Take both locks in one transaction",
                        lock_id=info.lock_id,
                        holder=other.id,
                    )
