"""Fencing tokens of locks on several nodes.

The token of a lock on one node is the version of its grant. Versions of different nodes are
unrelated. So for a lock on several nodes the agent chooses one version, the largest of its grants,
and requests the lock servers to *confirm* it (`RaiseVersion`). A lock server confirms it if its
grant still exists, and assigns only larger versions from then on. The version becomes the token
when as many nodes have confirmed it as the lock needs. A confirmation counts only if the node's
grant is not larger than the version. A node whose grant has exactly this version counts as
confirmed.

Why are tokens of later holders larger? Take a lock that needs all its nodes or a majority. The
quorum of the next holder has a node in common with the quorum of this one. That node confirmed this
token before it granted the lock again. So the next grant has a larger version there, and the next
token is at least as large as that grant. It makes no difference how the former holder lost the
lock: by release, by its death or by surrender. A lock with `all_alive` may have holders in several
parts of a split network. There, all nodes of one part confirm the token. So it is larger than the
token of each earlier holder that held the lock on one of these nodes.

A lock server forgets its confirmations when it restarts, so its new versions must begin above them.
Decision 0009 says how this is ensured, and under which assumptions.

Rejected: the largest version of the grants without confirmation (the next holder may have another
quorum; the simulator's rule `hasty` shows it); one distinguished node (it would have to be up); a
confirmation together with the request (at that time no one knows the versions of the other nodes).
"""

from __future__ import annotations

from collections.abc import Hashable

from locks.core.agent.requests import Confirmed, LockRequest, locks_lost, needed
from locks.core.messages import AgentEffect, AnswerWait, RaiseVersion, ToServer, VersionRaised
from locks.errors import InvalidOption, LocksError, NotHeld
from locks.model import AgentId, LockId, show

__all__ = ["Tokens"]


class Tokens:
    """The fencing tokens of one agent's locks, and the waits for them.

    Args:
        agent: The agent.
        requests: Its lock requests, by lock id.
        out: The list to which effects are appended.

    Attributes:
        waits: The pending waits for tokens, each with its lock id.
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
        """The token of a lock that is held; `None` if it is not established yet.

        Raises:
            InvalidOption: Locks with this `require` have no token.
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

    def await_token(self, lock_id: LockId, wait: Hashable) -> None:
        """Answer `wait` when the token of this held lock is established."""
        self.waits[wait] = lock_id

    def abandon_wait(self, wait: Hashable) -> None:
        """Forget a wait: its answer is no longer needed."""
        self.waits.pop(wait, None)

    def raised(self, message: VersionRaised) -> None:
        """Take in a lock server's confirmation, or its refusal."""
        request = self._requests.get(message.lock_id)
        if message.done and request is not None and request.confirmed is not None:
            reached = request.confirmed.reached
            now = (message.since, message.version)
            if now > reached.get(message.node, (0, 0)):
                reached[message.node] = now

    def refusal(self, lock_id: LockId) -> LocksError | None:
        """The error that says why a lock has no token now; `None` if it can have one."""
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
        """After each event: answer waits whose token is established; request confirmations."""
        for wait, lock_id in list(self.waits.items()):
            answer: int | Exception | None = self.refusal(lock_id)
            if answer is None:
                answer = self._established(self._requests[lock_id])
            if answer is not None:
                del self.waits[wait]
                self._out.append(AnswerWait(wait, answer))

    def end_waits(self, reason: Exception) -> None:
        """Answer all waits with the reason for which the agent ends."""
        self._out += [AnswerWait(wait, reason) for wait in self.waits]
        self.waits.clear()

    def _established(self, request: LockRequest) -> int | None:
        """The token, if enough lock servers have confirmed one; otherwise request confirmations."""
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
            # All nodes with a grant are asked, more than needed, so that no slow node delays the
            # token.
            asked = confirmed.asked.get(node) == (since, version)
            if not asked and self._reached(request, node, since) < version:
                confirmed.asked[node] = (since, version)
                message = RaiseVersion(self._agent, request.lock_id, since, version)
                self._out.append(ToServer(node, message))
        return None

    def _is_enough(self, request: LockRequest, grants: dict[str, int], version: int) -> bool:
        """Whether enough lock servers have confirmed a version, for grants that still exist."""
        confirmed = [
            node
            for node, since in grants.items()
            if since <= version <= self._reached(request, node, since)
        ]
        if request.require == "all_alive":  # held, so all nodes that are up have granted it
            return len(confirmed) == len(grants)
        return len(confirmed) >= needed(request.require, request.node_requests, ())

    @staticmethod
    def _reached(request: LockRequest, node: str, since: int) -> int:
        """The version that a node has confirmed for a grant, at least the grant's own version."""
        assert request.confirmed is not None
        for_grant, version = request.confirmed.reached.get(node, (0, 0))
        return max(since, version) if for_grant == since else since
