"""One instance of an election as an actor: it runs a `Machine`, and its user's callbacks.

The agents of its transactions (`locks_leader.shell.transactions`) and one that only watches nodes tell it what
happens by notifications, process groups tell who takes part, monitors who is gone. All of that comes
into the actor's inbox, and one thing at a time is given to the machine. What the machine wants done
is done at once. The actor waits only in callbacks; locks it never waits for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import pykka

import locks
from locks import (
    AgentEnded,
    Atom,
    GeventActor,
    LocksError,
    MisuseError,
    Node,
    NodeNotRunning,
    Notification,
    RemoteRef,
    View,
    groups,
)
from locks.runtime import tell
from locks_leader.behaviour import NO_REPLY, Behaviour, outcome_of
from locks_leader.core import messages
from locks_leader.core.machine import Machine
from locks_leader.core.membership import Kind
from locks_leader.core.messages import Effect, Origin
from locks_leader.errors import LeadershipLost, LeaderTimeout
from locks_leader.policy import Policy
from locks_leader.shell.original_peers import OriginalCandidates
from locks_leader.shell.transactions import LOCKS_LEADER, AgentGone, Transactions
from locks_leader.state import Answers, Caller, ElectionState
from locks_leader.wire import messages as wire

__all__ = ["Begin", "Instance"]

logger = logging.getLogger("locks")

WORKERS = Atom("workers")
Ref = pykka.ActorRef[Any]


class Begin(NamedTuple):
    """Begin; the answer says whether it could."""


class _Gone(NamedTuple):
    """A member is down."""

    member: Ref


class Instance(GeventActor):
    """A candidate or a worker. `locks_leader.start` makes it.

    Args:
        behaviour: The class with the callbacks.
        args: The arguments of its `init`.
        resource: What the election is about.
        kind: As what it takes part.
        policy: Which nodes are enough to lead.
        node: Its node.
    """

    def __init__(
        self,
        behaviour: type[Behaviour],
        args: Sequence[Any],
        resource: Any,
        kind: Kind,
        policy: Policy,
        node: Node,
    ) -> None:
        super().__init__()
        self.node = node
        self.transactions = Transactions(node, self.actor_ref, resource)
        self.lock_id = self.transactions.lock_id
        self.machine = Machine(self.actor_ref, kind, policy, node.alive)
        self.election = ElectionState(self)
        self._callbacks = behaviour()
        self._args = args
        self._seen = node.alive
        self._begun = False
        self._original_candidates: OriginalCandidates | None = None
        self._groups: dict[Kind, tuple[Any, ...]] = {
            "candidate": (LOCKS_LEADER, list(self.lock_id)),
            "worker": (LOCKS_LEADER, WORKERS, list(self.lock_id)),
        }
        self._open_calls: dict[Any, _Call] = {}
        self._watched: dict[Ref, locks.Monitor] = {}
        self._does: dict[type[Any], Callable[[Any], object]] = {
            messages.Contend: self.transactions.contend,
            messages.Withdraw: self.transactions.withdraw,
            messages.AskTerm: self.transactions.ask_term,
            messages.TakeMerge: self.transactions.take_merge,
            messages.DropMerge: self.transactions.drop_merge,
            messages.Monitor: self._monitor,
            messages.Send: self._send,
            messages.CallBack: self._call_back,
            messages.Reply: self._reply,
        }

    # --- Its life -------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._callbacks.init(*self._args)
        self._begun = True
        observer = self.node.spawn_agent(self.actor_ref, notify=True, monitor_nodes=True)
        # Without its lock server the node can vouch for nothing.
        locks.monitor(observer, lambda _: self.actor_ref.stop(block=False))
        self.node.dependents.add(self.actor_ref)
        for kind, group in self._groups.items():
            monitor = groups.monitor(group, self.actor_ref, node=self.node)
            self._joined(kind, monitor.members)
        groups.join(self._groups[self.machine.kind], self.actor_ref, node=self.node)
        self.perform(self.machine.start())

    def on_stop(self) -> None:
        """End in good order: the locks are released at once, then `terminate` is called."""
        self._leave("normal")

    def on_failure(self, exception_type: Any, exception_value: Any, traceback: Any) -> None:
        """A callback has raised an exception, or the actor was killed."""
        self._leave(exception_value)

    def _leave(self, reason: object) -> None:
        self.transactions.end()
        if self._original_candidates is not None:
            self._original_candidates.end()
        self.node.dependents.discard(self.actor_ref)
        for monitor in self._watched.values():  # or the others would keep it in memory
            monitor.cancel()
        self._watched.clear()
        if self._begun:
            self._begun = False
            self._callbacks.terminate(reason, self.election)

    # --- What comes in --------------------------------------------------------------------------

    def on_receive(self, message: Any) -> Any:
        """Take in one message."""
        try:
            return self._take(message)
        except Exception as error:
            if isinstance(error, (AgentEnded, NodeNotRunning)) and not self.node.running:
                self.stop()  # with its node, which was stopped in the middle of it
            elif type(message) is Begin or not self.asked:
                raise
            else:
                self.fail(error)  # a callback has failed; not for what was asked
        return None

    def _take(self, message: Any) -> Any:
        kind = type(message)
        if kind is Notification:
            self._notified(message)
        elif kind is groups.Joined or kind is groups.Left:
            self._membership_changed(message)
        elif kind is View:
            if self._original_candidates is not None:
                self._original_candidates.viewed(message)
        elif kind is _Gone:
            self._down(message.member)
        elif kind is AgentGone:
            self._agent_gone(message.agent)
        elif kind is Begin:
            self._begin()
        elif kind is tuple and message and isinstance(message[0], Atom):
            return self._term(message)
        elif kind is tuple and message and self._original_candidates is not None and not self.asked:
            if not self._original_candidates.receive(message):  # an answer to what was passed on
                return self._other(message)
        else:
            return self._other(message)
        return None

    def _term(self, term: tuple[Any, ...]) -> Any:
        head = term[0]
        if head == wire.TAG and len(term) == 4 and term[1] == wire.CALL:
            self._leader_call(term[2], term[3], self.defer())
        elif head == wire.TAG and len(term) == 3 and term[1] == wire.CANCEL:
            call = self._open_calls.get(term[2])
            if call is not None:
                self.perform(self.machine.cancel(call))
                self._reply(messages.Reply(call, LeaderTimeout("the caller has given up")))
        elif head == wire.TAG and len(term) == 3 and term[1] == wire.CAST:
            self._callbacks.handle_cast(term[2], self.election)
        elif head == wire.TAG:
            try:
                sender, message = wire.unpack(term)
            except MisuseError as error:
                logger.warning("%s ignores a message: %s", self, error)
                return None
            if isinstance(message, messages.ForwardAnswer):
                message = message._replace(value=wire.unpack_outcome(message.value))
            self.perform(self.machine.receive(sender, self.node_of(sender), message))
        elif head == LOCKS_LEADER and not self.asked:
            self.original_candidates().receive(term)
        elif head == wire.LEADER_CALL and len(term) == 2:
            answer = partial(wire.answer_as_original, self.defer())
            self._leader_call(object(), term[1], answer)
        elif head == wire.LEADER_CAST and len(term) == 2:
            self.perform(self.machine.leader_cast(term[1]))
        else:
            return self._other(term)
        return None

    def _other(self, message: Any) -> Any:
        if type(message) is Atom and message == wire.INFO:
            return self.info()
        if not self.asked:
            self._callbacks.handle_info(message, self.election)
            return None
        if self.machine.role == "leader":
            self._look()  # or it might answer its successor, and take something in afterwards
        self._serve(self._callbacks.handle_call, message, self.defer())
        return None

    def _serve(
        self, callback: Callable[..., Any], request: Any, answer: Callable[[Any], None]
    ) -> None:
        """Run a callback that answers a call; its exception is the caller's."""
        try:
            value = callback(request, Caller(answer), self.election)
        except Exception as error:
            logger.info("%s has raised an exception to a caller", self, exc_info=error)
            value = error
        if value is not NO_REPLY:
            answer(value)

    def _leader_call(self, ticket: Any, request: Any, answer: Callable[[Any], None]) -> None:
        call = _Call(ticket, answer)
        self._open_calls[ticket] = call
        self.perform(self.machine.leader_call(call, request))

    def _notified(self, news: Notification) -> None:
        if news.kind == "nodedown":  # it may be back already: what was locked there is gone
            self._saw_nodes(self._seen - {news.value})
        transactions = self.transactions
        if transactions.merge is not None and news.agent == transactions.merge.id:
            if news.kind == "have_all_locks":
                self.perform(self.machine.merge(transactions.merge_number, held=True))
        elif news.kind == "token":
            if transactions.contest is not None and news.agent == transactions.contest.id:
                self._tell_token(news.value[1])
        else:
            self._look()

    def _tell_token(self, token: Any) -> None:
        round = self.transactions.round
        self._look()  # the token is good for what is granted now, if it is the last one asked for
        known = None if isinstance(token, Exception) else token
        self.perform(self.machine.token(round, known))

    def _agent_gone(self, agent: Ref) -> None:
        transactions = self.transactions
        if not self.node.running:
            return
        if agent is transactions.merge:
            transactions.merge = None
            self.perform(self.machine.merge(transactions.merge_number, held=False))
        elif agent is transactions.contest:
            transactions.contest = None
            self.perform(self.machine.agent_gone(transactions.round))

    def _look(self) -> None:
        """Tell the machine which nodes are up, and how the contest stands."""
        self._saw_nodes(self.node.alive)
        standing = self.transactions.standing()
        if standing is not None:
            self.perform(self.machine.contest(self.transactions.round, standing))

    def _saw_nodes(self, alive: frozenset[str]) -> None:
        if alive != self._seen:
            self._seen = alive
            self.perform(self.machine.nodes(alive))

    def _membership_changed(self, news: groups.Joined | groups.Left) -> None:
        kind: Kind = "candidate" if news.group == self._groups["candidate"] else "worker"
        if isinstance(news, groups.Joined):
            self._joined(kind, news.members)
        else:
            for member in news.members:
                if member != self.actor_ref:
                    self._down(member)

    def _down(self, member: Ref) -> None:
        watched = self._watched.pop(member, None)
        if watched is not None:
            watched.cancel()
        if self._original_candidates is not None:
            self._original_candidates.down(member)
        self.perform(self.machine.down(member))

    def _joined(self, kind: Kind, members: Iterable[Ref]) -> None:
        for member in members:
            if member != self.actor_ref:
                self.perform(self.machine.joined(member, self.node_of(member), kind))
                if kind == "candidate" and self._is_original(member):
                    self.original_candidates().met(member)

    # --- What the machine wants done ------------------------------------------------------------

    def perform(self, effects: list[Effect]) -> None:
        """Do what the machine wants done."""
        while effects:
            more: list[Effect] = []
            for kind, several in groupby(effects, type):
                if kind is messages.Include:  # all at once: that takes one turn, and fewer messages
                    nodes = [each.node for each in several if isinstance(each, messages.Include)]
                    self.transactions.include(nodes)
                elif kind is messages.Elect:  # the last one; hundreds may follow each other
                    for effect in several:
                        more = self._elect(effect)
                else:
                    for effect in several:
                        self._does[kind](effect)
            effects = more

    def _monitor(self, effect: messages.Monitor) -> None:
        member: Any = effect.member
        told = partial(self._tell_gone, member)
        self._watched[member] = locks.monitor(member, told)

    def _tell_gone(self, member: Ref, down: locks.Down) -> None:
        tell(self.actor_ref, _Gone(member))

    def _send(self, effect: messages.Send) -> None:
        message = effect.message
        if isinstance(message, messages.ForwardAnswer):
            message = message._replace(value=wire.pack_outcome(message.value))
        member: Any = effect.member
        if self._is_original(member):
            self.original_candidates().send(member, message)
            return
        try:
            tell(member, wire.pack(message, self.actor_ref))
        except LocksError as error:  # there is something in it that Erlang has no term for
            self._not_sent(member, message, error)

    def _not_sent(self, member: Ref, message: messages.Message, error: LocksError) -> None:
        """Whose fault it is gets the error: a caller, or our own callback."""
        if isinstance(message, messages.ForwardAnswer):
            answer = message._replace(value=wire.pack_outcome(error))
            tell(member, wire.pack(answer, self.actor_ref))
        elif isinstance(message, messages.Forward):
            self.perform(self.machine.not_sent(message.number, error))
        elif isinstance(message, messages.LeaderCast):
            logger.error("%s can't pass on a message to the leader: %s", self, error)
        else:
            raise error

    def _elect(self, effect: Any) -> list[Effect]:
        newcomer = effect.newcomer
        outcome = self._callbacks.elected(self.election, newcomer)
        self._look()  # a link may have been lost meanwhile
        return self.machine.elected(outcome_of(outcome))

    def _call_back(self, effect: messages.CallBack) -> None:
        callback = getattr(self._callbacks, effect.name)
        if effect.name == "handle_leader_call":
            request, origin = effect.args
            self._serve(callback, request, partial(self._answer, origin))
        else:
            callback(*effect.args, self.election)

    def _answer(self, origin: Origin, value: Any) -> None:
        self.perform(self.machine.reply(origin, value))

    def _reply(self, effect: messages.Reply) -> None:
        call: Any = effect.call
        if self._open_calls.pop(call.ticket, None) is not None:
            call.answer(effect.value)

    # --- What callbacks want done ---------------------------------------------------------------

    def broadcast(self, message: Any, to: Iterable[Ref] | None) -> None:
        """See `ElectionState.broadcast`."""
        self.perform(self.machine.broadcast(message, to))

    def ensure_leading(self) -> None:
        """See `ElectionState.ensure_leading`; the agent knows of a loss before the machine does."""
        why: object | None = f"it is {self.machine.role}"
        if self.machine.leader == self.actor_ref:
            why = self.transactions.objection(self.machine.ground, self.machine.policy)
        if why is not None:
            raise LeadershipLost(f"{self} does not lead {self.lock_id[1]!r} any more: {why}")

    def ask_candidates(
        self, request: Any, of: Iterable[Ref] | None, timeout: float | None
    ) -> Answers:
        """See `ElectionState.ask_candidates`."""
        if self.machine.electing is None:
            raise MisuseError(
                "candidates can be asked within elected() only, where no other leader asks this one: "
                "else two could wait for each other. Elsewhere, broadcast, and let them cast"
            )
        asked: list[Any] = self.machine.askable()
        if of is not None:
            wanted = list(of)
            asked = [member for member in asked if member in wanted]
        deadline = None if timeout is None else time.monotonic() + timeout
        futures = [(member, member.ask(request, block=False)) for member in asked]
        answers = Answers([], [])
        for member, future in futures:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                answers.replies.append((member, future.get(timeout=left)))
            except Exception as error:
                answers.errors.append((member, error))
        return answers

    # --- Questions ------------------------------------------------------------------------------

    def node_of(self, member: Ref) -> str:
        """The node of an instance."""
        return member.node if isinstance(member, RemoteRef) else self.node.name

    def original_candidates(self) -> OriginalCandidates:
        """What stands between this instance and those of the original."""
        if self._original_candidates is None:
            self._original_candidates = OriginalCandidates(self)
        return self._original_candidates

    def _is_original(self, member: Ref) -> bool:
        return isinstance(member, RemoteRef) and self.node.runs_original(member.node)

    def info(self) -> list[tuple[Atom, Any]]:
        """What there is to know, as the original has it."""
        election = self.election
        return [
            (Atom("leader"), election.leader),
            (Atom("leader_node"), election.leader_node),
            (Atom("candidates"), election.candidates),
            (Atom("new_candidates"), election.new_candidates),
            (Atom("workers"), election.workers),
            (Atom("role"), election.role),
            (Atom("term"), election.term),
        ]


class _Call(NamedTuple):
    """A call for the leader that was made here."""

    ticket: Any
    answer: Callable[[Any], None]
