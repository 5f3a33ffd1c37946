"""The functions of the original, under their names.

Each function checks its arguments before it changes anything. Most programs use
`locks.transaction` instead, which is built on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypedDict

import pykka

from locks.core.agent.flags import Flag
from locks.errors import InvalidOption, MisuseError
from locks.lock_ids import shown
from locks.model import (
    SERIAL_MASK,
    AgentId,
    Contender,
    LockInfo,
    LockResult,
    Mode,
    Require,
    View,
    check_bool,
    check_lock_id,
    check_timeout,
)
from locks.node.client.agent import Agent, NotifyTarget
from locks.node.client.clients import checked_label
from locks.node.client.objects import (
    Pattern,
    checked_node,
    checked_nodes,
    checked_object,
    checked_pattern,
    surrender_to,
)
from locks.node.client.options import check_names
from locks.node.client.owner import Owner
from locks.node.client.refusals import not_from_elsewhere
from locks.node.client.scope import Nodes
from locks.node.node import Node
from locks.node.ports import PendingCall
from locks.node.server import Watcher, listener
from locks.program.default import default_node
from locks.ranges import LONGEST_NAME
from locks.runtime.addressed import OfAnotherNode
from locks.runtime.callables import check_callable
from locks.runtime.hints import Unpack
from locks.runtime.monitor import Client, current_client

__all__ = [
    "await_all_locks",
    "begin_transaction",
    "change_flag",
    "checked_agent_id",
    "checked_label",
    "end_transaction",
    "ensure_held",
    "fencing_token",
    "fencing_token_nowait",
    "holders",
    "lock",
    "lock_info",
    "lock_nowait",
    "lock_objects",
    "queue",
    "spawn_agent",
    "surrender_nowait",
    "transaction_status",
    "unlock",
    "unwatch",
    "unwatch_on",
    "watch",
    "watch_on",
    "watchers",
]


NO_LOCKS = LockResult("no_locks", ())
FLAGS = ("link", "abort_on_deadlock", "await_nodes", "monitor_nodes")


class AgentOptions(TypedDict, total=False):
    """The options of an agent.

    Attributes:
        client: The actor (its reference), greenlet, thread or `locks.Owner` that the transaction belongs to; by
            default the owner that the caller acts for, or else the caller. Only the client may use the transaction
            (any thread may use an owner's), and it ends when the client ends.
        link: Stop the client when the transaction ends abnormally.
        abort_on_deadlock: If a deadlock can only be resolved by giving up a lock that the client
            holds, abort the transaction instead of surrendering that lock.
        await_nodes: Wait for required nodes that are down, instead of failing.
        monitor_nodes: Notify the client of nodes whose lock servers go up and down, during the
            transaction.
        notify: Notify the client of lock infos and changes of status: `True` sends
            `Notification` messages to a client that is an actor; a callable is called with them.
        label: The client's name as shown to others, such as "nightly import"; by default the name of its
            thread, greenlet or actor.
    """

    client: Client | None
    link: bool
    abort_on_deadlock: bool
    await_nodes: bool
    monitor_nodes: bool
    notify: NotifyTarget
    label: str | None


def begin_transaction(
    objects: Iterable[Pattern] = (),
    *,
    timeout: float | None = None,
    **options: Unpack[AgentOptions],
) -> tuple[Agent, LockResult]:
    """Begin a transaction, and lock some objects.

    Args:
        objects: The locks to take, each `(lock_id, mode)`, `(lock_id, mode, nodes)` or
            `(lock_id, mode, nodes, require)`. The call waits until all are locked.
        timeout: Seconds to wait at most; `None` waits for ever.
        **options: See `AgentOptions`.

    Returns:
        The agent, and the result of the wait.

    Raises:
        MisuseError: An object or option is wrong; no transaction was begun.
        CannotServe: Required nodes are not running.
        LockTimeout: The wait timed out.
        DeadlockAborted: The transaction was aborted (only with `abort_on_deadlock`).
    """
    check_names("begin_transaction", options, AgentOptions, "timeout")
    if timeout is not None:
        check_timeout(timeout)
    wanted = []
    for pattern in objects:
        wanted.append(checked_pattern(default_node(), pattern))
    client = options.get("client")
    if wanted and not (client is None or isinstance(client, Owner) or client == current_client()):
        raise InvalidOption(
            f"can't lock objects for client {client!r}, which is not the caller; begin with "
            "spawn_agent(client=...) and let the client lock",
            client=repr(client),
        )
    kept: list[Agent] = []
    try:
        agent = _spawn_agent(kept.append, **options)
        if not wanted:
            return agent, NO_LOCKS
        return agent, agent.lock_all(wanted, timeout)
    except BaseException:
        for agent in kept:
            agent.let_go()
        raise


def spawn_agent(**options: Unpack[AgentOptions]) -> Agent:
    """Begin a transaction without requesting locks.

    Args:
        **options: See `AgentOptions`.

    Returns:
        The agent.

    Raises:
        InvalidOption: An option has a wrong value.
    """
    # Written here and in `begin_transaction`, not in a function that both call: an exception may interrupt the last
    # instruction of each function, and only the outermost function can't handle that.
    check_names("spawn_agent", options, AgentOptions)
    kept: list[Agent] = []
    try:
        return _spawn_agent(kept.append, **options)
    except BaseException:
        for agent in kept:
            agent.let_go()
        raise


def _spawn_agent(keep: Callable[[Agent], object], **options: Unpack[AgentOptions]) -> Agent:
    """Begin a transaction and pass its agent to `keep` immediately, so that the caller can end it."""
    if options:
        for name in FLAGS:
            value = options.get(name, False)
            check_bool(value, name)
        if options.get("label") is not None:
            options["label"] = checked_label(options["label"])
    return default_node().spawn_agent(keep=keep, **options)


def end_transaction(agent: Agent) -> None:
    """End a transaction; all its locks are released.

    Raises:
        NotClient: The caller is not its client.
        TransactionEnded: It has already ended.
    """
    (agent if isinstance(agent, Agent) else checked_agent(agent)).end_transaction()


def lock(
    agent: Agent,
    lock_id: Sequence[Any],
    mode: Mode = "write",
    nodes: Nodes | None = None,
    require: Require | None = None,
    *,
    timeout: float | None = None,
) -> LockResult:
    """Lock an id, and wait until this and all earlier requests of the transaction are granted.

    Args:
        agent: The transaction's agent.
        lock_id: A non-empty tuple or list of key elements, e.g. `("db", "users", 17)`. It covers
            everything below it.
        mode: `"write"` is exclusive, `"read"` is shared. Lock again with `"write"` to upgrade a read lock.
        nodes: Names of the nodes on which to lock it, or `locks.HERE`; by default the `servers` of
            `locks.start`, or this program's own node.
        require: How many of them must grant it: `"all"`, `"any"`, `"majority"`, `"all_alive"`,
            `"majority_alive"`. By default a majority of several servers, or all of `nodes`.
        timeout: Seconds to wait at most; `None` waits for ever, `0` doesn't wait.

    Returns:
        The status, and the resolved deadlocks of this transaction; the newest 100.

    Raises:
        MisuseError: The call is wrong; nothing was changed.
        CannotServe: Too few of the nodes are running; nothing was changed.
        LockTimeout: The wait timed out, and this request was withdrawn. `lost` has the locks, if any,
            that were surrendered meanwhile.
        NotHeld: Another thread that acts for the same owner unlocked it meanwhile.
        DeadlockAborted: The transaction was aborted (only with `abort_on_deadlock`).
        TransactionEnded: The transaction has ended.
    """
    user = agent if isinstance(agent, Agent) else checked_agent(agent)
    wanted = checked_object(user.node, lock_id, mode, nodes, require)
    call = PendingCall()
    try:
        return user.lock_by(call, (wanted,), timeout)
    except BaseException:
        user.give_up(call)
        raise


def lock_nowait(
    agent: Agent,
    lock_id: Sequence[Any],
    mode: Mode = "write",
    nodes: Nodes | None = None,
    require: Require | None = None,
) -> None:
    """Request a lock without waiting for it; see `lock` and `await_all_locks`."""
    user = checked_agent(agent)
    user.ask_for((checked_object(user.node, lock_id, mode, nodes, require),))


def lock_objects(agent: Agent, objects: Iterable[Pattern]) -> None:
    """Request several locks without waiting for them.

    Args:
        agent: The transaction's agent.
        objects: Each `(lock_id, mode)`, `(lock_id, mode, nodes)` or
            `(lock_id, mode, nodes, require)`.
    """
    user = checked_agent(agent)
    user.ask_for([checked_pattern(user.node, pattern) for pattern in objects])


def await_all_locks(agent: Agent, *, timeout: float | None = None) -> LockResult:
    """Wait until all requests are granted; return immediately if there are none.

    Raises:
        LockTimeout: The wait timed out; the requests stay in the queue.
        DeadlockAborted: The transaction was aborted.
        TransactionEnded: The transaction has ended.
    """
    return checked_agent(agent).await_all(timeout)


def unlock(agent: Agent, lock_id: Sequence[Any]) -> None:
    """Release a lock before the transaction ends, or cancel the request for it.

    Raises:
        NotHeld: The transaction has not requested exactly this id.
    """
    checked_agent(agent).unlock(check_lock_id(lock_id))


def transaction_status(agent: Agent) -> LockResult:
    """The status of a transaction, and its resolved deadlocks."""
    return checked_agent(agent).status()


def change_flag(agent: Agent, flag: Flag, value: NotifyTarget) -> None:
    """Change an option of a running transaction.

    Args:
        agent: Its agent.
        flag: `"abort_on_deadlock"`, `"await_nodes"`, `"monitor_nodes"` or `"notify"`.
        value: `True` or `False`; for `"notify"` also a callable. Switching `"notify"` on notifies
            the client of the current status immediately.
    """
    checked_agent(agent).change_flag(flag, value)


def lock_info(agent: Agent) -> list[LockInfo]:
    """The locks that a transaction has requested, and which of them are granted."""
    return checked_agent(agent).lock_info()


def surrender_nowait(
    agent: Agent,
    lock_id: Sequence[Any],
    other: Agent | AgentId,
    nodes: Nodes | None = None,
) -> None:
    """Give a lock to another agent that waits for it; this agent queues for it again, behind the other requests.

    Args:
        agent: The transaction's agent.
        lock_id: The lock id.
        other: The agent that waits for it, or its id, as in views and reports.
        nodes: The nodes; by default those on which this program takes its locks.

    Raises:
        NotHeld: The lock isn't held, or the other agent doesn't wait for it.
    """
    user = checked_agent(agent)
    surrender_to(user, lock_id, checked_agent_id(other), nodes)


def fencing_token(agent: Agent, lock_id: Sequence[Any], *, timeout: float | None = None) -> int:
    """The fencing token of a lock: larger than the token of each earlier holder of the same id.

    That holds unless a server was restarted after its clock was set back: it begins its tokens at its clock. One of several servers
    learns from the others what it had confirmed, so that matters only if a majority of them is restarted at the same time.

    Pass it along with what you do under the lock; the resource refuses a token smaller than one that it
    has seen. For a lock on several nodes, with `"all"` or `"majority"`, enough of them must confirm that
    every later holder gets a larger token; that takes one round trip, once. With
    `"all_alive"`, all nodes that are up confirm it: the token is larger than that of each earlier holder
    on one of the same nodes, but guarantees nothing about holders in other parts of a split network.

    Args:
        agent: The transaction's agent.
        lock_id: The lock id.
        timeout: Seconds to wait at most for the confirmations; `None` waits for ever.

    Raises:
        NotHeld: The transaction doesn't hold exactly this id.
        InvalidOption: It is held on several nodes in a way that allows two holders (`"any"`, ...).
        LockLost: The lock was lost.
        LockTimeout: The wait timed out.
    """
    return checked_agent(agent).token(check_lock_id(lock_id), timeout)


def fencing_token_nowait(agent: Agent, lock_id: Sequence[Any]) -> None:
    """Request a notification of the client with the fencing token of a lock, without waiting for it.

    The client gets a `Notification` of kind `"token"`, with the lock id and the token, or the exception
    that `fencing_token` would raise.

    Args:
        agent: The transaction's agent, which was begun with `notify`.
        lock_id: The lock id.

    Raises:
        NotHeld: The transaction doesn't hold exactly this id; as for `fencing_token`.
        InvalidOption: The agent does not notify its client.
    """
    checked_agent(agent).token_nowait(check_lock_id(lock_id))


def ensure_held(agent: Agent, lock_id: Sequence[Any] | None = None) -> None:
    """Check that acknowledged locks are still held. A lock is acknowledged when the client was told that it holds it.

    Args:
        agent: The transaction's agent.
        lock_id: The lock to check; all acknowledged ones by default.

    Raises:
        LockLost: A lock was lost, with a node or by a surrender, since it was acknowledged.
        NotHeld: The transaction doesn't hold exactly this id.
    """
    checked_agent(agent).ensure_held(None if lock_id is None else check_lock_id(lock_id))


def holders(
    lock_id: Sequence[Any], *, node: str | None = None, timeout: float | None = 5
) -> tuple[Contender, ...]:
    """The holders of locks on this id, above it or below it; see `queue`."""
    return queue(lock_id, node=node, timeout=timeout).holders


def queue(lock_id: Sequence[Any], *, node: str | None = None, timeout: float | None = 5) -> View:
    """All requests on this id, above it and below it, in queue order, at one moment.

    Args:
        lock_id: The lock id.
        node: Name of the node whose lock server to ask; by default this program's own node, or the first reachable
            one of its `servers`, if it has these.
        timeout: Seconds to wait at most for another node.

    Raises:
        NodeNotRunning: The node can't be reached.
        LockTimeout: It did not answer in time.
    """
    here, checked = default_node(), check_lock_id(lock_id)
    return here.view(checked, checked_node(here, node, checked), timeout)


def watch(
    lock_id: Sequence[Any],
    nodes: Nodes | None = None,
    *,
    watcher: Watcher | None = None,
) -> None:
    """Watch a lock id: the watcher gets a `View` now, and one after each change.

    Each view shows the lock table at the view's version. If changes on another node come faster than
    they can be sent, one view reports several.

    Args:
        lock_id: The lock id.
        nodes: Names of the nodes; by default those on which this program takes its locks. The views of a node
            that is down come when it is back.
        watcher: The reference of an actor, which gets the views as messages, or a callable; by default the calling
            actor. A callable gets its views in order. It may block: only its own later views wait for it.

    Raises:
        InvalidOption: There is no watcher.
        NodeNotRunning: A node in `nodes` can't be reached. If a node is lost later, its views continue when
            it is back.
    """
    watch_on(default_node(), lock_id, nodes, checked_watcher(watcher))


def watch_on(node: Node, lock_id: Sequence[Any], nodes: Nodes | None, who: Watcher) -> None:
    """Watch a lock id through this node."""
    checked = check_lock_id(lock_id)
    named = nodes is not None
    for name in checked_nodes(node, nodes, checked, must_run=named):
        if name == node.name:
            node.server.add_watcher(checked, who)
        else:
            node.watch_elsewhere(name, checked, listener(who), named)


def unwatch(
    lock_id: Sequence[Any],
    nodes: Nodes | None = None,
    *,
    watcher: Watcher | None = None,
) -> None:
    """Stop watching a lock id; the opposite of `watch`."""
    unwatch_on(default_node(), lock_id, nodes, checked_watcher(watcher))


def unwatch_on(node: Node, lock_id: Sequence[Any], nodes: Nodes | None, who: Watcher) -> None:
    """Stop watching a lock id through this node."""
    checked = check_lock_id(lock_id)
    for name in checked_nodes(node, nodes, checked, must_run=False):
        if name == node.name:
            node.server.remove_watcher(checked, who)
        elif node.cluster is not None:
            node.turn.run(node.cluster.views.unwatch, name, checked, listener(who))


def watchers(lock_id: Sequence[Any]) -> list[Any]:
    """The watchers of exactly this lock id, on this program's node."""
    return default_node().server.watchers(check_lock_id(lock_id))


# --- Checks of what users pass ------------------------------------------------------------------


def checked_agent(agent: Any) -> Agent:
    """Check an agent of this node.

    Raises:
        MisuseError: It is none.
    """
    if isinstance(agent, Agent):
        return agent
    if isinstance(agent, OfAnotherNode):
        raise not_from_elsewhere(agent)
    raise MisuseError(
        f"{agent!r} is not an agent; note that begin_transaction() returns a pair (agent, result). Without an agent, use "
        "locks.Lock(lock_id)",
        agent=repr(agent),
    )


def checked_agent_id(agent: Any) -> AgentId:
    """Check an agent, or an agent's id, as in views and reports; return the id."""
    cluster = default_node().cluster
    if cluster is not None and isinstance(agent, OfAnotherNode):
        agent = cluster.agent_behind(agent) or agent
    if not isinstance(agent, AgentId):
        return checked_agent(agent).id
    created, name, serial = agent
    is_id = type(created) is type(serial) is int and type(name) is str
    if (
        is_id
        and len(name) <= LONGEST_NAME
        and 0 <= created < 1 << 64
        and 0 <= serial <= SERIAL_MASK
    ):
        return agent
    raise MisuseError(f"{shown(agent)} is not an agent's id", agent=shown(agent))


def checked_watcher(watcher: Watcher | None) -> Watcher:
    """Check a watcher; the default is the calling actor.

    Raises:
        InvalidOption: It is neither an actor's reference nor a callable.
    """
    who = current_client() if watcher is None else watcher
    if isinstance(who, pykka.ActorRef):
        return who
    if callable(who):
        check_callable(who, "watcher")
        return who
    raise InvalidOption(
        f"watcher {who!r} is neither an actor's reference nor a callable; pass watcher=function or "
        "watcher=actor_ref",
        watcher=repr(who),
    )
