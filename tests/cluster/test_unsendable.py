"""What can't be sent is refused to who asks for it, before anything is done; and nobody else notices."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pykka
import pytest

import locks
from locks.net.messages import encode
from locks.net.values import Unsendable
from locks.node.peers import cluster as cluster_module
from tests.cluster.nodes import A, B, News, Nodes, Tx
from tests.cluster.test_clients import Client
from tests.helpers import eventually

X = ("x",)
WRONG = "\ud800"  # text that has no form in UTF-8


def check_alive(a: locks.node.Node, b: locks.node.Node, news: News) -> None:
    """Both nodes live, are connected as before, and lock on each other."""
    assert news.told == []
    for node in (a, b):
        assert node.running
        tx = Tx(node)
        tx.lock(("still",), [A, B], timeout=20)
        tx.end()


def test_a_client_whose_name_can_not_be_sent(nodes: Nodes) -> None:
    """A thread may have any name; others are told one that can be sent."""
    a, b = nodes.meet(A, B)
    news = News(a, b)
    told: list[Any] = []

    def body() -> None:
        agent = a.spawn_agent()
        agent.lock_all([(X, "write", (A, B), "all")], 20)
        told.append(agent.machine.client)

    for name in (WRONG * 3, "x" * 100_000):
        told.clear()
        thread = threading.Thread(target=body, name=name)
        thread.start()
        thread.join()
        assert told[0].encode()
        assert len(told[0]) <= 1000
    check_alive(a, b, news)


def test_why_an_actor_has_ended(nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    """An exception whose text can't be sent is told in another way: it is due in nobody's turn."""
    caplog.set_level(logging.CRITICAL, "pykka")  # what it logs could not be sent by pytest either
    a, b = nodes.meet(A, B)
    news = News(a, b)

    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    class Fails(pykka.ThreadingActor):
        def on_receive(self, message: Any) -> Any:
            raise message

    for error in (ValueError(WRONG), ValueError("x" * 10**7), Broken()):
        actor = Fails.start()
        b.register("fails", actor)
        downs: list[locks.actors.Down] = []
        locks.actors.monitor(a.remote("fails", B), downs.append)
        eventually(lambda: b.cluster is not None and b.cluster.actors._monitored)
        actor.tell(error)
        eventually(lambda downs=downs: downs)  # type: ignore[misc]
        eventually(lambda: b.cluster is not None and b.cluster.actors.registered("fails") is None)
    check_alive(a, b, news)


@pytest.mark.parametrize("name", ["x" * 256, WRONG], ids=["long", "surrogate"])
def test_a_name_that_no_process_can_have(nodes: Nodes, name: str) -> None:
    """It is refused when it is first used; a monitor of it would be made in a turn of its own."""
    a, b = nodes.meet(A, B)
    news = News(a, b)
    with pytest.raises(locks.errors.InvalidOption):
        a.remote(name, B)
    check_alive(a, b, news)


def test_a_message_to_an_actor_that_is_too_large(nodes: Nodes) -> None:
    """The sender is told so; the connection, and all locks over it, stay."""
    a, b = nodes.meet(A, B)
    news = News(a, b)
    actor = Client.start()
    b.register("client", actor)
    ref = a.remote("client", B)
    for message in (b"x" * 2**24, ["x" * 2**23] * 3, object(), {1, 2}, WRONG):
        with pytest.raises(Unsendable):
            ref.tell(message)
        with pytest.raises(Unsendable):
            ref.ask(message)
    check_alive(a, b, news)


def test_an_answer_that_can_not_be_sent(nodes: Nodes) -> None:
    """Who has asked is told so."""
    a, b = nodes.meet(A, B)
    news = News(a, b)

    class Answers(pykka.ThreadingActor):
        def on_receive(self, message: Any) -> Any:
            return {"object": object(), "large": b"x" * 2**24, "many": ["x" * 2**23] * 3}[message]

    b.register("answers", Answers.start())
    for what in ("object", "large", "many"):
        with pytest.raises(locks.node.RemoteError, match="Unsendable"):
            a.remote("answers", B).ask(what, timeout=20)
    check_alive(a, b, news)


def test_a_message_that_can_not_be_sent_all_the_same(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If a machine ever emits one: its client is told, or the one message dropped and logged."""
    a, b = nodes.meet(A, B)
    news = News(a, b)
    bystander = Tx(b)

    def encode_all_but(frame: Any) -> bytes:
        message = frame.message
        wrong = getattr(message, "lock_id", None) == ("wrong",)
        records = getattr(message, "records", ())
        if wrong or any(record.lock_id == ("unsaid",) for record in records):
            raise OverflowError("it can't be encoded")
        return encode(frame)

    monkeypatch.setattr(cluster_module, "encode", encode_all_but)
    tx = Tx(a)
    with (
        caplog.at_level(logging.ERROR, "locks"),
        pytest.raises(locks.TransactionEnded, match="can't be encoded"),
    ):
        tx.lock(("wrong",), [B])
    waiting = Tx(a)
    asked = waiting.ask(("unsaid",), [B], timeout=1)
    bystander.lock(X, [A], timeout=20)
    with pytest.raises(locks.LockTimeout):
        asked.result(30)
    eventually(lambda: "can't be sent" in caplog.text)
    waiting.end()
    bystander.end()
    check_alive(a, b, news)
