"""A simulated agent, with the locks of whose grants its client was notified.

A `Host` does not know the world around it: it puts messages into `out`. It checks that its agent
notifies the client of losses at once, only of real losses, and reports no other locks as held.
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
ClientEffect = AnswerWait | Lost | Notify | Ended  # effects of an agent, except messages


class Violation(AssertionError):
    """A check failed.

    Attributes:
        schedule: The choices of the world that lead there, if a search has found it.
    """

    schedule: Sequence[Any] = ()


class Had(NamedTuple):
    """A lock of whose grant a client was notified, with its requirements."""

    mode: Mode
    nodes: tuple[str, ...]
    require: Require


class Host:
    """An agent, and the notifications of its client.

    Args:
        machine: The agent.
        client: Carries out the effects of the machine other than messages.

    Attributes:
        out: Messages to send, each with sender and receiver.
        told: The locks of whose grants the client was notified, and on which it may rely, by node
            and id.
        had: All locks of whose grants it was notified, and that it has not released since.
        lost: The lost locks of these: the client must not rely on them until it is notified again.
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
        """The agent examines what it knows."""
        self.perform(self.agent.settle())

    def node_up(self, node: str) -> None:
        """The agent's node sees another one again."""
        self.perform(self.agent.node_up(node))

    def peer_up(self, node: str) -> None:
        """The agent's node sees one again that has no lock server."""
        self.perform(self.agent.peer_up(node))

    def peer_down(self, node: str) -> None:
        """The agent's node has lost a node without a lock server."""
        self.perform(self.agent.peer_down(node))

    def node_down(self, node: str) -> None:
        """The agent's node has lost another one, and the locks there.

        The client must first be notified of exactly the locks that it does not hold any more.
        """
        up = study(self.agent).alive
        rest = [lock_id for lock_id in self.had if lock_id not in self.lost]
        given_up = {lock_id: self._given_up(lock_id) for lock_id in rest}
        had = {lock_id for lock_id in rest if self._granted(lock_id, up)}
        sure = {lock_id for lock_id in had if self._granted(lock_id, up, given_up[lock_id])}
        for lock_id, (_, nodes, require) in self.had.items():
            if require.endswith("_alive"):  # a node that comes back does not count for this
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
        """Carry out the effects of the agent."""
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
        """The client was notified that it holds everything that it requested.

        Several tasks may wait with one agent, each for its own locks. Locks that other tasks still
        wait for do not count.
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
        """Whether the agent holds a lock, or its client was notified that it does."""
        return lock_id in self.had or self.agent.holds(lock_id)

    def let_go(self, lock_id: LockId) -> None:
        """The client gives up a lock."""
        self.had.pop(lock_id, None)
        self.lost.discard(lock_id)
        self.told = {where: m for where, m in self.told.items() if where[1] != lock_id}

    def withdrawn(self) -> None:
        """The client has abandoned a finished wait, so it does not rely on the locks of this wait."""
        for lock_id, had in list(self.had.items()):
            asked = study(self.agent).asked(lock_id)
            if asked is None:
                self.let_go(lock_id)
            elif not covers(asked.mode, had.mode):
                self.had[lock_id] = had._replace(mode=asked.mode)
        self.look()

    def look(self) -> None:
        """Update the locks on which the client may rely: those that its agent reports as held.

        These are the locks that are granted, as the agent knows, even without those that it is
        about to surrender.
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
        """The nodes that grant a lock of the client, as its agent knows, if they are enough.

        More nodes may have granted it since the client was notified. With `since`, these count,
        too.
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
        """Rely on grants that have come since, because the grants known to the client are lost."""
        asked = study(self.agent).asked(lock_id)
        assert asked is not None
        nodes = tuple(asked.records)
        if asked.require.endswith("_alive"):
            nodes = tuple(node for node in nodes if node in study(self.agent).alive)
        self.had[lock_id] = self.had[lock_id]._replace(nodes=nodes)

    def _given_up(self, lock_id: LockId) -> Collection[str]:
        """Where a lock is about to be surrendered, and may be already."""
        nodes = [
            node
            for node, ids in study(self.agent).giving_up.items()
            if any(each is None or related(each, lock_id) for each in ids)
        ]
        return self._given_up_with(lock_id, nodes)

    def _given_up_with(self, lock_id: LockId, nodes: Collection[str]) -> Collection[str]:
        """Where a lock is given up by surrenders on these nodes: on all, if it has a gate and needs one of them."""
        asked = study(self.agent).asked(lock_id)
        if asked is not None and study(self.agent).gate(lock_id) is not None:
            for node in nodes:
                if any(record.state != "spare" for record in asked.records.get(node, ())):
                    return asked.records
        return nodes

    def _gives_up(self, message: Surrender) -> None:
        """From here on the agent answers no wait until it knows which locks it still holds."""
        if message.report is not None and self.agent.abort_on_deadlock:
            self._check_action(message.report)
        self.look()

    def _check_action(self, report: Deadlock) -> None:
        """Check that an agent with `abort_on_deadlock` aborts if its client relies on the lock."""
        taken = {
            lock_id
            for node, lock_id in self.told
            if node == report.node
            and related(lock_id, report.lock_id)
            and not self._granted(lock_id, without=self._given_up_with(lock_id, (node,)))
        }
        if report.action == "surrendered" and taken:
            raise Violation(f"{self.ref} surrenders what its client was told it has: {report}")


def _serves(records: Iterable[RequestRecord], mode: Mode) -> bool:
    """Whether one of the own requests on a node is granted that is good for a mode."""
    return any(record.state == "granted" and covers(record.mode, mode) for record in records)


def needed(require: Require, asked: Collection[str], alive: Collection[str]) -> int:
    """On how many of the requested nodes a lock is needed.

    This does not use `locks.core.agent.requests.needed`, because it should detect errors there.
    """
    nodes = len(asked)
    if require.endswith("_alive"):
        nodes = max(1, len(set(asked) & set(alive)))
    if require.startswith("all"):
        return nodes
    return 1 if require == "any" else nodes // 2 + 1
