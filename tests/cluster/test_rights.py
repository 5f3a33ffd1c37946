"""Cookies that may do less: who may only look can't take, hold up or break a lock, neither at a server nor through one."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

import locks
from locks.core.facts import AskMark, AskRequests, Break, Broken, Question, Untold
from locks.core.messages import ServerMessage, Unwatch, Watch
from locks.errors import InvalidOption, NotAllowed
from locks.model import AgentId, agent_numbered
from locks.node.observing.inquiries import ask_all
from locks.node.peers.entrance import right_to_ask
from locks.node.server import listener
from locks.otp.admission.cookies import Cookies
from locks.otp.admission.rights import Right
from locks.otp.admission.secret import Cookie
from locks.otp.bytes import etf
from locks.otp.bytes.terms import Pid
from locks.otp.process.processes import CAST
from locks.otp.tunnel.messages import RELAY, TUNNELS, Open, encode
from locks.wire.forms import LOCK_SERVER
from locks.wire.messages import pack
from tests.cluster.commands import Done, process
from tests.cluster.commands import locks as command
from tests.cluster.harness import COOKIE, World
from tests.cluster.nodes import A, B, Nodes, Tx, link, peer
from tests.cluster.servers import Servers
from tests.helpers import LIMIT, eventually
from tests.unit.test_wire_forms import sample

LOOK, USE = "a-cookie-that-may-look", "a-cookie-that-may-use"
COOKIES = [COOKIE, f"look: {LOOK}", f"use: {USE}"]
X, Y = ("x",), ("y",)


def meet(nodes: Nodes, cookie: str) -> tuple[locks.node.Node, Tx, locks.node.Node]:
    """A server, a transaction that holds X there, and a client with a cookie of fewer rights."""
    a = nodes.start(A, cookie=COOKIES)
    holder = Tx(nodes.client(a))
    holder.ask(X, [A]).result(LIMIT)
    return a, holder, nodes.client(a, cookie=cookie)


def ask(node: locks.node.Node, question: Question) -> Any:
    """The answer of the server to a question of a node, or why there is none."""
    said, silent = ask_all(node, node.cluster, {A: question}, LIMIT)
    return {**silent, **said}[A]


def send(node: locks.node.Node, message: Any, sender: Pid | None = None) -> None:
    """Send the server a message, as an older version does."""
    assert node.cluster is not None
    processes = node.cluster.processes
    node.turn.run(processes.send_named, A, LOCK_SERVER, etf.encode((CAST, pack(message))), sender)


def forget_right(node: locks.node.Node) -> None:
    """From now on a node believes that it may do everything, like one of an older version."""
    assert node.cluster is not None
    node.cluster.limited.clear()
    link(node, A).allowed = Right.BREAK


def test_who_may_look_sees_all_and_takes_nothing(nodes: Nodes) -> None:
    """Views, watches and questions are answered; a lock and a break raise `NotAllowed`, which names the server; the connection stays."""
    a, holder, looker = meet(nodes, LOOK)
    (seen,) = looker.view(X, A, LIMIT).requests
    assert seen.agent == holder.agent.id
    views: list[locks.values.View] = []
    looker.watch_elsewhere(A, X, listener(views.append), True)
    eventually(lambda: views and views[-1].requests)
    assert ask(looker, AskRequests(None, 0)).requests[0].request.agent == holder.agent.id
    connection = link(looker, A)
    with pytest.raises(NotAllowed, match=f"can't take locks at {A}.*may only look") as refused:
        Tx(looker).ask(Y, [A]).result(LIMIT)
    assert refused.value.nodes == (A,)
    with pytest.raises(NotAllowed, match="does not allow Break"):
        ask(looker, Break(holder.agent.id, "x", "me"))
    assert link(looker, A) is connection
    assert not a.view(Y).requests
    assert holder.do(lambda: locks.original.ensure_held(holder.agent)) is None


def test_who_may_use_takes_locks_and_breaks_none(nodes: Nodes) -> None:
    """It gets a lock; `Break` is refused here, and by the server if the node does not know its right."""
    _, holder, user = meet(nodes, USE)
    Tx(user).ask(Y, [A]).result(LIMIT)
    question = Break(holder.agent.id, "x", "me")
    with pytest.raises(NotAllowed):
        ask(user, question)
    forget_right(user)
    answer = ask(user, question)
    assert isinstance(answer, Broken)
    assert not answer.done
    assert "Break needs the right to break" in answer.why
    assert holder.do(lambda: locks.original.ensure_held(holder.agent)) is None


@pytest.mark.parametrize("kind", sorted(get_args(ServerMessage), key=lambda each: each.__name__))
def test_each_message_of_an_older_version(nodes: Nodes, kind: type[Any]) -> None:
    """A server that is sent what only who may use sends changes nothing, and ends the connection; so nobody waits for an answer."""
    a, holder, looker = meet(nodes, LOOK)
    connection = link(looker, A)
    before = a.view(X)
    if kind in (Watch, Unwatch):
        me = looker.cluster.processes.me  # type: ignore[union-attr]
        send(looker, kind(me, X), me)
        assert looker.view(X, A, LIMIT).requests
        assert connection.closed is None
    else:
        send(looker, sample(kind)._replace(agent=agent_numbered(7, looker.name)))
        eventually(lambda: connection.closed)
    assert a.view(X) == before
    assert holder.do(lambda: locks.original.ensure_held(holder.agent)) is None


@pytest.mark.parametrize("kind", sorted(get_args(Question), key=lambda each: each.__name__))
def test_each_question_of_an_older_version(
    nodes: Nodes, kind: type[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Questions are answered; those that change something get a refusal that older versions read, and the log says whose they are."""
    _, holder, looker = meet(nodes, LOOK)
    forget_right(looker)
    question = sample(kind)
    if "agent" in kind._fields:
        own = kind is AskMark
        agent: AgentId = agent_numbered(7, looker.name) if own else holder.agent.id
        question = question._replace(agent=agent)
    if "node" in kind._fields:
        question = question._replace(node=A)
    with caplog.at_level(logging.WARNING, "locks.nodes"):
        answer = ask(looker, question)
    refused = [each for each in caplog.records if getattr(each, "event", "") == "refused"]
    if right_to_ask(question) is Right.LOOK:
        assert not isinstance(answer, str | Untold | Broken)
        assert not refused
    else:
        why = answer.why if isinstance(answer, Broken) else answer
        assert "may only look" in why
        eventually(lambda: any(getattr(each, "event", "") == "refused" for each in caplog.records))
        (record,) = [each for each in caplog.records if getattr(each, "event", "") == "refused"]
        assert record.__dict__["peer"] == looker.name
        assert record.__dict__["what"] == kind.__name__
    assert holder.do(lambda: locks.original.ensure_held(holder.agent)) is None


