"""`locks.testing`: process groups, and actors as their members, in virtual time."""

from __future__ import annotations

from typing import Any

import locks
from locks import groups
from locks.testing import Simulation, simulate


class Printer(locks.actors.GeventActor):
    """Counts its pages."""

    def __init__(self) -> None:
        super().__init__()
        self.pages = 0

    def on_receive(self, message: Any) -> int:
        """A page, or the question how many there were."""
        if message == "a page":
            self.pages += 1
        return self.pages


def test_groups_have_members() -> None:
    """Actors join, are told, leave and end; what a monitor is told is what has changed, in order."""

    def scenario(simulation: Simulation) -> None:
        news: list[object] = []

        def work() -> None:
            one, two = Printer.start(), Printer.start()
            assert groups.monitor("printers", news.append).members == []
            groups.join("printers", one, two)
            for printer in groups.members("printers"):
                printer.tell("a page")
            assert one.ask("how many") == two.ask("how many") == 1
            assert groups.which_groups() == ["printers"]
            assert groups.leave("printers", two)
            one.stop()
            simulation.sleep(1)
            assert groups.members("printers") == []
            assert news == [
                groups.Joined("printers", [one, two]),
                groups.Left("printers", [two]),
                groups.Left("printers", [one]),
            ]

        simulation.client(work)
        simulation.run()

    simulate(scenario, 20)


def test_a_member_that_is_killed_leaves() -> None:
    """Clients see the same members as the monitor tells of, whenever an actor dies."""

    def scenario(simulation: Simulation) -> None:
        known: list[Any] = []

        def watch() -> None:
            def told(news: groups.Joined | groups.Left) -> None:
                for member in news.members:
                    (known.append if isinstance(news, groups.Joined) else known.remove)(member)

            known.extend(groups.monitor("printers", told).members)
            simulation.sleep(100)
            assert known == groups.members("printers") == survivors

        def serve(name: str) -> None:
            printer = Printer.start()
            groups.join("printers", printer)
            simulation.sleep(10)
            if name == "short":
                locks.actors.kill(printer)
            else:
                survivors.append(printer)
            simulation.sleep(100)

        survivors: list[Any] = []
        simulation.client(watch)
        for name in ("short", "long"):
            simulation.client(serve, name)
        simulation.run()

    simulate(scenario, 30)


def test_the_end_of_a_client_is_told_to_its_monitors() -> None:
    """Whether it ends by itself or is killed, at the moment when it does."""

    def scenario(simulation: Simulation) -> None:
        told: list[Any] = []

        def watch() -> None:
            for client in (ends, dies):
                locks.actors.monitor(
                    client, lambda down: told.append((down.subject, simulation.time))
                )
            simulation.sleep(2)
            simulation.kill(dies)
            simulation.sleep(2)

        ends = simulation.client(simulation.sleep, 1)
        dies = simulation.client(simulation.sleep, 9)
        simulation.client(watch)
        simulation.run()
        assert [subject for subject, _ in told] == [ends, dies]
        assert [round(at) for _, at in told] == [1, 2]

    simulate(scenario, 20)
