"""This program's node: started on first use, or with options; one per process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import Any, NamedTuple

from locks.errors import InvalidOption, MisuseError
from locks.lock_ids import shown
from locks.model import Require, is_seconds
from locks.node.client.refusals import check_may_wait
from locks.node.client.scope import HERE, Here
from locks.node.node import Node, Trace
from locks.node.observing.long_waits import LONG
from locks.node.ports import Scope
from locks.otp.admission.secret import Cookie
from locks.otp.names.discovery import Address, Discovery
from locks.otp.options import (
    NODE_NAME,
    TLS,
    Options,
    check_node_name,
    client_name,
    parse_servers,
)
from locks.program.discovering import HERE_WORD, discovery_of, find_servers, none_of_the_servers
from locks.program.handed_down import hand_down, handed_down
from locks.program.local import LocalServer
from locks.program.settings import arguments, read_settings
from locks.program.several import one_of_several
from locks.runtime.executor import check_interpreter_lasts
from locks.runtime.native import native_lock

__all__ = ["default_node", "is_at_hand", "preset", "running_node", "stand_in", "start", "stop"]

ONE_OF_SEVERAL = (
    "process {} can't have locks of its own: {}, and no process would see the locks of the others. For locks that processes "
    'share, set LOCKS_SERVERS=local or call locks.start(servers="local"), or name servers=[...] on several machines; if each '
    "process is to have locks of its own, set LOCKS_SERVERS=here or call locks.start(servers=locks.HERE)"
)
UNTOLD = (
    "node %s was started in process %s, and process %s was forked from it without Python's knowledge: it has the node's memory, "
    "and not its threads. Use locks after the fork only; with --lazy-apps uWSGI loads the program after it"
)

_default: Node | None = None
_started_in = 0  # the process that has started a node
_forked_from = 0  # the process that this one was forked from, if that has imported this module
_newborn: Node | None = None  # a node whose servers are waited for
_plan: _Plan | None = None  # that of the node that was started last
_preset: Callable[[], Mapping[str, Any]] | None = None
_next_plan: _Plan | None = None  # that of the parent's node, or of one whose servers are others now
_may_inherit = True  # whether it was not looked yet with what the parent's node was started
_starting = native_lock()
ENDED_WITHIN = (
    10.0  # seconds that the next node waits for the one before, whose servers were others
)
CONNECTED_WITHIN = 5.0  # seconds that `start` waits for servers until it is known whether they run


def start(
    name: str | None = None,
    *,
    cookie: str | None = None,
    listen: str | int | Address | bool | None = None,
    servers: Iterable[str] | Discovery | Here | None = None,
    require: Require | None = None,
    peers: Iterable[str] | None = None,
    tls: TLS | None = None,
    epmd: bool | None = None,
    net_ticktime: float | None = None,
    mesh: bool | None = None,
    allow_plaintext: bool | None = None,
    allow_short_cookie: bool = False,
    log_waits_longer_than: float | None = None,
    trace: Trace | None = None,
    register_agents: bool = False,
) -> Node:
    """Start this program's node, unless it runs already.

    The first use of `locks` starts it, too; in a forked child with what the parent's was started with. What is not
    given is taken from the environment (`LOCKS_SERVERS` and so on), or from a file `locks.toml` (see
    `locks.program.settings`); if nothing is said there either, it is a node that is alone. Its background work is
    done in a thread of its own; in a program that is monkey-patched by gevent, and starts it in its main thread, in
    that thread's hub.

    Args:
        name: The node's name, `name@host`; `node@localhost` by default, and one that no other node has
            for a client node.
        cookie: The secret that the nodes of a cluster share. With it, the node can be connected
            with others; without, it is alone. 16 to 255 characters of Latin-1, none of them white space.
        listen: Where it waits for connections: `"host:port"`, `(host, port)`, or a port on
            loopback; a free port on loopback by default. `False`: it does not listen; that is the
            default without mesh.
        servers: The nodes on which locks are taken, each `name@host:port`; all programs that share them must name
            the same ones. A program that is not one of them is only a client: it gets its own name,
            does not listen, and takes no part in what others do. Or what finds them: a `locks.Discovery`, or a
            text that stands for one. `locks.HERE`: this program's locks are its own, although it meets other nodes.
        require: How many of the servers a lock needs: `"majority"`, the default of several, or `"all"`.
        peers: More nodes to connect to, each `name@host:port`. It goes on trying while one is not
            running, and connects again when one was lost.
        tls: Certificates. Addresses other than loopback demand it.
        epmd: Register with Erlang's port mapper, and look up the ports of peers that are given
            without one.
        net_ticktime: After how many seconds of silence a node counts as down; 15 by default, and
            60 for Erlang nodes, which is their default.
        mesh: Whether nodes tell each other which nodes they know, so that all are connected. That is the
            default but for clients of servers. A node without mesh that does not listen is a *client node*: it is connected with its peers alone,
            and uses their lock servers; no other node hears of it or asks it for locks.
        allow_plaintext: Allow addresses other than loopback without TLS.
        allow_short_cookie: Allow a cookie of less than 16 characters.
        log_waits_longer_than: After how many seconds a wait for a lock of this node is logged, to `locks.waits`; 1 by
            default. `math.inf`: none is logged.
        trace: For debugging: called with sender, receiver and message for each message between
            actors, in their order, after the step in which it was sent.
        register_agents: Put each transaction's agent into Pykka's registry, where `stop_all()` and `broadcast()`
            find it. That costs each transaction time in the number of actors; without, `node.agents()` finds them.

    Returns:
        The node. A client of servers is connected with enough of them by then, or knows why not; it waits for
        five seconds at most.

    Raises:
        MisuseError: A node runs already, and has another name, other servers or needs more or fewer of them, or a
            cookie is given.
        InvalidOption: An option is wrong.
        OperatingError: `epmd` is given, and the port mapper does not answer; or the servers are not found
            within five seconds.
    """
    check_interpreter_lasts()
    _inherit()
    if isinstance(servers, str):
        servers = HERE if servers == HERE_WORD else discovery_of(servers)
    elif isinstance(servers, Iterable) and not isinstance(servers, bytes):
        servers = tuple(servers)
    given: dict[str, Any] = {
        "name": name,
        "cookie": None if cookie is None else Cookie(cookie),
        "listen": listen,
        "servers": servers,
        "require": require,
        "peers": peers,
        "tls": tls,
        "epmd": epmd,
        "net_ticktime": net_ticktime,
        "mesh": mesh,
        "allow_plaintext": allow_plaintext,
        "log_waits_longer_than": log_waits_longer_than,
    }
    cookie = None  # a traceback may show variables
    _let_go_of_outdated()
    if _next_plan is not None and all(each is None for each in given.values()):
        return _start_again()
    with _starting:
        node = _default if _runs_already(given) else None
        elsewhere = {} if node is not None else arguments(read_settings())
    if node is None:
        if servers is None and _preset is not None:
            check_may_wait()
            elsewhere |= _preset()
        wanted = dict(given)
        wanted |= {what: value for what, value in elsewhere.items() if given[what] is None}
        # Not with the lock, if it takes a while: another greenlet of this thread may want it.
        plan = _plan_of(trace, register_agents, allow_short_cookie, **wanted)
        if plan.has_servers_elsewhere:
            check_may_wait()
        with _starting:
            node = _default if _runs_already(given) else _begin(plan)
    assert node is not None
    return _ready(node)


def preset(say: Callable[[], Mapping[str, Any]] | None, servers: Discovery | None = None) -> None:
    """Say what `start` takes, before what is said outside of the program: what runs the program knows its servers.

    That goes for a node that is started later and is not given other servers.

    Args:
        say: Returns arguments of `start`, the cookie as a `Cookie`; it is called for each node, and may wait. `None`:
            from now on there is nothing of that kind.
        servers: What it will say of the servers, if that is known.

    Raises:
        MisuseError: The program's node runs already, with other servers.
    """
    global _preset
    with _starting:
        node = _default
        if node is not None and node.running and servers is not None and _are_others(node, servers):
            raise MisuseError(
                f"node {node.name} of this program runs already, and was started with other servers than "
                f"{servers.describe()}: stop it first, locks.stop()",
                node=node.name,
            )
        _preset = say


def _runs_already(given: Mapping[str, Any]) -> bool:
    """Whether the program's node runs; with the lock.

    Raises:
        MisuseError: It does, and is not what `start` was given.
    """
    name = given["name"]
    if _default is not None and _default.running:
        _check_is_here(_default)
        if (
            name not in (None, _default.name)
            or given["cookie"] is not None
            or _are_others(_default, given["servers"])
            or _requires_other(_default, given["require"])
        ):
            raise MisuseError(
                f"node {_default.name} runs already; stop it with locks.stop() before you "
                f"start {name or 'another one'}",
                node=_default.name,
            )
        return True
    if _default is not None:
        _default.stop()  # its lock server has crashed
    return False


class _Plan(NamedTuple):
    """With what a node is started.

    Attributes:
        name: Its name.
        anonymous: Whether nobody gave the name.
        options: How it takes part in a cluster.
        here: Whether its locks are its own on purpose.
        trace: As for `start`.
        register_agents: As for `start`.
        log_waits_longer_than: Likewise.
        forked: Whether the node is in the process that this one was forked from.
    """

    name: str
    anonymous: bool
    options: Options | None
    here: bool
    trace: Trace | None
    register_agents: bool
    log_waits_longer_than: float
    forked: bool = False

    @property
    def has_servers_elsewhere(self) -> bool:
        """Whether it is a client of servers, whom `start` waits for."""
        return self.options is not None and any(each != self.name for each in self.options.servers)

    def again(self) -> _Plan:
        """The same for another node, in the place of this one.

        Raises:
            MisuseError: A forked child can't have the name, and it is no matter of indifference.
        """
        if self.options is None:
            return self
        if self.anonymous and self.options.hidden:
            return self._replace(name=client_name())
        if not self.forked:
            return self
        raise MisuseError(
            f"node {self.name} lives in the process that this one was forked from; call locks.start(...) here, "
            "with a name of its own, or without a name as a client of servers=[...]",
            node=self.name,
        )


def _plan_of(
    trace: Trace | None,
    register_agents: bool,
    allow_short_cookie: bool,
    *,
    name: str | None,
    servers: Any,
    log_waits_longer_than: float | None,
    **options: Any,
) -> _Plan:
    """Check what `start` was given, and what was said elsewhere."""
    long = LONG if log_waits_longer_than is None else log_waits_longer_than
    if not (is_seconds(long) or long == inf) or not long > 0:
        raise InvalidOption(
            f"log_waits_longer_than={shown(long)} is not a number of seconds > 0; math.inf looks for none",
            value=shown(long),
        )
    checked = None if name is None else check_node_name(name)
    here = isinstance(servers, Here)
    if isinstance(servers, tuple) and not servers:
        raise InvalidOption(
            "servers=[] names no server: name them, or leave it out, or say servers=locks.HERE if this program's locks are its own",
            servers="[]",
        )
    discovery = servers if isinstance(servers, Discovery) else None
    if discovery is not None:
        if isinstance(discovery, LocalServer):
            options["cookie"] = discovery.secret({"name": name, **options})
        check_may_wait()
        servers = find_servers(discovery, CONNECTED_WITHIN)
    made = Options.check(
        checked,
        **options,
        allow_short_cookie=allow_short_cookie,
        servers=() if servers is None or here else servers,
        discovery=discovery,
    )
    if checked is None:
        checked = NODE_NAME if made is None else made.name_for(None)
    return _Plan(checked, name is None, made, here, trace, register_agents, long)


def _begin(plan: _Plan) -> Node:
    """Make the node.

    Raises:
        MisuseError: Its locks would be seen by this process alone, one of several; and nobody says that this is meant.
    """
    global _default, _newborn, _plan, _next_plan, _started_in
    if plan.options is None and not plan.here and (why := one_of_several(_forked_from)):
        raise MisuseError(ONE_OF_SEVERAL.format(os.getpid(), why), node=plan.name)
    _started_in = os.getpid()
    node = _newborn = Node(
        plan.name,
        plan.trace,
        plan.options,
        None,
        plan.register_agents,
        plan.log_waits_longer_than,
    )
    _default = node
    if plan.here:
        node.scope = Scope((plan.name,), "all")
    _plan, _next_plan = plan._replace(forked=False), None
    if plan.here or plan.options is not None:
        hand_down(plan._replace(forked=True, trace=None))
    return node


def _inherit() -> None:
    """In a process that `multiprocessing` has started: the node is started with what the parent's was started with."""
    global _next_plan, _may_inherit
    if _may_inherit and _preset is None:
        plan = handed_down()
        with _starting:
            if _may_inherit and _default is None and _next_plan is None:
                _next_plan = plan
            _may_inherit = False


