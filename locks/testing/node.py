"""The product's own nodes and agents, over a simulated application.

While a simulation runs, the node of the running client replaces this program's node. It is a `Node`
whose agents are `Agent`s, so an application runs the product's own code, down to the errors. The
differences are below it: a call first lets other clients run, instead of taking a turn of a real
node; a wait is in simulated time; and messages go through `locks_lab.applications.application`,
which runs the machines and checks them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, TypeVar

import pykka

from locks.core.messages import AgentEffect, AnswerWait, Ended, Lost, Notify, ToAgent, ToWatcher
from locks.core.statistics import NodeStatistics
from locks.errors import MisuseError
from locks.model import AgentId, LockId, LockResult, Mode, RequestRecord, show
from locks.node.client.agent import Agent
from locks.node.client.clients import label_of
from locks.node.client.leaks import Held
from locks.node.client.one_client import interrupt_others
from locks.node.client.owner import Owner
from locks.node.client.scope import take_servers
from locks.node.dispatch import Receiver
from locks.node.node import Node
from locks.node.ports import Answering, NodePort, Servers
from locks.node.server import Server
from locks.program import default as program
from locks.runtime.actor import Inbox
from locks.runtime.exits import exit_client
from locks.runtime.identity import client_key
from locks.runtime.inline import Journal, Turn
from locks.runtime.monitor import Client as AnyClient
from locks.runtime.monitor import Down, Killed, current_client, tell_end
from locks.runtime.port import world
from locks.testing.cluster import SimulatedCluster
from locks.testing.elections import Elections
from locks.testing.spawned import Spawned
from locks_lab.applications.application import Application, Client
from locks_lab.applications.event_loop import Tasks
from locks_lab.applications.places import Place, entry_of
from locks_lab.worlds.host import Host, Violation

if TYPE_CHECKING:
    from typing_extensions import TypeVarTuple, Unpack

    Ts = TypeVarTuple("Ts")

__all__ = ["Leak", "Neighbours", "SimulatedAgent", "SimulatedNode", "greenlet_of"]

T = TypeVar("T")


class Neighbours(Protocol):
    """The nodes of a simulation, as one of them sees them.

    Attributes:
        names: Their names.
        may_leak: Whether clients may end while they hold locks.
    """

    names: tuple[str, ...]
    may_leak: bool

    @property
    def by_name(self) -> Mapping[str, SimulatedNode]:
        """All of them, by name."""

    @property
    def application(self) -> Application:
        """The application that runs on them."""

    def line(self) -> Place | None:
        """The place in the user's code where the running client is."""

    def agents_of(self, client: AnyClient) -> list[SimulatedAgent]:
        """The transactions of a client."""


class Leak(Violation):
    """A client, task or owner has ended, and has not released its locks.

    Attributes:
        place: The line that took the first one.
    """

    def __init__(self, client: str, held: Sequence[Held]) -> None:
        super().__init__(
            f"{client} ended while it held {', '.join(map(str, held))}; only its end released that. Release it in a finally block, or use "
            "with; if it is meant, say so with run(leaks=True)"
        )
        self.place = held[0].line


def not_simulated() -> MisuseError:
    """The error for a call that a simulation does not support, with its name."""
    what = entry_of(sys._getframe(1))
    return MisuseError(
        f"{what} is not simulated: a simulation has no nodes but its own, which connect by themselves. "
        "Call what is to be tested of your code without it, or test this with real nodes",
    )


