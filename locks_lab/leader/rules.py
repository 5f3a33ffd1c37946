"""The machines of a world of elections: ours, and some that are wrong in one point.

The wrong ones show that the checks detect faults.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any, ClassVar, NamedTuple

from locks.core.agent.machine import AgentMachine
from locks.core.server.machine import ServerMachine
from locks_leader.core.calls import Calls, Kept
from locks_leader.core.contest import Contest
from locks_leader.core.events import (
    CallBack,
    Called,
    Effect,
    Elected,
    Grants,
    Incoming,
    NotSent,
    Outcome,
    Reply,
    TokenTold,
)
from locks_leader.core.instance_core import InstanceCore
from locks_leader.core.machine import Machine
from locks_leader.core.merge import Merge
from locks_leader.core.messages import Announce, Kind, Member, Resign

__all__ = ["OURS", "RULES", "MachineRule"]


class MachineRule(NamedTuple):
    """The machines of a world.

    Attributes:
        name: Its name.
        about: The difference from our rule.
        machine: Decides the roles of instances.
        core: The core of instances.
        agent: The agents.
        server: The lock servers.
    """

    name: str
    about: str
    machine: type[Machine] = Machine
    core: type[InstanceCore] = InstanceCore
    agent: type[AgentMachine] = AgentMachine
    server: type[ServerMachine] = ServerMachine


# --- Wrong in one point -------------------------------------------------------------------------


class _HastyContest(Contest):
    """The term is the largest version of the grants, which no lock server has confirmed.

    The next leader's grants may be on nodes with smaller versions.
    """

    def establish_token(self, grants: Grants) -> bool:
        self.token = max(version for _, version in grants)
        return True


class _EagerMerge(Merge):
    """The winner does not take the merge lock: it asks the others at once.

    So two leaders that meet may ask each other, and wait for each other's answer.
    """

    def take_lock(self, nodes: frozenset[str]) -> bool:
        return True

    def drop(self) -> None:
        pass


class _RetryingCalls(Calls):
    """A call whose leader has died is made again, though it may have been carried out."""

    def down(self, member: Member) -> None:
        for number in [n for n, (leader, _) in self.forwarded.items() if leader == member]:
            self.kept.append(self.forwarded.pop(number)[1])


class _Patched(Machine):
    """A machine with another contest, merge plane or book of calls."""

    contest_class: ClassVar[type[Contest]] = Contest
    merge_class: ClassVar[type[Merge]] = Merge
    calls_class: ClassVar[type[Calls]] = Calls

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._contest = self.contest_class(self.policy, self._alive, self._out)
        self._merge = self.merge_class(self._out)
        self._calls = self.calls_class(self._out)


class _Hasty(_Patched):
    contest_class = _HastyContest


class _Eager(_Patched):
    merge_class = _EagerMerge

    def may_wait_for(self, node: str, merged: Set[str]) -> bool:
        return True

    def elected(self, outcome: Outcome, merged: bool = True) -> list[Effect]:
        return super().elected(outcome)


class _Retrying(_Patched):
    calls_class = _RetryingCalls


class _Oblivious(Machine):
    """It does not notice that the merge lock was lost during `elected`, so that it did not wait for all."""

    def elected(self, outcome: Outcome, merged: bool = True) -> list[Effect]:
        return super().elected(outcome)


class _Loud(Machine):
    """It leads all instances that it knows, even on nodes where it does not hold the lock."""

    def _is_ground(self, node: str) -> bool:
        return True


class _Clinging(Machine):
    """It does not step down when it has lost the lock on a node of its ground."""

    def _stands(self) -> bool:
        super()._stands()
        return True


class _Credulous(Machine):
    """It follows every leader that announces itself, whatever the term."""

    def _announced(self, sender: Member, node: str, message: Announce) -> None:
        self.term = min(self.term, message.term - 1)
        super()._announced(sender, node, message)


class _Quiet(Machine):
    """It steps down without informing its followers."""

    def _tell(self, members: Any, message: Any) -> None:
        if not isinstance(message, Resign):
            super()._tell(members, message)


class _Closed(Machine):
    """It does not lead instances that join later."""

    def unsynced(self) -> list[Member]:
        return [] if self.role == "leader" else super().unsynced()


class _Greedy(Machine):
    """It leads as soon as it holds the lock on any node, without the quorum of its policy."""

    def __init__(self, me: Member, kind: Kind, policy: Any, alive: Any) -> None:
        super().__init__(me, kind, policy._replace(quorum=1), alive)


class _Deaf(Machine):
    """It continues to follow a leader that is down."""

    def _orphaned(self) -> None:
        pass


class _Patient(Machine):
    """It lost the nodes that count, but still waits for candidates on nodes that do not count."""

    def may_wait_for(self, node: str, merged: Set[str]) -> bool:
        return self.policy.is_outside(node) or super().may_wait_for(node, merged)


class _Belated(Machine):
    """A follower is elected by grants that are out of date: its leader got the lock later."""

    def _is_superseded(self) -> bool:
        return False


# --- Wrong about the order of events, and about checks before them


class _BlindCore(InstanceCore):
    """It accepts a fencing token without checking first what was lost."""

    def taken(self, event: Incoming) -> list[Effect]:
        if isinstance(event, TokenTold):
            return self.machine.token(event.round, event.token)
        return super().taken(event)


class _TrustingCore(InstanceCore):
    """A leader answers a call without looking whether it still leads."""

    def taken(self, event: Incoming) -> list[Effect]:
        if isinstance(event, Called):
            return [CallBack("handle_call", event)]
        return super().taken(event)


class _RashCore(InstanceCore):
    """When `elected` has returned, it does not check what was lost meanwhile."""

    def answer(self, answer: Any) -> list[Effect]:
        if isinstance(answer, Elected):
            return self.machine.elected(answer.outcome, answer.merged)
        return super().answer(answer)


class _ImpatientCore(InstanceCore):
    """It handles events while `elected` runs."""

    @property
    def idle(self) -> bool:
        return True


class _MuteCore(InstanceCore):
    """It does not notice that something can't be sent."""

    def answer(self, answer: Any) -> list[Effect]:
        return [] if isinstance(answer, NotSent) else super().answer(answer)


