"""The marks of a node's lock server: which work is done (`locks.core.done`).

A server that shares its marks with others, and begins without a memory, asks them for all marks, again and again until it is
complete. A server that keeps its marks in a file writes in a thread, and answers when all that it is to answer for is written. All but
that is for the node's turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from locks.core.done import Marks, Recovery, Told, forgetful, shifted
from locks.core.facts import AskMark, AskMarks, Mark, MarkFact, MarkPage
from locks.node.peers.local_node import Connections, LocalNode
from locks.node.ports import Servers
from locks.node.state import State
from locks.ranges import one_line, replace
from locks.runtime.away import begin_in_thread

__all__ = ["Memory", "memory_of"]

logger = logging.getLogger("locks.nodes")

PAUSE = 0.25  # seconds between two rounds
LOOKS = 20  # pauses without an answer after which a server counts as silent


def memory_of(node: LocalNode, file: Path | None = None) -> Memory:
    """The marks of a node; made when they are first needed, or from its file.

    Raises:
        InvalidOption: The file can't be used.
    """
    return node.services.get("marks", "", partial(Memory, node, file))  # type: ignore[no-any-return]


class Memory:
    """What a node's lock server knows of work that is done.

    Args:
        node: The node.
        file: Where it keeps them, if it does.

    Raises:
        InvalidOption: The file can't be used.
    """

    def __init__(self, node: LocalNode, file: Path | None = None) -> None:
        self._node = node
        servers = node.servers
        if servers is None or node.name not in servers.nodes:
            servers = Servers.alone(node.name)
        self._servers = servers._replace(nodes=tuple(sorted(servers.nodes)))
        # What is written if it is complete: the servers, and how many of them have each id.
        copies = (f"copies={servers.copies}",) if servers.copies else ()
        self._whole = (*self._servers.nodes, *copies)
        self._marks = Marks()
        self._recovery = Recovery(
            node.name, node.server.record.started, servers.nodes, servers.copies
        )
        self._told: dict[str, Told] = {}  # in this round
        self._open: dict[str, int] = {}  # the calls of this round
        self._pages = 0  # that were read
        self._state = None if file is None else State(file, node.name)
        self._kept_for: tuple[str, ...] = ()  # the same, as it is written
        self._trouble = ""
        self._writes = False
        self._waiting: list[tuple[AskMark, Callable[[MarkFact], object]]] = []
        if self._state is not None:
            for mark in self._state.marks:
                self._marks.add(mark, node.server.record.now())
            self._marks.kept = self._marks.number
            self._kept_for = self._state.servers
            self._recovery.complete |= self._kept_for == self._whole

    def node_stopped(self) -> None:
        """Close the file; the node's connections end its calls."""
        if self._state is not None:
            self._state.close()

    def members_here(self) -> tuple[()]:
        """There are no members of groups."""
        return ()

    @property
    def is_needed(self) -> bool:
        """Whether there is a mark whose time is not over."""
        now = self._node.server.record.now()
        return any(mark.until > now for mark in self._marks)

    @property
    def why_not(self) -> str:
        """Why it can't say what is done; empty if it can."""
        return forgetful(self._node.name, self._recovery.complete, self._trouble)

    # --- Answers --------------------------------------------------------------------------------

    def answer_mark(self, question: AskMark) -> MarkFact:
        """Answer a question for one mark, which may be to be set."""
        fact = self._answer_now(question)
        self._keep()
        return fact

    def _answer_now(self, question: AskMark) -> MarkFact:
        own = self._node.server.machine.table.own(question.agent, question.lock_id)
        since = next((each.since for each in own if each.granted and each.mode == "write"), 0)
        now = self._node.server.record.now()
        complete = self._recovery.complete
        servers = self._servers.around(question.lock_id)
        fact = self._marks.answer(question, since, complete, servers, now)
        return replace(fact, trouble=self._trouble)

    def answer_when_kept(self, question: AskMark, tell: Callable[[MarkFact], object]) -> None:
        """Answer likewise, when the mark of the question is kept, or that has failed."""
        fact = self.answer_mark(question)
        if question.mark is not None and self._writes:
            self._waiting.append((question, tell))
        else:
            tell(fact)

    def answer_marks(self, question: AskMarks) -> MarkPage:
        """Answer a question for all marks."""
        record = self._node.server.record
        now = record.now()
        found, more = self._marks.page(question.after, now)
        recovery = self._recovery
        about = (recovery.complete, record.started, now, recovery.anew)
        return MarkPage(found, more, *about, self._state is not None, self._trouble)

    # --- The file -------------------------------------------------------------------------------

    def _keep(self) -> None:
        """Begin to write what is not kept, if nothing is being written."""
        if self._state is None or self._writes:
            return
        marks = self._marks.not_kept()
        servers = self._whole if self._recovery.complete else ()
        if marks or servers != self._kept_for or self._trouble:
            self._writes = True
            now = self._node.server.record.now()
            begin_in_thread(
                partial(self._write, self._state, marks, servers, self._marks.number, now)
            )

    def _write(
        self, state: State, marks: list[Mark], servers: tuple[str, ...], number: int, now: int
    ) -> None:
        trouble = ""
        try:
            state.write(marks, servers, now)
        except Exception as error:
            trouble = one_line(str(error)) or type(error).__name__
        self._node.executor.run_soon(self._node.turn.run, self._wrote, servers, number, trouble)

    def _wrote(self, servers: tuple[str, ...], number: int, trouble: str) -> None:
        if trouble and trouble != self._trouble and self._node.running:
            text = "%s can't write its state file, so it sets no marks of what is done: %s"
            self._node.executor.run_soon(logger.error, text, self._node.name, trouble)
        self._writes, self._trouble = False, trouble
        if not trouble:
            self._marks.kept, self._kept_for = number, servers
        waiting, self._waiting = self._waiting, []
        for question, tell in waiting:
            if trouble:
                tell(self._answer_now(question))
            else:
                self.answer_when_kept(question, tell)
        if not trouble:
            self._keep()

    # --- Recovery -------------------------------------------------------------------------------

    def recover(self, cluster: Connections) -> None:
        """Become complete, unless it is."""
        if self._recovery.complete or not self._node.running:
            return
        self._told, self._pages = {}, 0
        for name in self._recovery.others:
            if name in cluster.members:
                self._ask(cluster, name, 0, None)
        self._soon(cluster, 0, LOOKS)

    def _soon(self, cluster: Connections, pages: int, looks: int) -> None:
        look = partial(self._node.turn.run, self._look, cluster, pages, looks)
        cluster.executor.run_later(PAUSE, look)

    def _look(self, cluster: Connections, pages: int, looks: int) -> None:
        """Begin another round if the present one is over, or some servers are silent."""
        if self._open and (looks or self._pages > pages):
            self._soon(cluster, self._pages, looks - 1 if self._pages == pages else LOOKS)
            return
        for number in self._open.values():
            cluster.exchange.give_up(number)
        self._open.clear()
        self.recover(cluster)

    def _ask(self, cluster: Connections, name: str, after: int, first: Told | None) -> None:
        """Ask another server for a page of its marks.

        Args:
            cluster: The connections.
            name: The server.
            after: Only marks with larger numbers.
            first: What its first page said of it.
        """
        told = partial(self._answered, cluster, name, first)
        self._open[name] = cluster.exchange.call(name, AskMarks(after), told)

    def _answered(
        self,
        cluster: Connections,
        name: str,
        first: Told | None,
        answered: bool,
        said: Any,
    ) -> None:
        self._open.pop(name, None)
        page = said if answered and isinstance(said, MarkPage) else None
        if page is not None and (first is None or first.started == page.started):
            self._pages += 1
            now = self._node.server.record.now()
            for mark in page.marks:
                if self._node.name in self._servers.around(mark.lock_id):
                    self._marks.add(shifted(mark, page.now, now), now)
            first = first or Told(page.started, page.complete, page.anew)
            if page.more:
                self._ask(cluster, name, page.more, first)
                return
            self._told[name] = first
        if not self._open:
            self._recovery.round_over(self._told)
            self._told = {}
            self._keep()