def test_no_way_through_a_server(nodes: Nodes) -> None:
    """The server opens no tunnel to another client for who may only look, and passes no break on; a call of an actor is refused by name."""
    a, holder, looker = meet(nodes, LOOK)
    forget_right(looker)
    assert looker.cluster is not None
    assert a.cluster is not None
    processes = looker.cluster.processes
    other = holder.node.name
    looker.turn.run(processes.send_named, A, RELAY, encode(Open(looker.name, 1, other)))
    assert looker.view(X, A, LIMIT).requests  # all that was sent before has been taken in
    assert len(a.cluster.tunnels.relay) == 0
    assert not ask(looker, Break(holder.agent.id, "x", "me")).done
    actor = locks.actors.GeventActor.start()
    a.register("somebody", actor)
    with pytest.raises(NotAllowed, match="may only look"):
        looker.remote("somebody", A).ask("hello", timeout=LIMIT)


def test_no_answer_for_others(nodes: Nodes) -> None:
    """Who may only look may answer what it was asked, and nothing that others were asked: that ends its connection."""
    a, holder, looker = meet(nodes, LOOK)
    assert a.cluster is not None
    assert looker.cluster is not None
    told: list[Any] = []
    asked = (holder.node.name, TUNNELS, "a question", lambda *answer: told.append(answer), True)
    reference = a.turn.run(a.cluster.processes.call, *asked)
    connection = link(looker, A)
    answer = etf.encode((reference, "forged"))
    looker.turn.run(looker.cluster.processes.send, a.cluster.processes.me, answer)
    eventually(lambda: connection.closed)
    assert not told


def test_over_a_tunnel_nobody_may_break(nodes: Nodes) -> None:
    """Clients don't know each other's roles: connected by a tunnel, they may use each other, and not break."""
    a = nodes.start(A, cookie=COOKIES)
    one, two = (nodes.client(a, cookie=USE) for _ in range(2))
    assert one.connect(two.name, timeout=LIMIT)
    for here, there in ((one, two), (two, one)):
        eventually(lambda here=here, there=there: here.cluster.distribution.links.get(there.name))
        assert link(here, there.name).peer.right is Right.USE


def test_it_must_be_a_client(nodes: Nodes) -> None:
    """A node that listens, or takes the name of a server, is refused with a role's cookie, and is told why."""
    a = nodes.start(A, cookie=COOKIES, servers=[f"{A}:1", f"{B}:2"], listen="127.0.0.1:0")
    mesh = nodes.start("c@127.0.0.1", cookie=LOOK, peers=[peer(a)])
    eventually(lambda: "has the role look, which is for client nodes" in mesh.refusals.get(A, ""))
    named = nodes.start(B, cookie=USE, mesh=False, listen=False, peers=[peer(a)])
    eventually(lambda: "has the role use, which is for client nodes" in named.refusals.get(A, ""))
    assert not a.nodes()


