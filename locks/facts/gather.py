"""Questions to lock servers: which transactions hold locks or wait, and the request to end one."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from locks.api import checked_agent_id
from locks.core.done import why_not
from locks.core.facts import (
    Answer,
    AskClients,
    AskDeadlocks,
    AskMark,
    AskMarks,
    AskMembers,
    AskNode,
    AskRequests,
    Break,
    Broken,
    ClientPage,
    DeadlockPage,
    MarkFact,
    MarkPage,
    MemberPage,
    NodeFact,
    Question,
    RequestPage,
)
from locks.core.statistics import NodeStatistics
from locks.errors import InvalidOption, NodeNotRunning, causes
from locks.facts.around import Around
from locks.facts.graph import WaitReport, waits_of
from locks.facts.look import Look
from locks.lock_ids import shown
from locks.model import AgentId, check_lock_id, check_node_name, check_timeout, plain_text
from locks.node.client.agent import Agent
from locks.node.client.clients import this_program
from locks.node.client.scope import all_servers
from locks.node.observing.inquiries import Answers, ask_all, ask_by_ways
from locks.node.ports import Servers
from locks.program.default import default_node
from locks.ranges import MOST_NUMBER
from locks.runtime.clock import wall

__all__ = [
    "Gathered",
    "all_nodes",
    "await_servers",
    "break_transaction",
    "can_do_once",
    "deadlocks",
    "lock_servers",
    "look",
    "look_around",
    "members",
    "memories",
    "own_servers",
    "requests",
    "statistics",
    "waits",
]

PATIENCE = 5.0
GRACE = 0.1  # seconds for the last of the servers to connect
AT_ONCE = 100  # client nodes that are asked at the same time
LONGEST_REASON = 300  # characters
PROBE = ("locks status",)  # a lock id that is only asked about
WRONG = "its answer is for another question"


class Gathered(NamedTuple):
    """The answers of several nodes.

    Attributes:
        facts: All facts together.
        silent: The nodes that did not answer, each with the reason.
    """

    facts: tuple[Any, ...]
    silent: tuple[tuple[str, str], ...]


def waits(prefix: Sequence[Any] | None = None, *, timeout: float = PATIENCE) -> WaitReport:
    """The wait-for graph of the whole cluster: who holds locks, who is waiting, since when, and for whom.

    It asks all lock servers of the program in parallel, and changes nothing there. A program that
    only observes should be a client of them, `locks.start(servers=[...])`, so that it joins no mesh and no election.

    Args:
        prefix: Only requests on this lock id, above it and below it. The graph then lacks their waits elsewhere.
        timeout: Seconds to wait at most for each part of the answers.

    Returns:
        The graph. Its `silent` has the servers that did not answer, with the reasons.
    """
    found = requests(prefix, timeout=timeout)
    return waits_of(found.facts, found.silent)


def requests(prefix: Sequence[Any] | None = None, *, timeout: float = PATIENCE) -> Gathered:
    """All requests on all lock servers of the program; see `waits`."""
    checked = None if prefix is None else check_lock_id(prefix)
    asking = _Asking(
        lambda _, after: AskRequests(checked, after),
        RequestPage,
        lambda facts, _: facts[-1].request.number,
    )
    return _of_servers(asking, timeout)


def deadlocks(*, timeout: float = PATIENCE) -> Gathered:
    """The deadlocks that the lock servers remember, the newest first."""
    asking = _Asking(
        lambda _, after: AskDeadlocks(after), DeadlockPage, lambda facts, _: facts[-1].number
    )
    found = _of_servers(asking, timeout)
    newest = sorted(found.facts, key=lambda fact: (fact.now - fact.at, -fact.number))
    return Gathered(tuple(newest), found.silent)


def lock_servers(*, timeout: float = PATIENCE) -> Gathered:
    """The facts of the lock servers about themselves (`NodeFact`)."""
    return _of_servers(_NODES, timeout)


def all_nodes(*, timeout: float = PATIENCE) -> Gathered:
    """The facts of the lock servers, and of all client nodes that are connected to them, about themselves (`NodeFact`)."""
    return _of_all(_NODES, timeout)


def members(*, timeout: float = PATIENCE) -> Gathered:
    """The members of process groups on the lock servers, and on all client nodes that are connected to them."""
    asking = _Asking(AskMembers, MemberPage, lambda facts, after: after + len(facts))
    return _of_all(asking, timeout)


def look_around(*, timeout: float = PATIENCE) -> Around:
    """Ask all lock servers, and all client nodes that are connected to them."""
    told, nodes = members(timeout=timeout), all_nodes(timeout=timeout)
    return Around(nodes.facts, told.facts, tuple(dict([*told.silent, *nodes.silent]).items()))


def await_servers(timeout: float) -> bool:
    """Wait until all lock servers can be asked; return whether that is so.

    A program starts when enough servers are connected for its locks. A caller that needs the answers of all servers waits a bit
    longer: not much longer than the others took to connect, because the remaining servers may be down.
    """
    node = default_node()
    if node.cluster is None:
        return True
    servers = all_servers(node)._replace(require="all")
    grace = max(GRACE, 2 * node.cluster.network.slowest)
    node.cluster.arrivals.await_servers(servers, timeout, found=False, grace=grace)
    return node.alive.issuperset(servers.nodes)


def memories(*, timeout: float = PATIENCE) -> dict[str, MarkPage]:
    """What the lock servers tell of their memory of what is done (`locks.once`), without the marks, by name."""
    check_timeout(timeout)
    node = default_node()
    questions = {name: AskMarks(MOST_NUMBER) for name in all_servers(node).nodes}
    said = ask_all(node, questions, timeout).said
    return {name: page for name, page in sorted(said.items()) if isinstance(page, MarkPage)}


def can_do_once(refusing: Container[str] = (), *, timeout: float = PATIENCE) -> tuple[bool, str]:
    """Whether lock servers can say what is done once (`locks.once`), and why the answers of some would not count.

    Args:
        refusing: Servers that do not serve this program.
        timeout: Seconds to wait for them at most.
    """
    check_timeout(timeout)
    node = default_node()
    servers = all_servers(node)
    question = AskMark(AgentId(1, node.name, 0), PROBE, int(node.now() // 1000))
    said = ask_all(node, dict.fromkeys(servers.nodes, question), timeout).said
    with_it = servers.around(PROBE)
    found = {
        name: why_not(name, fact, with_it)
        for name, fact in sorted(said.items())
        if isinstance(fact, MarkFact) and name not in refusing
    }
    counting = sum(not why for why in found.values())
    needed = servers._replace(require="majority").enough
    return counting >= needed, causes({name: why for name, why in found.items() if why})


def own_servers() -> Servers:
    """The lock servers of this program."""
    return all_servers(default_node())


def look(before: Look | None = None, *, timeout: float = PATIENCE) -> Look:
    """Ask all lock servers for everything.

    Args:
        before: The previous look. Facts that no lock server has changed since are taken from it, and not requested again.
            Durations in them are those of that time; points in time remain right.
        timeout: Seconds to wait at most for each part of the answers.
    """
    servers = own_servers()
    begun = wall()
    nodes = lock_servers(timeout=timeout)
    at = (begun + wall()) / 2  # assumes that all have answered in the middle
    silent = dict(nodes.silent)
    if before is not None and (silent or before.silent):
        before = None  # servers that did not answer before, or do not now, may have changed
    seen = () if before is None else before.nodes

    def same(what: Callable[[NodeFact], Any]) -> bool:
        """Whether this is unchanged on all servers, and none was restarted."""
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
    return Look(
        at,
        len(servers.nodes),
        servers.needed,
        servers.enough,
        nodes.facts,
        waits,
        remembered,
        tuple(silent.items()),
    )


def break_transaction(
    agent: Agent | AgentId, *, reason: str, by: str | None = None, timeout: float = PATIENCE
) -> None:
    """End another client's transaction: its locks are released, and its next call raises `TransactionBroken`.

    This does not stop the program's work under its locks; only fencing tokens can keep it out. The lock server that forwards
    the request and the node of the transaction both log who did it, and why.

    Args:
        agent: Its agent, or the agent's id, as in `waits` and views.
        reason: The reason; the transaction's program gets this text.
        by: The name of the caller; the user and the program by default.
        timeout: Seconds to wait for it at most.

    Raises:
        InvalidOption: The reason or the name is missing or wrong.
        NodeNotRunning: It could not be ended, perhaps because it had already ended; or its node did not confirm the end in
            time, as the error then says.
    """
    name = checked_agent_id(agent)
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
            f"it is unknown whether transaction {name} was ended: {name.node} was asked{by} and did not confirm it ({why}). "
            "If its program is suspended, the transaction ends when the program continues, and it loses its locks earlier if its node "
            "counts as lost",
            nodes=[name.node],
        )
    raise NodeNotRunning(f"transaction {name} was not ended: {why}", nodes=[name.node])


def _is_done(answer: Answer) -> bool:
    return isinstance(answer, Broken) and answer.done


def statistics(node: str | None = None, *, timeout: float = PATIENCE) -> NodeStatistics:
    """Counters of a node: its transactions, its lock server, its elections.

    Args:
        node: The node's name; this program's own by default. A node that is not connected to this program, such as
            another client of the same servers, is asked through them.
        timeout: Seconds to wait at most for another node.

    Raises:
        InvalidOption: The name is not a node's name.
        NodeNotRunning: It did not answer.
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
    raise NodeNotRunning(f"can't get the statistics of {name}: {why}", nodes=[name])


