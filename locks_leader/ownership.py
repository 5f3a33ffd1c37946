"""Ownership among workers on several nodes: `locks.ownership` on an election.

Theory of operation
-------------------
Each worker has a *participant*, which is a candidate of an election. The leader runs a *session*, a
`CoordinatorSession`, whose workers are the participants, its own included. Each session has an id:
the leader's term and node. Every message contains the id of its session.

**A change of leaders.** A participant that gets a new leader (`surrendered`) suspends its worker,
and reports to the new session all groups that it has not released. The session opens when all
candidates that its leader knows have reported or are gone. The leader knows all candidates on its
nodes, because process groups report them before the lock servers there grant anything. Groups stay
where they are, but get the first agreement as their token.

**Why do messages of an older session have no effect?** A participant adopts the id of a session and
reports to it in one step. From then on it ignores messages with another id. An earlier message of
an older session is either reflected in the report or was dropped; in both cases the new session
knows the truth. Later releases are sent to the new session, after the report and in order. A
release that was on its way to a leader that has died is lost with it, but then the group is not in
the report.

**Without a leader**, a worker begins no task. The present task continues, protected by its token.
The leader itself notifies participants when it steps down; otherwise they lose the connection to
it.

**An agreement** is the fencing token of a lock, ("locks.ownership", name), which is held only
briefly: on a majority of the nodes that count, or, if none are named, on all nodes that are up. The
session waits for it in its own greenlet. Two sessions that do not know each other may both grant a
group. With a majority policy they took their agreements on a common node, so one token is larger,
and a store accepts only that one. With islands that have no common node, the tokens are not ordered
until the islands meet.

Reports are messages, not answers to `ask_candidates`. So the leader never waits in a callback, and
workers may be on nodes that do not count for the majority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal

import pykka

from locks.api import checked_label
from locks.errors import InvalidOption, assert_never
from locks.lock_ids import shown
from locks.net.messages import BadMessage
from locks.node import Node
from locks.ownership.agreements import OWNERSHIP
from locks.ownership.backlog import Among
from locks.ownership.messages import (
    MOST_GROUPS,
    Agree,
    AgreementFailed,
    FromWorker,
    Gone,
    Idle,
    Leaving,
    Report,
    SessionEffect,
    ToParticipant,
    ToSession,
)
from locks.ownership.part import Part
from locks.ownership.session import CoordinatorSession
from locks.ownership.worker import Worker, check_node, node_of
from locks.program.default import default_node
from locks.runtime.actor import tell
from locks.runtime.monitor import current_client, watch_end
from locks_leader.api import check_resource, start
from locks_leader.behaviour import Behaviour, OnlyNew
from locks_leader.letters import Cast
from locks_leader.policy import Policy, named_nodes, policy_of
from locks_leader.sharing import FromParticipant, FromSession, SessionId, check
from locks_leader.shell.acquaintance import servers_of
from locks_leader.shell.agreements import Agreed, Agreements
from locks_leader.state import ElectionState

__all__ = ["Ownership"]

Ref = pykka.ActorRef[Any]
Heard = FromWorker | Agreed | AgreementFailed


class Ownership(Worker):
    """One worker among those of several nodes that share resources out.

        with locks_leader.Ownership("ingest", groups=64) as mine:
            mine.run(backlog, handler)

    Make one for each worker, and join in the thread or greenlet that works: when that ends, its
    groups are taken over at once. There may be several workers on a node.

    Args:
        name: What is shared out; workers of the same name do so among each other. Text, a whole
            number, or a tuple of such.
        groups: How many groups of resources there are, the same for all: at least as many as
            workers, better several times as many.
        group_for: Returns the group of a resource, from 0 to `groups - 1`, the same on all nodes;
            by default such a hash, of text, bytes, whole numbers, and tuples of them.
        on_gained: Called with a group and its token when it is granted, before its first task.
        on_lost: Called with a group that it no longer has, after its last task, before the next
            owner gets it.
        policy: What happens when the network is split. `"island"`: each part shares out all groups
            among its own workers. `"majority"` of `nodes`: only the part with more than half of
            these does; workers elsewhere begin nothing. As for `locks_leader.start`, and the same
            for all.
        nodes: The nodes that count for the policy; likewise. Workers may be on others, too.
        node: The node on which it works; this program's by default.
        label: What it is called where its locks are shown; by default what is shared out.

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
        policy: Literal["island", "majority"] | Policy | None = None,
        nodes: Iterable[str] | None = None,
        node: Node | None = None,
        label: str | None = None,
    ) -> None:
        super().__init__(name, groups, group_for=group_for, on_gained=on_gained, on_lost=on_lost)
        if groups > MOST_GROUPS:
            raise InvalidOption(
                f"groups={groups} is more than {MOST_GROUPS:,}, the limit for workers on "
                "several nodes; make group_for put more resources into each group",
                groups=groups,
            )
        self._lock_id = check_resource((OWNERSHIP, name))
        self._nodes = named_nodes(nodes)
        self._policy = policy
        self._node = check_node(node)
        self._label = f"ownership {shown(name)}" if label is None else checked_label(label)
        self._participant: Ref | None = None
        policy_of(policy, self._nodes)

    def _among(self) -> Among:
        return Among("locks_leader.Ownership", node_of(self._node), self._lock_id)

    def _start(self, part: Part) -> None:
        node = self._node or default_node()
        part.seen_in(node.counters.workers, self.groups)
        self._participant = start(
            Participant,
            part,
            self.groups,
            Agreements(
                node,
                self._lock_id,
                self._label,
                policy_of(self._policy, self._nodes, servers_of(node, self._lock_id)),
            ),
            resource=self._lock_id,
            policy=self._policy,
            nodes=self._nodes,
            node=node,
            label=self._label,
        )


