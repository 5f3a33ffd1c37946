"""A world of lock servers, agents and clients. The caller chooses the schedule.

It runs the same machines as the actors. `World.choices` returns the events that are possible next.
`World.do` runs one, and then checks the invariants (`locks_lab.worlds.checks`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from locks.core.agent.wait_graph import Exploration
from locks.core.messages import ServerMessage, Surrender
from locks.core.server.machine import ServerMachine
from locks.errors import assert_never
from locks.model import AgentId, Deadlock, Edge, LockId
from locks_lab.applications.nodes import Nodes
from locks_lab.worlds.by_hand import ByHand
from locks_lab.worlds.checks import (
    check_clean,
    check_done,
    check_heard,
    check_report,
    check_rule,
    check_standing,
    check_token,
    edges_of,
    excused,
    is_deadlock,
    keys,
    mail_of,
    requester,
    serve,
)
from locks_lab.worlds.client import Fate, ScriptedClient
from locks_lab.worlds.events import Act, Choice, Event
from locks_lab.worlds.host import Host, Mail, Message, Violation
from locks_lab.worlds.network import Change, Link, Network, Pair, Party
from locks_lab.worlds.remote import RemoteClient
from locks_lab.worlds.rules import OURS, Rule
from locks_lab.worlds.script import Step, script
from locks_lab.worlds.thin import ThinClients
from locks_lab.worlds.topology import client_nodes, cut_off

__all__ = ["Faults", "World"]


class Faults(NamedTuple):
    """The faults that may happen, at any moment.

    Attributes:
        mortal: Clients, by number, that may die, and how.
        cuts: How often connections may be cut.
        crashes: How often nodes may crash.
        nodes: The nodes that may crash.
        restarts: Whether crashed nodes may be restarted, at any moment.
    """

    mortal: tuple[tuple[int, Fate], ...] = ()
    cuts: int = 0
    crashes: int = 0
    nodes: tuple[str, ...] = ()
    restarts: bool = True


NO_FAULTS = Faults()


class World(Nodes, ByHand):
    """Lock servers and clients, and the messages in flight.

    Args:
        scripts: One for each client: as text, or steps.
        nodes: The nodes, each with a lock server.
        faults: The faults that may happen.
        homes: The nodes of the clients, in turn; all on the first node by default. Homes that are
            not among the nodes are client nodes, without a lock server. They are connected with
            each other through the nodes.
        rule: The machines of the world.
        trace: Keep each `Event` in `events`.
        unlinked: Pairs of nodes that are never connected.
        options: Options of the agents.

    Attributes:
        sent: The number of messages sent, by kind.
        carried_out: The deadlocks that lock servers have resolved by surrenders.
        superfluous: Those of them that were not deadlocks at that moment, or not any more.
        outdated: Those that were, but whose report had an edge that did not exist, or not any more.
        tokens: How many fencing tokens clients have got.
        losses: How often clients were notified of lost locks.
    """

    def __init__(
        self,
        scripts: Iterable[str | Iterable[Step | tuple[Any, ...]]],
        nodes: Sequence[str] = ("n1",),
        faults: Faults = NO_FAULTS,
        homes: Sequence[str] = (),
        rule: Rule = OURS,
        trace: bool = False,
        unlinked: Iterable[Pair] = (),
        **options: Any,
    ) -> None:
        homes = homes or nodes[:1]
        never = {frozenset(pair) for pair in unlinked}
        spokes = client_nodes(nodes, homes)
        network = Network(dict.fromkeys((*nodes, *homes)), never, spokes)
        super().__init__(rule, nodes, network)
        self.rule: Rule = rule
        self.faults = faults
        self.mortal: dict[int, Fate] = dict(faults.mortal)
        self.cuts, self.crashes = faults.cuts, faults.crashes
        self.hosts: dict[AgentId, tuple[Host, ScriptedClient]] = {}
        self.unsettled: dict[int, None] = {}
        self.sent: Counter[str] = Counter()
        self.carried_out: list[Deadlock] = []
        self.superfluous: list[Deadlock] = []
        self.outdated: list[Deadlock] = []
        self.tokens = self.losses = 0
        self.before_surrender: Counter[str] | None = None  # `sent` when the first one was sent
        self.events: list[Event] | None = [] if trace else None
        self._created = 0
        self._mail: list[Mail] = []
        self._ended: list[int] = []
        self._lost: list[tuple[int, tuple[LockId, ...]]] = []
        self._token: tuple[LockId, int] | None = None
        self._checked: dict[int, Any] = {}  # the clients' locks at the last check
        alone = len(network.nodes) == 1
        kind = ScriptedClient if alone or rule.remote is None else RemoteClient
        self.clients = [
            kind(
                number,
                script(steps),
                nodes,
                homes[(number - 1) % len(homes)],
                self._tick,
                rule,
                [
                    node
                    for pair in never
                    if homes[(number - 1) % len(homes)] in pair
                    for node in pair
                ],
                **options,
            )
            for number, steps in enumerate(scripts, 1)
        ]
        for client in self.clients:
            self.hosts[client.ref] = (client.host, client)
        self.thin = ThinClients(self, rule.thin) if alone and rule.thin is not None else None

    def _tick(self) -> int:
        self._created += 1
        return self._created

    @property
    def links(self) -> dict[Link, Any]:
        """The messages in flight."""
        return self.network.links

    @property
    def aborts(self) -> int:
        """How often a client was aborted."""
        return sum(client.aborts for client in self.clients)

    # --- Possible events, and running them

    def choices(self, faults: bool = True) -> list[Choice]:
        """All events that are possible next.

        Args:
            faults: Include events that never need to happen.
        """
        network = self.network
        found: list[Choice] = [("deliver", link) for link in network.deliverable()]
        found += [("settle", number) for number in self.unsettled]
        for client in self.clients:
            if client.ready:
                found.append(("step", client.number))
            elif client.waiting == "for a while":
                found.append(("time out", client.number))
        if not network.steady:
            found += [("notice", pair) for pair in network.notices()]
            found += [("connect", pair) for pair in network.connectable()]
        return found + self.fault_choices() if faults else found

    def fault_choices(self) -> list[Choice]:
        """The faults that may happen next, and their ends."""
        return [*(("die", number) for number in self.mortal), *self.breaks()]

    def breaks(self) -> list[Change]:
        """The faults and repairs of connections and nodes that may happen next, but never need to."""
        fragile = self.faults.nodes if self.crashes else ()
        return self._may_break(bool(self.cuts), fragile, self.faults.restarts)

    def do(self, choice: Choice) -> None:
        """Make one of the choices happen, and check all that must be true."""
        if self.thin is not None and choice[0] != "step":
            self.thin.inflate()
        match choice:
            case ("deliver", link):
                self._deliver(link)
            case ("settle" | "step" | "time out" | "die", number):
                self._act(choice, self.clients[number - 1])
            case ("notice", pair):
                self._notice(pair)
            case ("connect" | "cut" | "mend" | "crash" | "restart", _):
                self._change(choice)
            case _:
                assert_never(choice)
        if len(self.names) > 1 and not self.network.links and self.still:
            self.check_standing()

    def _act(self, act: Act, client: ScriptedClient) -> None:
        """A client does something, or something happens to it."""
        party = client.ref
        step: Step | None = None
        fate: Fate | None = None
        found: Exploration | None = None
        match act[0]:
            case "settle":
                del self.unsettled[client.number]
                if self.events is not None:
                    found = client.agent.outlook()
                client.settle()
            case "step":
                step = client.next_step
                if self.thin is None or not self.thin.step(client):
                    if self.thin is not None:
                        self.thin.whole.add(client.ref)
                        self.thin.inflate()
                    client.step()
            case "time out":
                client.time_out()
            case "die":
                fate = self.mortal.pop(client.number)
                client.die(fate)
            case _:
                assert_never(act[0])
        self._after(client)
        self._note(act, party, client, step=step, fate=fate, found=found)

    def _deliver(self, link: Link) -> None:
        message = self.network.take(link)
        receiver = link[1]
        client = None
        if isinstance(receiver, str):
            self._serve(self.servers[receiver], message)
        elif receiver in self.hosts:
            host, client = self.hosts[receiver]
            ended = host.agent.ended
            client.receive(message)
            if ended is None:
                check_heard(host, message)
            if host.agent.unsettled:
                self.unsettled[client.number] = None
            self._after(client)
        self._note(("deliver", link), receiver, client, message=message)

    def _after(self, client: ScriptedClient) -> None:
        """Something has happened to a client."""
        self._send_out(client)
        if client.finished:
            if self.events is not None:
                self._ended.append(client.number)
            self.unsettled.pop(client.number, None)
            self.mortal.pop(client.number, None)
            check_done(client)
        if client.finished or client.ref not in self.hosts:
            self._drop_agents(client)
        if client.fresh is not None:
            check_token(client.seen, client.fresh, self.clients, self.servers.values())
            self._token = (client.fresh.lock_id, client.tokens[client.fresh])
            client.fresh = None
            self.tokens += 1
        if client.gone:
            self._lost.append((client.number, client.gone))
            client.gone = ()
            self.losses += 1
        if client.told and client.told is not self._checked.get(client.number):
            self._checked[client.number] = client.told
            self._check_locks(client)

    def _send_out(self, client: ScriptedClient) -> None:
        """Send the messages of its agent."""
        out = client.host.out
        for sender, receiver, message in out:
            if self.before_surrender is None and isinstance(message, Surrender):
                self.before_surrender = self.sent.copy()
            self._send(sender, receiver, message)
        out.clear()

    def _drop_agents(self, client: ScriptedClient) -> None:
        """Agents of it have ended; it may have another one now."""
        for ref in [ref for ref, (_, whose) in self.hosts.items() if whose is client]:
            del self.hosts[ref]
            self.network.drop(ref)
        if not client.finished:
            self.hosts[client.ref] = (client.host, client)

    def _check_locks(self, client: ScriptedClient) -> None:
        """Check that its locks are granted, and that no other client holds a conflicting lock."""
        thin = self.thin is not None and self.thin.holds(client)
        for server in () if thin else self.servers.values():
            self._check_told(client.host, server)
        for other in self.clients:
            if other.told and other is not client:
                self._check_exclusion(client.host, other.host)

    def _serve(self, server: ServerMachine, message: ServerMessage) -> None:
        """A lock server takes in a message."""
        edges: list[Edge] = []
        true = False
        if isinstance(message, Surrender) and message.report is not None:
            edges = self.edges()
            true = is_deadlock(message, edges, self.live_hosts())
        served = serve(server, message)
        check_rule(server, served.before)
        new = served.after.keys() - served.before.keys()
        self._check_tokens(server.node, {since for _, since in new})
        for mail in mail_of(server.node, served.effects):
            self._send(*mail)
        report = served.resolved
        if report is not None:
            check_report(report)
            self.carried_out.append(report)
            if not true:
                self.superfluous.append(report)
            elif {keys(e) for e in report.cycle} - {keys(e) for e in edges}:
                self.outdated.append(report)
        agent = requester(message)
        if agent in self.hosts:  # of the others it took nothing
            _, client = self.hosts[agent]
            if client.told:
                self._check_told(client.host, server)

    def _send(self, sender: Party, receiver: Party, message: Message) -> None:
        self.sent[type(message).__name__] += 1
        if self.events is not None:
            self._mail.append((sender, receiver, message))
        if isinstance(receiver, str) or receiver in self.hosts:
            self.network.send(sender, receiver, message)

    # --- Connections and nodes

    def _notice(self, pair: Pair) -> None:
        """A node notices that another one is gone, or there: its agents and its lock server do."""
        me, other = pair
        there = self.network.notice(pair)
        for client in self.clients:
            if client.home == me and not client.finished:
                if other not in self.names:
                    client.peer(other, there)
                elif there:
                    client.node_up(other)
                else:
                    client.node_down(other)
                if client.agent.unsettled:
                    self.unsettled[client.number] = None
                self._after(client)
        server = self.servers.get(me)
        if server is not None:
            self._notice_peer(server, other, there)
        self._note(("notice", pair), me, there=there)

    def _change(self, change: Change) -> None:
        """A connection or a node breaks, or is mended."""
        self.network.make(change)
        match change:
            case ("notice" | "connect" | "mend", _):
                pass
            case ("cut", _):
                self.cuts -= 1
            case ("crash", node):
                self.crashes -= 1
                self._end_or_begin("crash", node)
                for client in self.clients:
                    if client.home == node and not client.finished:
                        client.vanish()
                        self._after(client)
            case ("restart", node):
                self._end_or_begin("restart", node)
            case _:
                assert_never(change)
        self._note(change)

    # --- Checks at the end

    @property
    def still(self) -> bool:
        """Whether nothing is in flight: no message, nothing that an agent or a node has yet to notice."""
        network = self.network
        return not (
            self.unsettled
            or network.deliverable()
            or (not network.steady and (network.notices() or network.connectable()))
        )

    def check_standing(self) -> None:
        """Check that majority locks are granted on all servers that are up; no message is in flight."""
        hosts = {host.ref: host for host in self.live_hosts()}
        for host in hosts.values():
            check_standing(host, self.servers, hosts)

    def check_quiet(self) -> None:
        """Check that clients wait only for nodes that are down, when nothing needs to happen any more."""
        waiting = [client for client in self.clients if not client.finished]
        if not waiting:
            return
        edges = self.edges()
        let_off = excused(edges, self.live_hosts())
        stuck = [client for client in waiting if client.ref not in let_off]
        let_off = cut_off([client.ref for client in stuck], edges, self.network)
        stuck = [client for client in stuck if client.ref not in let_off]
        if stuck:
            numbers = [client.number for client in stuck]
            raise Violation("\n".join([f"stuck: clients {numbers}", *self.waits()]))

    def check_end(self) -> None:
        """Check that all have finished, and that nothing is left, when nothing can happen any more."""
        self.check_quiet()
        if self.network.whole:
            waiting = [client.number for client in self.clients if not client.finished]
            if waiting:
                raise Violation(f"stuck: clients {waiting}, although all nodes are up")
        if all(client.finished for client in self.clients):
            for server in self.servers.values():
                check_clean(server)

    # --- The wait-for graph

    def live_hosts(self) -> list[Host]:
        """The agents that live."""
        return [client.seen.host for _, client in self.hosts.values()]

    def edges(self) -> list[Edge]:
        """The real wait-for graph, as the lock tables have it."""
        return [edge for server in self.servers.values() for edge in edges_of(server)]

    def waits(self) -> list[str]:
        """The wait-for graph, one line for each edge."""
        return [f"  {edge}" for edge in self.edges()]

    def _note(
        self,
        choice: Choice,
        party: Party | None = None,
        client: ScriptedClient | None = None,
        *,
        step: Step | None = None,
        message: Message | None = None,
        fate: Fate | None = None,
        there: bool = False,
        found: Exploration | None = None,
    ) -> None:
        if self.events is not None:
            told = client is not None and bool(client.told) and client.ready
            self.events.append(
                Event(
                    len(self.events) + 1,
                    choice,
                    party,
                    step,
                    message,
                    fate,
                    there,
                    tuple(self._mail),
                    found,
                    told,
                    tuple(self._ended),
                    tuple(self._lost),
                    self._token,
                )
            )
            self._mail.clear()
            self._ended.clear()
        self._lost.clear()
        self._token = None
