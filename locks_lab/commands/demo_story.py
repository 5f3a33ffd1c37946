"""One deadlock in slow motion, told from the messages that are actually sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gevent
from gevent.event import Event

import locks
from locks.cli.alone import alone
from locks.model import AgentId
from locks_lab.stories.formatter import Formatter
from locks_lab.worlds.host import Mail
from locks_lab.worlds.network import Party

__all__ = ["tell_story"]


class _Listener:
    """Collects the messages of a real node, and tells them as a story."""

    def __init__(self) -> None:
        self.names: dict[AgentId, str] = {}
        self.heard: list[Mail] = []
        self.formatter = Formatter(self.names.__getitem__, at_once=True)

    def hear(self, sender: Any, receiver: Any, message: Any) -> None:
        """Take a message from one actor to another."""
        self.heard.append((_party(sender), _party(receiver), message))

    def tell(self) -> Iterator[str]:
        """Tell the messages since the last call."""
        heard, self.heard = self.heard, []
        for line in self.formatter.lines(heard):
            yield f"  {line}"


def _party(actor: Any) -> Party:
    """An agent's reference, or the node of a lock server."""
    party: Party = actor.id if isinstance(actor, locks.actors.Agent) else actor.node.name
    return party


def tell_story() -> Iterator[str]:
    """Run three clients into a deadlock on a node of their own; yield the lines of the story.

    The calling program must run in a gevent hub.
    """
    listener = _Listener()
    with alone("story@localhost", listener.hear):
        yield from _story(listener)


def _story(listener: _Listener) -> Iterator[str]:
    wants = {"Alice": ("red", "green"), "Bob": ("green", "blue"), "Carol": ("blue", "red")}
    turns = {(name, step): Event() for name in wants for step in range(3)}
    done: dict[str, Event] = {name: Event() for name in wants}

    def client(name: str, first: str, second: str) -> None:
        current = gevent.getcurrent()
        assert isinstance(current, gevent.Greenlet)
        current.name = name
        turns[name, 0].wait()
        with locks.transaction(on_deadlock="surrender") as tx:
            listener.names[tx.agent.id] = name
            tx.lock((first,))
            turns[name, 1].wait()
            tx.lock((second,))
            done[name].set()
            turns[name, 2].wait()

    greenlets = {name: gevent.spawn(client, name, *want) for name, want in wants.items()}

    def step(name: str, number: int) -> Iterator[str]:
        turns[name, number].set()
        gevent.sleep(0)
        gevent.sleep(0)
        yield from listener.tell()

    yield "One deadlock in slow motion"
    yield "Alice is the oldest, Carol the youngest. Each takes one lock, then requests a second one."
    yield ""
    for name, (first, _) in wants.items():
        yield f"{name} begins and takes {first}."
        yield from step(name, 0)
    for name, (_, second) in wants.items():
        yield ""
        yield f"{name} now requests {second} as well, and has to wait for it."
        yield from step(name, 1)
    yield ""
    yield "There is no coordinator: the agents have found and resolved the deadlock themselves."
    finished: list[str] = []
    while len(finished) < len(wants):
        name = next(n for n in wants if done[n].is_set() and n not in finished)
        finished.append(name)
        yield ""
        yield f"{name} now holds both locks, uses them, and ends."
        turns[name, 2].set()
        greenlets[name].join()
        gevent.sleep(0)
        yield from listener.tell()
    yield ""
    yield "Every client got both locks. One lock was given up once; no client had to start again."
