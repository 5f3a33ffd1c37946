"""One instance of an election as an actor: it runs a `Machine`, and its user's callbacks.

The contest's agent, the merge lock's agent and an agent that only watches nodes tell it what happens
by notifications, process groups tell who takes part, monitors who is gone. All of that comes
into the actor's inbox, and one thing at a time is given to the machine. What the machine wants done
is done at once. The actor waits only in callbacks; locks it never waits for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import pykka

import locks
from locks import Atom, GeventActor, LocksError, MisuseError, Node, Notification, RemoteRef, groups
from locks_leader import messages, wire
from locks_leader.behaviour import NO_REPLY, Behaviour, NewAndOld, OnlyNew, SurrenderTo
from locks_leader.errors import LeaderDied, LeadershipLost
from locks_leader.machine import NOTHING, Machine, Outcome, Surrender
from locks_leader.messages import Effect, Origin, Standing
from locks_leader.policy import Policy
from locks_leader.society import Kind
from locks_leader.state import Answers, Caller, ElectionState

__all__ = ["Begin", "Instance"]

logger = logging.getLogger("locks")

LOCKS_LEADER = Atom("locks_leader")
SYNC = Atom("sync")
WORKERS = Atom("workers")
Ref = pykka.ActorRef[Any]


class Begin(NamedTuple):
    """Begin; the answer says whether it could."""


class _Gone(NamedTuple):
    """A member is down."""

    member: Ref


class _MergeGone(NamedTuple):
    """The transaction of the merge lock has ended."""

    agent: Ref


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
        self.lock_id = (LOCKS_LEADER, resource)
        self.merge_id = (LOCKS_LEADER, SYNC, resource)
        self.machine = Machine(self.actor_ref, kind, policy, node.alive)
        self.election = ElectionState(self)
        self._callbacks = behaviour()
        self._args = args
        self._agent: locks.Agent | None = None  # the contest's
        self._round = 0
        self._merge: locks.Agent | None = None
        self._merge_number = 0
        self._seen = node.alive
        self._electing = False
        self._begun = False
        self._groups: dict[Kind, tuple[Any, ...]] = {
            "candidate": (LOCKS_LEADER, list(self.lock_id)),
            "worker": (LOCKS_LEADER, WORKERS, list(self.lock_id)),
        }
        self._monitors: list[groups.GroupMonitor] = []
        self._does: dict[type[Any], Callable[[Any], object]] = {
            messages.Contend: self._contend,
            messages.Include: self._include,
            messages.Withdraw: self._withdraw,
            messages.AskTerm: self._ask_term,
            messages.TakeMerge: self._take_merge,
            messages.DropMerge: self._drop_merge,
            messages.Monitor: self._monitor,
            messages.Send: self._send,
            messages.Elect: self._elect,
            messages.CallBack: self._call_back,
            messages.Reply: self._reply,
        }

    # --- Its life -------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._callbacks.init(*self._args)
        self._begun = True
        self.node.spawn_agent(self.actor_ref, notify=True, monitor_nodes=True)
        for kind, group in self._groups.items():
            monitor = groups.monitor(group, self.actor_ref, node=self.node)
            self._monitors.append(monitor)
            self._joined(kind, monitor.members)
        groups.join(self._groups[self.machine.kind], self.actor_ref, node=self.node)
        self._perform(self.machine.start())

    def on_stop(self) -> None:
        """End in good order: the locks are released at once, then `terminate` is called."""
        self._leave("normal")

    def on_failure(self, exception_type: Any, exception_value: Any, traceback: Any) -> None:
        """A callback has raised an exception, or the actor was killed."""
        self._leave(exception_value)

    def _leave(self, reason: object) -> None:
        for agent in (self._merge, self._agent):
            if agent is not None and agent.is_alive():
                locks.end_transaction(agent)
        if self._begun:
            self._begun = False
            self._callbacks.terminate(reason, self.election)

    # --- What comes in --------------------------------------------------------------------------

    def on_receive(self, message: Any) -> Any:
        """Take in one message."""
        kind = type(message)
        if kind is Notification:
            self._notified(message)
        elif kind is groups.Joined or kind is groups.Left:
            self._society_changed(message)
        elif kind is _Gone:
            self._perform(self.machine.down(message.member))
        elif kind is _MergeGone:
            if message.agent is self._merge:
                self._merge = None
                self._perform(self.machine.merge(self._merge_number, held=False))
        elif kind is Begin:
            self._begin()
        elif kind is tuple and message and isinstance(message[0], Atom):
            return self._term(message)
        else:
            return self._other(message)
        return None

    def _term(self, term: tuple[Any, ...]) -> Any:
        head = term[0]
        if head == wire.TAG and len(term) == 4 and term[1] == wire.CALL:
            self._leader_call(term[2], term[3], self.defer())
        elif head == wire.TAG and len(term) == 3 and term[1] == wire.CANCEL:
            self._perform(self.machine.cancel(term[2]))
        elif head == wire.TAG and len(term) == 3 and term[1] == wire.CAST:
            self._callbacks.handle_cast(term[2], self.election)
        elif head == wire.TAG:
            try:
                sender, message = wire.unpack(term)
            except MisuseError as error:
                logger.warning("%s ignores a message: %s", self, error)
                return None
            if isinstance(message, messages.Answer):
                message = message._replace(value=wire.unpack_outcome(message.value))
            self._perform(self.machine.receive(sender, self.node_of(sender), message))
        elif head == wire.LEADER_CALL and len(term) == 2:
            self._leader_call(None, term[1], partial(_answer_as_original, self.defer()))
        elif head == wire.LEADER_CAST and len(term) == 2:
            self._perform(self.machine.leader_cast(term[1]))
        else:
            return self._other(term)
        return None

    def _other(self, message: Any) -> Any:
        if message == wire.INFO:
            return self.info()
        if not self.asked:
            self._callbacks.handle_info(message, self.election)
            return None
        answer = self.defer()
        value = self._callbacks.handle_call(message, Caller(answer), self.election)
        if value is not NO_REPLY:
            answer(value)
        return None

    def _leader_call(self, ticket: Any, request: Any, answer: Callable[[Any], None]) -> None:
        call = _Call(ticket, answer)
        self._perform(self.machine.leader_call(call, request))

    def _notified(self, news: Notification) -> None:
        agent = self._agent
        if self._merge is not None and news.agent == self._merge.id:
            if news.kind == "have_all_locks":
                self._perform(self.machine.merge(self._merge_number, held=True))
        elif news.kind == "token":
            if agent is not None and news.agent == agent.id:
                self._tell_token(news.value[1])
        else:
            self._look()

    def _tell_token(self, token: Any) -> None:
        known = None if isinstance(token, Exception) else token
        self._perform(self.machine.token(self._round, known))

    def _look(self) -> None:
        """Tell the machine which nodes are up, and how the contest stands."""
        alive = self.node.alive
        if alive != self._seen:
            self._seen = alive
            self._perform(self.machine.nodes(alive))
        agent = self._agent
        if agent is not None and agent.is_alive():
            status = locks.transaction_status(agent).status
            (info,) = locks.lock_info(agent)
            grants = frozenset(zip(info.granted, info.versions, strict=True))
            standing = Standing(grants, held=info.held and status == "have_all_locks")
            self._perform(self.machine.contest(self._round, standing))

    def _society_changed(self, news: groups.Joined | groups.Left) -> None:
        kind: Kind = "candidate" if news.group == self._groups["candidate"] else "worker"
        if isinstance(news, groups.Joined):
            self._joined(kind, news.members)
        else:
            for member in news.members:
                if member != self.actor_ref:
                    self._perform(self.machine.down(member))

    def _joined(self, kind: Kind, members: Iterable[Ref]) -> None:
        for member in members:
            if member != self.actor_ref:
                self._perform(self.machine.joined(member, self.node_of(member), kind))

    # --- What the machine wants done ------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            self._does[type(effect)](effect)

    def _contend(self, effect: messages.Contend) -> None:
        self._round = effect.round
        self._agent = self.node.spawn_agent(self.actor_ref, notify=True, await_nodes=True)
        self._ask(effect.nodes)

    def _include(self, effect: messages.Include) -> None:
        self._ask((effect.node,))

    def _ask(self, nodes: Iterable[str]) -> None:
        assert self._agent is not None
        locks.lock_nowait(self._agent, self.lock_id, "write", sorted(nodes), "all_alive")

    def _withdraw(self, effect: messages.Withdraw) -> None:
        agent, self._agent = self._agent, None
        if agent is not None and agent.is_alive():
            locks.end_transaction(agent)

    def _ask_term(self, effect: messages.AskTerm) -> None:
        assert self._agent is not None
        try:
            locks.fencing_token_nowait(self._agent, self.lock_id)
        except LocksError as error:
            self.actor_ref.tell(Notification(self._agent.id, "token", (self.lock_id, error)))

    def _take_merge(self, effect: messages.TakeMerge) -> None:
        self._merge_number = effect.number
        agent = self.node.spawn_agent(self.actor_ref, notify=True, abort_on_deadlock=True)
        self._merge = agent
        locks.monitor(agent, lambda _: _tell(self.actor_ref, _MergeGone(agent)))
        locks.lock_nowait(agent, self.merge_id, "write", sorted(effect.nodes), "all_alive")

    def _drop_merge(self, effect: messages.DropMerge) -> None:
        agent, self._merge = self._merge, None
        if agent is not None and agent.is_alive():
            locks.end_transaction(agent)

    def _monitor(self, effect: messages.Monitor) -> None:
        member: Any = effect.member
        locks.monitor(member, lambda _: _tell(self.actor_ref, _Gone(member)))

    def _send(self, effect: messages.Send) -> None:
        message = effect.message
        if isinstance(message, messages.Answer):
            message = message._replace(value=wire.pack_outcome(message.value))
        member: Any = effect.member
        _tell(member, wire.pack(message, self.actor_ref))

    def _elect(self, effect: messages.Elect) -> None:
        newcomer: Any = effect.newcomer
        self._electing = True
        try:
            outcome = self._callbacks.elected(self.election, newcomer)
        finally:
            self._electing = False
        self._perform(self.machine.elected(_outcome(outcome)))

    def _call_back(self, effect: messages.CallBack) -> None:
        callback = getattr(self._callbacks, effect.name)
        if effect.name != "handle_leader_call":
            callback(*effect.args, self.election)
            return
        request, origin = effect.args
        answer = partial(self._answer, origin)
        try:
            value = callback(request, Caller(answer), self.election)
        except Exception as error:
            logger.info("%s has raised an exception to a caller", self, exc_info=error)
            value = error
        if value is not NO_REPLY:
            answer(value)

    def _answer(self, origin: Origin, value: Any) -> None:
        self._perform(self.machine.reply(origin, value))

    def _reply(self, effect: messages.Reply) -> None:
        call: Any = effect.call
        call.answer(effect.value)

    # --- What callbacks want done ---------------------------------------------------------------

    def broadcast(self, message: Any, to: Iterable[Ref] | None) -> None:
        """See `ElectionState.broadcast`."""
        self._perform(self.machine.broadcast(message, to))

    def ensure_leading(self) -> None:
        """See `ElectionState.ensure_leading`; the agent knows of a loss before the machine does."""
        agent, machine = self._agent, self.machine
        why: object = f"it is {machine.role}"
        if agent is not None and machine.leader == self.actor_ref:
            try:
                locks.ensure_held(agent, self.lock_id)
                (info,) = locks.lock_info(agent)
                if machine.policy.enough(frozenset(info.granted)):
                    return
                why = f"only {len(info.granted)} of the nodes that count can be reached"
            except LocksError as error:
                why = error
        raise LeadershipLost(f"{self} does not lead {self.lock_id[1]!r} any more: {why}")

    def ask_candidates(
        self, request: Any, of: Iterable[Ref] | None, timeout: float | None
    ) -> Answers:
        """See `ElectionState.ask_candidates`."""
        if not self._electing:
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


class _Call:
    """A call for the leader that was made here."""

    __slots__ = ("answer", "ticket")

    def __init__(self, ticket: Any, answer: Callable[[Any], None]) -> None:
        self.ticket = ticket
        self.answer = answer

    def __eq__(self, other: object) -> bool:
        ticket = other.ticket if isinstance(other, _Call) else other
        return self is other or (self.ticket is not None and self.ticket == ticket)

    def __hash__(self) -> int:
        return hash(self.ticket)


def _outcome(returned: Any) -> Outcome | Surrender:
    if isinstance(returned, SurrenderTo):
        return Surrender(returned.candidate)
    if isinstance(returned, NewAndOld):
        return Outcome(returned.new, returned.old)
    if isinstance(returned, OnlyNew):
        return Outcome(returned.message, NOTHING)
    return Outcome(returned, returned)


def _answer_as_original(answer: Callable[[Any], None], value: Any) -> None:
    if isinstance(value, LeaderDied):
        answer(wire.LEADER_DIED)
    elif isinstance(value, Exception):
        answer(value)
    else:
        answer((wire.LEADER_REPLY, value))


def _tell(ref: Ref, message: Any) -> None:
    """Tell an actor something, unless it has ended."""
    try:
        ref.tell(message)
    except pykka.ActorDeadError:
        logger.debug("%s has ended, and is not told %r", ref, message)
