"""Run an application's own code under seeded schedules, deaths and virtual time.

    from locks.testing import Simulation

    simulation = Simulation(seed=17)
    simulation.client(transfer, "ann", "bob")
    simulation.client(transfer, "bob", "ann")
    simulation.run()

While a simulation runs, its node takes the place of this program's node. It is a `Node` whose
agents are `Agent`s, so that an application meets the product's own code, down to the errors. What
is different is below it: a call takes no turn of a real node but lets other clients go first, a
wait is for a simulated moment, and messages go through `locks.sim.application`, which runs the
machines and checks them.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from gevent import getcurrent

from locks.core.messages import AnswerWait, Ended, ToAgent
from locks.core.statistics import NodeStatistics
from locks.errors import InvalidOption, MisuseError
from locks.lock_ids import shown
from locks.model import AgentId, Deadlock, LockResult, is_seconds, show
from locks.node.agent import Agent
from locks.node.dispatch import Dispatch
from locks.node.node import Node
from locks.node.one_client import interrupt_others
from locks.node.owner import Owner
from locks.node.ports import Background, NodePort, PendingCall
from locks.node.server import Server
from locks.node.surroundings import Surroundings
from locks.program import default as program
from locks.runtime import Client as AnyClient
from locks.runtime import Down, Killed, Waiter, client_key, current_client, exit_client
from locks.runtime.bridge import Bridge
from locks.runtime.inline import Journal, Turn
from locks.runtime.monitor import tell_end
from locks.sim.application import Application, Client, Violation
from locks.sim.event_loop import Tasks
from locks.sim.host import Host

__all__ = ["Client", "Simulation", "Violation", "seeds", "simulate"]

logger = logging.getLogger("locks.testing")

T = TypeVar("T")

NAME = "node@localhost"  # as that of a real node that was given none
LAST = 30  # so many lines of the trace are shown with a failure


class Simulation:
    """Clients that run side by side in virtual time, scheduled by a seed. It runs once.

    Args:
        seed: What the whole schedule is drawn from.

    Attributes:
        seed: The same.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._node = _Node()
        self._application = self._node.application
        self._began = self._explained = False

    def client(self, function: Callable[..., Any], *args: Any, name: str = "") -> Client:
        """Add a client, before the run or from within it.

        Args:
            function: What it does. It may use all of `locks` as a greenlet would. An `async def` function runs as a
                task, and may use `locks.aio`; all of these share one event loop.
            *args: What the function is called with.
            name: Its name in reports; made from the function's name by default.

        Returns:
            The client. After the run, `value` is what its function has returned.
        """
        if not callable(function):
            raise InvalidOption(
                f"client {function!r} is not a function; pass the function and its arguments, "
                "as in simulation.client(transfer, 'ann', 'bob')",
                function=repr(function),
            )
        number = len(self._application.clients) + 1
        named = name or f"{getattr(function, '__name__', 'client')}-{number}"
        if inspect.iscoroutinefunction(function):
            return self._node.tasks.client(named, function, args)
        return self._application.client(named, function, args)

    def run(self, seed: int | None = None, *, deaths: int = 0, limit: int = 100_000) -> None:
        """Run until all clients have ended, and check all along that all is as it should be.

        Args:
            seed: Another seed than that of the simulation.
            deaths: So many clients die at random moments, as if killed: what `kill` does.
            limit: The most events; it takes more only if clients go round in circles.

        Raises:
            Violation: Clients wait for each other and will never go on, there is no end, or the
                locks themselves are wrong.
            Exception: What a client's function has raised; the others are killed.
        """
        if self._began:
            raise MisuseError("this simulation has run already; make a new one for each run")
        for name, value in (("deaths", deaths), ("limit", limit)):
            if not isinstance(value, int) or value < 0:
                raise InvalidOption(f"{name}={value!r} is not a number >= 0", value=repr(value))
        if not self._application.clients:
            raise MisuseError("there is nothing to run; add clients with simulation.client()")
        if isinstance(program._default, _Node):
            raise MisuseError("a simulation runs already; it can't have another one within it")
        self._began = True
        self.seed = self.seed if seed is None else seed
        try:
            with program.stand_in(self._node):
                self._application.run(random.Random(self.seed), deaths, limit)
        except BaseException as error:
            self._explain(error)
            raise

    def sleep(self, seconds: float = 0.0) -> None:
        """Let a client sleep by the virtual clock: its `time.sleep`. A coroutine uses `asyncio.sleep`."""
        if not is_seconds(seconds):
            raise InvalidOption(f"{shown(seconds)} is not a number of seconds >= 0")
        self._application.sleep(seconds)

    def kill(self, client: Client) -> None:
        """Let a client die, as a greenlet that is killed: `GreenletExit` is raised where it is. A task is cancelled.

        Its transactions end with it. Whether it has died of that is in `client.killed`.
        """
        self._application.kill(client)

    @property
    def time(self) -> float:
        """Now, in seconds of virtual time since the beginning."""
        return self._application.time

    @property
    def trace(self) -> list[str]:
        """What the clients did, and what became of it, in lines."""
        return self._application.trace

    @property
    def deadlocks(self) -> list[Deadlock]:
        """The deadlocks that were resolved."""
        return self._application.deadlocks

    def _check_ran(self) -> None:
        if self._application.clients and not self._began:
            raise MisuseError("the simulation was given clients, but was not run")

    def _explain(self, error: BaseException) -> None:
        """Add to an error, once, how it came about and how to see it again."""
        if not self._explained:
            self._explained = True
            _add_note(error, self._story())

    def _story(self) -> str:
        shown = self.trace[-LAST:]
        lines = [f"in a simulation with seed={self.seed}, which brings it about again:"]
        lines += ["  ..."] if len(shown) < len(self.trace) else []
        return "\n".join(lines + [f"  {line}" for line in shown])


