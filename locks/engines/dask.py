"""Locks for Dask (`dask.distributed`): `install(client)`, then tasks use `locks.transaction` and `locks.aio` as usual.

    from dask.distributed import Client
    from locks.engines import dask as locks_dask

    client = Client()
    locks_dask.install(client)

    def book(account):
        with locks.transaction(timeout=30) as tx:
            tx.write_lock(("accounts", account))
            ...

It consists of two Dask plugins. The scheduler plugin keeps the lock servers running, each a process beside the scheduler, and knows their
addresses. The worker plugin, which later workers get, too, gives each worker's program the secret and a way to ask for the addresses, and
makes each task the owner of its locks. All this goes over Dask's connections, encrypted if these are.

The owner is the task, because the threads that run tasks are reused: the locks of a task are released when the task ends. If
Dask does not need a task any more (it was cancelled, its worker is closed), its locks are released immediately, and its waits end. Its code
can't be stopped, so it continues until its next call: `ensure_held` and all other calls raise `TransactionEnded`. If Dask needs it again, it is run again.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import secrets
import tempfile
from collections.abc import Mapping
from typing import Any

from distributed import Client, Scheduler, SchedulerPlugin, Worker, WorkerPlugin
from distributed.comm.addressing import get_address_host
from distributed.worker_state_machine import ExecuteFailureEvent, RescheduleEvent

from locks.engines.beside import Beside
from locks.engines.places import Asked, names_of
from locks.errors import InvalidOption, LocksError, MisuseError, OperatingError
from locks.lock_ids import shown
from locks.net.addresses import HostAndPort
from locks.net.secrets import Cookie
from locks.net.tls import TLS
from locks.node.client.clients import plain_label
from locks.node.client.owner import Owner
from locks.node.options import MOST_SERVERS
from locks.program import default as program

__all__ = ["install", "join"]

logger = logging.getLogger("locks.engines")

NAME = "locks"  # of both plugins
PATIENCE = 60.0  # seconds that `install` waits for the lock servers
ANSWER = 5.0  # seconds that the scheduler has to return their addresses
AGAIN = 0.2  # seconds until a lock server that has ended is restarted
CANCELLED = "Dask does not need the task any more"

Places = dict[str, HostAndPort]


def install(client: Client, *, servers: int = 1, port: int = 0) -> Any:
    """Give a cluster lock servers, and let all of its tasks, on current and later workers, use them.

    A second call does nothing. This program itself uses the locks after `join`.

    Args:
        client: The cluster's client.
        servers: The number of lock servers, each a process beside the scheduler; a lock needs a majority of these. With 3, locks
            survive the end of one of these processes.
        port: The port of the first lock server; the others have the next ones. 0 gives each a free port.

    Returns:
        Nothing; for an asynchronous client, an awaitable.

    Raises:
        InvalidOption: A number is wrong.
        MisuseError: Another number of lock servers is installed, or a worker already uses locks on other servers.
        OperatingError: The lock servers did not start.
    """
    if type(servers) is not int or not 0 < servers <= MOST_SERVERS:
        raise InvalidOption(
            f"servers={shown(servers)} is wrong; use a number from 1 to {MOST_SERVERS}",
            servers=shown(servers),
        )
    if type(port) is not int or not (port == 0 or 0 < port <= 65536 - servers):
        raise InvalidOption(
            f"port={shown(port)} is wrong; use a number from 1 to {65536 - servers}, or 0 for free ports",
            port=shown(port),
        )
    return client.sync(_install, client, servers, port)


def join(client: Client) -> Any:
    """Let this program use the locks of a cluster, as another client of its lock servers, which it must be able to reach.

    Args:
        client: The cluster's client; keep it as long as this program uses locks.

    Returns:
        Nothing; for an asynchronous client, an awaitable.

    Raises:
        MisuseError: The cluster has no lock servers, or this program uses others.
    """
    return client.sync(_join, client)


async def _install(client: Client, servers: int, port: int) -> None:
    await client.register_plugin(_Servers(servers, port), name=NAME)
    known = await client.run_on_scheduler(_said)
    if len(known["names"]) != servers:
        raise MisuseError(
            f"can't install other lock servers: this cluster already has {len(known['names'])}, not {servers}, and all of its "
            "programs share them"
        )
    await client.register_plugin(_Joined(), name=NAME)
    problem = await client.run_on_scheduler(_await_servers)
    if problem:
        raise OperatingError(f"the lock servers beside the scheduler did not start: {problem}")


async def _join(client: Client) -> None:
    known = await client.run_on_scheduler(_said)
    if known is None:
        raise MisuseError(
            "this cluster has no lock servers; call locks.engines.dask.install(client) first"
        )

    async def ask() -> Any:
        return (await client.run_on_scheduler(_said))["found"]

    _preset(known, client.security, "client", ask, client.loop.asyncio_loop)


def _said(dask_scheduler: Scheduler) -> dict[str, Any] | None:
    """The scheduler's information about the lock servers."""
    plugin = dask_scheduler.plugins.get(NAME)
    return plugin.said() if isinstance(plugin, _Servers) else None


