"""An instance of the original's elections (`locks_leader`): a candidate or a worker, without its lock agent.

It is a machine with four phases. Who is notified that it holds the election's lock on all nodes (`have all`) takes a
second lock in a helper process, the *merge lock* (`syncing`), and leads once the helper holds that one. A leader
announces itself with a reference: itself, a number, and the versions of the lock's queues that it knows.

    candidate --have all--> syncing --merge lock--> leader
    any phase --a leader announces itself with what this one knows, too--> following
    leader, following, syncing --waiting, or in doubt--> candidate

All that it needs is in a `Port`. Its callbacks are those of a module that keeps a set of facts: `elected` hands over the
leader's facts, and `surrendered` adopts them. They ask no other candidate (`ask_candidates`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

from locks.errors import assert_never
from locks.model import AgentId
from locks_lab.original.agent import Known
from locks_lab.original.queues import Queue
from locks_lab.original.saved import Saved

__all__ = ["Crash", "Instance", "Message", "Phase", "Port", "Ref", "Role", "Vector"]

Facts = frozenset[str]
Phase = Literal["candidate", "following", "syncing", "leader"]
Role = Literal["candidate", "worker"]
# fmt: off
Kind = Literal[
    "am_leader", "from_leader", "affirm_leader", "ensure_sync", "leader_uncertain", "am_worker",
    "join", "leave", "down", "status", "queue", "merge_lock", "cast", "recheck",
]
# fmt: on


class Crash(Exception):
    """The process ends with an error."""


class Vector(NamedTuple):
    """What an instance knows of the contest: the agent that holds the lock on all nodes, and the versions of the queues."""

    holder: AgentId | None
    versions: tuple[tuple[str, int], ...]


class Ref(NamedTuple):
    """The reference of an election."""

    leader: AgentId
    number: int
    vector: Vector


class Message(NamedTuple):
    """A message to an instance.

    Attributes:
        kind: Its kind. `join` and `leave` come from the process group, `status` and `queue` from the agent, `merge_lock`
            from a helper; `recheck` is the end of a time limit.
        about: The sender, or the process that it is about.
        ref: The reference of the election.
        payload: All else.
    """

    kind: Kind
    about: AgentId
    ref: Ref | None = None
    payload: Any = None


class Port(Protocol):
    """What an instance needs."""

    def send(self, sender: AgentId, receiver: AgentId, message: Message) -> None:
        """Send a message to another instance."""

    def monitor(self, watcher: AgentId, process: AgentId, role: Role) -> None:
        """Send `down` when a process ends."""

    def lock_info(self, agent: AgentId) -> Sequence[Known]:
        """The queues that the agent knows."""

    def has_all(self, agent: AgentId) -> bool:
        """Whether the agent says that it holds the lock on all nodes."""

    def tell_agent(self, agent: AgentId, what: Literal["await", "notify"]) -> None:
        """Have the agent say when it holds all, or its status at once."""

    def client_of(self, agent: AgentId) -> AgentId:
        """The instance of an agent in a queue."""

    def start_helper(self, leader: AgentId) -> AgentId:
        """Start a helper, which sends `merge_lock` when it holds the merge lock."""

    def release(self, helper: AgentId) -> None:
        """Let a helper end as soon as it holds the merge lock."""


class Instance(Saved):
    """An instance. All of its mutable state is in `state`, a tuple.

    Args:
        me: Its process.
        agent: Its lock agent; None for a worker.
        fact: The fact that it has at the start.
        port: What it needs.
    """

    STATE = (
        *("phase", "leader", "ref", "vector", "candidates", "workers", "synced", "synced_workers"),
        *("helper", "postponed", "timed", "facts", "called", "elections"),
    )

    def __init__(self, me: AgentId, agent: AgentId | None, fact: str, port: Port) -> None:
        self.me = me
        self.agent = agent
        self.port = port
        self.role: Role = "worker" if agent is None else "candidate"
        self.phase: Phase = "candidate"
        self.leader: AgentId | None = None
        self.ref: Ref | None = None
        self.vector: Vector | None = None
        self.candidates: tuple[AgentId, ...] = ()
        self.workers: tuple[AgentId, ...] = ()
        self.synced: tuple[AgentId, ...] = ()  # candidates that it has announced itself to
        self.synced_workers: tuple[AgentId, ...] = ()
        self.helper: AgentId | None = None
        self.postponed: tuple[Message, ...] = ()
        self.timed = True  # whether it will recheck the contest after a while
        self.facts: Facts = frozenset((fact,))
        self.called: tuple[tuple[str, Any], ...] = ()  # its callbacks so far, each only once
        self.elections = 0

    def receive(self, message: Message) -> None:
        """Handle a message; after a change of the phase also those that were postponed."""
        phase = self._handle(message)
        if phase == self.phase:
            return
        self.phase = phase
        self.timed = phase == "candidate"
        if phase == "leader":
            self.leader = self.me
        elif phase == "candidate" and self.leader == self.me:
            self.leader = None
        again, self.postponed = self.postponed, ()
        for each in again:
            self.receive(each)

    def _handle(self, message: Message) -> Phase:
        """Handle a message; return the next phase."""
        kind, about, ref, payload = message
        match kind:
            case "recheck":
                if self.agent is not None and self.port.has_all(self.agent):
                    return self._won()
            case "status":
                return self._status(payload)
            case "merge_lock":
                return self._merge_lock(about)
            case "cast":
                self._cast(message)
            case "queue":
                self._take(payload)
            case "join":
                self._add(about)
            case "leave":
                self._remove(about, "candidate")
            case "down":
                return self._down(about, payload)
            case "am_worker":
                if about not in self.workers:
                    self.port.monitor(self.me, about, "worker")
                    self.workers = (about, *self.workers)
                    self._announce(about, "worker")
            case "ensure_sync":
                self._ensure_sync(about, payload, ref)
            case "leader_uncertain":
                self._uncertain_of(about, *payload)
                return self._if_lost()
            case "affirm_leader":
                if (about, ref) != (self.leader, self.ref):
                    if self.leader == self.me:
                        self._be_uncertain()
                    else:
                        self.leader, self.ref = None, ref
                        self._send(about, Message("ensure_sync", self.me, ref, self.role))
                return self._if_lost()
            case "am_leader":
                self._announced(about, ref, payload)
                return self.phase if self.leader in (None, self.me) else "following"
            case "from_leader":
                if (about, ref) == (self.leader, self.ref):
                    self._call("from_leader", payload)
                    self.facts = self.facts | {payload} if isinstance(payload, str) else payload
                else:  # it compares the leader with an agent, which is never the same process
                    self._refresh()
                    self._be_uncertain()
                return self._if_lost()
            case _:
                assert_never(kind)
        return self.phase

    # --- The contest

    def _status(self, status: str) -> Phase:
        if status == "have all" and self.phase in ("candidate", "following"):
            return self._won()
        if status == "waiting" and self.phase != "candidate":
            self._be_uncertain()
            return "candidate"
        return self.phase

    def _won(self) -> Phase:
        """The agent holds the lock on all nodes, or has held it: take the merge lock."""
        if self.agent is None:
            return "candidate"
        known = self._refresh()
        for each in known:
            self._take(each.queue)
        self.leader = None
        if self.vector is not None and self.vector.holder not in (None, self.agent):
            self._be_uncertain()
            return "candidate"
        if self.helper is None:
            self.helper = self.port.start_helper(self.me)
        return "syncing"

    def _merge_lock(self, helper: AgentId) -> Phase:
        """A helper holds the merge lock."""
        if self.phase in ("candidate", "following"):
            self._call("handle_info", "merge lock")  # nobody releases it
            return self.phase
        if self.phase == "leader":
            self.port.release(helper)
            return "leader"
        mine = helper == self.helper
        if mine:
            self.helper = None
            self._lead()
        self.port.release(helper)
        return "leader" if mine else "candidate"

    def _lead(self) -> None:
        again = self.ref is not None and self.ref.leader == self.me
        self._new_ref()
        if again:
            self.leader = self.me
            self._send_all(Message("affirm_leader", self.me, self.ref))
            if not self._unsynced:
                return
        facts = self._elected(None)
        if again:
            self._broadcast(facts)
        else:
            self.leader, self.synced, self.synced_workers = self.me, (), ()
        for each in self._unsynced:
            self._send(each, Message("am_leader", self.me, self.ref, facts))
        self.synced, self.synced_workers = self.candidates, self.workers

    @property
    def _unsynced(self) -> list[AgentId]:
        return [c for c in self.candidates if c not in self.synced] + [
            w for w in self.workers if w not in self.synced_workers
        ]

    def _new_ref(self) -> None:
        self.elections += 1
        self.ref = Ref(self.me, self.elections, self.vector or Vector(None, ()))

    def _refresh(self) -> Sequence[Known]:
        """Look at the contest; a leader's reference changes with it."""
        if self.agent is None:
            raise Crash("a worker has no agent that it could ask")
        known = self.port.lock_info(self.agent)
        holders = [each.holders for each in known]
        one = holders[0][0] if holders and holders[0] and len({*map(tuple, holders)}) == 1 else None
        self.vector = Vector(one, tuple((each.key[1], each.version) for each in known))
        if self.ref is not None and self.ref.leader == self.me and self.ref.vector != self.vector:
            self._new_ref()
        return known

    def _be_uncertain(self) -> None:
        """Give up leading and following; tell everybody, and wait for the lock."""
        if self.helper is not None:
            self.port.release(self.helper)
            self.helper = None
        synced = self.synced, self.synced_workers
        self._send_all(Message("leader_uncertain", self.me, None, synced))
        if self.agent is not None:
            self.port.tell_agent(self.agent, "await")
        self.leader, self.synced, self.synced_workers = None, (), ()

    def _if_lost(self) -> Phase:
        """The phase after the leader may have changed."""
        if self.phase == "leader" and self.leader != self.me:
            return "candidate" if self.leader is None else "following"
        return "candidate" if self.phase == "following" and self.leader is None else self.phase

    # --- Other instances

    def _take(self, queue: Queue) -> None:
        """Those who stand in the lock's queue are candidates."""
        clients = [self.port.client_of(group.entries[0].agent) for group in queue]
        for each in [client for client in clients if client not in self.candidates]:
            self._add(each)

    def _add(self, process: AgentId) -> None:
        if process == self.me or process in self.candidates:
            return
        self.port.monitor(self.me, process, "candidate")
        self.candidates = (process, *self.candidates)
        if self.role == "worker":
            self._send(process, Message("am_worker", self.me))
        else:
            self._announce(process, "candidate")

    def _remove(self, process: AgentId, role: Role) -> None:
        if role == "worker":
            self.workers = _without(self.workers, process)
            return
        self.candidates = _without(self.candidates, process)
        self.synced = _without(self.synced, process)
        self._call("handle_DOWN", process)

    def _down(self, process: AgentId, role: Role) -> Phase:
        lost = process == self.leader
        if lost:
            self.leader, self.synced, self.synced_workers = None, (), ()
        self._remove(process, role)
        if lost:
            self._be_uncertain()
            return "candidate"
        return self.phase

    def _announce(self, process: AgentId, role: Role) -> None:
        """A leader announces itself to a newcomer."""
        synced = self.synced if role == "candidate" else self.synced_workers
        if self.leader != self.me or process in synced:
            return
        self._refresh()
        facts = self._elected(process)
        self._send(process, Message("am_leader", self.me, self.ref, facts))
        self._broadcast(facts)
        if role == "candidate":
            self.synced = (process, *self.synced)
        else:
            self.synced_workers = (process, *self.synced_workers)

    def _announce_again(self, process: AgentId, role: Role) -> None:
        if role == "candidate":
            self.synced = _without(self.synced, process)
        else:
            self.synced_workers = _without(self.synced_workers, process)
        self._announce(process, role)

    def _uncertain_of(
        self, other: AgentId, synced: Sequence[AgentId], workers: Sequence[AgentId]
    ) -> None:
        """Another instance does not know its leader."""
        if self.leader == self.me:
            for each in (other, *synced):
                self._announce_again(each, "candidate")
            for each in workers:
                self._announce_again(each, "worker")
        elif self.leader == other:
            if self.agent is not None:
                self.port.tell_agent(self.agent, "notify")
            self.leader, self.synced, self.synced_workers = None, (), ()

    def _ensure_sync(self, process: AgentId, role: Role, ref: Ref | None) -> None:
        if self.leader is None and self.ref == ref and self.agent is not None:
            holds = self.vector is not None and self.vector.holder == self.agent
            if holds and self.port.has_all(self.agent):
                self.leader = self.me  # whatever its phase
        if self.leader == self.me:
            self._announce_again(process, role)

    def _announced(self, leader: AgentId, ref: Ref | None, facts: Facts) -> None:
        if ref != self.ref:
            self._refresh()
            if ref is None or ref.vector != self.vector:
                self._be_uncertain()
                return
            self.ref = ref
        self.leader, self.synced, self.synced_workers = leader, (), ()
        self._call("surrendered", facts)
        self.facts = facts

    # --- Callbacks, and messages

    def _cast(self, message: Message) -> None:
        """A message for the leader: a new fact."""
        if self.phase == "leader":
            self.facts |= {message.payload}
            if self.leader != self.me:
                raise Crash("it broadcasts, and is not the leader")
            self._broadcast(message.payload)
        elif self.phase == "following" and self.leader not in (None, self.me):
            assert self.leader is not None
            self._send(self.leader, message)
        else:
            self.postponed += (message,)

    def _call(self, name: str, argument: Any) -> None:
        if (name, argument) not in self.called:
            self.called += ((name, argument),)

    def _elected(self, process: AgentId | None) -> Facts:
        self._call("elected", process)
        return self.facts

    def _broadcast(self, payload: str | Facts) -> None:
        for each in (*self.synced, *self.synced_workers):
            self._send(each, Message("from_leader", self.me, self.ref, payload))

    def _send_all(self, message: Message) -> None:
        for each in (*self.candidates, *self.workers):
            self._send(each, message)

    def _send(self, process: AgentId, message: Message) -> None:
        self.port.send(self.me, process, message)


def _without(processes: tuple[AgentId, ...], process: AgentId) -> tuple[AgentId, ...]:
    return tuple(each for each in processes if each != process)
