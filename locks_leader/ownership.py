"""Ownership among workers on several nodes: `locks.ownership` on an election.

Theory of operation
-------------------
Each worker has a *participant*, which is a candidate of an election. Whoever leads has an *session*: it runs
the pure `Coordinator`, whose workers are the participants, its own among them. Each session has an id, the
leader's term and node; every message says to which session it belongs.

**A change of leaders.** A participant that is told of a new leader (`surrendered`) suspends its worker, and
reports to the new session what it has not let go. A session *opens* when all candidates that it knows
of have reported or are gone: then it welcomes them, they go on with what they own, and it takes the
first agreement. Until then nothing is granted, for somebody who has not reported yet may own it; and
nobody goes on, for two may have reported the same group, where one of them was cut off for a while.
It knows of everybody on its nodes: process groups tell of them before the lock servers there grant
anything. Groups stay where they are, but with the first agreement as their token.

**Why nothing of an older session is acted upon.** A participant reports to a session after it has taken on
that session's id, in the same step; from then on it ignores whatever names another one. What an older
session has sent before is in the report, or was dropped: in both cases the new one knows the truth.
What the participant lets go later it tells the new session, after its report on the same way. A release that
was on its way to a leader that has died is lost with it, and the group is not in the report.

**Who has no leader** begins nothing. The task at hand goes on: its token is what protects. Participants learn
that a leader is none any more as they lose sight of it, or from itself.

**An agreement** is the fencing token of a lock, ("locks.ownership", name), taken for a moment: on a
majority of the nodes that count, or on all nodes that are up where none are named. The session waits
for it in a greenlet of its own. Two sessions that are in the dark about each other may both grant a
group; they took their agreements on a node in common, if the policy is a majority, so one token is
larger, and that is what a store goes by. With islands that have no node in common the tokens are in
no order until they meet. An agreement that is smaller than what has been reported meanwhile is
taken once more.

Reports go by messages and not by `ask_candidates`: so the leader never waits in a callback, and
workers may sit on nodes that do not count for the majority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal

import pykka

from locks import InvalidOption, Node
from locks.ownership.coordinator import Agree, Coordinator, Effect, Grant, Renew, Revoke
from locks.ownership.part import Gone, Idle, Leaving, Part
from locks.ownership.worker import Worker, check_node
from locks.program import default_node
from locks.runtime import current_client, tell
from locks_leader.api import check_resource, start
from locks_leader.behaviour import Behaviour, OnlyNew
from locks_leader.policy import Policy, policy_of
from locks_leader.shell.agreements import Agreed, AgreementFailed, Agreements, Id
from locks_leader.state import ElectionState
from locks_leader.wire import messages as wire

__all__ = ["Ownership"]

OWNERSHIP = "locks.ownership"
MOST_GROUPS = 1 << 15  # what one worker owns must fit into one message
Ref = pykka.ActorRef[Any]

# What participants say to each other: (what, id of the session, ...), in terms that other nodes understand.
REPORT = "report"  # to the session: participant, token of each group, agreements that it knows of
RELEASED = "released"  # to the session: participant, groups
LEAVING = "leaving"  # to the session: participant
WELCOME = "welcome"  # from the session: agreements
GRANTED = "granted"  # from the session: agreements, groups, token
RENEWED = "renewed"  # from the session: agreements, groups, token
REVOKED = "revoked"  # from the session: agreements, groups
CLOSED = "closed"  # from the session


class Ownership(Worker):
    """One worker among those of several nodes that share resources out.

        with locks_leader.Ownership("ingest", groups=64) as mine:
            mine.run(backlog, handler)

    Make one for each worker, and join in the thread or greenlet that works: when that ends, its
    groups are taken over at once. There may be several workers on a node.

    Args:
        name: What is shared out; workers of the same name do so among each other. Text, a whole
            number, an atom, or a tuple of such.
        groups: How many groups of resources there are, the same for all: at least as many as
            workers, better some times as many.
        group_for: Tells the group of a resource, from 0 to `groups - 1`, the same on all nodes; by
            default a hash that is so, of text, bytes, whole numbers, and tuples of them.
        on_gained: Called with a group and its token when it is granted, before its first task.
        on_lost: Called with a group that it has no more, after its last task, before the next owner
            gets it.
        policy: What happens when the network is parted. `"island"`: each part shares out all groups
            among its own workers. `"majority"` of `nodes`: only the part with more than half of these
            does; workers elsewhere begin nothing. As for `locks_leader.start`, and the same for all.
        nodes: The nodes that count for the policy. Workers may be on others, too.
        node: The node on which it works; this program's by default.

    The callbacks run in the node's hub and must be quick: a change of leaders waits for them. An
    exception in one ends this worker's part.

    Raises:
        InvalidOption: An argument is wrong.
    """

    def __init__(
        self,
        name: Any,
        groups: int = 64,
        *,
        group_for: Callable[[Any], int] | None = None,
        on_gained: Callable[[int, int], object] | None = None,
        on_lost: Callable[[int], object] | None = None,
        policy: Literal["island", "majority"] | Policy = "island",
        nodes: Iterable[str] | None = None,
        node: Node | None = None,
    ) -> None:
        super().__init__(name, groups, group_for=group_for, on_gained=on_gained, on_lost=on_lost)
        if groups > MOST_GROUPS:
            raise InvalidOption(
                f"groups={groups} is more than {MOST_GROUPS:,}, which is the most for workers on "
                "several nodes: let group_for put more resources into each group",
                groups=groups,
            )
        self._lock_id = check_resource((OWNERSHIP, name))
        self._nodes = nodes if nodes is None or isinstance(nodes, str) else list(nodes)
        self._policy = policy
        self._node = check_node(node)
        self._participant: Ref | None = None
        policy_of(policy, self._nodes)

    def _start(self, part: Part) -> None:
        node = self._node or default_node()
        self._participant = start(
            Participant,
            part,
            Agreements(node, self._lock_id, policy_of(self._policy, self._nodes)),
            resource=self._lock_id,
            policy=self._policy,
            nodes=self._nodes,
            node=node,
        )


# --- The session -----------------------------------------------------------------------------------


class CoordinatorSession:
    """Who leads decides here who owns what.

    Args:
        participant: Its own participant.
        election: The election as that participant sees it.

    Attributes:
        id: Its id.
        coordinator: What it has decided.
        is_open: Whether all have reported.
    """

    def __init__(self, participant: Participant, election: ElectionState) -> None:
        self.id: Id = (election.term, str(election.leader_node))
        self.coordinator: Coordinator[Ref] = Coordinator(participant.groups)
        self.is_open = False
        self._participant = participant
        self._election = election
        self._wanted = False  # an agreement, which nobody has begun to take
        self._before = 0  # agreements under older sessions

    @property
    def agreements(self) -> int:
        """How many agreements there were, as far as anybody knows."""
        return self._before + self.coordinator.agreements

    def report(self, worker: Ref, owned: dict[int, int], agreements: int) -> None:
        """A participant says what it has not let go."""
        coordinator = self.coordinator
        self._before = max(self._before, agreements)
        if worker in coordinator.workers:  # led anew: only what it says now counts
            self.perform(coordinator.gone(worker))
        self.perform(coordinator.joined(worker, owned))
        if self.is_open:
            self._send(worker, WELCOME)
        self.look()

    def leaving(self, worker: Ref) -> None:
        """A participant will end after the tasks at hand."""
        self.perform(self.coordinator.leaving(worker))

    def gone(self, worker: Ref) -> None:
        """A participant has ended, or is cut off."""
        self.perform(self.coordinator.gone(worker))
        self.look()

    def look(self) -> None:
        """Open, if all have reported."""
        if self.is_open:
            return
        workers = self.coordinator.workers
        if all(candidate in workers for candidate in self._election.candidates):
            self.is_open = True
            for worker in workers:
                self._send(worker, WELCOME)
            self.perform([])

    def released(self, worker: Ref, groups: list[int]) -> None:
        """A participant has let go what was asked back."""
        self.perform(self.coordinator.released(worker, groups))

    def agreed(self, agreed: Agreed) -> None:
        """There is an agreement."""
        newest = self.coordinator.newest
        if agreed.token <= newest and newest > agreed.newest:  # reported meanwhile
            self._wanted = True
            self.perform([])
        else:
            self.perform(self.coordinator.agreed(agreed.token))

    def close(self) -> None:
        """Somebody else leads, or nobody: who has reported here is on its own."""
        for worker in self.coordinator.workers:
            if worker != self._participant.me:
                self._participant.send(worker, (CLOSED, self.id))

    def perform(self, effects: list[Effect]) -> None:
        """Do what the coordinator wants done; callbacks of its own worker come last."""
        own: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Agree):
                self._wanted = True
            elif effect.worker == self._participant.me:
                own.append(effect)
            elif isinstance(effect, Grant):
                self._send(effect.worker, GRANTED, list(effect.groups), effect.token)
            elif isinstance(effect, Renew):
                self._send(effect.worker, RENEWED, list(effect.groups), effect.token)
            else:
                self._send(effect.worker, REVOKED, list(effect.groups))
        if self._wanted and self.is_open:
            self._wanted = False
            self._participant.agree(self.id, self.coordinator.newest)
        part = self._participant.part
        part.agreements = self.agreements
        for effect in own:
            if isinstance(effect, Grant):
                part.granted(effect.groups, effect.token)
            elif isinstance(effect, Renew):
                part.renewed(effect.groups, effect.token)
            elif isinstance(effect, Revoke):
                self.released(self._participant.me, part.revoked(effect.groups))

    def _send(self, worker: Any, what: str, *args: Any) -> None:
        if worker != self._participant.me:
            self._participant.send(worker, (what, self.id, self.agreements, *args))
        elif what == WELCOME:
            self._participant.part.resume()


# --- The participant -------------------------------------------------------------------------------------


class Participant(Behaviour):
    """One worker's candidate: it hears what the worker is granted, and may lead.

    Args of `init`:
        part: The worker's part.
        agreements: Takes agreements if it leads.

    Attributes:
        me: Itself.
        part: The worker's part.
        groups: How many groups there are.
        session: Its session, if it leads.
    """

    me: Ref
    part: Part

    def init(self, part: Part, agreements: Agreements) -> None:
        """Take a participant; it ends with the worker."""
        me: Any = current_client()
        self.sit(me, part, agreements)

    def sit(self, me: Ref, part: Part, agreements: Agreements) -> None:
        """Begin, as a certain actor."""
        self.me = me
        self.part = part
        self.groups = part.worker.groups
        self.session: CoordinatorSession | None = None
        self._agreements = agreements
        self._leader: Ref | None = None
        self._following: Id | None = None  # the session to which it has reported
        self._refusal: Exception | None = None
        part.suspend()
        part.took_part(partial(tell, me))

    def send(self, participant: Ref, message: tuple[Any, ...]) -> None:
        """Tell another participant something."""
        tell(participant, (wire.TAG, wire.CAST, message))

    def agree(self, id: Id, newest: int) -> None:
        """Take an agreement for a session."""
        self._agreements.take(id, newest, self.me)

    # --- The election

    def elected(self, election: ElectionState, newcomer: Ref | None) -> Any:
        """Open a session, as soon as all have reported; who comes later reports as well."""
        if newcomer is None:
            self._leader = self._following = None
            self.session = CoordinatorSession(self, election)
            self.session.report(self.me, self.part.report(), self.part.agreements)
            self._leave()
        return OnlyNew((self._needed_session().id, self.groups))

    def surrendered(self, message: Any, election: ElectionState) -> None:
        """Report to the new leader."""
        id, groups = message
        self._leader = election.leader
        self._following = id
        owned = self.part.report()
        if groups != self.groups:
            self._refuse(groups, election)
        elif self._leader is not None:
            self.send(self._leader, (REPORT, id, self.me, owned, self.part.agreements))
            self._leave()

    def _refuse(self, groups: object, election: ElectionState) -> None:
        name = self.part.worker.name
        self._refusal = InvalidOption(
            f"the workers of {name!r} have {groups} groups, and this one has groups={self.groups}: "
            "give all the same",
            groups=self.groups,
        )
        election.stop()

    def stepped_down(self, election: ElectionState) -> None:
        """Decide nothing any more, and begin nothing."""
        session, self.session = self._needed_session(), None
        self._agreements.cancel()
        self.part.suspend()
        session.close()

    def handle_down(self, member: Ref, election: ElectionState) -> None:
        """A worker is gone; or the leader, then nothing is begun for now."""
        if self.session is not None:
            self.session.gone(member)
        elif member == self._leader:
            self._on_its_own()

    def terminate(self, reason: object, election: ElectionState) -> None:
        """The part is over."""
        self._agreements.cancel()
        if reason == "normal":
            self.part.left(self._refusal or reason)
        else:
            self.part.ended(self._refusal or reason)

    # --- Messages

    def handle_cast(self, message: Any, election: ElectionState) -> None:
        """Take in what another participant says, unless it is of a session that is no more."""
        what, id, *args = message
        session = self.session
        if session is not None and id == session.id:
            if what == REPORT:
                session.report(*args)
            elif what == RELEASED:
                session.released(*args)
            elif what == LEAVING:
                session.leaving(*args)
        elif id == self._following:
            if what == CLOSED:
                self._on_its_own()
            else:
                self._hear(what, *args)

    def _hear(self, what: str, agreements: int, *args: Any) -> None:
        """The session that it follows says something."""
        self.part.agreements = agreements
        if what == WELCOME:
            self.part.resume()
        elif what == GRANTED:
            self.part.granted(*args)
        elif what == RENEWED:
            self.part.renewed(*args)
        elif what == REVOKED:
            self._release(self.part.revoked(*args))

    def handle_info(self, message: Any, election: ElectionState) -> None:
        """Take in what the worker's side says, or the lock."""
        session = self.session
        if isinstance(message, Gone):
            election.stop()
        elif isinstance(message, Leaving):
            self._leave()
        elif isinstance(message, Idle):
            self._release(self.part.settle())
        elif isinstance(message, AgreementFailed):
            raise message.error
        elif isinstance(message, Agreed) and session is not None and message.id == session.id:
            session.agreed(message)

    def _leave(self) -> None:
        """Let the session know if the worker is about to leave."""
        if not self.part.stopping:
            return
        if self.session is not None:
            self.session.leaving(self.me)
        elif self._leader is not None and self._following is not None:
            self.send(self._leader, (LEAVING, self._following, self.me))

    def _release(self, groups: list[int]) -> None:
        if not groups:
            return
        if self.session is not None:
            self.session.released(self.me, groups)
        elif self._leader is not None and self._following is not None:
            self.send(self._leader, (RELEASED, self._following, self.me, groups))

    def _on_its_own(self) -> None:
        self._leader = self._following = None
        self.part.suspend()

    def _needed_session(self) -> CoordinatorSession:
        assert self.session is not None
        return self.session