async def _await_servers(dask_scheduler: Scheduler) -> str:
    plugin = dask_scheduler.plugins[NAME]
    assert isinstance(plugin, _Servers)
    return await plugin.complete()


def _preset(
    known: Mapping[str, Any], security: Any, role: str, ask: Any, loop: asyncio.AbstractEventLoop
) -> None:
    """Set the servers of this program."""

    def ask_and_wait() -> Places:
        try:
            answer = asyncio.run_coroutine_threadsafe(ask(), loop).result(ANSWER)
        except (concurrent.futures.TimeoutError, RuntimeError, OSError) as error:
            raise OSError(f"{known['engine']} does not answer: {error!r}") from error
        return _places(answer)

    asked = Asked(known["engine"], known["names"], ask_and_wait, _places(known["found"]))
    tls = _tls(security, role) if known["tls"] else None
    options = {"servers": asked, "cookie": Cookie(known["cookie"]), "tls": tls}
    program.preset(lambda: {**options, "allow_plaintext": tls is None}, asked)


def _places(found: Mapping[str, Any]) -> Places:
    return {name: (host, port) for name, (host, port) in found.items()}


_folders: list[tempfile.TemporaryDirectory[str]] = []


def _tls(security: Any, role: str) -> TLS:
    """Convert Dask's certificates, which may be in memory, to those of a node.

    Like Dask, it does not check the host in a certificate: every program with a certificate of this CA belongs to the cluster.
    """
    config = security.get_tls_config_for_role(role)
    paths = []
    for what in ("cert", "key", "ca_file"):
        value = config[what] or config["cert"]
        if "\n" in value:
            folder = tempfile.TemporaryDirectory(prefix="locks-")
            _folders.append(folder)  # removed when the program ends
            value, pem = f"{folder.name}/{what}.pem", value
            with open(value, "w", encoding="ascii") as file:
                file.write(pem)
        paths.append(value)
    certificate, key, ca = paths
    return TLS(certificate, key, ca, check_hostname=False)


def _host(address: str) -> str:
    """The host of a Dask server; servers in one process use loopback."""
    return "127.0.0.1" if address.startswith("inproc://") else get_address_host(address)


