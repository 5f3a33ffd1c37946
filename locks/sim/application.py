"""Application code as simulated clients, over the pure machines.

A client is a function in a greenlet of its own. It runs until it calls `locks`: there it lets the scheduler choose who goes on,
and comes back when it is its turn again, when its answer has come, when its time is up, or to die. Whatever it does between
two such calls is one step. All that happens has a moment of virtual time, drawn from the seed, and an agenda (`locks.sim.agenda`)
keeps it in order. So time passes at once, and the same seed gives the same run. Who goes first is a matter of strategy
(`locks.sim.strategies`). Greenlets that clients begin, such as those of actors, are *helpers*: they go on like clients.

What is under way is in a `Network`, and what takes time is as in a program with one node:

- What a client tells its lock server has arrived when the call returns, in the order of the calls.
- What lock servers tell agents, and agents each other, takes its time, so that the order in which clients learn of their locks and of
  deadlocks varies. In some runs it takes none: then all that follows from a call happens before anybody else goes on, as in a real node.
- A call that only looks, or doesn't wait, sees the outcome of all that is under way (`finish`).

The application's agents are not made here: `locks.testing` has those of the product run on this.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from locks.core.agent.machine import AgentMachine
from locks.core.messages import (
    AgentEffect,
    AgentMessage,
    Request,
    ServerMessage,
    ToAgent,
    ToServer,
    ToWatcher,
)
from locks.core.server.machine import ServerMachine
from locks.errors import MisuseError, assert_never
from locks.model import AgentId, Deadlock
from locks.sim.agenda import Agenda
from locks.sim.checks import (
    check_clean,
    check_exclusion,
    check_report,
    check_told,
    edges_of,
    serve,
)
from locks.sim.greenlets import Client, Note, has_to_wait, words_of
from locks.sim.host import ClientEffect, Host, Message, Violation
from locks.sim.network import Link, Network, Party
from locks.sim.places import Place, of_frame
from locks.sim.strategies import CLIENTS, SLOW, SLOW_SHARE, STEP, Unhurried

__all__ = ["Application", "Client", "Note", "Violation"]

MESSAGE = 0.001  # mean time until a message arrives, in seconds of virtual time; some take SLOW times as long
NOT_A_CLIENT = "only a client of the simulation can wait in it, while it runs; what is notified of something can't"
TICK = 1e-6  # seconds that a sleep takes longer than it has to, at least
DEATH_RATES = -3.0, -1.0  # how likely each event brings a death, as a power of 10 between these

# What goes first of what is due at the same moment; then clients.
MESSAGES, SETTLING = 0.0, 1.0


class Application:
    """Clients, one lock server, and what is under way between them.

    Args:
        server: The lock server.
        view: Takes what the lock server has for watchers.
        ended: Called when a client has ended, for its transactions to end with it.

    Attributes:
        running: The client that runs now.
        deadlocks: The deadlocks that were resolved, in this order.
        sent: Number of messages sent, by kind.
        notes: What the clients did, and what became of it.
        seen: What has happened how often, by what it is.
        events: How much has happened.
        guards: Other locks that clients hold.
        made: How many clients there are, helpers and those that are left out counted.
        closing: Whether the run is over, and whoever is still there has to leave.
    """

    def __init__(
        self,
        server: ServerMachine,
        view: Callable[[ToWatcher], None],
        ended: Callable[[Client], None],
    ) -> None:
        self.server = server
        self.network = Network((server.node,))
        self.hosts: dict[AgentId, Host] = {}
        self.clients: list[Client] = []
        self.running: Client | None = None
        self.deadlocks: list[Deadlock] = []
        self.sent: Counter[str] = Counter()
        self.notes: list[Note] = []
        self.seen: Counter[str] = Counter()
        self.guards: dict[Client, list[object]] = {}
        self.events = self.made = 0
        self._view = view
        self._ended = ended
        self._agenda = Agenda(Unhurried(random.Random(0)))
        self._unsettled: dict[AgentId, None] = {}
        self._rng = random.Random()
        self._main: greenlet | None = None
        self.closing = False
        self._helpers: list[Client] = []
        self._failure: BaseException | None = None

    @property
    def time(self) -> float:
        """Now, in seconds of virtual time."""
        return self.network.time

    @property
    def at_once(self) -> bool:
        """Whether all that follows from a call has happened when it returns."""
        return self._agenda.strategy.at_once

    # --- Running

    def client(self, name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Client:
        """Add a client, at any time."""
        if self.closing:
            raise MisuseError("the simulation has run; it can't have another client")
        client = self._numbered(Client(name, function, args))
        self.clients.append(client)
        if self._main is not None:
            self._start(client)
        return client

    def help(self, client: Client) -> None:
        """Let a helper go on: nobody kills it, or waits for its end."""
        self._helpers.append(self._numbered(client))
        self._start(client)

    def left_out(self, name: str) -> Client:
        """In the place of a client that is not to be there."""
        return self._numbered(Client(name, print, ()))

    def _numbered(self, client: Client) -> Client:
        self.made += 1
        client.number = self.made
        return client

    def run(self, agenda: Agenda, rng: random.Random, deaths: int, limit: int) -> None:
        """Run until all clients have ended.

        Args:
            agenda: Says what happens next.
            rng: Where all other choices come from.
            deaths: How many clients die, if they live long enough.
            limit: The most events.

        Raises:
            Violation: Something is not as it must be.
        """
        self._agenda = agenda
        self._rng = rng
        self._main = getcurrent()
        death_rate = 10 ** rng.uniform(*DEATH_RATES)  # soon in some runs, late in others
        try:
            for client in self.clients:
                self._start(client)
            while (entry := agenda.take(self.network.time)) is not None:
                if entry.due > self.network.time:
                    self.network.time = entry.due
                if deaths and rng.random() < death_rate:
                    deaths -= self._kill_somebody()
                entry.function(*entry.args)
                self.check()
                self.events += 1
                if self.events > limit:
                    raise Violation(f"no end after {limit} events")
            self._check_end()
        finally:
            self._close()

    def _start(self, client: Client) -> None:
        assert self._main is not None
        client.parent = self._main
        self._agenda.strategy.begin(client)
        self.ready(client)

    def _close(self) -> None:
        """Whoever is still there has to leave now, and can't wait any more."""
        self.closing = True
        for client in (*self.clients, *self._helpers):
            if not client.dead:
                client.fatal = GreenletExit()
                # What they say to that no longer matters: the run has failed before.
                with contextlib.suppress(Exception):
                    self._switch(client)
        self._agenda.clear()

    def _check_end(self) -> None:
        waiting = [client.name for client in self.clients if not client.dead]
        if waiting:
            edges = [f"  {edge}" for edge in edges_of(self.server)]
            standing = [f"  {line}" for line in self.standing()]
            raise Violation("\n".join([f"stuck: {', '.join(waiting)}", *edges, *standing]))
        check_clean(self.server)

    # --- What is going to happen

    def draw(self, number: int) -> int:
        """One of so many numbers, from 0 on."""
        return self._agenda.draw(number, self._rng)

    def moment(self) -> float:
        """How late something is, in seconds."""
        return TICK + self._agenda.strategy.later(STEP)

    def _at(self, due: float, rank: float, function: Callable[..., object], *args: Any) -> None:
        self._agenda.plan(due, rank, function, args)

    def _resume_at(self, due: float, client: Client) -> None:
        self._agenda.plan(due, client.rank, self._resume, (client,), client)

    def soon(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function that is no client's soon: one that is notified of something."""
        if not self.closing:
            self._at(self.time, CLIENTS, function, *args)

    # --- Clients

    def ready(self, client: Client, seconds: float = 0.0) -> None:
        """A client can go on after so many seconds; others may be faster."""
        self._resume_at(self.time + seconds + self._agenda.strategy.delay(client), client)

    def _resume(self, client: Client) -> None:
        client.resumed += 1
        self._switch(client)
        if client.dead and not client.is_helper:
            self.note(client.name, "is dead" if client.killed else "is done", matters=client.killed)
        if client.dead:
            due = self.time + self._agenda.strategy.later(MESSAGE)
            self._at(due, CLIENTS, self._ended, client)

    def _switch(self, client: Client) -> None:
        """Let a client go on, until it comes back or ends."""
        fatal, client.fatal = client.fatal, None
        self.running = client
        try:
            client.go_on(fatal)
        except BaseException as error:
            self.note(client.name, f"raises {type(error).__name__}", matters=True)
            raise
        finally:
            self.running = None

    def caller(self) -> Client | None:
        """The client that calls, or nobody: it is called from the outside.

        Raises:
            MisuseError: Another thread or greenlet calls.
        """
        client = self.here()
        if client is not None or self._main is None or getcurrent() is self._main:
            return client
        raise MisuseError(
            f"{getcurrent()!r} is no client of the simulation that runs; only functions that were given "
            "to simulation.client() can use locks in it"
        )

    def here(self) -> Client | None:
        """The client that calls, itself or in a greenlet that it runs; nobody if anybody else does."""
        within: greenlet | None = getcurrent() if self.running is not None else None
        while within is not None and within is not self.running:
            within = within.parent
        return None if within is None else self.running

    def is_here(self) -> bool:
        """Whether the run calls: a client, or what is notified of something."""
        return self.here() is not None or getcurrent() is self._main

    def within(self) -> Client | None:
        """The client that calls and is going to wait; nobody if another thread or greenlet calls.

        Raises:
            MisuseError: It is called by what is notified of something.
        """
        client = self.here()
        if client is None and getcurrent() is self._main:
            raise MisuseError(NOT_A_CLIENT)
        return client

    def pause(self) -> None:
        """Let others go first, if a client calls."""
        client = None if self.closing else self.caller()
        if client is not None:
            self.ready(client)
            self._park()

    def wait(self, seconds: float | None) -> None:
        """Let the client that calls wait until it is resumed, for so many seconds at most."""
        client = self._waiting_caller()
        if seconds is not None:
            self._resume_at(self.time + seconds, client)
        self._park()

    def sleep(self, seconds: float) -> None:
        """Let the client that calls sleep."""
        client = self._waiting_caller()
        self._agenda.strategy.slept(client)
        self.ready(client, seconds + TICK if seconds else 0.0)
        self._park()

    def _waiting_caller(self) -> Client:
        if (client := self.caller()) is None:
            raise MisuseError(NOT_A_CLIENT)
        return client

    def _park(self) -> None:
        if self.closing:
            raise GreenletExit
        assert self._main is not None
        assert self.running is not None
        client = self.running
        client.parked = getcurrent()
        try:
            self._main.switch()
        finally:
            client.parked = None

    def kill(self, client: Client, error: BaseException | None = None) -> None:
        """Have an exception raised in a client, where it is; `GreenletExit` by default.

        It dies soon, or at once if it calls this itself.
        """
        if client.dead or client.killed:
            return
        client.killed = True
        error = GreenletExit() if error is None else error
        self.seen["deaths"] += 1
        self.note(client.name, "is killed", place=self.place(client), matters=True)
        if client is getcurrent():
            raise error
        client.fatal = error
        if self._main is not None:
            self.ready(client)

    def _kill_somebody(self) -> bool:
        living = [client for client in self.clients if not (client.dead or client.killed)]
        if living:
            self.kill(self._rng.choice(living))
        return bool(living)

    # --- Agents

    def host(self, machine: AgentMachine, others: Callable[[Host, ClientEffect], None]) -> Host:
        """Add an agent; `others` takes what it wants done apart from messages."""
        host = self.hosts[machine.id] = Host(machine, others)
        return host

    def remove(self, host: Host) -> None:
        """An agent has ended."""
        host.told.clear()
        self.hosts.pop(host.ref, None)
        self._unsettled.pop(host.ref, None)

    def perform(self, host: Host, effects: list[AgentEffect]) -> None:
        """Do what an agent wants done after a call; its lock server has got it then."""
        host.perform(effects)
        self._send_out(host)
        link = (host.ref, self.server.node)
        while link in self.network.links:
            self._take(link)

    def finish(self) -> None:
        """Let all that is under way arrive, and what follows from it."""
        links = self.network.links
        while True:
            if links:
                self._take(self.network.oldest(links))
            elif self._unsettled:
                self._settle(next(iter(self._unsettled)))
            else:
                return

    def note(self, who: str, what: str, **more: Any) -> None:
        """Put down what somebody did, or what became of it, unless all is over."""
        if not self.closing:
            self.notes.append(Note(self.time, who, what, **more))

    def fail(self, error: BaseException) -> None:
        """Have the run fail, whoever catches what: the first of these errors counts."""
        self._failure = self._failure or error

    def check(self) -> None:
        """Raise what the run has failed with, if it has."""
        if self._failure is not None:
            raise self._failure

    def place(self, client: Client) -> Place | None:
        """Where in the user's code a client stands."""
        current = getcurrent()
        if client is self.running and current is not self._main:
            return of_frame(sys._getframe(1))
        inner = client if client.parked is None else client.parked
        return of_frame(inner.gr_frame)

    # --- Messages

    def send(self, sender: Party, receiver: Party, message: Message) -> None:
        """Put a message on its way, if its receiver is still there."""
        self.sent[type(message).__name__] += 1
        if receiver == self.server.node or receiver in self.hosts:
            self.network.send(sender, receiver, message)
            link = (sender, receiver)
            if len(self.network.links[link]) == 1:
                self._plan(link)

    def _send_out(self, host: Host) -> None:
        for sender, receiver, message in host.out:
            assert not isinstance(message, ToAgent)  # there is one node
            self.send(sender, receiver, message)
        host.out.clear()

    def _plan(self, link: Link) -> None:
        """Plan when the first message on a link arrives."""
        number, _, _ = self.network.links[link][0]
        delay = 0.0
        if not self._agenda.strategy.prompt:
            mean = MESSAGE * (SLOW if self._rng.random() < SLOW_SHARE else 1.0)
            delay = self._rng.expovariate(1 / mean)
        self._at(self.time + delay, MESSAGES, self._arrive, link, number)

    def _arrive(self, link: Link, number: int) -> None:
        queue = self.network.links.get(link)
        if queue is not None and queue[0][0] == number:  # else a call has been faster
            self._take(link)
            if link in self.network.links:
                self._plan(link)

    def _take(self, link: Link) -> None:
        """The first message on a link arrives; then all must be as it should be."""
        message = self.network.take(link)
        with self._noticing():
            if link[1] == self.server.node:
                self._serve(message)
            elif link[1] in self.hosts:
                self._tell(self.hosts[link[1]], message)

    @contextlib.contextmanager
    def _noticing(self) -> Iterator[None]:
        """A violation may come up within a client, whose code may catch it: keep it."""
        try:
            yield
        except Violation as violation:
            self.fail(violation)
            raise

    def _tell(self, host: Host, message: AgentMessage) -> None:
        host.receive(message)
        self._send_out(host)
        if host.ref in self.hosts and host.agent.unsettled:
            if host.ref not in self._unsettled:
                self._at(self.time, SETTLING, self._settle, host.ref)
            self._unsettled[host.ref] = None

    def _settle(self, agent: AgentId) -> None:
        if agent in self._unsettled:
            del self._unsettled[agent]
            host = self.hosts[agent]
            host.settle()
            self._send_out(host)

    def _serve(self, message: ServerMessage) -> None:
        server = self.server
        served = serve(server, message)
        for effect in served.effects:
            match effect:
                case ToAgent():
                    if isinstance(message, Request) and has_to_wait(message, effect.message):
                        self.seen["waits"] += 1
                    self.send(server.node, effect.agent, effect.message)
                case ToServer():
                    raise Violation(f"there is one node: {effect}")
                case ToWatcher():
                    self._view(effect)
                case _:
                    assert_never(effect)
        if served.resolved is not None:
            self._resolved(served.resolved)
        for host in self.hosts.values():
            if host.told:
                check_told(host, server)

    def _resolved(self, report: Deadlock) -> None:
        check_report(report)
        self.deadlocks.append(report)
        self.seen["deadlocks"] += 1
        living = {client.name: client for client in self.clients if not client.dead}
        places = {name: self.place(client) for name, client in living.items()}
        who, what, details = words_of(report, places)
        self.note(who, what, matters=True, details=details)

    def standing(self) -> list[str]:
        """Where the clients stand that have not ended, a line for each."""
        return [
            f"{client.name} {client.at(client is self.running, self.place(client))}"
            for client in self.clients
            if not client.dead
        ]

    def told(self, host: Host) -> None:
        """A client was told that it has all that it asked for."""
        with self._noticing():
            host.has_all()
            check_told(host, self.server)
            for other in self.hosts.values():
                if other.told and other is not host:
                    check_exclusion(host, other, self.server.node)
