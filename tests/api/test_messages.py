"""What a program tells or asks lock servers and agents, as actors: refused to it, or carried out whole."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import locks
from locks.core import messages
from locks.messages import Release, Remove, Request, RequestStates, Watch
from locks.model import AgentId, RequestRecord
from tests.helpers import eventually

A, B = ("a",), ("b",)


class Scene:
    """A holder of `a`, and one that waits for it: nothing of it may change."""

    def __init__(self) -> None:
        self.node = locks.start()
        self.server = self.node.server
        self.holder, _ = locks.begin_transaction([(A, "write")])
        self.waiter = locks.spawn_agent()
        locks.lock_nowait(self.waiter, A)

    def end(self) -> None:
        for agent in (self.holder, self.waiter):
            locks.end_transaction(agent)

    def state(self) -> Any:
        return (
            self.node.running,
            [locks.queue(lock_id) for lock_id in (A, B)],
            [locks.lock_info(agent) for agent in (self.holder, self.waiter)],
            locks.statistics(),
        )


@pytest.fixture
def scene() -> Iterator[Scene]:
    """A scene, whose transactions are ended."""
    made = Scene()
    yield made
    made.end()


def bad_messages(agent: AgentId) -> list[Any]:
    """One for each message and each of its fields, and things that are no message."""
    good: list[Any] = [
        Request(agent, "me", B, "write"),
        Release(agent, B),
        messages.Surrender(agent, B),
        Remove(agent),
        messages.StandingElsewhere(agent, False, False),
        messages.Inquire(agent),
        messages.RaiseVersion(agent, B, 1, 1),
        Watch(print, B),
        messages.Unwatch(print, B),
    ]
    junk = object()
    bad = [each._replace(**{field: junk}) for each in good for field in each._fields]
    return [
        *bad,
        Request(agent, "me", (["x"],), "write"),  # type: ignore[arg-type]
        Request(None, "me", B, "write"),  # type: ignore[arg-type]
        Request(agent, "me", B, "WRONG"),  # type: ignore[arg-type]
        "lock it",
        None,
        object(),
    ]


def test_a_bad_message_to_a_lock_server_is_refused_to_its_sender(scene: Scene) -> None:
    """Whatever is wrong with it, it changes nothing, and no transaction and no node ends of it."""
    before = scene.state()
    for message in bad_messages(scene.waiter.id):
        with pytest.raises(locks.MisuseError):
            scene.server.ask(message, timeout=60)
    assert scene.state() == before


def test_a_bad_message_that_is_told_is_logged(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits for an answer."""
    before = scene.state()
    bad = bad_messages(scene.waiter.id)
    with caplog.at_level(logging.ERROR, "locks"):
        for message in bad:
            scene.server.tell(message)
        eventually(lambda: len(caplog.records) >= len(bad))
    assert all("failed to handle" in record.message for record in caplog.records)
    assert scene.state() == before


def test_a_request_for_an_agent_that_has_ended_is_refused(scene: Scene) -> None:
    """Nobody would ever free it."""
    ended = locks.spawn_agent()
    locks.end_transaction(ended)
    never = AgentId(ended.id.created + 4096, ended.id.node, ended.id.serial)
    elsewhere = AgentId(ended.id.created, "b@elsewhere", ended.id.serial)
    for agent in (ended.id, never, elsewhere):
        for message in (
            Request(agent, "me", B, "write"),
            Release(agent, A),
            messages.Surrender(agent, A),
            Remove(agent),
            messages.StandingElsewhere(agent, True, True),
            messages.Inquire(agent),
            messages.RaiseVersion(agent, A, 1, 1),
        ):
            with pytest.raises(
                locks.MisuseError, match=r"has ended, or never existed|not on a connected"
            ):
                scene.server.ask(message, timeout=60)
    assert locks.holders(B) == ()
    assert scene.server._guests == set()


