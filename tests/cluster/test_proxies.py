"""Actors of other nodes by Pykka's proxies: methods are called there, and nothing else is."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pykka
import pytest

import locks
from tests.cluster.nodes import A, B, Nodes
from tests.helpers import eventually


class Counter(pykka.ThreadingActor):
    """It counts."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.answer = 42

    def add(self, number: int, twice: bool = False) -> int:
        """Count on."""
        self.count += number * (2 if twice else 1)
        return self.count

    def fail(self) -> None:
        """Raise."""
        raise ValueError("no")

    def _secret(self) -> str:
        return "secret"


def remote(nodes: Nodes) -> tuple[pykka.ActorRef[Counter], locks.node.RemoteRef]:
    """A counter on one node, and its reference on another one."""
    a, b = nodes.meet(A, B)
    counter = Counter.start()
    b.register("counter", counter)
    return counter, a.remote("counter", B)


def test_a_proxy_calls_methods(nodes: Nodes) -> None:
    """With arguments of both kinds; and `defer` waits for nothing."""
    _, ref = remote(nodes)
    proxy = ref.proxy()
    assert isinstance(proxy, pykka.ActorProxy)
    assert issubclass(ref.actor_class, pykka.Actor)
    assert proxy.add(1).get(timeout=60) == 1
    assert proxy.add(1, twice=True).get(timeout=60) == 3
    proxy.add.defer(4)
    assert proxy.add(0).get(timeout=60) == 7


def test_an_exception_goes_to_the_caller(nodes: Nodes) -> None:
    """And the actor lives on."""
    counter, ref = remote(nodes)
    with pytest.raises(locks.node.RemoteError, match="ValueError: no"):
        ref.proxy().fail().get(timeout=60)
    assert counter.is_alive()


@pytest.mark.parametrize("name", ["_secret", "on_stop", "start", "answer", "nothing", "add.x", ""])
def test_what_is_no_method_of_its_own_is_refused(nodes: Nodes, name: str) -> None:
    """To who calls, and where the actor is: not every program that sends the message is ours."""
    counter, ref = remote(nodes)
    message = pykka.messages.ProxyCall((name,), (), {})
    with pytest.raises(locks.MisuseError, match="can be called from another node"):
        ref.ask(message, timeout=60)
    assert counter.proxy().answer.get() == 42


def test_attributes_are_not_to_be_had(nodes: Nodes) -> None:
    """A proxy has no attribute that is set or private."""
    _, ref = remote(nodes)
    proxy: Any = ref.proxy()
    with pytest.raises(locks.MisuseError, match="call a method"):
        proxy.answer = 1
    with pytest.raises(AttributeError):
        proxy._secret()


def test_a_stopped_actor_is_known_to_be(nodes: Nodes) -> None:
    """By its proxy it can be stopped, and a monitor says that it is."""
    counter, ref = remote(nodes)
    downs: list[locks.actors.Down] = []
    locks.actors.monitor(ref, downs.append)
    ref.proxy().stop()
    eventually(lambda: not counter.is_alive())
    eventually(lambda: downs)
    assert [down.reason for down in downs] == ["normal"]


def test_a_monitor_is_there_before_what_is_sent_next(nodes: Nodes) -> None:
    """Also if another thread has the node's turn: what stops the actor does not overtake the monitor."""
    _, ref = remote(nodes)
    a = nodes.started[0]
    has_turn, lets_go = threading.Event(), threading.Event()

    def hold() -> None:
        has_turn.set()
        assert lets_go.wait(60)

    def monitor() -> bool:
        locks.actors.monitor(ref, print)
        return ref.watch._number is not None  # it was sent

    with ThreadPoolExecutor(2) as pool:
        held = pool.submit(a.turn.run, hold)
        assert has_turn.wait(60)
        sent = pool.submit(monitor)
        eventually(lambda: ref.watch.monitors)
        lets_go.set()
        assert sent.result(60)
        held.result(60)


def test_agents_and_clients_of_other_nodes(nodes: Nodes) -> None:
    """The lock server gives references that can be monitored."""
    a, b = nodes.meet(A, B)
    agent = b.spawn_agent()
    agent.ask_for([(("x",), "write", (A,), "all")])
    server = a.server.proxy()
    eventually(lambda: len(server.agents(("x",)).get()) == 1)
    (ref,) = server.agents(("x",)).get()
    assert isinstance(ref, locks.node.RemoteRef)
    assert ref.node == B
    assert server.clients(("x",)).get() == [ref]
    downs: list[locks.actors.Down] = []
    locks.actors.monitor(ref, downs.append)
    agent.end_transaction()
    eventually(lambda: len(downs) == 1)
    assert server.agents(("x",)).get() == []
