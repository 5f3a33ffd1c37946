"""One run of a scenario: clients side by side in virtual time, scheduled by a seed."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import random
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import TracebackType
from typing import Any, TypeVar, cast

import pykka

from locks.errors import InvalidOption, LocksError, MisuseError
from locks.lock_ids import shown
from locks.model import Deadlock, check_nodes, is_seconds
from locks.runtime.actor import kill
from locks.testing import schedules
from locks.testing.histories import History, Recorded
from locks.testing.nodes import ALONE, SimulatedNodes
from locks.testing.patches import patched
from locks.testing.pictures import diagram
from locks.testing.shared import share
from locks.testing.story import Summary, story
from locks.testing.watchdog import PATIENCE, watched
from locks_lab.applications.agenda import Agenda, Chosen, State
from locks_lab.applications.application import Client
from locks_lab.applications.places import is_inner, without_inner
from locks_lab.applications.strategies import (
    Named,
    Unhurried,
    check_strategy,
    strategy_for,
)
from locks_lab.schedules.plan import node_names
from locks_lab.stories.words import listed
from locks_lab.worlds.network import Pair

__all__ = ["Simulation", "check_names"]

T = TypeVar("T")

logger = logging.getLogger("locks.testing")

EXPECTED = (LocksError, AssertionError, asyncio.CancelledError)  # what our code raises


class Simulation:
    """Clients that run side by side in virtual time, scheduled by a seed. It runs once.

    Args:
        seed: What the whole schedule is drawn from.
        nodes: How many nodes there are, `n1`, `n2` and so on, or their names. Of several, each runs
            clients and has a lock server, as if it was started with all of them as `servers`: a
            call that does not say where takes a lock on a majority.
        strategy: How: `"uniform"`, `"bursts"` or `"pct"`; `"mixed"`: one of these, by the seed.
        schedule: In the place of what is drawn, a schedule that a failure has told.

    Attributes:
        seed: The same.
        strategy: The same.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        nodes: int | Sequence[str] = 1,
        strategy: Named = "mixed",
        schedule: str | None = None,
    ) -> None:
        check_strategy(strategy)
        self.strategy = strategy
        self.seed = _checked_seed(seed)
        self._script = None if schedule is None else schedules.parse(schedule)
        self._nodes = SimulatedNodes(check_names(nodes))
        self._application = self._nodes.application
        self._agenda: Agenda | None = None
        self._number = 0
        self._histories: list[History] = []
        self._is_one_of_many = False  # the caller that runs many explains failures

    def client(
        self, function: Callable[..., Any], *args: Any, name: str = "", node: str | None = None
    ) -> Client:
        """Add a client, before the run or from within it.

        Args:
            function: What it does. It may use all of `locks` as a greenlet would. An `async def`
                function runs as a task, and may use `locks.aio`; all of these share one event loop.
            *args: What the function is called with.
            name: Its name in reports; made from the function's name by default.
            node: The node where it runs. By default they take turns; one that a client adds runs on
                its node.

        Returns:
            The client. After the run, `value` is what its function has returned.
        """
        if not callable(function):
            raise InvalidOption(
                f"client {function!r} is not a function; pass the function and its arguments, "
                "as in simulation.client(transfer, 'ann', 'bob')",
                function=repr(function),
            )
        where = self._node_for(node)
        self._number += 1
        named = name or f"{_name_of(function)}-{self._number}"
        if self._script is not None and self._application.made + 1 in self._script.without:
            return self._application.left_out(named)
        if _is_async(function):
            return self._nodes.by_name[where].tasks.client(named, function, args)
        work = functools.partial(_called, named, function)
        return self._application.client(named, work, args, where)

    def _node_for(self, node: str | None) -> str:
        names = self._nodes.names
        if node is None:
            adds = self._application.here()
            return names[self._number % len(names)] if adds is None else adds.node
        self._check_node(node)
        if node in self._application.network.crashed:
            raise MisuseError(f"{node} has crashed, and can't have a client; restart it before")
        return node

    def _check_several(self, what: str) -> None:
        if len(self._nodes.names) == 1:
            raise MisuseError(
                f"{what}: this simulation has one node, and nothing to be connected with; make it with nodes=3"
            )

    def _pairs(self, what: str, node: str, others: Sequence[str]) -> list[Pair]:
        self._check_several(what)
        for each in (node, *others):
            self._check_node(each)
        if node in others:
            raise InvalidOption(f"{what}: {node} is always connected with itself", node=node)
        others = others or [each for each in self._nodes.names if each != node]
        return [(min(node, each), max(node, each)) for each in others]

    def _check_node(self, node: str) -> None:
        if node not in self._nodes.names:
            raise InvalidOption(
                f"node {shown(node)} is none of this simulation, which has {listed(self._nodes.names)}",
                node=shown(node),
            )

    def run(
        self,
        seed: int | None = None,
        *,
        deaths: int = 0,
        cuts: int = 0,
        crashes: int = 0,
        limit: int = 100_000,
        watchdog: float = PATIENCE,
        leaks: bool = False,
    ) -> None:
        """Run until all clients have ended, and check all along that all is as it should be.

        Args:
            seed: Another seed than that of the simulation.
            deaths: So many clients die at random moments, as if killed: what `kill` does.
            cuts: So often the connection between two nodes is cut at random moments, and made again
                later.
            crashes: So often a node crashes at random moments, and is started again later; its
                clients end.
            limit: The most events; it takes more only if clients go round in circles.
            watchdog: After so many seconds of real time in which nothing happens it fails, and says
                where each client stands.
            leaks: Whether clients, tasks and owners may end while they hold locks. By default, that
                is a forgotten release, and fails.

        Raises:
            Violation: Clients wait for each other and will never go on, there is no end, a client
                has not released its locks, or the locks themselves are wrong.
            Exception: What a client's function has raised, or a thread that it has begun; the
                others are killed.
        """
        __tracebackhide__ = True
        if self._agenda is not None:
            raise MisuseError("this simulation has run already; make a new one for each run")
        may = {"deaths": deaths, "cuts": cuts, "crashes": crashes}
        for option, value in (*may.items(), ("limit", limit)):
            if not isinstance(value, int) or value < 0:
                raise InvalidOption(f"{option}={value!r} is not a number >= 0", value=repr(value))
        if cuts or crashes:
            self._check_several("run(cuts=..., crashes=...)")
        if not is_seconds(watchdog) or watchdog <= 0:
            raise InvalidOption(f"watchdog={shown(watchdog)} is not a number of seconds > 0")
        if not self._application.clients:
            raise MisuseError("there is nothing to run; add clients with simulation.client()")
        self.seed = self.seed if seed is None else _checked_seed(seed)
        rng = random.Random(
            f"simulation {self.seed}"
        )  # so that neighbouring seeds have nothing in common
        if self._script is None:
            agenda = Agenda(strategy_for(self.strategy, self.seed, rng))
        else:
            exact = self._script.exact
            strategy = Unhurried(rng, exact != schedules.LATE, exact in ("", schedules.EXACT))
            agenda = Chosen(strategy, self._script.steps, bool(exact))
        try:
            self._nodes.may_leak = leaks
            with self._nodes.stand_in():
                self._agenda = agenda
                with watched(self._application, watchdog), self._seeing_threads():
                    self._application.run(agenda, rng, limit, may)
            for history in self._histories:
                history.check()
        except BaseException as error:
            if not self._is_one_of_many:
                self._explain(error)
            raise error.with_traceback(_for_users(error))  # noqa: B904 it is the same error

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Within this block `time`, `threading` and `queue` are in virtual time for the clients.

        That is `time.sleep` and its clocks, and all locks, events, conditions, queues and threads
        that are made within the block. What `patch=True` does for `simulate` and `seeds`.
        """
        with patched(self._application, self.client):
            yield

    def shared(self, thing: T, name: str = "") -> T:
        """Wrap what clients share: a dictionary, list, set, or any object with attributes.

        If two clients access the same item or attribute, one of them to write, and no lock keeps
        the two apart, the run fails, whether or not they came at the same time. Each access is a
        point where another client may go first.

        Args:
            thing: What they share.
            name: What it is called in reports; the name of its class by default.

        Returns:
            The thing, wrapped: give this to the clients.
        """
        return cast(T, share(self._nodes, thing, name))

    def history(self, thing: T, model: Callable[[], object], *, key: str = "") -> T:
        """Wrap what clients call, and check that their calls could have come one after the other: that it is linearizable.

        Each call of a method that the model has is recorded. At the end of the run there must be an
        order of all calls in which the model does what they have done: each takes effect between
        its begin and its end. What a client that died was calling, or what an error of `locks` has
        ended, may have taken effect or not.

        Args:
            thing: What clients call: an object, or a module.
            model: A class, or a function that makes a new model: it has the same methods, for one
                client alone.
            key: The name of a parameter that all methods have, if calls with different ones have
                nothing to do with each other. Each key has a model of its own then, which makes
                long histories quick to check.

        Returns:
            The thing, wrapped: give this to the clients.
        """
        history = History(self._nodes, thing, model, key)
        self._histories.append(history)
        return cast(T, Recorded(history))

    def sleep(self, seconds: float = 0.0) -> None:
        """Let a client sleep by the virtual clock: its `time.sleep`. A coroutine uses `asyncio.sleep`."""
        if not is_seconds(seconds):
            raise InvalidOption(f"{shown(seconds)} is not a number of seconds >= 0")
        self._application.sleep(seconds, says_so=True)

    def kill(self, client: Client | pykka.ActorRef[Any]) -> None:
        """Let a client die, as a greenlet that is killed: `GreenletExit` is raised where it is. A task is cancelled.

        Its transactions end with it. Whether it has died of that is in `client.killed`.

        Args:
            client: The client; or an actor that a client has started, such as an instance of an
                election.
        """
        if isinstance(client, pykka.ActorRef):
            kill(client)
        else:
            self._application.kill(client)

    def cut(self, node: str, *others: str) -> None:
        """Cut the connections between a node and others, or all others if none are named, until `mend`.

        What is on its way is lost. Each node notices at a moment of its own, sooner or later. What
        is cut before the run is so from its beginning.
        """
        for pair in self._pairs("cut", node, others):
            self._application.change(("cut", pair))

    def mend(self, node: str, *others: str) -> None:
        """Let a node be connected again with others, or all others, that it was cut off from; it is after a while."""
        for pair in self._pairs("mend", node, others):
            self._application.change(("mend", pair))

    def crash(self, node: str) -> None:
        """Let a node crash: its lock table is lost, and its clients are gone. The others notice sooner or later."""
        self._check_several("crash")
        self._check_node(node)
        self._application.change(("crash", node))

    def restart(self, node: str) -> None:
        """Start a node again that has crashed, with an empty lock table; clients may be added to it from then on."""
        self._check_several("restart")
        self._check_node(node)
        self._application.change(("restart", node))

    @property
    def time(self) -> float:
        """Now, in seconds of virtual time since the beginning."""
        return self._application.time

    @property
    def trace(self) -> list[str]:
        """What the clients did, and what became of it, in lines."""
        return [str(note) for note in self._application.notes]

    @property
    def deadlocks(self) -> list[Deadlock]:
        """The deadlocks that were resolved."""
        return self._application.deadlocks

    @property
    def summary(self) -> Summary:
        """What has happened how often."""
        aborts = sum(report.action == "aborted" for report in self.deadlocks)
        return Summary.of(
            self._application.seen,
            aborts,
            sum(node.counters.timeouts for node in self._nodes.by_name.values()),
        )

    @property
    def schedule(self) -> str:
        """Which client has gone on when: what `Simulation(schedule=...)` takes."""
        return str(self._as_script)

    def diagram(self) -> str:
        """What has happened, as a sequence diagram: text for Mermaid."""
        return diagram(self._application.notes, self._homes())

    def _homes(self) -> dict[str, str]:
        """The clients, and their nodes; a single node has no name for people."""
        alone = len(self._nodes.names) == 1
        return {each.name: "" if alone else each.node for each in self._application.clients}

    # --- For callers that run many

    @classmethod
    def _one_of_many(cls, *args: Any, **options: Any) -> Simulation:
        made = cls(*args, **options)
        made._is_one_of_many = True
        return made

    def _try(self, scenario: Callable[[Simulation], object], patch: bool) -> None:
        """Run a scenario with it."""
        __tracebackhide__ = True
        with self.patched() if patch else nullcontext():
            scenario(self)

    @property
    def _as_script(self) -> schedules.Script:
        if self._agenda is None:
            return schedules.Script(())
        if self._script is not None:
            return self._script._replace(steps=self._agenda.taken)
        strategy = self._agenda.strategy
        exact = schedules.SOON if strategy.prompt else schedules.LATE
        return schedules.Script(
            self._agenda.taken, (), schedules.EXACT if strategy.at_once else exact
        )

    @property
    def _states(self) -> list[State]:
        return self._agenda.states if isinstance(self._agenda, Chosen) else []

    @property
    def _has_run(self) -> bool:
        return self._agenda is not None

    def _check_ran(self) -> None:
        __tracebackhide__ = True
        if self._has_run:
            return
        if self._application.clients:
            raise MisuseError("the simulation was given clients, but was not run")
        raise MisuseError(
            "the simulation was given no client, so nothing was tested: call simulation.client() for each, and "
            "simulation.run()"
        )

    def _explain(self, error: BaseException, head: str = "") -> None:
        """Add to an error how it came about and how to see it again."""
        _add_note(error, self._story(head))

    def _story(self, head: str = "") -> str:
        drawn = f"seed={self.seed}, which brings it about again"
        if self._script is not None:
            drawn = f'schedule="{self.schedule}"'
        return "\n".join(
            [
                f"in a simulation with {head or drawn}:",
                *story(self._application.notes, self._homes()),
            ]
        )

    @contextmanager
    def _seeing_threads(self) -> Iterator[None]:
        """Within a block, let errors in threads of clients, and threads left behind, fail the run."""
        before, hook = set(threading.enumerate()), threading.excepthook

        def on_error(args: threading.ExceptHookArgs) -> None:
            if args.thread in before or args.exc_value is None:
                hook(args)
            else:
                name = "?" if args.thread is None else args.thread.name
                _add_note(args.exc_value, f"in thread {name}, which a client has begun")
                self._application.fail(args.exc_value)

        threading.excepthook = on_error
        try:
            yield
        finally:
            threading.excepthook = hook
        self._application.check()
        left = [t for t in threading.enumerate() if t not in before and not t.daemon]
        if left:
            raise MisuseError(
                f"thread {left[0].name}, which a client has begun, still runs when all clients have ended, and nobody "
                "would see what becomes of it: join it, or make it a daemon thread"
            )


def _called(name: str, function: Callable[..., Any], *args: Any) -> Any:
    """Run a client's function."""
    found = function(*args)
    if inspect.iscoroutine(found):
        found.close()
        raise MisuseError(
            f"client {name} has made a coroutine that nobody awaits, so nothing of it was done: give the `async def` function "
            "itself to simulation.client(), with its arguments"
        )
    return found


