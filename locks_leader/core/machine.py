"""One instance of an election as a pure state machine: events in, effects out.

Theory of operation
-------------------
There are four separate planes. The *membership* is the set of instances, which process groups
report. The *contest* is for one write lock on all nodes that are up; its agent, an ordinary one of
`locks`, reports the standing. The *merge* lock, under which states are merged, is taken by a second
agent that aborts on a deadlock. The *role* is what this machine decides: candidate, following,
syncing, leader. `TRANSITIONS` has all changes of it.

An instance that has won the contest on enough nodes for the policy does two things at the same
time. It takes the merge lock on these nodes, and lets their lock servers confirm a fencing token of
the contest's lock. With both it is elected: the token is its *term*, the nodes are its *ground*,
and it announces itself to the instances on its ground. Before it leads an instance that comes
later, it takes the lock on that node as well, and the merge lock again. A leader that loses the
lock on a node of its ground, other than with the node, steps down and announces that.

**Terms make announcements safe.** The lock server of each node of the ground has confirmed the
term, so the next holder of the lock there has a larger term. So an instance follows a leader whose
term is larger than all that it has known. An announcement with a smaller term is stale. Likewise,
an instance that follows a leader ignores its own victory if its term is smaller.

**The merge lock makes questions safe.** A leader asks only instances on nodes where it holds the
merge lock, which include its own node. Two leaders that asked each other would both hold it on both
nodes, which is impossible. So no leaders wait for each other, in pairs or in a cycle. Instances on
nodes that do not count are asked under the merge lock on as many nodes as leading takes.

Each method is an event, and returns effects. `Elect` needs an answer, `elected`, before any other
event; `locks_leader.core.instance_core` lets other events wait. Nothing here blocks, or has a clock
or a network. The original's module is `locks_leader`; its `LOCKS_LEADER_IDEAS.md` has the planes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Set
from typing import Any, Literal

from locks.errors import InvalidOption, assert_never
from locks_leader.core.calls import Calls, Kept
from locks_leader.core.contest import NO_GRANTS, Contest, nodes_of
from locks_leader.core.events import (
    NOTHING,
    CallBack,
    ContestStanding,
    Effect,
    Elect,
    Grants,
    MonitorMember,
    Origin,
    Outcome,
    SendToMember,
    SurrenderLeadership,
)
from locks_leader.core.membership import MemberEntry, Membership
from locks_leader.core.merge import Merge
from locks_leader.core.messages import (
    Affirm,
    Announce,
    AnyMessage,
    Forward,
    ForwardAnswer,
    FromLeader,
    Kind,
    LeaderCast,
    Member,
    NotTheLeader,
    Resign,
    Role,
    YieldTo,
)
from locks_leader.errors import NotLeader
from locks_leader.policy import Policy

__all__ = ["TRANSITIONS", "Change", "Machine"]

Change = Literal["won", "lost", "elected", "announced", "orphaned"]

# The changes of a role. An instance that follows and wins continues to follow until it is elected.
# If it loses again, it still follows.
TRANSITIONS: dict[tuple[Role, Change], Role] = {
    ("candidate", "won"): "syncing",
    ("candidate", "announced"): "following",
    ("following", "won"): "syncing",
    ("following", "announced"): "following",
    ("following", "orphaned"): "candidate",
    ("syncing", "lost"): "candidate",
    ("syncing", "announced"): "syncing",
    ("syncing", "orphaned"): "syncing",
    ("syncing", "elected"): "leader",
    ("leader", "lost"): "candidate",
}


class Machine:
    """One instance of an election: a candidate, or a worker.

    Args:
        me: The member by which the others know it.
        kind: Candidate or worker.
        policy: Which nodes are enough to lead.
        alive: The nodes whose lock servers are up, its own included.

    Attributes:
        role: Its present role.
        leader: Its leader, if known.
        term: The leader's term, or else that of the last leader; 0 at the beginning.
        policy: Which nodes are enough to lead.
        ground: If it leads, the nodes that it leads, with its grants there.
        membership: The other instances.
        electing: The effect for which the callback `elected` runs now, if it does.
    """

    __slots__ = (
        "_alive",
        "_calls",
        "_contest",
        "_heir",
        "_merge",
        "_out",
        "electing",
        "ground",
        "kind",
        "leader",
        "me",
        "membership",
        "policy",
        "role",
        "term",
    )

    def __init__(self, me: Member, kind: Kind, policy: Policy, alive: Iterable[str]) -> None:
        self.me = me
        self.role: Role = "candidate"
        self.leader: Member | None = None
        self.term = 0
        self.ground = NO_GRANTS
        self.membership = Membership()
        self.kind: Kind = kind
        self.policy = policy
        self._alive = frozenset(alive)
        self._out: list[Effect] = []
        self._calls = Calls(self._out)
        self.electing: Elect | None = None
        self._heir: Member | None = None  # the candidate to which it has given the leadership
        self._contest = Contest(policy, self._alive, self._out)
        self._merge = Merge(self._out)

    # --- The membership, and nodes -----------------------------------------------------------------

    def start(self, elders: frozenset[str] = frozenset()) -> list[Effect]:
        """Begin: a candidate contends as soon as its policy allows it; see `Started`."""
        self._contest.elders = elders
        return self._conclude()

    def joined(self, member: Member, node: str, kind: Kind) -> list[Effect]:
        """Take in an instance that takes part in the election."""
        if member != self.me:
            self.membership.add(member, MemberEntry(node, kind))
        return self._conclude()

    def down(self, member: Member) -> list[Effect]:
        """Take in that an instance has ended, or is cut off."""
        known = self.membership.remove(member)
        self._calls.down(member)
        if self.leader == member:
            self._orphaned()
        if self._heir == member:
            self._heir = None
        if known:
            self._out.append(CallBack("handle_down", (member,)))
        return self._conclude()

    def nodes(self, alive: Iterable[str], bystanders: Set[str] = frozenset()) -> list[Effect]:
        """The nodes whose lock servers are up now, and count; the others."""
        self._alive = frozenset(alive)
        self._heir = None
        self._merge.nodes(self._alive)
        if self._contest.nodes(self._alive, bystanders) and self.role != "leader":
            self._renew()
        return self._conclude()

    # --- The contest, and the merge lock --------------------------------------------------------

    def contest(self, round: int, standing: ContestStanding) -> list[Effect]:
        """Take in the present standing; `nodes` was called before with the nodes that are up."""
        gave_way = self._contest.told(round, standing)
        if gave_way and self.role != "leader" and self.electing is None:
            # Wait at the gate again: waiting on all nodes, it would be in everybody's next
            # deadlock.
            self._renew()
        return self._conclude()

    def agent_gone(self, round: int) -> list[Effect]:
        """The agent of a round has ended by itself, and with it all that it was granted."""
        if round == self._contest.round and self._contest.contending:
            self._renew()
        return self._conclude()

    def token(self, round: int, token: int | None) -> list[Effect]:
        """The answer to `AskToken`; nothing if the lock is lost."""
        self._contest.told_token(round, token)
        return self._conclude()

    def merge(self, number: int, held: bool) -> list[Effect]:
        """The merge lock was taken; or its transaction was aborted."""
        self._merge.told(number, held)
        return self._conclude()

    def elected(self, outcome: Outcome, merged: bool = True) -> list[Effect]:
        """Take in the outcome of the callback `elected`, and whether the merge lock was still held at its end.

        Raises:
            InvalidOption: It surrenders to an instance that is no candidate on its ground.
        """
        elect = self.electing
        assert elect is not None
        self.electing = None
        if isinstance(outcome, SurrenderLeadership):
            self._surrender_to(outcome.heir)
            return self._conclude()
        # Do not lead nodes that were lost during the callback. Without the merge lock, lead none:
        # the instances may not have been asked.
        if not merged:
            self._contest.forget()
        stands = self._stands()
        new = self.unsynced() if stands else []
        if elect.newcomer is None:
            self._change("elected")
        else:
            new = [member for member in new if member == elect.newcomer]
            if stands and outcome.old is not NOTHING:
                old = [member for member in self.membership.synced if member not in new]
                self._tell(old, FromLeader(self.term, outcome.old))
        self._tell(new, Announce(self.term, outcome.new))
        self.membership.synced.update(dict.fromkeys(new))
        if stands:
            self._serve_kept()
        return self._conclude()

    # --- Messages of others ---------------------------------------------------------------------

    def receive(self, sender: Member, node: str, message: AnyMessage) -> list[Effect]:
        """Take in a message of another instance, which is on this node."""
        match message:
            case Forward():
                if self.role == "leader":
                    self._serve(Kept(message.number, message.request), sender)
                else:
                    self._out.append(SendToMember(sender, NotTheLeader(message.number)))
                return self._flush()
            case ForwardAnswer():
                self._calls.answered(sender, message.number, message.value)
                return self._flush()
            case NotTheLeader():
                self._calls.refused(sender, message.number)
                if self.leader != sender:
                    self._serve_kept()
                return self._flush()
            case LeaderCast():
                return self.leader_cast(message.request)
            case FromLeader() | Affirm() | Resign() if sender != self.leader:
                pass
            case FromLeader() | Affirm():
                self.term = max(self.term, message.term)
                if isinstance(message, FromLeader):
                    self._out.append(CallBack("from_leader", (message.payload,)))
            case Resign():
                self._orphaned()
            case Announce():
                self._announced(sender, node, message)
            case YieldTo():
                self._asked_to_yield(sender, message)
            case _:
                assert_never(message)
        return self._conclude()

    # --- Calls, which do not change the role ----------------------------------------------------

    def leader_call(self, call: Hashable, request: Any) -> list[Effect]:
        """Take in a call of the leader through this instance; `Reply` answers `call`."""
        self._calls.take_in(call, request)
        self._serve_kept()
        return self._flush()

    def leader_cast(self, request: Any) -> list[Effect]:
        """Take in a message for the leader through this instance."""
        self._calls.kept.append(Kept(None, request))
        self._serve_kept()
        return self._flush()

    def not_sent(self, number: int, error: Exception) -> list[Effect]:
        """A call can't be passed on, as there is something in it that can't be sent."""
        self._calls.not_sent(number, error)
        return self._flush()

    def cancel(self, call: Hashable) -> list[Effect]:
        """Cancel a call whose caller no longer waits; if it is still kept here, it is not carried out."""
        self._calls.cancel(call)
        return self._flush()

    def reply(self, origin: Origin, value: Any) -> list[Effect]:
        """The leader answers a call; from any thread."""
        if origin.member is None:
            return self._calls.reply(origin.call, value)
        assert isinstance(origin.call, int)
        return [SendToMember(origin.member, ForwardAnswer(origin.call, value))]

    def broadcast(self, payload: Any, to: Iterable[Member] | None = None) -> list[Effect]:
        """Send a message of the leader to all its followers, or to some of them.

        Raises:
            NotLeader: It does not lead.
        """
        self.check_leads("broadcast")
        synced = self.membership.synced
        told = synced if to is None else [member for member in to if member in synced]
        return [SendToMember(member, FromLeader(self.term, payload)) for member in told]

    def check_leads(self, what: str) -> None:
        """Raise `NotLeader` unless it leads, or is just elected."""
        if self.leader != self.me:
            raise NotLeader(
                f"{self.me} can't {what}: it is {self.role}, and only the leader can, which is "
                f"{self.leader or 'nobody now'}",
                leader=self.leader,
            )

    # --- Questions ------------------------------------------------------------------------------

    @property
    def alive(self) -> frozenset[str]:
        """The nodes whose lock servers are up, by the last event."""
        return self._alive

    @property
    def round(self) -> int | None:
        """The round of the contest in which it takes part now; `None` if it takes no part."""
        return self._contest.round if self._contest.contending else None

    def unsynced(self) -> list[Member]:
        """The instances on its ground to which it has not announced itself."""
        return self.membership.unsynced(self._is_ground)

    def _is_ground(self, node: str) -> bool:
        return self.policy.announced_on(node, nodes_of(self.ground))

    def askable(self) -> list[Member]:
        """The candidates that the leader may ask for their state, because it holds the merge lock."""
        nodes, known = nodes_of(self.ground), self.membership
        may = self.may_wait_for
        return [m for m in known.those("candidate") if may(known.entries[m].node, nodes)]

    def may_wait_for(self, node: str, merged: Set[str]) -> bool:
        """Whether it may wait for an instance there, while it has the merge lock on some nodes."""
        return self.policy.may_ask(node, merged)

    # --- Progress -------------------------------------------------------------------------------

    def _conclude(self) -> list[Effect]:
        """After each event: contend or not, and proceed as far as the contest allows."""
        if self.electing is None:
            may = self.kind == "candidate" and self._contest.may_contend and self._heir is None
            if may != self._contest.contending:
                self._contest.contend() if may else self._withdraw()
            if may or self.role != "candidate":
                self._strive()
        return self._flush()

    def _flush(self) -> list[Effect]:
        effects = self._out[:]
        self._out.clear()
        return effects

    def _strive(self) -> None:
        """Proceed as far as the contest allows: take the locks, be elected, or step down."""
        if self.role == "leader" and not self._stands():
            self._renew()
        arena = self._arena()
        if arena is None:
            self._fall_back()
            return
        if self.role in ("candidate", "following"):
            self._change("won")
        grows = self.role != "leader" or not arena <= self.ground
        if not grows and not self.unsynced():
            self._merge.drop()
            return
        merging = self._merge.take_lock(nodes_of(arena))
        established = not grows or self._contest.establish_token(arena)
        if merging and established and not self._is_superseded():
            self._elect(arena, grows)

    def _is_superseded(self) -> bool:
        """Whether it follows a leader that got the lock later: then its own loss will be reported."""
        token = self._contest.token or self.term
        return self.leader not in (None, self.me) and token < self.term

    def _stands(self) -> bool:
        """Whether a leader has lost nothing, but with nodes, and has enough left."""
        self.ground = frozenset(grant for grant in self.ground if grant[0] in self._alive)
        granted = self._contest.standing.grants
        return self.ground <= granted and self.policy.enough(nodes_of(self.ground))

    def _arena(self) -> Grants | None:
        """The nodes that it may lead by the present standing, if there are enough."""
        won = self._contest.won()
        return self.ground if won is None and self.role == "leader" else won

    def _elect(self, arena: Grants, grows: bool) -> None:
        newcomer = None
        if grows:
            token = self._contest.token
            assert token is not None
            if self.role == "leader" and token > self.term:
                self._tell(self.membership.synced, Affirm(token))
            self.term = token
            self.ground = arena
        if self.role == "leader":
            unsynced = self.unsynced()
            if not unsynced:
                self._merge.drop()
                return
            newcomer = unsynced[0]
        self.leader = self.me
        self.electing = Elect(newcomer)
        self._out.append(self.electing)

    def _withdraw(self) -> None:
        """Give up the lock, after effects that rely on it."""
        self._contest.forget()
        self._fall_back()
        self._contest.withdraw()

    def _fall_back(self) -> None:
        """Go back to a role without the lock: the contest is not won, or no longer."""
        self._merge.drop()
        if self.role == "leader":
            self._step_down()
        elif self.role == "syncing":
            self._change("lost")

    def _renew(self) -> None:
        """Stand last, with a new agent: an old one would come first wherever there is a deadlock."""
        self._withdraw()
        self._contest.contend()

    def _step_down(self) -> None:
        self._change("lost")
        self.leader = None
        self.ground = NO_GRANTS
        self._tell(self.membership.synced, Resign(self.term))
        self.membership.synced.clear()
        self._out.append(CallBack("stepped_down"))

    def _surrender_to(self, heir: Member) -> None:
        if heir not in self.askable():
            raise InvalidOption(
                f"can't surrender to {heir}: it is not a candidate that follows {self.me}",
                heir=heir,
            )
        if self.role != "leader":
            self._change("elected")
        self._tell(self.membership.those("candidate"), YieldTo(self.term, heir))
        self._withdraw()
        self._heir = heir  # it contends again if the heir does not lead as things are

    def _asked_to_yield(self, sender: Member, message: YieldTo) -> None:
        if message.term < self.term or self.leader not in (None, sender):
            return  # of an election that is over
        if sender == self._heir:
            self._heir = None  # else two that surrender to each other would both wait
        if message.heir != self.me and self._contest.contending:
            self._renew()

    def _announced(self, sender: Member, node: str, message: Announce) -> None:
        if message.term < self.term or (message.term == self.term and self.leader == self.me):
            return
        if self.membership.add(sender, MemberEntry(node, "candidate")):
            self._out.append(
                MonitorMember(sender)
            )  # process groups do not report it yet, or no longer
        if self.role == "leader":
            self._step_down()
        self._change("announced")
        self._heir = None
        self.leader = sender
        self.term = message.term
        self._out.append(CallBack("surrendered", (message.payload,)))
        self._serve_kept()

    def _orphaned(self) -> None:
        self.leader = None
        if self.role != "candidate":
            self._change("orphaned")

    def _change(self, change: Change) -> None:
        self.role = TRANSITIONS[self.role, change]
        if self.role == "candidate" and change == "lost" and self.leader not in (None, self.me):
            self._change("announced")  # it has followed all the time

    # --- Telling --------------------------------------------------------------------------------

    def _tell(self, members: Iterable[Any], message: AnyMessage) -> None:
        self._out += [SendToMember(member, message) for member in members]

    def _serve_kept(self) -> None:
        """If there is a leader, carry out the kept calls, or pass them on."""
        if self.role == "leader":
            for kept in self._calls.take_kept():
                self._serve(kept, None)
        elif self.leader is not None and self.leader != self.me:
            for kept in self._calls.take_kept():
                self._calls.forward(self.leader, kept)

    def _serve(self, kept: Kept, member: Member | None) -> None:
        if kept.call is None:
            self._out.append(CallBack("handle_leader_cast", (kept.request,)))
        else:
            origin = Origin(member, kept.call)
            self._out.append(CallBack("handle_leader_call", (kept.request, origin)))