class _Servers(SchedulerPlugin):
    """Keeps the lock servers running, and knows their addresses.

    Args:
        servers: Their number.
        port: The port of the first one; 0: free ports.
    """

    idempotent = True

    def __init__(self, servers: int, port: int) -> None:
        self._names = names_of(servers, "dask")
        self._port = port

    async def start(self, scheduler: Scheduler) -> None:
        """Start, when the plugin is registered."""
        self._scheduler = scheduler
        self._cookie = secrets.token_hex()
        self._found: Places = {}
        self._running: dict[str, Beside] = {}
        self._complete = asyncio.Event()
        self._problem = "timed out"
        scheduler.handlers["locks_said"] = self.said
        self._keepers = [
            asyncio.create_task(self._keep(name, self._port and self._port + number))
            for number, name in enumerate(self._names)
        ]

    def said(self) -> dict[str, Any]:
        """The information for programs of the cluster."""
        return {
            "engine": f"the Dask scheduler {self._scheduler.address} ({self._scheduler.id})",
            "names": self._names,
            "cookie": self._cookie,
            "tls": self._has_tls,
            "found": self._found,
        }

    async def complete(self) -> str:
        """Wait until all servers are running; return what is wrong if they are not."""
        try:
            await asyncio.wait_for(self._complete.wait(), PATIENCE)
        except (TimeoutError, asyncio.TimeoutError):
            return self._problem
        return ""

    async def close(self) -> None:
        """End the servers with the scheduler."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*(each.end_process() for each in self._running.values()))

    @property
    def _has_tls(self) -> bool:
        return bool(self._scheduler.address.startswith("tls://"))

    async def _keep(self, name: str, port: int) -> None:
        """Keep a lock server of this name running, as long as the scheduler runs."""
        while True:
            try:
                beside = self._running[name] = await Beside.start_process(self._setup(name, port))
                self._found[name] = beside.address
                await self._tell()
                await beside.ended()
                logger.warning("the lock server %s was lost; restarting it", name)
            except (OSError, LocksError) as error:
                self._problem = str(error)
                logger.warning("the lock server %s did not start: %s", name, error)
            except Exception as error:  # a keeper never ends
                self._problem = repr(error)
                logger.exception("the lock server %s did not start", name)
            self._running.pop(name, None)
            await asyncio.sleep(AGAIN)

    def _setup(self, name: str, port: int) -> dict[str, Any]:
        scheduler = self._scheduler
        tls = _tls(scheduler.security, "scheduler") if self._has_tls else None
        return {
            "name": name,
            "cookie": self._cookie,
            "host": _host(scheduler.address),
            "port": port,
            "names": self._names,
            "tls": tls and [*map(str, tls[:3]), False],
        }

    async def _tell(self) -> None:
        """Send the addresses of all servers to all, once they are known."""
        if len(self._found) < len(self._names):
            return
        running = list(self._running.values())
        said = await asyncio.gather(
            *(each.tell_addresses(self._found) for each in running), return_exceptions=True
        )
        problems = [each for each in said if isinstance(each, BaseException)]
        for each in problems:
            self._problem = str(each)
            logger.info("can't send the addresses of the others to a lock server: %s", each)
        if not problems and len(running) == len(self._names):
            self._complete.set()


class _Joined(WorkerPlugin):
    """Lets the tasks of a worker use locks, each as an owner."""

    idempotent = True

    async def setup(self, worker: Worker) -> None:
        """Start, when the worker starts or the plugin is registered."""
        self._worker = worker
        self._tasks: dict[Any, Owner] = {}
        known = await worker.scheduler.locks_said()
        _preset(known, worker.security, "worker", self._ask, worker.loop.asyncio_loop)
        _programs.append(self)
        self._execute = worker.execute
        worker.execute = self._run

    async def teardown(self, worker: Worker) -> None:
        """End everything when the worker is closed."""
        if self not in _programs:
            return  # it was not set up
        _programs.remove(self)
        worker.execute = self._execute
        for owner in list(self._tasks.values()):
            owner.end("its worker is closed")
        if not _programs:
            program.preset(None)
            await asyncio.to_thread(program.stop)

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        """Take a new state of a task; release the locks of a running task that is not needed any more."""
        if finish == "released" and key in self._tasks:
            self._tasks[key].end(CANCELLED)

    async def _run(self, key: Any, *, stimulus_id: str) -> Any:
        """Run a task as an owner of locks: all its calls, in its thread or coroutine, act for this owner."""
        with Owner(plain_label(f"task {key}")) as owner:
            self._tasks[key] = owner
            try:
                event = await self._execute(key, stimulus_id=stimulus_id)
            finally:
                del self._tasks[key]
            was_cancelled = owner.ended
        if was_cancelled and isinstance(event, ExecuteFailureEvent):
            # If the task is needed again, it failed because it had lost its locks: it is run again. Otherwise nothing waits for it.
            return RescheduleEvent(key=key, stimulus_id=f"locks-cancelled-{event.stimulus_id}")
        return event

    async def _ask(self) -> Any:
        return (await self._worker.scheduler.locks_said())["found"]


_programs: list[_Joined] = []  # of this process
