"""One deadlock in slow motion, told from the messages that are really sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gevent
from gevent.event import Event

import locks
from locks.messages import (
    Knowledge,
    Remove,
    Request,
    Resolved,
    Surrender,
    Surrendered,
    Told,
)
from locks.model import AgentId, RequestRecord, show

__all__ = ["tell_story"]


class _Teller:
    """Turns messages into sentences."""

    def __init__(self) -> None:
        self.names: dict[AgentId, str] = {}
        self.heard: list[tuple[Any, Any, Any]] = []
        self.told_before: set[object] = set()

    def hear(self, sender: Any, receiver: Any, message: Any) -> None:
        self.heard.append((sender, receiver, message))

    def tell(self) -> Iterator[str]:
        heard, self.heard = self.heard, []
        for sender, receiver, message in heard:
            for sentence in self.sentences(self.name(sender), self.name(receiver), message):
                yield f"  {sentence}"

    def name(self, actor: Any) -> str:
        return (
            self.names.get(actor.id) or str(actor)
            if isinstance(actor, locks.Agent)
            else "the lock server"
        )

    def fact(self, record: RequestRecord) -> str:
        verb = {"granted": "holds", "waiting": "waits for", "gone": "has let go of"}[record.state]
        return f"{record.client} {verb} {show(record.lock_id)}"

    def sentences(self, sender: str, receiver: str, message: Any) -> Iterator[str]:
        if isinstance(message, Request):
            yield f"{sender} asks for {message.mode} {show(message.lock_id)}."
        elif isinstance(message, Told):
            yield from self.told(receiver, message)
        elif isinstance(message, Knowledge) and message.records:
            facts = ", ".join(self.fact(record) for record in message.records)
            yield f"{sender} tells {receiver} what it knows: {facts}."
        elif isinstance(message, Surrender) and message.report is not None:
            edges = message.report.cycle
            circle = ", ".join(
                f"{e.waiter.client} waits for {show(e.waiter.lock_id)} of {e.holder.client}"
                for e in edges
            )
            yield f"{sender} sees the whole circle: {circle}."
            yield (
                f"{sender} yields, because {message.report.rule}: it surrenders "
                f"{show(message.lock_id)}."
            )
        elif isinstance(message, Surrendered):
            if message.done:
                yield f"The lock server has carried out the surrender of {receiver}."
            else:
                yield f"The lock server refuses the surrender of {receiver}: it is out of date."
        elif isinstance(message, Resolved):
            yield f"{receiver} is told that the deadlock is resolved, and how."
        elif isinstance(message, Remove):
            yield f"{sender} is done and lets go of everything."

    def told(self, receiver: str, message: Told) -> Iterator[str]:
        others: list[RequestRecord] = []
        for record in message.records:
            state = (record.key, record.state, record.since)
            if record.client != receiver or state in self.told_before:
                others.append(record)
            elif record.state == "granted":
                yield f"The lock server grants {show(record.lock_id)} to {receiver}."
            else:
                yield f"The lock server lets {receiver} wait for {show(record.lock_id)}."
        self.told_before.update((r.key, r.state, r.since) for r in message.records)
        if others:
            facts = ", ".join(self.fact(record) for record in others)
            yield f"The lock server tells {receiver} what concerns it: {facts}."


def tell_story() -> Iterator[str]:
    """Let three clients run into a deadlock on a node of their own; yield the lines of the story.

    The calling program must live in a gevent hub, and no node may run.
    """
    teller = _Teller()
    locks.start("story@localhost", trace=teller.hear)
    wants = {"Alice": ("red", "green"), "Bob": ("green", "blue"), "Carol": ("blue", "red")}
    turns = {(name, step): Event() for name in wants for step in range(3)}
    done: dict[str, Event] = {name: Event() for name in wants}

    def client(name: str, first: str, second: str) -> None:
        current = gevent.getcurrent()
        assert isinstance(current, gevent.Greenlet)
        current.name = name
        turns[name, 0].wait()
        with locks.transaction(on_deadlock="surrender") as tx:
            teller.names[tx.agent.id] = name
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
        yield from teller.tell()

    yield "One deadlock in slow motion"
    yield "Alice is the oldest, Carol the youngest. Each takes one lock, then wants a second one."
    yield ""
    for name, (first, _) in wants.items():
        yield f"{name} begins and takes {first}."
        yield from step(name, 0)
    for name, (_, second) in wants.items():
        yield ""
        yield f"{name} now wants {second} as well, and will wait for it."
        yield from step(name, 1)
    yield ""
    yield "Nobody is in charge of deadlocks: the agents have found and resolved it themselves."
    finished: list[str] = []
    while len(finished) < len(wants):
        name = next(n for n in wants if done[n].is_set() and n not in finished)
        finished.append(name)
        yield ""
        yield f"{name} holds both of its locks now, uses them, and ends."
        turns[name, 2].set()
        greenlets[name].join()
        gevent.sleep(0)
        yield from teller.tell()
    yield ""
    yield "Everybody got both locks; one lock was given up once, and nobody had to start again."
    locks.stop()
