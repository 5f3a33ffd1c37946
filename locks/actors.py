"""Actors: those behind the references of lock servers and agents, an actor on gevent, and monitors of clients.

`LockServer` and `LockAgent` are the classes in `actor_class` and in Pykka's registry, and a proxy
shows their operations. Each operation has the name of the original's function. An operation of an
agent is the function of `locks` with that name: the same arguments, checks, results and errors. A
caller that locks by a lock server itself gets an agent there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from locks import api
from locks.errors import MisuseError, NotHeld
from locks.lock_ids import shown
from locks.model import AgentId, Deadlock, Mode, Require, View, check_lock_id, check_mode, show
from locks.node.client.agent import Agent
from locks.node.client.objects import checked_object, surrender_to
from locks.node.client.scope import Nodes
from locks.node.server import Server
from locks.runtime.actor import GeventActor, kill
from locks.runtime.addressed import Later, TurnActor
from locks.runtime.monitor import Client, Down, Monitor, monitor

__all__ = [
    "Agent",
    "Down",
    "GeventActor",
    "LockAgent",
    "LockServer",
    "Monitor",
    "kill",
    "monitor",
]

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
    """The actor of one transaction's agent; `locks.actors.Agent` is the reference to one.

    Operations that wait for locks are answered when these are granted. If the caller stops waiting
    for the answer, the locks stay requested; `unlock` withdraws them.
    """

    _begun_by = (
        "begin an agent with locks.original.begin_transaction() or locks.original.spawn_agent()"
    )
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
        """Wait for all requested locks; the answer is a `LockResult`."""
        return Later(self._actor_ref.await_later)

    def fencing_token(self, lock_id: Sequence[Any]) -> Later:
        """Answered by the fencing token of a lock that is held. The original has no such function."""
        return Later(partial(self._actor_ref.token_later, check_lock_id(lock_id)))

    # --- Calls without waiting ------------------------------------------------------------------

    lock_nowait = _operation(api.lock_nowait)
    """Request a lock; see `await_all_locks`."""
    lock_objects = _operation(api.lock_objects)
    """Request several locks at once."""
    surrender_nowait = _operation(api.surrender_nowait)
    """Give up a lock to another, waiting agent: its reference, or its id."""
    unlock = _operation(api.unlock)
    """Release an id, or withdraw the request for it. The original has no such function."""
    end_transaction = _operation(api.end_transaction)
    """End the transaction, and with it the agent."""
    lock_info = _operation(api.lock_info)
    """The requests, and their grants."""
    transaction_status = _operation(api.transaction_status)
    """The status, and the deadlocks so far."""
    ensure_held = _operation(api.ensure_held)
    """Raise `LockLost` unless the client still holds its acknowledged locks."""
    change_flag = _operation(api.change_flag)
    """Change an option; see `locks.original.change_flag`."""

    # --- Only of actors, as in the original -----------------------------------------------------

    def async_await_all_locks(self) -> None:
        """Notify the client, an actor, when all that was asked for is granted."""
        self._actor_ref.notify_when_held()

    def monitor_nodes(self, on: bool) -> bool:
        """Set whether the client is notified of lock servers that come and go; return the old value."""
        before = self._actor_ref.monitors_nodes()
        self._actor_ref.change_flag("monitor_nodes", on)
        return before


class LockServer(TurnActor):
    """The actor of one node's lock server, `node.server`.

    A caller of `lock` without an agent gets one there, which ends by `remove_agent` or with the
    caller. Each operation is about the lock table of this one node.
    """

    _begun_by = "a lock server starts with its node, by locks.start()"
    _actor_ref: Server

    def lock(self, lock_id: Sequence[Any], mode: Mode = "write") -> Later:
        """Lock an id for the caller; the answer, when all its requests are granted, is a `LockResult`."""
        checked = check_lock_id(lock_id), check_mode(mode)
        agent = self._actor_ref.agent_of_caller()
        wanted = checked_object(agent.node, *checked, (agent.node.name,), "all")
        return Later(partial(agent.lock_later, (wanted,)))

    def surrender(self, lock_id: Sequence[Any], other: Any = None) -> View:
        """Give up the caller's lock to another agent that waits for it, by default the first; returns the new view."""
        server, checked = self._actor_ref, check_lock_id(lock_id)
        agent = server.agent_of_caller(begin=False)
        if agent is None:
            raise MisuseError(
                f"the caller has no locks from {self}; lock something first", value=shown(checked)
            )
        if other is None:
            found = (each.agent for each in server.node.view(checked).waiting)
            to = next((each for each in found if each != agent.id), None)
            if to is None:
                raise NotHeld(
                    f"can't surrender {show(checked)}: no transaction is waiting for it",
                    lock_id=checked,
                )
        else:
            to = api.checked_agent_id(other)
        surrender_to(agent, checked, to, (server.node.name,))
        return server.node.view(checked)

    def remove_agent(self) -> bool:
        """Release all that the caller has locked by this lock server; returns whether there was anything."""
        agent = self._actor_ref.agent_of_caller(begin=False)
        if agent is not None:
            agent.end_transaction()
        return agent is not None

    def watch(self, lock_id: Sequence[Any], watcher: Any = None) -> None:
        """Tell a watcher, by default the calling actor, the present view of an id, and each later one."""
        self._actor_ref.watch_for(check_lock_id(lock_id), watcher)

    def unwatch(self, lock_id: Sequence[Any], watcher: Any = None) -> None:
        """End what `watch` began."""
        self._actor_ref.watch_for(check_lock_id(lock_id), watcher, on=False)

    def watchers(self, lock_id: Sequence[Any]) -> list[Any]:
        """The watchers of exactly this id, here and on other nodes."""
        return self._actor_ref.watchers(check_lock_id(lock_id))

    def agents(self, lock_id: Sequence[Any]) -> list[Any]:
        """The agents with requests related to this id, in order.

        They are references: `locks.actors.Agent`s of this node, `RemoteRef`s of others.
        """
        node = self._actor_ref.node
        ids = dict.fromkeys(each.agent for each in node.view(check_lock_id(lock_id)).requests)
        found = (node.agent_ref(each) for each in ids)
        return [ref for ref in found if ref is not None]  # else it has ended just now

    def clients(self, lock_id: Sequence[Any]) -> list[Any]:
        """The clients of these agents; of an agent on another node that is the agent, which ends with its client."""
        return [getattr(ref, "client", ref) for ref in self.agents(lock_id)]


Agent._behind = LockAgent
Server._behind = LockServer
