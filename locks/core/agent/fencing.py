"""Fencing tokens of locks that are wanted on several nodes.

The token of a lock on one node is the version of its grant. Versions of different nodes have nothing
to do with each other. So for a lock on several nodes one version is chosen, the largest of those of the
grants, and the lock servers are asked to *confirm* it (`RaiseVersion`): one that does so, while its grant
still stands, gives larger versions only from then on. A version is the token when so many have
confirmed it, for grants that are not larger, as the lock is needed on. One whose grant has this very
version need not be asked.

Whoever has asked for the lock on the same nodes, and gets it next, gets it on a quorum that has a node in
common with this one, if the lock is needed on all nodes or on a majority. That node had confirmed this
token before it granted the lock to the next one, whose grant therefore has a larger version, and whose
token is not smaller than that. It makes no difference whether the former holder has released the
lock, has died, or was given up. A lock that is needed on all nodes that are up (`all_alive`) may have
holders in several parts of a network; then all of the part confirm the token, and it is larger than
that of each earlier holder that had the lock on one of these nodes.

A lock server forgets what it has confirmed when it is restarted, so its new versions must begin above
it: decision 0005 says how that is made sure of, and what is assumed.

Rejected: the largest version of the grants without asking (the next holder's quorum may be another
one: the simulator's rule `hasty`); one node of all that counts (it would have to be up);
asking with the request itself (at that time nobody knows the versions of the others).
"""

from __future__ import annotations

from collections.abc import Hashable

from locks.core.agent.requests import Confirmed, LockRequest, locks_lost, needed
from locks.core.messages import AgentEffect, AnswerWait, RaiseVersion, ToServer, VersionRaised
from locks.errors import InvalidOption, LocksError, NotHeld
from locks.model import AgentId, LockId, show

__all__ = ["Tokens"]


class Tokens:
    """The fencing tokens of one agent's locks, and who waits for them.

    Args:
        agent: The agent.
        requests: Its lock requests, by lock id.
        out: Where effects are put.

    Attributes:
        waits: Who waits for a token, and of which lock.
    """

    __slots__ = ("_agent", "_out", "_requests", "waits")

    def __init__(
        self, agent: AgentId, requests: dict[LockId, LockRequest], out: list[AgentEffect]
    ) -> None:
        self._agent = agent
        self._requests = requests
        self._out = out
        self.waits: dict[Hashable, LockId] = {}

    def known(self, request: LockRequest) -> int | None:
        """The token of a lock that is held; nothing if it is not established yet.

        Raises:
            InvalidOption: There is none for what the lock requires.
        """
        grants = request.grants()
        if len(request.node_requests) == 1:
            (since,) = grants.values()
            return since
        if request.require not in ("all", "majority", "all_alive"):
            raise InvalidOption(
                f"{show(request.lock_id)} has no fencing token: it was requested on {len(request.node_requests)} nodes with "
                f"require={request.require!r}, so two transactions can hold it on different nodes. "
                'Request it on one node, or with "all", "majority" or "all_alive"',
                lock_id=request.lock_id,
            )
        confirmed = request.confirmed
        if confirmed is None or not confirmed.token:
            return None
        return confirmed.token if self._is_enough(request, grants, confirmed.token) else None

    def wait(self, lock_id: LockId, wait: Hashable) -> None:
        """Establish the token of a lock that is held, and answer `wait`."""
        self.waits[wait] = lock_id

    def abandon(self, wait: Hashable) -> None:
        """Nobody waits for the answer any more."""
        self.waits.pop(wait, None)

    def raised(self, message: VersionRaised) -> None:
        """Take in a lock server's answer."""
        request = self._requests.get(message.lock_id)
        if message.done and request is not None and request.confirmed is not None:
            reached = request.confirmed.reached
            now = (message.since, message.version)
            if now > reached.get(message.node, (0, 0)):
                reached[message.node] = now

    def refusal(self, lock_id: LockId) -> LocksError | None:
        """Why a lock can't have a token now, if it can't."""
        request = self._requests.get(lock_id)
        if request is not None and (request.lost or (request.lost is not None and request.held)):
            return locks_lost(self._agent, (request,))
        if request is None or not request.held:
            asked = (
                "neither locked nor requested"
                if request is None
                else "requested, but does not hold"
            )
            return NotHeld(
                f"{show(lock_id)} has no fencing token: {self._agent} has {asked} it",
                lock_id=lock_id,
            )
        return None

    def go_on(self) -> None:
        """After each event: answer those who can be answered, and ask whom there is to ask."""
        for wait, lock_id in list(self.waits.items()):
            answer: int | Exception | None = self.refusal(lock_id)
            if answer is None:
                answer = self._established(self._requests[lock_id])
            if answer is not None:
                del self.waits[wait]
                self._out.append(AnswerWait(wait, answer))

    def end(self, reason: Exception) -> None:
        """The agent ends: tell those who wait."""
        self._out += [AnswerWait(wait, reason) for wait in self.waits]
        self.waits.clear()

    def _established(self, request: LockRequest) -> int | None:
        """The token, if enough lock servers have confirmed one; ask those that have not."""
        token = self.known(request)
        if token is not None:
            return token
        confirmed = request.confirmed
        if confirmed is None:
            confirmed = request.confirmed = Confirmed()
        grants = request.grants()
        versions = [max(since, confirmed.token) for since in grants.values()]
        for version in sorted(versions, reverse=True):
            if self._is_enough(request, grants, version):
                confirmed.token = version
                return version
        version = max(versions)
        for node, since in grants.items():
            # More are asked than are needed, so that nobody who is slow is waited for.
            asked = confirmed.asked.get(node) == (since, version)
            if not asked and self._reached(request, node, since) < version:
                confirmed.asked[node] = (since, version)
                message = RaiseVersion(self._agent, request.lock_id, since, version)
                self._out.append(ToServer(node, message))
        return None

    def _is_enough(self, request: LockRequest, grants: dict[str, int], version: int) -> bool:
        """Whether enough lock servers have confirmed a version, for grants that still stand."""
        confirmed = [
            node
            for node, since in grants.items()
            if since <= version <= self._reached(request, node, since)
        ]
        if request.require == "all_alive":  # it is held: so all that are up have granted it
            return len(confirmed) == len(grants)
        return len(confirmed) >= needed(request.require, request.node_requests, ())

    @staticmethod
    def _reached(request: LockRequest, node: str, since: int) -> int:
        """What a lock server has confirmed for a grant; the grant itself is as good."""
        assert request.confirmed is not None
        for_grant, version = request.confirmed.reached.get(node, (0, 0))
        return max(since, version) if for_grant == since else since