def test_a_server_does_not_prove_itself_with_it(nodes: Nodes) -> None:
    """Who has only the role's cookie can't pose as a server: the node that dials it never uses that cookie."""
    posing = nodes.start(B, cookie=LOOK, mesh=False)
    a = nodes.start(A, cookie=COOKIES, peers=[peer(posing)])
    eventually(lambda: "has another cookie" in a.refusals.get(B, ""))
    assert not posing.nodes()


BAD = [
    ([f"look: {LOOK}", COOKIE], "the first cookie has the role look"),
    ([COOKIE, f"lok: {LOOK}"], "Only the roles look:, use: and break:"),
    ([COOKIE, "look: short"], "only 5 characters"),
    ([COOKIE, "look:"], "only 5 characters"),
]


@pytest.mark.parametrize(("lines", "why"), BAD)
def test_wrong_lines(tmp_path: Path, lines: list[str], why: str) -> None:
    """A wrong line is refused with the file and what is wrong, and never shown."""
    file = tmp_path / "cookie"
    file.touch(0o600)
    file.write_text("\n".join(lines))
    with pytest.raises(InvalidOption, match=re.escape(why)) as error:
        Cookies.read(Cookie(file), 16)
    assert str(file) in str(error.value)
    assert LOOK not in str(error.value)


def test_lines_with_roles(tmp_path: Path) -> None:
    """Each line has the right that it names; another right is another cookie, so that the change of a file is noticed."""
    file = tmp_path / "cookie"
    file.touch(0o600)
    file.write_text("\n".join([*COOKIES, f"break:  {COOKIE}-2", ""]))
    found = Cookies.read(Cookie(file), 16)
    assert [each.right for each in found.each] == [Right.BREAK, Right.LOOK, Right.USE, Right.BREAK]
    assert [each.is_same(Cookie(LOOK)) for each in found.own] == [False, False]
    file.write_text(file.read_text().replace("look:", "use:"))
    assert not found.are_same(found.again())


class Limited(Servers):
    """Servers that know a cookie for each role."""

    def options(self, name: str) -> list[str]:
        """Their cookies."""
        file = self.world.folder / "cookies"
        if not file.exists():
            file.touch(0o600)
            file.write_text("\n".join(COOKIES))
        return [f"--cookie-file={file}"]

    def environment(self, servers: list[str] | None = None) -> dict[str, str]:
        """The environment of an operator who has the cookie that may only look."""
        return {**super().environment(servers), "LOCKS_COOKIE_FILE": str(self.file_of(LOOK))}

    def file_of(self, cookie: str) -> Path:
        """A file with a cookie."""
        file = self.world.folder / cookie
        if not file.exists():
            file.touch(0o600)
            file.write_text(cookie)
        return file

    def run_with(self, cookie: str, *arguments: str) -> Done:
        """Run a command with a cookie."""
        world = SimpleNamespace(cookie_file=self.file_of(cookie))
        operator: Any = SimpleNamespace(addresses=self.addresses, copies=None, world=world)
        return command(operator, *arguments)


@pytest.mark.slow
def test_the_commands_with_such_a_cookie() -> None:
    """An operator who may only look: all that looks works, `run`, `elect` and `break` fail by name."""
    with World() as world:
        servers = Limited(world)
        for looks in (("status",), ("ps",), ("why", "x"), ("leaders",)):
            done = servers.run_with(LOOK, *looks)
            assert done.status in (0, 1), done
            assert not done.error, done
        for takes in ("run", "elect"):
            done = process(servers, takes, "x", "--", "true")
            assert done.status == 125, done
            assert "may only look" in done.error
        holder = "import sys, locks; locks.Lock(('x',)).acquire(); print('ready', flush=True); sys.stdin.readline()"
        program = Servers.environment(servers) | {"LOCKS_COOKIE_FILE": str(servers.file_of(USE))}
        with subprocess.Popen(
            [sys.executable, "-c", holder],
            env=program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as holding:
            assert holding.stdout is not None
            assert holding.stdout.readline() == "ready\n"
            (held, *_) = json.loads(servers.run_with(LOOK, "ps", "--json").out)["locks"]
            done = servers.run_with(USE, "break", held["agent"], "--reason", "x")
            holding.communicate("over\n", timeout=LIMIT)
        assert done.status == 2
        assert "does not allow Break" in done.error
