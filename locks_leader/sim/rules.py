"""Which machines a world of elections is made of: ours, and some that are wrong in one point.

The wrong ones are there to show that the checks see faults.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from locks.core.agent.machine import AgentMachine
from locks.core.server.machine import ServerMachine
from locks_leader.core.calls import Calls
from locks_leader.core.contest import Contest
from locks_leader.core.machine import Machine
from locks_leader.core.membership import Kind
from locks_leader.core.merge import Merge
from locks_leader.core.messages import Announce, Grants, Member, Resign

__all__ = ["OURS", "RULES", "Rule"]


class Rule(NamedTuple):
    """Which machines there are.

    Attributes:
        name: Its name.
        about: What is special about it.
        machine: The instances.
        agent: The agents.
        server: The lock servers.
        looks: Whether an instance that gets a fencing token looks at its contest first.
    """

    name: str
    about: str
    machine: type[Machine] = Machine
    agent: type[AgentMachine] = AgentMachine
    server: type[ServerMachine] = ServerMachine
    looks: bool = True


# --- Wrong in one point -------------------------------------------------------------------------


class _HastyContest(Contest):
    """The term is the largest version of the grants, which no lock server has confirmed.

    The next leader's grants may be on nodes with smaller versions.
    """

    def establish_token(self, grants: Grants) -> bool:
        self.token = max(version for _, version in grants)
        return True


class _EagerMerge(Merge):
    """The merge lock is not taken: who has won asks the others at once.

    Two that meet may ask each other, and wait for each other's answer.
    """

    def take(self, nodes: frozenset[str]) -> bool:
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


class _Retrying(_Patched):
    calls_class = _RetryingCalls


class _Loud(Machine):
    """It leads all whom it knows, also where it does not have the lock."""

    def _is_ground(self, node: str) -> bool:
        return True


class _Clinging(Machine):
    """It does not step down when it has lost the lock on a node of its ground."""

    def _stands(self) -> bool:
        super()._stands()
        return True


class _Credulous(Machine):
    """It follows whoever announces itself, whatever the term."""

    def _announced(self, sender: Member, node: str, message: Announce) -> None:
        self.term = min(self.term, message.term - 1)
        super()._announced(sender, node, message)


class _Quiet(Machine):
    """It steps down, and does not tell those whom it led."""

    def _tell(self, members: Any, message: Any) -> None:
        if not isinstance(message, Resign):
            super()._tell(members, message)


class _Closed(Machine):
    """Who comes later is not led."""

    def unsynced(self) -> list[Member]:
        return [] if self.role == "leader" else super().unsynced()


class _Greedy(Machine):
    """It leads as soon as it has the lock anywhere, without the quorum of its policy."""

    def __init__(self, me: Member, kind: Kind, policy: Any, alive: Any) -> None:
        super().__init__(me, kind, policy._replace(quorum=1), alive)


class _Deaf(Machine):
    """It goes on following a leader that is gone."""

    def _orphaned(self) -> None:
        pass


OURS = Rule("ours", "the rules of locks_leader")

RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        OURS,
        Rule("hasty", "terms are not confirmed by lock servers", _Hasty),
        Rule(
            "blind", "a term is taken for nodes that are lost since it was asked for", looks=False
        ),
        Rule("eager", "states are asked for without the merge lock", _Eager),
        Rule("retrying", "a call whose leader has died is made again", _Retrying),
        Rule("loud", "a leader announces itself to all, not only on its ground", _Loud),
        Rule("clinging", "a leader that loses the lock does not step down", _Clinging),
        Rule("credulous", "announcements with smaller terms are followed", _Credulous),
        Rule("quiet", "a leader that steps down tells nobody", _Quiet),
        Rule("closed", "who comes later is not led", _Closed),
        Rule("greedy", "a leader does not need a quorum", _Greedy),
        Rule("deaf", "whose leader is gone goes on following it", _Deaf),
    )
}
