"""Our agents at the original's lock servers, and among the original's agents.

An agent of ours says to a lock server of the original what it can be told (`OriginalServers.send`): it
asks for locks, surrenders, and goes. What comes to an agent of ours from processes of the original
(`receive`) is one of these:

* The queue of a lock in which it stands, from the lock server. That becomes `Told`.
* The queue of another lock, from an agent that thinks it of interest. That becomes `Knowledge`, and
  so the deadlock is found by the rules of our agents. Ours are larger than those of the original, so
  of a cycle with one of ours in it, one of ours yields.
* What an agent knows, when it was asked (`interview`). The original's agents do not tell all that
  matters: one that finds a deadlock in which another must yield tells nobody. So an agent of ours that
  waits asks those that it is entangled with, now and then.

What the original does not have is made up for as far as it can be:

* It does not say when it refuses a surrender. It does so if the queue has changed; then the change is
  told in any case, and that is the answer. If nothing comes for some time, there was nothing that it
  could take back: in trees it may carry entries over to rows that their agents never asked for.
* Its rows disagree with each other, so that two agents of ours may think for ever that they must
  surrender, each undoing what the other one does. Who does so often is answered later.
* It forgets an upgrade that waits when its agent surrenders; it is asked for again.
* It has no unlock. What is given up stays until the transaction ends, and `Released` says so.
* It has no fencing tokens, and its versions may go back: `Raise` is never confirmed.

Source: `locks_server.erl`, `locks_agent.erl` and `locks_agent_lib.erl` of the original.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from typing import Any

from locks.errors import MisuseError
from locks.messages import (
    Inquire,
    Knowledge,
    Raise,
    Raised,
    Release,
    Released,
    Remove,
    Request,
    ServerMessage,
    Standing,
    Surrender,
    Surrendered,
    ToAgent,
    Told,
)
from locks.model import AgentId, LockId, RequestKey, RequestRecord, show
from locks.original.forms import (
    CastServer,
    Command,
    Info,
    SendTerm,
    carries,
    is_atom,
    read_info,
    read_lock,
    unpack_request,
)
from locks.original.rows import Rows, row_id
from locks.otp.terms import Atom, Pid
from locks.wait_graph import Exploration
from locks.wire import BadMessage, agent_of

__all__ = ["OriginalServers"]

LOCK_INFO = Atom("lock_info")
NOBODY = AgentId(0, "", 0)
OFTEN = 5  # surrenders of one lock between two interviews; then the answer waits for the next one
PATIENCE = 10  # interviews until it is clear that nothing comes of a surrender


class _Pending:
    """A surrender that was not answered.

    Attributes:
        version: The version of the queue for which it was made.
        message: What the agent has said.
        age: How many interviews it has seen.
    """

    __slots__ = ("age", "message", "version")

    def __init__(self, version: int, message: Surrender) -> None:
        self.version = version
        self.message = message
        self.age = 0


class _Ours:
    """One of our agents.

    Attributes:
        rows: What it knows of the original's lock servers, by node.
        carried: What it was told of our lock servers by the original's agents.
        waits_elsewhere: The lock servers that it has told that it waits elsewhere.
        surrenders: What it has surrendered and was not answered, by node and row.
        often: How often that was carried out since the last interview.
        held_back: Answers that it gets at the next one.
        teller: Who is said to have told it what it got from agents of the original.
        client: Its client's pid.
    """

    __slots__ = (
        "carried",
        "client",
        "held_back",
        "id",
        "often",
        "rows",
        "surrenders",
        "teller",
        "waits_elsewhere",
    )

    def __init__(self, agent: AgentId) -> None:
        self.id = agent
        self.rows: dict[str, Rows] = {}
        self.carried: dict[RequestKey, RequestRecord] = {}
        self.waits_elsewhere: set[str] = set()
        self.surrenders: dict[tuple[str, LockId], list[_Pending]] = {}
        self.often: Counter[tuple[str, LockId]] = Counter()
        self.held_back: list[tuple[str, Surrender]] = []
        self.teller = NOBODY
        self.client: Pid | None = None

    def at(self, node: str) -> Rows:
        """What it knows of one lock server."""
        rows = self.rows.get(node)
        if rows is None:
            rows = self.rows[node] = Rows(self.id)
        return rows


class OriginalServers:
    """What our agents have to do with processes of the original.

    Args:
        pid: The pid of an agent, of this node or another.
        is_original: Whether a node that is connected runs the original.

    Every method returns what is to be done, in this order.
    """

    def __init__(self, pid: Callable[[AgentId], Pid], is_original: Callable[[str], bool]) -> None:
        self._pid = pid
        self._is_original = is_original
        self._ours: dict[AgentId, _Ours] = {}
        self._handlers: dict[type[Any], Callable[[_Ours, str, Any], list[Command]]] = {
            Request: self._request,
            Release: self._release,
            Surrender: self._surrender,
            Remove: self._remove,
            Standing: self._standing,
            Inquire: self._inquire,
            Raise: self._raise,
        }

    # --- What our agents say to lock servers ----------------------------------------------------

    def send(
        self, agent: AgentId, node: str, message: ServerMessage, client: Pid | None = None
    ) -> list[Command]:
        """One of our agents says something to the original's lock server of a node.

        Args:
            agent: The agent.
            node: The node.
            message: What it says.
            client: The pid of its client; the agent stands for it if it has none.

        Raises:
            MisuseError: The original can't be told that.
        """
        handler = self._handlers.get(type(message))
        if handler is None:
            raise MisuseError(
                f"{node} runs the original: its lock server can't be told {message!r}", node=node
            )
        ours = self._known(agent)
        if client is not None:
            ours.client = client
        return handler(ours, node, message)

    def _request(self, ours: _Ours, node: str, message: Request) -> list[Command]:
        rows = ours.at(node)
        rows.asked.setdefault(message.lock_id, set()).add(message.mode)
        commands = self._waits_elsewhere(ours, node, message.waits_elsewhere)
        return [*commands, self._ask(ours, node, message.lock_id, message.mode)]

    def _ask(self, ours: _Ours, node: str, lock_id: LockId, mode: str) -> Command:
        pid = self._pid(ours.id)
        client = pid if ours.client is None else ours.client
        return CastServer(node, (Atom("lock"), list(lock_id), pid, client, Atom(mode)))

    def _release(self, ours: _Ours, node: str, message: Release) -> list[Command]:
        left = tuple(ours.at(node).own(message.lock_id))
        return [ToAgent(ours.id, Released(node, message.lock_id, left))]

    def _surrender(self, ours: _Ours, node: str, message: Surrender) -> list[Command]:
        rows = ours.at(node)
        if message.aborts:
            return self._abort(ours, node, message)
        lock_id = message.lock_id
        if message.waiter is not None and message.holder is not None:
            lock_id = row_id(lock_id)  # where the one stands who waits
            holder = rows.record(message.holder[0])
            if not rows.is_in(lock_id) and holder is not None:
                lock_id = row_id(holder.lock_id)
        row = rows.get(lock_id)
        if row is None or not rows.is_in(lock_id):
            return [self._answer(ours, node, message, done=False)]
        pending = ours.surrenders.setdefault((node, lock_id), [])
        pending.append(_Pending(row.version, message))
        term = (Atom("surrender"), list(lock_id), row.version, self._pid(ours.id))
        return [CastServer(node, term)]

    def _abort(self, ours: _Ours, node: str, message: Surrender) -> list[Command]:
        """Give up everything, unless it is known that the edge is no longer there."""
        rows = ours.at(node)
        number, since = message.waiter or (0, 0)
        waiter = rows.record(number)
        if waiter is not None and (waiter.since, waiter.state) != (since, "waiting"):
            return [self._answer(ours, node, message, done=False)]
        return [
            CastServer(node, (Atom("remove_agent"), self._pid(ours.id))),
            ToAgent(ours.id, Surrendered(node, message, True, (), 0)),
        ]

    def _answer(self, ours: _Ours, node: str, message: Surrender, done: bool) -> ToAgent:
        """The answer to a surrender, with all that is known there: the agent has forgotten it."""
        rows = ours.at(node)
        records = list(rows.records())
        for end in (message.waiter, message.holder):
            known = None if end is None else rows.record(end[0])
            if known is not None and known not in records:
                records.append(known)
        versions = [record.version for record in records]
        version = max(versions, default=0)
        return ToAgent(ours.id, Surrendered(node, message, done, tuple(records), version))

    def _remove(self, ours: _Ours, node: str, message: Remove) -> list[Command]:
        # What was given up before may be left on other nodes. There, they see the agent end.
        ours.rows.pop(node, None)
        return [CastServer(node, (Atom("remove_agent"), self._pid(ours.id)))]

    def _standing(self, ours: _Ours, node: str, message: Standing) -> list[Command]:
        return self._waits_elsewhere(ours, node, message.waits_elsewhere)

    def _waits_elsewhere(self, ours: _Ours, node: str, waits: bool) -> list[Command]:
        """An agent that begins to wait elsewhere is told who waits for it here."""
        before = node in ours.waits_elsewhere
        if not waits:
            ours.waits_elsewhere.discard(node)
        else:
            ours.waits_elsewhere.add(node)
        return self._tell_all(ours, node) if waits and not before else []

    def _inquire(self, ours: _Ours, node: str, message: Inquire) -> list[Command]:
        return self._tell_all(ours, node)

    def _raise(self, ours: _Ours, node: str, message: Raise) -> list[Command]:
        _, lock_id, since, version = message
        return [ToAgent(ours.id, Raised(node, lock_id, since, version, False))]

    def _tell_all(self, ours: _Ours, node: str) -> list[Command]:
        """What is known of the locks there that somebody waits for."""
        records = tuple(ours.at(node).records())
        return [ToAgent(ours.id, Told(node, records))] if records else []

    # --- What comes to our agents ---------------------------------------------------------------

    def receive(self, agent: AgentId, term: Any, sender: Pid | None = None) -> list[Command]:
        """A process of the original has sent something to one of our agents.

        Args:
            agent: Our agent.
            term: What was sent.
            sender: Who has sent it, where that is known.

        Raises:
            BadMessage: It is nothing that the original says to agents.
        """
        if type(term) is tuple and term and is_atom(term[0], "locks_info"):
            info = read_info(term)
            if info is None:
                return []
            if info.has(agent) and not _is_carried(info):
                return self._told(self._known(agent), info)
            return self._passed_on(self._known(agent), [info], sender)
        if type(term) is tuple and len(term) == 4 and is_atom(term[0], "surrendered"):
            return []  # the queue of that lock is told, and says so
        if type(term) is tuple and len(term) == 2 and _is_tag(term[0]):
            return self._interviewed(agent, term)
        raise BadMessage(f"{term!r} is nothing that an agent can be told")

    def _known(self, agent: AgentId) -> _Ours:
        ours = self._ours.get(agent)
        if ours is None:
            ours = self._ours[agent] = _Ours(agent)
        return ours

    def _told(self, ours: _Ours, info: Info) -> list[Command]:
        """A lock server tells the queue of a lock in which our agent stands."""
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
        commands.append(ToAgent(ours.id, Told(node, tuple(news))))
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
        self, ours: _Ours, infos: list[Info], sender: Pid | None = None
    ) -> list[Command]:
        """An agent of the original tells what it knows of other locks."""
        news: list[RequestRecord] = []
        for info in infos:
            if _is_carried(info):
                news += _carry(ours.carried, info)
            elif not info.has(ours.id):
                news += ours.at(info.node).learn(info) or []
        if not news:
            return []
        if ours.teller is NOBODY:
            ours.teller = self._teller(infos, sender)
        return [ToAgent(ours.id, Knowledge(ours.teller, tuple(news)))]

    def _teller(self, infos: list[Info], sender: Pid | None) -> AgentId:
        """Somebody who may have told it: whoever is asked again, we answer (`forgot`)."""
        if sender is not None:
            return agent_of(sender)
        for info in infos:
            for group in info.queue:
                for entry in group.entries:
                    if self._is_original(entry.pid.node):
                        return entry.agent
        return NOBODY

    def forgot(self, teller: AgentId, agent: AgentId) -> list[Command]:
        """One of our agents has forgotten what agents of the original have told it, and asks again.

        Args:
            teller: Whom it asks.
            agent: Our agent.
        """
        ours = self._ours.get(agent)
        if ours is None or teller != ours.teller:
            return []
        records = list(ours.carried.values())
        for rows in ours.rows.values():
            records += rows.records(own=False)
        return [ToAgent(agent, Knowledge(teller, tuple(records)))] if records else []

    # --- Asking agents of the original what they know -------------------------------------------

    def interview(self, agent: AgentId, outlook: Exploration | None) -> list[Command]:
        """Ask those agents of the original that one of ours is entangled with what they know.

        To be called again and again for each of our agents, a few times in a second.

        Args:
            agent: Our agent.
            outlook: What it finds in what it knows (`AgentMachine.outlook`).
        """
        commands = self._answer_late(agent)
        if outlook is None:
            return commands
        found = {r.agent: None for edge in outlook.edges for r in edge if r.agent != agent}
        me = self._pid(agent)
        for other in found:
            if self._is_original(other.node):
                pid = self._pid(other)
                call = (Atom("$gen_call"), (me, (LOCK_INFO, pid)), LOCK_INFO)
                commands.append(SendTerm(pid, call))
        return commands

    def _answer_late(self, agent: AgentId) -> list[Command]:
        """Answer surrenders that were held back, and those that nothing came of."""
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

    # --- Who is no more -------------------------------------------------------------------------

    def down(self, pid: Pid) -> list[Command]:
        """A process of the original has ended."""
        return self._lost(lambda agent: agent == agent_of(pid))

    def server_down(self, node: str) -> None:
        """A lock server of the original has ended; what it had granted is gone.

        To be called before our agents are told of it.
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
        """Agents of the original are no more: what others have told of them is outdated."""
        commands: list[Command] = []
        for ours in self._ours.values():
            gone = []
            for key, record in list(ours.carried.items()):
                if is_lost(record.agent):
                    del ours.carried[key]
                    gone.append(record._replace(state="gone", version=record.version + 1))
            for rows in ours.rows.values():
                lost = {r.agent for r in rows.records(own=False) if is_lost(r.agent)}
                gone += rows.forget(lost)
            if gone:
                commands.append(ToAgent(ours.id, Knowledge(ours.teller, tuple(gone))))
        return commands


