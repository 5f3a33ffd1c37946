"""An instance of an election without the execution of effects: its mailbox, and when it looks at what.

Theory of operation
-------------------
The `Machine` decides on roles. This class around it has everything else that an instance needs, and
is driven by the actor (`locks_leader.shell.instance`) and by the simulator. Events are put into the
mailbox, and taken one at a time. Taking an event returns effects. Some effects have an answer,
which is taken in at once:

    core.feed(event, do)    # do(effect) carries it out, and returns its answer, if it has one by then

**Look before you answer.** The machine's knowledge of nodes and of the contest may be out of date:
notifications are on their way, and others are in the mailbox. So it gets the present state (`Look`)
whenever it is about to rely on it:

* before it takes in a fencing token, which is valid for the present grants,
* before a leader answers a call. Otherwise it might answer after its successor has begun to lead,
* after the callback `elected` has returned, because no events were taken during it. The callback's
  answer says whether the merge lock was lost.

**While `elected` runs, no event is taken.** Events wait in the mailbox. `elected` may wait for
other instances: the actor waits in it, and the simulator continues with other instances.

**A lost node may be back** when its loss is taken, so looking would not show the loss. But all
locks there are gone. So the machine takes in the loss first, and looks then.

There is no clock, thread or actor here. A member can be any value that can be compared.
"""

from __future__ import annotations

from collections.abc import Callable

from locks.errors import assert_never
from locks.ranges import replace
from locks_leader.core.contest import nodes_of
from locks_leader.core.events import (
    Answer,
    CallBack,
    CallCancelled,
    Called,
    CastLost,
    CastMade,
    ContestGone,
    Effect,
    Elected,
    Grants,
    Incoming,
    LeaderCalled,
    Look,
    Looked,
    MemberDown,
    MemberJoined,
    MergeTold,
    NodeLost,
    Noticed,
    NotSent,
    Received,
    SendToMember,
    Started,
    TokenTold,
)
from locks_leader.core.machine import Machine
from locks_leader.core.messages import (
    Affirm,
    Announce,
    Forward,
    ForwardAnswer,
    FromLeader,
    LeaderCast,
    NotTheLeader,
    Resign,
    YieldTo,
)

__all__ = ["Do", "InstanceCore"]

Do = Callable[[Effect], Answer | None]  # carries an effect out


