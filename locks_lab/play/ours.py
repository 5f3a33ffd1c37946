"""The board of a world of our machines, or of a rule that is wrong in one point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from locks.core.server.machine import ServerMachine
from locks.errors import assert_never
from locks.model import AgentId, Edge, RequestRecord, blocks, show
from locks_lab.cases.case import Case, move_of
from locks_lab.play.board import MoveGroup, Option, Said, Seen
from locks_lab.schedules.schedule import usual_rank
from locks_lab.stories.formatter import Formatter, name_of
from locks_lab.stories.story import tell_each
from locks_lab.stories.words import capital
from locks_lab.worlds.client import SERIALS, Fate, ScriptedClient
from locks_lab.worlds.events import Choice, Event
from locks_lab.worlds.host import Message
from locks_lab.worlds.network import Network, Party
from locks_lab.worlds.study import study
from locks_lab.worlds.world import Faults, World

__all__ = [
    "OurGame",
    "arrow",
    "broken_seen",
    "edge_seen",
    "number_of",
    "party_name",
    "steps_seen",
    "table_seen",
    "way_seen",
]

ANY_NUMBER = 1_000  # faults that may happen
RULES: dict[str, tuple[str, str]] = {
    "table": ("The lock table: one rule", "algorithm.md#the-lock-table-one-rule"),
    "circle": ("How the circle is found", "algorithm.md#how-the-circle-is-found"),
    "told": ("Which agent is told what", "algorithm.md#which-agent-is-told-what"),
    "yields": ("Yielding", "algorithm.md#yielding"),
    "tokens": ("Versions and fencing tokens", "algorithm.md#versions-and-fencing-tokens"),
    "nodes": ("Nodes that come and go", "algorithm_nodes.md"),
}
SILENT = {
    "Released": "you have let go of it",
    "Inquire": "does it still matter to you what I told you?",
    "Knowledge": "I have forgotten what you told me",
}


class OurGame:
    """A world of our machines.

    Args:
        case: The world; its moves are not played.
    """

    def __init__(self, case: Case) -> None:
        every = tuple(dict.fromkeys((*case.nodes, *case.homes)))
        mortal: tuple[tuple[int, Fate], ...] = tuple(
            (number, "ends") for number in range(1, len(case.scripts) + 1)
        )
        faults = Faults(mortal, ANY_NUMBER, ANY_NUMBER, every)
        self.world: World = case.plan._replace(faults=faults).world(trace=True)
        self._several = len(case.nodes) > 1
        self._reads = any(step.mode == "read" for steps in case.scripts for step in steps)
        self._begun = [client.ref for client in self.world.clients]
        self._turn = 0

    # --- Moves

    def options(self) -> Iterator[Option]:
        """See `Game`."""
        world = self.world
        for choice in world.choices():
            if choice[0] == "die":
                fates: tuple[tuple[str, Fate], ...] = (
                    (f"d{choice[1]}", "ends"),
                    (f"x{choice[1]}", "crashes"),
                )
                for move, fate in fates:
                    text = f"Client {choice[1]} {'dies' if fate == 'ends' else 'crashes'}."
                    yield Option(move, text, "fault", partial(self._die, choice[1], fate))
            else:
                move = str(move_of(choice, world.mortal))
                yield Option(move, *self._about(choice), partial(self._do, choice))

    def _do(self, choice: Choice) -> None:
        if choice[0] == "step":
            self._turn = choice[1]
        self.world.do(choice)

    def _die(self, number: int, fate: Fate) -> None:
        self.world.mortal[number] = fate
        self.world.do(("die", number))

    def _about(self, choice: Choice) -> tuple[str, MoveGroup]:
        """What a choice is, in a sentence, and its group."""
        match choice:
            case ("deliver", (sender, receiver)):
                (_, message), *_ = self.world.links[sender, receiver]
                return (
                    f"{arrow(sender, receiver)}: {self._label(sender, receiver, message)}",
                    "message",
                )
            case ("settle", number):
                return f"Client {number} examines what it knows.", "message"
            case ("step", number):
                step = self.world.clients[number - 1].next_step
                return f"Client {number}: {step or 'end, and let go of everything'}", "client"
            case ("time out", number):
                return f"Client {number} gives up waiting.", "client"
            case ("die", number):
                return f"Client {number} dies.", "fault"
            case ("notice", (me, other)):
                there = self.world.network.seen[me, other] == "healing"
                return (
                    f"{me} notices that {other} is {'there again' if there else 'gone'}.",
                    "message",
                )
            case ("connect", (one, other)):
                return f"{one} and {other} are connected again.", "message"
            case ("cut", (one, other)):
                return f"The connection of {one} and {other} breaks.", "fault"
            case ("mend", (one, other)):
                return f"{one} and {other} can be connected again.", "fault"
            case ("crash", node):
                return f"{node} crashes.", "fault"
            case ("restart", node):
                return f"{node} is started again.", "fault"
            case _:
                assert_never(choice)

    def usual(self) -> str | None:
        """See `Game`; the order is that of `locks_lab.schedules.schedule.finish`."""
        world = self.world
        needed = world.choices(False) or [
            choice for choice in world.fault_choices() if choice[0] in ("mend", "restart")
        ]
        if not needed:
            return None
        first = min(needed, key=lambda choice: usual_rank(world, choice, self._turn))
        return str(move_of(first, world.mortal))

    def check_end(self) -> None:
        """See `Game`."""
        self.world.check_end()

    # --- What there is to see

    def said(self) -> list[Said]:
        """See `Game`."""
        events = self.world.events or []
        rules: list[tuple[str, str] | tuple[()]] = [(), *map(_rule_of, events)]
        return [
            Said(tuple(lines), rule)
            for lines, rule in zip(tell_each(events, self._begun), rules, strict=True)
        ]

    def seen(self) -> Seen:
        """See `Game`."""
        world = self.world
        return {
            "nodes": [self._node(node) for node in world.names],
            "clients": [self._client(client) for client in world.clients],
            "flight": [
                way_seen(sender, receiver, [self._label(sender, receiver, m) for _, m in queue])
                for (sender, receiver), queue in world.links.items()
            ],
            "waits": self._edges(world.edges()),
            "broken": broken_seen(world.network),
        }

    def _node(self, node: str) -> Seen:
        server = self.world.servers.get(node)
        up = node not in self.world.network.crashed
        return {
            "name": node,
            "up": up,
            "table": [] if server is None else table_seen(server, name_of, number_of),
        }

    def _client(self, client: ScriptedClient) -> Seen:
        infos = [] if client.finished else client.agent.lock_info()
        known = () if client.finished else study(client.agent).knowledge
        words = self._words()
        others = [record for record in known if record.agent != client.ref]
        return {
            "number": client.number,
            "name": name_of(client.ref),
            "node": client.home,
            "state": _state(client),
            "steps": steps_seen(client.script, client.at),
            "first": client.first,
            "at": client.at,
            "holds": [f"{info.mode} {show(info.lock_id)}" for info in infos if info.held],
            "wants": [f"{info.mode} {show(info.lock_id)}" for info in infos if not info.held],
            "knows": [f"{capital(words.fact(record))}." for record in others],
            "sees": self._edges(_edges_among(known)),
        }

    def _edges(self, edges: Iterable[Edge]) -> list[Seen]:
        words = self._words()
        return [
            edge_seen(
                each.waiter.agent, each.holder.agent, show(each.waiter.lock_id), words.arrow(each)
            )
            for each in edges
        ]

    def _words(self) -> Formatter:
        """Words for one message, as if it were the first one."""
        return Formatter(several=self._several, reads=self._reads)

    def _label(self, sender: Party, receiver: Party, message: Message) -> str:
        """A message in words; it does not matter what was said before."""
        said = self._words().label(sender, receiver, message)
        return said or SILENT.get(type(message).__name__, type(message).__name__)


def party_name(party: Party) -> str:
    """A lock server by its node, an agent by its client."""
    return party if isinstance(party, str) else name_of(party)


def arrow(sender: Party, receiver: Party) -> str:
    """The way of a message, in words."""
    return f"{party_name(sender)} → {party_name(receiver)}"


def broken_seen(network: Network) -> list[str]:
    """The connections that are not up, as each of the nodes sees them."""
    return [
        f"{me} sees {other} as {seen}" for (me, other), seen in network.seen.items() if seen != "up"
    ]


def way_seen(sender: Party, receiver: Party, texts: Sequence[str]) -> Seen:
    """The messages on one way, the first to arrive first."""
    return {"from": party_name(sender), "to": party_name(receiver), "texts": list(texts)}


def steps_seen(steps: Iterable[Any], at: int) -> list[Seen]:
    """The steps of a script, and which ones are done."""
    return [{"text": str(step), "done": number < at} for number, step in enumerate(steps)]


def edge_seen(waiter: AgentId, holder: AgentId, lock: str, text: str) -> Seen:
    """An edge of the wait-for graph, by the numbers of the clients; `lock` is the id that is waited for."""
    return {"from": number_of(waiter), "to": number_of(holder), "lock": lock, "text": text}


def _edges_among(records: Sequence[RequestRecord]) -> list[Edge]:
    return [
        Edge(waiter, holder)
        for waiter in records
        for holder in records
        if waiter.node == holder.node and holder.agent != waiter.agent and blocks(holder, waiter)
    ]


def number_of(agent: AgentId) -> int:
    """The number of an agent's client."""
    return agent.serial % SERIALS


