"""The product's own node and agents, over a simulated application.

While a simulation runs, its node takes the place of this program's node. It is a `Node` whose
agents are `Agent`s, so that an application meets the product's own code, down to the errors. What
is different is below it: a call takes no turn of a real node but lets other clients go first, a
wait is for a simulated moment, and messages go through `locks.sim.application`, which runs the
machines and checks them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from gevent import getcurrent
from greenlet import greenlet

from locks.core.messages import AnswerWait, Ended, ToAgent
from locks.core.statistics import NodeStatistics
from locks.errors import MisuseError
from locks.model import AgentId, Deadlock, LockResult, show
from locks.node.agent import Agent
from locks.node.cluster import Cluster
from locks.node.dispatch import Dispatch
from locks.node.node import Node
from locks.node.one_client import interrupt_others
from locks.node.owner import Owner
from locks.node.ports import Background, NodePort, PendingCall
from locks.node.server import Server
from locks.node.surroundings import Surroundings
from locks.program import default as program
from locks.runtime import Client as AnyClient
from locks.runtime import Down, Killed, Waiter, client_key, current_client, elsewhere, exit_client
from locks.runtime.actor import Inbox
from locks.runtime.bridge import Bridge
from locks.runtime.inline import Journal, Turn
from locks.runtime.monitor import tell_end
from locks.sim.application import Application, Client
from locks.sim.event_loop import Tasks
from locks.sim.host import Host
from locks.sim.places import Place, entry_of
from locks.testing.owning import two_at_work
from locks.testing.patches import is_patched
from locks.testing.spawned import Spawned

__all__ = ["SimulatedNode", "stand_in"]

T = TypeVar("T")

NAME = "node@localhost"  # as that of a real node that was given none


@contextmanager
def stand_in(node: SimulatedNode) -> Iterator[None]:
    """Put a simulated node in the place of the program's, and let all that waits wait in its time.

    Raises:
        MisuseError: There is one already.
    """
    if isinstance(program._default, SimulatedNode):
        raise MisuseError("a simulation runs already; it can't have another one within it")
    with program.stand_in(node), elsewhere.stand_in(node):
        yield


def not_simulated() -> MisuseError:
    """The refusal of what is called, by its name."""
    what = entry_of(sys._getframe(1))
    return MisuseError(
        f"{what} is not simulated: a simulation has one node, without elections or other nodes. "
        "Call what is to be tested of your code without it, or test this with real nodes",
    )


class _Turn(Turn):
    """One client runs at a time, so there is no turn to take; but others may go first."""

    def __init__(self, around: _Surroundings, journal: Journal, background: Background) -> None:
        super().__init__(journal, background.run_soon)
        self._around = around

    def run(self, function: Callable[..., T], *args: Any) -> T:
        application = self._around.application
        application.pause()
        found = function(*args)
        if application.at_once:
            application.finish()
        return found

    def run_surely(self, function: Callable[..., object], *args: Any) -> None:
        self.run(function, *args)

    def ask(self, question: Callable[..., T], *args: Any) -> T:
        if getattr(question, "__func__", None) is not Agent.known_token:  # it belongs to the call
            self._around.application.pause()
        self._around.application.finish()
        return question(*args)

    def post(self, function: Callable[..., object], *args: Any) -> None:
        function(*args)


class _Background:
    """Where functions are called that are notified of something."""

    def __init__(self, around: _Surroundings) -> None:
        self._around = around

    def run_soon(self, function: Callable[..., object], *args: Any) -> None:
        self._around.application.soon(function, *args)

    def call(self, function: Callable[..., T], *args: Any) -> T:
        if function.__module__.startswith("locks_leader."):
            raise not_simulated()
        self._around.application.pause()
        return function(*args)

    def stop(self, timeout: float | None = None) -> object:
        raise AssertionError("a simulated node is not stopped")

    def is_here(self) -> bool:
        return False


class _Waiter(Waiter):
    """A wait of a simulated client for an answer: one that does not wait sees all that is under way."""

    def __init__(self, application: Application) -> None:
        super().__init__()
        self._application = application

    def wait(self, timeout: float | None = None, *, idle: bool = False) -> bool:
        if timeout is not None and timeout <= 0:
            self._application.finish()
        return super().wait(timeout, idle=idle) or self._woken


class _Place:
    """Where a client waits, by the virtual clock."""

    def __init__(self, application: Application, client: Client) -> None:
        self._application = application
        self._client = client

    def wait(self, timeout: float | None) -> None:
        self._application.wait(timeout)

    def release(self) -> None:
        self._application.ready(self._client)


class _Agent(Agent):
    """A transaction's agent whose messages and waits are simulated."""

    node: SimulatedNode
    client: Client | Owner

    def __init__(self, node: NodePort, agent: AgentId, client: AnyClient, **options: Any) -> None:
        super().__init__(node, agent, client, **options)
        self.host = self.node.application.host(self.machine, self._effect)
        self.abandons = False  # a wait, just now

    def start_monitoring(self) -> None:
        """The node says when a client has ended; an owner says it itself."""
        if isinstance(self.client, Owner):
            super().start_monitoring()

    def event(self, event: Callable[..., list[Any]], *args: Any) -> None:
        if event == self.machine.unlock:
            self.host.let_go(args[0])
        if words := _in_words(event.__name__, args):
            self.node.note(self.client, words)
        self.abandons = event == self.machine.abandon
        super().event(event, *args)

    def _begin_wait(self, *_: Any) -> None:
        raise MisuseError(
            "a simulation has no answers that come later, by a proxy or a message; use locks.lock(agent, ...) "
            "and locks.await_all_locks(agent)"
        )

    def status(self) -> LockResult:
        result = super().status()
        if result.status == "have_all_locks" and current_client() is self.client:
            self.node.application.told(self.host)
        return result

    def has_ended(self, ended: Ended) -> None:
        link, self._link = self._link, False
        super().has_ended(ended)
        interrupt_others(self)
        if link and ended.reason is not None:
            end: tuple[Any, ...] = (exit_client, self.client, ended.reason)
            if isinstance(self.client, Client):
                end = (self.node.application.kill, self.client, Killed(ended.reason))
            self.node.executor.run_soon(*end)

    def _effect(self, host: Host, effect: Any) -> None:
        application = self.node.application
        if isinstance(effect, Ended):
            application.remove(host)
        elif isinstance(effect, AnswerWait):
            if isinstance(effect.result, LockResult):
                application.told(host)
                if not isinstance(self.client, Spawned):
                    application.note(self.client.name, "has all that it asked for")
            else:
                what = f"gets {type(effect.result).__name__}"
                application.note(self.client.name, what, matters=True)
        self.node.perform_here(self, effect)