# --- The participant ------------------------------------------------------------------------------


class Participant(Behaviour):
    """One worker's candidate. If it leads, it runs the session.

    Attributes:
        me: Itself.
        part: The worker's part.
        session: The session, if it leads.
    """

    me: Ref
    part: Part
    _election: ElectionState

    def init(self, part: Part, groups: int, agreements: Agreements) -> None:
        """Take part, in the actor that calls it; it ends with the worker."""
        me: Any = current_client()
        self.take_part(me, part, groups, agreements)
        watch_end(me, part.participant_ended)

    def take_part(self, me: Ref, part: Part, groups: int, agreements: Agreements) -> None:
        """Take part.

        Args:
            me: The actor.
            part: The worker's part.
            groups: How many groups there are.
            agreements: Takes agreements if it leads.
        """
        self.me = me
        self.part = part
        self.session: CoordinatorSession[Ref] | None = None
        self._groups = groups
        self._agreements = agreements
        self._id: SessionId | None = None  # of the session that it has reported to, or runs
        self._leader: Ref | None = None  # of that session, if it is another one
        self._refusal: Exception | None = None
        part.suspend()
        part.took_part(partial(tell, me))

    def send(self, participant: Ref, message: FromParticipant | FromSession) -> None:
        """Tell another participant something."""
        tell(participant, Cast(message))

    # --- The election

    def elected(self, election: ElectionState, newcomer: Ref | None) -> Any:
        """Begin a session; participants that come later report as well."""
        if newcomer is None:
            self.session = CoordinatorSession(self._groups)
            self._election = election
            self._id = (election.term, str(election.leader_node))
            self._leader = None
            self._report()
        return OnlyNew((self._id, self._groups))

    def surrendered(self, message: Any, election: ElectionState) -> None:
        """Report to the new leader."""
        self._id, groups = message
        self._leader = election.leader
        if groups == self._groups:
            self._report()
        else:
            self.part.report()
            self._refuse(groups, election)

    def _report(self) -> None:
        self._say(Report(self.part.report(), self.part.agreements))
        if self.part.stopping:  # only the previous session was notified
            self._say(Leaving())

    def _refuse(self, groups: object, election: ElectionState) -> None:
        self._refusal = InvalidOption(
            f"the workers of {self.part.name!r} have {groups} groups, but this one has "
            f"groups={self._groups}; use the same number everywhere",
            groups=self._groups,
        )
        election.stop()

    def stepped_down(self, election: ElectionState) -> None:
        """End the session, and begin no task."""
        self._agreements.cancel()
        if self.session is not None:
            self._perform(self.session.close())
        self.session = None
        self._on_its_own()

    def handle_down(self, member: Ref, election: ElectionState) -> None:
        """A worker is gone; or the leader: then no task is begun for now."""
        if self.session is not None:
            self._perform(self.session.gone(member, election.candidates))
        elif member == self._leader:
            self._on_its_own()

    def terminate(self, reason: object, election: ElectionState) -> None:
        """The part is over."""
        try:
            self._agreements.cancel()
        finally:
            if reason == "normal":
                self.part.left(self._refusal or reason)
            else:
                self.part.ended(self._refusal or reason)

    # --- Messages

    def handle_cast(self, message: Any, election: ElectionState) -> None:
        """Take in a message of another participant, unless it belongs to another session."""
        try:
            if not isinstance(message, (FromParticipant, FromSession)):
                raise BadMessage(f"{message!r:.200} is not a message of an ownership")
            check(message, self._groups)
        except BadMessage as error:
            self._agreements.ignored(self.me, error)
            return
        if self._id is None or message.id != self._id:
            return
        if isinstance(message, FromParticipant):
            self._received(message.sender, message.message)
        elif self.session is None:
            self.part.agreements = message.agreements
            self._told(message.message)

    def handle_info(self, message: Any, election: ElectionState) -> None:
        """Take in a message of the worker's threads, or an agreement."""
        if isinstance(message, Heard):
            self._hear(message, election)

    def _hear(self, message: Heard, election: ElectionState) -> None:
        match message:
            case Gone():
                election.stop()
            case Leaving() | Idle():
                self._told(message)
            case AgreementFailed():
                raise message.error
            case Agreed(id, token, newest):
                if self.session is not None and id == self._id:
                    self._perform(self.session.agreed(token, newest))
            case _:
                assert_never(message)

    def _told(self, message: ToParticipant | Leaving | Idle) -> None:
        """Pass a message to the worker's part, and its answer to the session."""
        answer = self.part.told(message)
        if answer is not None:
            self._say(answer)

    def _say(self, message: ToSession) -> None:
        """Send a message to the session, here or on the leader's node."""
        if self.session is not None:
            self._received(self.me, message)
        elif self._leader is not None and self._id is not None:
            self.send(self._leader, FromParticipant(self._id, self.me, message))

    def _received(self, participant: Ref, message: ToSession) -> None:
        """Take in a message of a participant to the session that runs here."""
        if self.session is not None:
            expected = self._election.candidates
            self._perform(self.session.received(participant, message, expected))

    def _perform(self, effects: Sequence[SessionEffect]) -> None:
        """Carry out effects of the session; callbacks of the leader's own worker come last."""
        session, id = self.session, self._id
        assert session is not None
        assert id is not None
        own: list[ToParticipant] = []
        for effect in effects:
            if isinstance(effect, Agree):
                self._agreements.take_agreement(id, session.newest, self.me)
            elif effect.worker == self.me:
                own.append(effect)
            else:
                self.send(effect.worker, FromSession(id, session.agreements, effect))
        self.part.agreements = session.agreements
        for effect in own:
            self._told(effect)

    def _on_its_own(self) -> None:
        self._leader = self._id = None
        self.part.suspend()
