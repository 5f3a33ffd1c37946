"""The live page as requests see it: real lock servers, real programs, `locks web`, and no browser."""

from __future__ import annotations

import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue

import pytest

from locks.runtime.waiter import Event
from locks.web import serving
from locks.web.lookout import Lookout
from locks.web.rules import Rules
from tests.cluster.harness import World
from tests.cluster.pages import HOLDER, RING, Reader, Web, web
from tests.cluster.servers import LIMIT, NAMES, Servers, locks, running
from tests.helpers import eventually
from tests.warm import Program

MINE = ("accounts", "ann")


@pytest.fixture(scope="module")
def all_processes(processes: Servers) -> Iterator[Web]:
    """A page that may end transactions."""
    with web(processes, "--allow-break", "--host", "locks.example.org") as page:
        yield page


def test_a_transaction_is_ended_by_the_page(processes: Servers, all_processes: Web) -> None:
    """With the token and a reason, and not without; its program is told both."""
    told = HOLDER.replace("    sys.stdin.readline()", "    tx.lost.wait(60); tx.ensure_held()")
    with running(processes, told.format(label="night", lock_id=MINE)) as (program,):
        with Reader(all_processes) as reader:
            reader.until(lambda picture: bool(picture["locks"]))
            ((key, agent),) = reader.picture["agents"].items()
            wish = {"agent": key, "reason": "sleeps, ticket 17"}
            for status, body, headers in (
                (401, wish, {"x_locks_token": "wrong"}),
                (401, wish, {"x_locks_token": ""}),
                (403, wish, {"sec_fetch_site": "cross-site"}),
                (421, wish, {"host": "evil.example.org"}),
                (400, {"agent": key}, {}),
                (400, {"agent": key, "reason": " "}, {}),
                (400, {"agent": key, "reason": "two\nlines"}, {}),
                (400, [], {}),
                (400, {"agent": key, "reason": "x" * 5000}, {}),
                (400, wish, {"content_type": "text/plain"}),
                (404, {"agent": "nobody", "reason": "why not"}, {}),
            ):
                got, said = all_processes.ask("POST", "/break", body, **headers)
                assert (got, list(said)) == (status, ["error"]), (body, headers)
            assert program.poll() is None
            assert all_processes.ask("POST", "/break", wish) == (200, {"broken": agent["name"]})
        _, errors = program.communicate(timeout=LIMIT)
        assert "TransactionBroken" in errors
        assert "by a user of the live page at 127.0.0.1" in errors
        assert "sleeps, ticket 17" in errors


def test_what_a_stranger_sees(all_processes: Web) -> None:
    """The empty page and nothing else; it loads nothing from elsewhere, and is in nobody's frame."""
    for path in ("/", "/page.js", "/page.css"):
        with all_processes.request("GET", path, x_locks_token="") as answer:
            policy = answer.headers["Content-Security-Policy"]
            body = answer.read().decode()
        assert answer.status == 200
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert not [
            each
            for each in ("http://", "https://")
            if each in body.replace("http://www.w3.org", "")
        ]
    for method, path, status, headers in (
        ("GET", "/events", 401, {"x_locks_token": ""}),
        ("GET", "/events", 421, {"host": "evil.example.org"}),
        ("GET", "/events", 403, {"sec_fetch_site": "same-site"}),
        ("GET", "/", 421, {"host": "evil.example.org"}),
        ("POST", "/", 405, {}),
        ("PUT", "/break", 405, {}),
        ("GET", "/../setup.cfg", 404, {}),
    ):
        assert all_processes.ask(method, path, **headers)[0] == status, (method, path, headers)
    with all_processes.request("GET", "/events", host="locks.example.org") as answer:
        assert answer.status == 200


def test_a_page_that_reads_nothing_delays_nobody(all_processes: Web) -> None:
    """Also if it never reads a byte, and if it is closed in the middle; strange bytes end one connection."""
    with socket.create_connection(("127.0.0.1", all_processes.port)) as lazy:
        text = f"GET /events HTTP/1.1\r\nHost: x\r\nX-Locks-Token: {all_processes.token}\r\n\r\n"
        lazy.sendall(text.replace("Host: x", "Host: localhost").encode())
        with socket.create_connection(("127.0.0.1", all_processes.port)) as strange:
            strange.sendall(b"\x00\xff nothing\r\n\r\n")
            assert b"400" in strange.recv(100)
        with Reader(all_processes) as reader:
            for _ in range(2):
                reader.next()


def test_too_many_pages_are_refused(processes: Servers, all_processes: Web) -> None:
    """With a word why; those that are open go on, and when they are closed others can be opened."""
    readers = []
    status = 200
    while status == 200:
        assert len(readers) < 100
        answer = all_processes.request("GET", "/events")
        status = answer.status
        readers.append(answer)
    assert (status, b"too many open pages" in readers[-1].read()) == (503, True)
    for answer in readers:
        answer.close()

    def opened() -> bool:
        with all_processes.request("GET", "/events") as answer:
            return answer.status == 200

    eventually(opened)


@pytest.mark.explore
def test_a_lock_server_serves_the_page_itself(world: World) -> None:
    """With `locks node --web`, of its own lock table; it is read-only, and ends with its lock server."""
    server = world.server("solo@127.0.0.1", arguments=["--web=127.0.0.1:0"])
    assert server.address
    page = Web(server.web)
    client = world.worker("client@127.0.0.1", [server.peer], mesh=False, listen=None)
    with Reader(page) as reader:
        assert list(reader.next()["servers"]) == [server.name]
        client.ask("begin", await_nodes=True).get()
        client.ask("lock", lock_id=list(MINE), nodes=[server.name]).get()
        (row,) = reader.until(lambda picture: bool(picture["locks"]))["locks"].values()
        assert (row["id"], row["servers"]) == (list(MINE), [server.name])
        assert page.ask("POST", "/break", {"agent": row["agent"], "reason": "why"})[0] == 403
    server.signal(signal.SIGTERM)
    assert server.process.wait(LIMIT) == 0