class _Dispatch(Dispatch):
    """Messages go through the application; what else is to be done is done as ever."""

    application: Application

    def deliver(self, receiver: Server | Agent, message: Any) -> None:
        receiver.handle(message)
        if self.server.changed:
            self.put_down()

    def ask_at_once(self, *_: object) -> None:
        """Each message is one that can be late."""

    def log_broken(self, report: Deadlock) -> None:
        """A simulation tells its own story."""

    def perform(self, sender: Server | Agent, effects: Sequence[Any]) -> None:
        if isinstance(sender, _Agent):
            if sender.abandons:
                sender.host.withdrawn()
            self.application.perform(sender.host, list(effects))
            return
        for effect in effects:
            if isinstance(effect, ToAgent):
                self.application.send(self.server.node.name, effect.agent, effect.message)
            else:
                self.perform_here(self.server, effect)


class _Surroundings(Surroundings):
    """Virtual time, and clients of a simulation."""

    agent_class = _Agent
    dispatch_class = _Dispatch
    is_registered = False
    application: Application

    def executor(self) -> Background:
        return _Background(self)

    def turn(self, journal: Journal, background: Background) -> Turn:
        return _Turn(self, journal, background)

    def new_call(self) -> PendingCall:
        return PendingCall(_Waiter(self.application))

    def clocks(self) -> tuple[Callable[[], int], Callable[[], float]]:
        return lambda: int(self.application.time * 1e9), lambda: self.application.time

    def first_version(self) -> int:
        return 0

    def shield(self) -> bool:
        return False


