"""Asks lock servers who holds and who waits; and to end a transaction."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from locks.arguments import checked_agent
from locks.core.checked import check_agent_id
from locks.core.facts import (
    Answer,
    AskClients,
    AskDeadlocks,
    AskMembers,
    AskNode,
    AskRequests,
    Break,
    Broken,
    ClientPage,
    DeadlockFact,
    DeadlockPage,
    MemberFact,
    MemberPage,
    NodeFact,
    Question,
    RequestFact,
    RequestPage,
)
from locks.core.statistics import NodeStatistics
from locks.errors import InvalidOption, NodeNotRunning
from locks.facts.around import Around
from locks.facts.graph import Waits, waits_of
from locks.facts.look import Look
from locks.lock_ids import shown
from locks.model import AgentId, check_lock_id, check_timeout, plain_text
from locks.node.client.agent import Agent
from locks.node.client.clients import this_program
from locks.node.client.scope import scope_of
from locks.node.observing.inquiries import Answers, ask_all, ask_by_ways
from locks.otp.options import check_node_name
from locks.program import default_node

__all__ = [
    "Gathered",
    "all_nodes",
    "await_servers",
    "break_transaction",
    "deadlocks",
    "lock_server_names",
    "lock_servers",
    "look",
    "look_around",
    "members",
    "quorum",
    "requests",
    "statistics",
    "waits",
]

PATIENCE = 5.0
GRACE = 0.1  # seconds for the last of the servers to be connected, when most are
AT_ONCE = 100  # client nodes that are asked
LONGEST_REASON = 300  # characters
WRONG = "it has answered another question"


class Gathered(NamedTuple):
    """What several nodes have told.

    Attributes:
        facts: All of it.
        silent: The nodes that have not answered, each with why.
    """

    facts: tuple[Any, ...]
    silent: tuple[tuple[str, str], ...]


def waits(prefix: Sequence[Any] | None = None, *, timeout: float = PATIENCE) -> Waits:
    """The wait-for graph of the whole cluster: who holds, who waits, since when, and behind whom.

    All lock servers on which the program takes its locks are asked at once; nothing is changed there. A program that
    only looks should be a client of them, `locks.start(servers=[...])`: then it is in no mesh or election.

    Args:
        prefix: Only requests on this lock id, above it and below it. Whether these also wait elsewhere is not known then.
        timeout: Seconds to wait for each part of the answers at most.

    Returns:
        The graph. `silent` in it says which servers have not answered, and why.
    """
    found = requests(prefix, timeout=timeout)
    return waits_of(found.facts, found.silent)


def requests(prefix: Sequence[Any] | None = None, *, timeout: float = PATIENCE) -> Gathered:
    """All requests on all lock servers of the program; see `waits`."""
    checked = None if prefix is None else check_lock_id(prefix)

    def rest(page: RequestPage, _: int) -> tuple[Iterable[RequestFact], int | None]:
        more = page.more and page.requests
        return page.requests, page.requests[-1].request.number if more else None

    def ask(_: str, after: int) -> Question:
        return AskRequests(checked, after)

    return _of_servers(_Asking(ask, RequestPage, rest), timeout)


def deadlocks(*, timeout: float = PATIENCE) -> Gathered:
    """The deadlocks that the lock servers remember, the newest first."""

    def rest(page: DeadlockPage, _: int) -> tuple[Iterable[DeadlockFact], int | None]:
        return page.deadlocks, page.deadlocks[-1].number if page.more and page.deadlocks else None

    found = _of_servers(_Asking(lambda _, after: AskDeadlocks(after), DeadlockPage, rest), timeout)
    newest = sorted(found.facts, key=lambda fact: (fact.now - fact.at, -fact.number))
    return Gathered(tuple(newest), found.silent)


def lock_servers(*, timeout: float = PATIENCE) -> Gathered:
    """What the lock servers say of themselves (`NodeFact`)."""
    return _of_servers(_NODES, timeout)


def all_nodes(*, timeout: float = PATIENCE) -> Gathered:
    """What the lock servers, and all client nodes that are connected with them, say of themselves (`NodeFact`)."""
    return _of_all(_NODES, timeout)


def members(*, timeout: float = PATIENCE) -> Gathered:
    """The members of process groups on the lock servers, and on all client nodes that are connected with them."""

    def rest(page: MemberPage, after: int) -> tuple[Iterable[MemberFact], int | None]:
        return page.members, after + len(page.members) if page.more and page.members else None

    return _of_all(_Asking(AskMembers, MemberPage, rest), timeout)


def look_around(*, timeout: float = PATIENCE) -> Around:
    """Look at all lock servers, and at all client nodes that are connected with them."""
    told, nodes = members(timeout=timeout), all_nodes(timeout=timeout)
    return Around(nodes.facts, told.facts, tuple(dict([*told.silent, *nodes.silent]).items()))


def await_servers(timeout: float) -> bool:
    """Wait until all lock servers can be asked; return whether that is so.

    A program starts when enough of them are there for its locks. Who wants to hear all of them waits a moment longer: not much
    longer than the others took, for the rest may be stopped.
    """
    node = default_node()
    if node.cluster is None:
        return True
    servers = scope_of(node)._replace(require="all")
    grace = max(GRACE, 2 * node.cluster.distribution.slowest)
    node.cluster.arrivals.await_servers(servers, timeout, found=False, grace=grace)
    return node.alive.issuperset(servers.nodes)


def lock_server_names() -> tuple[str, ...]:
    """The lock servers of this program."""
    return tuple(scope_of(default_node()).nodes)


def quorum() -> tuple[int, int]:
    """How many lock servers there are for this program, and how many of them a lock needs."""
    nodes, require = scope_of(default_node())
    return len(nodes), len(nodes) // 2 + 1 if require == "majority" else len(nodes)


def look(before: Look | None = None, *, timeout: float = PATIENCE) -> Look:
    """Look at all lock servers.

    Args:
        before: The look before: what no lock server has changed since is taken from it, and not asked for again. How long
            something has taken is told as it was then; since when, holds still.
        timeout: Seconds to wait for each part of the answers at most.
    """
    known, needed = quorum()
    begun = time.time()
    nodes = lock_servers(timeout=timeout)
    at = (begun + time.time()) / 2  # as if all had answered in the middle
    silent = dict(nodes.silent)
    if before is not None and (silent or before.silent):
        before = None  # who did not answer, or does not now, may have changed
    seen = () if before is None else before.nodes

    def same(what: Callable[[NodeFact], Any]) -> bool:
        """Whether that is what they had told before, and none has begun anew."""
        then, now = (
            sorted((f.node, f.started, what(f)) for f in facts) for facts in (seen, nodes.facts)
        )
        return then == now

    if before is not None and same(lambda fact: fact.statistics.table):
        waits = before.waits
    else:
        found = requests(timeout=timeout)
        waits = waits_of(found.facts, found.silent)
        silent |= dict(found.silent)
    if before is not None and same(lambda fact: fact.statistics.broken):
        remembered = before.deadlocks
    else:
        told = deadlocks(timeout=timeout)
        remembered = told.facts
        silent |= dict(told.silent)
    return Look(at, known, needed, nodes.facts, waits, remembered, tuple(silent.items()))


def break_transaction(
    agent: Agent | AgentId, *, reason: str, by: str | None = None, timeout: float = PATIENCE
) -> None:
    """End somebody's transaction: its locks are released, and its next call raises `TransactionBroken`.

    This does not stop what it does under its locks; only a fencing token keeps it out. The lock server that passes
    this on, and the node of the transaction, both log who did it, and why.

    Args:
        agent: Its agent, or the agent's id, as `waits` and views give it.
        reason: Why; the transaction's owner gets this text.
        by: The name of the caller; the user and the program by default.
        timeout: Seconds to wait for it at most.

    Raises:
        InvalidOption: No reason is given.
        NodeNotRunning: It could not be ended, for it may have ended by itself; or its node has not said in time that it was,
            and the error says so.
    """
    name = check_agent_id(agent) if isinstance(agent, AgentId) else checked_agent(agent).id
    question = Break(name, _said("reason", reason), _said("by", by if by is not None else _me()))
    check_timeout(timeout)
    told = _by_ways(name.node, question, timeout, _is_done)
    if any(map(_is_done, told.said.values())):
        return
    said = [answer.why if isinstance(answer, Broken) else WRONG for answer in told.said.values()]
    why = ", ".join(dict.fromkeys([*said, *told.silent.values()]))
    if told.silent:
        by = "" if name.node in told.silent else f" through {', '.join(told.silent)}"
        raise NodeNotRunning(
            f"it is not known whether transaction {name} was ended: asked{by}, {name.node} has not said so ({why}). "
            "If its program is stopped, the transaction ends when it goes on, and loses its locks before that when its node "
            "counts as lost",
            nodes=[name.node],
        )
    raise NodeNotRunning(f"transaction {name} was not ended: {why}", nodes=[name.node])


def _is_done(answer: Answer) -> bool:
    return isinstance(answer, Broken) and answer.done


def statistics(node: str | None = None, *, timeout: float = PATIENCE) -> NodeStatistics:
    """Counters of a node: of its transactions, its lock server, its elections.

    Args:
        node: The node, by its name; this program's own by default. One that is not connected with this program, a client
            of the same servers for example, is asked by way of them.
        timeout: Seconds to wait for another node at most.

    Raises:
        InvalidOption: That is no name of a node.
        NodeNotRunning: It does not answer, or runs an older version of locks.
    """
    own = default_node()
    if node is None or node == own.name:
        return own.statistics()
    name = check_node_name(node)
    check_timeout(timeout)
    told = _by_ways(name, AskNode(name), timeout, lambda answer: isinstance(answer, NodeFact))
    for answer in told.said.values():
        if isinstance(answer, NodeFact):
            return answer.statistics
    why = ", ".join(dict.fromkeys(told.silent.values())) or WRONG
    raise NodeNotRunning(f"{name} gives no statistics: {why}", nodes=[name])


def _said(name: str, text: Any) -> str:
    checked = plain_text(text)
    if (
        not checked
        or not checked.strip()
        or not checked.isprintable()
        or len(checked) > LONGEST_REASON
    ):
        raise InvalidOption(
            f"{name}={shown(text)} is not text of 1 to {LONGEST_REASON} characters in one line",
            option=name,
        )
    return checked


def _me() -> str:
    """Who calls: the user, and the program."""
    user = "somebody"
    with suppress(
        OSError, KeyError, ImportError
    ):  # a process need not belong to a user with a name
        user = getpass.getuser()
    return f"{user}{this_program()}"[:LONGEST_REASON]


# --- Asking -------------------------------------------------------------------------------------


class _Asking(NamedTuple):
    """How something is asked for, page by page.

    Attributes:
        ask: Makes the question for a node, from what is known already.
        kind: What an answer is.
        rest: Tells what is in an answer to a question, and what is known then; `None` if that is all.
        first: What is known at first.
    """

    ask: Callable[[str, Any], Question]
    kind: type[Answer]
    rest: Callable[[Any, Any], tuple[Iterable[Any], Any]]
    first: Any = 0


_NODES = _Asking(lambda name, _: AskNode(name), NodeFact, lambda fact, _: ([fact], None))


def _by_ways(
    name: str, question: Question, timeout: float, enough: Callable[[Answer], bool]
) -> Answers:
    """Ask a node directly, or by way of all lock servers at once.

    Raises:
        NodeNotRunning: There is no way to it.
    """
    node = default_node()
    if name == node.name or (node.cluster is not None and name in node.cluster.distribution.links):
        ways = [name]
    else:
        ways = [each for each in scope_of(node).nodes if each in node.alive and each != node.name]
    if not ways:
        raise NodeNotRunning(
            f"{name} can't be asked: none of the lock servers can be reached from {node.name}",
            nodes=[name],
        )
    return ask_by_ways(node, node.cluster, question, ways, timeout, enough)


def _of_servers(asking: _Asking, timeout: float) -> Gathered:
    """Ask all lock servers."""
    return _by_pages(asking, timeout, scope_of(default_node()).nodes)


def _of_all(asking: _Asking, timeout: float) -> Gathered:
    """Ask all lock servers, and the client nodes that are connected with them, by way of them."""
    servers = scope_of(default_node()).nodes
    ways, silent = _client_nodes(timeout)
    found: list[Any] = []
    names = [*servers, *ways]
    for at in range(0, len(names), AT_ONCE):
        some = _by_pages(asking, timeout, names[at : at + AT_ONCE], ways)
        found += some.facts
        silent |= dict(some.silent)
    return Gathered(tuple(found), tuple(silent.items()))


def _client_nodes(timeout: float) -> tuple[dict[str, str], dict[str, str]]:
    """By way of which lock server each client node can be asked; and which lock servers have not answered, with why."""

    def rest(page: ClientPage, _: str) -> tuple[Iterable[str], str | None]:
        return page.clients, page.clients[-1] if page.more and page.clients else None

    asking = _Asking(lambda _, after: AskClients(after), ClientPage, rest, "")
    ways: dict[str, str] = {}
    silent: dict[str, str] = {}
    for server in scope_of(default_node()).nodes:
        found = _by_pages(asking, timeout, [server])
        silent |= dict(found.silent)
        for name in found.facts:
            ways.setdefault(name, server)
    return ways, silent


def _by_pages(
    asking: _Asking,
    timeout: float,
    names: Iterable[str],
    ways: Mapping[str, str] | None = None,
) -> Gathered:
    """Ask nodes, page by page; each goes on where its last page ended.

    Args:
        asking: What for.
        timeout: Seconds to wait for each page at most.
        names: The nodes.
        ways: By way of which lock servers.
    """
    check_timeout(timeout)
    node = default_node()
    found: list[Any] = []
    silent: dict[str, str] = {}
    known = dict.fromkeys(names, asking.first)
    while known:
        questions = {name: asking.ask(name, after) for name, after in known.items()}
        answers = ask_all(node, node.cluster, questions, timeout, ways)
        silent |= answers.silent
        before, known = known, {}
        for name, page in answers.said.items():
            if not isinstance(page, asking.kind):
                silent[name] = WRONG
                continue
            facts, more = asking.rest(page, before[name])
            found += facts
            if more is not None:
                known[name] = more
    return Gathered(tuple(found), tuple(silent.items()))