def _said(name: str, text: Any) -> str:
    checked = plain_text(text)
    if (
        not checked
        or not checked.strip()
        or not checked.isprintable()
        or len(checked) > LONGEST_REASON
    ):
        raise InvalidOption(
            f"{name}={shown(text)} is wrong; use one line of 1 to {LONGEST_REASON} characters",
            option=name,
        )
    return checked


def _me() -> str:
    """The caller: user and program."""
    user = "somebody"
    with suppress(OSError, KeyError, ImportError):  # a process's user may have no name
        user = getpass.getuser()
    return f"{user}{this_program()}"[:LONGEST_REASON]


# --- Asking -------------------------------------------------------------------------------------


class _Asking(NamedTuple):
    """How something is requested, page by page.

    Attributes:
        ask: Makes the question to a node, from where its last page ended.
        kind: The type of the answer.
        after: Where a page ended, from its facts, and from where the one before ended.
        first: Where the first page begins.
    """

    ask: Callable[[str, Any], Question]
    kind: type[NodeFact | RequestPage | DeadlockPage | ClientPage | MemberPage]
    after: Callable[[Sequence[Any], Any], Any]
    first: Any = 0


_NODES = _Asking(lambda name, _: AskNode(name), NodeFact, lambda _, after: after)


def _by_ways(
    name: str, question: Question, timeout: float, enough: Callable[[Answer], bool]
) -> Answers:
    """Ask a node directly, or through all lock servers in parallel.

    Raises:
        NodeNotRunning: It can't be reached in any way.
    """
    node = default_node()
    if name == node.name or (node.cluster is not None and name in node.cluster.network.links):
        ways = [name]
    else:
        ways = [
            each for each in all_servers(node).nodes if each in node.alive and each != node.name
        ]
    if not ways:
        raise NodeNotRunning(
            f"can't ask {name}: {node.name} can't reach any lock server",
            nodes=[name],
        )
    return ask_by_ways(node, question, ways, timeout, enough)


