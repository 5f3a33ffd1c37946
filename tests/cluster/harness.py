"""Nodes as operating-system processes, and links between them that can be cut.

A `World` starts lock servers (`python -m locks node`) and workers (`tests.cluster.worker`: programs
with clients that do what they are told), on loopback and free ports, and ends each by its own process
id. What they write to standard error is printed at the end, and must have no traceback in it.

A `Proxy` stands for the network between two nodes: one of them is given the proxy's address instead
of the other's. Such nodes are started with `mesh=False`, or they would tell each other their own
addresses.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import selectors
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any, Literal, TypeVar

import locks
from tests.helpers import LIMIT, eventually
from tests.warm import Program

ROOT = Path(__file__).parents[2]
COOKIE = "cookie-of-the-tests"

# In a patched process these would be gevent's; the harness is for processes that are not.
Address = tuple[str, int]


class WorkerError(Exception):
    """A worker has raised something that is no error of `locks`."""


class Answer:
    """What a worker will answer."""

    def __init__(self, what: str) -> None:
        self.future: futures.Future[dict[str, Any]] = futures.Future()
        self._what = what

    def message(self, timeout: float = LIMIT) -> dict[str, Any]:
        """The answer as it came."""
        try:
            return self.future.result(timeout)
        except futures.TimeoutError:
            raise AssertionError(f"no answer within {timeout} s: {self._what}") from None

    def get(self, timeout: float = LIMIT) -> Any:
        """Return the result, or raise the error."""
        message = self.message(timeout)
        if "error" in message:
            kind, text, about = message["error"]
            found = getattr(locks.errors, kind, getattr(locks.node, kind, None))
            if found is None:
                raise WorkerError(f"{self._what}: {kind}: {text}")
            raise found(text, **about)
        return message["result"]

    @property
    def at(self) -> float:
        """When it was done, by `time.monotonic()`."""
        at: float = self.message()["at"]
        return at

    @property
    def ready(self) -> bool:
        """Whether it is there."""
        return self.future.done()


class Process:
    """A process of a test.

    Args:
        name: The name of its node.
        command: What follows `python -m`.
        skew: How many seconds its clock is ahead (`tests.cluster.skewed`).
        environment: More of its environment.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        skew: float = 0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        if skew:
            command = ["tests.cluster.skewed", str(skew), *command]
        # Its end is `close`; it outlives this function.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = Program(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env={
                **os.environ,
                **(environment or {}),
                "PYTHONPATH": str(ROOT),
                "PYTHONUNBUFFERED": "1",
            },
            stderr=self._log,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def stop(self) -> None:
        """SIGSTOP: when this returns it does nothing any more, and its connections stay open."""
        self.signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self.process.pid}/stat")
        eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")

    def go_on(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)

    def kill(self) -> float:
        """SIGKILL; returns when, by `time.monotonic()`."""
        at = time.monotonic()
        self.process.kill()
        self.process.wait()
        return at

    def errors(self) -> str:
        """What it has written to standard error."""
        number = self._log.fileno()
        # Not by `seek`: the process writes where this file stands, for the two share it.
        return os.pread(number, os.fstat(number).st_size, 0).decode(errors="replace")

    def close(self) -> str:
        """End it, whatever state it is in; return what it wrote to standard error."""
        self.process.kill()
        self.process.wait()
        for stream in (self._stdin, self._stdout):
            with contextlib.suppress(BrokenPipeError):  # something was still to be written
                stream.close()
        text = self.errors()
        self._log.close()
        return text


class Server(Process):
    """A lock server: `python -m locks node`.

    Attributes:
        web: Where its live page is, if it has one, once it is ready.
    """

    web = ""

    def __init__(
        self, name: str, arguments: Iterable[str], skew: float, environment: Mapping[str, str]
    ) -> None:
        super().__init__(name, ["locks", "node", "--name", name, *arguments], skew, environment)
        self._address: Address | None = None

    @property
    def address(self) -> Address:
        """Where it listens."""
        if self._address is None:
            line = self._stdout.readline()
            assert line, f"{self.name} did not start: {self.errors()}"
            ready = json.loads(line)
            assert ready["name"] == self.name
            self._address = (ready["host"], ready["port"])
            self.web = ready.get("web", "")
        return self._address

    @property
    def peer(self) -> str:
        """How others are told of it."""
        return f"{self.name}:{self.address[1]}"