class SimulatedNode(Node):
    """A node whose messages, clients and clock are simulated."""

    def __init__(self) -> None:
        around = _Surroundings()
        super().__init__(NAME, surroundings=around)
        dispatch = self._dispatch
        assert isinstance(dispatch, _Dispatch)
        self.perform_here = dispatch.perform_here
        self.application = around.application = dispatch.application = Application(
            self.server.machine, partial(self.perform_here, self.server), self._client_ended
        )
        self.tasks = Tasks(self.application)
        self._begun: set[tuple[AnyClient, int]] = set()

    def spawn_agent(
        self,
        client: AnyClient | None = None,
        created: int | None = None,
        keep: Callable[[Agent], object] | None = None,
        **options: Any,
    ) -> Agent:
        """Begin a transaction of a simulated client."""
        self.application.pause()
        client = current_client() if client is None else client
        if not isinstance(client, (Client, Owner)):
            raise MisuseError(
                f"{client!r} can't have a transaction in a simulation; let a function have it that "
                "was given to simulation.client()",
                client=repr(client),
            )
        if isinstance(client, Client) and client.dead:
            self.application.soon(self._client_ended, client)
        if created is not None:
            if (client, created) in self._begun:
                self.application.seen["again"] += 1
                self.note(client, "runs its transaction again", matters=True)
            self._begun.add((client, created))
        return super().spawn_agent(client, created, keep, **options)

    def note(self, client: Client | Owner, what: str, **more: Any) -> None:
        """Put down what a client does, and where in the user's code."""
        if isinstance(client, Spawned):  # no actor: one of ours
            return
        self.application.note(client.name, what, place=self.line(), **more)

    def line(self) -> Place | None:
        """Where in the user's code the client stands that runs."""
        running = self.application.running
        if self.tasks.is_at_work:
            return self.tasks.place()
        return None if running is None else self.application.place(running)

    def place(self) -> _Place | None:
        """Where the caller has to wait, if it is a client; `None` for other threads.

        Raises:
            MisuseError: It can't wait.
        """
        client = self.application.within()
        if client is None:
            return None
        if type(getcurrent()) is not Bridge:
            return _Place(self.application, client)
        if not self.tasks.is_at_work:
            raise MisuseError(
                "a simulation waits in its own event loop alone; give the coroutine function to "
                "simulation.client(), without asyncio.run"
            )
        return None

    def is_here(self) -> bool:
        """Whether the simulation calls: a client, a task, an actor of one, or what is notified of something."""
        return self.application.is_here()

    def new_greenlet(self, function: Callable[..., object], args: tuple[Any, ...]) -> Spawned:
        """A greenlet that is simulated, to be started."""
        return Spawned(self.application, function, args)

    def kill(self, subject: greenlet, error: BaseException) -> bool:
        """Have an error raised in a client, or in an actor of one; returns whether it is one."""
        if isinstance(subject, Client):
            self.application.kill(subject, error)
        return isinstance(subject, Client)

    def check_actor(self, actor: Any) -> None:
        """Refuse an actor that runs in a thread or greenlet of its own.

        Raises:
            MisuseError: It does.
        """
        inbox = actor.actor_inbox
        runs = inbox.greenlet if isinstance(inbox, Inbox) else None
        is_thread = is_patched(getattr(inbox, "mutex", None))
        if isinstance(runs, Client) or isinstance(actor, Agent) or is_thread:
            return
        if actor.is_alive():
            raise MisuseError(
                f"{actor!r} is not simulated: it was not begun by a client of the simulation. Let a client begin a "
                "locks.GeventActor, or, with patch=True, any actor of Pykka",
                actor=repr(actor),
            )

    def note_of(self, client: object, what: str) -> None:
        """Put down what becomes of a client."""
        if isinstance(client, Client):
            self.note(client, what)
        if violation := two_at_work(self.counters.workers):
            self.application.fail(violation)
            raise violation

    def give_way(self) -> None:
        """Let other clients go first."""
        self.application.pause()

    def _needs_cluster(self) -> Cluster:
        raise not_simulated()

    def stop(self) -> None:
        """It can't be."""
        program._default = self
        raise MisuseError("a simulation runs; its node can't be stopped")

    def statistics(self) -> NodeStatistics:
        """What it has counted."""
        reports = self.application.deadlocks
        self.counters.deadlocks = len(reports)
        self.counters.aborted = sum(report.action == "aborted" for report in reports)
        self.counters.knowledge = self.application.sent["Knowledge"]
        return super().statistics()

    def _client_ended(self, client: Client) -> None:
        reason = "killed" if client.killed else "normal"
        for agent in list(self.clients.get(client_key(client), ())):
            agent.client_ended(Down(client, reason))
        tell_end(client, reason)  # to owners that are tied to it
        self.tasks.look()


def _in_words(event: str, args: tuple[Any, ...]) -> str:
    """What a client does, for the trace; nothing if it is not the client who does it."""
    if event in ("hold_up", "held_up", "interrupt"):
        return ""
    if event == "ask_all":
        return "asks for " + ", ".join(f"{mode} {show(lock_id)}" for lock_id, mode, *_ in args[0])
    if event in ("unlock", "surrender"):
        return f"{event}s {show(args[0])}"
    if event == "end" and args and args[0] is not None:
        return f"loses its transaction: {args[0]}"
    words = {
        "await_all": "waits for all that it asked for",
        "abandon": "gives up waiting",
        "end": "ends its transaction",
    }
    return words.get(event, event)
