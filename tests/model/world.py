"""A small world of lock servers and clients with agents, under a schedule chosen from outside.

It runs the very machines that the actors run. Messages between two parties keep their order; all
else may happen in any order: `World.choices` says what can happen next, `World.do` makes it happen,
`World.run` chooses at random. An agent may look at what it knows (`settle`) at any time, for
messages can be on their way for as long as they like.

After each event the world checks what must always be true (`World.check_*`); a `Violation` says
what was not.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any, Literal

from locks.agent_machine import AgentMachine
from locks.errors import AgentEnded, DeadlockAborted
from locks.lock_tree import Entry
from locks.messages import (
    AgentMessage,
    Answer,
    Ended,
    Release,
    Remove,
    Resolved,
    Surrender,
    Surrendered,
    ToAgent,
    Told,
    ToServer,
)
from locks.model import AgentId, Deadlock, Edge, LockId, LockInfo, Mode, blocks, related, show
from locks.server_machine import ServerMachine

Step = tuple[Any, ...]
"""What a client does next.

    ("lock", id, mode)   asks, and waits until it has all that it asked for
    ("try", id, mode)    the same, but may give up waiting at any moment
    ("ask", id, mode)    asks and carries on
    ("await",)           waits until it has all that it asked for
    ("unlock", id)       releases, or cancels
    ("surrender", id)    gives a lock up on its own wish, if it has it, and waits to get it again
    ("again",)           ends the transaction and begins another one

