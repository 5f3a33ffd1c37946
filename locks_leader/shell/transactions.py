"""The two transactions of a candidate: one contends for the election's lock, one takes the merge lock.

They are ordinary transactions of `locks`, whose client is the instance. It never waits for them.
Notifications of their agents become events of the core, each with the round or the number of its
transaction, and are sent to the instance.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pykka

import locks
from locks import CannotServe, LocksError, TransactionEnded
from locks.actors import Down
from locks.errors import LimitExceeded
from locks.node import Node
from locks.runtime.actor import tell
from locks.runtime.identity import Own
from locks.runtime.monitor import watch_end
from locks.values import Notification
from locks.words import ELECTION_ID, MERGE_ID
from locks_leader.core.events import (
    CONTEST_OPTIONS,
    ENDS,
    LOCK,
    MERGE_OPTIONS,
    AskToken,
    BeginContest,
    BeginMerge,
    ContestGone,
    ContestStanding,
    Grants,
    IncludeNodes,
    Incoming,
    MergeTold,
    TokenTold,
    standing_of,
)

__all__ = ["Transactions"]

Ref = pykka.ActorRef[Any]
PAUSE = 1.0  # seconds until something is requested again that a server has refused


class Transactions:
    """The transactions of one instance.

    Args:
        node: Its node.
        client: The instance.
        resource: The resource of the election.
        label: The label of the client.
        notice: Have the client look at the contest soon.
        refused: The refusals of servers, kept here by the kind of the event that reports them.

    Attributes:
        lock_id: The lock that they contend for, as the original names it.
        merge_id: The merge lock.
    """

    __slots__ = (
        "_client",
        "_contest",
        "_label",
        "_merge",
        "_node",
        "_notice",
        "_refused",
        "lock_id",
        "merge_id",
    )

    def __init__(
        self,
        node: Node,
        client: Ref,
        resource: Any,
        label: str,
        notice: Callable[[], object],
        refused: dict[type, LocksError],
    ) -> None:
        self._node = node
        self._refused = refused
        self._notice = notice
        self._client = client
        self._label = label
        self.lock_id = (ELECTION_ID, resource)
        self.merge_id = (MERGE_ID, resource)
        self._contest: locks.actors.Agent | None = None
        self._merge: locks.actors.Agent | None = None

    # --- The contest

    def begin_contest(self, wanted: BeginContest) -> None:
        """Begin a round."""
        round = wanted.round
        news = partial(self._contest_news, round)
        self._contest = self._begin(news, ContestGone(round), CONTEST_OPTIONS)
        self._ask(wanted.nodes)

    def include(self, wanted: IncludeNodes) -> None:
        """Ask for the lock on more nodes."""
        with suppress(TransactionEnded):  # another event reports this
            self._ask(wanted.nodes)

    def end_contest(self) -> None:
        """End the round."""
        agent, self._contest = self._contest, None
        _end(agent)

    def ask_token(self, wanted: AskToken) -> None:
        """Have the fencing token established."""
        assert self._contest is not None
        try:
            locks.original.fencing_token_nowait(self._contest, self.lock_id)
        except LocksError:
            tell(self._client, TokenTold(wanted.round, None))

    def standing(self, silent: frozenset[str]) -> ContestStanding | None:
        """The present standing without silent nodes; `None` without a contest, or if its agent has ended."""
        agent = self._contest
        if agent is None:
            return None
        try:
            (info,) = locks.original.lock_info(agent)
            held = info.held and locks.original.transaction_status(agent).status == "have_all_locks"
        except LocksError:
            return None  # another event reports its end
        if not silent:
            return standing_of(info.granted, info.versions, held)
        there = [
            grant
            for grant in zip(info.granted, info.versions, strict=True)
            if grant[0] not in silent
        ]
        return ContestStanding(frozenset(there), held)

    def vouched(self) -> Grants | Exception | None:
        """The grants that the contest's agent confirms, or an error. From any thread."""
        agent = self._contest
        if agent is None:
            return None
        try:
            locks.original.ensure_held(agent, self.lock_id)
            (info,) = locks.original.lock_info(agent)
        except LocksError as error:
            return error
        return standing_of(info.granted, info.versions, info.held).grants

    def _ask(self, nodes: frozenset[str]) -> None:
        assert self._contest is not None
        locks.original.lock_nowait(self._contest, self.lock_id, LOCK[0], sorted(nodes), LOCK[1])

    def _contest_news(self, round: int, news: Notification) -> None:
        if news.kind == "token":
            token = news.value[1]
            tell(self._client, TokenTold(round, None if isinstance(token, Exception) else token))
        elif news.kind not in ENDS:
            if news.kind == "have_all_locks":
                self._refused.pop(ContestGone, None)
            self._notice()

    # --- The merge lock

    def begin_merge(self, wanted: BeginMerge) -> None:
        """Ask for the merge lock."""
        number = wanted.number
        news = partial(self._merge_news, number)
        self._merge = self._begin(news, MergeTold(number, held=False), MERGE_OPTIONS)
        try:
            locks.original.lock_nowait(
                self._merge, self.merge_id, LOCK[0], sorted(wanted.nodes), LOCK[1]
            )
        except CannotServe:  # all of these nodes are lost, which another event reports
            tell(self._client, MergeTold(number, held=False))

    def end_merge(self) -> None:
        """Release it."""
        agent, self._merge = self._merge, None
        _end(agent)

    def merged(self) -> frozenset[str]:
        """The nodes on which it has the merge lock now."""
        agent = self._merge
        if agent is None:
            return frozenset()
        try:
            return frozenset(
                node for info in locks.original.lock_info(agent) for node in info.granted
            )
        except LocksError:
            return frozenset()  # another event reports its end

    def _merge_news(self, number: int, news: Notification) -> None:
        if news.kind == "have_all_locks":
            self._refused.pop(MergeTold, None)
            tell(self._client, MergeTold(number, held=True))

    # --- Both

    def release_all(self) -> None:
        """Release all."""
        self.end_merge()
        self.end_contest()

    def _begin(
        self, news: Callable[[Notification], None], gone: Incoming, options: dict[str, Any]
    ) -> locks.actors.Agent:
        agent = self._node.spawn_agent(
            self._client, **options | {"notify": Own(news), "label": self._label}
        )
        watch_end(agent, partial(self._tell_gone, gone))
        return agent

    def _tell_gone(self, gone: Incoming, down: Down) -> None:
        cluster = self._node.cluster
        if isinstance(down.reason, LimitExceeded) and cluster is not None:
            self._refused[type(gone)] = down.reason
            cluster.executor.run_later(PAUSE, tell, self._client, gone)
        elif down.reason != "normal":  # then it was ended here
            tell(self._client, gone)


def _end(agent: locks.actors.Agent | None) -> None:
    if agent is not None and agent.is_alive():
        locks.original.end_transaction(agent)
