"""Locks for Ray: `install()`, then tasks and actors use `locks.transaction` and `locks.aio` as usual.

    import ray
    from locks.engines import ray as locks_ray

    ray.init(runtime_env={"worker_process_setup_hook": "locks.engines.ray.setup"})
    locks_ray.install()

    @ray.remote
    def book(account):
        with locks.transaction(timeout=30) as tx:
            tx.write_lock(("accounts", account))
            ...

The lock servers are Ray actors: named, so that every process of the cluster finds them; detached, so that they outlive
the job; each in its own process, on up to three nodes. Ray restarts a lost server, on another node if its node was lost. A
process asks them for the secret and the addresses when it first uses a lock, over Ray's connections.

The owner is the task, because Ray reuses the processes of tasks: the locks of a task are released when the task ends. In an actor, the
owner is the thread or coroutine that runs the method, and all of these end with the actor's process.
"""

from __future__ import annotations

import functools
import inspect
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from locks.engines.places import Asked, names_of, take_port
from locks.errors import InvalidOption, LocksError, MisuseError, OperatingError
from locks.lock_ids import shown
from locks.net.addresses import HostAndPort
from locks.net.secrets import Cookie
from locks.net.tls import TLS
from locks.node.client.clients import plain_label
from locks.node.client.owner import Owner
from locks.node.options import MOST_SERVERS
from locks.program import default as program
from locks.program.serving import open_many_files

__all__ = ["install", "setup", "uninstall"]

NAMESPACE = "locks"
USUAL = 3  # lock servers, if there are enough nodes
PATIENCE = 60.0  # seconds that `install` waits for the lock servers
ANSWER = 2.0  # seconds that a lock server has to return its address
SHARE = 0.01  # of a processor; Ray places an actor without a requirement at random
PAUSES = (0.0, 0.01, 0.1)  # seconds; a signal just before a wait does not end the wait
THREADS = 16  # of a lock server, for requests for its address


def install(servers: int | None = None) -> None:
    """Give a Ray cluster lock servers, and let this program use them; tasks and actors use them through `setup`.

    They run until `uninstall`. A second call only lets this program use them.

    Args:
        servers: The number of servers, each on another node if possible; a lock needs a majority. By default 3, or 1 if there
            are fewer than three nodes.

    Raises:
        InvalidOption: The number of servers is wrong.
        MisuseError: There already are others, or this program uses other servers.
        OperatingError: They did not start.
    """
    if servers is not None and (type(servers) is not int or not 0 < servers <= MOST_SERVERS):
        raise InvalidOption(
            f"servers={shown(servers)} is wrong; use a number from 1 to {MOST_SERVERS}",
            servers=shown(servers),
        )
    nodes = [
        each["NodeID"]
        for each in ray.nodes()
        if each["Alive"] and each["Resources"].get("CPU", 0) >= SHARE
    ]
    if not nodes:
        raise OperatingError(
            "can't install lock servers: no node of this Ray cluster has a processor for one"
        )
    size = servers or (USUAL if len(nodes) >= USUAL else 1)
    names = names_of(size, "ray")
    try:
        # If two programs do this at the same time, one creates the first server, which has the list of the others.
        said = ray.get(_server(names[0], nodes[0], names, secrets.token_hex()).said.remote())
        if servers is not None and len(said["names"]) != servers:
            raise MisuseError(
                f"this cluster already has {len(said['names'])} lock servers, not {servers}; call uninstall() first"
            )
        names = said["names"]
        actors = [
            _server(name, nodes[number % len(nodes)], names, said["cookie"])
            for number, name in enumerate(names)
        ]
        problems = ray.get([each.ready.remote() for each in actors], timeout=PATIENCE)
    except ray.exceptions.RayError as error:
        raise OperatingError(f"the lock servers of Ray did not start: {error}") from error
    if any(problems):
        raise OperatingError(f"the lock servers of Ray did not start: {problems}")
    program.preset(_options, _asked(said))


def setup() -> None:
    """Let the tasks and actors of a worker process use locks; Ray calls it in each process: `worker_process_setup_hook`."""
    program.preset(_options)
    _let_cancel_end_waits()
    manager = ray._private.worker.global_worker.function_actor_manager
    find = manager.get_execution_info

    def get_execution_info(job_id: Any, descriptor: Any) -> Any:
        info = find(job_id, descriptor)
        return (
            info
            if descriptor.is_actor_method()
            else info._replace(function=_as_owner(info.function))
        )

    manager.get_execution_info = get_execution_info


def uninstall() -> None:
    """End the lock servers; all locks are lost."""
    program.preset(None)
    program.stop()
    for name in _names():
        ray.kill(ray.get_actor(name, NAMESPACE), no_restart=True)


