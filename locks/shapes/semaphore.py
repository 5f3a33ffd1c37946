"""`Semaphore`: a lock that a given number of clients may hold at the same time.

It is a lock on a *counted* id, below the id that it was made from. `docs/algorithm.md` says how lock servers
grant its units, and how deadlocks through them are found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from locks.lock_ids import units
from locks.model import show
from locks.node.client.options import ClientOptions, check_names
from locks.node.client.refusals import not_held
from locks.node.client.scope import Nodes
from locks.primitives import Lock, await_servers
from locks.runtime.hints import Unpack
from locks.runtime.leaving import Hold

__all__ = ["Semaphore"]


class Semaphore(Lock):
    """A counted lock on one id, used like a `threading.Semaphore`: `value` clients may hold it at the same time.

    Clients get it in the order of their requests. Each holder has one *unit*, which is free as soon as the client
    dies, and which has a fencing token like a lock: the tokens of one unit increase, as `Lock.token` says. Unlike a `threading.Semaphore`, it
    can only be released by the client that acquired it, and each client holds at most one unit.

    Args:
        lock_id: A non-empty tuple or list of key elements; see `locks.values.units` for its relation to other ids.
        value: How many clients may hold it at the same time. All uses of `lock_id` must have the same number.
        nodes: As for `Lock`. If there are several, a unit is needed on all of them.
        **options: `timeout`, `owner` and `label`; see `locks.values.ClientOptions`.
    """

    def __init__(
        self,
        lock_id: Sequence[Any],
        value: int,
        *,
        nodes: Nodes | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        check_names("Semaphore", options, ClientOptions, "nodes")
        super().__init__(units(lock_id, value), nodes=nodes, require="all", **options)
        self.value = value

    _for_users = Lock._for_users | {"unit"}
    _held_already = (
        "the caller already holds a unit of it, and each client of a Semaphore holds at most one"
    )

    def __repr__(self) -> str:
        return f"<Semaphore {show(self.lock_id)}>"

    def _acquire(
        self, timeout: float | None, blocking: bool, hold: Hold, quiet: bool = False
    ) -> bool:
        node = self._home()
        await_servers(node, self.where(node).nodes, timeout)  # a majority may be there alone
        return super()._acquire(timeout, blocking, hold, quiet)

    def locked(self) -> bool:
        """Whether no unit is free; asks a server and raises errors like `Lock.locked`."""
        found = self._holders()
        taken = sum(holder.lock_id == self.lock_id for holder in found)
        return taken >= self.value or taken < len(found)

    def unit(self) -> int:
        """The caller's unit, from 0 to `value` - 1; of several nodes, that on the first one by name.

        Raises:
            NotHeld: The caller holds no unit.
        """
        agent = self._agent()
        if agent is None:
            raise not_held(self.lock_id)
        return agent.unit(self.lock_id)