class Worker(Process):
    """A program with clients."""

    program = "tests.cluster.worker"

    def __init__(
        self,
        name: str,
        patched: bool = False,
        skew: float = 0,
        **options: Any,
    ) -> None:
        super().__init__(name, [self.program, *(["--patched"] if patched else [])], skew)
        self._numbers = itertools.count(1)
        self._answers: dict[int, Answer] = {}
        options.setdefault("listen", True)  # without it, and without mesh, it is a client node
        self._started = self.ask("start", name=name, cookie=COOKIE, **options)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._stdout:
            message = json.loads(line)
            self._answers.pop(message["id"]).future.set_result(message)
        for answer in list(self._answers.values()):  # it is dead
            answer.future.cancel()

    def ask(self, do: str, client: str = "main", **arguments: Any) -> Answer:
        """Tell a client to do something; returns at once."""
        number = next(self._numbers)
        answer = self._answers[number] = Answer(f"{self.name} {client}: {do} {arguments}")
        line = json.dumps({"id": number, "do": do, "client": client, **arguments})
        self._stdin.write(line + "\n")
        self._stdin.flush()
        return answer

    def do(self, do: str, client: str = "main", **arguments: Any) -> Any:
        """Tell a client to do something, and wait for it."""
        return self.ask(do, client, **arguments).get()

    @property
    def address(self) -> Address:
        """Where it listens."""
        host, port = self._started.get()
        return (host, port)

    @property
    def peer(self) -> str:
        """How others are told of it."""
        return f"{self.name}:{self.address[1]}"


AnyWorker = TypeVar("AnyWorker", bound=Worker)


