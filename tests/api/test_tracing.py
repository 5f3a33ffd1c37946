"""Spans for OpenTelemetry: of waits and holds, below those of the program, with links between those of a deadlock."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import locks
from locks.node.client.agent import Agent
from tests.api.test_logs import deadlock, held, want
from tests.helpers import eventually


class Traced:
    """What was exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        locks.tracing.install(self.provider)

    def spans(self, name: str, number: int) -> list[ReadableSpan]:
        """So many spans of this name have ended, in this order."""
        found = lambda: [s for s in self._exporter.get_finished_spans() if s.name == name]  # noqa: E731
        eventually(lambda: len(found()) >= number)
        assert len(found()) == number
        return found()


@pytest.fixture
def traced() -> Iterator[Traced]:
    """Spans are made."""
    yield Traced()
    locks.tracing.uninstall()


def test_a_wait_and_a_hold(traced: Traced) -> None:
    """Both are below the span of whoever waits; a hold begins with the first lock and ends with the transaction. A lock that is
    free is not waited for."""
    tracer = traced.provider.get_tracer("program")
    with held(("x",)):
        thread = want(("x", 1))
        eventually(lambda: locks.statistics().table.waiting == 1)
    thread.join()
    with tracer.start_as_current_span("work") as work, locks.transaction(label="me") as tx:
        tx.read_lock(("y",))
        tx.read_lock(("z",))
        tx.unlock(("y",))
    (wait,) = traced.spans("locks wait", 1)
    assert wait.attributes is not None
    assert wait.attributes["locks.ids"] == ("x/1",)
    assert wait.attributes["locks.client"] == "waiter"
    assert wait.attributes["locks.outcome"] == "granted"
    mine = traced.spans("locks hold", 3)[-1]
    assert mine.parent == work.get_span_context()
    assert [(e.name, (e.attributes or {})["locks.id"]) for e in mine.events] == [
        ("granted", "y"),
        ("granted", "z"),
        ("released", "y"),
    ]
    assert mine.status.status_code is StatusCode.UNSET


def test_a_deadlock(traced: Traced) -> None:
    """The wait, and what the one that was aborted has held, have the report, and a link to what the other one has held. Who
    closes the circle need not wait."""
    deadlock()
    holds = traced.spans("locks hold", 2)
    (aborted,) = [span for span in holds if span.status.status_code is StatusCode.ERROR]
    (wait,) = traced.spans("locks wait", 1)
    for span in (wait, aborted):
        event = span.events[-1]
        assert event.name == "deadlock"
        assert "waits for write" in str((event.attributes or {})["locks.report"])
        (other,) = [each for each in holds if agent_of(each) != agent_of(span)]
        (link,) = span.links
        assert link.context == other.get_span_context()
        assert (link.attributes or {})["locks.agent"] == agent_of(other)


def agent_of(span: ReadableSpan) -> object:
    """Whose wait or hold it is."""
    return (span.attributes or {})["locks.agent"]


def test_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `install` there is nobody to be told; without the package, that is said."""
    assert Agent.spans is None
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(locks.MisuseError, match="otel"):
        locks.tracing.install()
    assert Agent.spans is None