def table_seen(
    server: ServerMachine, name: Callable[[AgentId], str], number: Callable[[AgentId], int]
) -> list[Seen]:
    """A lock table: the queue of each id, those that have it first."""
    table = server.table
    return [
        {
            "id": show(lock_id),
            "queue": [
                {
                    "who": name(entry.requester.id),
                    "number": number(entry.requester.id),
                    "mode": entry.mode,
                    "state": "has it" if entry.granted else "in line" if entry.spare else "waits",
                    "token": entry.since if entry.granted else None,
                }
                for entry in sorted(
                    (each for each in table.view(lock_id) if each.slot.lock_id == lock_id),
                    key=lambda each: (not each.granted, each.place),
                )
            ],
        }
        for lock_id in sorted(table.ids(), key=show)
    ]


def _state(client: ScriptedClient) -> str:
    if client.failed:
        return "has ended: too few nodes are up"
    if client.finished:
        return "is done" if client.at >= len(client.script) else "is gone"
    return "waits" if client.waiting != "no" else "is ready"


def _rule_of(event: Event) -> tuple[str, str] | tuple[()]:
    """The part of the algorithm that decides what happens in an event."""
    kinds = {type(message).__name__ for *_, message in event.sent}
    match event.choice[0]:
        case "notice" | "connect" | "cut" | "mend" | "crash" | "restart":
            return RULES["nodes"]
        case "settle" if "Surrender" in kinds:
            return RULES["yields"]
        case "settle":
            return RULES["circle"] if "Knowledge" in kinds else ()
        case "deliver" if kinds & {"Resolved", "Surrendered"}:
            return RULES["yields"]
        case "deliver" if kinds & {"VersionRaised", "RaiseVersion"}:
            return RULES["tokens"]
        case "deliver" if isinstance(event.party, str) and kinds:
            told = {to for _, to, _ in event.sent}
            return RULES["told"] if len(told) > 1 else RULES["table"]
        case "deliver" | "step" | "time out" | "die":
            return ()
        case kind:
            assert_never(kind)
