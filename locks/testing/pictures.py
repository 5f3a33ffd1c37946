"""Sequence diagrams of simulations, as text for Mermaid.

Each client has a lifeline. An action of a client, or its outcome, is a box on the lifeline. An event
of several clients, such as a deadlock, is a box over all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from locks_lab.applications.greenlets import Note
from locks_lab.stories.diagrams import escape

__all__ = ["diagram"]


def diagram(notes: Sequence[Note], homes: Mapping[str, str]) -> str:
    """The notes as a diagram.

    Args:
        notes: The events, in the order of time.
        homes: The clients, and their nodes if there are several.
    """
    lines = ["sequenceDiagram"]
    columns = {name: f"C{number}" for number, name in enumerate(homes, 1)}
    for name, node in homes.items():
        head = f"{name} on {node}" if node else name
        lines.append(f"    participant {columns[name]} as {escape(head)}")
    everybody = ",".join(dict.fromkeys(("C1", f"C{len(columns)}"))) if columns else ""
    for note in notes:
        over, text = columns.get(note.who, everybody), (f"{note.who} {note.what}", *note.details)
        if note.who in columns:
            text = (note.what, *([] if note.place is None else [str(note.place)]))
        if over:
            lines.append(f"    Note over {over}: {'<br/>'.join(map(escape, text))}")
    return "\n".join(lines)
