"""Questions of observers to a node, and requests to end a transaction.

An observer is an ordinary client node, which queries the lock servers that it is connected with. A
question costs the lock server one page at a time, and changes nothing, except `Break` and `AskMark`. A question
for another client node goes through a lock server, because the observer is not connected with that
node. A `Break` is logged by both nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from locks.core.facts import (
    MOST_CLIENTS,
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
    NodeFact,
    Question,
    Untold,
    node_of,
)
from locks.errors import TransactionBroken, assert_never
from locks.net.addresses import place
from locks.net.budgets import MOST_CALLS, check_budget
from locks.net.link import Link
from locks.net.messages import check_speaker
from locks.net.versions import ASKED, check_version
from locks.node.client.clients import this_program
from locks.node.client.refusals import check_may_wait
from locks.node.marks import Memory, memory_of
from locks.node.peers.calls import BlockingCalls
from locks.node.peers.local_node import Connections, LocalNode
from locks.ranges import LONGEST_TEXT, one_line
from locks.runtime.logs import log_event
from locks.runtime.port import world
from locks.version import __version__

__all__ = ["Answers", "Inquiries", "Witness", "ask_all", "ask_by_ways"]

SILENT = "it is connected, but does not answer"
STRANGE = "it does not understand the question"


class Witness:
    """Answers questions about one node. For its turn.

    Args:
        node: The node.
    """

    def __init__(self, node: LocalNode) -> None:
        self._node = node

    def answer(self, question: Question) -> Answer:
        """The answer to a question that is for this node."""
        record = self._node.server.record
        match question:
            case AskRequests(prefix, after):
                return record.requests(prefix, after, partial(_address, self._node))
            case AskDeadlocks(after):
                return record.reports(after)
            case AskNode():
                return self._about()
            case AskClients(after):
                return _clients(self._node, after)
            case AskMembers(_, after):
                return self._node.services.members(self._node.name, self._program, after)
            case AskMark():
                return self.memory.answer_mark(question)
            case AskMarks():
                return self.memory.answer_marks(question)
            case Break():
                return self._break(question)
            case _:
                assert_never(question)

    @property
    def memory(self) -> Memory:
        """What it knows of work that is done."""
        return memory_of(self._node)

    @property
    def _program(self) -> str:
        """The text for the program behind the names of the node's clients."""
        return self._node.program or this_program()

    def _about(self) -> NodeFact:
        node = self._node
        record = node.server.record
        return NodeFact(
            node.name,
            __version__,
            self._program.strip(" ()"),
            record.started,
            record.now(),
            tuple(sorted(node.alive)),
            sum(link.peer.hidden for link in _links(node)),
            node.statistics(),
        )

    def _break(self, question: Break) -> Broken:
        name, reason, by = question.agent, question.reason, question.by
        agent = self._node.agents_by_id.get(name)
        if agent is None or not agent.is_alive():
            return Broken(False, f"transaction {name} had already ended")
        text = f"transaction {name} was ended by {one_line(by)}: {one_line(reason)}. Its locks were released"
        error = TransactionBroken(text, agent=name, reason=reason, by=by)
        log = partial(_log_break, self._node.name, question, "", "%s (%s)")
        self._node.executor.run_soon(log, text, agent.name)
        agent.event(agent.machine.end_transaction, error)
        return Broken(True)


def _address(node: LocalNode, name: str) -> str:
    """The address from which another node is connected; empty if it is not."""
    return "" if node.cluster is None else node.cluster.network.address_of(name) or ""


def _links(node: LocalNode) -> Collection[Link]:
    """The connections with other nodes."""
    return () if node.cluster is None else node.cluster.network.links.values()


def _clients(node: LocalNode, after: str) -> ClientPage:
    """A page of the names of connected client nodes."""
    peers = [link.peer for link in _links(node)]
    names = sorted(peer.name for peer in peers if peer.hidden and peer.name > after)
    return ClientPage(tuple(names[:MOST_CLIENTS]), len(names) > MOST_CLIENTS)


def _log_break(node: str, question: Break, address: str, text: str, *args: object) -> None:
    """Log that a transaction is ended."""
    name, reason, by = question.agent, question.reason, question.by
    about = {"agent": str(name), "by": one_line(by), "reason": one_line(reason), "address": address}
    log_event("broken", text, *args, node=node, **about)


