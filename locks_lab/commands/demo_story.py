"""One deadlock in slow motion, told from the messages of the machines: a world of the simulator."""

from __future__ import annotations

from collections.abc import Iterator

from locks_lab.stories.formatter import Formatter
from locks_lab.worlds.events import Event
from locks_lab.worlds.world import World

__all__ = ["tell_story"]

WANTS = {"Alice": ("red", "green"), "Bob": ("green", "blue"), "Carol": ("blue", "red")}


def tell_story() -> Iterator[str]:
    """Run three clients into a deadlock; yield the lines of the story."""
    scripts = [f"write {first}; write {second}" for first, second in WANTS.values()]
    world = World(scripts, trace=True)
    clients = dict(zip(WANTS, world.clients, strict=True))
    names = {client.ref: name for name, client in clients.items()}
    formatter = Formatter(names.__getitem__, at_once=True)

    def step(name: str) -> Iterator[str]:
        events: list[Event] = []
        world.events = events
        world.step(clients[name].number)
        world.deliver()
        for line in formatter.lines(mail for event in events for mail in event.sent):
            yield f"  {line}"

    yield "One deadlock in slow motion"
    yield "Alice is the oldest, Carol the youngest. Each takes one lock, then requests a second one."
    yield ""
    for name, (first, _) in WANTS.items():
        yield f"{name} begins and takes {first}."
        yield from step(name)
    for name, (_, second) in WANTS.items():
        yield ""
        yield f"{name} now requests {second} as well, and has to wait for it."
        yield from step(name)
    yield ""
    yield "There is no coordinator: the agents have found and resolved the deadlock themselves."
    while ready := [name for name, client in clients.items() if client.ready]:
        yield ""
        yield f"{ready[0]} now holds both locks, uses them, and ends."
        yield from step(ready[0])
    yield ""
    yield "Every client got both locks. One lock was given up once; no client had to start again."
