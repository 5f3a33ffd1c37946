"""A picture of a lock table (`locks.mvcc`) as a Mermaid flowchart: who holds which key, and who stands in line.

    python -m examples.lock_table_picture

prints the picture of a small table, which `docs/mvcc.md` shows. `picture(table.states())` draws any other: look
at the table of a store in which something hangs. An arrow leads from each request to what it waits for.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from locks.mvcc import Committed, LockState, LockTable, Place, Request, Txn
from locks_lab.stories.diagrams import escape


def picture(states: Iterable[LockState]) -> str:
    """Some keys of a lock table, as a Mermaid flowchart."""
    lines = ["flowchart RL"]
    for number, state in enumerate(states):
        lines += [f"    {line}" for line in key_lines(state, f"k{number}")]
    return "\n".join(lines)


def key_lines(state: LockState, name: str) -> Iterator[str]:
    """One key: its holder or reservation, then the queue of writers, and the readers."""
    since = state.last_committed_timestamp
    title = f"key {state.key!r}" + (f", committed at {since}" if since is not None else "")
    yield f'subgraph {name}["{escape(title)}"]'
    yield "    direction RL"
    if state.holder is not None:
        yield f'    {name}h(["{whose(state.holder)}<br/>holds it"])'
    if state.reservation is not None:
        yield f'    {name}h{{{{"{whose(state.reservation.txn)}<br/>is the next to write"}}}}'
    before = f"{name}h"
    for place in state.queued_writers:
        yield f"    {waiting(place, 'write', name)} {arrow(place)} {before}"
        before = f"{name}n{place.number}"
    for place in state.waiting_readers:
        yield f"    {waiting(place, 'read', name)} {arrow(place)} {name}h"
    yield "end"


def waiting(place: Place, what: str, name: str) -> str:
    """A request that stands in line."""
    return f'{name}n{place.number}["{whose(place.txn)}<br/>waits to {what}"]'


def arrow(place: Place) -> str:
    """Dashed, if the request keeps its place here, and waits for another key."""
    return "-->" if place.waits else "-.->"


def whose(txn: Txn) -> str:
    """A transaction, with its timestamp."""
    return escape(f"{txn.id}, at {txn.timestamp}")


def example() -> LockTable:
    """A table with two keys: bob is the next to write one of them, and waits for the other, too."""
    table = LockTable()
    names = ("carl", "ann", "bob", "dora", "eve", "finn")
    carl, ann, bob, dora, eve, finn = (
        Txn(name, timestamp) for timestamp, name in enumerate(names, 10)
    )
    table.acquire_lock("x", carl)
    table.acquire_lock("y", ann)
    both = Request(writes=["x", "y"])
    _, bobs = table.scan_and_enqueue(both, bob)
    table.scan_and_enqueue(Request(writes=["x"]), eve)
    table.update_locks(
        "x", Committed(carl, 10)
    )  # bob, who came before eve, has the reservation now
    table.scan_and_enqueue(both, bob, bobs)  # and scans again: ann is in his way
    table.scan_and_enqueue(Request(reads=["y"]), dora)
    table.scan_and_enqueue(Request(writes=["y"]), finn)
    return table


def main() -> int:
    """Print the picture of the example."""
    table = example()
    print(picture(table.states()))
    table.stop()
    return 0


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