class _Turn(Turn):
    """One client runs at a time, so there is no turn to take; but others may go first."""

    def __init__(
        self, nodes: Neighbours, name: str, journal: Journal, background: Callable[..., object]
    ) -> None:
        super().__init__(journal, background)
        self._nodes = nodes
        self._name = name

    def run(self, function: Callable[[Unpack[Ts]], T], *args: Unpack[Ts]) -> T:
        application = self._nodes.application
        application.pause()
        found = function(*args)
        if application.at_once:
            application.finish(self._name)
        return found

    def run_surely(self, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> None:
        self.run(function, *args)

    def ask(self, question: Callable[[Unpack[Ts]], T], *args: Unpack[Ts]) -> T:
        if getattr(question, "__func__", None) is not Agent.known_token:  # it belongs to the call
            self._nodes.application.pause()
        self._nodes.application.finish(self._name)
        return question(*args)

    def post(self, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> None:
        function(*args)


class _Background:
    """Where functions are called that are notified of something, for as long as the node has not crashed."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node

    def run_soon(self, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> bool:
        self._node.application.soon(self._node.name, self._run, function, args)
        return True

    def tell(self, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> None:
        self.run_soon(function, *args)

    def _run(self, function: Callable[[Unpack[Ts]], object], args: tuple[Unpack[Ts]]) -> None:
        if self._node.is_current:
            function(*args)

    def call(self, function: Callable[[Unpack[Ts]], T], *args: Unpack[Ts]) -> T:
        self._node.application.pause()
        return function(*args)

    def spawn(self, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> None:
        world().new_greenlet(function, *args).start()

    def stop(self, timeout: float | None = None) -> object:
        raise AssertionError("a simulated node is not stopped")

    def is_here(self) -> bool:
        return False


class SimulatedAgent(Agent):
    """A transaction's agent whose messages and waits are simulated."""

    node: SimulatedNode
    client: Client | Owner | pykka.ActorRef[Any]

    def __init__(
        self, node: NodePort, agent: AgentId, client: AnyClient, name: str, **options: Any
    ) -> None:
        super().__init__(node, agent, client, name, **options)
        machine, _ = self.make_machine()
        self.host = self.node.application.host(machine, self._effect)
        self.abandons = False  # a wait, just now
        self._taken_at: dict[LockId, Place | None] = {}
        # An instance of an election, which gets notifications of its locks, reports more itself.
        self._tells = not (isinstance(client, pykka.ActorRef) and options.get("notify"))

    def start_monitoring(self) -> None:
        """Monitor only owners and actors; the node reports the ends of other clients."""
        if not isinstance(self.client, Client):
            super().start_monitoring()

    def event(self, event: Callable[[Unpack[Ts]], list[AgentEffect]], *args: Unpack[Ts]) -> None:
        """Run one event of the machine, and put it down."""
        which: object = event
        given: tuple[Any, ...] = args
        if which == self.machine.unlock:
            self.host.let_go(given[0])
        if which == self.machine.ask_all:
            for lock_id, *_ in given[0]:
                self._taken_at.setdefault(lock_id, self.node.neighbours.line())
        if self._tells and (words := _in_words(event.__name__, given)):
            self.node.note(self.client, words)
        self.abandons = which == self.machine.abandon_wait
        super().event(event, *args)

    def _begin_wait(
        self, wait: Answering, event: Callable[[Unpack[Ts], Answering], None], *args: Unpack[Ts]
    ) -> None:
        raise MisuseError(
            "a simulation has no answers that come later, by a proxy or a message; use locks.original.lock(agent, ...) "
            "and locks.original.await_all_locks(agent)"
        )

    def token(self, lock_id: LockId, timeout: float | None = None) -> int:
        """The fencing token of a lock; it is checked."""
        token = super().token(lock_id, timeout)
        self.node.application.got_token(self.host, lock_id, token)
        return token

    def token_later(self, lock_id: LockId, answer: Callable[[Any], None]) -> None:
        """Likewise."""

        def got(token: Any) -> None:
            if isinstance(token, int):
                self.node.application.got_token(self.host, lock_id, token)
            answer(token)

        super().token_later(lock_id, got)

    def heard(self) -> None:
        """It has taken in a message."""
        if self._tries:
            self._look_at_tries(self._tries)

    def status(self) -> LockResult:
        """Status and deadlocks so far."""
        result = super().status()
        if result.status == "have_all_locks" and current_client() is self.client:
            self.node.application.told(self.host)
        return result

    def has_ended(self, ended: Ended) -> None:
        """The machine has ended."""
        link, self._link = self._link, False
        super().has_ended(ended)
        interrupt_others(self)
        if link and ended.reason is not None:
            end: tuple[Any, ...] = (exit_client, self.client, ended.reason)
            if isinstance(self.client, Client):
                end = (self.node.application.kill, self.client, Killed(ended.reason))
            self.node.executor.run_soon(*end)

    def has_leaked(self, held: list[Held]) -> None:
        """Its client has ended, and has not released these: the run fails, unless that is meant."""
        if not self.node.neighbours.may_leak:
            held = [each._replace(line=self._taken_at.get(each.lock_id)) for each in held]
            self.node.application.fail(Leak(_name_of(self.client), held))

    def _effect(self, host: Host, effect: Any) -> None:
        application = self.node.application
        if isinstance(effect, Ended):
            application.remove(host)
        elif isinstance(effect, Lost):
            application.note(
                _name_of(self.client),
                f"loses {', '.join(map(show, effect.lock_ids))}",
                matters=True,
            )
            application.seen["losses"] += 1
            self.has_lost(effect)
            return
        elif isinstance(effect, Notify) and effect.notification.kind == "have_all_locks":
            application.told(host)
        elif isinstance(effect, AnswerWait):
            if isinstance(effect.result, LockResult):
                application.told(host)
                if not isinstance(self.client, Spawned):
                    application.note(_name_of(self.client), "has all that it asked for")
            else:
                failed = isinstance(effect.result, Exception)
                what = type(effect.result).__name__ if failed else f"the token {effect.result}"
                application.note(_name_of(self.client), f"gets {what}", matters=True)
        self.node.perform_here(self, effect)


class SimulatedNode(Node):
    """A node whose messages, clients and clock are simulated."""

    def __init__(self, nodes: Neighbours, name: str, first_version: int) -> None:
        self.neighbours = nodes
        super().__init__(
            name,
            executor=_Background(self),
            turn=partial(_Turn, nodes, name),
            counters=Elections(nodes),
            clocks=(lambda: int(nodes.application.time * 1e9), lambda: nodes.application.time),
            first_version=first_version,
            agents=SimulatedAgent,
        )
        self.deliver, self.perform, self.request = self._deliver, self._perform, self._request
        if len(nodes.names) > 1:
            self.is_clustered = True
            take_servers(self, Servers(nodes.names, "majority"))
        self.perform_here = self._dispatch.perform_here
        self._begun: set[tuple[AnyClient, int]] = set()

    @property
    def application(self) -> Application:
        """The application that runs on it."""
        return self.neighbours.application

    @cached_property
    def tasks(self) -> Tasks:
        """The tasks that run on it."""
        return Tasks(self.application, self.name)

    @cached_property
    def cluster(self) -> SimulatedCluster | None:  # type: ignore[override]
        """What its actors have to do with other nodes; made when it is first used."""
        if len(self.neighbours.names) == 1:
            return None
        made = self._dispatch.cluster = SimulatedCluster(self, self.neighbours.names, not_simulated)
        return made

    # --- For the application

    def enter(self) -> None:
        """Make this the program's node for the following calls."""
        program._default = self

    def show(self, effect: ToWatcher) -> None:
        """Its lock server has something for a watcher."""
        self.perform_here(self.server, effect)
        if self._uses_cluster and self.cluster is not None:
            self.cluster.flush()

    def sees(self, node: str, there: bool) -> None:
        """Note that another node is up or gone."""
        self.alive = self.alive | {node} if there else self.alive - {node}
        if there and self._uses_cluster and self.cluster is not None:
            self.cluster.connected(node)

    def lost(self, node: str) -> None:
        """Its agents know that another node is gone; so do its actors."""
        if self._uses_cluster and self.cluster is not None:
            self.cluster.lost(node)

    def receive(self, node: str, frame: bytes) -> None:
        """A frame of another node arrives."""
        assert self.cluster is not None
        self.enter()
        self.cluster.receive(node, frame)

    @property
    def _uses_cluster(self) -> bool:
        return "cluster" in vars(self)

    @property
    def is_current(self) -> bool:
        """Whether it runs: it has not crashed, and was not started again as another one."""
        is_newest = self.neighbours.by_name[self.name] is self
        return is_newest and self.name not in self.application.network.crashed

    def heard(self, agent: AgentId) -> None:
        """An agent has taken in a message."""
        found = self.agents_by_id.get(agent)
        if isinstance(found, SimulatedAgent):
            found.heard()

    def client_ended(self, client: Client) -> None:
        """A client has ended; its transactions end with it."""
        reason = "killed" if client.killed else "normal"
        for agent in list(self.clients.get(client_key(client), ())):
            agent.client_ended(Down(client, reason))
        tell_end(client, reason)  # to owners that are tied to it
        self.tasks.look()

    # --- Messages go through the application; other effects are carried out as in a real node

    def _deliver(self, receiver: Receiver, message: Any) -> None:
        receiver.handle(message)
        if self.server.changed:
            self.server.put_down()

    def _perform(self, sender: Server | Agent, effects: Sequence[Any]) -> None:
        if isinstance(sender, SimulatedAgent):
            if sender.abandons:
                sender.host.withdrawn()
            self.application.perform(sender.host, list(effects))
            return
        for effect in effects:
            if isinstance(effect, ToAgent):
                self.application.send(self.name, effect.agent, effect.message)
            else:
                self.show(effect)

    def _request(
        self, agent: AgentId, client: str, lock_id: LockId, mode: Mode
    ) -> tuple[RequestRecord, ...]:
        return ()  # the request must be a message, which can be late

    # --- As a node

    def spawn_agent(
        self,
        client: AnyClient | None = None,
        created: int | None = None,
        keep: Callable[[Agent], object] | None = None,
        label: str | None = None,
        **options: Any,
    ) -> Agent:
        """Begin a transaction of a simulated client."""
        self.application.pause()
        client = current_client() if client is None else client
        if not isinstance(client, (Client, Owner)) and not _is_simulated(client):
            raise MisuseError(
                f"{client!r} can't have a transaction in a simulation; let a function have it that "
                "was given to simulation.client()",
                client=repr(client),
            )
        if isinstance(client, Client) and client.dead:
            self.application.soon(self.name, self.client_ended, client)
        if created is not None:
            if (client, created) in self._begun:
                self.application.seen["again"] += 1
                self.note(client, "runs its transaction again", matters=True)
            self._begun.add((client, created))
        return super().spawn_agent(client, created, keep, label, **options)

    def note(self, client: Client | Owner | pykka.ActorRef[Any], what: str, **more: Any) -> None:
        """Record an action of a client, and its place in the user's code."""
        if isinstance(client, Spawned):  # no actor: one of ours
            return
        self.application.note(_name_of(client), what, place=self.neighbours.line(), **more)

    def nodes(self, *, hidden: bool = False) -> list[str]:
        """The nodes that it sees."""
        return [] if hidden else sorted(self.alive - {self.name})

    def _needs_cluster(self) -> SimulatedCluster:
        if self.cluster is None:
            raise not_simulated()
        return self.cluster

    def stop(self) -> None:
        """It can't be."""
        program._default = self
        raise MisuseError("a simulation runs; its node can't be stopped")

    def statistics(self) -> NodeStatistics:
        """Its counters."""
        reports = [each for each in self.application.deadlocks if each.agent.node == self.name]
        self.counters.deadlocks = len(reports)
        self.counters.aborted = sum(report.action == "aborted" for report in reports)
        self.counters.knowledge = self.application.sent["Knowledge"]
        return super().statistics()


def _is_simulated(actor: object) -> TypeGuard[pykka.ActorRef[Any]]:
    """Whether that is the reference of an actor that runs in a simulation."""
    return isinstance(actor, pykka.ActorRef) and isinstance(greenlet_of(actor), Client)


def greenlet_of(actor: pykka.ActorRef[Any]) -> object:
    """The greenlet of an actor, if it is one of ours."""
    inbox = actor.actor_inbox
    return inbox.greenlet if isinstance(inbox, Inbox) else None


def _name_of(client: Client | Owner | pykka.ActorRef[Any]) -> str:
    """The name of a client in reports."""
    if not isinstance(client, pykka.ActorRef):
        return client.name
    runs = greenlet_of(client)
    return runs.name if isinstance(runs, Client) else label_of(client)


def _in_words(event: str, args: tuple[Any, ...]) -> str:
    """The text of a client's action for the trace; empty if the client does not do it itself."""
    if event in ("hold_up", "held_up", "interrupt"):
        return ""
    if event == "ask_all":
        return "asks for " + ", ".join(f"{mode} {show(lock_id)}" for lock_id, mode, *_ in args[0])
    if event == "establish_token":
        return f"asks for the token of {show(args[0])}"
    if event in ("unlock", "surrender"):
        return f"{event}s {show(args[0])}"
    if event == "end_transaction" and args and args[0] is not None:
        return f"loses its transaction: {args[0]}"
    words = {
        "await_all": "waits for all that it asked for",
        "abandon_wait": "gives up waiting",
        "end_transaction": "ends its transaction",
    }
    return words.get(event, event)
