"""Asks lock servers who holds and who waits; and to end a transaction."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from locks.arguments import checked_agent
from locks.core.checked import check_agent_id
from locks.core.facts import (
    Answer,
    AskDeadlocks,
    AskNode,
    AskRequests,
    Break,
    Broken,
    DeadlockFact,
    DeadlockPage,
    NodeFact,
    Question,
    RequestFact,
    RequestPage,
)
from locks.errors import InvalidOption, NodeNotRunning
from locks.facts.graph import Waits, waits_of
from locks.lock_ids import shown
from locks.model import AgentId, check_lock_id, check_timeout, plain_text
from locks.node.agent import Agent
from locks.node.clients import this_program
from locks.node.inquiries import Answers, ask_all
from locks.node.node import Node
from locks.node.scope import scope_of
from locks.program import default_node

__all__ = [
    "Gathered",
    "break_transaction",
    "deadlocks",
    "lock_servers",
    "quorum",
    "requests",
    "waits",
]

PATIENCE = 5.0
LONGEST_REASON = 300  # characters


class Gathered(NamedTuple):
    """What several lock servers have told.

    Attributes:
        facts: All of it.
        silent: The lock servers that have not answered, each with why.
    """

    facts: tuple[Any, ...]
    silent: tuple[tuple[str, str], ...]


def waits(prefix: Sequence[Any] | None = None, *, timeout: float = PATIENCE) -> Waits:
    """The wait-for graph of the whole cluster: who holds, who waits, since when, and behind whom.

    All lock servers on which the program takes its locks are asked at once, and nothing is changed there. A program that
    only looks is best a client of them, `locks.start(servers=[...])`: it is in nobody's mesh or election.

    Args:
        prefix: Only requests on this lock id, above it and below it. Who of these waits elsewhere, too, is not known then.
        timeout: Seconds to wait for each part of the answers at most.

    Returns:
        The graph. `silent` in it says which servers have not answered, and why.
    """
    found = requests(prefix, timeout=timeout)
    return waits_of(found.facts, found.silent)


def requests(prefix: Sequence[Any] | None = None, *, timeout: float = PATIENCE) -> Gathered:
    """All requests on all lock servers of the program; see `waits`."""
    checked = None if prefix is None else check_lock_id(prefix)

    def rest(page: Answer) -> tuple[Iterable[RequestFact], int | None]:
        assert isinstance(page, RequestPage)
        more = page.requests[-1].request.number if page.more else None
        return page.requests, more

    return _by_pages(lambda after: AskRequests(checked, after), rest, timeout)


def deadlocks(*, timeout: float = PATIENCE) -> Gathered:
    """The deadlocks that the lock servers remember, the newest first."""

    def rest(page: Answer) -> tuple[Iterable[DeadlockFact], int | None]:
        assert isinstance(page, DeadlockPage)
        return page.deadlocks, page.deadlocks[-1].number if page.more else None

    found = _by_pages(AskDeadlocks, rest, timeout)
    newest = sorted(found.facts, key=lambda fact: (fact.now - fact.at, -fact.number))
    return Gathered(tuple(newest), found.silent)


def lock_servers(*, timeout: float = PATIENCE) -> Gathered:
    """What the lock servers say of themselves (`NodeFact`)."""
    node = default_node()
    answers = _ask(node, dict.fromkeys(scope_of(node).nodes, AskNode()), timeout)
    facts = tuple(each for each in answers.said.values() if isinstance(each, NodeFact))
    return Gathered(facts, tuple(answers.silent.items()))


def quorum() -> tuple[int, int]:
    """How many lock servers there are for this program, and how many of them a lock needs."""
    nodes, require = scope_of(default_node())
    return len(nodes), len(nodes) // 2 + 1 if require == "majority" else len(nodes)


def break_transaction(
    agent: Agent | AgentId, *, reason: str, by: str | None = None, timeout: float = PATIENCE
) -> None:
    """End somebody's transaction: its locks are released, and its next call raises `TransactionBroken`.

    What it does under its locks does not stop by that; only a fencing token keeps it out. The lock server that passes
    this on, and the node of the transaction, both log who has done it, and why.

    Args:
        agent: Its agent, or the agent's id, as `waits` and views give it.
        reason: Why; the owner is told.
        by: Who does it; the user and the program by default.
        timeout: Seconds to wait for it at most.

    Raises:
        InvalidOption: No reason is given.
        NodeNotRunning: It could not be ended; it may have ended by itself.
    """
    name = check_agent_id(agent) if isinstance(agent, AgentId) else checked_agent(agent).id
    question = Break(name, _said("reason", reason), _said("by", by if by is not None else _me()))
    check_timeout(timeout)
    node = default_node()
    if name.node == node.name:
        asked = [name.node]
    else:
        asked = [each for each in scope_of(node).nodes if each in node.alive]
    why = f"none of the lock servers can be reached from {node.name}"
    for server in asked:
        answers = _ask(node, {server: question}, timeout)
        answer = answers.said.get(server)
        if isinstance(answer, Broken) and answer.done:
            return
        why = answer.why if isinstance(answer, Broken) else answers.silent.get(server, why)
    raise NodeNotRunning(f"transaction {name} was not ended: {why}", nodes=[name.node])


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


def _ask(node: Node, questions: dict[str, Question], timeout: float) -> Answers:
    return ask_all(node, node.cluster, questions, timeout)


def _by_pages(
    ask: Callable[[int], Question],
    rest: Callable[[Answer], tuple[Iterable[Any], int | None]],
    timeout: float,
) -> Gathered:
    """Ask all lock servers, page by page; each goes on where its last page ended."""
    check_timeout(timeout)
    node = default_node()
    found: list[Any] = []
    silent: dict[str, str] = {}
    after = dict.fromkeys(scope_of(node).nodes, 0)
    while after:
        answers = _ask(node, {name: ask(number) for name, number in after.items()}, timeout)
        silent |= answers.silent
        after = {}
        for name, page in answers.said.items():
            facts, more = rest(page)
            found += facts
            if more is not None:
                after[name] = more
    return Gathered(tuple(found), tuple(silent.items()))
