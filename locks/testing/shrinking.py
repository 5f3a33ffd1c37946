"""The shortest failure: fewer clients, fewer switches between them, fewer steps.

A failed run is repeated by its schedule (`locks_lab.applications.agenda.Chosen`). If it fails in
the same way, shorter runs are tried: without some of the clients, then without some of the
stretches in which a client runs. A failure is the same if it is an error of the same type, raised
at the same line; a violation has to be of the same kind, too, and a forgotten release one of the
same line. Nobody may die who has not died in the first run, and if clients die, all clients that
survived the first run survive the shorter one. A failure that happens only because the client that
would prevent it has died is another failure.

A scenario may fail just because one of its clients is left out: `assert stock == 1` fails if one of
two orders is missing. So a client is left out only if the scenario passes without it when clients
run one after the other, in their order and in the opposite order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import groupby
from types import TracebackType
from typing import NamedTuple

from locks.testing.node import Leak
from locks.testing.schedules import Script
from locks.testing.simulation import Simulation
from locks_lab.applications.places import Place, of_frame
from locks_lab.applications.strategies import Step
from locks_lab.worlds.host import Violation

__all__ = ["Found", "Scenario", "shortest"]

Scenario = Callable[[Simulation], object]

MOST_RUNS, MOST_EVENTS = 300, 60_000  # in all of them


class Found(NamedTuple):
    """A run that fails.

    Attributes:
        simulation: The run.
        error: Its error.
    """

    simulation: Simulation
    error: Exception

    @property
    def size(self) -> tuple[int, int, int]:
        """How large it is: clients, switches, steps."""
        script = self.simulation._as_script
        return (-len(script.without), script.switches, len(script.steps))

    def words(self, before: Simulation) -> str:
        """How it was found."""
        script, first = self.simulation._as_script, before._as_script
        clients = len(before._application.clients)
        left = clients - len(script.without)
        faults = f", {script.faults} of {first.faults} faults" if first.faults else ""
        return (
            f"seed={before.seed}, which brings it about again; the shortest way that was found has {left} of {clients} clients, "
            f"{script.switches} of {first.switches} switches between them{faults} and {len(script.steps)} of {len(first.steps)} steps, "
            f'schedule="{script}"'
        )


def shortest(
    scenario: Scenario, simulation: Simulation, error: Exception, patch: bool = False
) -> Found | None:
    """The shortest found run that fails in the same way; `None` if the run itself does not fail again."""
    search = _Search(scenario, simulation, error, patch)
    found = search.fails(simulation._as_script)
    if found is None:
        return None
    found = search.fails(found.simulation._as_script.plain) or found
    for client in reversed(simulation._application.clients):
        found = search.without(found, client.number) or found
    return search.fewer_switches(found)


class _Search:
    """Runs a scenario again."""

    def __init__(
        self, scenario: Scenario, first: Simulation, error: Exception, patch: bool
    ) -> None:
        self._scenario, self._nodes, self._patch = scenario, first._nodes.names, patch
        self._left, self._killed = _left(first), _killed(first)
        self._kind = _kind_of(error)
        self._runs, self._events = MOST_RUNS, MOST_EVENTS

    def run_script(self, script: Script) -> Found | Simulation | None:
        """Run a schedule; return the failure, or the simulation if it passes."""
        if not self.has_time:
            return None
        simulation = Simulation._one_of_many(nodes=self._nodes, schedule=str(script))
        try:
            simulation._try(self._scenario, self._patch)
        except Exception as error:
            return Found(simulation, error)
        finally:
            self._runs -= 1
            self._events -= simulation._application.events
        return simulation

    @property
    def has_time(self) -> bool:
        """Whether the search may continue."""
        return self._runs > 0 and self._events > 0

    def fails(self, script: Script) -> Found | None:
        """The run of a schedule, if it fails in the same way."""
        found = self.run_script(script)
        if not isinstance(found, Found) or not found.simulation._has_run:
            return None
        same = _kind_of(found.error) == self._kind and _killed(found.simulation) <= self._killed
        # Clients that died may be missing. Clients that did not die must all be there, and alive.
        dead = found.simulation._as_script.dead
        return found if same and not (dead and self._left - _left(found.simulation)) else None

    def without(self, found: Found, number: int) -> Found | None:
        """It without a client, if it fails by its schedule."""
        before = found.simulation._as_script
        without = (*before.without, number)
        steps = [each for each in before.steps if each not in (number, f"d{number}")]
        shorter = self.fails(before._replace(steps=steps, without=tuple(sorted(without))))
        if shorter is None:
            return None
        last_first = range(found.simulation._application.made, 0, -1)
        for order in ((), [n for n in last_first for _ in range(len(steps))]):
            if not isinstance(
                self.run_script(Script(order, shorter.simulation._as_script.without)), Simulation
            ):
                return None
        return shorter

    def fewer_switches(self, found: Found) -> Found:
        """It with fewer stretches, as long as that is possible."""
        script = found.simulation._as_script
        stretches = _stretches(script.steps)
        size = max(1, len(stretches) // 2)
        while stretches and self.has_time:
            shortened = False
            at = 0
            while at < len(stretches) and self.has_time:
                rest = stretches[:at] + stretches[at + size :]
                shorter = self.fails(script._replace(steps=[n for each in rest for n in each]))
                if shorter is not None and shorter.size <= found.size:
                    found, stretches, shortened = shorter, rest, True
                else:
                    at += size
            if size == 1 and not shortened:
                break
            size = max(1, size // 2)
        return found


def _left(simulation: Simulation) -> frozenset[int]:
    """The numbers of the clients that exist and are not killed."""
    script = simulation._as_script
    clients = frozenset(each.number for each in simulation._application.clients)
    return clients - script.dead - frozenset(script.without)


def _killed(simulation: Simulation) -> frozenset[int]:
    """The numbers of the clients that have died, by whatever means."""
    return frozenset(each.number for each in simulation._application.clients if each.killed)


def _kind_of(error: Exception) -> tuple[object, ...]:
    """What is equal for failures that are the same: the type, the place, and of a violation what was violated."""
    what: object = error.place if isinstance(error, Leak) else None
    if type(error) is Violation:
        what = re.split(r"[:\d]", str(error), maxsplit=1)[0]  # without names and numbers
    return type(error), _place_of(error.__traceback__), what


def _stretches(steps: Sequence[Step]) -> list[list[Step]]:
    return [list(same) for _, same in groupby(steps)]


def _place_of(trace: TracebackType | None) -> Place | None:
    """The place of an error: the innermost line of the user's code."""
    found = None
    while trace is not None:
        place = of_frame(trace.tb_frame)
        if place is not None and place.file == trace.tb_frame.f_code.co_filename:
            found = place._replace(line=trace.tb_lineno)
        trace = trace.tb_next
    return found
