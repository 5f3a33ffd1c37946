"""Run an application's own code under seeded schedules, deaths and virtual time.

    from locks.testing import Simulation

    simulation = Simulation(seed=17)
    simulation.client(transfer, "ann", "bob")
    simulation.client(transfer, "bob", "ann")
    simulation.run()

The modules, from the bottom up: `spawned` has the greenlets of actors that clients start; `owning`
checks which workers work on which resources; `node` puts the product's own node and agents on
`locks_lab.applications.application`; `nodes` has all nodes of a simulation; `watchdog` reports
where a hanging run hangs; `story` describes a run; `simulation` is one run, and `scenarios` many of
them, with the shortest failure found by `shrinking`. `locks_pytest` is the plugin for pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locks.runtime.first_use import at_first_use

if TYPE_CHECKING:
    from locks.testing.scenarios import Summary, seeds, simulate
    from locks.testing.simulation import Simulation
    from locks_lab.applications.application import Client, Violation

__all__ = ["Client", "Simulation", "Summary", "Violation", "seeds", "simulate"]

_get, __dir__ = at_first_use(
    "locks.testing",
    __all__,
    together=(
        "locks.testing.scenarios",
        "locks.testing.simulation",
        "locks_lab.applications.application",
    ),
)

if not TYPE_CHECKING:
    __getattr__ = _get
