"""The waits and holds of a program's clients as OpenTelemetry spans.

A wait is a child of the span that is current in the waiting code. The time in which a transaction holds locks is also a span, from
its first lock to its end, with an event for each lock, and for each lock that is released earlier. A wait that was in a deadlock has
the report as an event, and links to the holds of the other transactions in the cycle, if these belong to this program. So does the
hold of a transaction that was aborted.

None of this runs in a turn: spans begin and end in the client's call, or in the background when the transaction ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from locks.errors import DeadlockAborted, MisuseError
from locks.model import AgentId, Deadlock, LockId, LockResult
from locks.node.client.agent import Agent
from locks.words import FEW_IDS, show

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, Tracer

__all__ = ["Spans", "install", "uninstall"]

REMEMBERED = 1000  # transactions that a link can point to


class Spans:
    """Creates the spans of one program; see `locks.node.ports.Spans`.

    Args:
        tracer: The tracer that gets them.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._holds: dict[AgentId, Span] = {}
        self._known: dict[AgentId, SpanContext] = {}  # the newest ones, including ended ones
        self._lock = Lock()

    def _begin(self, name: str, agent: Agent) -> Span:
        about = {"locks.agent": str(agent.id), "locks.client": agent.machine.client}
        return self._tracer.start_span(name, attributes={**about, "locks.node": agent.node.name})

    def waiting(self, agent: Agent) -> Callable[[Any], None] | None:
        """A client begins to wait; returns what is to be called with the answer, or with `None` if there is none.

        `None`: it waits for no lock. It waits for a fencing token, or has been granted all by now.
        """
        wanted = [each.lock_id for each in agent.turn.ask(agent.machine.lock_info) if not each.held]
        if not wanted:
            return None
        span = self._begin("locks wait", agent)
        span.set_attribute("locks.ids", [show(lock_id) for lock_id in wanted[:FEW_IDS]])
        return partial(self._waited, agent, span, len(agent.deadlocks()))

    def _waited(self, agent: Agent, span: Span, before: int, answer: Any) -> None:
        from opentelemetry.trace import StatusCode

        self._tell_deadlocks(span, agent.id, agent.deadlocks()[before:])
        if isinstance(answer, LockResult):
            span.set_attribute("locks.outcome", "granted")
        else:
            outcome = "aborted" if isinstance(answer, DeadlockAborted) else "given_up"
            span.set_attribute("locks.outcome", outcome)
            span.set_status(StatusCode.ERROR, None if answer is None else str(answer))
        span.end()

    def _tell_deadlocks(self, span: Span, agent: AgentId, reports: Iterable[Deadlock]) -> None:
        for report in reports:
            span.add_event("deadlock", {"locks.report": str(report), "locks.action": report.action})
            for other in dict.fromkeys(report.agents):
                context = self._known.get(other)
                if context is not None and other != agent:
                    span.add_link(context, {"locks.agent": str(other)})

    def granted(self, agent: Agent, lock_ids: Iterable[LockId]) -> None:
        """Take new locks of a client; it may already have held some of them."""
        span = self._holds.get(agent.id)
        if span is None:
            span = self._holds[agent.id] = self._begin("locks hold", agent)
            with self._lock:
                self._known[agent.id] = span.get_span_context()
                if len(self._known) > REMEMBERED:
                    del self._known[next(iter(self._known))]
        for lock_id in lock_ids:
            span.add_event("granted", {"locks.id": show(lock_id)})
        if not agent.is_alive():  # it has ended meanwhile
            self.ended(agent.id, None)

    def released(self, agent: AgentId, lock_id: LockId) -> None:
        """Take the release of a lock before the end of its transaction."""
        span = self._holds.get(agent)
        if span is not None:
            span.add_event("released", {"locks.id": show(lock_id)})

    def ended(self, agent: AgentId, reason: Exception | None) -> None:
        """Take the end of a transaction; there is a reason unless its client ended it."""
        from opentelemetry.trace import StatusCode

        span = self._holds.pop(agent, None)
        if span is None:
            return
        if isinstance(reason, DeadlockAborted):
            self._tell_deadlocks(span, agent, [reason.deadlock])
        if reason is not None:
            span.set_status(StatusCode.ERROR, str(reason))
        span.end()


def install(tracer_provider: Any = None) -> None:
    """Create spans of the waits and holds of this program's clients, from now on.

    Args:
        tracer_provider: The provider; by default the one that the program has set
            (`opentelemetry.trace.set_tracer_provider`).

    Raises:
        MisuseError: `opentelemetry-api` is not installed.
    """
    try:
        from opentelemetry.trace import get_tracer
    except ImportError as error:
        raise MisuseError(
            f"spans need opentelemetry ({error}): pip install 'pykka-locks[otel]'"
        ) from None
    Agent.spans = Spans(get_tracer("locks", tracer_provider=tracer_provider))


def uninstall() -> None:
    """Create no more spans; open spans are not ended."""
    Agent.spans = None
