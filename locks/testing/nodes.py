"""The nodes of a simulation, which replace the program's node, and its greenlets, which replace gevent's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pykka
from gevent import getcurrent
from greenlet import greenlet

from locks.core.server.machine import ServerMachine
from locks.errors import MisuseError
from locks.node.client.agent import Agent
from locks.program import default as program
from locks.runtime.addressed import OfAnotherNode
from locks.runtime.bridge import Bridge
from locks.runtime.identity import client_key
from locks.runtime.monitor import Client as AnyClient
from locks.runtime.monitor import current_client
from locks.runtime.port import World, stand_in
from locks.testing.node import SimulatedAgent, SimulatedNode, greenlet_of, not_simulated
from locks.testing.owning import two_at_work
from locks.testing.patches import is_patched
from locks.testing.spawned import Spawned
from locks_lab.applications.application import Application, Client
from locks_lab.applications.event_loop import LoopGreenlet
from locks_lab.applications.places import Place

if TYPE_CHECKING:
    from typing_extensions import TypeVarTuple, Unpack

    Ts = TypeVarTuple("Ts")

__all__ = ["ALONE", "SimulatedNodes"]

T = TypeVar("T")

ALONE = "node@localhost"  # the name of a real node that was given none


class _Place:
    """Where a client waits, by the virtual clock."""

    def __init__(self, application: Application, client: Client) -> None:
        self._application = application
        self._client = client

    def wait(self, timeout: float | None) -> None:
        self._application.wait(timeout)

    def release(self) -> None:
        self._application.ready(self._client)


class SimulatedNodes(World):
    """The nodes of a simulation, and the world of its clients.

    Args:
        names: Their names.

    Attributes:
        application: The application that runs on them.
        by_name: The nodes.
        may_leak: Whether clients may end while they hold locks.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.may_leak = False
        self.names = tuple(names)
        self.by_name: dict[str, SimulatedNode] = {}
        self.application = Application(self, names)

    def server(self, node: str, first_version: int = 0) -> ServerMachine:
        """Make a node; returns its lock server."""
        made = self.by_name[node] = SimulatedNode(self, node, first_version)
        return made.server.machine

    @contextmanager
    def stand_in(self) -> Iterator[None]:
        """Replace the program's node by simulated ones, and make all waits use their time.

        Raises:
            MisuseError: A simulation runs already.
        """
        if isinstance(program._default, SimulatedNode):
            raise MisuseError("a simulation runs already; it can't have another one within it")
        with program.stand_in(self.by_name[self.names[0]]), stand_in(self):
            yield

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
        if not self.is_at_work:
            raise MisuseError(
                "a simulation waits in its own event loop alone, which is one of asyncio; give the coroutine function to "
                "simulation.client(), without asyncio.run or trio.run"
            )
        return None

    def look(self) -> None:
        """Deliver all messages in flight on the caller's node."""
        self.application.finish(self._here().name)

    @staticmethod
    def _here() -> SimulatedNode:
        """The node of the caller."""
        node = program._default
        assert isinstance(node, SimulatedNode)
        return node

    @property
    def is_at_work(self) -> bool:
        """Whether an event loop runs now."""
        running = self.application.running
        return running is not None and self.by_name[running.node].tasks.is_at_work

    def line(self) -> Place | None:
        """The place in the user's code where the running client is."""
        running = self.application.running
        if running is None:
            return None
        tasks = self.by_name[running.node].tasks
        return tasks.place() if tasks.is_at_work else self.application.place(running)

    def clock(self) -> Callable[[], float]:
        """The simulation's clock, in seconds."""
        return lambda: self.application.time

    def is_event_loop(self, current: greenlet) -> bool:
        """Whether a greenlet runs the event loop of a node."""
        return isinstance(current, LoopGreenlet)

    def is_here(self) -> bool:
        """Whether the caller is in the simulation: a client, a task, an actor of one, or a callback."""
        return self.application.is_here()

    def new_greenlet(self, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> Spawned:
        """A greenlet that is simulated, to be started."""
        return Spawned(self.application, function, args, self._here().name)

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
        is_thread = is_patched(getattr(actor.actor_inbox, "mutex", None))
        is_one = isinstance(greenlet_of(actor), Client) or isinstance(actor, Agent)
        if is_one or isinstance(actor, OfAnotherNode) or is_thread:
            return
        if actor.is_alive():
            raise MisuseError(
                f"{actor!r} is not simulated: it was not begun by a client of the simulation. Let a client begin a "
                "locks.actors.GeventActor, or, with patch=True, any actor of Pykka",
                actor=repr(actor),
            )

    def check_nodes(self, names: Iterable[str]) -> None:
        """Refuse elections on nodes that the simulation lacks."""
        if not set(names) <= set(self.names):
            raise not_simulated()

    def failed(self, error: object) -> None:
        """Make the run fail by an error of the running client."""
        if not isinstance(error, Exception):
            return
        if (running := self.application.running) is not None:
            what = f"raises {type(error).__name__}"
            self.application.note(running.name, what, matters=True)
        self.application.fail(error)

    def note(self, client: object, what: str, *args: object) -> None:
        """Record the outcome of a client's action."""
        client = current_client() if client is None else client
        if isinstance(client, (Client, pykka.ActorRef)):
            running = client if isinstance(client, Client) else self.application.running
            assert running is not None
            self.by_name[running.node].note(client, what.format(*args))
        nodes = self.by_name.values()
        workers = [[part for node in nodes for part in node.counters.workers]]
        if self.application.seen["cuts"] or self.application.seen["crashes"]:
            workers = [list(node.counters.workers) for node in nodes]  # others notice late
        for each in workers:
            if violation := two_at_work(each):
                self.application.fail(violation)
                raise violation

    def step(self) -> None:
        """Let other clients go first."""
        self.application.pause()

    give_way = step

    def stepwise(self, function: Callable[..., T]) -> Callable[..., T]:
        """Return a function before each call of which other clients may run first."""

        def call(*args: Any) -> T:
            self.step()
            return function(*args)

        return call

    def agents_of(self, client: AnyClient) -> list[SimulatedAgent]:
        """The transactions of a client."""
        key = client_key(client)
        nodes = self.by_name.values()
        return [
            agent
            for node in nodes
            for agent in node.clients.get(key, ())
            if isinstance(agent, SimulatedAgent)
        ]