def _is_async(function: Any) -> bool:
    """Whether calling it makes a coroutine, as can be seen."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 it is known to be callable
    )


def _name_of(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", "client")


def _checked_seed(seed: object) -> int:
    if not isinstance(seed, int):
        raise InvalidOption(f"seed={seed!r} is not a whole number", value=repr(seed))
    return seed


def check_names(nodes: object) -> tuple[str, ...]:
    """The names of a simulation's nodes, from their number or their names.

    Raises:
        InvalidOption: They are no names.
    """
    if nodes == 1:
        return (ALONE,)
    if isinstance(nodes, int):
        if nodes < 1:
            raise InvalidOption(f"nodes={nodes!r} is not a number >= 1", value=repr(nodes))
        return node_names(nodes)
    names = check_nodes(nodes)
    for name in names:
        if re.search(r"[\s,]", name):
            raise InvalidOption(
                f"node {shown(name)} has white space or a comma in its name", node=name
            )
    return names


def _for_users(error: BaseException) -> TracebackType | None:
    """Where the user's code was; the whole way if it is an error of our code that should never come up."""
    trace = last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is not None and is_inner(last.tb_frame) and not isinstance(error, EXPECTED):
        return trace
    return without_inner(trace) or trace


def _add_note(error: BaseException, note: str) -> None:
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:
        logger.error("%r %s", error, note)
