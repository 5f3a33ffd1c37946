"""The lock server as Pykka finds it behind its reference: its operations, as in the original.

`LockServer` is what `actor_class` says, what is in Pykka's registry, and what a proxy shows. Each operation has the name of the
original's function. A caller that locks by a lock server itself gets an agent there for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from locks.core.checked import check_agent_id
from locks.errors import InvalidOption, MisuseError, NotHeld
from locks.lock_ids import shown
from locks.model import AgentId, Mode, View, check_lock_id, check_mode, show
from locks.node.client.objects import checked_object, surrender_to
from locks.runtime.addressed import Later, TurnActor

__all__ = ["LockServer"]


class LockServer(TurnActor):
    """The actor of one node's lock server, `node.server`.

    Whoever calls `lock` of it without an agent of its own gets one there, which `remove_agent` ends, or the caller's
    own end. Each operation is about the lock table of this one node.
    """

    _begun_by = "a lock server starts with its node, by locks.start()"
    _actor_ref: Any  # `locks.node.server.Server`, which knows this class

    def lock(self, lock_id: Sequence[Any], mode: Mode = "write") -> Later:
        """Lock an id for the caller; answered by a `LockResult` when all that it has asked for is granted."""
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
            to = _id_of(other)
        surrender_to(agent, checked, to, (server.node.name,))
        return server.node.view(checked)  # type: ignore[no-any-return]

    def remove_agent(self) -> bool:
        """Release all that the caller has locked by this lock server; returns whether there was anything."""
        agent = self._actor_ref.agent_of_caller(begin=False)
        if agent is not None:
            agent.end()
        return agent is not None

    def watch(self, lock_id: Sequence[Any], watcher: Any = None) -> None:
        """Tell a watcher, by default the calling actor, the present view of an id, and each later one."""
        self._actor_ref.watch_for(check_lock_id(lock_id), watcher)

    def unwatch(self, lock_id: Sequence[Any], watcher: Any = None) -> None:
        """End what `watch` began."""
        self._actor_ref.watch_for(check_lock_id(lock_id), watcher, on=False)

    def watchers(self, lock_id: Sequence[Any]) -> list[Any]:
        """Who watches exactly this id, here and on other nodes."""
        return self._actor_ref.watchers(check_lock_id(lock_id))  # type: ignore[no-any-return]

    def agents(self, lock_id: Sequence[Any]) -> list[Any]:
        """The agents that have or want this id, one above it or one below it, in their order.

        They can be monitored and told: `locks.Agent`s of this node, `RemoteRef`s of others.
        """
        node = self._actor_ref.node
        ids = dict.fromkeys(each.agent for each in node.view(check_lock_id(lock_id)).requests)
        found = (node.agent_ref(each) for each in ids)
        return [ref for ref in found if ref is not None]  # else it has ended just now

    def clients(self, lock_id: Sequence[Any]) -> list[Any]:
        """The clients of these agents; of an agent on another node that is the agent, which ends with its client."""
        return [getattr(ref, "client", ref) for ref in self.agents(lock_id)]


def _id_of(agent: Any) -> AgentId:
    """The id of an agent, given by its reference or itself."""
    found = agent if isinstance(agent, AgentId) else getattr(agent, "id", None)
    if found is None:
        raise InvalidOption(f"{shown(agent)} is not an agent", agent=shown(agent))
    return check_agent_id(found)
