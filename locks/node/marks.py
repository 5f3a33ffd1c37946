"""The marks of a node's lock server: which work is done (`locks.core.done`).

A server that shares its marks with others, and begins without a memory, asks them for all marks, again and again until it is
complete. So does each server when the list of servers is being changed. A server that keeps its marks in a file writes in a thread, and answers when all that it is to answer for is written. All but
that is for the node's turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from locks.core.done import NONE, Knowledge, Marks, Recovery, Told, moved
from locks.core.facts import AskMark, AskMarks, Mark, MarkFact, MarkPage
from locks.core.rosters import Roster
from locks.node.peers.local_node import Connections, LocalNode
from locks.node.ports import Servers
from locks.node.state import State
from locks.otp.bytes.fields import BadMessage
from locks.otp.bytes.terms import Reference
from locks.ranges import one_line
from locks.runtime.away import begin_in_thread
from locks.wire.facts import pack_question, unpack_answer
from locks.wire.forms import LOCK_SERVER

__all__ = ["Memory", "memory_of"]

logger = logging.getLogger("locks.nodes")

PAUSE = 0.25  # seconds between two rounds
LISTED = "list="  # in the file
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
        servers = None if node.servers is None else node.servers.each[0]
        is_one = servers is None or node.name in servers.nodes
        if servers is None or not is_one:
            servers = Servers.alone(node.name)
        self._marks = Marks()
        self._told: dict[str, Told] = {}  # in this round
        self._open: dict[str, Reference] = {}  # the calls of this round
        self._pages = 0  # that were read
        self._asks = False  # whether it begins another round after this one
        self._state = None if file is None else State(file, node.name)
        self._trouble = ""
        self._writes = False
        self._waiting: list[tuple[AskMark, Callable[[MarkFact], object]]] = []
        self._servers = servers._replace(nodes=tuple(sorted(servers.nodes)))
        # What is written if it is complete for the first list: the servers, and how many of them have each id.
        copies = (f"copies={servers.copies}",) if servers.copies else ()
        self._first = (*self._servers.nodes, *copies)
        listed = NONE
        self._filed = NONE  # for which list it knew all marks, by its file
        self._kept_for: tuple[str, ...] = ()  # what its file says of that
        if self._state is not None:
            for mark in self._state.marks:
                self._marks.add(mark, node.server.record.now())
            self._marks.kept = self._marks.number
            self._kept_for = kept = self._state.servers
            if kept == self._first:
                listed = 0
            elif kept and kept[0].startswith(LISTED):
                self._filed = int(kept[0][len(LISTED) :])
        self._knows = Knowledge(listed, aim=0 if is_one else NONE)
        self._seek(self._servers)

    def _seek(self, servers: Servers, anew: tuple[tuple[str, int], ...] = ()) -> None:
        """Become complete, if it is not, by asking these servers, which once began anew."""
        knows = self._knows
        self._recovery = Recovery(
            self._node.name,
            self._node.server.record.started,
            servers.nodes,
            servers.copies,
            collects=knows.is_changing and knows.aim != knows.tellers,
            knows=knows.is_changing and knows.is_complete,
            may_begin=not knows.is_changing,
            anew=anew,
        )
        self._recovery.complete |= self._knows.has_reached
        self._note()

    def _note(self) -> None:
        """Note for which list it is complete."""
        if self._recovery.anew:
            self._knows = self._knows.began()
        if self._recovery.complete:
            self._knows = self._knows.reached()

    @property
    def _to_keep(self) -> tuple[str, ...]:
        """What its file is to say of that."""
        listed = self._knows.listed
        return (f"{LISTED}{listed}",) if listed > 0 else self._first if listed == 0 else ()

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
        complete = self._knows.is_complete
        servers = self._servers.around(question.lock_id)
        fact = self._marks.answer(question, since, complete, servers, now)
        return fact._replace(trouble=self._trouble)

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
        about = (self._knows.is_complete, record.started, now, recovery.anew)
        listed = max(0, self._knows.listed)
        return MarkPage(found, more, *about, self._state is not None, self._trouble, listed)

    # --- The file -------------------------------------------------------------------------------

    def _keep(self) -> None:
        """Begin to write what is not kept, if nothing is being written."""
        if self._state is None or self._writes:
            return
        marks = self._marks.not_kept()
        servers = self._to_keep
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

    # --- Another list ---------------------------------------------------------------------------

    def moved(self, cluster: Connections, roster: Roster, servers: Servers) -> None:
        """The list of servers has changed, or is being changed.

        Args:
            cluster: The connections.
            roster: The roster.
            servers: Its servers, this one among them.
        """
        self._servers = servers._replace(nodes=tuple(sorted(servers.nodes)))
        before = self._knows._replace(listed=max(self._knows.listed, self._filed))
        self._knows = before.moved(self._node.name, roster)
        same = self._knows.tellers == before.tellers
        self._seek(servers.each[0], self._recovery.anew if same else ())
        self._keep()
        self._ask_anew(cluster)

    def collect(self, cluster: Connections) -> str:
        """Collect all marks for the list that is to come: enough of the old servers are sealed.

        Returns:
            Why it has not collected them yet; empty if it has, or if no server of the old list knows them.
        """
        knows = self._knows.collects()
        if self._knows not in (knows, knows.reached()):
            self._knows = knows
            self._seek(self._servers.each[0], self._recovery.anew)
            self._ask_anew(cluster)
        is_kept = self._state is None or self._kept_for == self._to_keep
        if (self._knows.has_reached and is_kept) or self._recovery.none_know:
            return ""
        asked = ", ".join(sorted(self._recovery.others - self._told.keys()))
        return f"{self._node.name} has not collected yet what is done (locks.once), from {asked}"

    # --- Recovery -------------------------------------------------------------------------------

    def recover(self, cluster: Connections) -> None:
        """Become complete, unless it is."""
        self._asks = not self._recovery.complete and self._node.running
        if self._asks:
            self._ask_all(cluster)
            self._soon(cluster, 0, LOOKS)

    def _ask_anew(self, cluster: Connections) -> None:
        """Begin a round, for what is sought now."""
        if not self._asks:
            self.recover(cluster)
        elif not self._recovery.complete:
            self._ask_all(cluster)

    def _ask_all(self, cluster: Connections) -> None:
        for reference in self._open.values():
            cluster.processes.give_up(reference)
        self._open.clear()
        self._told, self._pages = {}, 0
        for name in self._recovery.others:
            if name in cluster.members:
                self._ask(cluster, name, 0, None)
        if not self._open:
            self._end_round()

    def _end_round(self) -> None:
        """All have answered, or can't be asked."""
        self._recovery.round_over(self._told)
        self._note()
        self._keep()

    def _soon(self, cluster: Connections, pages: int, looks: int) -> None:
        look = partial(self._node.turn.run, self._look, cluster, pages, looks)
        cluster.executor.run_later(PAUSE, look)

    def _look(self, cluster: Connections, pages: int, looks: int) -> None:
        """Begin another round if the present one is over, or some servers are silent."""
        if self._open and (looks or self._pages > pages):
            self._soon(cluster, self._pages, looks - 1 if self._pages == pages else LOOKS)
            return
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
        question = pack_question(AskMarks(after))
        self._open[name] = cluster.processes.call(name, LOCK_SERVER, question, told)

    def _answered(
        self,
        cluster: Connections,
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
                if self._node.name in self._servers.around(mark.lock_id):
                    self._marks.add(moved(mark, page.now, now), now)
            is_complete = page.complete and page.listed >= self._knows.tellers
            first = first or Told(page.started, is_complete, page.anew)
            if page.more:
                self._ask(cluster, name, page.more, first)
                return
            self._told[name] = first
        if not self._open:
            self._end_round()


def _page(said: Any) -> MarkPage | None:
    """The page that an answer is; `None` if a server of another version gives no such answer."""
    try:
        answer = unpack_answer(said)
    except BadMessage:
        return None
    return answer if isinstance(answer, MarkPage) else None
