"""The marks of a node's lock server: which work is done (`locks.core.done`).

A server that shares its marks with others, and begins without a memory, asks them for all marks, again and again until it is
complete. All is for the node's turn.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

from locks.core.done import Marks, Recovery, Told, moved
from locks.core.facts import AskMark, AskMarks, MarkFact, MarkPage
from locks.node.peers.local_node import LocalNode
from locks.otp.bytes.fields import BadMessage
from locks.otp.bytes.terms import Reference
from locks.otp.process.processes import Processes
from locks.runtime.executor import Executor
from locks.wire.facts import pack_question, unpack_answer
from locks.wire.forms import LOCK_SERVER

__all__ = ["Memory", "memory_of"]

PAUSE = 0.25  # seconds between two rounds
LOOKS = 20  # pauses without an answer after which a server counts as silent


class _Connections(Protocol):
    """The part of `locks.node.peers.cluster.Cluster` that this module needs."""

    executor: Executor
    members: dict[str, bool]
    processes: Processes


def memory_of(node: LocalNode) -> Memory:
    """The marks of a node; made when they are first needed."""
    return node.services.get("marks", "", partial(Memory, node))  # type: ignore[no-any-return]


class Memory:
    """What a node's lock server knows of work that is done.

    Args:
        node: The node.
    """

    def __init__(self, node: LocalNode) -> None:
        self._node = node
        scope = node.scope
        shared = scope is not None and node.name in scope.nodes
        self._servers = tuple(sorted(scope.nodes)) if shared and scope else (node.name,)
        self._marks = Marks()
        self._recovery = Recovery(node.name, node.server.record.started, self._servers)
        self._told: dict[str, Told] = {}  # in this round
        self._open: dict[str, Reference] = {}  # the calls of this round
        self._pages = 0  # that were read

    def node_stopped(self) -> None:
        """Do nothing: the node's connections end its calls."""

    def members_here(self) -> tuple[()]:
        """There are no members of groups."""
        return ()

    @property
    def is_needed(self) -> bool:
        """Whether there is a mark whose time is not over."""
        now = self._node.server.record.now()
        return any(mark.until > now for mark in self._marks)

    # --- Answers --------------------------------------------------------------------------------

    def answer_mark(self, question: AskMark) -> MarkFact:
        """Answer a question for one mark, which may be to be set."""
        own = self._node.server.machine.table.own(question.agent, question.lock_id)
        since = next((each.since for each in own if each.granted and each.mode == "write"), 0)
        now = self._node.server.record.now()
        return self._marks.answer(question, since, self._recovery.complete, self._servers, now)

    def answer_marks(self, question: AskMarks) -> MarkPage:
        """Answer a question for all marks."""
        record = self._node.server.record
        now = record.now()
        found, more = self._marks.page(question.after, now)
        recovery = self._recovery
        return MarkPage(found, more, recovery.complete, record.started, now, recovery.anew)

    # --- Recovery -------------------------------------------------------------------------------

    def recover(self, cluster: _Connections) -> None:
        """Become complete, unless it is."""
        if self._recovery.complete or not self._node.running:
            return
        self._told, self._pages = {}, 0
        for name in self._recovery.others:
            if name in cluster.members:
                self._ask(cluster, name, 0, None)
        self._soon(cluster, 0, LOOKS)

    def _soon(self, cluster: _Connections, pages: int, looks: int) -> None:
        look = partial(self._node.turn.run, self._look, cluster, pages, looks)
        cluster.executor.run_later(PAUSE, look)

    def _look(self, cluster: _Connections, pages: int, looks: int) -> None:
        """Begin another round if the present one is over, or some servers are silent."""
        if self._open and (looks or self._pages > pages):
            self._soon(cluster, self._pages, looks - 1 if self._pages == pages else LOOKS)
            return
        for reference in self._open.values():
            cluster.processes.give_up(reference)
        self._open.clear()
        self.recover(cluster)

    def _ask(self, cluster: _Connections, name: str, after: int, first: Told | None) -> None:
        """Ask another server for a page of its marks.

        Args:
            cluster: The connections.
            name: The server.
            after: Only marks with larger numbers.
            first: What its first page said of it.
        """
        told = partial(self._answered, cluster, name, first)
        question = pack_question(AskMarks(after))
        self._open[name] = cluster.processes.call(name, LOCK_SERVER, question, told)

    def _answered(
        self,
        cluster: _Connections,
        name: str,
        first: Told | None,
        answered: bool,
        said: Any,
    ) -> None:
        self._open.pop(name, None)
        page = _page(said) if answered else None
        if page is not None and (first is None or first.started == page.started):
            self._pages += 1
            now = self._node.server.record.now()
            for mark in page.marks:
                self._marks.add(moved(mark, page.now, now), now)
            first = first or Told(page.started, page.complete, page.anew)
            if page.more:
                self._ask(cluster, name, page.more, first)
                return
            self._told[name] = first
        if not self._open:
            self._recovery.round_over(self._told)
            self._told = {}


def _page(said: Any) -> MarkPage | None:
    """The page that an answer is; `None` if a server of another version gives no such answer."""
    try:
        answer = unpack_answer(said)
    except BadMessage:
        return None
    return answer if isinstance(answer, MarkPage) else None
