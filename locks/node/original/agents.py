"""The original's agents at our lock server.

An agent of the original casts `{lock, ...}` to the name `locks_server` on the nodes where it
requests locks. After each change it receives the lock's queue (`locks.node.original.forms`). Here
each of its casts becomes messages to our lock server: a `Request`, and a `Watch` on the same id.
Each view from the watch becomes a queue again. The agent never reports its standing at other nodes,
so the lock server must assume that it has requests there and waits there.

The queue for an agent contains only entries that concern it, because it assumes that each entry of
the head blocks each entry behind it:

* Its own requests above or below the id are left out; it watches those ids as well. Otherwise it
  would believe that it holds the lock because it holds one below it.
* Requests of others above or below the id are left out, unless they block its request, or wait for
  it.
* All granted requests form the head. If several of them block it, they are sent as readers: of
  several writers, it would believe that none blocks it.

The client of an entry matters: the original's candidates for leadership (`locks_leader`) take each
client, except themselves, for another candidate. The client of an agent of a third node is not
known here. Then the receiver's own client stands for it, because no one can mistake that for
another candidate.

All requests on exactly the id are always included: an agent passes the queue on to agents that it
does not find in it, and an agent with a request must not be among these.

A surrender names the version of the last queue that the agent received. If the queue has changed,
nothing is done: the agent receives the change anyway, and searches again.

The original can't receive a message in parts. So of a queue with thousands of entries, it receives
the first `MOST_TOLD` holders, the first `MOST_TOLD` waiting entries, and its own. It never believes
by this that it holds a lock that it does not hold. But it may miss a deadlock with agents that are
left out.

Source: `locks_server.erl`, `locks_agent.erl` and `locks_agent_lib.erl` of the original.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from locks.core.messages import Remove, Request, Surrender, Unwatch, Watch
from locks.core.server.table import LockTable
from locks.core.server.tree import Entry as TableEntry
from locks.model import (
    RIVALS,
    AgentId,
    Contender,
    Deadlock,
    LockId,
    Mode,
    RequestRecord,
    View,
    related,
)
from locks.node.original.forms import (
    SURRENDER,
    Command,
    DemonitorPid,
    MonitorPid,
    OriginalEntry,
    OriginalGroup,
    SendTerm,
    ToLockServer,
    info_term,
    lock_id_of,
    pack_request,
    pid_in,
)
from locks.otp.bytes import etf
from locks.otp.bytes.control import StrangeMessage
from locks.otp.bytes.fields import brief
from locks.otp.bytes.terms import Atom, Pid
from locks.wire.forms import agent_of, to_mode

__all__ = ["OriginalAgents", "OriginalWatcher", "around"]


MOST_TOLD = 2000
MOST_WATCHERS = 1000  # of a lock, that are named in its queue


class OriginalWatcher(NamedTuple):
    """A process of the original as a watcher at our lock server."""

    pid: Pid
    lock_id: LockId


class _Interest:
    """The relation of one process of the original to one lock id.

    Attributes:
        terms: The id as the process writes it. Some ids are equal in Python, but not in Erlang
            (`[1]`, `[1.0]` and `[true]`), so there may be several.
        modes: The modes in which it has requested the id.
        version: The version that it received last.
        note: The cause of the next message to it.
    """

    __slots__ = ("modes", "note", "terms", "version")

    def __init__(self) -> None:
        self.terms: dict[bytes, Any] = {}
        self.modes: set[Mode] = set()
        self.version = -1
        self.note: Any = []


class OriginalAgents:
    """The relations of processes of the original with our lock server.

    Args:
        server: The pid of our lock server.
        pid: Returns the pid of an agent, of this node or another.
        client: Returns the pid of the client of an agent of ours, or `None` if unknown.

    Every method returns commands, to be carried out in order.
    """

    def __init__(
        self,
        server: Pid,
        pid: Callable[[AgentId], Pid],
        client: Callable[[AgentId], Pid | None],
    ) -> None:
        self._server = server
        self._pid = pid
        self._client = client
        self._interests: dict[Pid, dict[LockId, _Interest]] = {}
        self._watching: dict[LockId, dict[Pid, None]] = {}
        self._processes: dict[AgentId, tuple[Pid, Pid]] = {}  # of each agent, and of its client
        self._packed: dict[Contender, int] = {}  # of one view

    # --- Messages from them ---------------------------------------------------------------------

    def cast(self, term: Any, peer: str) -> list[Command]:
        """Take in a cast of a process of the original to our lock server.

        Args:
            term: The cast.
            peer: The sender's node. A process may act only for processes of its own node.

        Raises:
            BadMessage: It is no message of the original, or is for a process of another node.
        """
        if type(term) is tuple:
            match term:
                case (Atom(name="lock"), lock, agent, client, mode):
                    return self._lock(lock, pid_in(agent, peer), pid_in(client), to_mode(mode))
                case (Atom(name="surrender"), lock, version, agent):
                    return self._surrender(lock_id_of(lock), version, pid_in(agent, peer))
                case (Atom(name="remove_agent"), agent):
                    commands = self.down(pid_in(agent, peer))
                    return [*commands, DemonitorPid(agent)] if commands else []
                case (Atom(name="watch"), lock, pid):
                    return self._watch(lock, pid_in(pid, peer))
                case (Atom(name="unwatch"), lock, pid):
                    return self._unwatch(lock_id_of(lock), pid_in(pid, peer))
        raise StrangeMessage(f"{brief(term)} is not a message for a lock server")

    def _lock(self, lock: Any, agent: Pid, client: Pid, mode: Mode) -> list[Command]:
        commands = self._known(agent)
        lock_id = lock_id_of(lock)
        ref = agent_of(agent)
        self._processes.setdefault(ref, (agent, client))
        interest, new = self._interest(agent, lock_id, lock)
        request = Request(ref, str(client), lock_id, mode, True, True)
        commands.append(ToLockServer(request))
        if new:
            commands.append(ToLockServer(Watch(OriginalWatcher(agent, lock_id), lock_id)))
        interest.modes.add(mode)
        return commands

    def _surrender(self, lock_id: LockId, version: Any, agent: Pid) -> list[Command]:
        interest = self._interests.get(agent, {}).get(lock_id)
        if interest is None or not interest.modes or interest.version != version:
            return []
        self._note(lock_id, agent, version)
        return [ToLockServer(Surrender(agent_of(agent), lock_id))]

    def _watch(self, lock: Any, pid: Pid) -> list[Command]:
        lock_id = lock_id_of(lock)
        commands = self._known(pid)
        _, new = self._interest(pid, lock_id, lock)
        self._watching.setdefault(lock_id, {})[pid] = None
        if new:
            commands.append(ToLockServer(Watch(OriginalWatcher(pid, lock_id), lock_id)))
        return commands

    def _unwatch(self, lock_id: LockId, pid: Pid) -> list[Command]:
        interests = self._interests.get(pid, {})
        interest = interests.get(lock_id)
        if interest is None:
            return []
        self._watches_no_more(pid, lock_id)
        if interest.modes:
            return []
        del interests[lock_id]
        commands: list[Command] = [ToLockServer(Unwatch(OriginalWatcher(pid, lock_id), lock_id))]
        if not interests:
            del self._interests[pid]
            commands.append(DemonitorPid(pid))
        return commands

    def down(self, pid: Pid) -> list[Command]:
        """A process of the original has ended, or its node was lost."""
        interests = self._interests.pop(pid, {})
        for lock_id in interests:
            self._watches_no_more(pid, lock_id)
        commands: list[Command] = [
            ToLockServer(Unwatch(OriginalWatcher(pid, lock_id), lock_id)) for lock_id in interests
        ]
        if any(interest.modes for interest in interests.values()):
            agent = agent_of(pid)
            self._processes.pop(agent, None)
            commands.append(ToLockServer(Remove(agent)))
        return commands

    def node_down(self, node: str) -> list[Command]:
        """A node was lost, and with it all processes there."""
        lost = [pid for pid in self._interests if pid.node == node]
        return [command for pid in lost for command in self.down(pid)]

    def _watches_no_more(self, pid: Pid, lock_id: LockId) -> None:
        watching = self._watching.get(lock_id)
        if watching is not None:
            watching.pop(pid, None)
            if not watching:
                del self._watching[lock_id]

    def _known(self, pid: Pid) -> list[Command]:
        """Monitor a process that is new here."""
        return [] if pid in self._interests else [MonitorPid(pid)]

    def _interest(self, pid: Pid, lock_id: LockId, term: Any) -> tuple[_Interest, bool]:
        """The relation of a process to a lock id, and whether it is new."""
        encoded = etf.encode(term)
        interests = self._interests.setdefault(pid, {})
        new = lock_id not in interests
        interest = interests.setdefault(lock_id, _Interest())
        interest.terms[encoded] = term
        return interest, new

    # --- Messages to them -----------------------------------------------------------------------

    def resolved(self, report: Deadlock) -> None:
        """Note that a deadlock with an agent of the original was resolved; the next infos report it."""
        if report.action == "surrendered":
            self._note(report.lock_id, self._pid_of(report.agent), 0)

    def told(self, watcher: OriginalWatcher, view: View) -> list[Command]:
        """Send a process of the original a view of our lock server."""
        pid, lock_id = watcher
        interest = self._interests.get(pid, {}).get(lock_id)
        if interest is None:
            return []
        note, interest.note = interest.note, []
        first, interest.version = interest.version < 0, view.version
        agent = agent_of(pid) if interest.modes else None
        if agent is None and first:
            return self._tell_held(interest, pid) if view.requests else []
        me = self._processes[agent][1] if agent is not None else pid
        queue = self._queue(view, agent, me)
        if agent is not None and not any(e.pid == pid for group in queue for e in group.entries):
            return []  # it is about to be removed, and could not cope with that
        watchers = list(self._watching.get(lock_id, ()))[:MOST_WATCHERS]
        return [
            SendTerm(pid, info_term(term, view.version, self._server, queue, watchers, note))
            for term in interest.terms.values()
        ]

    def _tell_held(self, interest: _Interest, pid: Pid) -> list[Command]:
        """The first message to a watcher, which is sent only if the lock is held."""
        return [
            SendTerm(pid, (Atom("locks_info"), term, Atom(self._server.node), []))
            for term in interest.terms.values()
        ]

    def _note(self, lock_id: LockId, agent: Pid, version: int) -> None:
        """Mark the next messages about related locks as caused by a surrender."""
        for interests in self._interests.values():
            for other, interest in interests.items():
                if related(lock_id, other):
                    interest.note = (SURRENDER, agent, version)

    def _queue(self, view: View, me: AgentId | None, client: Pid) -> list[OriginalGroup]:
        """A view as the queue for an agent, or for a process that only watches.

        Args:
            view: The view.
            me: The agent; `None` for a watcher.
            client: Its client, or the process that watches.
        """
        shown = list(view.requests)
        if me is not None:
            own = [c for c in shown if c.agent == me and c.lock_id == view.lock_id]
            shown = [
                c
                for c in shown
                if c.lock_id == view.lock_id
                or (c.agent != me and any(_in_the_way(c, each) for each in own))
            ]
        granted = [c for c in shown if c.granted]
        queue = []
        if granted:
            agents = {c.agent for c in granted}
            writes = any(c.mode != "read" for c in granted)
            as_readers = not writes or (len(agents) > 1 and me is not None)
            mode: Mode = "read" if as_readers else "write"
            queue.append(self._group(mode, granted, view, me, client))
        readers: list[Contender] = []
        waiting = [contender for contender in shown if not contender.granted]
        own_late = [contender for contender in waiting[MOST_TOLD:] if contender.agent == me]
        for contender in waiting[:MOST_TOLD] + own_late:
            if contender.mode == "read":
                readers.append(contender)
                continue
            if readers:
                queue.append(self._group("read", readers, view, me, client))
                readers = []
            queue.append(self._group("write", [contender], view, me, client))
        if readers:
            queue.append(self._group("read", readers, view, me, client))
        return queue

    def _group(
        self, mode: Mode, members: list[Contender], view: View, me: AgentId | None, client: Pid
    ) -> OriginalGroup:
        """A group; an agent is in it once, with that which most others wait for."""
        strongest: dict[AgentId, Contender] = {}
        for contender in members:
            rival = strongest.get(contender.agent)
            if rival is None or _strength(contender, view) > _strength(rival, view):
                strongest[contender.agent] = contender
        entries = []
        for number, contender in enumerate(strongest.values()):
            agent = contender.agent
            if number >= MOST_TOLD and agent != me:
                continue
            known = self._processes.get(agent)
            whose = known[1] if known is not None else self._client(agent) or client
            direct = contender.lock_id == view.lock_id
            entries.append(OriginalEntry(self._pid_of(agent), whose, self._pack(contender), direct))
        return OriginalGroup(mode, tuple(entries))

    def _pid_of(self, agent: AgentId) -> Pid:
        known = self._processes.get(agent)
        return self._pid(agent) if known is None else known[0]

    def _pack(self, contender: Contender) -> int:
        packed = self._packed.get(contender)
        if packed is None:
            if len(self._packed) > 1000:
                self._packed.clear()
            packed = self._packed[contender] = pack_request(contender)
        return packed


def _in_the_way(one: Contender, other: Contender) -> bool:
    """Whether one of two requests on related ids waits for the other."""
    return one.mode in RIVALS[other.mode] and not (one.granted and other.granted)


def _strength(contender: Contender, view: View) -> tuple[bool, bool]:
    return (contender.mode != "read", contender.lock_id == view.lock_id)


def around(
    table: LockTable, node: str, agents: Iterable[AgentId], is_original: Callable[[str], bool]
) -> tuple[list[AgentId], list[RequestRecord]]:
    """The records in our lock table of agents of the original, and of agents that they wait for.

    Args:
        table: The lock table.
        node: Its node.
        agents: The agents.
        is_original: Whether a node runs the original.

    Returns:
        The agents, with all others of the original that they reach over waits; and the records of
        all requests that wait for theirs, or that theirs wait for.
    """
    found = dict.fromkeys(agents)
    todo = list(found)
    entries: dict[TableEntry, None] = {}
    for agent in todo:
        owner = table.requesters.get(agent)
        for own in owner.all() if owner is not None else ():
            entries[own] = None
            for other in table.related(own.slot.lock_id):
                if other.requester is owner or other.rank not in own.rivals:
                    continue
                if own.granted and other.granted:
                    continue
                entries[other] = None
                rival = other.requester.id
                if rival not in found and is_original(rival.node):
                    found[rival] = None
                    todo.append(rival)
    return list(found), [entry.record(node) for entry in entries]
