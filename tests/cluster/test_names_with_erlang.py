"""Names and simultaneous connections with a real Erlang/OTP, which has its own rules for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest

import locks
from locks.node.peers.calls import BlockingCalls
from locks.otp.bytes.terms import Atom
from tests.cluster.harness import COOKIE
from tests.cluster.nodes import News, Nodes, link, peer
from tests.helpers import eventually, free_port
from tests.otp.erlang import ERLANG, MISSING, port_mapper, running

pytestmark = pytest.mark.skipif(not ERLANG, reason=MISSING)

E = "e@127.0.0.1"
SMALLER, LARGER = "a@127.0.0.1", "x@127.0.0.1"


@pytest.fixture
def mapper(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """An epmd of the test."""
    with port_mapper() as port:
        monkeypatch.setenv("ERL_EPMD_PORT", str(port))
        yield port


@contextmanager
def _erlang(mapper: int, port: int, program: str) -> Iterator[IO[bytes]]:
    """A node of OTP that listens at a port and runs a program; yields what it prints."""
    kernel = f"-kernel inet_dist_listen_min {port} inet_dist_listen_max {port}"
    loopback = "inet_dist_use_interface {127,0,0,1}"
    command = ["erl", "-noinput", "-name", E, "-setcookie", COOKIE, "-start_epmd", "false"]
    with running(
        [*command, *kernel.split(), *loopback.split(), "-eval", program], ERL_EPMD_PORT=str(mapper)
    ) as output:
        yield output


def _answers(node: locks.node.Node) -> bool:
    """Whether the Erlang node answers over the connection."""
    if node.nodes() != [E]:
        return False
    assert node.cluster is not None
    request = (Atom("is_auth"), Atom(node.name))
    with BlockingCalls(node.cluster.processes, node.turn) as calls:
        node.turn.run(calls.begin_call, "ping", E, "net_kernel", request)
        return calls.take_outcome(1) == ("ping", True, Atom("yes"))


@pytest.mark.slow
@pytest.mark.parametrize("own", [SMALLER, LARGER])
def test_both_connect_at_the_same_time(nodes: Nodes, mapper: int, own: str) -> None:
    """Erlang and we dial each other, again and again; in the end there is one connection that works."""
    port = free_port()
    ours = nodes.start(own, epmd=True)
    program = f"""
        [begin net_kernel:connect_node('{own}'), erlang:disconnect_node('{own}') end
            || _ <- lists:seq(1, 200)],
        io:put_chars("done\\n"),
        receive never -> ok end.
    """
    with _erlang(mapper, port, program) as output:
        assert not ours.connect(f"{E}:{port}", timeout=0)
        assert output.readline() == b"done\n"
        eventually(lambda: _answers(ours))
        kept = link(ours, E)
        for _ in range(20):
            assert _answers(ours)
        assert link(ours, E) is kept


def test_an_erlang_node_with_a_name_that_is_taken(nodes: Nodes, mapper: int) -> None:
    """An Erlang node with the name of a program that is connected is refused, and goes on."""
    ours, first = nodes.start(SMALLER, epmd=True), nodes.start(E, mesh=False)
    assert first.connect(peer(ours))
    news = News(ours)
    program = f"""
        io:format("~p~n", [[net_kernel:connect_node('{SMALLER}') || _ <- lists:seq(1, 3)]]),
        receive never -> ok end.
    """
    with _erlang(mapper, free_port(), program) as output:
        assert output.readline() == b"[false,false,false]\n"
    assert news.told == []
    assert ours.nodes() == [E]