def _ready(node: Node) -> Node:
    """Wait for the servers of a client that was just started.

    Not with the lock: another greenlet of this thread may want it.
    """
    global _newborn
    if node is not _newborn:
        return node
    if node.cluster is not None and node.scope is not None and node.name not in node.scope.nodes:
        found = node.cluster.distribution.options.discovery is not None
        node.cluster.arrivals.await_servers(node.scope, CONNECTED_WITHIN, found=found)
    if _newborn is node:
        _newborn = None
    return node


def _let_go_of_outdated() -> None:
    """If the node has ended because its servers are others now: the next one is started with what it was started with."""
    global _default, _next_plan
    node = _default
    turnover = None if node is None or node.cluster is None else node.cluster.turnover
    if node is None or turnover is None or not turnover.reason:
        return
    turnover.ended.wait(ENDED_WITHIN)  # until then its name and its port are taken
    with _starting:
        if _default is node:
            _default, _next_plan = None, _plan


def _start_again() -> Node:
    """Start a node with what the parent's was started with, in a forked child, or the one before."""
    plan = _next_plan
    if plan is None:  # another thread was faster
        return default_node()
    plan = plan.again()
    if plan.options is not None and plan.options.discovery is not None:
        discovery = plan.options.discovery
        found = find_servers(discovery, CONNECTED_WITHIN)
        if plan.name in plan.options.servers and plan.name not in found:
            raise none_of_the_servers(plan.name, discovery, found)
        plan = plan._replace(options=plan.options.with_found(found))
    with _starting:
        node = _default
        if node is None:  # otherwise another thread was faster
            node = _begin(plan)
    return _ready(node)