def cannot_unlock(lock_id: LockId, node: str) -> MisuseError:
    """The error for who wants to unlock at the original's lock server, which can't."""
    return MisuseError(
        f"{show(lock_id)} can't be unlocked on {node}, which runs the original: there, locks are "
        "held until the transaction ends. End it, or use a transaction of its own for this lock",
        lock_id=lock_id,
        node=node,
    )


def _is_tag(term: Any) -> bool:
    return type(term) is tuple and len(term) == 2 and term[0] == LOCK_INFO and type(term[1]) is Pid


def _is_carried(info: Info) -> bool:
    """Whether the lock is one of a lock server of ours: the entries carry the records."""
    return any(carries(entry) for group in info.queue for entry in group.entries)


def _carry(carried: dict[RequestKey, RequestRecord], info: Info) -> list[RequestRecord]:
    """Take in what an agent of the original was told by a lock server of ours."""
    news = []
    there = set()
    for group in info.queue:
        for entry in group.entries:
            there.add(entry.agent)
            record = unpack_request(entry.version, entry.agent, info.node, info.version)
            if record is None:
                continue
            known = carried.get(record.key)
            if known is None or known.version < record.version:
                carried[record.key] = record
                news.append(record)
    for key, known in list(carried.items()):
        # All on exactly the id stand in the queue; who is above or below may have been left out.
        same = key[0] == info.node and known.lock_id == info.lock_id
        if same and known.agent not in there and known.version < info.version:
            del carried[key]
            news.append(known._replace(state="gone", version=info.version))
    return news
