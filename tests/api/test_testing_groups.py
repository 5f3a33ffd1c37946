"""`locks.testing`: process groups, and actors as their members, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pykka
import pytest

import locks
from locks import groups
from locks.ownership import Ownership
from locks.testing import Simulation, Violation, simulate


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


def test_coroutines_may_begin_actors() -> None:
    """What a task begins is simulated as well; others go on while it waits for an answer."""

    def scenario(simulation: Simulation) -> None:
        async def serve() -> None:
            groups.join("printers", Printer.start())
            await asyncio.sleep(3600)

        async def ask() -> int:
            await asyncio.sleep(60)
            (printer,) = groups.members("printers")
            with Ownership("x", 4) as mine:
                await asyncio.sleep(60)
                assert len(mine.owned()) == 4
            return int(printer.ask("a page", timeout=5))

        simulation.client(serve)
        asking = simulation.client(ask)
        simulation.run()
        assert asking.value == 1

    simulate(scenario, 20)


def test_what_actors_share_is_seen() -> None:
    """Two actors that count in shared state without a lock are found."""

    class Counting(locks.actors.GeventActor):
        def on_receive(self, message: Any) -> None:
            message["sum"] += 1

    def scenario(simulation: Simulation) -> None:
        counts = simulation.shared({"sum": 0}, "counts")

        def work() -> None:
            for actor in [Counting.start(), Counting.start()]:
                actor.tell(counts)

        simulation.client(work)
        simulation.run()

    with pytest.raises(Violation, match=r"by Counting-\d at .*; it was \w+ by Counting-\d"):
        simulate(scenario, 3)


def test_an_answer_is_waited_for_in_virtual_time() -> None:
    """`ask` has its timeout in virtual time."""

    class Slow(locks.actors.GeventActor):
        def on_receive(self, message: Any) -> None:
            simulations[-1].sleep(7200)

    simulations: list[Simulation] = []

    def scenario(simulation: Simulation) -> None:
        simulations.append(simulation)

        def work() -> None:
            slow = Slow.start()
            groups.join("slow", slow)
            with pytest.raises(pykka.Timeout):
                slow.ask("x", timeout=3600)
            assert 3600 <= simulation.time < 3601

        simulation.client(work)
        simulation.run()

    simulate(scenario, 3)


class Threaded(pykka.ThreadingActor):
    use_daemon_thread = True

    def on_receive(self, message: Any) -> Any:
        """Say the same."""
        return message


def test_actors_of_threads_are_simulated_where_threads_are() -> None:
    """With `patch=True` they are members; without, they are refused by name, and nothing has changed."""

    def scenario(simulation: Simulation) -> None:
        def work() -> None:
            actor = Threaded.start()
            try:
                groups.join("x", actor)
                assert actor.ask("y", timeout=3600) == "y"
                actor.stop()
                simulation.sleep(10)
            finally:
                actor.stop()
                members.append(groups.members("x"))

        simulation.client(work)
        simulation.run()

    members: list[list[Any]] = []
    simulate(scenario, 5, patch=True)
    with pytest.raises(locks.MisuseError, match=r"Threaded .* is not simulated: it was not begun"):
        simulate(scenario, 1)
    assert members == [[]] * len(members)


def test_actors_from_outside_are_refused() -> None:
    """One that runs in the program's own hub is no member of a simulated group."""
    outside = Printer.start()

    def scenario(simulation: Simulation) -> None:
        for function in (groups.join, groups.monitor):
            simulation.client(function, "x", outside)
            simulation.run()

    try:
        with pytest.raises(locks.MisuseError, match="is not simulated"):
            simulate(scenario, 1)
    finally:
        outside.stop()


def test_another_node_is_refused() -> None:
    """A worker of a node that is not simulated would wait for ever."""
    node = locks.node.Node("elsewhere@localhost")

    def scenario(simulation: Simulation) -> None:
        simulation.client(Ownership("x", 4, node=node).join)
        simulation.run()

    try:
        with pytest.raises(locks.MisuseError, match="can't call a node that is not simulated"):
            simulate(scenario, 1)
    finally:
        node.stop()


def test_nothing_is_left_of_a_run() -> None:
    """Actors that nobody stops end with the run, whether it fails or not."""

    class Printer(locks.actors.GeventActor):
        pass

    def scenario(simulation: Simulation, error: Exception | None) -> None:
        def work() -> None:
            groups.join("x", Printer.start())
            with Ownership("x", 4):
                simulation.sleep(1)
                Printer.start()
                if error is not None:
                    raise error

        simulation.client(work)
        simulation.client(Ownership("x", 4).join)
        simulation.run()

    before = pykka.ActorRegistry.get_all()
    simulate(lambda simulation: scenario(simulation, None), 5)
    with pytest.raises(ZeroDivisionError):
        simulate(lambda simulation: scenario(simulation, ZeroDivisionError()), 5)
    assert pykka.ActorRegistry.get_all() == before


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