def test_what_an_agent_has_not_asked_for_itself_is_freed_when_it_ends(scene: Scene) -> None:
    """Also if it has asked for nothing by itself."""
    agent = locks.spawn_agent()
    scene.server.ask(Request(agent.id, "me", B, "write"), timeout=60)
    assert [holder.agent for holder in locks.holders(B)] == [agent.id]
    locks.end_transaction(agent)
    eventually(lambda: locks.holders(B) == ())
    assert scene.server._guests == set()


def test_what_an_agent_has_not_asked_for_itself_is_freed_when_its_client_dies(scene: Scene) -> None:
    """It goes with the agent, in any case."""

    def die() -> None:
        agent = locks.spawn_agent()
        scene.server.tell(Request(agent.id, "me", B, "write"))
        assert locks.holders(B)

    thread = threading.Thread(target=die)
    thread.start()
    thread.join(60)
    eventually(lambda: locks.holders(B) == ())


def test_what_was_asked_for_by_a_message_is_released_by_one(scene: Scene) -> None:
    """And so is all of it."""
    agent = locks.spawn_agent()
    for lock_id in (B, ("c",)):
        scene.server.ask(Request(agent.id, "me", lock_id, "write"), timeout=60)
    scene.server.ask(Release(agent.id, B), timeout=60)
    assert locks.holders(B) == ()
    assert len(locks.holders(("c",))) == 1
    scene.server.ask(Remove(agent.id), timeout=60)
    assert locks.holders(("c",)) == ()
    locks.end_transaction(agent)


def test_no_message_takes_what_an_agent_has_asked_for_itself(scene: Scene) -> None:
    """It would go on telling its client that it has the lock, and the next one has it as well."""
    before = scene.state()
    agent = scene.holder.id
    for message in (
        Release(agent, A),
        messages.Surrender(agent, A),
        messages.Surrender(agent, ("a", "below")),
        Remove(agent),
        messages.StandingElsewhere(agent, False, True),
    ):
        with pytest.raises(locks.MisuseError, match=r"locks\.unlock"):
            scene.server.ask(message, timeout=60)
    assert scene.state() == before
    locks.ensure_held(scene.holder)


def test_nobody_but_a_lock_server_grants_a_lock(scene: Scene) -> None:
    """An agent that is told so by a program does not believe it."""
    before = scene.state()
    me = scene.waiter.id
    record = RequestRecord(scene.node.name, 99, me, "me", A, "write", "granted", 1, 99, False, 99)
    surrender = messages.Surrender(me, A)
    for message in (
        RequestStates(scene.node.name, (record,)),
        messages.Released(scene.node.name, A, (record,)),
        messages.Surrendered(scene.node.name, surrender, True, (record,), 99),
        messages.VersionRaised(scene.node.name, A, 1, 2, True),
    ):
        with pytest.raises(locks.MisuseError, match="lock servers"):
            scene.waiter.ask(message, timeout=60)
    assert scene.state() == before


def test_a_bad_message_to_an_agent_is_refused_to_its_sender(scene: Scene) -> None:
    """It is not the end of the transaction."""
    before = scene.state()
    good = messages.Knowledge(scene.holder.id, ())
    bad: list[Any] = [good._replace(**{field: object()}) for field in good._fields]
    for message in (*bad, good._replace(records=(1,)), "hello", None):  # type: ignore[arg-type]
        with pytest.raises(locks.MisuseError):
            scene.waiter.ask(message, timeout=60)
    assert scene.state() == before
    scene.waiter.ask(good, timeout=60)
    assert scene.state()[:-1] == before[:-1]


def test_watching_by_messages(scene: Scene) -> None:
    """As by `locks.watch`: the same watcher is known again."""
    views: list[locks.values.View] = []
    scene.server.ask(Watch(views.append, B), timeout=60)
    eventually(lambda: len(views) == 1)
    assert locks.watchers(B) == [views.append]
    locks.unwatch(B, watcher=views.append)
    assert locks.watchers(B) == []
