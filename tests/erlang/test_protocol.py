"""An Erlang node and a Python node that know nothing of locks: they see, watch and talk to each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pykka
import pytest

import locks
from locks.otp.bytes.terms import Atom
from tests.erlang.conftest import PYTHON
from tests.erlang.erlang import COOKIE, Erlang
from tests.helpers import eventually

P = Atom(PYTHON)


class Kept(pykka.ThreadingActor):
    """Keeps what it is told, and answers with what it is asked."""

    def __init__(self, told: list[Any]) -> None:
        super().__init__()
        self.told = told

    def on_receive(self, message: Any) -> Any:
        """Take a message in."""
        if message == Atom("crash"):
            raise ValueError("as it was told")
        self.told.append(message)
        return message


@pytest.fixture
def told() -> list[Any]:
    """What the actor was told."""
    return []


@pytest.fixture
def actor(node: locks.node.Node, told: list[Any]) -> Iterator[pykka.ActorRef[Kept]]:
    """An actor that Erlang knows as `kept`."""
    ref = Kept.start(told)
    node.register("kept", ref)
    yield ref
    ref.stop()


# --- Nodes


def test_net_adm_ping_reaches_a_python_node(alone: locks.node.Node, erlang: Erlang) -> None:
    """`net_adm:ping` from Erlang connects the two, and each is in the other's `nodes()`."""
    assert erlang.call("main", "net_adm", "ping", P) == Atom("pong")
    assert P in erlang.call("main", "erlang", "nodes")
    eventually(lambda: alone.nodes() == [erlang.name])
    eventually(lambda: erlang.name in alone.alive)


def test_another_cookie_is_refused(mapper: None, erlang: Erlang) -> None:
    """A node with another cookie gets no connection, in either direction."""
    stranger = locks.start("stranger@127.0.0.1", cookie=COOKIE + "!", epmd=True)
    try:
        assert not stranger.connect(erlang.name, timeout=1)
        assert erlang.call("main", "net_adm", "ping", Atom(stranger.name)) == Atom("pang")
    finally:
        locks.stop()


# --- Messages


def test_messages_to_a_python_actor(
    node: locks.node.Node, erlang: Erlang, actor: pykka.ActorRef[Kept], told: list[Any]
) -> None:
    """`!`, `gen_server:cast` and `gen_server:call` reach an actor by its name, in this order."""
    to = (Atom("kept"), P)
    terms = ["text", 2**70, -1.5, [1, [2]], (Atom("a"), True, None), {"key": Atom("value")}]
    for term in terms:
        erlang.call("main", "driver", "send", to, term)
    erlang.call("main", "gen_server", "cast", to, "cast")
    assert erlang.call("main", "gen_server", "call", to, (1, "two")) == (1, "two")
    assert told == [*terms, "cast", (1, "two")]


def test_messages_to_an_erlang_process(
    node: locks.node.Node, erlang: Erlang, actor: pykka.ActorRef[Kept]
) -> None:
    """A `gen_server` is told and asked like an actor; it gets a Python actor's pid as a pid."""
    assert erlang.call("main", "driver", "echo_server", Atom("echo"))[0] == Atom("ok")
    echo = node.remote("echo", erlang.name)
    assert echo.ask(("how", [1, 2]), timeout=5) == ("how", [1, 2])
    assert echo.ask(actor, timeout=5) == actor  # there and back again
    assert echo.ask(Atom("stop"), timeout=5) == Atom("ok")


# --- Monitors


def test_erlang_monitors_a_python_actor(
    node: locks.node.Node, erlang: Erlang, actor: pykka.ActorRef[Kept]
) -> None:
    """A normal end and a crash are told with their reasons; a name that is not there is `noproc`."""
    to = (Atom("kept"), P)
    normal = erlang.call("monitors", "driver", "monitor_process", to)
    erlang.call("monitors", "gen_server", "call", to, "now the monitor is there")
    actor.stop()
    assert erlang.call("monitors", "driver", "down", normal) == Atom("normal")
    gone = erlang.call("monitors", "driver", "monitor_process", to)
    assert erlang.call("monitors", "driver", "down", gone) == Atom("noproc")
    other = Kept.start([])
    node.register("other", other)
    crash = erlang.call("monitors", "driver", "monitor_process", (Atom("other"), P))
    erlang.call("monitors", "driver", "send", (Atom("other"), P), Atom("crash"))
    assert "as it was told" in str(erlang.call("monitors", "driver", "down", crash))


def test_python_monitors_an_erlang_process(node: locks.node.Node, erlang: Erlang) -> None:
    """The end of an Erlang process is a `Down` with its reason; an unknown name is `noproc`."""
    erlang.call("main", "driver", "echo_server", Atom("mortal"))
    downs: list[locks.actors.Down] = []
    ref = node.remote("mortal", erlang.name)
    locks.actors.monitor(ref, downs.append)
    assert ref.ask(Atom("kept"), timeout=5) == []
    ref.ask(Atom("stop"), timeout=5)
    eventually(lambda: [str(down.reason) for down in downs] == ["asked_to"])
    locks.actors.monitor(node.remote("nobody", erlang.name), downs.append)
    eventually(lambda: [str(down.reason) for down in downs] == ["asked_to", "noproc"])


def test_the_death_of_an_erlang_node_is_noticed(
    node: locks.node.Node, more_erlang: Callable[..., Erlang]
) -> None:
    """Monitors over a connection that is lost are told `noconnection`; so is who watches nodes."""
    mortal = more_erlang("mortal@127.0.0.1")
    news: list[object] = []
    node.monitor_nodes(news.append)
    assert node.connect(mortal.name)
    downs: list[locks.actors.Down] = []
    locks.actors.monitor(node.remote("locks_server", mortal.name), downs.append)
    eventually(lambda: mortal.name in node.alive)
    mortal.kill()
    eventually(lambda: [down.reason for down in downs] == ["noconnection"])
    eventually(lambda: mortal.name not in node.alive)
    kinds = [(type(each).__name__, each.node) for each in news]  # type: ignore[attr-defined]
    assert kinds == [("NodeUp", mortal.name), ("NodeDown", mortal.name)]


# --- The order of references
