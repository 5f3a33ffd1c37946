"""One instance of an election as an actor: it runs an `InstanceCore`, and its user's callbacks.

The actor's inbox receives notifications of the agents of its transactions
(`locks_leader.shell.transactions`), and of one that only watches nodes. Process groups report
instances and their ends, and clients and other instances send letters (`locks_leader.letters`). Each message becomes an
event of the core, and is taken and carried out at once. The actor waits only in callbacks, never
for locks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, get_args

import pykka

import locks
from locks import LocksError, MisuseError, TransactionEnded, groups
from locks.actors import Down, GeventActor
from locks.errors import NodeNotRunning, assert_never
from locks.groups.names import to_group
from locks.groups.scope import GroupMonitor, scope_of
from locks.model import check_timeout
from locks.node import Node, RemoteRef
from locks.ranges import replace
from locks.runtime.actor import GeventFuture, tell
from locks.runtime.identity import Own
from locks.runtime.monitor import watch_end
from locks.runtime.port import world
from locks.values import Notification
from locks.words import CANDIDATES, WORKERS
from locks_leader.behaviour import NO_REPLY, Behaviour, outcome_of, run_callback, tell_end
from locks_leader.core.events import (
    ENDS,
    Answer,
    AskToken,
    BeginContest,
    BeginMerge,
    CallBack,
    CallCancelled,
    Called,
    CastLost,
    CastMade,
    ContestGone,
    Effect,
    Elect,
    Elected,
    EndContest,
    EndMerge,
    IncludeNodes,
    Incoming,
    LeaderCalled,
    Look,
    Looked,
    MemberDown,
    MemberJoined,
    MergeTold,
    MonitorMember,
    NodeLost,
    Noticed,
    NotSent,
    Origin,
    Received,
    Reply,
    SendToMember,
    Started,
)
from locks_leader.core.instance_core import InstanceCore
from locks_leader.core.machine import Machine
from locks_leader.core.messages import ForwardAnswer, Kind
from locks_leader.errors import LeadershipLost
from locks_leader.letters import (
    AskInfo,
    CallLeader,
    CancelCall,
    Cast,
    CastToLeader,
    FromInstance,
    Letter,
    check,
    outcome,
    outcome_for,
)
from locks_leader.policy import Policy
from locks_leader.shell import proxied
from locks_leader.shell.acquaintance import Acquaintance, is_client
from locks_leader.shell.hearing import Heard, Hearing
from locks_leader.shell.leadership import Leadership
from locks_leader.shell.obstacles import Obstacles
from locks_leader.shell.transactions import Transactions
from locks_leader.state import Answers, Caller, ElectionState

__all__ = ["Begin", "Instance"]

logger = logging.getLogger("locks.leader")

INCOMING = frozenset(get_args(Incoming))
OF_AGENTS = (ContestGone, MergeTold)
LOOK = 0.25  # seconds between two looks whether an instance may still wait for another one
Ref = pykka.ActorRef[Any]


class Begin(NamedTuple):
    """Begin; the answer is an error if it can't."""


