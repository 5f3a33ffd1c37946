"""Agents as Pykka finds them behind their references: the functions of `locks`, as operations of an actor.

`LockAgent` is what `Agent.actor_class` says, what is in Pykka's registry, and what a proxy shows. Each operation has the name of the
original's function, and is the function of `locks` with that name: the same arguments, checks, results and errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from locks import api
from locks.model import AgentId, Deadlock, Mode, Require, check_lock_id
from locks.node.client.agent import Agent
from locks.node.client.objects import checked_object
from locks.node.client.scope import Nodes
from locks.runtime import Client
from locks.runtime.addressed import Later, TurnActor

__all__ = ["LockAgent"]

P = ParamSpec("P")
T = TypeVar("T")


def _operation(
    function: Callable[Concatenate[Agent, P], T],
) -> Callable[Concatenate[LockAgent, P], T]:
    """Make a function with an agent first an operation of the agent's actor."""

    @wraps(function)
    def called(self: LockAgent, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return function(self._actor_ref, *args, **kwargs)

    return called


class LockAgent(TurnActor):
    """The actor of one transaction's agent; `locks.Agent` is the reference to one.

    What waits for locks is answered when they are granted. An answer that nobody asks for any more stays asked
    for: `unlock` withdraws it.
    """

    _begun_by = "begin an agent with locks.begin_transaction() or locks.spawn_agent()"
    _actor_ref: Agent

    @property
    def id(self) -> AgentId:
        """The agent's id, as views and reports have it."""
        return self._actor_ref.id

    @property
    def client(self) -> Client:
        """Whose transaction it is."""
        return self._actor_ref.client

    @property
    def deadlocks(self) -> tuple[Deadlock, ...]:
        """The deadlocks of the transaction that were resolved so far."""
        return self._actor_ref.deadlocks()

    # --- What is answered later -----------------------------------------------------------------

    def lock(
        self,
        lock_id: Sequence[Any],
        mode: Mode = "write",
        nodes: Nodes | None = None,
        require: Require | None = None,
    ) -> Later:
        """Lock an id; answered by a `LockResult` when this and all earlier requests are granted."""
        agent = self._actor_ref
        wanted = checked_object(agent.node, lock_id, mode, nodes, require)
        return Later(partial(agent.lock_later, (wanted,)))

    def await_all_locks(self) -> Later:
        """Answered by a `LockResult` when all that was asked for is granted."""
        return Later(self._actor_ref.await_later)

    def fencing_token(self, lock_id: Sequence[Any]) -> Later:
        """Answered by the fencing token of a lock that is held. The original has no such function."""
        return Later(partial(self._actor_ref.token_later, check_lock_id(lock_id)))

    # --- What is answered at once ---------------------------------------------------------------

    lock_nowait = _operation(api.lock_nowait)
    """Ask for a lock; see `await_all_locks`."""
    lock_objects = _operation(api.lock_objects)
    """Ask for several locks at once."""
    surrender_nowait = _operation(api.surrender_nowait)
    """Give up a lock to another agent that waits for it: its reference, or its id."""
    unlock = _operation(api.unlock)
    """Release an id, or withdraw the request for it. The original has no such function."""
    end_transaction = _operation(api.end_transaction)
    """End the transaction, and with it the agent."""
    lock_info = _operation(api.lock_info)
    """What was asked for, and what of it is granted."""
    transaction_status = _operation(api.transaction_status)
    """The status, and the deadlocks so far."""
    ensure_held = _operation(api.ensure_held)
    """Raise `LockLost` unless the client still has what it was told it has."""
    change_flag = _operation(api.change_flag)
    """Change an option; see `locks.change_flag`."""

    # --- Only of actors, as in the original -----------------------------------------------------

    def async_await_all_locks(self) -> None:
        """Notify the client, an actor, when all that was asked for is granted."""
        self._actor_ref.notify_when_held()

    def monitor_nodes(self, on: bool) -> bool:
        """Whether the client is told of lock servers that come and go; returns what it was before."""
        before = self._actor_ref.monitors_nodes()
        self._actor_ref.change_flag("monitor_nodes", on)
        return before


Agent._behind = LockAgent
