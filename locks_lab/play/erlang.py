"""The board of a world of the Erlang original's model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, cast

from locks.errors import assert_never
from locks.model import AgentId, LockId, Mode, show
from locks_lab.cases.case import move_of
from locks_lab.original.agent import Known
from locks_lab.original.messages import Ask, End, Info, Message, Surrender, Surrendered
from locks_lab.original.queues import waits_in
from locks_lab.original.story import Narrator, tell_each, usual
from locks_lab.original.table import Row
from locks_lab.original.world import Choice, Client, World
from locks_lab.play.board import MoveGroup, Option, Said, Seen
from locks_lab.play.ours import arrow, edge_seen, steps_seen, way_seen
from locks_lab.stories.formatter import name_of
from locks_lab.stories.words import capital
from locks_lab.worlds.client import SERIALS

__all__ = ["OriginalGame"]


class OriginalGame:
    """A world of the model of the original.

    Args:
        world: The world, before anything has happened, made with `trace=True`.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._words = Narrator(world)
        self._turn = 0

    def options(self) -> Iterator[Option]:
        """See `Game`."""
        for choice in self.world.choices():
            yield Option(_text(choice), *self._about(choice), partial(self._do, choice))

    def _do(self, choice: Choice) -> None:
        if choice[0] == "step":
            self._turn = choice[1]
        self.world.do(choice)

    def _about(self, choice: Choice) -> tuple[str, MoveGroup]:
        match choice:
            case ("deliver", (sender, receiver)):
                (_, message), *_ = self.world.network.links[sender, receiver]
                return f"{arrow(sender, receiver)}: {self._label(message)}", "message"
            case ("settle", number):
                return f"Client {number} examines what it knows.", "message"
            case ("step", number):
                step = self.world.clients[number - 1].next_step
                return f"Client {number}: {step or 'end, and let go of everything'}", "client"
            case ("die", number):
                return f"Client {number} dies.", "client"
            case _:
                assert_never(choice)

    def usual(self) -> str | None:
        """See `Game`."""
        choices = self.world.choices()
        return _text(usual(self.world, choices, self._turn)) if choices else None

    def check_end(self) -> None:
        """See `Game`."""
        self.world.check_quiet()

    def said(self) -> list[Said]:
        """See `Game`."""
        rule = ("The original's rules", "differences.md#how-the-original-works")
        found = enumerate(tell_each(self.world))
        return [Said(tuple(lines), rule if number and lines else ()) for number, lines in found]

    def seen(self) -> Seen:
        """See `Game`."""
        world = self.world
        return {
            "nodes": [
                {"name": node, "up": True, "table": [self._row(row) for row in table.rows]}
                for node, table in world.tables.items()
            ],
            "clients": [self._client(client) for client in world.clients],
            "flight": [
                way_seen(sender, receiver, [self._label(message) for *_, message in queue])
                for (sender, receiver), queue in world.network.links.items()
            ],
            "waits": [
                _wait(wait.agent, wait.mode, wait.lock_id, wait.other) for wait in world.waits()
            ],
            "broken": [],
        }

    def _row(self, row: Row) -> Seen:
        return {
            "id": show(row.lock_id),
            "queue": [
                {
                    "who": name_of(entry.agent) + ("" if entry.direct else " (a copy)"),
                    "number": entry.agent.serial % SERIALS,
                    "mode": group.mode,
                    "state": "has it" if _holds(row, place) else "waits",
                    "token": None,
                }
                for place, group in enumerate(row.queue)
                for entry in group.entries
            ],
        }

    def _client(self, client: Client) -> Seen:
        agent = client.agent
        pending, known = ((), ()) if client.finished else (agent.pending, agent.known)
        return {
            "number": client.number,
            "name": name_of(agent.me),
            "node": client.home,
            "state": "is done" if client.finished else "waits" if client.waiting else "is ready",
            "steps": steps_seen(client.script, client.at),
            "first": client.first,
            "at": client.at,
            "holds": [f"{told.mode} {show(told.lock_id)}" for told in client.told],
            "wants": [f"{request.mode} {show(request.lock_id)}" for request in pending],
            "knows": [f"{capital(self._words.queue(_info(each)))}." for each in known],
            "sees": [
                _wait(entry.agent, mode, each.key[0], other)
                for each in known
                for mode, entry, other in waits_in(each.queue)
            ],
        }

    def _label(self, message: Message) -> str:
        match message:
            case Ask():
                return f"wants to {message.mode} {show(message.lock_id)}"
            case Surrender():
                return f"surrenders {show(message.lock_id)}"
            case End():
                return "lets go of everything"
            case Info():
                return self._words.queue(message)
            case Surrendered():
                return f"{name_of(message.agent)} surrenders {self._words.lock(message.key)}"
            case _:
                assert_never(message)


def _info(known: Known) -> Info:
    lock_id, node = known.key
    return Info(node, Row(lock_id, known.version, known.queue))


def _wait(agent: AgentId, mode: Mode, lock_id: LockId, other: AgentId) -> Seen:
    text = f"{name_of(agent)} waits to {mode} {show(lock_id)}, behind {name_of(other)}"
    return edge_seen(agent, other, show(lock_id), text)


def _holds(row: Row, place: int) -> bool:
    """Whether a group of a queue has the lock; merged writers stand first, and none of them has it."""
    group = row.queue[place]
    return place == 0 and (group.mode == "read" or len(group.entries) == 1)


def _text(choice: Choice) -> str:
    return str(move_of(cast(Any, choice), {}))