def simulate(scenario: Callable[[Simulation], object], seeds: int | Iterable[int] = 100) -> None:
    """Run a scenario under many seeds, until it fails.

    Args:
        scenario: Called with a new `Simulation`: adds clients, runs it, and checks the outcome. A
            test that takes the fixture `simulation` is one.
        seeds: The seeds, or their number.

    Raises:
        Exception: What the scenario has raised; a note says the seed, and what has happened.
    """
    for seed in range(seeds) if isinstance(seeds, int) else seeds:
        simulation = Simulation(seed)
        try:
            scenario(simulation)
        except BaseException as error:
            simulation._explain(error)
            raise
        simulation._check_ran()


def seeds(seeds: int | Iterable[int]) -> pytest.MarkDecorator:
    """For pytest: run a test that takes the fixture `simulation` once with each seed.

    The seed is in the name of each test: `pytest "test_bank.py::test_transfers[17]"` runs one.

    Args:
        seeds: The seeds, or their number.
    """
    import pytest

    each = range(seeds) if isinstance(seeds, int) else list(seeds)
    return pytest.mark.parametrize("simulation", each, indirect=True, ids=str)


with contextlib.suppress(ImportError):
    import pytest

    @pytest.fixture
    def simulation(request: pytest.FixtureRequest) -> Iterator[Simulation]:
        """A `Simulation`, with the seed that `seeds` says; a test that does not run it fails."""
        made = Simulation(getattr(request, "param", 0))
        yield made
        if not made._explained:  # shown when the test has failed
            request.node.add_report_section("teardown", "simulation", made._story())
        made._check_ran()


def _add_note(error: BaseException, note: str) -> None:
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:
        logger.error("%r %s", error, note)


# --- The product's node and agents, over a simulated application ---------------------------------


class _Turn(Turn):
    """One client runs at a time, so there is no turn to take; but others may go first."""

    def __init__(self, around: _Surroundings, journal: Journal, background: Background) -> None:
        super().__init__(journal, background.run_soon)
        self._around = around

    def run(self, function: Callable[..., T], *args: Any) -> T:
        self._around.application.pause()
        return function(*args)

    def run_surely(self, function: Callable[..., object], *args: Any) -> None:
        self.run(function, *args)

    def ask(self, question: Callable[..., T], *args: Any) -> T:
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
        raise MisuseError(
            f"{getattr(function, '__qualname__', function)} needs the background of a real node: "
            "a simulation has none"
        )

    def stop(self, timeout: float | None = None) -> object:
        raise AssertionError("a simulated node is not stopped")

    def is_here(self) -> bool:
        return False


class _Waiter(Waiter):
    """A wait of a simulated client, by the virtual clock. A task waits in its event loop, which has that clock."""

    def __init__(self, application: Application, tasks: Tasks) -> None:
        super().__init__()
        self._application = application
        self._tasks = tasks

    def wait(self, timeout: float | None = None, *, idle: bool = False) -> bool:
        application = self._application
        if timeout is not None and timeout <= 0:
            application.finish()
        elif type(getcurrent()) is Bridge:
            if not self._tasks.is_at_work:
                raise MisuseError(
                    "a simulation waits in its own event loop alone; give the coroutine function to "
                    "simulation.client(), without asyncio.run"
                )
            return super().wait(timeout, idle=idle)
        elif not self._woken:
            self._parked = application.running
            try:
                application.wait(timeout)
            finally:
                self._parked = None
        return self._woken

    def wake(self) -> None:
        if isinstance(self._parked, Client):
            self._woken = True
            self._application.ready(self._parked)
        else:
            super().wake()


class _Agent(Agent):
    """A transaction's agent whose messages and waits are simulated."""

    node: _Node
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
            self.node.application.note(self.client.name, words)
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
                application.note(self.client.name, "has all that it asked for")
            else:
                application.note(self.client.name, f"gets {type(effect.result).__name__}")
        self.node.perform_here(self, effect)


class _Dispatch(Dispatch):
    """Messages go through the application; what else is to be done is done as ever."""

    application: Application

    def deliver(self, receiver: Server | Agent, message: Any) -> None:
        receiver.handle(message)
        if self.server.changed:
            self.put_down()

    def grant(self, *_: object) -> None:
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
    has_services = False
    application: Application
    tasks: Tasks

    def executor(self) -> Background:
        return _Background(self)

    def turn(self, journal: Journal, background: Background) -> Turn:
        return _Turn(self, journal, background)

    def new_call(self) -> PendingCall:
        return PendingCall(_Waiter(self.application, self.tasks))

    def clocks(self) -> tuple[Callable[[], int], Callable[[], float]]:
        return lambda: int(self.application.time * 1e9), lambda: self.application.time

    def first_version(self) -> int:
        return 0

    def shield(self) -> bool:
        return False


class _Node(Node):
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
        self.tasks = around.tasks = Tasks(self.application)

    def spawn_agent(
        self,
        client: AnyClient | None = None,
        created: int | None = None,
        keep: Callable[[Agent], object] | None = None,
        **options: Any,
    ) -> Agent:
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
        return super().spawn_agent(client, created, keep, **options)

    def stop(self) -> None:
        program._default = self
        raise MisuseError("a simulation runs; its node can't be stopped")

    def statistics(self) -> NodeStatistics:
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