def _are_others(node: Node, servers: Iterable[str] | Discovery | Here | None) -> bool:
    """Whether these are not the servers that a node was started with."""
    if servers is None:
        return False
    if isinstance(servers, Discovery):
        options = None if node.cluster is None else node.cluster.distribution.options
        return options is None or options.discovery != servers
    names = {node.name} if isinstance(servers, Here) else set(parse_servers(servers, epmd=True))
    return node.scope is None or names != set(node.scope.nodes)


def _requires_other(node: Node, require: Require | None) -> bool:
    """Whether it is not that many of several servers that a node was started with."""
    several = node.scope is not None and len(node.scope.nodes) > 1
    return several and require not in (None, node.scope and node.scope.require)


def _check_is_here(node: Node) -> None:
    """Refuse to use the node of another process: it would say things in that one's name, and hear no answer."""
    if _started_in not in (0, os.getpid()):
        raise MisuseError(UNTOLD % (node.name, _started_in, os.getpid()), node=node.name)


def stop() -> None:
    """Stop this program's node, if it runs: transactions end, everything is released."""
    global _default
    if _default is not None:
        _check_is_here(_default)
    node, _default = _default, None
    if node is not None:
        hand_down(None)
        node.stop()


def is_at_hand() -> bool:
    """Whether this program's node runs, and nobody waits for its servers: `default_node` does not wait."""
    node = _default
    return node is not None and node.running and node is not _newborn


def running_node() -> Node | None:
    """This program's node, if it runs."""
    node = _default
    return node if node is not None and node.running else None


def default_node() -> Node:
    """This program's node; it is started if it does not run."""
    node = _default
    if node is not None and node.running:
        if _started_in and _started_in != os.getpid():
            _check_is_here(node)
        return _ready(node) if node is _newborn else node
    _let_go_of_outdated()
    _inherit()
    return start() if _next_plan is None else _start_again()


@contextmanager
def stand_in(node: Node) -> Iterator[None]:
    """Put another node, a simulated one, in the place of this program's node for a while."""
    global _default
    before, _default = _default, node
    try:
        yield
    finally:
        _default = before


def _forget_node() -> None:
    """In a forked child there is no node."""
    global _default, _starting, _next_plan, _forked_from
    _forked_from = os.getppid()
    node, _default = _default, None
    _starting = native_lock()
    plan = _next_plan if node is None else _plan
    _next_plan = None if plan is None else plan._replace(forked=True)
    if node is not None:
        node.abandon()


os.register_at_fork(after_in_child=_forget_node)