class Inquiries:
    """Takes in questions of other nodes. For the turn.

    Args:
        cluster: The node's relations with others.
    """

    def __init__(self, cluster: Connections) -> None:
        self._cluster = cluster
        self._node = cluster.node
        self._witness = Witness(cluster.node)
        self._passed_on: Counter[str] = Counter()  # that wait for an answer, by who asks

    def asked(self, speaker: str, question: Question, answer: Callable[[Answer], object]) -> None:
        """Take in a question of another node; `answer` is called once, now or later.

        Raises:
            BadMessage: It is in the name of another node's agent, or has a token that is too far ahead of the clock.
        """
        if isinstance(question, AskMark):
            check_speaker(question.agent.node, speaker)
            if question.mark is not None:  # a later run with a smaller token could set none
                check_version(question.mark.token, ASKED)
        name = node_of(question)
        if name is not None and name != self._node.name:
            self._pass_on(speaker, question, name, answer)
        else:
            # After this step, in which earlier messages, such as a release, are carried out.
            self._node.turn.post(self._answer, question, answer)

    def _answer(self, question: Question, answer: Callable[[Answer], object]) -> None:
        if isinstance(question, AskMark):
            self._witness.memory.answer_when_kept(question, answer)
        else:
            answer(self._witness.answer(question))

    def _pass_on(
        self, speaker: str, question: Question, name: str, answer: Callable[[Answer], object]
    ) -> None:
        """Pass a question on to another node, and its answer back."""
        links = self._cluster.network.links

        def unanswered(why: str) -> None:
            is_break = isinstance(question, Break)
            answer(Broken(False, why[:LONGEST_TEXT]) if is_break else Untold(why[:LONGEST_TEXT]))

        if name not in links or speaker not in links:
            unanswered(f"{name} is not connected with {self._node.name}")
            return
        check_budget(self._passed_on[speaker] + 1, MOST_CALLS, "questions to forward")
        if isinstance(question, Break):
            text = "%s (%s) requests the end of transaction %s: %s"
            where = _address(self._node, speaker)
            log = partial(_log_break, self._node.name, question, where, text)
            by, reason = one_line(question.by), one_line(question.reason)
            self._cluster.executor.run_soon(log, by, speaker, question.agent, reason)

        def told(answered: bool, said: Any) -> None:
            self._passed_on[speaker] -= 1
            self._passed_on += Counter()  # forget who waits for none
            if answered and isinstance(said, Answer):
                answer(said)
            elif said == SILENT:
                unanswered(SILENT)
            else:
                why = STRANGE if answered else f"it does not answer: {said}"
                unanswered(f"no answer from {name}: {why}")

        self._passed_on[speaker] += 1
        if isinstance(question, Break):  # it may be carried out later, when the node continues
            self._cluster.exchange.call(name, question, told)
        else:
            self._ask(name, question, told)

    def _ask(self, name: str, question: Question, told: Callable[[bool, Any], object]) -> None:
        """Put a question to another node that is not waited for if it is silent."""
        cluster = self._cluster
        silence = cluster.silence
        open_ = True

        def over(answered: bool, said: Any) -> None:
            nonlocal open_
            silence.told.pop(hushed, None)
            if open_:
                open_ = False
                told(answered, said)

        def hushed(silent: str) -> None:
            if silent == name:
                cluster.exchange.give_up(number)
                over(False, SILENT)

        silence.doubt(name)
        number = cluster.exchange.call(name, question, over)
        if name in silence.silent:
            hushed(name)
        else:
            silence.told[hushed] = None


class Answers(NamedTuple):
    """The answers of several nodes.

    Attributes:
        said: The answers, by node.
        silent: Why there is no answer, by node.
    """

    said: dict[str, Answer]
    silent: dict[str, str]


def ask_all(
    node: LocalNode,
    questions: Mapping[str, Question],
    timeout: float,
    ways: Mapping[str, str] | None = None,
) -> Answers:
    """Query several nodes at once, and wait for their answers; not in a turn.

    It does not wait for silent nodes if others answer.

    Args:
        node: This node.
        questions: The questions, by node.
        timeout: Seconds to wait at most.
        ways: The lock servers through which to query nodes that are not connected; each question
            must name its node (`node_of`).
    """
    asked = {name: ((ways or {}).get(name, name), each) for name, each in questions.items()}
    return _ask(node, asked, timeout, lambda _: False)


def ask_by_ways(
    node: LocalNode,
    question: Question,
    ways: Iterable[str],
    timeout: float,
    enough: Callable[[Answer], bool],
) -> Answers:
    """Query one node by several ways, and wait for an answer that is enough, or for all; not in a turn.

    Args:
        node: This node.
        question: The question.
        ways: The node itself, or lock servers that pass the question on. The answers are keyed by
            these.
        timeout: Seconds to wait at most.
        enough: Whether an answer is enough, so that others are not needed.
    """
    return _ask(node, {way: (way, question) for way in ways}, timeout, enough)


def _ask(
    node: LocalNode,
    asked: Mapping[str, tuple[str, Question]],
    timeout: float,
    enough: Callable[[Answer], bool],
) -> Answers:
    """Send questions, each with a name and the node to which it is sent."""
    check_may_wait()
    clock, cluster = world().clock(), node.cluster
    deadline = clock() + timeout
    said: dict[str, Answer] = {}
    silent: dict[str, str] = {}
    with BlockingCalls(cluster) as calls:
        for name, (way, question) in asked.items():
            target = node_of(question)
            if way == node.name and target is not None:
                way = target  # a client of this node's
            if way == node.name:
                said[name] = node.turn.run(Witness(node).answer, question)
            elif cluster is None or way not in cluster.network.links:
                silent[name] = unreachable(way, node)
            else:
                node.turn.run(calls.begin_call, name, way, question)
        satisfied = any(map(enough, said.values()))
        while True:
            if satisfied or not calls.open:
                break
            outcome = calls.take_outcome(max(0.0, deadline - clock()), of_silent=not said)
            if outcome is None:
                break
            name, answer = outcome[0], _read(*outcome[1:])
            if isinstance(answer, str):
                silent[name] = answer
            else:
                said[name] = answer
                satisfied = enough(answer)
        why = SILENT if calls.all_silent else f"timed out after {timeout:g} s"
        silent |= dict.fromkeys(calls.open, why)
    return Answers(said, silent)


def unreachable(name: str, node: LocalNode) -> str:
    """Why a node can't be asked: where it was looked for, and what happened there."""
    cluster = node.cluster
    known = None if cluster is None else cluster.network.book.known.get(name)
    at = "" if known is None else f" at {place(known.address)}"
    why = node.refusals.get(name, "") or ("" if known is None else known.failure[0])
    return f"can't be reached{at}{why and ': '}{why}"


def _read(answered: bool, told: Any) -> Answer | str:
    """The answer to a call, or why there is none."""
    if not answered:
        return f"the connection was lost ({told})"
    if not isinstance(told, Answer):
        return STRANGE
    return told.why if isinstance(told, Untold) else told