# --- Wrong about transactions, followers and calls


class _Unaware(Machine):
    """It does not notice that the contest's agent has ended by itself."""

    def agent_gone(self, round: int) -> list[Effect]:
        return []


class _Stuck(Machine):
    """It does not notice that the merge lock's transaction was aborted, or its agent has ended."""

    def merge(self, number: int, held: bool) -> list[Effect]:
        return super().merge(number, held) if held else []


class _Boastful(Machine):
    """It broadcasts, whether it leads or not."""

    def check_leads(self, what: str) -> None:
        pass


class _Indiscreet(Machine):
    """It sends messages for some of its followers to all of them."""

    def broadcast(self, payload: Any, to: Any = None) -> list[Effect]:
        return super().broadcast(payload)


class _Indifferent(Machine):
    """It ignores that callers give up."""

    def cancel(self, call: Any) -> list[Effect]:
        return []


class _ObstinateCalls(Calls):
    """A call whose caller has given up is carried out none the less."""

    def cancel(self, call: Any) -> None:
        kept, forwarded = self.kept, self.forwarded
        super().cancel(call)
        self.kept, self.forwarded = kept, forwarded


class _TalkativeCalls(Calls):
    """A call is answered each time that there is an answer, after its caller has given up, too."""

    def reply(self, call: Any, value: Any) -> list[Effect]:
        self.open.pop(call, None)
        return [Reply(call, value)]


class _StutteringCalls(Calls):
    """A call that can't be passed on is answered twice."""

    def not_sent(self, number: int, error: Exception) -> None:
        super().not_sent(number, error)
        self._out.append(self._out[-1])


class _ForgetfulCalls(Calls):
    """A cast is lost if there is no leader."""

    def take_kept(self) -> list[Kept]:
        return [kept for kept in super().take_kept() if kept.call is not None]


class _EchoingCalls(Calls):
    """A cast that was passed on is passed on to the next leader, too."""

    def forward(self, leader: Member, kept: Kept) -> None:
        super().forward(leader, kept)
        if kept.call is None:
            self.kept.append(kept)


class _Obstinate(_Patched):
    calls_class = _ObstinateCalls


class _Talkative(_Patched):
    calls_class = _TalkativeCalls


class _Stuttering(_Patched):
    calls_class = _StutteringCalls


class _Forgetful(_Patched):
    calls_class = _ForgetfulCalls


class _Echoing(_Patched):
    calls_class = _EchoingCalls


OURS = MachineRule("ours", "the rules of locks_leader")

RULES: dict[str, MachineRule] = {
    rule.name: rule
    for rule in (
        OURS,
        MachineRule("hasty", "terms are not confirmed by lock servers", _Hasty),
        MachineRule("eager", "states are asked for without the merge lock", _Eager),
        MachineRule("retrying", "a call whose leader has died is made again", _Retrying),
        MachineRule("loud", "a leader announces itself to all, not only on its ground", _Loud),
        MachineRule("clinging", "a leader that loses the lock does not step down", _Clinging),
        MachineRule("credulous", "announcements with smaller terms are followed", _Credulous),
        MachineRule("quiet", "a leader that steps down tells nobody", _Quiet),
        MachineRule("closed", "who comes later is not led", _Closed),
        MachineRule("greedy", "a leader does not need a quorum", _Greedy),
        MachineRule("deaf", "whose leader is gone goes on following it", _Deaf),
        MachineRule("patient", "who has lost its quorum goes on waiting for others", _Patient),
        MachineRule("belated", "who follows a later leader is elected all the same", _Belated),
        MachineRule("unaware", "the end of the contest's agent is not noticed", _Unaware),
        MachineRule("stuck", "the end of the merge lock's agent is not noticed", _Stuck),
        MachineRule("oblivious", "who did not wait for all in `elected` leads all", _Oblivious),
        MachineRule("boastful", "one who does not lead broadcasts", _Boastful),
        MachineRule("indiscreet", "what is for candidates is told to workers", _Indiscreet),
        MachineRule("indifferent", "a caller that gives up is not heard", _Indifferent),
        MachineRule("obstinate", "a call is carried out after its caller gave up", _Obstinate),
        MachineRule("talkative", "a call is answered after its caller gave up", _Talkative),
        MachineRule("stuttering", "a call that can't be sent is answered twice", _Stuttering),
        MachineRule("forgetful", "a cast that waits for a leader is lost", _Forgetful),
        MachineRule("echoing", "a cast is passed on to one leader after the other", _Echoing),
        MachineRule("blind", "a term is taken for nodes that are lost since", core=_BlindCore),
        MachineRule("trusting", "a leader answers a call without looking", core=_TrustingCore),
        MachineRule("rash", "what is lost during `elected` is not looked at", core=_RashCore),
        MachineRule(
            "impatient", "what comes in is taken while `elected` runs", core=_ImpatientCore
        ),
        MachineRule("mute", "what can't be sent is not noticed", core=_MuteCore),
    )
}
