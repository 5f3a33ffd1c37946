"""The lock server of the original: it handles a message, and informs all agents in changed queues."""

from __future__ import annotations

from locks.errors import assert_never
from locks.model import AgentId
from locks_lab.original.messages import Ask, End, Info, Note, Surrender
from locks_lab.original.queues import agents_in
from locks_lab.original.table import Table, remove, request, surrender
from locks_lab.original.variants import ORIGINAL, Variant

__all__ = ["serve"]


def serve(
    node: str, table: Table, message: Ask | Surrender | End, variant: Variant = ORIGINAL
) -> tuple[Table, list[tuple[AgentId, Info]]]:
    """A lock server handles a message.

    Args:
        node: Its node.
        table: Its table.
        message: The message.
        variant: The rules.

    Returns:
        Its new table, and its messages with their receivers.
    """
    note = None
    match message:
        case Ask(agent, lock_id, mode):
            table, changed = request(table, agent, lock_id, mode)
        case Surrender(agent, lock_id, version, behind):
            expected = version if variant.acknowledges == "version" else None
            table, changed = surrender(table, agent, lock_id, expected, behind)
            note = Note(agent, version)
        case End(agent):
            table, changed = remove(table, agent)
        case _:
            assert_never(message)
    told = [
        (agent, Info(node, row, note))
        for row in changed
        for agent in (*agents_in(row.queue), *row.watchers)
    ]
    return table, told
