"""The queue of messages between a node's actors, the execution of effects, and the node's journal.

All actors of a node share one turn (`locks.runtime.inline`): the caller runs everything that
follows from its call, in its own thread or greenlet, until every message is delivered. Then agents
with new knowledge look for deadlocks, so an agent searches only after it has taken in all its
messages. Messages that result from this are delivered in the same way. Messages between two actors
keep their order. Foreign code (notifications, watchers, monitors) never runs within a turn; it is
passed to the node's executor. A trace is called after the turn.

**How is a turn undone or completed?** Machines are deterministic, so a machine's state follows from
its history (`locks.node.history`). Each event is recorded before it is run, and `touched` has the
actors that take part in this turn, each with the length that its history had before. The machines'
output is gathered in `_outbox`. The turn is committed by one assignment. Before that, only the
machines in `touched` have changed, and `mend` rebuilds them and cuts their histories. After it, the
outbox is carried out, each effect at least once. All effects may be repeated without harm.

Everything here is for the turn, except `tell`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from locks.core.agent.machine import AgentMachine
from locks.core.messages import (
    AgentEffect,
    AgentMessage,
    AnswerWait,
    Ended,
    Knowledge,
    Lost,
    Notify,
    ServerEffect,
    ServerMessage,
    Surrendered,
    TableChange,
    ToAgent,
    ToServer,
    ToWatcher,
)
from locks.errors import TransactionEnded, assert_never
from locks.model import AgentId
from locks.node.client.agent import Agent
from locks.node.client.thin import ThinLocks
from locks.node.history import History, begin, is_outgrown, past, replay
from locks.node.observing.news import News
from locks.node.observing.statistics import Counters
from locks.node.ports import Background
from locks.node.server import Guarded, Server
from locks.runtime.identity import Listener
from locks.runtime.inline import EXHAUSTED, Work, raised_in
from locks.runtime.native import native_lock

if TYPE_CHECKING:
    from locks.node.peers.cluster import Cluster

__all__ = ["Dispatch", "Receiver", "Trace"]

logger = logging.getLogger("locks.runtime")

Trace = Callable[[Any, Any, Any], object]
T = TypeVar("T")

Actor = Server | Agent
Receiver = Actor | Guarded

TURNS = 128  # between two looks at how long histories have grown
AT_ONCE = 500  # events of histories that are over are freed in one turn
PATIENCE = 4  # how often something is tried that fails, before it is given up


class Dispatch:
    """Carries messages between the actors of one node, and carries out the effects of their machines.

    Args:
        name: The node's name.
        executor: Calls foreign code.
        counters: The node's counters.
        trace: See `Node`.
        on_ended: Called when an agent has ended.
        on_broken: Called when the lock server has crashed.

    Attributes:
        server: The lock server.
        thin: Whether something is thin, or was since the last turn.
        thin_locks: The thin locks.
        agents: The living agents.
        cluster: The other nodes, if there are any.
        trace: Called with sender, receiver and message for each message, if it is not `None`.
    """

    server: Server
    thin_locks: ThinLocks

    def __init__(
        self,
        name: str,
        executor: Background,
        counters: Counters,
        trace: Trace | None,
        on_ended: Callable[[Agent], object],
        on_broken: Callable[[], object],
    ) -> None:
        self.agents: dict[AgentId, Agent] = {}
        self.cluster: Cluster | None = None
        self._name = name
        self._executor = executor
        self._counters = counters
        self._news = News(name, executor, counters)
        self.trace = trace
        self._on_ended = on_ended
        self._on_broken = on_broken
        self._queue: deque[tuple[Receiver, Any]] = deque()
        self.unsettled: dict[Agent, None] = {}
        self.torn = False
        self.thin = False
        self.touched: dict[Actor, int] = {}
        self._outbox: deque[tuple[Actor, Any]] = deque()
        self._turns = TURNS
        # Old histories are freed little by little, because freeing a long one takes milliseconds.
        self._over: list[History] = []
        self._noted = False  # whether there is something in one of the next two
        self._counted: list[Any] = []  # messages that are counted
        self._traced: list[tuple[Any, Any, Any]] = []
        self._committed: Work | bool = False  # the work that was done, if it was work
        self._arrived: tuple[
            tuple[Receiver, Any], ...
        ] = ()  # messages that arrived after the commit
        self._at: Receiver | None = None  # the actor that takes in a message now
        self._culprit: Receiver | None = None
        self._stuck: tuple[Any, int] = (None, 0)  # the effect that failed, and how often
        self.news: deque[tuple[Any, Any, Any]] = deque()
        self._telling = native_lock()

    def deliver(self, receiver: Receiver, message: ServerMessage | AgentMessage) -> None:
        """Put a message into the queue."""
        self._queue.append((receiver, message))

    def perform(self, sender: Actor, effects: Sequence[ServerEffect | AgentEffect]) -> None:
        """Put messages for actors of this node into the queue, and all else into the outbox."""
        for effect in effects:
            receiver: Actor | None
            if type(effect) is ToServer:
                if effect.node != self._name:
                    self._put_out(sender, effect, effect.node)
                    continue
                receiver = self.server
            elif type(effect) is ToAgent:
                if effect.agent.node != self._name:
                    self._put_out(sender, effect, effect.agent)
                    continue
                receiver = self.agents.get(effect.agent)
            else:
                self._outbox.append((sender, effect))
                continue
            if receiver is not None:
                self._queue.append((receiver, effect.message))
                if self.trace is not None:
                    self._noted = True
                    self._traced.append((sender, receiver, effect.message))

    def _put_out(self, sender: Actor, effect: ToServer | ToAgent, receiver: str | AgentId) -> None:
        """Put a message for an actor of another node into the outbox."""
        self._outbox.append((sender, effect))
        if self.trace is not None:
            self._noted = True
            self._traced.append((sender, receiver, effect.message))

    def perform_here(
        self,
        sender: Actor,
        effect: AnswerWait | Notify | Lost | Ended | ToWatcher | ToServer | ToAgent,
    ) -> None:
        """Carry out an effect that is not a message to an actor of this node."""
        if isinstance(effect, AnswerWait):
            wait: Any = effect.wait  # the shell's own: a `PendingCall`, or `Answering`
            wait.answer(effect.result)
        elif isinstance(effect, Ended):
            assert isinstance(sender, Agent)
            self.agents.pop(sender.id, None)
            self._on_ended(sender)
            sender.has_ended(effect)
        elif isinstance(effect, (ToServer, ToAgent)):
            self._send(sender, effect)
        elif isinstance(effect, ToWatcher):
            self._tell_watcher(effect)
        elif isinstance(effect, Notify):
            assert isinstance(sender, Agent)
            sender.notify(effect.notification)
        elif isinstance(effect, Lost):
            assert isinstance(sender, Agent)
            sender.has_lost(effect)
            self._news.lost(sender.id, sender.name, effect)
        else:
            assert_never(effect)

    def _tell_watcher(self, effect: ToWatcher) -> None:
        watcher, news = effect
        if isinstance(news, TableChange):
            if self.cluster is not None:
                self.cluster.readers.changed(news)
        else:
            assert isinstance(watcher, Listener)
            self._executor.run_soon(self.server.tell_watcher, watcher, news)

    def _send(self, sender: Actor, effect: ToServer | ToAgent) -> None:
        """Send a message to a lock server, or an agent, of another node."""
        if self.cluster is None:
            return  # alone, there is nobody to send it to
        cluster = self.cluster
        if isinstance(effect, ToAgent):
            cluster.send_to_agent(effect.agent, effect.message)
        else:
            assert isinstance(sender, Agent)
            cluster.send_to_server(effect.node, sender.id, effect.message)

    # --- The end of a turn ----------------------------------------------------------------------

    def conclude(self, work: Work | None = None) -> None:
        """Deliver all messages and let agents look for deadlocks, until nothing is left; then commit."""
        queue = self._queue
        unsettled = self.unsettled
        while True:
            while queue:
                receiver, message = queue.popleft()
                self._at = receiver
                receiver.handle(message)
                if type(receiver) is Agent:
                    kind = type(message)
                    if kind is Knowledge or kind is Surrendered:
                        self._noted = True
                        self._counted.append(message)
                    if receiver.machine.unsettled:
                        unsettled[receiver] = None
            if unsettled:
                agent = next(iter(unsettled))
                del unsettled[agent]
                self._at = agent
                agent.settle()
                continue
            self._committed = True if work is None else work
            self._publish()
            if not queue:
                cluster = self.cluster
                # Send the output now; usually nothing follows from that.
                if (
                    cluster is None
                    or not cluster.flush()
                    or not (queue or self._outbox or cluster.flush())
                ):
                    self._arrived = ()
                    self.torn = False
                    return

    def _publish(self) -> None:
        """After the commit, carry out the effects outside of the machines."""
        outbox = self._outbox
        while outbox:
            due = outbox[0]
            try:
                self.perform_here(*due)
            except Exception as error:
                if not self._is_hopeless(due, error):
                    raise
            outbox.popleft()
        server = self.server
        if server.changed:
            for report in server.broken:
                self._news.broke(report)
            server.put_down()
        if self._noted:
            self._note()
        if self.thin:
            self.thin_locks.conclude()
        if self._queue:  # some of these effects are messages for actors here
            self._arrived = tuple(self._queue)
        self._at = None
        self.touched.clear()
        if self._committed is not True:
            self._committed.done = True  # type: ignore[union-attr]
        self._committed = False
        self._turns -= 1
        if self._turns <= 0:
            self._shorten()
        elif self._over:
            del self._over[-1][-AT_ONCE:]
            if not self._over[-1]:
                self._over.pop()

    def _shorten(self) -> None:
        """Restart histories that have grown long; between two turns, now and then."""
        self._turns = max(TURNS, len(self.agents) // 4)
        actors: list[Actor] = [self.server, *self.agents.values()]
        for actor in actors:
            if is_outgrown(actor.history, actor.machine, actor.long):
                over, actor.history = actor.history, begin(actor.machine)
                if len(over) > AT_ONCE:
                    self._over.append(over)

    def _note(self) -> None:
        """Record rare things after the commit: traces and news."""
        self.news += self._traced
        self._traced.clear()
        for message in self._counted:
            if isinstance(message, Knowledge):
                self._counters.knowledge += 1
            else:
                report = message.message.report
                if message.done and report is not None:
                    self._news.yielded(report)
        self._counted.clear()
        self._noted = False

    def _is_hopeless(self, due: tuple[Any, Any], error: Exception) -> bool:
        """Whether an effect (with its sender) fails repeatedly without an interruption."""
        effect = due[1]  # may be one object for many senders
        before, tries = self._stuck
        self._stuck = (due, tries + 1 if due is before else 1)
        if self._stuck[1] < PATIENCE or isinstance(error, EXHAUSTED):
            return False
        logger.error("failed to carry out %r", effect, exc_info=error)
        return True

    def inflate(self) -> None:
        """Put what is thin into the lock table."""
        self.thin_locks.inflate()

    # --- Turns that were interrupted ------------------------------------------------------------

    def mend(self, error: BaseException | None = None) -> None:
        """Undo the turn if it was not committed; otherwise complete it."""
        if self._committed is not False:
            self._publish()
        else:
            self._culprit = self._at
            refused = error is not None and self.refuses(error)
            for actor, begun in () if refused else self.touched.items():
                replay(actor.history, begun)
            # All are rebuilt: if this is repeated, and their histories say less, nothing is missed.
            for actor, begun in self.touched.items():
                del actor.history[begun:]
            self._forget()
            self._queue += self._arrived
        if self._queue or (self.cluster is not None and self.cluster.flush()):
            self.conclude()
        self.torn = False

    def forsake(self) -> None:
        """In a forked child: drop the turn of another thread."""
        self._committed = False
        self._forget()
        self._arrived = ()
        self.thin_locks.forsake()
        self.torn = False

    def _forget(self) -> None:
        """Forget this turn. The flag that marks an open turn is reset last."""
        server = self.server
        for kept in (
            *(self.unsettled, self._outbox, self._counted, self._traced, self._queue),
            *(server.changed, server.broken),
        ):
            kept.clear()
        self._at = None
        self.touched.clear()

    def refuses(self, error: BaseException) -> bool:
        """Whether an error is the refusal of a call, raised by a machine that changed nothing.

        The code of a machine itself raised it, as no exception from outside is, and nothing has
        happened in the turn before.
        """
        events = sum(len(actor.history) - begun for actor, begun in self.touched.items())
        if self._at is not None or events > 1:
            return False
        return raised_in(error, "locks.core.") if self.touched else self.is_refusal(error)

    def is_refusal(self, error: BaseException) -> bool:
        """Whether our own code has raised it to refuse a call."""
        return raised_in(error, "locks.core.", "locks.node.")

    def cannot_do(self, work: Work, error: BaseException) -> bool:
        """Handle work that can't be done: end a broken agent; with a broken lock server, end the node."""
        culprit = self._culprit
        work.tries += 1
        if work.tries <= PATIENCE or isinstance(error, MemoryError):
            return True
        logger.error("%s has crashed", culprit or work.function, exc_info=error)
        if isinstance(culprit, Agent) and culprit.is_alive():
            text = f"transaction {culprit.id} has crashed: {error!r}"
            try:
                culprit.event(
                    culprit.machine.end_transaction, TransactionEnded(text, agent=culprit.id)
                )
                self.conclude()
                return True
            except Exception:
                self.mend()
        self._on_broken()
        self.conclude()
        return False

    def can_tell_past(self, question: Callable[..., object]) -> bool:
        """Whether it is a question to the machine of the lock server."""
        return getattr(question, "__self__", None) is self.server.machine

    def tell_past(self, question: Callable[..., T], args: tuple[Any, ...]) -> T:
        """The answer of the lock server's state at the beginning of the turn."""
        machine = self.server.machine
        begun = self.touched.get(self.server)
        thin = [(event, args) for event, args, _ in self.thin_locks.steps()] if self.thin else []
        if (begun is not None or thin) and not self._committed:
            machine = past(machine, [*self.server.history[:begun], *thin])
        answer: T = getattr(machine, question.__name__)(*args)
        return answer

    def tell(self) -> None:
        """Call the trace for messages of finished turns; one thread does it at a time."""
        while self.news and self._telling.acquire(False):
            try:
                while True:
                    if not self.news:
                        break
                    said = self.news.popleft()
                    if self.trace is None:
                        continue
                    self.trace(*said)
            except Exception:
                logger.exception("a trace function failed")
            finally:
                self._telling.release()

    # --- All agents -----------------------------------------------------------------------------

    def tell_agents(
        self,
        event: Callable[[AgentMachine, str], list[AgentEffect]],
        node: str,
        in_touch: bool = False,
    ) -> None:
        """Notify all agents, or those in touch with others, that a node is up or gone."""
        for agent in list(self.agents.values()):
            if in_touch and not agent.machine.in_touch:
                continue
            agent.event(event, agent.machine, node)
            if agent.machine.unsettled:
                self.unsettled[agent] = None

    def end_agents(self, why: str) -> None:
        """End all transactions, with the node: it `why`."""
        for agent in list(self.agents.values()):
            text = f"node {self._name} {why}; transaction {agent.id} has ended"
            agent.event(agent.machine.end_transaction, TransactionEnded(text, agent=agent.id))
