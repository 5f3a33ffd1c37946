"""A simulated instance of an election: the real core, with real agents, and its set of keys.

It carries out the effects of the `InstanceCore`, as the actor does (`locks_leader.shell.instance`),
and passes events to it. The core has the mailbox, and makes all decisions. A `HomeNode` is
everything that an instance needs from its node.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

from locks.core.agent.machine import AgentMachine
from locks.core.messages import (
    AgentEffect,
    AgentMessage,
    AnswerWait,
    Ended,
    Lost,
    Notify,
    ToAgent,
    ToServer,
)
from locks.errors import CannotServe, LockLost, NotHeld, TransactionEnded, assert_never
from locks.model import AgentId, LockId
from locks_lab.leader.application import Collection, Unsendable, answer_to, can_be_sent
from locks_lab.leader.parties import Ask, MemberId, Poll, Said, State, ToInstance
from locks_lab.leader.rules import RULES
from locks_lab.worlds.host import Violation
from locks_lab.worlds.network import Party
from locks_leader.core.events import (
    CONTEST_OPTIONS,
    ENDS,
    LOCK,
    MERGE_OPTIONS,
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
    ContestStanding,
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
    MergeTold,
    MonitorMember,
    NodeLost,
    Noticed,
    NotSent,
    Origin,
    Received,
    Reply,
    SendToMember,
    SurrenderLeadership,
    TokenTold,
    standing_of,
)
from locks_leader.core.messages import Forward, Kind
from locks_leader.errors import NotLeader
from locks_leader.policy import Policy

__all__ = ["CONTEST", "MERGE", "HomeNode", "SimulatedInstance", "To"]

CONTEST: LockId = ("locks_leader", "x")
MERGE: LockId = ("locks_leader", "sync", "x")
To = Literal["all", "candidates"]  # the receivers of a leader's broadcast


class HomeNode(Protocol):
    """Everything that an instance needs from its node.

    Attributes:
        eager: The kinds of events that happen as soon as they can.
        elections: The instance adds its elections here: reference, term, ground, newcomer.
        written: The instance adds the calls here that it has carried out: key, reference, term.
    """

    eager: frozenset[str]
    elections: list[tuple[Any, ...]]
    written: list[tuple[str, MemberId, int]]

    @property
    def alive(self) -> frozenset[str]:
        """The nodes whose lock servers are up."""

    def send(self, sender: Party, receiver: Party, message: Said) -> None:
        """Send a message to a party on any node."""

    def new_agent(self, owner: MemberId, options: dict[str, bool]) -> AgentMachine:
        """A new agent, younger than all on this node."""

    def monitor(self, watcher: MemberId, member: MemberId) -> bool:
        """Send `MemberDown` when a member is down; return whether it is up now."""


class SimulatedInstance:
    """A candidate, or a worker.

    Args:
        ref: Its reference.
        kind: Whether it is a candidate or a worker.
        policy: Which nodes are enough to lead.
        node: Its node.
        rule: The name of the rule for its machines.

    Attributes:
        core: The core, which makes the decisions.
        news: The notifications of its agents and its node that are not in the mailbox yet.
        poll: The states that `elected` waits for, if it does.
        leads: Whether its last callback was `elected`, and not one that ends the leadership.
        yields: How often it gives the leadership away when it is elected, if there is another
            candidate.
        calls: The keys of the leader calls that were made here.
        casts: The keys of the casts that were made here.
        cancelled: The keys of the calls whose callers have given up.
        answers: The answers to callers, by key.
    """

    def __init__(
        self, ref: MemberId, kind: Kind, policy: Policy, node: HomeNode, rule: str
    ) -> None:
        self.ref = ref
        self.node = node
        self.machine = RULES[rule].machine(ref, kind, policy, node.alive)
        self.core = RULES[rule].core(self.machine)
        self.app = Collection(ref, kind, policy.is_outside(ref.node))
        self.news: list[Incoming] = []
        self.contest: AgentMachine | None = None
        self.round = 0
        self.merge: AgentMachine | None = None
        self.merge_number = 0
        self.monitored: dict[MemberId, None] = {}
        self.poll: Poll | None = None
        self.polls = 0
        self.asked = 0
        self.leads = False
        self.yields = 0
        self.calls: dict[str, None] = {}
        self.casts: dict[str, None] = {}
        self.cancelled: dict[str, None] = {}
        self.answers: dict[str, Any] = {}

    @property
    def agents(self) -> list[AgentMachine]:
        """Its agents that live."""
        return [agent for agent in (self.contest, self.merge) if agent is not None]

    # --- The mailbox

    def put(self, event: Incoming) -> None:
        """Put an event into the mailbox."""
        self.core.put(event)

    def notify(self, event: Incoming) -> None:
        """An agent or the node has news. What happens before it looks needs no other notice."""
        if "news" in self.node.eager:
            self.put(event)
        elif not (type(event) is Noticed and any(type(each) is Noticed for each in self.news)):
            self.news.append(event)

    def hear_news(self) -> None:
        """The first of the news gets to the mailbox."""
        self.core.put(self.news.pop(0))

    def take(self) -> None:
        """Handle the first event of the mailbox."""
        self.core.carry_out(self.core.take_event(), self._do)

    def take_all(self) -> None:
        """Take all of it."""
        self.core.drive(self._do)

    # --- Events

    def receive(self, sender: MemberId, message: ToInstance) -> None:
        """A message of another instance arrives."""
        match message:
            case MemberDown():
                self.lost(sender)
            case State():
                self._answered(sender, message)
            case Ask():
                self.put(Called(message, sender))
            case _:
                self.put(Received(sender, sender.node, message))

    def lost(self, member: MemberId) -> None:
        """A member is down: process groups say so, or its own monitor."""
        self.monitored.pop(member, None)
        self.put(MemberDown(member))
        if self.poll is not None and member in self.poll.waits:
            self.poll.waits.remove(member)

    def sees(self, node: str, there: bool) -> None:
        """Its node sees another one as up, or as down."""
        for agent in self.agents:
            self._obey(agent, (agent.node_up if there else agent.node_down)(node))
        self._look_whether_to_wait()
        self.notify(Noticed() if there else NodeLost(node))

    @property
    def merged(self) -> frozenset[str]:
        """The nodes on which it has the merge lock."""
        infos = () if self.merge is None else self.merge.lock_info()
        return frozenset(node for info in infos for node in info.granted)

    def _look_whether_to_wait(self) -> None:
        if self.poll is not None:
            may, had = self.machine.may_wait_for, self.merged
            self.poll.waits = [each for each in self.poll.waits if may(each.node, had)]

    def die(self) -> None:
        """It ends, and its agents do."""
        for agent in self.agents:
            self._obey(agent, agent.end_transaction())

    # --- Actions of users

    def call(self, key: str) -> None:
        """A user calls the leader through it, to write a key."""
        self.calls[key] = None
        self.put(LeaderCalled(key, key))

    def cast(self, key: str) -> None:
        """A user casts a message to the leader through it, to write a key."""
        self.casts[key] = None
        self.put(CastMade(key))

    def cancel(self, key: str) -> None:
        """The caller of a call gives up."""
        self.cancelled[key] = None
        self.put(CallCancelled(key))

    def broadcast(self, to: To) -> None:
        """It broadcasts a message, which only a leader may do."""
        if to == "all":
            self._tell_followers(("all", self.app.keys))
        else:
            candidates = self.machine.membership.those("candidate")
            self._tell_followers(("hint", "x"), candidates)

    def _tell_followers(self, payload: Any, to: list[Any] | None = None) -> None:
        try:
            effects = self.machine.broadcast(payload, to)
        except NotLeader as error:
            if self.leads:
                raise Violation(f"{self.ref} leads, and must not broadcast: {error}") from error
            return
        if not self.leads:
            raise Violation(f"{self.ref} broadcasts, and does not lead")
        self.core.carry_out(effects, self._do)

    # --- Its agents

    def hears(self, message: AgentMessage, agent: AgentId) -> None:
        """A message to one of its agents arrives."""
        for each in self.agents:
            if each.id == agent:
                self._obey(each, each.receive(message))

    def settle(self, agent: AgentId) -> None:
        """One of its agents looks at what it knows."""
        for each in self.agents:
            if each.id == agent:
                self._obey(each, each.settle())

    def lose(self, agent: AgentId) -> None:
        """One of its agents ends by itself."""
        for each in self.agents:
            if each.id == agent:
                self._obey(each, each.end_transaction(TransactionEnded("stopped", agent=agent)))

    def _obey(self, agent: AgentMachine, effects: list[AgentEffect]) -> None:
        """Carry out the effects of an agent."""
        for effect in effects:
            match effect:
                case ToServer():
                    self.node.send(agent.id, effect.node, effect.message)
                case ToAgent():
                    self.node.send(agent.id, effect.agent, effect.message)
                case Notify():
                    self._notified(agent, effect.notification.kind)
                case AnswerWait(wait=(int(round), _), result=result):
                    self.notify(TokenTold(round, result if isinstance(result, int) else None))
                case Ended():
                    if effect.reason is not None:
                        self._ended(agent)
                case AnswerWait():
                    raise Violation(f"{self.ref}: nobody asked for {effect}")
                case Lost():
                    pass  # it is notified, too
                case _:
                    assert_never(effect)

    def _notified(self, agent: AgentMachine, kind: str) -> None:
        if kind in ENDS:
            return  # its end is reported in any case
        if agent is self.contest:
            self.notify(Noticed())
        elif agent is self.merge and kind == "have_all_locks":
            self.notify(MergeTold(self.merge_number, held=True))

    def _ended(self, agent: AgentMachine) -> None:
        if agent is self.contest:
            self.contest = None
            self.notify(ContestGone(self.round))
        elif agent is self.merge:
            self.merge = None
            self._look_whether_to_wait()
            self.notify(MergeTold(self.merge_number, held=False))

    # --- Effects of the core

    def _do(self, effect: Effect) -> Answer | None:
        member: Any
        match effect:
            case Look():
                return Looked(self.node.alive, effect.round, self._standing())
            case BeginContest():
                self.round = effect.round
                self.contest = self.node.new_agent(self.ref, CONTEST_OPTIONS)
                self._ask(self.contest, CONTEST, effect.nodes)
            case IncludeNodes():
                self._ask(self.contest, CONTEST, effect.nodes)
            case EndContest():
                agent, self.contest = self.contest, None
                self._end(agent)
            case AskToken():
                self._ask_token(effect.round)
            case BeginMerge():
                self.merge_number = effect.number
                self.merge = self.node.new_agent(self.ref, MERGE_OPTIONS)
                try:
                    self._ask(self.merge, MERGE, effect.nodes)
                except CannotServe:  # all of these nodes are lost, which another event reports
                    self.notify(MergeTold(effect.number, held=False))
            case EndMerge():
                agent, self.merge = self.merge, None
                self._end(agent)
            case MonitorMember():
                member = effect.member
                self.monitored[member] = None
                if not self.node.monitor(self.ref, member):
                    self.lost(member)
            case SendToMember():
                return self._send(effect)
            case Elect():
                return self._elect(effect)
            case CallBack():
                self._call_back(effect)
            case Reply():
                self._reply(effect)
            case CastLost():
                pass
            case _:
                assert_never(effect)
        return None

    def _ask(self, agent: AgentMachine | None, lock_id: LockId, nodes: frozenset[str]) -> None:
        if agent is not None:
            mode, require = LOCK
            self._obey(agent, agent.ask(lock_id, mode, tuple(sorted(nodes)), require))

    def _end(self, agent: AgentMachine | None) -> None:
        if agent is not None:
            self._obey(agent, agent.end_transaction())

    def _standing(self) -> ContestStanding | None:
        agent = self.contest
        if agent is None:
            return None
        (info,) = agent.lock_info()
        self._obey(agent, agent.told_status())
        held = agent.status() == "have_all_locks"
        return standing_of(info.granted, info.versions, held)

    def _ask_token(self, round: int) -> None:
        agent = self.contest
        token = None
        if agent is not None:
            try:
                token = agent.token(CONTEST)
                if token is None:
                    self.asked += 1
                    self._obey(agent, agent.establish_token(CONTEST, (round, self.asked)))
                    return
            except (NotHeld, LockLost):
                pass
        self.notify(TokenTold(round, token))

    def _send(self, effect: SendToMember) -> NotSent | None:
        member: Any
        member, message = effect
        if isinstance(message, Forward) and message.request in self.answers:
            raise Violation(f"{self.ref} passes on the call for {message.request}: it was answered")
        if member.node != self.ref.node and not can_be_sent(message):
            return NotSent(member, message, Unsendable("no term"))
        self.node.send(self.ref, member, message)
        return None

    def _reply(self, effect: Reply) -> None:
        call: Any = effect.call
        if call in self.answers:
            raise Violation(f"{self.ref} answers the call for {call} twice")
        value = effect.value
        self.answers[call] = type(value).__name__ if isinstance(value, Exception) else value

    # --- The callbacks

    def _elect(self, effect: Elect) -> Elected | None:
        machine = self.machine
        asked: list[Any] = machine.askable()
        newcomer: Any = effect.newcomer
        if newcomer is not None:
            asked = [member for member in asked if member == newcomer]
        elif self.leads:
            raise Violation(f"{self.ref} is elected, and leads already")
        self.leads = True
        self.polls += 1
        gone = [event.member for event in self.core.mailbox if isinstance(event, MemberDown)]
        self.poll = Poll(self.polls, [member for member in asked if member not in gone])
        self.node.elections.append((self.ref, machine.term, machine.ground, newcomer))
        for member in self.poll.waits:
            self.node.send(self.ref, member, Ask(self.polls))
        self._look_whether_to_wait()  # the merge lock may be gone, which is not taken yet
        return self._elected()

    def _answered(self, sender: MemberId, state: State) -> None:
        poll = self.poll
        if poll is not None and poll.number == state.number and sender in poll.waits:
            poll.waits.remove(sender)
            poll.states.append(state.data)

    def go_on(self) -> None:
        """Return from `elected`, if it waits for no more answers."""
        elected = self._elected()
        if elected is not None:
            self.core.carry_out(self.core.answer(elected), self._do)

    def _elected(self) -> Elected | None:
        """The result of `elected`, if it waits for no more answers."""
        poll = self.poll
        if poll is None or poll.waits:
            return None
        self.poll = None
        heirs = self.machine.askable()
        if self.yields and heirs:
            self.yields -= 1
            return Elected(SurrenderLeadership(heirs[0]), bool(self.merged))
        return Elected(self.app.elected(poll.states), bool(self.merged))

    def _call_back(self, effect: CallBack) -> None:
        what, whom = (*effect.args, None, None)[:2]
        match effect.name:
            case "surrendered":
                self._follows(effect.name)
                self.app.surrendered(what)
            case "from_leader":
                self._follows(effect.name)
                self.app.from_leader(what)
            case "stepped_down":
                if not self.leads:
                    raise Violation(f"{self.ref} steps down, and did not lead")
                self.leads = False
            case "handle_down":
                pass
            case "handle_leader_call":
                self._serve(what, whom)
            case "handle_leader_cast":
                self._serve(what)
            case "handle_call":
                self.node.send(self.ref, whom, State(what.number, self.app.keys))
            case _:
                assert_never(effect.name)

    def _follows(self, told: str) -> None:
        if self.leads:
            raise Violation(f"{self.ref} is told {told}, and leads")

    def _serve(self, key: str, origin: Origin | None = None) -> None:
        """Write a key, inform the others, and answer the call."""
        if not self.leads:
            raise Violation(f"{self.ref} is to carry out a call, and does not lead")
        if origin is not None and origin.member is None and key in self.answers:
            raise Violation(f"{self.ref} carries out the call for {key}: it was answered")
        self.app.write(key)
        self.node.written.append((key, self.ref, self.machine.term))
        self._tell_followers(("add", key))
        if origin is not None:
            self.core.carry_out(self.machine.reply(origin, answer_to(key)), self._do)
