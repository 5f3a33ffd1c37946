"""A simulated agent, with what its client was told that it has.

A `Host` knows nothing of the world around it: what is to be sent is put into `out`. It checks that
its agent tells the client of losses, at once and in no other case, and vouches for nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from locks.core.agent.machine import AgentMachine
from locks.core.messages import (
    AgentEffect,
    AgentMessage,
    AnswerWait,
    Ended,
    Lost,
    Notify,
    ServerMessage,
    Surrender,
    Surrendered,
    ToAgent,
    ToServer,
)
from locks.errors import LockLost, NotHeld
from locks.model import (
    AgentId,
    Deadlock,
    LockId,
    Mode,
    RequestRecord,
    Require,
    covers,
    related,
    show,
)
from locks_lab.worlds.network import Party
from locks_lab.worlds.study import study

__all__ = ["ClientEffect", "Had", "Host", "Mail", "Message", "Violation", "needed"]

Message = ServerMessage | AgentMessage
Mail = tuple[Party, Party, Message]
ClientEffect = AnswerWait | Lost | Notify | Ended  # what an agent wants done, but for messages


class Violation(AssertionError):
    """Something that must always be true is not.

    Attributes:
        schedule: What leads there, as choices of the world, where a search has found it.
    """

    schedule: Sequence[Any] = ()


class Had(NamedTuple):
    """What a client was told that it has, and on which terms."""

    mode: Mode
    nodes: tuple[str, ...]
    require: Require


class Host:
    """An agent, and what its client was told.

    Args:
        machine: The agent.
        client: Takes what the machine wants done apart from messages.

    Attributes:
        out: Messages to be sent, each with sender and receiver.
        told: The locks that the client was told it holds, and may rely on, by node and id.
        had: All that it was told it holds, and has not released since.
        lost: What of that is lost: it must not rely on it until it is told of it again.
    """

    __slots__ = ("agent", "client", "had", "lost", "out", "told")

    def __init__(self, machine: AgentMachine, client: Callable[[Host, ClientEffect], None]) -> None:
        self.agent = machine
        self.client = client
        self.out: list[Mail] = []
        self.told: dict[tuple[str, LockId], Mode] = {}
        self.had: dict[LockId, Had] = {}
        self.lost: set[LockId] = set()

    @property
    def ref(self) -> AgentId:
        """The agent's reference."""
        return self.agent.id

    def receive(self, message: AgentMessage) -> None:
        """The agent takes in a message."""
        self.perform(self.agent.receive(message))
        if self.had and isinstance(message, Surrendered):
            self.lost |= {lock_id for lock_id in self.had if not self._granted(lock_id)}
            self.look()

    def settle(self) -> None:
        """The agent looks at what it knows."""
        self.perform(self.agent.settle())

    def node_up(self, node: str) -> None:
        """The agent's node sees another one again."""
        self.perform(self.agent.node_up(node))

    def peer_up(self, node: str) -> None:
        """The agent's node sees one again that has no lock server."""
        self.perform(self.agent.peer_up(node))

    def peer_down(self, node: str) -> None:
        """The agent's node has lost one that has no lock server."""
        self.perform(self.agent.peer_down(node))

    def node_down(self, node: str) -> None:
        """The agent's node has lost another one, and with it what was locked there.

        What the client does not have any more by that is what it is told of, before all else.
        """
        up = study(self.agent).alive
        rest = [lock_id for lock_id in self.had if lock_id not in self.lost]
        given_up = {lock_id: self._given_up(lock_id) for lock_id in rest}
        had = {lock_id for lock_id in rest if self._granted(lock_id, up)}
        sure = {lock_id for lock_id in had if self._granted(lock_id, up, given_up[lock_id])}
        for lock_id, (_, nodes, require) in self.had.items():
            if require.endswith("_alive"):  # when it comes back, it does not count for this
                left = tuple(each for each in nodes if each != node)
                self.had[lock_id] = self.had[lock_id]._replace(nodes=left)
        up = up - {node}
        gone = {i for i in had if not self._granted(i, up, (node,))}
        gone |= {i for i in sure if not self._granted(i, up, (node, *given_up[i]))}
        self.lost |= gone
        effects = self.agent.node_down(node)
        told = [effect.lock_ids for effect in effects if isinstance(effect, Lost)]
        if told != [effect.lock_ids for effect in effects[:1] if isinstance(effect, Lost)]:
            raise Violation(f"{self.ref}: what is lost is not told before all else: {effects}")
        if gone != {lock_id for lock_ids in told for lock_id in lock_ids}:
            raise Violation(f"the client of {self.ref} has lost {gone}, and is told of {told}")
        self.perform(effects)
        self.look()

    def perform(self, effects: Iterable[AgentEffect]) -> None:
        """Do what the agent wants done."""
        sender = self.ref
        for effect in effects:
            if isinstance(effect, ToServer):
                if isinstance(effect.message, Surrender):
                    self._gives_up(effect.message)
                self.out.append((sender, effect.node, effect.message))
            elif isinstance(effect, ToAgent):
                self.out.append((sender, effect.agent, effect.message))
            else:
                self.client(self, effect)

    def has_all(self) -> None:
        """The client was told that it has all that it asked for.

        Several tasks may wait with one agent, each for its own: what others wait for still is not meant.
        """
        infos = [each for each in self.agent.lock_info() if each.held or not self.agent.awaited]
        alive = study(self.agent).alive
        self.had = {}
        for info in infos:
            if not info.held or len(info.granted) < needed(info.require, info.nodes, alive):
                raise Violation(f"the client of {self.ref} is told that it has {info}")
            nodes = info.nodes
            if info.require.endswith("_alive"):
                nodes = tuple(node for node in nodes if node in alive)
            self.had[info.lock_id] = Had(info.mode, nodes, info.require)
        self.told = {(node, info.lock_id): info.mode for info in infos for node in info.granted}
        self.lost.clear()
        self.look()

    def has(self, lock_id: LockId) -> bool:
        """Whether the agent holds a lock, or its client was told so."""
        return lock_id in self.had or self.agent.holds(lock_id)

    def let_go(self, lock_id: LockId) -> None:
        """The client gives a lock up."""
        self.had.pop(lock_id, None)
        self.lost.discard(lock_id)
        self.told = {where: m for where, m in self.told.items() if where[1] != lock_id}

    def withdrawn(self) -> None:
        """The client has abandoned a wait that was over: it does not rely on what it was told by it."""
        for lock_id, had in list(self.had.items()):
            asked = study(self.agent).asked(lock_id)
            if asked is None:
                self.let_go(lock_id)
            elif not covers(asked.mode, had.mode):
                self.had[lock_id] = had._replace(mode=asked.mode)
        self.look()

    def look(self) -> None:
        """What the client may rely on of all that it was told, which is what its agent vouches for.

        That is what is granted, as the agent knows, also without what it is about to surrender.
        """
        if self.agent.ended is not None:
            self.had.clear()
            self.lost.clear()
        told: dict[tuple[str, LockId], Mode] = {}
        for lock_id in self.had:
            where: list[str] = []
            if lock_id not in self.lost:
                if not self._granted(lock_id, since=False):
                    self._rely_on_what_came_since(lock_id)
                where = self._granted(lock_id, without=self._given_up(lock_id))
            told |= {(node, lock_id): self.had[lock_id].mode for node in where}
            if bool(where) == self._refuses(lock_id):
                raise Violation(f"{self.ref} does not know whether {show(lock_id)} is held")
        refuses = bool(self.had) and self._refuses(None)
        if refuses != (len({lock_id for _, lock_id in told}) < len(self.had)):
            raise Violation(f"{self.ref} does not know whether all is held")
        if told != self.told:
            self.told = told

    def _refuses(self, lock_id: LockId | None) -> bool:
        """Whether the agent does not vouch for a lock."""
        try:
            self.agent.ensure_held(lock_id)
        except LockLost:
            return True
        except NotHeld as error:
            raise Violation(f"{self.ref} does not know that it had a lock: {error}") from error
        return False

    def _granted(
        self,
        lock_id: LockId,
        alive: Collection[str] | None = None,
        without: Collection[str] = (),
        since: bool = True,
    ) -> list[str]:
        """Where what the client was told is granted, as its agent knows, if that is enough.

        More may have been granted since; with `since`, that counts, too.
        """
        alive = study(self.agent).alive if alive is None else alive
        asked = study(self.agent).asked(lock_id)
        if asked is None:
            return []
        mode, nodes, require = self.had[lock_id]
        terms = [(mode, nodes), (asked.mode, tuple(asked.records))]
        for wanted, there in terms if since else terms[:1]:
            found = [
                node
                for node in there
                if node not in without and _serves(asked.records[node], wanted)
            ]
            if len(found) >= needed(require, there, alive):
                return found
        return []

    def _rely_on_what_came_since(self, lock_id: LockId) -> None:
        """What the client was told is gone, but more has been granted meanwhile."""
        asked = study(self.agent).asked(lock_id)
        assert asked is not None
        nodes = tuple(asked.records)
        if asked.require.endswith("_alive"):
            nodes = tuple(node for node in nodes if node in study(self.agent).alive)
        self.had[lock_id] = self.had[lock_id]._replace(nodes=nodes)

    def _given_up(self, lock_id: LockId) -> list[str]:
        """Where a lock is about to be surrendered, and may be already."""
        return [
            node
            for node, ids in study(self.agent).giving_up.items()
            if any(each is None or related(each, lock_id) for each in ids)
        ]

    def _gives_up(self, message: Surrender) -> None:
        """From here on the agent answers nothing until it knows what it still holds."""
        if message.report is not None and self.agent.abort_on_deadlock:
            self._check_action(message.report)
        self.look()

    def _check_action(self, report: Deadlock) -> None:
        """An agent that is to abort rather than to surrender does so where its client was told."""
        taken = {
            lock_id
            for node, lock_id in self.told
            if node == report.node
            and related(lock_id, report.lock_id)
            and not self._granted(lock_id, without=(node,))
        }
        if report.action == "surrendered" and taken:
            raise Violation(f"{self.ref} surrenders what its client was told it has: {report}")


def _serves(records: Iterable[RequestRecord], mode: Mode) -> bool:
    """Whether one of the own requests on a node is granted that is good for a mode."""
    return any(record.state == "granted" and covers(record.mode, mode) for record in records)


def needed(require: Require, asked: Collection[str], alive: Collection[str]) -> int:
    """On how many of the nodes that are asked a lock is needed.

    Not `locks.core.agent.requests.needed`: this is to find out when that is wrong.
    """
    nodes = len(asked)
    if require.endswith("_alive"):
        nodes = max(1, len(set(asked) & set(alive)))
    if require.startswith("all"):
        return nodes
    return 1 if require == "any" else nodes // 2 + 1