Whatever it still has is released when its script is at its end. An id may be followed by nodes
and a requirement: ("lock", id, mode, ("n1", "n2"), "majority").
"""

Choice = tuple[str, Any]
Policy = Literal["any", "skewed", "oldest", "quiet"]
Fate = Literal["ends", "crashes"]
Party = str | AgentId
Mail = tuple[Party, Party, Any]

SERIALS = 1000  # a client's agents have serial numbers that are equal modulo this


class Violation(AssertionError):
    """Something that must always be true is not."""


class Client:
    """A client and its agent: carries out a script, begins again after an abort, and ends.

    It knows nothing of the world around it. What its agent sends is in `out`.

    Args:
        number: Its number, from 1. Its first agent is older than those of larger numbers.
        script: What it does.
        nodes: The nodes that are up.
        clock: Says the creation time of its next agent; without it, agents of the same generation
            are in the order of their clients.
        options: For its agents.
    """

    def __init__(
        self,
        number: int,
        script: list[Step],
        nodes: Iterable[str],
        clock: Callable[[], int] | None = None,
        **options: Any,
    ) -> None:
        self.number = number
        self.script = script
        self.nodes = tuple(nodes)
        self.clock = clock
        self.options = options
        self.generation = -1
        self.aborts = 0
        self.reports: list[Deadlock] = []
        self.out: list[Mail] = []
        self.finished = False
        self.first = 0
        self._begin()

    def _begin(self) -> None:
        """Begin a transaction: the one at `first` in the script."""
        self.generation += 1
        created = self.clock() if self.clock else (self.generation + 1) * SERIALS + self.number
        self.ref = AgentId(created, "n1", self.number + SERIALS * self.generation)
        self.agent = AgentMachine(self.ref, f"client-{self.number}", self.nodes, **self.options)
        self.at = self.first
        self.waiting: Literal["no", "yes", "for a while"] = "no"
        self.told: dict[tuple[str, LockId], Mode] = {}

    # --- What can happen to it

    @property
    def ready(self) -> bool:
        """Whether it can take its next step."""
        return self.waiting == "no" and not self.finished

    def step(self) -> None:
        """Take the next step."""
        if self.at == len(self.script):
            self._end()
            return
        kind, *what = self.script[self.at]
        self.at += 1
        getattr(self, "_" + kind)(*what)

    def time_out(self) -> None:
        """Give up waiting."""
        self.waiting = "no"
        self._perform(self.agent.abandon(self.number))

    def receive(self, message: AgentMessage) -> None:
        """Its agent takes in a message."""
        self._perform(self.agent.receive(message))

    def settle(self) -> None:
        """Its agent looks at what it knows."""
        self._perform(self.agent.settle())

    def die(self, fate: Fate) -> None:
        """It ends at once, or its agent crashes; then lock servers notice, and nobody else."""
        self.told.clear()
        if fate == "ends":
            self._perform(self.agent.end(AgentEnded("died", agent=self.ref)))
        else:
            self.out += [(self.ref, node, Remove(self.ref)) for node in self.nodes]
        self.finished = True

    # --- Steps

    def _lock(self, lock_id: LockId, mode: Mode, *where: Any) -> None:
        nodes, require = where or (self.nodes[:1], "all")
        self.waiting = "yes"
        self._perform(self.agent.ask(lock_id, mode, nodes, require, self.number))

    def _try(self, lock_id: LockId, mode: Mode, *where: Any) -> None:
        nodes, require = where or (self.nodes[:1], "all")
        self.waiting = "for a while"
        self._perform(self.agent.ask(lock_id, mode, nodes, require, self.number))

    def _ask(self, lock_id: LockId, mode: Mode, *where: Any) -> None:
        nodes, require = where or (self.nodes[:1], "all")
        self._perform(self.agent.ask(lock_id, mode, nodes, require))

    def _await(self) -> None:
        self.waiting = "yes"
        self._perform(self.agent.await_all(self.number))

    def _unlock(self, lock_id: LockId) -> None:
        if any(info.lock_id == lock_id for info in self.agent.lock_info()):
            self.told = {where: m for where, m in self.told.items() if where[1] != lock_id}
            self._perform(self.agent.unlock(lock_id))

    def _surrender(self, lock_id: LockId) -> None:
        for info in self.agent.lock_info():
            if info.lock_id == lock_id and set(info.granted) == set(info.nodes):
                self._perform(self.agent.surrender(lock_id, self.ref, info.nodes))
                self._await()

    def _again(self) -> None:
        self._end()
        self.finished = False
        self.first = self.at
        self._begin()

    def _end(self) -> None:
        self.told.clear()
        self.finished = True
        self.reports += self.agent.deadlocks
        self._perform(self.agent.end())

    # --- What its agent wants done

    def _perform(self, effects: list[Any]) -> None:
        sender = self.ref
        for effect in effects:
            if isinstance(effect, ToServer):
                if isinstance(effect.message, Surrender):
                    self._gives_up(effect.node, effect.message)
                self.out.append((sender, effect.node, effect.message))
            elif isinstance(effect, ToAgent):
                self.out.append((sender, effect.agent, effect.message))
            elif isinstance(effect, Answer):
                if self.waiting == "no" or effect.wait != self.number:
                    raise Violation(f"client {self.number} is answered, and does not wait")
                self.waiting = "no"
                if not isinstance(effect.result, Exception):
                    self._has_all(self.agent.lock_info())
            elif isinstance(effect, Ended) and isinstance(effect.reason, DeadlockAborted):
                self.reports += self.agent.deadlocks
                self.aborts += 1
                self._begin()
            elif not isinstance(effect, Ended):
                raise Violation(f"nobody asked for {effect}")

    def _gives_up(self, node: str, message: Surrender) -> None:
        """From here on its agent answers nothing until it knows what it still holds."""
        if message.report is not None and message.report.action == "aborted":
            self.told.clear()
        for where in list(self.told):
            if where[0] == node and related(where[1], message.lock_id):
                del self.told[where]

    def _has_all(self, infos: list[LockInfo]) -> None:
        for info in infos:
            if not info.held:
                raise Violation(f"client {self.number} is told that it has {info}")
        self.told = {(node, info.lock_id): info.mode for info in infos for node in info.granted}


class World:
    """Lock servers, clients, and messages on their way.

    Args:
        scripts: One for each client.
        nodes: The nodes, each with a lock server.
        mortal: Clients, by number, that may die at any moment, and how.
        trace: Keep a line for each event in `lines`.
        options: For the agents.

    Attributes:
        sent: Number of messages sent, by kind.
        carried_out: The deadlocks for which lock servers carried something out.
        superfluous: Those of them that were no deadlocks (any more) at that moment.
        outdated: Those that were, but with an edge in their report that was not there (any more).
    """

    def __init__(
        self,
        scripts: Iterable[list[Step]],
        nodes: tuple[str, ...] = ("n1",),
        mortal: dict[int, Fate] | None = None,
        trace: bool = False,
        **options: Any,
    ) -> None:
        self.now = 0
        self.servers = {node: ServerMachine(node) for node in nodes}
        self.channels: dict[tuple[Party, Party], deque[tuple[int, Any]]] = {}
        self.pace: dict[tuple[Party, Party], float] = {}
        self.unsettled: dict[int, None] = {}
        self.mortal = dict(mortal or {})
        self.sent: Counter[str] = Counter()
        self.carried_out: list[Deadlock] = []
        self.superfluous: list[Deadlock] = []
        self.outdated: list[Deadlock] = []
        self.before_surrender: Counter[str] | None = None  # `sent` when the first one was sent
        self.lines: list[str] | None = [] if trace else None
        self.clients = [
            Client(number, script, nodes, self._tick, **options)
            for number, script in enumerate(scripts, 1)
        ]

    def _tick(self) -> int:
        self.now += 1
        return self.now

    @property
    def aborts(self) -> int:
        """How often a client was aborted."""
        return sum(client.aborts for client in self.clients)

    # --- What can happen, and making it happen

    def choices(self) -> list[Choice]:
        """All that can happen next; nothing needs to."""
        found: list[Choice] = [("deliver", link) for link in self.channels]
        found += [("settle", number) for number in self.unsettled]
        for client in self.clients:
            if client.ready:
                found.append(("step", client.number))
            elif client.waiting == "for a while":
                found.append(("time out", client.number))
            if client.number in self.mortal:
                found.append(("die", client.number))
        return found

    def do(self, choice: Choice) -> None:
        """Make one of the choices happen, and check all that must be true."""
        kind, what = choice
        if kind == "deliver":
            self._deliver(*what)
            return
        client = self.clients[what - 1]
        if self.lines is not None:
            self._note(client, kind)
        if kind == "step":
            client.step()
        elif kind == "time out":
            client.time_out()
        elif kind == "settle":
            del self.unsettled[what]
            client.settle()
        else:
            client.die(self.mortal.pop(what))
        self._after(client)

    def _deliver(self, sender: Party, receiver: Party) -> None:
        channel = self.channels[sender, receiver]
        _, message = channel.popleft()
        if not channel:
            del self.channels[sender, receiver]
        if self.lines is not None:
            self.lines.append(f"{name(sender)} -> {name(receiver)}: {brief(message)}")
        if isinstance(receiver, str):
            self._serve(self.servers[receiver], message)
            return
        client = self.clients[receiver.serial % SERIALS - 1]
        if client.ref == receiver and not client.finished:
            client.receive(message)
            self.unsettled[client.number] = None
            self._after(client)

    def _after(self, client: Client) -> None:
        """Something has happened to a client."""
        for mail in client.out:
            if self.before_surrender is None and isinstance(mail[2], Surrender):
                self.before_surrender = self.sent.copy()
            self._send(*mail)
        client.out.clear()
        if client.finished:
            self.unsettled.pop(client.number, None)
            self.mortal.pop(client.number, None)
        for node in self.servers:
            self.check_told(client, node)
        self.check_exclusion(client)

    def _serve(self, server: ServerMachine, message: Any) -> None:
        """A lock server takes in a message."""
        before = granted(server)
        true = None
        if isinstance(message, Surrender) and message.report is not None:
            edges = self.edges()
            true = message.report if self.is_deadlock(message, edges) else None
        effects = server.handle(message)
        self.check_kept(server, before, message, effects)
        for effect in effects:
            assert isinstance(effect, ToAgent)
            self._send(server.node, effect.agent, effect.message)
        if isinstance(message, Surrender) and message.report is not None:
            answer = effects[-1].message
            if answer.done:
                self.carried_out.append(message.report)
                if true is None:
                    self.superfluous.append(message.report)
                elif {keys(e) for e in message.report.cycle} - {keys(e) for e in edges}:
                    self.outdated.append(message.report)
        for client in self.clients:
            self.check_told(client, server.node)

    def _send(self, sender: Party, receiver: Party, message: Any) -> None:
        self.sent[type(message).__name__] += 1
        self.channels.setdefault((sender, receiver), deque()).append((self.sent.total(), message))

    # --- Schedules

    def pick(self, rng: random.Random, policy: Policy, choices: list[Choice]) -> Choice:
        """One of the choices, by a policy.

        `any`: any. `skewed`: some links are many times as slow as others. `oldest`: messages in
        the order in which they were sent, as a rule. `quiet`: clients take their next steps only
        when nothing else can happen, and agents look at what they know when all has arrived.
        """
        if policy == "skewed":
            weights = [self._weight(rng, choice) for choice in choices]
            return rng.choices(choices, weights)[0]
        if policy == "quiet":
            by_kind = {kind: [c for c in choices if c[0] == kind] for kind in ("deliver", "settle")}
            choices = by_kind["deliver"] or by_kind["settle"] or choices
        elif policy == "oldest" and self.channels and rng.random() < 0.9:
            return ("deliver", min(self.channels, key=lambda link: self.channels[link][0][0]))
        return rng.choice(choices)

    def _weight(self, rng: random.Random, choice: Choice) -> float:
        if choice[0] != "deliver":
            return 0.2
        if choice[1] not in self.pace:
            self.pace[choice[1]] = 10 ** rng.uniform(-2.5, 0)
        return self.pace[choice[1]]

    def calm(self, rng: random.Random, quiet: bool = False) -> None:
        """Carry on until only clients can do anything; `quiet` is the policy of that name."""
        while choices := [c for c in self.choices() if c[0] in ("deliver", "settle")]:
            self.do(self.pick(rng, "quiet" if quiet else "any", choices))

    def deliver(self, *parties: int | str) -> None:
        """Deliver messages, the oldest first, as long as there are any to these parties.

        Without any parties, to all; agents look at what they know when all has arrived. Parties
        are nodes, or numbers of clients.
        """

        def wanted(receiver: Party) -> bool:
            number = receiver if isinstance(receiver, str) else receiver.serial % SERIALS
            return not parties or number in parties

        while True:
            links = [link for link in self.channels if wanted(link[1])]
            settling = [n for n in self.unsettled if not parties or n in parties]
            if links:
                self.do(("deliver", min(links, key=lambda link: self.channels[link][0][0])))
            elif settling:
                self.do(("settle", settling[0]))
            else:
                return

    def deliver_one(self, sender: int | str, receiver: int | str) -> None:
        """Deliver the next message of one party to another; parties as for `deliver`."""
        names = [str(sender), str(receiver)]
        (link,) = [link for link in self.channels if [name(party) for party in link] == names]
        self.do(("deliver", link))

    def deliver_between(self, sender: int | str, receiver: int | str) -> None:
        """Deliver all that is on its way from one party to another; parties as for `deliver`."""
        names = [str(sender), str(receiver)]
        while any([name(party) for party in link] == names for link in self.channels):
            self.deliver_one(sender, receiver)

    def step(self, *numbers: int) -> None:
        """Let clients take their next steps."""
        for number in numbers:
            self.do(("step", number))

    def run(self, rng: random.Random, policy: Policy = "any", limit: int = 200_000) -> None:
        """Carry on until nothing can happen any more; then all must be finished and clean."""
        for _ in range(limit):
            choices = self.choices()
            if not choices:
                break
            self.do(self.pick(rng, policy, choices))
        else:
            raise Violation(f"no end after {limit} events")
        self.check_end()

    # --- What must always be true

    def check_told(self, client: Client, node: str) -> None:
        """Whatever a client was told that it holds is granted to it in the lock table."""
        for (where, lock_id), mode in client.told.items():
            if where == node:
                own = self.servers[node].table.own(client.ref, lock_id)
                if not any(e.granted and (e.write or mode == "read") for e in own):
                    raise Violation(
                        f"client {client.number} was told that it has {mode} {show(lock_id)} "
                        f"on {node}; the lock table does not know"
                    )

    def check_exclusion(self, client: Client) -> None:
        """No two clients were told that they hold conflicting locks."""
        for other in self.clients:
            if other is not client:
                check_exclusion(client, other)

    def check_kept(
        self,
        server: ServerMachine,
        before: dict[tuple[int, int], Entry],
        message: Any,
        effects: list[Any],
    ) -> None:
        """Grants end by release, removal or surrender alone, and deadlocks are reported to all."""
        after = granted(server)
        for key, entry in before.items():
            if key not in after:
                lock_id = entry.slot.lock_id
                fine = getattr(message, "agent", None) == entry.asker.id and (
                    isinstance(message, Remove)
                    or (isinstance(message, Release) and message.lock_id == lock_id)
                    or (isinstance(message, Surrender) and related(message.lock_id, lock_id))
                    or (
                        isinstance(message, Surrender)
                        and message.report is not None
                        and message.report.action == "aborted"
                    )
                )
                if not fine:
                    raise Violation(f"{message} took {show(lock_id)} from {entry.asker.id}")
        if isinstance(message, Surrender) and message.report is not None:
            answers = [e.message for e in effects if isinstance(e.message, Surrendered)]
            if answers != effects[-1:] and [a.message for a in answers] != [message]:
                raise Violation(f"{message} is answered by {answers}")
            reported = [
                e.agent
                for e in effects
                if isinstance(e.message, Resolved) and e.message.report == message.report
            ]
            if reported != (list(message.report.agents) if answers[0].done else []):
                raise Violation(f"{message} is reported to {reported}")

    def check_end(self) -> None:
        """When nothing can happen any more, all have finished and nothing is left."""
        stuck = [client for client in self.clients if not client.finished]
        if stuck:
            waits = "\n".join(f"  {edge}" for edge in self.edges())
            raise Violation(f"stuck: clients {[c.number for c in stuck]}\n{waits}")
        for server in self.servers.values():
            check_clean(server)

    # --- What is true

    def edges(self) -> list[Edge]:
        """The real wait-for graph, as the lock tables have it."""
        return [edge for server in self.servers.values() for edge in edges_of(server)]

    def is_deadlock(self, message: Surrender, edges: list[Edge]) -> bool:
        """Whether the edge for which a surrender is made really lies in a deadlock now."""
        assert message.report is not None
        assert message.waiter is not None
        assert message.holder is not None
        node = message.report.node
        named = ((node, message.waiter[0]), (node, message.holder[0]))
        bound = self.bound(edges)
        follow: dict[AgentId, set[AgentId]] = {}
        start = None
        for edge in edges:
            w, h = edge.waiter.agent, edge.holder.agent
            if w in bound and h in bound:
                follow.setdefault(w, set()).add(h)
                if keys(edge) == named:
                    start = (h, w)
        return start is not None and start[1] in reached(start[0], follow)

    def bound(self, edges: list[Edge]) -> set[AgentId]:
        """The agents that can't get what they want unless somebody gives way.

        A wish for one lock id on several nodes may need only some of them.
        """
        blockers: dict[tuple[AgentId, str, LockId], set[AgentId]] = {}
        for w, h in edges:
            blockers.setdefault((w.agent, w.node, w.lock_id), set()).add(h.agent)
        wishes = {
            client.ref: [] if client.finished else client.agent.lock_info()
            for client in self.clients
        }
        bound = {w.agent for w, _ in edges if w.agent in wishes}
        while True:
            free = {
                agent
                for agent in bound
                if all(
                    sum(not blockers.get((agent, n, i.lock_id), set()) & bound for n in i.nodes)
                    >= needed(i)
                    for i in wishes[agent]
                )
            }
            if not free:
                return bound
            bound -= free

    # --- For people

    def _note(self, client: Client, kind: str) -> None:
        assert self.lines is not None
        what: Any = ""
        if kind == "step":
            what = client.script[client.at] if client.at < len(client.script) else "end"
        self.lines.append(f"client {client.number}: {kind} {what}")


def check_exclusion(a: Client, b: Client) -> None:
    """The two clients were not told that they hold conflicting locks."""
    for (node_a, id_a), mode_a in a.told.items():
        for (node_b, id_b), mode_b in b.told.items():
            if node_a == node_b and "write" in (mode_a, mode_b) and related(id_a, id_b):
                raise Violation(
                    f"on {node_a} client {a.number} has {mode_a} {show(id_a)} "
                    f"and client {b.number} has {mode_b} {show(id_b)}"
                )


def check_clean(server: ServerMachine) -> None:
    """Nothing is left in a lock server that nobody wants anything of."""
    table = server.table
    root = table.find(())
    assert root is not None
    left = {
        "requests": table.ids(),
        "askers": list(table.askers),
        "slots": list(root.children),
        "below": root.below,
        "writes below": root.writes_below,
        "waiting": table.statistics().waiting,
        "entries": table.statistics().entries,
    }
    if any(left.values()):
        raise Violation(f"left in {server.node}: { ({k: v for k, v in left.items() if v}) }")


def granted(server: ServerMachine) -> dict[tuple[int, int], Entry]:
    """The requests that are granted, by number and the version of their grant."""
    return {
        (entry.number, entry.since): entry
        for asker in server.table.askers.values()
        for entry in asker.all()
        if entry.granted
    }


def edges_of(server: ServerMachine) -> list[Edge]:
    """The edges of the wait-for graph in one lock table."""
    found = []
    for asker in server.table.askers.values():
        for entry in asker.all():
            if not entry.granted:
                waiter = entry.record(server.node)
                for other in server.table.related(waiter.lock_id):
                    holder = other.record(server.node)
                    if blocks(holder, waiter):
                        found.append(Edge(waiter, holder))
    return found


def keys(edge: Edge) -> tuple[Any, Any]:
    """What identifies an edge: its waiting request and the one it waits for."""
    return (edge.waiter.key, edge.holder.key)


def needed(info: LockInfo) -> int:
    """On how many nodes a lock is needed, all of which are up."""
    if info.require in ("all", "all_alive"):
        return len(info.nodes)
    return 1 if info.require == "any" else len(info.nodes) // 2 + 1


def reached(start: AgentId, follow: dict[AgentId, set[AgentId]]) -> set[AgentId]:
    """All that can be reached."""
    seen, todo = {start}, [start]
    while todo:
        new = follow.get(todo.pop(), set()) - seen
        seen |= new
        todo += new
    return seen


def name(party: Party) -> str:
    """A party's name in a trace: a node, or a client's number and the generation of its agent."""
    if isinstance(party, str):
        return party
    generation, number = divmod(party.serial, SERIALS)
    return f"{number}" + "'" * min(generation, 3)


def brief(message: Any) -> str:
    """A message in one line."""
    kind = type(message).__name__
    if kind in ("Told", "Knowledge", "Released"):
        assert isinstance(message, Told) or hasattr(message, "records")
        records = " ".join(
            f"[{name(r.agent)} {r.mode[0]} {show(r.lock_id)} {r.state} @{r.place} "
            f"#{r.number} v{r.version}{' blocked' if r.blocked else ''}]"
            for r in message.records
        )
        return f"{kind} {records}{' forgot' if getattr(message, 'forgot', False) else ''}"
    if isinstance(message, Surrendered):
        return f"{kind} {'done' if message.done else 'refused'}"
    if isinstance(message, Surrender):
        action = message.report.action if message.report is not None else "on its own wish"
        return f"{kind} {show(message.lock_id)} {message.waiter} {message.holder} {action}"
    if isinstance(message, Resolved):
        return f"{kind} by {name(message.report.agent)}"
    return f"{kind} {tuple(message)[1:]}"