class Proxy:
    """The network between two nodes: a port that leads to another one.

    It passes everything on, until it is told to `stall` (it accepts and takes bytes in, and passes
    none on, not even that a side has closed; in one direction or both), to `delay` all that it passes on,
    or to `cut` (it closes all connections, and refuses new ones). `heal` ends all of it; what
    was held back is passed on then.

    Args:
        target: Where it leads to; may be said later. Until then connections are refused.
    """

    def __init__(self, target: Address | None = None) -> None:
        self.target = target
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.address: Address = self._listener.getsockname()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._held: dict[socket.socket, bytearray] = {}  # what is to be sent to each
        self._late: dict[
            socket.socket, deque[tuple[float, bytes]]
        ] = {}  # and what will be, and when
        self._callers: set[socket.socket] = set()  # those sides that have connected
        self._delay = 0.0
        self._ended: set[socket.socket] = set()  # closed by their side while nothing is passed on
        self._state = "pass"
        self._orders: list[Callable[[], None] | None] = []
        self._done = threading.Event()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def peer(self, name: str) -> str:
        """How others are told of the node behind it."""
        return f"{name}:{self.address[1]}"

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return len(self._pairs) // 2

    def cut(self) -> float:
        """Close all connections and refuse new ones; returns when that was."""
        at = time.monotonic()
        self._order(self._cut)
        return at

    def stall(self, direction: Literal["both", "forth", "back"] = "both") -> None:
        """Pass nothing on, or nothing to the target (`forth`), or nothing of it (`back`)."""
        self._order(lambda: self._set("stall" if direction == "both" else direction))

    def delay(self, seconds: float) -> None:
        """Pass all on that much later, in each direction."""

        def order() -> None:
            self._delay = seconds

        self._order(order)

    def heal(self) -> None:
        """Pass everything on again, and at once."""

        def order() -> None:
            self._delay = 0.0
            for sock, late in self._late.items():
                self._held[sock] += b"".join(data for _, data in late)
                late.clear()
            self._set("pass")

        self._order(order)

    def close(self) -> None:
        """Close everything."""
        self._order(self._cut)
        self._order(None)
        self._thread.join(5)

    def _order(self, order: Callable[[], None] | None) -> None:
        self._done.clear()
        self._orders.append(order)
        self._wake.send(b"!")
        assert self._done.wait(LIMIT), "the proxy does not answer"

    def _set(self, state: str) -> None:
        self._state = state
        for sock in list(self._held):
            if sock in self._held:
                self._pass_on(sock)
        for sock in list(self._ended):
            self._drop(sock)

    def _cut(self) -> None:
        self._state = "cut"
        for sock in list(self._pairs):
            self._drop(sock)

    def _run(self) -> None:
        while True:
            for each in list(self._late):
                if each in self._late:
                    self._ripen(each)
            due = [late[0][0] for late in self._late.values() if late]
            pause = max(0.0, min(due) - time.monotonic()) if due else None
            for key, events in self._selector.select(pause):
                sock: Any = key.fileobj
                if sock is self._woken:
                    sock.recv(1)
                    order = self._orders.pop(0)
                    if order is None:
                        for each in (self._listener, self._wake, self._woken, self._selector):
                            each.close()
                        self._done.set()
                        return
                    order()
                    self._done.set()
                    break  # what was selected may be closed
                if sock is self._listener:
                    self._accept()
                elif sock in self._pairs:
                    if events & selectors.EVENT_READ:
                        self._take(sock)
                    if events & selectors.EVENT_WRITE and sock in self._pairs:
                        self._pass_on(sock)

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        try:
            if self._state == "cut" or self.target is None:
                raise ConnectionRefusedError
            other = socket.create_connection(self.target, 2)
        except OSError:
            sock.close()
            return
        self._callers.add(sock)
        for here, there in ((sock, other), (other, sock)):
            here.setblocking(False)
            here.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs[here] = there
            self._held[here] = bytearray()
            self._late[here] = deque()
            self._selector.register(here, selectors.EVENT_READ)

    def _take(self, sock: socket.socket) -> None:
        try:
            data = sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        other = self._pairs[sock]
        if not data:
            if self._stalls(other):  # nor is it passed on that it is closed
                self._ended.add(sock)
                self._selector.unregister(sock)
            else:
                self._drop(sock)
            return
        if self._delay or self._late[other]:
            self._late[other].append((time.monotonic() + self._delay, data))
        else:
            self._held[other] += data
            self._pass_on(other)

    def _stalls(self, sock: socket.socket) -> bool:
        """Whether nothing is passed on to one side."""
        return self._state == "stall" or self._state == (
            "back" if sock in self._callers else "forth"
        )

    def _ripen(self, sock: socket.socket) -> None:
        """Pass on what was delayed for long enough."""
        late = self._late[sock]
        if late and late[0][0] <= time.monotonic():
            while late and late[0][0] <= time.monotonic():
                self._held[sock] += late.popleft()[1]
            self._pass_on(sock)

    def _pass_on(self, sock: socket.socket) -> None:
        """Send what is held back for one side."""
        held = self._held[sock]
        try:
            if held and not self._stalls(sock):
                del held[: sock.send(held)]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(sock)
            return
        if sock in self._ended:
            return
        wanted = selectors.EVENT_READ
        if held and not self._stalls(sock):
            wanted |= selectors.EVENT_WRITE
        self._selector.modify(sock, wanted)

    def _drop(self, sock: socket.socket) -> None:
        for each in (sock, self._pairs.get(sock)):
            if each is not None and self._pairs.pop(each, None) is not None:
                del self._held[each]
                del self._late[each]
                self._callers.discard(each)
                if each in self._ended:
                    self._ended.remove(each)
                else:
                    self._selector.unregister(each)
                each.close()


class World:
    """All processes and links of one test; a context manager that ends them.

    Args:
        shown: How many lines at most are printed of what each has written to standard error.
    """

    def __init__(self, shown: int | None = None) -> None:
        self.shown = shown
        self.processes: list[Process] = []
        self.proxies: list[Proxy] = []
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        self.cookie_file = self.folder / "cookie"
        self.cookie_file.touch(0o600)
        self.cookie_file.write_text(COOKIE)

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def server(
        self,
        name: str,
        peers: Iterable[str] = (),
        *,
        port: int = 0,
        net_ticktime: float = 2,
        mesh: bool = True,
        arguments: Iterable[str] = (),
        skew: float = 0,
        environment: Mapping[str, str] | None = None,
    ) -> Server:
        """Start a lock server; it need not be ready when this returns."""
        given = [f"--listen=127.0.0.1:{port}", f"--cookie-file={self.cookie_file}", *arguments]
        known = {
            "LOCKS_NET_TICKTIME": str(net_ticktime),
            "LOCKS_PEERS": ",".join(peers),
            **(environment or {}),
        }
        server = Server(name, given if mesh else [*given, "--no-mesh"], skew, known)
        self.processes.append(server)
        return server

    def worker(
        self,
        name: str,
        peers: Iterable[str] = (),
        *,
        patched: bool = False,
        net_ticktime: float = 2,
        mesh: bool = True,
        kind: type[AnyWorker] | None = None,
        **options: Any,
    ) -> AnyWorker:
        """Start a worker; it need not be ready when this returns."""
        made: Any = kind or Worker
        worker: AnyWorker = made(
            name, patched, peers=list(peers), net_ticktime=net_ticktime, mesh=mesh, **options
        )
        self.processes.append(worker)
        return worker

    def proxy(self, target: Address | None = None) -> Proxy:
        """Put a proxy before an address."""
        proxy = Proxy(target)
        self.proxies.append(proxy)
        return proxy

    def close(self) -> None:
        """End everything, and see that no process has printed a traceback."""
        texts = {}
        for number, process in enumerate(self.processes):
            texts[f"{number} {process.name}"] = text = process.close()
            if text:
                lines = text.splitlines()[: self.shown]
                print(f"--- standard error of {process.name}:", *lines, sep="\n")
        for proxy in self.proxies:
            proxy.close()
        self._folder.cleanup()
        broken = [name for name, text in texts.items() if "Traceback" in text]
        assert not broken, f"tracebacks: {broken}: {[texts[name] for name in broken]}"


