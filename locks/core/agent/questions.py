"""What an agent's machine can be asked; no answer changes anything."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from locks.core.agent.counted import unit_of
from locks.core.agent.fencing import Tokens
from locks.core.agent.gate import answered
from locks.core.agent.hold_ups import OneOfSeveral
from locks.core.agent.requests import has_ended, locks_lost
from locks.errors import NotHeld
from locks.model import LockId, LockInfo, show

__all__ = ["Questions"]


class Questions(OneOfSeveral):
    """The questions to an agent's machine."""

    __slots__ = ()

    tokens_class: ClassVar[type[Tokens]] = Tokens

    _tokens: Tokens | None

    def lost(self) -> tuple[LockId, ...]:
        """What the client was told it has, and must not rely on any more; for `ensure_held`."""
        return tuple(request.lock_id for request in self._ledger.lost())

    def lock_info(self) -> list[LockInfo]:
        """All locks asked for."""
        return [request.info() for request in self._ledger.requests.values()]

    def token(self, lock_id: LockId) -> int | None:
        """The fencing token of a lock that is held.

        Returns:
            The token if it is known: the lock is on one node, or the token was established.
            `None` if it must be established first (`establish_token`).

        Raises:
            NotHeld: It is not held.
            LockLost: It is lost, and the client was not told since that it has it again.
            InvalidOption: It was asked for on several nodes, and needs neither all of them nor
                a majority.
        """
        self.check_alive()
        tokens = self._my_tokens()
        refusal = tokens.refusal(lock_id)
        if refusal is not None:
            raise refusal
        return tokens.known(self._ledger.request(lock_id))

    def unit(self, lock_id: LockId) -> int | None:
        """Which unit of a counted lock it has, counted from 0; raises `NotHeld` if it has none."""
        self.check_alive()
        if not self.holds(lock_id):
            raise NotHeld(f"{self.id} does not hold {show(lock_id)}", lock_id=lock_id)
        return unit_of(self._ledger.request(lock_id))

    def ensure_held(self, lock_id: LockId | None) -> None:
        """Make sure that what the client was told it has is granted, as far as the agent knows.

        Args:
            lock_id: Which lock; `None` for all that it was told it has.

        Raises:
            NotHeld: It is not held, and the client was not told that it is.
            LockLost: It is lost, with a node or by a surrender, and the client was not told since
                that it has it again; or a surrender of it is under way.
        """
        self.check_alive()
        if lock_id is None:
            lost = self._ledger.lost()
            if lost:
                raise locks_lost(self.id, lost)
            return
        request = self._ledger.request(lock_id)
        if self._ledger.is_lost(request):
            raise locks_lost(self.id, (request,))
        if not request.held and request.acknowledged is None:
            raise NotHeld(
                f"{self.id} has requested {show(lock_id)}, but does not hold it yet",
                lock_id=lock_id,
            )

    def asks_for(self, lock_id: LockId) -> bool:
        """Whether this very id was asked for."""
        return lock_id in self._ledger.requests

    def is_answered(self, wait: Hashable) -> bool:
        """Whether all lock servers that are not silent have answered what somebody waits for; it may have to go on waiting."""
        upto = self._waits.upto(wait)
        ledger = self._ledger
        return all(
            answered(r, ledger.alive, ledger.silent) for r in ledger.open.values() if r.seq <= upto
        )

    @property
    def waits_at(self) -> set[str]:
        """The nodes at which it waits for others."""
        return {node for node, _ in self._ledger.waiting}

    def queues_for(self, lock_id: LockId) -> bool:
        """Whether it waits at the gate of a lock, or has not been answered there."""
        return self.ended is None and self._ledger.queues_for(lock_id)

    @property
    def size(self) -> int:
        """How many lock requests there are to save."""
        return len(self._ledger.requests)

    @property
    def empty(self) -> bool:
        """Whether nothing is asked for."""
        return not self._ledger.requests

    def holds(self, lock_id: LockId) -> bool:
        """Whether this very id was asked for and is held."""
        request = self._ledger.requests.get(lock_id)
        return request is not None and request.held

    def check_alive(self) -> None:
        """Raise the reason for which the transaction ended, if it has."""
        if self.ended is not None:
            raise has_ended(self.id, self.ended.reason)

    def _my_tokens(self) -> Tokens:
        if self._tokens is not None:
            return self._tokens
        return self.tokens_class(self.id, self._ledger.requests, self._out)