@pytest.mark.explore
def test_the_bank_of_the_demo_on_the_page() -> None:
    """`locks demo --web` goes on until Ctrl-C, slow enough to watch, with its clients' names and deadlocks."""
    demo = Program(
        [sys.executable, "-m", "locks", "demo", "--web=127.0.0.1:0", "--clients=6", "--accounts=3"]
    )
    try:
        with Reader(Web(demo.stderr.readline().split()[1])) as reader:
            reader.until(lambda picture: bool(picture["deadlocks"]) and bool(picture["waits"]))
            labels = {row["label"] for row in reader.picture["agents"].values()}
            assert labels <= {*(f"client {n}" for n in range(1, 7)), "auditor 1", "auditor 2"}
        demo.send_signal(signal.SIGINT)
        out, errors = demo.communicate(timeout=LIMIT)
    finally:
        demo.kill()
        demo.wait()
    assert (demo.returncode, errors.strip()) == (0, "")
    assert "conserved" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listen", "here"], "not HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], "not HOST:PORT"),
        (["--listen", "192.0.2.1:0"], "can't listen"),
        (["--token-file", "/nowhere"], "can't read the token"),
        (["--token-file", "/dev/null"], "16 or more characters"),
    ],
)
def test_wrong_arguments(processes: Servers, arguments: list[str], said: str) -> None:
    """One sentence, and exit status 2."""
    done = locks(processes, "web", *arguments)
    assert (done.status, said in done.error) == (2, True), done


@contextmanager
def served_here() -> Iterator[int]:
    """A page in this process, with a token; gives its port."""
    ports: SimpleQueue[int] = SimpleQueue()
    ended = Event()

    def serve() -> None:
        server = serving.serve("127.0.0.1", 0, serving.Page(Lookout(), Rules(token="t" * 16)))
        ports.put(server.server_port)
        ended.wait()
        server.stop(1)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield ports.get(timeout=LIMIT)
    finally:
        ended.open()
        thread.join(LIMIT)


HEAD = b"POST /break HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    "said",
    [
        b"",
        HEAD,
        HEAD + b"Content-Length: 99999999\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffff\r\n",
    ],
    ids=["line", "head", "body", "chunks"],
)
def test_strangers_who_speak_slowly_keep_nobody_out(
    said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is waited for for ever, even if a byte comes again and again: there is room for so many only."""
    monkeypatch.setattr(serving, "SILENCE", 0.3)
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 2)
    answered = threading.Event()

    def speak_slowly(sock: socket.socket) -> None:
        try:
            while not answered.wait(0.05):
                sock.sendall(b"x")
        except OSError:
            pass  # it was sent away

    with served_here() as port, ExitStack() as stack:
        slow = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(2)
        ]
        for each in slow:
            each.sendall(said)
        threads = [threading.Thread(target=speak_slowly, args=(each,)) for each in slow]
        for thread in threads:
            thread.start()
        try:
            assert Web(f"http://127.0.0.1:{port}/").request("GET", "/").status == 200
        finally:
            answered.set()
            for thread in threads:
                thread.join(LIMIT)


@pytest.mark.parametrize(
    "said",
    [
        b"\x16\x03\x01" + bytes(100) + b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    ],
    ids=["tls", "version", "lines", "long", "length"],
)
def test_what_strangers_send_fills_no_log(
    said: bytes, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """What is no request is refused at once, and that is no news for the log, nor for standard error."""
    with served_here() as port, socket.create_connection(("127.0.0.1", port), LIMIT) as sock:
        sock.sendall(said)
        assert sock.recv(12) == b"HTTP/1.1 400"
    assert [each for each in caplog.records if each.levelname != "DEBUG"] == []
    assert capfd.readouterr().err == ""


@pytest.mark.explore
def test_a_page_shows_locks_and_deadlocks_as_they_come(world: World) -> None:
    """By default: on loopback, without a token, read-only. Who holds is there, then gone; a deadlock stays."""
    processes = Servers(world)
    with web(processes) as page, Reader(page) as reader:
        assert page.token == ""
        first = reader.next()
        assert first["state"]["cluster"]["enough"]
        assert list(first["servers"]) == list(NAMES)
        assert not first["locks"]
        with running(processes, HOLDER.format(label="night", lock_id=MINE)) as (program,):
            (row,) = reader.until(lambda picture: bool(picture["locks"]))["locks"].values()
            assert (row["id"], row["mode"], row["held"]) == (list(MINE), "write", True)
            agent = reader.picture["agents"][row["agent"]]
            assert (agent["label"], agent["pid"]) == ("night", program.pid)
            status, said = page.ask("POST", "/break", {"agent": row["agent"], "reason": "tired"})
            assert (status, "can't end transactions" in said["error"]) == (403, True)
            assert program.poll() is None
        reader.until(lambda picture: not picture["locks"])
        processes.run(RING)
        reader.until(lambda picture: bool(picture["deadlocks"]))
        card = [*reader.picture["deadlocks"].values()][-1]
        assert {edge["waiter"]["client"].split(" (")[0] for edge in card["cycle"]} == {
            "wants x",
            "wants y",
        }
        told = re.sub(r" \(-c, pid \d+\)", "", locks(processes, "deadlocks").out)
        assert card["steps"]
        assert all(step in told for step in card["steps"])