class Net:
    """Lock servers and workers, and a proxy for each link of a worker. Each node comes back where it was.

    Args:
        world: What ends them.
        servers: The names of the servers.
        workers: The names of the workers.
        net_ticktime: After how many seconds of silence a node counts as down.
        meshed: Whether workers are connected with each other; otherwise they are client nodes.
        skews: How many seconds the clocks of some are ahead, by name.
        patched: Those of them that are monkey-patched.
        kind: Of the workers.

    Attributes:
        there: The processes, by name.
        links: By the names of both ends.
    """

    def __init__(
        self,
        world: World,
        servers: Sequence[str],
        workers: Sequence[str],
        *,
        net_ticktime: float = 3,
        meshed: bool = True,
        skews: Mapping[str, float] | None = None,
        patched: Iterable[str] = (),
        kind: type[Worker] = Worker,
    ) -> None:
        self.world = world
        self._kind = kind
        self.servers, self.workers = list(servers), list(workers)
        self.there: dict[str, Any] = {}
        self._ports: dict[str, int] = {}
        self._ticktime = net_ticktime
        self._meshed = meshed
        self._skews = skews or {}
        self._patched = set(patched)
        pairs = [*itertools.product(servers, workers)]
        pairs += itertools.combinations(workers, 2) if meshed else []
        self.links = {frozenset(pair): world.proxy() for pair in pairs}
        for name in (*servers, *workers):
            self.start(name)
        self.until_whole()

    def start(self, name: str) -> None:
        """Start a node, again if it has ended; the links that lead to it lead there from now on."""
        given: dict[str, Any] = {
            "net_ticktime": self._ticktime,
            "skew": self._skews.get(name, 0),
        }
        if name in self.servers:
            peers = [f"{other}:{port}" for other, port in self._ports.items() if other != name]
            port = self._ports.get(name, 0)
            process = self.there[name] = self.world.server(name, peers, port=port, **given)
            self._ports[name] = process.address[1]
            callers = self.workers
        else:
            before = self.workers[: self.workers.index(name)] if self._meshed else []
            callers = self.workers[len(before) + 1 :] if self._meshed else []
            peers = [self.link(name, other).peer(other) for other in (*self.servers, *before)]
            listen, patched = self._meshed, name in self._patched
            process = self.there[name] = self.world.worker(
                name, peers, mesh=False, listen=listen, patched=patched, kind=self._kind, **given
            )
        for other in callers:
            self.link(name, other).target = process.address

    def link(self, one: str, other: str) -> Proxy:
        """The link between two nodes."""
        return self.links[frozenset((one, other))]

    def links_of(self, name: str) -> list[Proxy]:
        """All links of a node that have a proxy."""
        return [proxy for pair, proxy in self.links.items() if name in pair]

    def until_whole(self, limit: float = LIMIT) -> None:
        """Wait until each worker can ask everybody that it is to be connected with."""
        names = {*self.servers, *(self.workers if self._meshed else ())}
        for name in self.workers:
            eventually(
                lambda name=name: names <= set(self.there[name].do("alive", client="looks")),  # type: ignore[misc]
                limit,
            )


def until_alive(worker: Worker, *names: str, limit: float = LIMIT) -> None:
    """Wait until a worker's node can ask the lock servers of these nodes, and no others."""
    wanted = sorted({worker.name, *names})
    eventually(lambda: worker.do("alive", client="looks") == wanted, limit)
