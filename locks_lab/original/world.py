"""A world of lock servers, agents and clients of the original. The caller chooses the schedule.

It has the network, the scripts and the checks of `locks_lab`, and lock servers and agents of the
original. `World.choices` returns the events that are possible next, `World.do` runs one. The whole
mutable state is in `World.state`, which can be hashed, and set again.

Two orders seldom matter, so they are fixed by default: a lock server handles messages at once, and
an agent examines its knowledge right after a request of its client. (If it does so later, it may
miss that its client waits.) Nodes do not fail here.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any, Literal, NamedTuple

from locks.errors import InvalidOption, assert_never
from locks.model import RIVALS, AgentId, LockId, Mode, Require, related, show
from locks_lab.original.agent import Agent, Finding, Look, Sent
from locks_lab.original.messages import Message, Surrender
from locks_lab.original.queues import waits_in
from locks_lab.original.server import serve
from locks_lab.original.table import EMPTY, Table
from locks_lab.original.variants import ORIGINAL, Variant
from locks_lab.worlds.by_hand import ByHand
from locks_lab.worlds.client import SERIALS
from locks_lab.worlds.host import Violation, needed
from locks_lab.worlds.network import Link, Network, Party
from locks_lab.worlds.script import Script, Step, script

__all__ = ["Choice", "Client", "Event", "Told", "Wait", "World"]

Choice = tuple[Literal["step", "settle", "die"], int] | tuple[Literal["deliver"], Link]
Mail = tuple[Party, Party, Message]


class Told(NamedTuple):
    """A lock of whose grant a client was notified."""

    lock_id: LockId
    mode: Mode
    nodes: tuple[str, ...]
    require: Require

    def excludes(self, other: Told) -> bool:
        """Whether two clients must not have these locks at the same time."""
        if other.mode not in RIVALS[self.mode] or not related(self.lock_id, other.lock_id):
            return False
        shared = set(self.nodes) & set(other.nodes)
        in_shared = [
            max(0, needed(t.require, t.nodes, t.nodes) - len(set(t.nodes) - shared))
            for t in (self, other)
        ]
        return sum(in_shared) > len(shared)


class Client:
    """A client, and its agent. All of its mutable state is in `state`.

    Args:
        number: Its number, from 1.
        steps: Its script.
        home: Its node.
        variant: The rules.
        aborts: Whether its agents abort instead of surrendering a lock of whose grant it was
            notified.
    """

    def __init__(
        self, number: int, steps: Script, home: str, variant: Variant, aborts: bool
    ) -> None:
        for step in steps:
            if step.kind not in ("lock", "ask", "await", "again"):
                raise InvalidOption(
                    f"step {step} is nothing that the original knows: there is no unlock, no giving up, "
                    'and no token; use "write a", "read a", "ask write a", "await" and "again"',
                    step=step,
                )
        self.number = number
        self.script = steps
        self.home = home
        self.variant = variant
        self.aborts = aborts
        self.generation = -1
        self.first = 0
        self.agent: Agent
        self.begin()

    def begin(self) -> None:
        """Begin a transaction."""
        self.generation += 1
        created = (self.generation + 1) * SERIALS + self.number
        ref = AgentId(created, self.home, self.number + SERIALS * self.generation)
        self.agent = Agent(ref, self.variant, self.aborts)
        self.at = self.first
        self.waiting = False
        self.finished = self.died = False
        self.told: tuple[Told, ...] = ()

    @property
    def state(self) -> tuple[Any, ...]:
        """All that changes in it."""
        own = (
            *(self.generation, self.first, self.at),
            *(self.waiting, self.finished, self.died, self.told),
        )
        return (own, self.agent.me, self.agent.state)

    @state.setter
    def state(self, state: tuple[Any, ...]) -> None:
        own, me, inner = state
        self.generation, self.first, self.at, self.waiting, *others = own
        self.finished, self.died, self.told = others
        if self.agent.me != me:
            self.agent = Agent(me, self.variant, self.aborts)
        self.agent.state = inner

    @property
    def ready(self) -> bool:
        """Whether it can take its next step."""
        return not (self.waiting or self.finished)

    @property
    def next_step(self) -> Step | None:
        """Its next step; `None` if the next step is to end."""
        return self.script[self.at] if self.at < len(self.script) else None


class Event(NamedTuple):
    """An event, for traces.

    Attributes:
        choice: The choice.
        agent: The agent of the step or look, if it was one.
        step: The step; None if the client ends.
        message: The message that arrived.
        sent: The messages sent, in order.
        found: The circle that the agent found.
        answered: Whether its client was notified that it holds everything.
        again: The client's next agent, if it has begun again.
    """

    choice: Choice
    agent: AgentId | None
    step: Step | None = None
    message: Message | None = None
    sent: tuple[Mail, ...] = ()
    found: Finding | None = None
    answered: bool = False
    again: AgentId | None = None


class Wait(NamedTuple):
    """A waiting request, and an agent that holds the lock or is ahead in the queue."""

    agent: AgentId
    mode: Mode
    lock_id: LockId
    node: str
    other: AgentId


class World(ByHand):
    """Lock servers and clients of the original, and the messages in flight.

    Args:
        scripts: One for each client: as text, or steps.
        nodes: The nodes, each with a lock server.
        homes: The nodes of the clients, in turn; all on the first node by default.
        variant: The rules.
        delays: Messages to lock servers take time, too.
        late: Agents may examine their knowledge later than right after their clients' calls.
        trace: Keep each `Event` in `events`.
        abort_on_deadlock: Agents abort instead of surrendering locks of whose grants their clients
            were notified.

    Attributes:
        sent: The number of messages sent, by kind.
        surrenders: The number of surrenders sent.
    """

    def __init__(
        self,
        scripts: Iterable[str | Iterable[Step | tuple[Any, ...]]],
        nodes: Sequence[str] = ("n1",),
        homes: Sequence[str] = (),
        variant: Variant = ORIGINAL,
        delays: bool = False,
        late: bool = False,
        trace: bool = False,
        abort_on_deadlock: bool = False,
    ) -> None:
        homes = homes or nodes[:1]
        for home in homes:
            if home not in nodes:
                raise InvalidOption(f"client node {home!r}: clients of the original live on nodes")
        self.network = Network(nodes)
        self.variant = variant
        self.delays = delays
        self.late = late
        self.tables: dict[str, Table] = dict.fromkeys(nodes, EMPTY)
        self.unsettled: dict[int, None] = {}
        self.sent: Counter[str] = Counter()
        self.events: list[Event] | None = [] if trace else None
        self.clients = [
            Client(n, script(steps), homes[(n - 1) % len(homes)], variant, abort_on_deadlock)
            for n, steps in enumerate(scripts, 1)
        ]
        self._mail: list[Mail] = []

    @property
    def surrenders(self) -> int:
        """How many surrenders were sent."""
        return self.sent["Surrender"]

    @property
    def state(self) -> tuple[Any, ...]:
        """The whole mutable state, except for counters."""
        links = self.network.links
        queues = sorted(
            ((link, tuple(m for *_, m in queue)) for link, queue in links.items()),
            key=lambda each: [(isinstance(party, str), party) for party in each[0]],
        )
        return (
            tuple(self.tables.values()),
            tuple(client.state for client in self.clients),
            tuple(queues),
        )

    @state.setter
    def state(self, state: tuple[Any, ...]) -> None:
        tables, clients, queues = state
        self.tables = dict(zip(self.tables, tables, strict=True))
        for client, each in zip(self.clients, clients, strict=True):
            client.state = each
        self.network.links = {
            link: deque((number, m) for number, m in enumerate(queue)) for link, queue in queues
        }
        self.unsettled = dict.fromkeys(c.number for c in self.clients if self._is_unsettled(c))

    @staticmethod
    def _is_unsettled(client: Client) -> bool:
        return client.agent.unseen and not client.finished

    # --- Possible events, and running them

    def choices(self, faults: bool = True) -> list[Choice]:
        """All events that are possible next; there are no faults, whatever `faults` is."""
        found: list[Choice] = [("deliver", link) for link in self.network.links]
        found += [("settle", number) for number in self.unsettled]
        found += [("step", client.number) for client in self.clients if client.ready]
        return found

    def do(self, choice: Choice) -> None:
        """Make one of the choices happen, and check all that must be true.

        `("die", number)` is no choice, but can happen whenever the client has not finished.
        """
        match choice:
            case ("deliver", link):
                self._deliver(link)
            case ("step", number):
                self._step(self.clients[number - 1])
            case ("die", number):
                self._die(self.clients[number - 1])
            case ("settle", number):
                client = self.clients[number - 1]
                self._after(choice, client, client.agent.me, None, client.agent.look())
            case _:
                assert_never(choice)

    def _deliver(self, link: Link) -> None:
        message = self.network.take(link)
        receiver = link[1]
        agent = None
        if isinstance(receiver, str):
            self._serve(receiver, message)
        else:
            client = self._client_of(receiver)
            agent = receiver
            client.agent.receive(message)
            if self._is_unsettled(client):
                self.unsettled[client.number] = None
        self._note(Event(("deliver", link), agent, message=message))

    def _client_of(self, agent: AgentId) -> Client:
        return self.clients[agent.serial % SERIALS - 1]

    def _serve(self, node: str, message: Any) -> None:
        self.tables[node], told = serve(node, self.tables[node], message, self.variant)
        for agent, info in told:
            self._send(node, agent, info)

    def _step(self, client: Client) -> None:
        agent, step = client.agent, client.next_step
        choice: Choice = ("step", client.number)
        if step is None or step.kind == "again":
            self._send_all(agent.me, agent.end())
            self.network.drop(agent.me)
            self.unsettled.pop(client.number, None)
            client.told = ()
            client.finished = step is None
            if step is not None:
                client.first = client.at + 1
                client.begin()
            again = client.agent.me if step is not None else None
            self._note(Event(choice, agent.me, step, again=again))
            return
        client.at += 1
        client.waiting = step.kind != "ask"
        if step.kind == "await":
            look = agent.wait()
        else:
            nodes = step.nodes or (client.home,)
            wait = step.kind == "lock"
            self._send_all(agent.me, agent.ask(step.lock_id, step.mode, nodes, step.require, wait))
            look = Look(False, [])
        if not self.late and agent.unseen:
            more = agent.look()
            look = Look(look.answered or more.answered, [*look.sent, *more.sent], more.found)
        self._after(choice, client, agent.me, step, look)

    def _die(self, client: Client) -> None:
        """A client dies: its agent ends, and lock servers notice."""
        agent = client.agent
        client.finished = client.died = True
        client.told = ()
        self._send_all(agent.me, agent.end())
        self.network.drop(agent.me)
        self.unsettled.pop(client.number, None)
        self._note(Event(("die", client.number), agent.me))

    def _after(
        self, choice: Choice, client: Client, me: AgentId, step: Step | None, look: Look
    ) -> None:
        """An agent has looked."""
        self.unsettled.pop(client.number, None)
        if self._is_unsettled(client):
            self.unsettled[client.number] = None
        found, again = look.found, None
        if found is not None and found.place.agent == me:
            self._gives_up(client, [m for _, m in look.sent if isinstance(m, Surrender)])
        if found is not None and found.aborts:
            self._send_all(me, client.agent.end())
            self.network.drop(me)
            client.begin()
            self.unsettled.pop(client.number, None)
            again = client.agent.me
        self._send_all(me, look.sent)
        if look.answered:
            self._answered(client)
        self._note(Event(choice, me, step, None, (), found, look.answered, again))
        if look.answered:
            self._check_exclusion()

    def _gives_up(self, client: Client, surrenders: Iterable[Surrender]) -> None:
        """The client counts as not notified of these locks any more, but it is not informed."""
        ids = [surrender.lock_id for surrender in surrenders]
        client.told = tuple(t for t in client.told if not any(related(t.lock_id, i) for i in ids))

    def _answered(self, client: Client) -> None:
        """The client is notified that it holds everything."""
        client.waiting = False
        client.told = tuple(
            dict.fromkeys(Told(r.lock_id, r.mode, r.nodes, r.require) for r in client.agent.served)
        )

    def _check_exclusion(self) -> None:
        """Check that no two clients were notified of conflicting locks."""
        for one, other in combinations(self.clients, 2):
            for mine in one.told:
                for theirs in other.told:
                    if mine.excludes(theirs):
                        has = [
                            f"client {c.number} has {t.mode} {show(t.lock_id)}"
                            for c, t in ((one, mine), (other, theirs))
                        ]
                        raise Violation(f"broken exclusion: {' and '.join(has)}; both were told so")

    def _send_all(self, sender: AgentId, sent: Iterable[Sent]) -> None:
        for receiver, message in sent:
            self._send(sender, receiver, message)

    def _send(self, sender: Party, receiver: Party, message: Message) -> None:
        self.sent[type(message).__name__] += 1
        if self.events is not None:
            self._mail.append((sender, receiver, message))
        if isinstance(receiver, str) and not self.delays:
            self._serve(receiver, message)
        elif isinstance(receiver, str) or self._lives(receiver):
            self.network.send(sender, receiver, message)

    def _lives(self, agent: AgentId) -> bool:
        client = self._client_of(agent)
        return not client.finished and client.agent.me == agent

    def _note(self, event: Event) -> None:
        if self.events is not None:
            self.events.append(event._replace(sent=tuple(self._mail)))
            self._mail.clear()

    # --- Checks

    def waits(self) -> list[Wait]:
        """Who waits for whom in the lock tables: an entry waits for all groups ahead of it."""
        return [
            Wait(entry.agent, mode, row.lock_id, node, other)
            for node, table in self.tables.items()
            for row in table.rows
            for mode, entry, other in waits_in(row.queue)
            if entry.direct
        ]

    def check_quiet(self) -> None:
        """Check that no client waits, when nothing needs to happen any more.

        Raises:
            Violation: A client waits; the message tells for what.
        """
        waiting = [client for client in self.clients if not client.finished]
        if waiting:
            numbers = [client.number for client in waiting]
            reasons = [line for client in waiting for line in self._reasons(client)]
            raise Violation("\n".join([f"stuck: clients {numbers}", *dict.fromkeys(reasons)]))

    def _reasons(self, client: Client) -> list[str]:
        """The reasons why a client waits."""
        name = f"client {client.number}"
        if not client.agent.pending:
            return [f"  {name} waits, though its agent has all: nobody has told it"]
        found = []
        waits = self.waits()
        for request in client.agent.pending:
            for node in request.nodes:
                wish = f"{request.mode} {show(request.lock_id)} on {node}"
                row = self.tables[node].row(request.lock_id)
                queue = row.queue if row is not None else ()
                if not any(g.serves(client.agent.me, request.mode) for g in queue):
                    found.append(f"  {name} waits for {wish}; the lock server does not know")
                found += [
                    f"  {name} waits for {wish}, behind client {wait.other.serial % SERIALS}"
                    for wait in waits
                    if (wait.agent, wait.lock_id, wait.node)
                    == (client.agent.me, request.lock_id, node)
                ]
        return found