def _of_servers(asking: _Asking, timeout: float) -> Gathered:
    """Ask all lock servers."""
    return _by_pages(asking, timeout, all_servers(default_node()).nodes)


def _of_all(asking: _Asking, timeout: float) -> Gathered:
    """Ask all lock servers, and through them the client nodes that are connected to them."""
    servers = all_servers(default_node()).nodes
    ways, silent = _client_nodes(timeout)
    found: list[Any] = []
    names = [*servers, *ways]
    for at in range(0, len(names), AT_ONCE):
        some = _by_pages(asking, timeout, names[at : at + AT_ONCE], ways)
        found += some.facts
        silent |= dict(some.silent)
    return Gathered(tuple(found), tuple(silent.items()))


def _client_nodes(timeout: float) -> tuple[dict[str, str], dict[str, str]]:
    """The lock server through which each client node can be asked; and the lock servers that did not answer, with reasons."""
    asking = _Asking(lambda _, after: AskClients(after), ClientPage, lambda names, _: names[-1], "")
    ways: dict[str, str] = {}
    silent: dict[str, str] = {}
    for server in all_servers(default_node()).nodes:
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
    """Ask nodes, page by page; the next page of each node begins where the last one ended.

    Args:
        asking: What to request.
        timeout: Seconds to wait at most for each page.
        names: The nodes.
        ways: The lock servers through which they are asked.
    """
    check_timeout(timeout)
    node = default_node()
    found: list[Any] = []
    silent: dict[str, str] = {}
    known = dict.fromkeys(names, asking.first)
    while known:
        questions = {name: asking.ask(name, after) for name, after in known.items()}
        answers = ask_all(node, questions, timeout, ways)
        silent |= answers.silent
        before, known = known, {}
        for name, page in answers.said.items():
            if not isinstance(page, asking.kind):
                silent[name] = WRONG
                continue
            if isinstance(page, NodeFact):
                found.append(page)
                continue
            facts: Any = getattr(page, page.__struct_fields__[0])  # of every page
            found += facts
            if page.more and facts:
                known[name] = asking.after(facts, before[name])
    return Gathered(tuple(found), tuple(silent.items()))
