"""Our agents at the original's lock servers, and among the original's agents.

An agent of ours sends a lock server of the original those messages that it understands
(`OriginalServers.send`): requests, surrenders, and its end. Messages from processes of the original
to an agent of ours (`receive`) are:

* The queue of a lock that contains the agent, from the lock server. It becomes `RequestStates`.
* The queue of another lock, from an agent that considers it relevant. It becomes `Knowledge`, so
  deadlocks are found by the rules of our agents. Ours are larger than those of the original, so in
  a cycle with one of ours, one of ours yields.
* An agent's knowledge, as an answer (`interview`). The original's agents do not report everything
  that matters: an agent that finds a deadlock in which another must yield notifies no one, and
  drops its knowledge of that lock. So a waiting agent of ours asks the agents that it is entangled
  with, now and then. It also asks our lock servers for their records of these (`informed`).

Missing features of the original are replaced as far as possible:

* It does not report when it refuses a surrender. It refuses one if the queue has changed. Then it
  reports the change in any case, which serves as the answer. If nothing comes for some time, there
  was nothing that it could take back: in trees, it may carry entries over to rows that their agents
  never requested.
* Its rows disagree with each other, so two agents of ours may believe for ever that they must
  surrender, each undoing the other's surrender. An agent that surrenders often gets its answers
  later.
* It forgets a waiting upgrade when its agent surrenders; then the upgrade is requested again.
* It has no spare requests. The agent itself remembers that it does not wait there.
* It has no unlock. A released request stays until the transaction ends, and `Released` reports it
  as left.
* It has no fencing tokens, and its versions may go back, so `RaiseVersion` is never confirmed. The
  lock of an election (`is_election`) is an exception. Its token orders those of our candidates that
  held the lock on the same Python node, so it needs the confirmation of Python nodes only.

Source: `locks_server.erl`, `locks_agent.erl` and `locks_agent_lib.erl` of the original.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable
from typing import Any

from locks.core.agent.wait_graph import Exploration
from locks.core.messages import (
    Inquire,
    Knowledge,
    RaiseVersion,
    Refused,
    Release,
    Released,
    Remove,
    Request,
    RequestStates,
    ServerMessage,
    StandingElsewhere,
    Surrender,
    Surrendered,
    ToAgent,
    Unwatch,
    VersionRaised,
    Watch,
)
from locks.errors import MisuseError, assert_never
from locks.model import AgentId, Deadlock, Edge, LockId, Mode, RequestRecord, show, units_of
from locks.node.original.forms import (
    CastServer,
    Command,
    OriginalInfo,
    SendTerm,
    is_atom,
    known_mode,
    read_info,
    read_lock,
)
from locks.node.original.rows import NOBODY, Ours, Pending, row_id
from locks.otp.bytes.control import StrangeMessage
from locks.otp.bytes.fields import BadMessage, brief
from locks.otp.bytes.terms import Atom, Pid
from locks.ranges import replace
from locks.wire.forms import agent_of

__all__ = ["OriginalServers", "cannot_unlock", "is_election"]

LOCK_INFO = Atom("lock_info")
OFTEN = 5  # surrenders of one lock between two interviews; then the answer waits for the next one
PATIENCE = 10  # interviews after which a surrender counts as refused


class OriginalServers:
    """The relations of our agents with processes of the original.

    Args:
        pid: Returns the pid of an agent, of this node or another.
        is_original: Whether a connected node runs the original.

    Every method returns commands, to be carried out in order.
    """

    def __init__(self, pid: Callable[[AgentId], Pid], is_original: Callable[[str], bool]) -> None:
        self._pid = pid
        self._is_original = is_original
        self._ours: dict[AgentId, Ours] = {}

    # --- Messages of our agents to lock servers -------------------------------------------------

    def send(
        self, agent: AgentId, node: str, message: ServerMessage, client: Pid | None = None
    ) -> list[Command]:
        """Translate a message of one of our agents to the original's lock server of a node.

        Args:
            agent: The agent.
            node: The node.
            message: The message.
            client: The pid of its client; without one, the agent's own pid is used.

        Raises:
            MisuseError: The original does not understand it.
        """
        if isinstance(message, Watch | Unwatch):
            raise MisuseError(
                f"can't send {message!r} to the lock server of {node}, which runs the Erlang original",
                node=node,
            )
        ours = self._known(agent)
        if client is not None:
            ours.client = client
        match message:
            case Request():
                commands = self._request(ours, node, message)
            case Release():
                left = tuple(ours.at(node).own(message.lock_id))
                ours.at(node).spare.discard(message.lock_id)
                commands = [ToAgent(agent, Released(node, message.lock_id, left))]
            case Surrender():
                commands = self._surrender(ours, node, message)
            case Remove():
                # Requests given up before may be left on other nodes, which notice the agent's end.
                ours.rows.pop(node, None)
                commands = [CastServer(node, (Atom("remove_agent"), self._pid(agent)))]
            case StandingElsewhere():
                commands = self._waits_elsewhere(ours, node, message.waits_elsewhere)
            case Inquire():
                commands = self._tell_all(ours, node)
            case RaiseVersion(_, lock_id, since, version):
                done = is_election(lock_id)
                commands = [ToAgent(agent, VersionRaised(node, lock_id, since, version, done))]
            case _:
                assert_never(message)
        return commands

    def _request(self, ours: Ours, node: str, message: Request) -> list[Command]:
        if units_of(message.lock_id):
            return [ToAgent(ours.id, Refused(node, message.lock_id, 0))]
        rows = ours.at(node)
        asked = rows.asked.setdefault(message.lock_id, set())
        commands = self._waits_elsewhere(ours, node, message.waits_elsewhere)
        known = tuple(rows.own(message.lock_id)) if message.mode in asked else ()
        asked.add(message.mode)
        before = message.lock_id in rows.spare
        if message.spare:
            rows.spare.add(message.lock_id)
        else:
            rows.spare.discard(message.lock_id)
        if known and (
            before or message.spare
        ):  # it is in the queue, and only its agent knows whether it waits
            return [*commands, ToAgent(ours.id, RequestStates(node, known))]
        return [*commands, self._ask(ours, node, message.lock_id, message.mode)]

    def _ask(self, ours: Ours, node: str, lock_id: LockId, mode: Mode) -> Command:
        pid = self._pid(ours.id)
        client = pid if ours.client is None else ours.client
        return CastServer(node, (Atom("lock"), list(lock_id), pid, client, Atom(known_mode(mode))))

    def _surrender(self, ours: Ours, node: str, message: Surrender) -> list[Command]:
        rows = ours.at(node)
        if message.aborts:
            return self._abort(ours, node, message)
        lock_id = message.lock_id
        if message.waiter is not None and message.holder is not None:
            lock_id = row_id(lock_id)  # the row of the waiting request
            holder = rows.record(message.holder[0])
            if not rows.is_in(lock_id) and holder is not None:
                lock_id = row_id(holder.lock_id)
        row = rows.get(lock_id)
        if row is None or not rows.is_in(lock_id):
            return [self._answer(ours, node, message, done=False)]
        pending = ours.surrenders.setdefault((node, lock_id), [])
        pending.append(Pending(row.version, message))
        term = (Atom("surrender"), list(lock_id), row.version, self._pid(ours.id))
        return [CastServer(node, term)]

    def _abort(self, ours: Ours, node: str, message: Surrender) -> list[Command]:
        """Give up everything, unless the edge is known to be gone."""
        rows = ours.at(node)
        number, since = message.waiter or (0, 0)
        waiter = rows.record(number)
        if waiter is not None and (waiter.since, waiter.state) != (since, "waiting"):
            return [self._answer(ours, node, message, done=False)]
        ours.rows.pop(node)
        return [
            CastServer(node, (Atom("remove_agent"), self._pid(ours.id))),
            self._answer(ours, node, message, done=True),
        ]

    def _answer(self, ours: Ours, node: str, message: Surrender, done: bool) -> ToAgent:
        """The answer to a surrender, with all known records there, which the agent has forgotten."""
        rows = ours.at(node)
        records = list(rows.records())
        for end in (message.waiter, message.holder):
            known = None if end is None else rows.record(end[0])
            if known is not None and known not in records:
                records.append(known)
        version = max((record.version for record in records), default=0)
        if message.report is not None:
            message = replace(message, report=_in_words(message.report))
        return ToAgent(ours.id, Surrendered(node, message, done, tuple(records), version))

    def _waits_elsewhere(self, ours: Ours, node: str, waits: bool) -> list[Command]:
        """Send an agent that begins to wait elsewhere the requests that wait for it here."""
        before = node in ours.waits_elsewhere
        if not waits:
            ours.waits_elsewhere.discard(node)
        else:
            ours.waits_elsewhere.add(node)
        return self._tell_all(ours, node) if waits and not before else []

    def _tell_all(self, ours: Ours, node: str) -> list[Command]:
        """The known records of the locks there on which a request waits."""
        records = tuple(ours.at(node).records())
        return [ToAgent(ours.id, RequestStates(node, records))] if records else []

    # --- Messages to our agents -----------------------------------------------------------------

    def receive(self, agent: AgentId, term: Any, sender: Pid | None = None) -> list[Command]:
        """Translate a message of a process of the original to one of our agents.

        Args:
            agent: Our agent.
            term: The message.
            sender: The process that has sent it, if known.

        Raises:
            BadMessage: It is no message of the original to agents.
        """
        if type(term) is tuple and term and is_atom(term[0], "locks_info"):
            info = read_info(term)
            if info is None:
                return []
            if info.has(agent) and not info.is_carried:
                return self._told(self._known(agent), info)
            return self._passed_on(self._known(agent), [info], sender)
        if type(term) is tuple and len(term) == 4 and is_atom(term[0], "surrendered"):
            return []  # the queue of that lock, which is sent as well, shows it
        if type(term) is tuple and len(term) == 2 and _is_tag(term[0]):
            return self._interviewed(agent, term)
        raise StrangeMessage(f"{brief(term)} is not a message for an agent")

    def _known(self, agent: AgentId) -> Ours:
        ours = self._ours.get(agent)
        if ours is None:
            ours = self._ours[agent] = Ours(agent)
        return ours

    def _told(self, ours: Ours, info: OriginalInfo) -> list[Command]:
        """Take in the queue of a lock that contains our agent, from a lock server."""
        node = info.node
        rows = ours.at(node)
        waited = rows.waits
        news = rows.learn(info)
        if news is None:
            return []
        commands: list[Command] = []
        mine = info.surrender is not None and agent_of(info.surrender[0]) == ours.id
        if mine:
            missing = rows.missing(info)
            commands += [self._ask(ours, node, info.lock_id, mode) for mode in missing]
        if rows.waits and not waited:
            known = {record.key for record in news}
            news += [record for record in rows.records() if record.key not in known]
        commands.append(ToAgent(ours.id, RequestStates(node, tuple(news))))
        for pending in ours.surrenders.pop((node, info.lock_id), ()):
            done = mine and info.surrender is not None and info.surrender[1] == pending.version
            if done:
                ours.often[node, info.lock_id] += 1
                if ours.often[node, info.lock_id] > OFTEN:
                    ours.held_back.append((node, pending.message))
                    continue
            commands.append(self._answer(ours, node, pending.message, done))
        return commands

    def _passed_on(
        self, ours: Ours, infos: list[OriginalInfo], sender: Pid | None = None
    ) -> list[Command]:
        """Take in an agent's knowledge of other locks."""
        news: list[RequestRecord] = []
        for info in infos:
            if info.is_carried:
                news += ours.carry(info)
            elif not info.has(ours.id):
                news += ours.at(info.node).learn(info) or []
        teller = NOBODY if sender is None else agent_of(sender)
        for info in infos if sender is None else ():
            for group in info.queue:
                for entry in group.entries:
                    if self._is_original(entry.pid.node):
                        teller = entry.agent
        return self._knowledge(ours, news, teller)

    def _knowledge(self, ours: Ours, news: list[RequestRecord], teller: AgentId) -> list[Command]:
        """Pass records to one of our agents, in the name of an agent of the original.

        The name is always the same one: if our agent reports to it that it has forgotten them, we
        answer (`forgot`).
        """
        if not news:
            return []
        if ours.teller is NOBODY:
            ours.teller = teller
        return [ToAgent(ours.id, Knowledge(ours.teller, tuple(news)))]

    def forgot(self, teller: AgentId, agent: AgentId) -> list[Command]:
        """Send one of our agents the records of agents of the original again, because it has forgotten them.

        Args:
            teller: The agent to which it has reported this.
            agent: Our agent.
        """
        ours = self._ours.get(agent)
        if ours is None or teller != ours.teller:
            return []
        records = list(ours.carried.values())
        for rows in ours.rows.values():
            records += rows.records(own=False)
        return [ToAgent(agent, Knowledge(teller, tuple(records)))] if records else []

    # --- Interviews of agents of the original ---------------------------------------------------

    def entangled(self, agent: AgentId, outlook: Exploration | None) -> list[AgentId]:
        """The agents of the original with which one of ours is entangled, as far as it knows.

        Args:
            agent: Our agent.
            outlook: The result of its search (`AgentMachine.outlook`).
        """
        edges = () if outlook is None else outlook.edges
        found = dict.fromkeys(record.agent for edge in edges for record in edge)
        return [each for each in found if each != agent and self._is_original(each.node)]

    def interview(self, agent: AgentId, entangled: Iterable[AgentId]) -> list[Command]:
        """Ask agents of the original for their knowledge, for one of our agents.

        The caller repeats this for each of our agents, a few times in a second.

        Args:
            agent: Our agent.
            entangled: The agents that it is entangled with.
        """
        commands = self._answer_late(agent)
        me = self._pid(agent)
        for other in entangled:
            pid = self._pid(other)
            call = (Atom("$gen_call"), (me, (LOCK_INFO, pid)), LOCK_INFO)
            commands.append(SendTerm(pid, call))
        return commands

    def informed(
        self,
        agent: AgentId,
        node: str,
        version: int,
        about: Collection[AgentId],
        records: Collection[RequestRecord],
    ) -> list[Command]:
        """Take in the records of agents of the original at a lock server of ours.

        Args:
            agent: Our agent, for which it was asked.
            node: The lock server's node.
            version: The version of its lock table.
            about: The agents of the original whose records are complete.
            records: Their requests, and related ones.
        """
        ours = self._known(agent)
        news = ours.take_in(records)
        there = {record.key for record in records}
        for key, known in list(ours.carried.items()):
            missing = key[0] == node and known.agent in about and key not in there
            if missing and known.version < version:
                del ours.carried[key]
                news.append(replace(known, state="gone", version=version))
        tellers = (*about, *(r.agent for r in records if self._is_original(r.agent.node)))
        return self._knowledge(ours, news, next(iter(tellers), NOBODY))

    def _answer_late(self, agent: AgentId) -> list[Command]:
        """Send answers that were held back, and answer surrenders that had no effect."""
        ours = self._ours.get(agent)
        if ours is None:
            return []
        commands: list[Command] = [self._answer(ours, *each, done=True) for each in ours.held_back]
        ours.held_back.clear()
        ours.often.clear()
        for (node, lock_id), pending in list(ours.surrenders.items()):
            for each in pending:
                each.age += 1
            if pending[-1].age > PATIENCE:
                del ours.surrenders[node, lock_id]
                commands += [self._answer(ours, node, each.message, done=False) for each in pending]
        return commands

    def _interviewed(self, agent: AgentId, term: Any) -> list[Command]:
        (_, pid), answer = term
        if type(answer) is not tuple or len(answer) != 2 or type(answer[1]) is not list:
            raise BadMessage(f"{answer!r} is not what an agent of the original knows")
        infos = [read_lock(lock) for lock in answer[1]]
        return self._passed_on(self._known(agent), infos, pid)

    # --- Processes and nodes that are gone --------------------------------------------------------

    def down(self, pid: Pid) -> list[Command]:
        """A process of the original has ended."""
        return self._lost(lambda agent: agent == agent_of(pid))

    def server_down(self, node: str) -> None:
        """Take in that a lock server of the original has ended, with its grants.

        Call this before our agents are notified.
        """
        for ours in self._ours.values():
            ours.rows.pop(node, None)
            ours.waits_elsewhere.discard(node)
            ours.held_back = [each for each in ours.held_back if each[0] != node]
            for key in [key for key in ours.surrenders if key[0] == node]:
                del ours.surrenders[key]

    def node_down(self, node: str) -> list[Command]:
        """A node was lost: with its lock server, and with all processes there."""
        self.server_down(node)
        commands = self._lost(lambda agent: agent.node == node)
        for ours in self._ours.values():
            for key in [key for key in ours.carried if key[0] == node]:
                del ours.carried[key]
            if ours.teller.node == node:
                ours.teller = NOBODY
        return commands

    def keep(self, agents: Container[AgentId]) -> None:
        """Forget all of our agents but these: they have ended."""
        for agent in [agent for agent in self._ours if agent not in agents]:
            del self._ours[agent]

    def _lost(self, is_lost: Callable[[AgentId], bool]) -> list[Command]:
        """Remove records of agents of the original that are gone."""
        commands: list[Command] = []
        for ours in self._ours.values():
            gone = []
            for key, record in list(ours.carried.items()):
                if is_lost(record.agent):
                    del ours.carried[key]
                    gone.append(replace(record, state="gone", version=record.version + 1))
            for rows in ours.rows.values():
                lost = {r.agent for r in rows.records(own=False) if is_lost(r.agent)}
                gone += rows.forget(lost)
            if gone:
                commands.append(ToAgent(ours.id, Knowledge(ours.teller, tuple(gone))))
        return commands


def is_election(lock_id: LockId) -> bool:
    """Whether a lock belongs to an election: `[locks_leader, Resource]`, as in the original."""
    return len(lock_id) == 2 and is_atom(lock_id[0], "locks_leader")


def cannot_unlock(lock_id: LockId, node: str) -> MisuseError:
    """The error for unlocking at the original's lock server, which can't."""
    return MisuseError(
        f"can't unlock {show(lock_id)} on {node}, which runs the Erlang original: there, locks are "
        "held until the transaction ends. End it, or use a separate transaction for this lock",
        lock_id=lock_id,
        node=node,
    )


def _is_tag(term: Any) -> bool:
    return type(term) is tuple and len(term) == 2 and term[0] == LOCK_INFO and type(term[1]) is Pid


def _in_words(report: Deadlock) -> Deadlock:
    """A report as users see it: with the ids of rows."""

    def plain(record: RequestRecord) -> RequestRecord:
        return replace(record, lock_id=row_id(record.lock_id))

    cycle = tuple(Edge(plain(waiter), plain(holder)) for waiter, holder in report.cycle)
    return replace(report, lock_id=row_id(report.lock_id), cycle=cycle)