class InstanceCore:
    """One instance, without the execution of its effects.

    Args:
        machine: Decides on its role.

    Attributes:
        machine: The same.
        mailbox: The events that were not taken yet.
    """

    __slots__ = ("_at_hand", "machine", "mailbox")

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.mailbox: list[Incoming] = []
        # The event that continues after the look.
        self._at_hand: Called | Elected | TokenTold | None = None

    # --- The mailbox ----------------------------------------------------------------------------

    def put(self, event: Incoming) -> None:
        """Put an event into the mailbox; of several `Noticed` in a row, one is enough."""
        mailbox = self.mailbox
        if type(event) is Noticed and mailbox and type(mailbox[-1]) is Noticed:
            return
        mailbox.append(event)

    @property
    def ready(self) -> bool:
        """Whether something can be taken."""
        return bool(self.mailbox) and self.idle

    @property
    def idle(self) -> bool:
        """Whether it does nothing that must be finished before anything is taken."""
        return self.machine.electing is None and self._at_hand is None

    def take_event(self) -> list[Effect]:
        """Take the first event of the mailbox; return the effects."""
        return self.taken(self.mailbox.pop(0))

    def taken(self, event: Incoming) -> list[Effect]:
        """Take in an event; return the effects."""
        machine = self.machine
        match event:
            case Received():
                return machine.receive(event.sender, event.node, event.message)
            case LeaderCalled():
                return machine.leader_call(event.call, event.request)
            case Called():
                if machine.role == "leader":
                    return self._look(event)
                return [CallBack("handle_call", event)]
            case Noticed():
                return [Look(machine.round)]
            case TokenTold():
                return self._look(event)
            case MergeTold():
                return machine.merge(event.number, event.held)
            case MemberJoined():
                return machine.joined(event.member, event.node, event.kind)
            case MemberDown():
                return machine.down(event.member)
            case NodeLost():
                return self._lost(event.node)
            case ContestGone():
                return machine.agent_gone(event.round)
            case CastMade():
                return machine.leader_cast(event.request)
            case CallCancelled():
                return machine.cancel(event.call)
            case Started():
                return machine.start(event.elders)
            case _:
                return assert_never(event)

    # --- Answers to effects ---------------------------------------------------------------------

    def answer(self, answer: Answer) -> list[Effect]:
        """Take in the answer to an effect; return the effects."""
        match answer:
            case Looked():
                return self._looked(answer)
            case Elected():
                return self._look(answer)
            case NotSent():
                return self._not_sent(answer)
            case _:
                return assert_never(answer)

    def _lost(self, node: str) -> list[Effect]:
        machine = self.machine
        effects = machine.nodes(machine.alive - {node}) if node in machine.alive else []
        return effects if machine.electing is not None else [*effects, Look(machine.round)]

    def _look(self, then: Called | Elected | TokenTold) -> list[Effect]:
        self._at_hand = then
        return [Look(self.machine.round)]

    def _looked(self, seen: Looked) -> list[Effect]:
        machine = self.machine
        effects: list[Effect] = []
        if seen.alive != machine.alive:
            electing = machine.electing
            effects = machine.nodes(seen.alive, seen.bystanders)
            if machine.electing is electing:  # else it looks when `elected` has returned
                return [*effects, Look(machine.round)]  # these effects change the contest
        elif seen.round is not None and seen.standing is not None:
            effects = machine.contest(seen.round, seen.standing)
        return effects + self._go_on()

    def _go_on(self) -> list[Effect]:
        """Continue, after a look, with the event that it was for."""
        event, self._at_hand = self._at_hand, None
        match event:
            case None:
                return []
            case Elected():
                return self.machine.elected(event.outcome, event.merged)
            case Called() | TokenTold() if self.machine.electing is not None:
                self.mailbox.insert(0, event)
                return []
            case Called():
                return [CallBack("handle_call", event)]
            case TokenTold():
                return self.machine.token(event.round, event.token)
            case _:
                return assert_never(event)

    def _not_sent(self, event: NotSent) -> list[Effect]:
        """Whose fault it is gets the error: a caller, or the own callback, to which it is raised."""
        member, message, error = event
        match message:
            case ForwardAnswer():
                return [SendToMember(member, replace(message, value=error))]
            case Forward():
                return self.machine.not_sent(message.number, error)
            case LeaderCast():
                return [CastLost(message.request, error)]
            case Announce() | FromLeader() | Affirm() | Resign() | YieldTo() | NotTheLeader():
                raise error
            case _:
                return assert_never(message)

    # --- Questions ------------------------------------------------------------------------------

    def objection(self, grants: Grants | Exception | None) -> object | None:
        """Why a caller must not rely on its leading; `None` if it may. From any thread.

        Args:
            grants: The grants that the contest's agent confirms now, which notices a loss before
                the machine does; an error if a lock is lost; `None` without an agent.
        """
        machine = self.machine
        if machine.leader != machine.me:
            return f"it is {machine.role}"
        if grants is None:
            return "it does not take part in the contest now"
        if isinstance(grants, Exception):
            return grants
        now = dict(grants)
        if any(now.get(node, version) != version for node, version in machine.ground):
            return "the lock was lost and regained"
        if not machine.policy.enough(nodes_of(machine.ground) & now.keys()):
            return f"only {len(now)} of the nodes that count can be reached"
        return None

    # --- Carrying out ---------------------------------------------------------------------------

    def feed(self, event: Incoming, do: Do) -> None:
        """Put in an event, take all events that can be taken, and carry out their effects."""
        if self.mailbox or not self.idle:
            self.put(event)
        else:
            self.carry_out(self.taken(event), do)
        if self.mailbox:
            self.drive(do)

    def drive(self, do: Do) -> None:
        """Take all events that can be taken, and carry out their effects."""
        while self.ready:
            self.carry_out(self.take_event(), do)

    def carry_out(self, effects: list[Effect], do: Do) -> None:
        """Carry out effects; those that follow from an answer come before the rest."""
        left = effects[::-1]
        while left:
            answer = do(left.pop())
            if answer is not None:
                left += self.answer(answer)[::-1]
