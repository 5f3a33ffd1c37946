"""Clients that run concurrently in virtual time, scheduled by a seed.

A client is a function in its own greenlet. It runs until it calls `locks`. There the scheduler
chooses which client continues. The call returns when the client is chosen again, when its answer
has arrived, when it has timed out, or to let it die. Everything that a client does between two such
calls is one step. Greenlets that clients start, such as those of actors, are *helpers*: they are
scheduled like clients.

Every event has a virtual time, drawn from the seed, and an agenda (`locks_lab.applications.agenda`)
keeps the events in order. So no real time passes, and the same seed gives the same run. A strategy
decides who is first (`locks_lab.applications.strategies`).

The functions that clients call are in `locks_lab.applications.application`.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet

from locks.errors import MisuseError
from locks_lab.applications.agenda import Agenda
from locks_lab.applications.breaking import death_of
from locks_lab.applications.greenlets import Client, Note
from locks_lab.applications.places import Place, is_within_finaliser, of_frame
from locks_lab.applications.strategies import CLIENTS, STEP, Unhurried
from locks_lab.worlds.host import Violation

if TYPE_CHECKING:
    from typing_extensions import TypeVarTuple, Unpack

    Ts = TypeVarTuple("Ts")

__all__ = ["MESSAGE", "TICK", "Stage"]

MESSAGE = 0.001  # mean time until a message arrives, in seconds of virtual time; some take SLOW times as long
NOT_A_CLIENT = "only a client of the simulation can wait in it, while it runs; what is notified of something can't"
TICK = 1e-6  # seconds that a sleep takes longer than it has to, at least
DEATH_RATES = -3.0, -1.0  # how likely each event brings a death, as a power of 10 between these
FAULT_RATES = -2.5, -0.5  # likewise, a connection or node that breaks or is mended
# Among actors so many times less likely: until they have found each other there are many events.
AMONG_ACTORS = 4


class Stage:
    """Clients, and their planned events.

    Attributes:
        time: The current virtual time, in seconds.
        running: The client that runs now.
        notes: The actions of clients, and their results.
        seen: How often each kind of event has happened.
        events: The number of events so far.
        guards: Other locks that clients hold.
        made: The number of clients, including helpers and those that are left out.
        speaker: The client that has just sent something to another node.
        closing: Whether the run is over, and the remaining clients must leave.
        may: How many more faults may be drawn: `"deaths"`, `"cuts"`, `"crashes"`.
    """

    def __init__(self) -> None:
        self.time = 0.0
        self.clients: list[Client] = []
        self.running: Client | None = None
        self.notes: list[Note] = []
        self.seen: Counter[str] = Counter()
        self.guards: dict[Client, list[object]] = {}
        self.may: Counter[str] = Counter()
        self.events = self.made = 0
        self._agenda = Agenda(Unhurried(random.Random(0)))
        self._rng = random.Random()
        self._main: greenlet | None = None
        self.closing = False
        self.speaker: Client | None = None
        self._helpers: list[Client] = []
        self._failure: BaseException | None = None

    def _enter(self, node: str) -> None:
        """From now on, calls are made on this node."""
        raise NotImplementedError

    def _client_ended(self, client: Client) -> None:
        """A client has ended; its transactions end with it."""
        raise NotImplementedError

    def _begun(self) -> None:
        """The run begins; its clients exist."""
        raise NotImplementedError

    def _breaks(self) -> list[str]:
        """The faults other than deaths of clients, and their repairs, that may be drawn now, as steps."""
        raise NotImplementedError

    def _break(self, step: str) -> None:
        """It does."""
        raise NotImplementedError

    def _repair(self) -> bool:
        """Repair drawn faults if clients wait and no event is left; returns whether there were any."""
        raise NotImplementedError

    def _why_stuck(self) -> list[str]:
        """Lines that explain why clients wait that will never continue."""
        raise NotImplementedError

    def _check_left(self) -> None:
        """All clients have ended: nothing must be left of them."""
        raise NotImplementedError

    @property
    def at_once(self) -> bool:
        """Whether all that follows from a call has happened when it returns."""
        return self._agenda.strategy.at_once

    # --- Running

    def client(
        self, name: str, function: Callable[[Unpack[Ts]], Any], args: tuple[Unpack[Ts]], node: str
    ) -> Client:
        """Add a client to a node, at any time."""
        if self.closing:
            raise MisuseError("the simulation has run; it can't have another client")
        client = self._numbered(Client(name, function, args, node))
        self.clients.append(client)
        if self._main is not None:
            self._start(client)
        return client

    def help(self, client: Client) -> None:
        """Start a helper: nobody kills it, or waits for its end."""
        self._helpers.append(self._numbered(client))
        self._start(client)

    def unused_name(self, name: str) -> str:
        """A name, followed by a number if it is already used."""
        used = {each.name for each in (*self.clients, *self._helpers)}
        numbered = (f"{name} {number}" for number in range(2, len(used) + 3))
        return next(each for each in (name, *numbered) if each not in used)

    def left_out(self, name: str) -> Client:
        """In the place of a client that is not to be there."""
        return self._numbered(Client(name, print, (), ""))

    def _numbered(self, client: Client) -> Client:
        self.made += 1
        client.number = self.made
        return client

    def run(self, agenda: Agenda, rng: random.Random, limit: int, may: Mapping[str, int]) -> None:
        """Run until all clients have ended.

        Args:
            agenda: Decides what happens next.
            rng: The source of all other choices.
            limit: The largest number of events.
            may: How many faults of each kind may be drawn.

        Raises:
            Violation: A check failed.
        """
        self._agenda = agenda
        self._rng = rng
        self._main = getcurrent()
        self.may.update(may)
        if any(may.values()):
            agenda.faults = self
        rates = [10 ** rng.uniform(*DEATH_RATES)]  # soon in some runs, late in others
        if may["cuts"] or may["crashes"]:
            rates.append(10 ** rng.uniform(*FAULT_RATES))
        try:
            for client in self.clients:
                self._start(client)
            self._begun()
            while True:
                entry = agenda.take(self.time)
                if entry is None and (self._repair() or self._see_off()):
                    continue
                if entry is None:
                    break
                if entry.due > self.time:
                    self.time = entry.due
                if agenda.draws_faults and agenda.faults is not None:
                    self._draw_faults(rates)
                self.speaker = None
                entry.function(*entry.args)
                self.check()
                self.events += 1
                if self.events > limit:
                    raise Violation(f"no end after {limit} events")
            self._check_end()
        finally:
            self._close()

    def _see_off(self) -> bool:
        """All clients have ended: so have the actors that they have left; returns whether there are some."""
        if any(not client.dead for client in self.clients):
            return False
        told = [helper for helper in self._helpers if not helper.dead and helper.leave()]
        return bool(told)

    def _draw_faults(self, rates: Sequence[float]) -> None:
        """Something may break just now."""
        for rate, possible in zip(rates, (self._deaths, self._breaks), strict=False):
            steps = possible()
            if possible == self._breaks and steps and self._helpers:
                steps, rate = self._among_actors(steps, rate)
            if steps and self._rng.random() < rate:
                step = self._rng.choice(steps)
                self._agenda.fault(step)
                self.happen(step)

    def _among_actors(self, steps: list[str], rate: float) -> tuple[list[str], float]:
        """Faults where there are actors: often in the middle of what one says to other nodes, once there is a leader."""
        if rate > 10 ** (sum(FAULT_RATES) / 2):
            return steps, rate / AMONG_ACTORS
        speaker = self.speaker
        if speaker is None or not speaker.is_helper or not self.seen["elections"]:
            return [], rate
        return [step for step in steps if speaker.node in step.replace(":", ",").split(",")], rate

    def possible(self) -> list[str]:
        """The faults and repairs that may be drawn now, as steps."""
        return self._deaths() + self._breaks()

    def happen(self, step: str) -> None:
        """It does."""
        number = death_of(step)
        if number is None:
            self._break(step)
            return
        self.may["deaths"] -= 1
        self.kill(next(client for client in self.clients if client.number == number))

    def _deaths(self) -> list[str]:
        if not self.may["deaths"]:
            return []
        return [f"d{each.number}" for each in self.clients if not (each.dead or each.killed)]

    def _start(self, client: Client) -> None:
        assert self._main is not None
        client.parent = self._main
        self._agenda.strategy.begin(client)
        self.ready(client)

    def _close(self) -> None:
        """Make the remaining clients and helpers leave; they cannot wait any more."""
        self.closing = True
        for client in (*self.clients, *self._helpers):
            if not client.dead:
                self._take_out(client)
        self._agenda.clear()

    def _take_out(self, client: Client) -> None:
        """Make a client leave at once; ignore its errors: the run or its node is over."""
        client.fatal = GreenletExit()
        with contextlib.suppress(Exception):
            self._switch(client)

    @property
    def leaving(self) -> bool:
        """Whether the running client must leave, and cannot wait any more."""
        return self.closing or (self.running is not None and self.running.gone)

    def _check_end(self) -> None:
        waiting = [client.name for client in self.clients if not client.dead]
        if not waiting:  # an actor that is left waits in a callback
            waiting = [
                each.name for each in self._helpers if each.maker is not None and not each.dead
            ]
        if waiting:
            lines = [f"  {line}" for line in (*self._why_stuck(), *self.standing())]
            raise Violation("\n".join([f"stuck: {', '.join(waiting)}", *lines]))
        self._check_left()

    # --- What is going to happen

    def draw(self, number: int) -> int:
        """Draw a number from 0 to `number - 1`."""
        return self._agenda.draw(number, self._rng)

    def moment(self) -> float:
        """How late something is, in seconds."""
        return TICK + self._agenda.later(STEP)

    def _at(
        self, due: float, rank: float, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]
    ) -> None:
        self._agenda.plan(due, rank, function, args)

    def _resume_at(self, due: float, client: Client) -> None:
        self._agenda.plan(due, client.rank, self._resume, (client,), client)

    def soon(self, node: str, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> None:
        """Soon call a function on a node outside of any client, for example a notification."""
        if not self.closing:
            self._at(self.time, CLIENTS, self._call, node, function, args)

    def _call(
        self, node: str, function: Callable[[Unpack[Ts]], object], args: tuple[Unpack[Ts]]
    ) -> None:
        self._enter(node)
        function(*args)

    # --- Clients

    def ready(self, client: Client, seconds: float = 0.0) -> None:
        """Let a client continue after some seconds; others may be faster."""
        self._resume_at(self.time + seconds + self._agenda.strategy.delay(client), client)

    def _resume(self, client: Client) -> None:
        if client.gone:
            return
        client.resumed += 1
        self._switch(client)
        if client.dead and not client.is_helper:
            self.note(client.name, "is dead" if client.killed else "is done", matters=client.killed)
        if client.dead:
            due = self.time + self._agenda.strategy.later(MESSAGE)
            self._at(due, CLIENTS, self._client_ended, client)
            for helper in self._helpers if client.killed else ():
                if helper.maker is client and not (helper.dead or helper.killed):
                    self._doom(helper, GreenletExit())

    def _switch(self, client: Client) -> None:
        """Run a client until it calls the scheduler again, or ends."""
        fatal, client.fatal = client.fatal, None
        self.running = client
        self._enter(client.node)
        try:
            client.go_on(fatal)
        except BaseException as error:
            if not client.gone:
                self.note(client.name, f"raises {type(error).__name__}", matters=True)
            raise
        finally:
            self.running = None

    def caller(self) -> Client | None:
        """The calling client, or None if the call comes from outside of the clients.

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
        """The client that calls, directly or in a greenlet that it runs; None for any other caller."""
        within: greenlet | None = getcurrent() if self.running is not None else None
        while within is not None and within is not self.running:
            within = within.parent
        return None if within is None else self.running

    def is_here(self) -> bool:
        """Whether the caller belongs to the run: it is a client or a notification."""
        return self.here() is not None or getcurrent() is self._main

    def within(self) -> Client | None:
        """The calling client, which is about to wait; None if another thread or greenlet calls.

        Raises:
            MisuseError: A notification calls.
        """
        client = self.here()
        if client is None and getcurrent() is self._main:
            raise MisuseError(NOT_A_CLIENT)
        return client

    def pause(self) -> None:
        """Let others go first, if a client calls; not from a finaliser, which nothing can make leave."""
        client = None if self.leaving else self.caller()
        if client is not None and not is_within_finaliser(sys._getframe(1)):
            self.ready(client)
            self._park()

    def wait(self, seconds: float | None) -> None:
        """Make the calling client wait until it is resumed, at most for some seconds."""
        client = self._waiting_caller()
        if seconds is not None:
            self._resume_at(self.time + seconds, client)
        self._park()

    def sleep(self, seconds: float, says_so: bool = False) -> None:
        """Let the client that calls sleep.

        Args:
            seconds: How long.
            says_so: Whether the story tells it: the user's code has called.
        """
        client = self._waiting_caller()
        if says_so and seconds:
            self.note(client.name, f"sleeps {seconds:g} s", place=self.place(client))
        self._agenda.strategy.slept(client)
        self.ready(client, seconds + TICK if seconds else 0.0)
        self._park()

    def _waiting_caller(self) -> Client:
        if (client := self.caller()) is None:
            raise MisuseError(NOT_A_CLIENT)
        return client

    def _park(self) -> None:
        if self.leaving:
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
        """Raise an exception in a client, where it is; `GreenletExit` by default.

        The client dies soon, or at once if it calls this itself. Its actors die after it.
        """
        if client.dead or client.killed:
            return
        self.seen["deaths"] += 1
        self._doom(client, GreenletExit() if error is None else error)

    def _doom(self, client: Client, error: BaseException) -> None:
        client.killed = True
        self.note(client.name, "is killed", place=self.place(client), matters=True)
        if client is getcurrent():
            raise error
        client.fatal = error
        if self._main is not None:
            self.ready(client)

    # --- Notes

    def note(self, who: str, what: str, **more: Any) -> None:
        """Note an action or its result, unless the run is over."""
        if not self.closing:
            self.notes.append(Note(self.time, who, what, **more))

    def fail(self, error: BaseException) -> None:
        """Make the run fail, even if the error is caught; the first such error counts."""
        self._failure = self._failure or error

    def check(self) -> None:
        """Raise the error with which the run has failed, if it has."""
        if self._failure is not None:
            raise self._failure

    def place(self, client: Client) -> Place | None:
        """A client's position in the user's code."""
        current = getcurrent()
        if client is self.running and current is not self._main:
            return of_frame(sys._getframe(1))
        inner = client if client.parked is None else client.parked
        return of_frame(inner.gr_frame)

    def standing(self) -> list[str]:
        """The positions of the clients that have not ended, one line for each."""
        return [
            f"{client.name} {client.at(client is self.running, self.place(client))}"
            for client in self.clients
            if not client.dead
        ]

    @contextlib.contextmanager
    def _noticing(self) -> Iterator[None]:
        """A violation may come up within a client, whose code may catch it: keep it."""
        try:
            yield
        except Violation as violation:
            self.fail(violation)
            raise