class Instance(GeventActor):
    """A candidate or a worker. `locks_leader.start` makes it.

    Args:
        behaviour: The class with the callbacks.
        args: The arguments of its `init`.
        resource: The resource of the election.
        kind: Candidate or worker.
        policy: Which nodes are enough to lead.
        node: Its node.
        label: Its label.
    """

    def __init__(
        self,
        behaviour: type[Behaviour],
        args: Sequence[Any],
        resource: Any,
        kind: Kind,
        policy: Policy,
        node: Node,
        label: str,
    ) -> None:
        super().__init__()
        self.node = node
        self.actor_ref.label = label  # type: ignore[attr-defined]  # for lists of group members
        self._notified = False  # there is a notice that it has not taken yet
        self._obstacles = Obstacles(node, policy, resource, self._has_no_leader)
        self.actor_ref.obstacles = self._obstacles  # type: ignore[attr-defined]  # for errors
        refused = self._obstacles.refused
        self.transactions = Transactions(
            node, self.actor_ref, resource, label, self._notice, refused
        )
        self.machine = Machine(self.actor_ref, kind, policy, policy.sees(node.alive, node.silent))
        self.core = InstanceCore(self.machine)
        self.election = ElectionState(self)
        self._callbacks = proxied.show(self.actor_ref, behaviour())
        self._args = args
        self._begun = False
        self._acquaintance: Acquaintance | None = None
        self._hearing: Hearing | None = None
        self._leadership = Leadership(self, node, self.transactions.lock_id)
        self._groups: dict[Kind, Any] = {
            "candidate": to_group((CANDIDATES, resource)),
            "worker": to_group((WORKERS, resource)),
        }
        self._answers: dict[Any, Callable[[Any], None]] = {}  # of calls of the leader, by ticket
        self._watched: dict[Ref, locks.actors.Monitor] = {}

    # --- Its life -------------------------------------------------------------------------------

    def _begin(self) -> None:
        run_callback(self._callbacks, "init", *self._args)
        self._begun = True
        observer = self.node.spawn_agent(
            self.actor_ref, notify=Own(self._node_news), monitor_nodes=True
        )
        # Without its lock server the node can vouch for nothing.
        watch_end(observer, lambda _: self.actor_ref.stop(block=False))
        if self.node.cluster is not None:
            self.node.cluster.on_silence[self._hears] = None
        watched = self.node.turn.run(self._meet)
        if self._hearing is not None and self._hearing.waits:
            world().new_greenlet(self._hearing.lose_patience).start()
        for kind, monitor in watched:
            self._joined(kind, monitor.members)
        if is_client(self.node):
            servers = self.machine.policy.electorate or frozenset()
            self._acquaintance = Acquaintance(self.node, self.transactions.lock_id, servers)
            self._acquaintance.watch_servers()
        if self._hearing is None or not self._hearing.waits:
            self._take_part()
        self._obstacles.begin()

    def _has_no_leader(self) -> bool:
        return self._begun and self.machine.leader is None

    def _meet(self) -> list[tuple[Kind, GroupMonitor]]:
        """Join the process groups, and query all nodes, in one turn: each node gets both in one packet."""
        scope, me = scope_of(self.node, groups.SCOPE), self.actor_ref
        watched = [(kind, scope.monitor(group, me)) for kind, group in self._groups.items()]
        scope.join(self._groups[self.machine.kind], (me,))
        if self.machine.policy.has_bystanders:
            self._hearing = Hearing(self.node, me, self.transactions.lock_id)
        return watched

    def on_stop(self) -> None:
        """End in good order: the locks are released at once, then `terminate` is called."""
        self._leave("normal")

    def on_failure(self, exception_type: Any, exception_value: Any, traceback: Any) -> None:
        """A callback has raised an exception, or the actor was killed."""
        self._leave(exception_value)

    def _leave(self, reason: object) -> None:
        try:
            self._leave_election(reason)
        finally:  # the node may have ended
            if self._begun:
                self._begun = False
                tell_end(self._callbacks, reason, self.election)

    def _leave_election(self, reason: object) -> None:
        self._leadership.instance_ended(reason)  # before another one can lead
        self.transactions.release_all()
        if self._acquaintance is not None:
            self._acquaintance.instance_ended()
        self.node.dependents.discard(self.actor_ref)
        if self.node.cluster is not None:
            self.node.cluster.on_silence.pop(self._hears, None)
        for monitor in self._watched.values():  # or the others would keep it in memory
            monitor.cancel()
        self._watched.clear()

    # --- Input ----------------------------------------------------------------------------------

    def _handle_receive(self, message: Any) -> Any:
        if isinstance(message, proxied.OF_PROXY):
            return proxied.carry_out(self._callbacks, message)
        return super()._handle_receive(message)

    def on_receive(self, message: Any) -> Any:
        """Take in one message."""
        try:
            return self._take(message)
        except Exception as error:
            if isinstance(error, (TransactionEnded, NodeNotRunning)) and not self.node.running:
                self.stop()  # with its node, which was stopped in the middle of it
            elif type(message) is Begin or not self.asked:
                raise
            else:
                self.fail(error)  # a callback has failed, not because of a request
        return None

    def _take(self, message: Any) -> Any:
        kind = type(message)
        if isinstance(message, Letter):
            return self._letter(message)
        if kind is Heard:
            self._heard()
        elif kind in INCOMING:
            if kind is Noticed:
                self._notified = False
            if self.node.running or kind not in OF_AGENTS:  # else it is about to be stopped, too
                self._feed(message)
        elif kind is groups.Joined or kind is groups.Left:
            self._membership_changed(message)
        elif kind is Begin:
            self._begin()
        else:
            return self._other(message)
        return None

    def _letter(self, letter: Letter) -> Any:
        """Take in a letter of another instance, or of a client."""
        try:
            check(letter)
        except MisuseError as error:
            if self.asked:
                raise
            self.node.notices.warn("ignored", str(self), "%s ignored a message: %s", self, error)
            return None
        match letter:
            case FromInstance(sender, message):
                if isinstance(message, ForwardAnswer):
                    message = replace(message, value=outcome(message.value))
                self._feed(Received(sender, self.node_of(sender), message))
            case CallLeader(ticket, request):
                self._answers[ticket] = self.defer()
                self._feed(LeaderCalled(ticket, request))
            case CancelCall(ticket):
                self._feed(CallCancelled(ticket))
            case Cast(message):
                run_callback(self._callbacks, "handle_cast", message, self.election)
            case CastToLeader(message):
                self._feed(CastMade(message))
            case AskInfo():
                return self.info()
            case _:
                assert_never(letter)
        return None

    def _other(self, message: Any) -> Any:
        if self.asked:
            self._feed(Called(message, self.defer()))
        else:
            run_callback(self._callbacks, "handle_info", message, self.election)
        return None

    def _node_news(self, news: Notification) -> None:
        if news.kind in ENDS:
            return
        if news.kind == "nodedown":
            tell(self.actor_ref, NodeLost(news.value))
        else:
            self._notice()
        if self._acquaintance is not None:
            self._acquaintance.watch_servers()

    def _doubt(self) -> None:
        """Find out now which lock servers are silent, and not when it is this instance's turn to ask them."""
        cluster = self.node.cluster
        if cluster is not None and self.machine.policy.electorate is not None:
            for server in self.machine.policy.asked(self.node.alive):
                self.node.turn.run(cluster.silence.doubt, server)

    def _hears(self) -> None:
        """A lock server is silent, or speaks again; by the node's background."""
        self._notice()

    def _notice(self) -> None:
        """Have it look soon. What happens before it does needs no other notice."""
        if not self._notified:
            self._notified = True
            tell(self.actor_ref, Noticed())

    def _watch(self, member: Ref) -> None:
        """Monitor an instance; those of other nodes only if no process group reports them."""
        if member not in self._watched:
            self._watched[member] = watch_end(member, partial(self._member_down, member))

    def _member_down(self, member: Ref, _: Down) -> None:
        tell(self.actor_ref, MemberDown(member))

    def _membership_changed(self, news: groups.Joined | groups.Left) -> None:
        kind: Kind = "candidate" if news.group == self._groups["candidate"] else "worker"
        others = [member for member in news.members if member != self.actor_ref]
        if isinstance(news, groups.Joined):
            self._joined(kind, others)
        else:
            for member in others:
                self._feed(MemberDown(member))

    def _joined(self, kind: Kind, members: Iterable[Ref]) -> None:
        for member in members:
            node = self.node_of(member)
            self._feed(MemberJoined(member, node, kind))
            if node == self.node.name:
                self._watch(member)  # its end is in the inbox when its `stop` returns
            if self._hearing is not None:
                self._hearing.joined(member, node)
                self._look(self._hearing)

    def _heard(self) -> None:
        """It may leave out nodes by now, and take part."""
        if self._hearing is not None:
            if self._hearing.heard():
                self._take_part()
            else:
                self._look(self._hearing)

    def _take_part(self) -> None:
        """Begin, with the nodes that count now."""
        elders = frozenset[str]() if self._hearing is None else self._hearing.elders
        self._feed(Noticed())  # nodes may have come and gone since it was made
        self._feed(Started(elders))

    def _look(self, hearing: Hearing) -> None:
        """Other nodes may count now; an instance that does not take part yet looks when it begins."""
        if not hearing.waits:
            self._feed(Noticed())

    def _feed(self, event: Incoming) -> None:
        """Give the core an event, and carry out its effects."""
        if type(event) is MemberDown:
            self._forget(event.member)
        elif type(event) is NodeLost and self._hearing is not None:
            self._hearing.bystanders.heard(event.node)
        self.core.feed(event, self._do)
        self._leadership.note_role(self.machine)
        if type(event) is MemberDown and self._hearing is not None:
            self._look(self._hearing)  # its node may have no instance now

    def _forget(self, member: Any) -> None:
        if self._hearing is not None:
            self._hearing.down(member)
        watched = self._watched.pop(member, None)
        if watched is not None:
            watched.cancel()

    # --- Effects of the core --------------------------------------------------------------------

    def _do(self, effect: Effect) -> Answer | None:
        transactions = self.transactions
        match effect:
            case SendToMember():
                return self._send(effect)
            case CallBack():
                self._call_back(effect)
            case Reply():
                self._answers.pop(effect.call)(effect.value)
            case Look():
                alive = self.node.alive
                asked = alive if self._hearing is None else self._hearing.asked
                asked = self.machine.policy.sees(asked, self.node.silent)
                left_out = alive - asked
                silent = left_out & self.node.silent
                return Looked(asked, effect.round, transactions.standing(silent), left_out)
            case Elect():
                newcomer: Any = effect.newcomer
                found = run_callback(self._callbacks, "elected", self.election, newcomer)
                outcome = outcome_of(found)
                return Elected(outcome, merged=bool(self.transactions.merged()))
            case BeginContest():
                transactions.begin_contest(effect)
                self._doubt()
            case IncludeNodes():
                transactions.include(effect)
            case EndContest():
                self._leadership.note_role(self.machine)  # before another one can lead
                transactions.end_contest()
            case AskToken():
                transactions.ask_token(effect)
            case BeginMerge():
                transactions.begin_merge(effect)
            case EndMerge():
                transactions.end_merge()
            case MonitorMember():
                member: Any = effect.member
                self._watch(member)
            case CastLost():
                logger.error("%s can't forward a message to the leader: %s", self, effect.error)
            case _:
                assert_never(effect)
        return None

    def _send(self, effect: SendToMember) -> NotSent | None:
        message = effect.message
        member: Any = effect.member
        if isinstance(message, ForwardAnswer):
            is_here = not isinstance(member, RemoteRef)
            message = replace(message, value=outcome_for(message.value, is_here))
        try:
            tell(member, FromInstance(self.actor_ref, message))
        except LocksError as error:  # there is something in it that can't be sent
            return NotSent(member, message, error)
        return None

    def _call_back(self, effect: CallBack) -> None:
        callbacks, election = self._callbacks, self.election
        what, whom = (*effect.args, None, None)[:2]
        match effect.name:
            case "handle_leader_call":
                self._serve(effect.name, what, partial(self._answer, whom))
            case "handle_call":
                self._serve(effect.name, what, whom)
            case "surrendered":
                if what is not None:
                    world().note(self.actor_ref, "is handed {!r:.60}", what)
                run_callback(callbacks, effect.name, what, election)
            case "stepped_down":
                run_callback(callbacks, effect.name, election)
            case "from_leader" | "handle_down" | "handle_leader_cast":
                run_callback(callbacks, effect.name, what, election)
            case _:
                assert_never(effect.name)

    def _serve(self, name: str, request: Any, answer: Callable[[Any], None]) -> None:
        """Run a callback that answers a call; its exception is the caller's."""
        try:
            value = run_callback(self._callbacks, name, request, Caller(answer), self.election)
        except Exception as error:
            logger.info("%s raised an exception, which its caller gets", self, exc_info=error)
            value = error
        if value is not NO_REPLY:
            answer(value)

    def _answer(self, origin: Origin, value: Any) -> None:
        """Answer a call of the leader; from any thread."""
        self.core.carry_out(self.machine.reply(origin, value), self._do)

    # --- Calls of callbacks ---------------------------------------------------------------------

    def broadcast(self, message: Any, to: Iterable[Ref] | None) -> None:
        """See `ElectionState.broadcast`."""
        self.core.carry_out(self.machine.broadcast(message, to), self._do)

    def ensure_leading(self) -> None:
        """See `ElectionState.ensure_leading`."""
        why = self.core.objection(self.transactions.vouched())
        if why is not None:
            resource = self.transactions.lock_id[1]
            raise LeadershipLost(f"{self} no longer leads {resource!r}: {why}")

    def ask_candidates(
        self, request: Any, of: Iterable[Ref] | None, timeout: float | None
    ) -> Answers:
        """See `ElectionState.ask_candidates`."""
        check_timeout(timeout)
        if self.machine.electing is None:
            raise MisuseError(
                "ask_candidates can be called only in elected(), where no other leader asks this one; "
                "otherwise two could wait for each other. Elsewhere, broadcast, and let the candidates answer with a cast"
            )
        wanted = None if of is None else list(of)
        asked: list[Any] = [m for m in self.machine.askable() if wanted is None or m in wanted]
        deadline = None if timeout is None else self.node.clock() + timeout
        futures = [(member, member.ask(request, block=False)) for member in asked]
        answers = Answers([], [])
        for member, future in futures:
            try:
                answers.replies.append((member, self._answer_of(member, future, deadline)))
            except Exception as error:
                answers.errors.append((member, error))
        return answers

    def _answer_of(self, member: Ref, future: GeventFuture[Any], deadline: float | None) -> Any:
        """Wait for an answer for as long as one may: it might be the successor that asks this one."""
        while not future.is_set:
            left = LOOK if deadline is None else min(LOOK, deadline - self.node.clock())
            if left <= 0:
                raise pykka.Timeout(f"timed out waiting for {member}")
            with suppress(pykka.Timeout):  # of this wait, or raised by the candidate
                future.get(timeout=left)
            may_wait = self.machine.may_wait_for(self.node_of(member), self.transactions.merged())
            if not (future.is_set or may_wait):
                raise LeadershipLost(
                    f"{self} stopped waiting for {member}: it now has too few nodes"
                )
        return future.get()

    # --- Questions ------------------------------------------------------------------------------

    def node_of(self, member: Ref) -> str:
        """The node of an instance."""
        return member.node if isinstance(member, RemoteRef) else self.node.name

    def info(self) -> dict[str, Any]:
        """The instance's information."""
        election = self.election
        return {
            "leader": election.leader,
            "leader_node": election.leader_node,
            "candidates": election.candidates,
            "new_candidates": election.new_candidates,
            "workers": election.workers,
            "role": election.role,
            "term": election.term,
        }
