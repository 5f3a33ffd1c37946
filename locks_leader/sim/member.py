"""A simulated instance of an election: the real machine, with its agents, its mailbox and its set.

It does what the actor around the machine does. Whatever comes in waits in the mailbox, and is taken
one at a time; what the machine wants done is done at once. While `elected` waits for the states of
others nothing is taken, and nobody is answered.

It knows nothing of the world around it but its node (`locks_leader.sim.node`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from locks.core.agent.machine import AgentMachine
from locks.core.messages import AnswerWait, Ended, Notify, ToAgent, ToServer
from locks.core.messages import Lost as LostLocks
from locks.errors import LockLost, NotHeld
from locks.model import AgentId
from locks.sim.host import Violation
from locks_leader.core.machine import SurrenderLeadership
from locks_leader.core.membership import Kind
from locks_leader.core.messages import (
    AskTerm,
    CallBack,
    Contend,
    ContestStanding,
    DropMerge,
    Effect,
    Elect,
    Include,
    Monitor,
    Reply,
    Send,
    TakeMerge,
    Withdraw,
)
from locks_leader.policy import Policy
from locks_leader.sim.application import Collection
from locks_leader.sim.parties import Ask, Down, MemberId, State
from locks_leader.sim.rules import RULES

if TYPE_CHECKING:
    from locks_leader.sim.node import Node

__all__ = ["CONTEST", "MERGE", "Instance", "Poll"]

CONTEST = ("locks_leader", "x")
MERGE = ("locks_leader", "sync", "x")


class Poll:
    """A callback `elected` that waits for the states of others.

    Attributes:
        number: Its number.
        waits: Whose answers have not come.
        states: Those that have.
    """

    def __init__(self, number: int, waits: list[MemberId]) -> None:
        self.number = number
        self.waits = waits
        self.states: list[frozenset[str]] = []


class Instance:
    """A candidate, or a worker.

    Args:
        ref: Its reference.
        kind: As what it takes part.
        policy: Which nodes are enough to lead.
        node: Its node.
        rule: The name of the rule that says which machine it runs.

    Attributes:
        mailbox: What has come in and was not taken yet.
        poll: What `elected` waits for, if it does.
        answers: What its callers were answered, by call.
        leads: Whether `elected` was the last that it was told, and not that it leads no more.
        yields: How often it gives the leadership away when it is elected, if there is to whom.
    """

    def __init__(self, ref: MemberId, kind: Kind, policy: Policy, node: Node, rule: str) -> None:
        self.ref = ref
        self.rule = rule
        self.node = node
        self.machine = RULES[rule].machine(ref, kind, policy, node.alive)
        self.app = Collection(ref, kind)
        self.mailbox: list[tuple[Any, ...]] = []
        self.contest: AgentMachine | None = None
        self.round = 0
        self.merge: AgentMachine | None = None
        self.merge_number = 0
        self.monitored: dict[MemberId, None] = {}
        self.poll: Poll | None = None
        self.polls = 0
        self.asked = 0
        self.answers: dict[str, Any] = {}
        self.leads = False
        self.yields = 0
        self.calls: dict[str, int] = {}

    @property
    def agents(self) -> list[AgentMachine]:
        """Its agents that live."""
        return [agent for agent in (self.contest, self.merge) if agent is not None]

    # --- What comes in

    def start(self) -> None:
        """Begin."""
        self._perform(self.machine.start())

    def call(self, key: str) -> None:
        """Somebody here calls the leader, to write a key."""
        self._perform(self.machine.leader_call(key, key))

    def die(self) -> None:
        """It ends, and its agents do."""
        for agent in self.agents:
            self._obey(agent, agent.end())

    def receive(self, sender: MemberId, message: Any) -> None:
        """A message of another instance arrives."""
        if isinstance(message, Down):
            self.lost(message.member)
        elif isinstance(message, State):
            self._answered(sender, message)
        else:
            self.queue("message", sender, type(message).__name__, message)

    def lost(self, member: MemberId) -> None:
        """A member that it monitors is down."""
        if member in self.monitored:
            del self.monitored[member]
            self.queue("down", member)
            if self.poll is not None and member in self.poll.waits:
                self.poll.waits.remove(member)
                self._go_on()

    def queue(self, *entry: Any) -> None:
        """Put something into the mailbox; that it is to look need not be there twice in a row."""
        if entry != ("look",) or self.mailbox[-1:] != [entry]:
            self.mailbox.append(entry)

    def hears(self, message: Any, agent: AgentId) -> None:
        """A message to one of its agents arrives."""
        for each in self.agents:
            if each.id == agent:
                self._obey(each, each.receive(message))

    def settle(self, agent: AgentId) -> None:
        """One of its agents looks at what it knows."""
        for each in self.agents:
            if each.id == agent:
                self._obey(each, each.settle())

    def sees(self, node: str, there: bool) -> None:
        """Its node sees another one, or no more."""
        for agent in self.agents:
            self._obey(agent, (agent.node_up if there else agent.node_down)(node))
        self.queue("look")

    # --- What is taken

    @property
    def ready(self) -> bool:
        """Whether it can take something from its mailbox."""
        return bool(self.mailbox) and self.poll is None

    def take(self) -> None:
        """Take the first of what has come in."""
        what, *args = self.mailbox.pop(0)
        getattr(self, "_take_" + what)(*args)

    def _take_look(self) -> None:
        self._perform(self.machine.nodes(self.node.alive))
        agent = self.contest
        if agent is not None and agent.asks_for(CONTEST):
            (info,) = agent.lock_info()
            grants = frozenset(zip(info.granted, info.versions, strict=True))
            held = agent.tell_status().status == "have_all_locks"
            self._perform(self.machine.contest(self.round, ContestStanding(grants, held)))

    def _take_message(self, sender: MemberId, _: str, message: Any) -> None:
        if isinstance(message, Ask):
            self.node.send(self.ref, sender, State(message.number, self.app.keys))
        else:
            self._perform(self.machine.receive(sender, sender.node, message))

    def _take_down(self, member: MemberId) -> None:
        self._perform(self.machine.down(member))

    def _take_joined(self, member: MemberId, kind: Kind) -> None:
        self._perform(self.machine.joined(member, member.node, kind))

    def _take_token(self, round: int, token: int | None) -> None:
        if RULES[self.rule].looks:
            self._take_look()  # what it was asked for may be lost with a node
        self._perform(self.machine.token(round, token))

    def _take_merge(self, number: int, held: bool) -> None:
        self._perform(self.machine.merge(number, held))

    # --- What its agents want done

    def _obey(self, agent: AgentMachine, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, ToServer):
                self.node.send(agent.id, effect.node, effect.message)
            elif isinstance(effect, ToAgent):
                self.node.send(agent.id, effect.agent, effect.message)
            elif isinstance(effect, Notify):
                self.queue("look")
            elif isinstance(effect, AnswerWait):
                self._answer(effect)
            elif isinstance(effect, Ended):
                self._ended(agent, effect.reason)
            elif not isinstance(effect, LostLocks):
                raise Violation(f"{self.ref}: nobody asked for {effect}")

    def _answer(self, effect: AnswerWait) -> None:
        what, number = effect.wait[:2]  # type: ignore[index]
        if what == "token":
            found = None if isinstance(effect.result, Exception) else effect.result
            self.queue("token", number, found)
        elif not isinstance(effect.result, Exception):
            self.queue("merge", number, True)

    def _ended(self, agent: AgentMachine, reason: Exception | None) -> None:
        if reason is None:
            return
        if agent is not self.merge:
            raise Violation(f"the contest's agent of {self.ref} has ended: {reason}")
        self.merge = None
        self.queue("merge", self.merge_number, False)

    # --- What the machine wants done

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            getattr(self, "_do_" + type(effect).__name__)(effect)

    def _do_Contend(self, effect: Contend) -> None:
        self.round = effect.round
        self.contest = self.node.new_agent(self.ref, notify=True, await_nodes=True)
        self._ask(tuple(sorted(effect.nodes)))

    def _do_Include(self, effect: Include) -> None:
        self._ask((effect.node,))

    def _ask(self, nodes: tuple[str, ...]) -> None:
        assert self.contest is not None
        self._obey(self.contest, self.contest.ask(CONTEST, "write", nodes, "all_alive"))

    def _do_Withdraw(self, effect: Withdraw) -> None:
        agent, self.contest = self.contest, None
        if agent is not None:
            self._obey(agent, agent.end())

    def _do_AskTerm(self, effect: AskTerm) -> None:
        agent = self.contest
        assert agent is not None
        try:
            token = agent.token(CONTEST)
            if token is None:
                self.asked += 1
                wait = ("token", effect.round, self.asked)
                self._obey(agent, agent.establish_token(CONTEST, wait))
                return
        except (NotHeld, LockLost):
            token = None
        self.queue("token", effect.round, token)

    def _do_TakeMerge(self, effect: TakeMerge) -> None:
        self.merge_number = effect.number
        agent = self.merge = self.node.new_agent(self.ref, abort_on_deadlock=True)
        nodes = tuple(sorted(effect.nodes))
        wait = ("merge", effect.number)
        self._obey(agent, agent.ask(MERGE, "write", nodes, "all_alive", wait))

    def _do_DropMerge(self, effect: DropMerge) -> None:
        agent, self.merge = self.merge, None
        if agent is not None:
            self._obey(agent, agent.end())

    def _do_Monitor(self, effect: Monitor) -> None:
        member: Any = effect.member
        self.monitored[member] = None
        self.node.monitor(self, member)

    def _do_Send(self, effect: Send) -> None:
        member: Any = effect.member
        self.node.send(self.ref, member, effect.message)

    def _do_Reply(self, effect: Reply) -> None:
        call: Any = effect.call
        if call in self.answers:
            raise Violation(f"{self.ref} answers the call for {call} twice")
        value = effect.value
        self.answers[call] = type(value).__name__ if isinstance(value, Exception) else value

    def _do_CallBack(self, effect: CallBack) -> None:
        getattr(self, "_" + effect.name)(*effect.args)

    def _do_Elect(self, effect: Elect) -> None:
        machine = self.machine
        asked: list[Any] = machine.askable()
        newcomer: Any = effect.newcomer
        if newcomer is not None:
            asked = [member for member in asked if member == newcomer]
        elif self.leads:
            raise Violation(f"{self.ref} is elected, and leads already")
        self.leads = True
        self.polls += 1
        gone = [entry[1] for entry in self.mailbox if entry[0] == "down"]
        self.poll = Poll(self.polls, [member for member in asked if member not in gone])
        self.node.elections.append((self.ref, machine.term, machine.ground, newcomer))
        for member in self.poll.waits:
            self.node.send(self.ref, member, Ask(self.polls))
        self._go_on()

    # --- The callbacks

    def _answered(self, sender: MemberId, state: State) -> None:
        poll = self.poll
        if poll is not None and poll.number == state.number and sender in poll.waits:
            poll.waits.remove(sender)
            poll.states.append(state.data)
            self._go_on()

    def _go_on(self) -> None:
        poll = self.poll
        if poll is None or poll.waits:
            return
        self.poll = None
        heirs = self.machine.askable()
        if self.yields and heirs:
            self.yields -= 1
            self._perform(self.machine.elected(SurrenderLeadership(heirs[0])))
        else:
            self._perform(self.machine.elected(self.app.elected(poll.states)))

    def _stepped_down(self) -> None:
        if not self.leads:
            raise Violation(f"{self.ref} steps down, and did not lead")
        self.leads = False

    def _surrendered(self, payload: Any) -> None:
        if self.leads:
            raise Violation(f"{self.ref} is told to follow, and leads")
        self.app.surrendered(payload)

    def _from_leader(self, payload: Any) -> None:
        if self.leads:
            raise Violation(f"{self.ref} is told something by a leader, and leads")
        self.app.from_leader(payload)

    def _handle_down(self, member: MemberId) -> None:
        pass

    def _handle_leader_call(self, key: str, origin: Any) -> None:
        if not self.leads:
            raise Violation(f"{self.ref} is to carry out a call, and does not lead")
        self.app.write(key)
        self.node.written.append((key, self.ref, self.machine.term))
        self._perform(self.machine.broadcast(("add", key)))
        self._perform(self.machine.reply(origin, "done"))
