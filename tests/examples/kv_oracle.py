"""Histories of transactions on the example store, and the serial oracle that judges them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from examples.kv_store import END, Store, Transaction

LIMIT = 60.0
"""Seconds after which an answer that does not come fails a test."""


class Step(NamedTuple):
    """Something a transaction does: "get", "scan", "put", "delete" or "append"."""

    kind: str
    key: str
    width: int = 1
    """How many letters of the alphabet a scan goes over; 0: all from its key on."""

    @property
    def end(self) -> str:
        """Where a scan ends."""
        return chr(ord(self.key) + self.width) if self.width else END


@dataclass
class Record:
    """What a transaction did, what it was told, and when."""

    name: str
    timestamp: int = 0
    read_only: bool = False
    begun: int = 0
    """How many transactions had been committed when it began."""
    done: list[tuple[Step, Any]] = field(default_factory=list)


def perform(tx: Transaction, step: Step, record: Record) -> None:
    """Do a step and record it. Each value that is written exists once."""
    unique = f"{record.name}.{len(record.done)}"
    result: Any
    if step.kind == "get":
        result = tx.get(step.key)
    elif step.kind == "scan":
        result = tx.scan(step.key, step.end)
    elif step.kind == "put":
        result = unique
        tx.put(step.key, unique)
    elif step.kind == "delete":
        result = tx.delete(step.key)
    else:  # reads and writes: what it writes shows what it has read
        result = f"{tx.get(step.key)},{unique}"
        tx.put(step.key, result)
    record.done.append((step, result))


def complaints(records: Sequence[Record], final: dict[str, str]) -> list[str]:
    """Run committed transactions one after the other on a dictionary, and compare all they saw.

    Args:
        records: Those that were committed, in the order in which their commits returned.
        final: What is in the store at the end.
    """
    found = []
    serial = sorted(records, key=lambda record: (record.timestamp, record.read_only))
    writers = [record.timestamp for record in serial if not record.read_only]
    if len(set(writers)) < len(writers):
        found.append(f"timestamps are not unique: {writers}")
    for record in records:
        for earlier in records[: record.begun]:
            if record.timestamp <= earlier.timestamp and not record.read_only:
                found.append(
                    f"{record.name} began after {earlier.name} was committed, but is below"
                )
    data: dict[str, str] = {}
    for record in serial:
        for number, (step, told) in enumerate(record.done):
            unique = f"{record.name}.{number}"
            expected: Any = unique
            if step.kind == "get":
                expected = data.get(step.key)
            elif step.kind == "scan":
                expected = sorted(item for item in data.items() if step.key <= item[0] < step.end)
            elif step.kind == "append":
                expected = f"{data.get(step.key)},{unique}"
            elif step.kind == "delete":
                expected = data.pop(step.key, None) and None
            if step.kind in ("put", "append"):
                data[step.key] = expected
            if told != expected:
                found.append(
                    f"{record.name} at {record.timestamp}: {step} was told {told!r}, not {expected!r}"
                )
    if data != final:
        found.append(f"at the end there is {final}, not {data}")
    return found


def content(store: Store) -> dict[str, str]:
    """Return all that is committed."""
    return dict(store.run(lambda tx: tx.scan()))


def judge(records: Iterable[Record], store: Store) -> None:
    """Fail unless the history is serialisable in the order of the timestamps."""
    found = complaints(list(records), content(store))
    assert not found, "\n".join(found)


# --- For tests by hand ----------------------------------------------------------------------------


def waits(store: Store, tx: Transaction) -> bool:
    """Whether a transaction waits in the lock table."""
    return any(
        place.waits and place.txn.id == tx.id
        for state in store.table.states()
        for place in (*state.waiting_readers, *state.queued_writers)
    )


def put(store: Store, **items: str) -> int:
    """Write something in a transaction; return where it was committed."""
    with store.begin() as tx:
        for key, value in items.items():
            tx.put(key, value)
    return tx.timestamp