class _Server:
    """A lock server, as a Ray actor.

    Args:
        name: Its name.
        names: The names of all servers.
        cookie: Their secret.
    """

    def __init__(self, name: str, names: Sequence[str], cookie: str) -> None:
        self._names = names
        self._cookie = cookie
        self._address = take_port(ray.util.get_node_ip_address())
        self._started = threading.Event()
        self._problem = ""
        others = [each for each in names if each != name]
        found = Asked("Ray", names, functools.partial(_addresses, others), {name: self._address})
        threading.Thread(target=self._serve, args=(name, found), daemon=True).start()

    def _serve(self, name: str, found: Asked) -> None:
        """Start, as soon as the others are found."""
        open_many_files()
        while not self._started.is_set():
            try:
                program.start(
                    name,
                    cookie=self._cookie,
                    listen=self._address,
                    servers=found,
                    tls=(tls := _tls()),
                    allow_plaintext=tls is None,
                )
            except OperatingError as error:  # the others are not found yet
                self._problem = str(error)
                continue
            except (LocksError, OSError) as error:
                self._problem = str(error)
            else:
                self._problem = ""
            self._started.set()

    def said(self) -> Mapping[str, Any]:
        """The information for programs of the cluster."""
        return {"names": self._names, "cookie": self._cookie}

    def address(self) -> HostAndPort:
        """Its address."""
        return self._address

    def ready(self) -> str:
        """Wait until it is running; return what is wrong if it is not."""
        return "" if self._started.wait(PATIENCE) and not self._problem else self._problem


def _server(name: str, node: str, names: Sequence[str], cookie: str) -> Any:
    """The lock server with a name; started if it does not exist."""
    return (
        ray.remote(_Server)
        .options(
            name=name,
            namespace=NAMESPACE,
            get_if_exists=True,
            lifetime="detached",
            max_restarts=-1,
            max_concurrency=THREADS,
            num_cpus=SHARE,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True),
        )
        .remote(name, names, cookie)
    )


def _names() -> list[str]:
    """The names of the existing lock servers."""
    found = ray.util.list_named_actors(all_namespaces=True)
    return sorted(each["name"] for each in found if each["namespace"] == NAMESPACE)


def _answers(names: Sequence[str], method: str) -> dict[str, Any]:
    """The answers of the lock servers that answer in time.

    Raises:
        OSError: Ray does not answer.
    """
    if not ray.is_initialized():  # calling Ray then would start another cluster
        raise OSError("this program is not connected to Ray")
    asked = {}
    try:
        for name in names:
            try:
                asked[name] = getattr(ray.get_actor(name, NAMESPACE), method).remote()
            except ValueError:  # there is no server of this name at present
                continue
        refs = list(asked.values())
        ready = ray.wait(refs, num_returns=len(refs), timeout=ANSWER)[0] if refs else []
        found = {}
        for name, ref in asked.items():
            if ref in ready:
                try:
                    found[name] = ray.get(ref)
                except ray.exceptions.RayActorError:  # the server has ended meanwhile
                    continue
    except (ray.exceptions.RayError, RuntimeError) as error:
        raise OSError(f"Ray does not answer: {error}") from error
    return found


def _addresses(names: Sequence[str]) -> dict[str, HostAndPort]:
    return {name: (host, port) for name, (host, port) in _answers(names, "address").items()}


def _options() -> dict[str, Any]:
    """The options of a node in the cluster, from the lock servers."""
    names = _names() if ray.is_initialized() else ()
    said = next(iter(_answers(names, "said").values()), None) if names else None
    if said is None:
        raise MisuseError(
            "found no lock servers in this Ray cluster, or they do not answer; call locks.engines.ray.install() once, after ray.init()"
        )
    tls = _tls()
    cookie = Cookie(said["cookie"])
    return {"servers": _asked(said), "cookie": cookie, "tls": tls, "allow_plaintext": tls is None}


def _asked(said: Mapping[str, Any]) -> Asked:
    names = tuple(said["names"])
    engine = f"the Ray cluster {ray.get_runtime_context().gcs_address}"
    return Asked(engine, names, functools.partial(_addresses, names), {})


def _tls() -> TLS | None:
    """Ray's certificates, if it uses any; like Ray, it does not check the host in a certificate."""
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return None
    certificate, key, ca = (
        os.environ[f"RAY_TLS_{what}"] for what in ("SERVER_CERT", "SERVER_KEY", "CA_CERT")
    )
    return TLS(certificate, key, ca, check_hostname=False)


def _let_cancel_end_waits() -> None:
    """Make the main thread's wait end when Ray cancels its task.

    Ray sends no signal: it makes Python find one (`interrupt_main`) at its next step, which a waiting thread does not
    reach. Python also writes to the wakeup file; then this sends a harmless signal that ends the wait.
    """
    told, tell = socket.socketpair()
    tell.setblocking(False)
    main = threading.main_thread().ident
    assert main is not None

    def watch() -> None:
        assert tell.fileno() >= 0  # it stays open
        while numbers := told.recv(64):
            if signal.SIGINT in numbers:
                for pause in PAUSES:
                    time.sleep(pause)
                    signal.pthread_kill(main, signal.SIGURG)

    signal.signal(signal.SIGURG, lambda *_: None)
    signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=watch, name="locks-cancel", daemon=True).start()


def _as_owner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a task's function so that it runs as an owner of locks, which ends with it."""

    def owner() -> Owner:
        task = ray.get_runtime_context().get_task_id() or ""
        return Owner(plain_label(f"task {getattr(function, '__name__', 'task')} {task[:16]}"))

    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generate(*args: Any, **kwargs: Any) -> Iterator[Any]:
            with owner():
                yield from function(*args, **kwargs)

        return generate

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with owner():
            return function(*args, **kwargs)

    return run
